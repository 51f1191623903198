"""The objects of the demo's cluster: those of the services, namespaces, nodes and metrics."""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

from ai_platform_engineering.demo.estate.cluster_objects import (
    CONTAINER_PORT,
    NODE_COUNT,
    ClusterObjects,
    Json,
    node_address,
    node_name,
    timestamp,
)
from ai_platform_engineering.demo.estate.company import CompanyService
from ai_platform_engineering.demo.estate.estate import Estate, Health
from ai_platform_engineering.demo.kubernetes.api_resources import METRICS_GROUP, KubernetesResource

_NAMESPACES = ("argocd", "default", "kube-system")  # beside that of the services
_AGE = timedelta(days=120)
_KUBELET_VERSION = "v1.33.1"
_NODE_MEBIBYTES = 16_384
_NODE_MILLICORES = 4_000


class DemoCluster:
    """Builds the objects of a resource type as they are now."""

    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        self._builders: dict[tuple[str, str], Callable[[], list[Json]]] = {
            ("", "configmaps"): self._config_maps,
            ("", "events"): lambda: self._collect(ClusterObjects.events),
            ("", "namespaces"): self._namespaces,
            ("", "nodes"): self._nodes,
            ("", "pods"): lambda: self._collect(ClusterObjects.pods),
            ("", "services"): self._services,
            ("apps", "deployments"): lambda: self._collect(lambda objects: [objects.deployment()]),
            ("apps", "replicasets"): lambda: self._collect(ClusterObjects.replica_sets),
            (METRICS_GROUP, "nodes"): self._node_metrics,
            (METRICS_GROUP, "pods"): self._pod_metrics,
        }

    def list_objects(self, resource: KubernetesResource, namespace: str | None = None) -> list[Json]:
        """Sorted by namespace and name; without a namespace those of all."""
        objects = self._builders[(resource.group, resource.plural)]()
        if namespace is not None:
            objects = [item for item in objects if item["metadata"].get("namespace") == namespace]
        for item in objects:
            item["metadata"].setdefault("resourceVersion", _resource_version(item))
        return sorted(objects, key=_sort_key)

    def find_object(self, resource: KubernetesResource, namespace: str | None, name: str) -> Json | None:
        for item in self.list_objects(resource, namespace):
            if item["metadata"]["name"] == name:
                return item
        return None

    def find_pod(self, name: str) -> tuple[CompanyService, int] | None:
        """The service that a pod belongs to, and the pod's number."""
        for service in self._estate.company.services:
            for number, pod in enumerate(ClusterObjects(self._estate, service).pods()):
                if pod["metadata"]["name"] == name:
                    return service, number
        return None

    def log_lines(self, service: CompanyService, *, previous: bool) -> list[str] | None:
        """What a pod's container logged; None where it does not run yet, or has no previous container."""
        health = self._estate.health(service)
        if health == Health.PROGRESSING or (previous and health != Health.DEGRADED):
            return None
        return ClusterObjects(self._estate, service).log_lines()

    def node_log_lines(self, node: str) -> list[str]:
        """What the kubelet of a node logged of pods that crash."""
        pods = {pod["metadata"]["name"]: pod for pod in self._collect(ClusterObjects.pods)}
        lines = [f'{timestamp(self._estate.now - _AGE)} kubelet: "Starting kubelet" node="{node}"']
        for event in self._collect(ClusterObjects.events):
            pod = pods[event["involvedObject"]["name"]]
            if pod["spec"]["nodeName"] == node:
                failure = f'"Error syncing pod" err="{event["message"]}"'
                lines.append(f"{event['lastTimestamp']} kubelet: {failure}")
        return lines

    def node_statistics(self, node: str) -> Json:
        """The answer of a kubelet's Summary API."""
        measured_at = timestamp(self._estate.now)
        pods: list[Json] = []
        for pod in self._collect(ClusterObjects.pods):
            if pod["spec"]["nodeName"] != node:
                continue
            cpu, memory = _pod_usage(pod)
            reference = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
            pods.append({"podRef": reference, **_kubelet_usage(cpu, memory, measured_at)})
        cpu = sum(pod["cpu"]["usageNanoCores"] for pod in pods) // 1_000_000
        memory = sum(pod["memory"]["workingSetBytes"] for pod in pods) // 2**20
        node_usage = _kubelet_usage(cpu + 180, memory + 900, measured_at)
        return {"node": {"nodeName": node, **node_usage}, "pods": pods}

    def _collect(self, build: Callable[[ClusterObjects], list[Json]]) -> list[Json]:
        objects: list[Json] = []
        for service in self._estate.company.services:
            objects += build(ClusterObjects(self._estate, service))
        return objects

    def _metadata(self, name: str, namespace: str | None = None) -> Json:
        metadata: Json = {
            "name": name,
            "uid": hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:32],
            "creationTimestamp": timestamp(self._founded_at),
        }
        if namespace is not None:
            metadata["namespace"] = namespace
        return metadata

    @property
    def _founded_at(self) -> datetime:
        return self._estate.company.now - _AGE

    def _namespaces(self) -> list[Json]:
        namespaces: list[Json] = []
        for name in (*_NAMESPACES, self._estate.company.namespace):
            metadata = self._metadata(name) | {"labels": {"kubernetes.io/metadata.name": name}}
            namespaces.append(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": metadata,
                    "spec": {"finalizers": ["kubernetes"]},
                    "status": {"phase": "Active"},
                }
            )
        return namespaces

    def _nodes(self) -> list[Json]:
        return [self._node(number) for number in range(NODE_COUNT)]

    def _node(self, number: int) -> Json:
        name = node_name(number)
        resources = {"cpu": f"{_NODE_MILLICORES}m", "memory": f"{_NODE_MEBIBYTES}Mi", "pods": "110"}
        metadata = self._metadata(name) | {"labels": {"kubernetes.io/hostname": name}}
        conditions = [
            {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"},
            {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"},
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
        ]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {"podCIDR": f"10.42.{number}.0/24", "unschedulable": False},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": conditions,
                "addresses": [{"type": "InternalIP", "address": node_address(number)}],
                "nodeInfo": {"kubeletVersion": _KUBELET_VERSION, "operatingSystem": "linux"},
            },
        }

    def _services(self) -> list[Json]:
        company = self._estate.company
        services = [self._service("kubernetes", "default", "10.43.0.1", 443, {"component": "apiserver"})]
        for number, service in enumerate(company.services, start=10):
            labels = {"app": service.name}
            item = self._service(service.name, company.namespace, f"10.43.0.{number}", 80, labels)
            item["spec"]["selector"] = labels
            item["spec"]["ports"][0]["targetPort"] = CONTAINER_PORT
            services.append(item)
        return services

    def _service(self, name: str, namespace: str, address: str, port: int, labels: Json) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(name, namespace) | {"labels": labels},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": address,
                "ports": [{"port": port, "protocol": "TCP"}],
            },
            "status": {"loadBalancer": {}},
        }

    def _config_maps(self) -> list[Json]:
        company = self._estate.company
        addresses = {
            service.name: f"http://{service.name}.{company.namespace}.svc.cluster.local"
            for service in company.services
        }
        metadata = self._metadata("service-addresses", company.namespace)
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": addresses}]

    def _pod_metrics(self) -> list[Json]:
        metrics: list[Json] = []
        for pod in self._collect(ClusterObjects.pods):
            cpu, memory = _pod_usage(pod)
            name = pod["spec"]["containers"][0]["name"]
            metrics.append(
                {
                    **self._measurement("PodMetrics", pod["metadata"]),
                    "containers": [{"name": name, "usage": _usage(cpu, memory)}],
                }
            )
        return metrics

    def _node_metrics(self) -> list[Json]:
        metrics: list[Json] = []
        for node in self._nodes():
            statistics = self.node_statistics(node["metadata"]["name"])["node"]
            cpu = statistics["cpu"]["usageNanoCores"] // 1_000_000
            memory = statistics["memory"]["workingSetBytes"] // 2**20
            metrics.append(
                {**self._measurement("NodeMetrics", node["metadata"]), "usage": _usage(cpu, memory)}
            )
        return metrics

    def _measurement(self, kind: str, metadata: Json) -> Json:
        return {
            "apiVersion": f"{METRICS_GROUP}/v1beta1",
            "kind": kind,
            "metadata": dict(metadata),
            "timestamp": timestamp(self._estate.now),
            "window": "15s",
        }


def _pod_usage(pod: Json) -> tuple[int, int]:
    """Millicores and mebibytes, the same for the same pod; a pod that does not run uses none."""
    if not pod["status"]["containerStatuses"][0]["ready"]:
        return 0, 0
    digest = hashlib.sha256(pod["metadata"]["name"].encode()).digest()
    return 20 + digest[0] % 60, 96 + digest[1] % 160


def _usage(cpu: int, memory: int) -> Json:
    return {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}


def _kubelet_usage(cpu: int, memory: int, measured_at: str) -> Json:
    return {
        "cpu": {"time": measured_at, "usageNanoCores": cpu * 1_000_000},
        "memory": {"time": measured_at, "workingSetBytes": memory * 2**20},
    }


def _sort_key(item: Json) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _resource_version(item: Json) -> str:
    """Another number whenever what a client may change is another one."""
    content = repr((item["metadata"], item.get("spec"), item.get("data")))
    return str(int(hashlib.sha256(content.encode()).hexdigest()[:12], 16))
