"""Lists as tables (`as=Table;g=meta.k8s.io`): the columns that `kubectl get -o wide` prints."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from ai_platform_engineering.demo.estate.cluster_objects import Json

Cells = Callable[[Json], list[Any]]

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def build_table(kind: str, items: Sequence[Json], list_metadata: Json, now: datetime) -> Json:
    columns, read_cells = _TABLES.get(kind, (_NAME_AND_AGE, _name_cells))
    rows: list[Json] = []
    for item in items:
        cells = [_age(item, now) if cell is _AGE else cell for cell in read_cells(item)]
        metadata = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": item["metadata"],
        }
        rows.append({"cells": cells, "object": metadata})
    first_cells = rows[0]["cells"] if rows else [""] * len(columns)
    definitions = [_column(name, cell) for name, cell in zip(columns, first_cells, strict=True)]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def pod_status(pod: Json) -> str:
    """What `kubectl` shows as a pod's status: why its container waits, else its phase."""
    state = pod["status"]["containerStatuses"][0]["state"]
    waiting: Json = state.get("waiting", {})
    return str(waiting.get("reason", pod["status"]["phase"]))


def _column(name: str, first_cell: Any) -> Json:
    """A column's definition, with the type of its first cell."""
    return {
        "name": name,
        "type": "integer" if isinstance(first_cell, int) else "string",
        "format": "name" if name == "Name" else "",
        "description": name,
        "priority": 0,
    }


_AGE = object()  # replaced by the age of the row's object
_NAME_AND_AGE = ("Name", "Age")


def _name_cells(item: Json) -> list[Any]:
    return [item["metadata"]["name"], _AGE]


def _pod_cells(pod: Json) -> list[Any]:
    statuses = pod["status"]["containerStatuses"]
    ready = sum(status["ready"] for status in statuses)
    restarts = sum(status["restartCount"] for status in statuses)
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(statuses)}",
        pod_status(pod),
        str(restarts),
        _AGE,
        pod["status"]["podIP"],
        pod["spec"]["nodeName"],
    ]


def _deployment_cells(deployment: Json) -> list[Any]:
    status = deployment["status"]
    return [
        deployment["metadata"]["name"],
        f"{status['readyReplicas']}/{deployment['spec']['replicas']}",
        status["updatedReplicas"],
        status["availableReplicas"],
        _AGE,
        *_container_cells(deployment),
    ]


def _replica_set_cells(replica_set: Json) -> list[Any]:
    status = replica_set["status"]
    return [
        replica_set["metadata"]["name"],
        replica_set["spec"]["replicas"],
        status["replicas"],
        status["readyReplicas"],
        _AGE,
        *_container_cells(replica_set),
    ]


def _container_cells(workload: Json) -> list[Any]:
    containers = workload["spec"]["template"]["spec"]["containers"]
    labels = workload["spec"]["selector"]["matchLabels"]
    return [
        ",".join(container["name"] for container in containers),
        ",".join(container["image"] for container in containers),
        ",".join(f"{name}={value}" for name, value in labels.items()),
    ]


def _service_cells(service: Json) -> list[Any]:
    ports = [f"{port['port']}/{port['protocol']}" for port in service["spec"]["ports"]]
    selector = service["spec"].get("selector", {})
    return [
        service["metadata"]["name"],
        service["spec"]["type"],
        service["spec"]["clusterIP"],
        "<none>",
        ",".join(ports),
        _AGE,
        ",".join(f"{name}={value}" for name, value in selector.items()) or "<none>",
    ]


def _node_cells(node: Json) -> list[Any]:
    ready = next(item for item in node["status"]["conditions"] if item["type"] == "Ready")
    status = "Ready" if ready["status"] == "True" else "NotReady"
    version = node["status"]["nodeInfo"]["kubeletVersion"]
    address = node["status"]["addresses"][0]["address"]
    return [node["metadata"]["name"], status, "<none>", _AGE, version, address]


def _event_cells(event: Json) -> list[Any]:
    target = event["involvedObject"]
    return [
        event["lastTimestamp"],
        event["type"],
        event["reason"],
        f"{target['kind'].lower()}/{target['name']}",
        event["message"],
        str(event["count"]),
    ]


_WORKLOAD_COLUMNS = ("Age", "Containers", "Images", "Selector")
_TABLES: dict[str, tuple[tuple[str, ...], Cells]] = {
    "ConfigMap": (("Name", "Data", "Age"), lambda item: [item["metadata"]["name"], len(item["data"]), _AGE]),
    "Deployment": (("Name", "Ready", "Up-to-date", "Available", *_WORKLOAD_COLUMNS), _deployment_cells),
    "Event": (("Last Seen", "Type", "Reason", "Object", "Message", "Count"), _event_cells),
    "Namespace": (
        ("Name", "Status", "Age"),
        lambda item: [item["metadata"]["name"], item["status"]["phase"], _AGE],
    ),
    "Node": (("Name", "Status", "Roles", "Age", "Version", "Internal-IP"), _node_cells),
    "Pod": (("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node"), _pod_cells),
    "ReplicaSet": (("Name", "Desired", "Current", "Ready", *_WORKLOAD_COLUMNS), _replica_set_cells),
    "Service": (
        ("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"),
        _service_cells,
    ),
}


def _age(item: Json, now: datetime) -> str:
    created_at = datetime.fromisoformat(item["metadata"]["creationTimestamp"])
    seconds = max(0, int((now - created_at).total_seconds()))
    if seconds < _MINUTE:
        return f"{seconds}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < _DAY:
        return f"{seconds // _HOUR}h"
    return f"{seconds // _DAY}d"
