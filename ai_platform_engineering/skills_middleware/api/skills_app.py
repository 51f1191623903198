"""The skills API as a FastAPI application: its routes, and their OpenAPI description at
/skills/openapi.json."""

from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI, Security
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.skills_middleware.api import schemas
from ai_platform_engineering.skills_middleware.api.error_responses import (
    add_error_handlers,
    document_problems,
)
from ai_platform_engineering.skills_middleware.api.skills_routes import SkillsApi
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog

_ABOUT = (
    "Procedures that the supervisor follows: what there is, what people store, and where the rest comes from."
)
_ETAG_DOCS: dict[str, Any] = {
    "headers": {"ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}}}
}
_FILE_DOCS: dict[str, Any] = {
    "content": {
        "text/plain": {"schema": {"type": "string"}},
        "application/octet-stream": {"schema": {"type": "string"}},
    }
}
_UNAUTHORIZED_DOCS = {
    "description": "No key, or a wrong one",
    "content": {"application/json": {"schema": {"type": "object"}}},
}


class SkillsApp(FastAPI):
    """The application with an OpenAPI description that has the problems of every route."""

    def __init__(self, *, needs_key: bool) -> None:
        super().__init__(
            openapi_url="/skills/openapi.json",
            docs_url=None,  # their pages load scripts from elsewhere
            redoc_url=None,
            redirect_slashes=False,
            default_response_class=AsciiJSONResponse,
            dependencies=[Security(HTTPBearer(auto_error=False))] if needs_key else [],
            generate_unique_id_function=lambda route: route.name,
        )
        self._needs_key = needs_key

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = _describe(self, needs_key=self._needs_key)
        return self.openapi_schema


def build_skills_app(
    catalog: SkillCatalog | None, read_only: Callable[[], bool], *, needs_key: bool = False
) -> FastAPI:
    """`needs_key`: the server around it requires a bearer token; here it is only described."""
    app = SkillsApp(needs_key=needs_key)
    add_error_handlers(app)
    _add_routes(app, SkillsApi(catalog, read_only))
    return app


def _add_routes(app: FastAPI, api: SkillsApi) -> None:
    def add(
        method: str,
        path: str,
        handler: Callable[..., Any],
        model: type[BaseModel] | None,
        *error_statuses: int,
        status: int = 200,
        changes: bool = False,
        has_body: bool = False,
        success_docs: dict[str, Any] | None = None,
        response_class: type[Response] = AsciiJSONResponse,
    ) -> None:
        statuses = list(error_statuses)
        if changes:
            statuses.append(403)
        if has_body:
            statuses += [400, 413]
        responses = document_problems(*statuses)
        if success_docs is not None:
            responses[status] = success_docs
        app.add_api_route(
            path,
            handler,
            methods=[method],
            status_code=status,
            response_model=model,
            response_class=response_class,
            responses=responses,
            dependencies=[Depends(api.require_writable)] if changes else [],
        )

    # Paths of our own before those with a skill's name.
    add("GET", "/skills", api.list_skills, schemas.SkillListResponse)
    add(
        "POST",
        "/skills",
        api.create_skill,
        schemas.SkillResponse,
        409,
        status=201,
        changes=True,
        has_body=True,
        success_docs=_ETAG_DOCS,
    )
    add("POST", "/skills/validate", api.validate_skill, schemas.ValidationResponse, has_body=True)
    add("POST", "/skills/scan-content", api.scan_content, schemas.ScanResponse, has_body=True)
    add("POST", "/skills/refresh", api.refresh_skills, schemas.RefreshResponse, 403)
    status_path = "/internal/supervisor/skills-status"
    add("GET", status_path, api.supervisor_status, schemas.SupervisorStatusResponse)
    add("GET", "/skills/hubs", api.list_hubs, schemas.HubListResponse)
    add(
        "POST",
        "/skills/hubs",
        api.add_hub,
        schemas.HubResponse,
        409,
        status=201,
        changes=True,
        has_body=True,
    )
    add("DELETE", "/skills/hubs/{hub_id}", api.remove_hub, None, 404, 409, status=204, changes=True)
    add("POST", "/skills/hubs/{hub_id}/refresh", api.refresh_hub, schemas.HubResponse, 404, changes=True)
    add("GET", "/skills/{name}", api.show_skill, schemas.SkillResponse, 404, success_docs=_ETAG_DOCS)
    add(
        "PUT",
        "/skills/{name}",
        api.update_skill,
        schemas.SkillResponse,
        404,
        409,
        412,
        changes=True,
        has_body=True,
        success_docs=_ETAG_DOCS,
    )
    add("DELETE", "/skills/{name}", api.delete_skill, None, 404, 409, 412, status=204, changes=True)
    for action, handler in (("enable", api.enable_skill), ("disable", api.disable_skill)):
        add(
            "POST",
            f"/skills/{{name}}/{action}",
            handler,
            schemas.SkillResponse,
            404,
            409,
            changes=True,
            success_docs=_ETAG_DOCS,
        )
    add(
        "GET",
        "/skills/{name}/files/{path:path}",
        api.show_file,
        None,
        404,
        success_docs={**_ETAG_DOCS, **_FILE_DOCS},
        response_class=Response,
    )


def _describe(app: FastAPI, *, needs_key: bool) -> dict[str, Any]:
    """The OpenAPI description."""
    document = get_openapi(title="Skills", version="1", description=_ABOUT, routes=app.routes)
    _, problem_schemas = models_json_schema(
        [(schemas.ProblemDetails, "serialization")], ref_template="#/components/schemas/{model}"
    )
    document["components"]["schemas"] |= problem_schemas["$defs"]
    if needs_key:
        for path_operations in document["paths"].values():
            for operation in path_operations.values():
                operation["responses"]["401"] = _UNAUTHORIZED_DOCS
    return document
