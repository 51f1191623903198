"""Applications, resource trees, projects and clusters in the JSON of Argo CD's API."""

from ai_platform_engineering.demo.estate.cluster_objects import ClusterObjects, Json
from ai_platform_engineering.demo.estate.company import CompanyService, Team
from ai_platform_engineering.demo.estate.estate import DeployedRevision, Estate, Health
from ai_platform_engineering.demo.estate.repositories import image_name

_CLUSTER_URL = "https://kubernetes.default.svc"
_NAMESPACE = "argocd"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class ApplicationRenderer:
    def __init__(self, estate: Estate) -> None:
        self._estate = estate

    def application(self, service: CompanyService) -> Json:
        deployment = self._estate.deployment(service)
        current = deployment.current
        health = self._estate.health(service)
        head = self._estate.files(service).find_revision("HEAD")
        is_synced = head is not None and head.sha == current.revision.sha
        return {
            "metadata": {
                "name": service.name,
                "namespace": _NAMESPACE,
                "labels": {"team": service.team.name.lower()},
                "creationTimestamp": deployment.history[0].started_at.strftime(_TIME),
            },
            "spec": {
                "project": service.team.name.lower(),
                "source": self._source(service) | {"targetRevision": "HEAD"},
                "destination": {"server": _CLUSTER_URL, "namespace": self._estate.company.namespace},
            },
            "status": {
                "sync": {"status": "Synced" if is_synced else "OutOfSync", "revision": current.revision.sha},
                "health": {"status": health.value},
                "summary": {"images": [self._image(service, current)]},
                "history": [self._history_entry(service, entry) for entry in deployment.history],
                "operationState": self._operation(current, health),
                "resources": [self._resource(service, health)],
            },
        }

    def resource_tree(self, service: CompanyService) -> Json:
        objects = ClusterObjects(self._estate, service)
        health = self._estate.health(service)
        nodes = [_node(objects.deployment(), health, "")]
        for replica_set in objects.replica_sets():
            has_pods = replica_set["spec"]["replicas"] > 0
            nodes.append(_node(replica_set, health if has_pods else Health.HEALTHY, "Deployment"))
        nodes += [_node(pod, health, "ReplicaSet") for pod in objects.pods()]
        return {"nodes": nodes}

    def _source(self, service: CompanyService) -> Json:
        organization = self._estate.company.organization
        return {"repoURL": f"https://github.com/{organization}/{service.name}", "path": "deploy"}

    def _image(self, service: CompanyService, entry: DeployedRevision) -> str:
        return image_name(self._estate.company, service, entry.revision.version)

    def _history_entry(self, service: CompanyService, entry: DeployedRevision) -> Json:
        return {
            "id": entry.id,
            "revision": entry.revision.sha,
            "deployStartedAt": entry.started_at.strftime(_TIME),
            "deployedAt": entry.finished_at.strftime(_TIME),
            "initiatedBy": {"username": entry.initiated_by},
            "source": self._source(service) | {"targetRevision": entry.revision.version},
        }

    def _operation(self, entry: DeployedRevision, health: Health) -> Json:
        operation: Json = {
            "phase": "Running" if health == Health.PROGRESSING else "Succeeded",
            "startedAt": entry.started_at.strftime(_TIME),
            "syncResult": {"revision": entry.revision.sha},
        }
        if health != Health.PROGRESSING:
            operation["finishedAt"] = entry.finished_at.strftime(_TIME)
            operation["message"] = "successfully synced (all tasks run)"
        return operation

    def _resource(self, service: CompanyService, health: Health) -> Json:
        return {
            "group": "apps",
            "version": "v1",
            "kind": "Deployment",
            "namespace": self._estate.company.namespace,
            "name": service.name,
            "status": "Synced",
            "health": {"status": health.value},
        }


def project(estate: Estate, team: Team) -> Json:
    destination = {"server": _CLUSTER_URL, "namespace": estate.company.namespace}
    repositories = f"https://github.com/{estate.company.organization}/*"
    return {
        "metadata": {"name": team.name.lower(), "namespace": _NAMESPACE},
        "spec": {
            "description": f"Services of the team {team.name}",
            "sourceRepos": [repositories],
            "destinations": [destination],
        },
    }


def cluster(estate: Estate) -> Json:
    info = {"applicationsCount": len(estate.company.services), "connectionState": {"status": "Successful"}}
    return {"server": _CLUSTER_URL, "name": "in-cluster", "serverVersion": "1.33", "info": info}


def _node(resource: Json, health: Health, parent_kind: str) -> Json:
    group, _, version = resource["apiVersion"].rpartition("/")
    node: Json = {
        "group": group,
        "version": version,
        "kind": resource["kind"],
        "namespace": resource["metadata"]["namespace"],
        "name": resource["metadata"]["name"],
        "uid": resource["metadata"]["uid"],
        "createdAt": resource["metadata"]["creationTimestamp"],
        "health": {"status": health.value},
        "parentRefs": [],
    }
    for owner in resource["metadata"].get("ownerReferences", []):
        node["parentRefs"].append({"kind": parent_kind, "name": owner["name"], "group": "apps"})
    return node
