"""Requests to the Kubernetes API: what a path names, the verb, the body; errors as Status objects."""

import json
from dataclasses import dataclass
from typing import Any

import yaml
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ai_platform_engineering.demo.estate.cluster_objects import Json
from ai_platform_engineering.demo.kubernetes.api_resources import (
    USER,
    KubernetesResource,
    find_resource,
)
from ai_platform_engineering.demo.kubernetes.protobuf_reviews import PROTOBUF, read_review

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_JSON = "application/json"
_MAX_BODY_BYTES = 1_000_000
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_CLUSTER_PREFIX = "namespaces"


class KubernetesApiError(Exception):
    """An error that the API answers as a Status object."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What a request is about; `subpath` is what follows the name and the subresource."""

    resource: KubernetesResource
    verb: str
    namespace: str | None = None
    name: str = ""
    subpath: str = ""


def parse_request(request: Request) -> ResourceRequest:
    """Raises KubernetesApiError for an unknown resource and for a verb that the account may not use."""
    group = request.path_params.get("group", "")
    version = request.path_params["version"]
    parts = [part for part in request.path_params["path"].split("/") if part]
    namespace = None
    if len(parts) > 2 and parts[0] == _CLUSTER_PREFIX:
        namespace = parts[1]
        parts = parts[2:]
    plural = parts[0] if parts else ""
    name = parts[1] if len(parts) > 1 else ""
    subresource = f"/{parts[2]}" if len(parts) > 2 else ""
    resource = find_resource(group, version, plural + subresource)
    if resource is None or (namespace is not None and not resource.namespaced):
        raise no_such_resource()
    verb = _VERBS.get(request.method, request.method.lower())
    if verb == "get" and not name:
        verb = "list"
    target = ResourceRequest(resource, verb, namespace, name, "/".join(parts[3:]))
    _check_access(target)
    return target


def no_such_resource() -> KubernetesApiError:
    return KubernetesApiError(404, "NotFound", "the server could not find the requested resource")


def not_found(target: ResourceRequest) -> KubernetesApiError:
    return KubernetesApiError(404, "NotFound", f'{_qualified_name(target)} "{target.name}" not found')


def invalid(target: ResourceRequest, message: str) -> KubernetesApiError:
    kind = target.resource.kind
    return KubernetesApiError(422, "Invalid", f'{kind} "{target.name}" is invalid: {message}')


def conflict(target: ResourceRequest) -> KubernetesApiError:
    message = (
        f'Operation cannot be fulfilled on {_qualified_name(target)} "{target.name}": the object has been'
        " modified; please apply your changes to the latest version and try again"
    )
    return KubernetesApiError(409, "Conflict", message)


async def read_body(request: Request) -> tuple[str, Json]:
    """The content type and the object in the body. Raises KubernetesApiError."""
    content_type = request.headers.get("Content-Type", _JSON).partition(";")[0].strip()
    raw_body = await request.body()
    if len(raw_body) > _MAX_BODY_BYTES:
        raise KubernetesApiError(413, "RequestEntityTooLarge", "the request body is too large")
    body = _decode(content_type, raw_body)
    if not isinstance(body, dict):
        raise KubernetesApiError(400, "BadRequest", "the body is no object")
    return content_type, body


def error_response(error: KubernetesApiError) -> Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        "code": error.status,
    }
    return JSONResponse(body, error.status)


def _check_access(target: ResourceRequest) -> None:
    if target.verb in target.resource.verbs:
        return
    place = f' in the namespace "{target.namespace}"' if target.namespace else " at the cluster scope"
    name = f' "{target.name}"' if target.name else ""
    group = target.resource.group
    message = (
        f'{_qualified_name(target)}{name} is forbidden: User "{USER}" cannot {target.verb} resource'
        f' "{target.resource.name}" in API group "{group}"{place}'
    )
    raise KubernetesApiError(403, "Forbidden", message)


def _qualified_name(target: ResourceRequest) -> str:
    resource = target.resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _decode(content_type: str, raw_body: bytes) -> Any:
    """None where the body is not what its type says."""
    try:
        if content_type == PROTOBUF:
            return read_review(raw_body)
        if content_type == APPLY_PATCH and not raw_body.startswith(b"{"):
            return yaml.safe_load(raw_body)
        return json.loads(raw_body or b"{}")
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
