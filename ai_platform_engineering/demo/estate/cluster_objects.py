"""The estate's services as Kubernetes objects: deployments, replica sets, pods, events and logs."""

import hashlib
from datetime import datetime
from typing import Any

from ai_platform_engineering.demo.estate.company import CompanyService
from ai_platform_engineering.demo.estate.estate import DeployedRevision, Estate, Health
from ai_platform_engineering.demo.estate.repositories import image_name

Json = dict[str, Any]

_MAX_REPLICA_SETS = 5
_MAX_RESTARTS = 40
_RESTART_SECONDS = 120
CONTAINER_PORT = 8080
NODE_COUNT = 3
RESTART_ANNOTATION = "kubectl.kubernetes.io/restartedAt"
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"


class ClusterObjects:
    """Builds the Kubernetes objects of one service as they are now."""

    def __init__(self, estate: Estate, service: CompanyService) -> None:
        self._estate = estate
        self._service = service
        self._namespace = estate.company.namespace
        self._deployment = estate.deployment(service)
        self._health = estate.health(service)

    def deployment(self) -> Json:
        replicas = self._deployment.replicas
        is_healthy = self._health == Health.HEALTHY
        ready = replicas if is_healthy else 0
        reason = "NewReplicaSetAvailable" if is_healthy else "ProgressDeadlineExceeded"
        if self._health == Health.PROGRESSING:
            reason = "ReplicaSetUpdated"
        status: Json = {
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": replicas - ready,
            "observedGeneration": self._deployment.current.id,
            "conditions": [
                {"type": "Available", "status": str(is_healthy)},
                {"type": "Progressing", "status": str(is_healthy), "reason": reason},
            ],
        }
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": self._service.name}},
            "template": self._pod_template(self._deployment.current),
        }
        metadata = self._metadata(self._service.name, self._deployment.history[0].started_at)
        metadata["generation"] = self._deployment.current.id
        metadata["annotations"] = {REVISION_ANNOTATION: str(self._deployment.current.id)}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }

    def replica_sets(self) -> list[Json]:
        """One for each revision of the newest deployments; only that of the current one has pods."""
        entries: dict[str, DeployedRevision] = {}
        for entry in self._deployment.history[-_MAX_REPLICA_SETS:]:
            entries[entry.revision.sha] = entry
        return [self._replica_set(entry) for entry in entries.values()]

    def pods(self) -> list[Json]:
        """In the order of their numbers."""
        entry = self._deployment.current
        return [self._pod(entry, number) for number in range(self._deployment.replicas)]

    def events(self) -> list[Json]:
        """Warnings of pods that crash; a service without crashes has none."""
        if self._health != Health.DEGRADED:
            return []
        events = []
        for pod in self.pods():
            name = pod["metadata"]["name"]
            message = f"Back-off restarting failed container {self._service.name} in pod {name}"
            events.append(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": self._metadata(f"{name}.backoff", self._deployment.current.finished_at),
                    "involvedObject": {"kind": "Pod", "namespace": self._namespace, "name": name},
                    "type": "Warning",
                    "reason": "BackOff",
                    "message": message,
                    "count": self._restarts(),
                    "firstTimestamp": timestamp(self._deployment.current.finished_at),
                    "lastTimestamp": timestamp(self._estate.now),
                    "source": {"component": "kubelet"},
                }
            )
        return events

    def log_lines(self) -> list[str]:
        """What a container of the current revision has logged since its last start."""
        revision = self._deployment.current.revision
        lines = [f"INFO {self._service.name} {revision.version} starts"]
        missing = self._estate.missing_settings(self._service, revision)
        if not missing:
            return [*lines, "INFO listening on port 8080"]
        return [*lines, f"FATAL configuration: required setting {missing[0]} is not set"]

    def _replica_set(self, entry: DeployedRevision) -> Json:
        is_current = entry.revision.sha == self._deployment.current.revision.sha
        replicas = self._deployment.replicas if is_current else 0
        ready = replicas if self._health == Health.HEALTHY else 0
        metadata = self._metadata(self._replica_set_name(entry), entry.started_at)
        metadata["labels"] = self._pod_labels(entry)
        metadata["annotations"] = {REVISION_ANNOTATION: str(entry.id)}
        metadata["ownerReferences"] = [self._owner("Deployment", self._service.name)]
        template = self._pod_template(entry)
        template["metadata"]["labels"] = self._pod_labels(entry)
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": self._pod_labels(entry)},
            "template": template,
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": metadata,
            "spec": spec,
            "status": {"replicas": replicas, "readyReplicas": ready},
        }

    def _pod(self, entry: DeployedRevision, number: int) -> Json:
        deployment = self._deployment
        started_at = max(entry.started_at, deployment.restarted_at or entry.started_at)
        started_at = max(started_at, deployment.replaced_pods.get(number, started_at))
        name = f"{self._replica_set_name(entry)}-{_digest(f'{started_at}{number}')[:5]}"
        metadata = self._metadata(name, started_at)
        metadata["labels"] = self._pod_labels(entry)
        metadata["ownerReferences"] = [self._owner("ReplicaSet", self._replica_set_name(entry))]
        is_healthy = self._health == Health.HEALTHY
        template = self._pod_template(entry)
        status: Json = {
            "name": self._service.name,
            "image": template["spec"]["containers"][0]["image"],
            "ready": is_healthy,
            "restartCount": self._restarts(),
            "state": self._container_state(started_at),
        }
        if self._health == Health.DEGRADED:
            finished_at = timestamp(self._estate.now)
            status["lastState"] = {
                "terminated": {"exitCode": 1, "reason": "Error", "finishedAt": finished_at}
            }
        node = int(_digest(name), 16) % NODE_COUNT
        pod_status: Json = {
            "phase": "Pending" if self._health == Health.PROGRESSING else "Running",
            "startTime": timestamp(started_at),
            "hostIP": node_address(node),
            "podIP": f"10.42.{node}.{int(_digest(name), 16) % 250 + 2}",
            "conditions": [{"type": "Ready", "status": str(is_healthy)}],
            "containerStatuses": [status],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": template["spec"] | {"nodeName": node_name(node), "restartPolicy": "Always"},
            "status": pod_status,
        }

    def _container_state(self, started_at: datetime) -> Json:
        if self._health == Health.PROGRESSING:
            return {"waiting": {"reason": "ContainerCreating"}}
        if self._health == Health.DEGRADED:
            message = f"back-off 5m0s restarting failed container={self._service.name}"
            return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        return {"running": {"startedAt": timestamp(started_at)}}

    def _restarts(self) -> int:
        if self._health != Health.DEGRADED:
            return 0
        seconds = (self._estate.now - self._deployment.current.finished_at).total_seconds()
        return min(1 + int(seconds / _RESTART_SECONDS), _MAX_RESTARTS)

    def _pod_template(self, entry: DeployedRevision) -> Json:
        settings = self._estate.files(self._service).manifest_settings(entry.revision.sha)
        settings |= self._deployment.settings
        container = {
            "name": self._service.name,
            "image": image_name(self._estate.company, self._service, entry.revision.version),
            "ports": [{"containerPort": CONTAINER_PORT}],
            "env": [{"name": name, "value": value} for name, value in settings.items()],
        }
        metadata: Json = {"labels": {"app": self._service.name}}
        if self._deployment.restarted_at:
            metadata["annotations"] = {RESTART_ANNOTATION: timestamp(self._deployment.restarted_at)}
        return {"metadata": metadata, "spec": {"containers": [container]}}

    def _pod_labels(self, entry: DeployedRevision) -> Json:
        return {"app": self._service.name, "pod-template-hash": entry.revision.sha[:9]}

    def _owner(self, kind: str, name: str) -> Json:
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "name": name,
            "uid": _digest(f"{self._namespace}/{name}"),
            "controller": True,
        }

    def _replica_set_name(self, entry: DeployedRevision) -> str:
        return f"{self._service.name}-{entry.revision.sha[:9]}"

    def _metadata(self, name: str, created_at: datetime) -> Json:
        return {
            "name": name,
            "namespace": self._namespace,
            "uid": _digest(f"{self._namespace}/{name}"),
            "creationTimestamp": timestamp(created_at),
            "labels": {"app": self._service.name},
        }


def node_name(number: int) -> str:
    return f"node-{number + 1}"


def node_address(number: int) -> str:
    return f"10.0.0.{number + 11}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
