"""The stand-in for the Kubernetes API: the services' deployments, pods and events over the estate."""

import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable, Mapping

import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from ai_platform_engineering.core.private_files import write_private_file
from ai_platform_engineering.demo.estate.cluster_objects import Json
from ai_platform_engineering.demo.estate.company import NAMESPACE, CompanyService
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn, StandIn
from ai_platform_engineering.demo.kubernetes import api_resources
from ai_platform_engineering.demo.kubernetes.api_requests import (
    APPLY_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    KubernetesApiError,
    ResourceRequest,
    conflict,
    error_response,
    invalid,
    no_such_resource,
    not_found,
    parse_request,
    read_body,
)
from ai_platform_engineering.demo.kubernetes.cluster import DemoCluster
from ai_platform_engineering.demo.kubernetes.deployment_changes import (
    DeploymentChange,
    DeploymentEditor,
    InvalidChange,
    check_replicas,
    merge_patch,
)
from ai_platform_engineering.demo.kubernetes.selectors import (
    InvalidSelector,
    parse_field_selector,
    parse_label_selector,
)
from ai_platform_engineering.demo.kubernetes.tables import build_table

DEMO_TOKEN = "demo-kubernetes-token"
KUBECONFIG_FILE = "kubeconfig"
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_MAX_PAGE = 500
_LIST_RESOURCE_VERSION = "1"

Handler = Callable[[Request], Awaitable[Response]]


def create_app(estate: Estate) -> Starlette:
    api = _KubernetesApi(estate)
    routes: tuple[tuple[str, Handler], ...] = (
        ("/version", api.show_version),
        ("/api", api.list_api_versions),
        ("/apis", api.list_groups),
        ("/api/{version}", api.list_resources),
        ("/apis/{group}/{version}", api.list_resources),
        ("/api/{version}/{path:path}", api.handle_resource),
        ("/apis/{group}/{version}/{path:path}", api.handle_resource),
        ("/{path:path}", api.refuse),
    )
    authenticated = [Route(path, _authenticated(handler), methods=_METHODS) for path, handler in routes]
    by_path = [Route(path, handler, methods=_METHODS) for path, handler in routes]
    return Starlette(
        routes=[Mount(f"/{DEMO_TOKEN}", routes=by_path), *authenticated],
        exception_handlers={KubernetesApiError: _error_response},
    )


def _variables(running: RunningStandIn) -> Mapping[str, str]:
    """Writes the kubeconfig. Clients send no token without TLS, so it is a part of the server's address."""
    path = running.folder / KUBECONFIG_FILE
    context = {"cluster": "demo", "user": "demo", "namespace": NAMESPACE}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "demo", "cluster": {"server": f"{running.url.rstrip('/')}/{DEMO_TOKEN}"}}],
        "users": [{"name": "demo", "user": {}}],
        "contexts": [{"name": "demo", "context": context}],
        "current-context": "demo",
    }
    write_private_file(path, yaml.safe_dump(config).encode())
    return {"KUBECONFIG": str(path), "KUBERNETES_READ_ONLY": "false"}


STAND_IN = StandIn("kubernetes", create_app, _variables)


class _KubernetesApi:
    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        self._cluster = DemoCluster(estate)

    async def show_version(self, request: Request) -> Response:
        return JSONResponse(api_resources.show_version())

    async def list_api_versions(self, request: Request) -> Response:
        return JSONResponse(api_resources.list_api_versions())

    async def list_groups(self, request: Request) -> Response:
        return JSONResponse(api_resources.list_groups())

    async def list_resources(self, request: Request) -> Response:
        group = request.path_params.get("group", "")
        resources = api_resources.list_resources(group, request.path_params["version"])
        if resources is None:
            raise no_such_resource()
        return JSONResponse(resources)

    async def refuse(self, request: Request) -> Response:
        raise no_such_resource()

    async def handle_resource(self, request: Request) -> Response:
        target = parse_request(request)
        match target.resource.name, target.verb:
            case "selfsubjectaccessreviews", _:
                _, review = await read_body(request)
                return JSONResponse(api_resources.review_access(review), 201)
            case "pods/log", _:
                return self._show_log(target, request)
            case "nodes/proxy", _:
                return self._show_node(target, request)
            case "deployments/scale", verb:
                return await self._scale(target, request, is_read=verb == "get")
            case _, "list":
                return self._list(target, request)
            case _, "get":
                return _object_response(target, request, self._find(target), self._estate)
            case "pods", "delete":
                return self._delete_pod(target, request)
            case _:
                return await self._change_deployment(target, request)

    def _list(self, target: ResourceRequest, request: Request) -> Response:
        if request.query_params.get("watch") in ("true", "1"):
            raise KubernetesApiError(405, "MethodNotAllowed", "watch is not supported by this demo cluster")
        items = self._cluster.list_objects(target.resource, target.namespace)
        try:
            has_labels = parse_label_selector(request.query_params.get("labelSelector", ""))
            has_fields = parse_field_selector(
                request.query_params.get("fieldSelector", ""), target.resource.kind
            )
        except InvalidSelector as error:
            raise KubernetesApiError(400, "BadRequest", str(error)) from error
        items = [item for item in items if has_labels(item) and has_fields(item)]
        page, metadata = _take_page(items, request)
        if _wants_table(request):
            return JSONResponse(build_table(target.resource.kind, page, metadata, self._estate.now))
        resource = target.resource
        return JSONResponse(
            {
                "kind": f"{resource.kind}List",
                "apiVersion": resource.api_version,
                "metadata": metadata,
                "items": page,
            }
        )

    def _find(self, target: ResourceRequest) -> Json:
        item = self._cluster.find_object(target.resource, target.namespace, target.name)
        if item is None:
            raise not_found(target)
        return item

    def _find_service(self, target: ResourceRequest) -> CompanyService:
        service = self._estate.company.find_service(target.name)
        if service is None or target.namespace != self._estate.company.namespace:
            raise not_found(target)
        return service

    def _show_log(self, target: ResourceRequest, request: Request) -> Response:
        pod = self._cluster.find_pod(target.name)
        if pod is None or target.namespace != self._estate.company.namespace:
            raise not_found(target)
        service, _ = pod
        container = request.query_params.get("container", service.name)
        if container != service.name:
            message = f"container {container} is not valid for pod {target.name}"
            raise KubernetesApiError(400, "BadRequest", message)
        previous = request.query_params.get("previous") == "true"
        lines = self._cluster.log_lines(service, previous=previous)
        if lines is None:
            message = f'container "{container}" in pod "{target.name}" is waiting to start: ContainerCreating'
            if previous:
                message = f'previous terminated container "{container}" in pod "{target.name}" not found'
            raise KubernetesApiError(400, "BadRequest", message)
        return _lines_response(lines, request.query_params.get("tailLines", ""))

    def _show_node(self, target: ResourceRequest, request: Request) -> Response:
        names = [item["metadata"]["name"] for item in self._cluster.list_objects(_NODES)]
        if target.name not in names:
            raise not_found(target)
        if target.subpath == "stats/summary":
            return JSONResponse(self._cluster.node_statistics(target.name))
        if target.subpath == "logs" and request.query_params.get("query") == "kubelet":
            lines = self._cluster.node_log_lines(target.name)
            return _lines_response(lines, request.query_params.get("tailLines", ""))
        raise no_such_resource()

    def _delete_pod(self, target: ResourceRequest, request: Request) -> Response:
        pod = self._find(target)
        owner = self._cluster.find_pod(target.name)
        if owner is not None and not _is_dry_run(request):
            self._estate.replace_pod(*owner)
        return JSONResponse(pod)

    async def _scale(self, target: ResourceRequest, request: Request, *, is_read: bool) -> Response:
        service = self._find_service(target)
        current = self._find_scale(target)
        if is_read:
            return JSONResponse(current)
        _, body = await read_body(request)
        _check_resource_version(target, body, current)
        scale = body if request.method == "PUT" else merge_patch(current, body)
        spec = scale.get("spec")
        try:
            replicas = check_replicas(spec.get("replicas", 0) if isinstance(spec, dict) else None)
        except InvalidChange as error:
            raise invalid(target, str(error)) from error
        self._make_change(target, request, service, DeploymentChange(replicas=replicas))
        return JSONResponse(self._find_scale(target))

    def _find_scale(self, target: ResourceRequest) -> Json:
        deployment = self._cluster.find_object(_DEPLOYMENTS, target.namespace, target.name)
        if deployment is None:
            raise not_found(target)
        keys = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {key: deployment["metadata"][key] for key in keys},
            "spec": {"replicas": deployment["spec"]["replicas"]},
            "status": {"replicas": deployment["status"]["replicas"], "selector": f"app={target.name}"},
        }

    async def _change_deployment(self, target: ResourceRequest, request: Request) -> Response:
        content_type, body = await read_body(request)
        if content_type == APPLY_PATCH and self._estate.company.find_service(target.name) is None:
            raise KubernetesApiError(
                403, "Forbidden", f'deployments.apps "{target.name}" is forbidden: nothing can be created'
            )
        service = self._find_service(target)
        _check_resource_version(target, body, self._find(target))
        try:
            change = self._read_change(request.method, content_type, body, service)
        except InvalidChange as error:
            raise invalid(target, str(error)) from error
        self._make_change(target, request, service, change)
        return JSONResponse(self._find(target))

    def _read_change(
        self, method: str, content_type: str, body: Json, service: CompanyService
    ) -> DeploymentChange:
        editor = DeploymentEditor(self._estate, service)
        spec = body.get("spec", {})
        if not isinstance(spec, dict):
            raise InvalidChange("spec: must be an object")
        if method == "PUT":
            return editor.replace(spec)
        readers = {
            APPLY_PATCH: editor.apply,
            MERGE_PATCH: editor.patch,
            STRATEGIC_PATCH: editor.strategic_patch,
        }
        if content_type in readers:
            return readers[content_type](spec)
        message = f"the body of the request was in an unknown format; accepted: {', '.join(readers)}"
        raise KubernetesApiError(415, "UnsupportedMediaType", message)

    def _make_change(
        self, target: ResourceRequest, request: Request, service: CompanyService, change: DeploymentChange
    ) -> None:
        if _is_dry_run(request):
            return
        try:
            change.apply(self._estate, service)
        except InvalidChange as error:
            raise invalid(target, str(error)) from error


def _resource(group: str, name: str) -> api_resources.KubernetesResource:
    resource = api_resources.find_resource(group, "v1", name)
    assert resource is not None
    return resource


_NODES = _resource("", "nodes")
_DEPLOYMENTS = _resource("apps", "deployments")


def _object_response(target: ResourceRequest, request: Request, item: Json, estate: Estate) -> Response:
    if _wants_table(request):
        metadata = {"resourceVersion": item["metadata"]["resourceVersion"]}
        return JSONResponse(build_table(target.resource.kind, [item], metadata, estate.now))
    return JSONResponse(item)


def _wants_table(request: Request) -> bool:
    return "as=Table" in request.headers.get("Accept", "")


def _is_dry_run(request: Request) -> bool:
    return request.query_params.get("dryRun") == "All"


def _check_resource_version(target: ResourceRequest, body: Json, current: Json) -> None:
    metadata = body.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if version and version != current["metadata"]["resourceVersion"]:
        raise conflict(target)


def _take_page(items: list[Json], request: Request) -> tuple[list[Json], Json]:
    """A page of a list and the list's metadata; the continue token is the offset of the next page."""
    metadata: Json = {"resourceVersion": _LIST_RESOURCE_VERSION}
    limit_text = request.query_params.get("limit", "")
    limit = min(int(limit_text), _MAX_PAGE) if limit_text.isdecimal() and int(limit_text) > 0 else _MAX_PAGE
    offset = _read_offset(request.query_params.get("continue", ""))
    page = items[offset : offset + limit]
    remaining = len(items) - offset - len(page)
    if remaining > 0:
        metadata["continue"] = base64.urlsafe_b64encode(str(offset + limit).encode()).decode()
        metadata["remainingItemCount"] = remaining
    return page, metadata


def _read_offset(token: str) -> int:
    if not token:
        return 0
    try:
        return max(0, int(base64.urlsafe_b64decode(token)))
    except (binascii.Error, ValueError):
        raise KubernetesApiError(400, "BadRequest", "continue key is not valid") from None


def _lines_response(lines: list[str], tail_lines: str) -> Response:
    if tail_lines.isdecimal():
        lines = lines[max(0, len(lines) - int(tail_lines)) :]
    return PlainTextResponse("".join(f"{line}\n" for line in lines))


def _authenticated(handler: Handler) -> Handler:
    async def endpoint(request: Request) -> Response:
        header = request.headers.get("Authorization", "")
        if not hmac.compare_digest(header.encode(), f"Bearer {DEMO_TOKEN}".encode()):
            raise KubernetesApiError(401, "Unauthorized", "Unauthorized")
        return await handler(request)

    return endpoint


async def _error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, KubernetesApiError)
    return error_response(error)
