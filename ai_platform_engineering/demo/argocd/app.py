"""The stand-in for Argo CD's REST API: applications over the estate, their resources, sync and rollback."""

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ai_platform_engineering.demo.argocd.applications import ApplicationRenderer, cluster, project
from ai_platform_engineering.demo.estate.cluster_objects import ClusterObjects, Json
from ai_platform_engineering.demo.estate.company import CompanyService
from ai_platform_engineering.demo.estate.estate import Estate, UnknownRevision
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn, StandIn

DEMO_TOKEN = "demo-argocd-token"
_ACTOR = "admin"
_RESTART_ACTION = "restart"
_APPLICATION = "/api/v1/applications/{name}"
_NOT_FOUND_CODE = 5  # of gRPC, whose codes Argo CD answers with
_INVALID_ARGUMENT_CODE = 3
_UNAUTHENTICATED_CODE = 16

Handler = Callable[[Request], Awaitable[Response]]


class ArgoCdError(Exception):
    """An error as Argo CD's API gateway answers it."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def create_app(estate: Estate) -> Starlette:
    api = _ArgoCdApi(estate)
    routes = (
        ("GET", "/api/v1/applications", api.list_applications),
        ("GET", _APPLICATION, api.show_application),
        ("POST", f"{_APPLICATION}/sync", api.sync),
        ("POST", f"{_APPLICATION}/rollback", api.roll_back),
        ("GET", f"{_APPLICATION}/resource-tree", api.show_resource_tree),
        ("GET", f"{_APPLICATION}/managed-resources", api.list_managed_resources),
        ("GET", f"{_APPLICATION}/events", api.list_events),
        ("GET", f"{_APPLICATION}/logs", api.show_logs),
        ("GET", f"{_APPLICATION}/pods/{{pod}}/logs", api.show_logs),
        ("GET", f"{_APPLICATION}/resource", api.show_resource),
        ("GET", f"{_APPLICATION}/resource/actions", api.list_actions),
        ("POST", f"{_APPLICATION}/resource/actions", api.run_action),
        ("GET", "/api/v1/projects/{name}", api.show_project),
        ("GET", "/api/v1/clusters", api.list_clusters),
    )
    return Starlette(
        routes=[Route(path, _authenticated(handler), methods=[method]) for method, path, handler in routes],
        exception_handlers={ArgoCdError: _error_response},
    )


def _variables(running: RunningStandIn) -> Mapping[str, str]:
    return {"ARGOCD_API_URL": running.url, "ARGOCD_TOKEN": DEMO_TOKEN, "ARGOCD_READ_ONLY": "false"}


STAND_IN = StandIn("argocd", create_app, _variables)


class _ArgoCdApi:
    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        self._renderer = ApplicationRenderer(estate)

    async def list_applications(self, request: Request) -> Response:
        search = request.query_params.get("search", "")
        items = [
            self._renderer.application(service)
            for service in self._estate.company.services
            if search in service.name
        ]
        return JSONResponse({"metadata": {"resourceVersion": "1"}, "items": items})

    async def show_application(self, request: Request) -> Response:
        return JSONResponse(self._renderer.application(self._find_service(request)))

    async def sync(self, request: Request) -> Response:
        service = self._find_service(request)
        body = await _read_body(request)
        if not body.get("dryRun"):
            self._deploy(lambda: self._estate.deploy(service, str(body.get("revision", "HEAD")), _ACTOR))
        return JSONResponse(self._renderer.application(service))

    async def roll_back(self, request: Request) -> Response:
        service = self._find_service(request)
        body = await _read_body(request)
        if not str(body.get("id", "")).isdecimal():
            raise ArgoCdError(400, _INVALID_ARGUMENT_CODE, "id of a deployment is required")
        self._deploy(lambda: self._estate.roll_back(service, _ACTOR, int(body["id"])))
        return JSONResponse(self._renderer.application(service))

    async def show_resource_tree(self, request: Request) -> Response:
        return JSONResponse(self._renderer.resource_tree(self._find_service(request)))

    async def list_managed_resources(self, request: Request) -> Response:
        manifest = ClusterObjects(self._estate, self._find_service(request)).deployment()
        item = {
            "group": "apps",
            "kind": "Deployment",
            "namespace": manifest["metadata"]["namespace"],
            "name": manifest["metadata"]["name"],
            "targetState": json.dumps({key: manifest[key] for key in ("apiVersion", "kind", "spec")}),
            "liveState": json.dumps(manifest),
        }
        for name in ("kind", "name", "namespace"):
            if request.query_params.get(name, item[name]) != item[name]:
                return JSONResponse({"items": []})
        return JSONResponse({"items": [item]})

    async def list_events(self, request: Request) -> Response:
        events = ClusterObjects(self._estate, self._find_service(request)).events()
        name = request.query_params.get("resourceName")
        if name:
            events = [event for event in events if event["involvedObject"]["name"] == name]
        return JSONResponse({"metadata": {}, "items": events})

    async def show_logs(self, request: Request) -> Response:
        """Lines of JSON, as Argo CD streams them; the last one says that there are no more."""
        objects = ClusterObjects(self._estate, self._find_service(request))
        wanted_name = request.path_params.get("pod") or request.query_params.get("resourceName", "")
        entries: list[Json] = []
        for pod in objects.pods():
            pod_name = pod["metadata"]["name"]
            # A deployment or a replica set is a prefix of its pods' names.
            if not pod_name.startswith(wanted_name):
                continue
            entries += [{"content": line, "podName": pod_name, "last": False} for line in objects.log_lines()]
        entries.append({"content": "", "last": True})
        lines = "".join(json.dumps({"result": entry}) + "\n" for entry in entries)
        return Response(lines, media_type="application/json")

    async def show_resource(self, request: Request) -> Response:
        resource = self._find_resource(request)
        return JSONResponse({"manifest": json.dumps(resource)})

    async def list_actions(self, request: Request) -> Response:
        actions = []
        if self._find_resource(request)["kind"] == "Deployment":
            actions.append({"name": _RESTART_ACTION})
        return JSONResponse({"actions": actions})

    async def run_action(self, request: Request) -> Response:
        service = self._find_service(request)
        kind = self._find_resource(request)["kind"]
        action = json.loads(await request.body() or b'""')
        if kind != "Deployment" or action != _RESTART_ACTION:
            raise ArgoCdError(400, _INVALID_ARGUMENT_CODE, f"{kind} has no action {action}")
        self._estate.restart(service)
        return JSONResponse({})

    async def show_project(self, request: Request) -> Response:
        for team in self._estate.company.teams:
            if team.name.lower() == request.path_params["name"]:
                return JSONResponse(project(self._estate, team))
        raise ArgoCdError(404, _NOT_FOUND_CODE, "appproject not found")

    async def list_clusters(self, request: Request) -> Response:
        return JSONResponse({"metadata": {}, "items": [cluster(self._estate)]})

    def _find_service(self, request: Request) -> CompanyService:
        name = request.path_params["name"]
        service = self._estate.company.find_service(name)
        if service is None:
            raise ArgoCdError(404, _NOT_FOUND_CODE, f'applications.argoproj.io "{name}" not found')
        return service

    def _find_resource(self, request: Request) -> Json:
        objects = ClusterObjects(self._estate, self._find_service(request))
        kind = request.query_params.get("kind")
        name = request.query_params.get("resourceName")
        for resource in (objects.deployment(), *objects.replica_sets(), *objects.pods()):
            if resource["kind"] == kind and resource["metadata"]["name"] == name:
                return resource
        raise ArgoCdError(404, _NOT_FOUND_CODE, f"{kind} {name} not found as part of the application")

    def _deploy(self, change: Callable[[], object]) -> None:
        try:
            change()
        except UnknownRevision as error:
            raise ArgoCdError(400, _INVALID_ARGUMENT_CODE, str(error)) from error


def _authenticated(handler: Handler) -> Handler:
    async def endpoint(request: Request) -> Response:
        header = request.headers.get("Authorization", "")
        if not hmac.compare_digest(header.encode(), f"Bearer {DEMO_TOKEN}".encode()):
            raise ArgoCdError(401, _UNAUTHENTICATED_CODE, "invalid session: token is not valid")
        return await handler(request)

    return endpoint


async def _read_body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body() or b"{}")
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ArgoCdError(400, _INVALID_ARGUMENT_CODE, "the body is no JSON object")
    return body


async def _error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, ArgoCdError)
    body = {"error": str(error), "message": str(error), "code": error.code}
    return JSONResponse(body, error.status)
