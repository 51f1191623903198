"""The skills API as an application: its routes, and what it says about them at /skills/openapi.json."""

from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI, Security
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.skills_middleware.api import schemas
from ai_platform_engineering.skills_middleware.api.error_responses import Documented, documented, refusing
from ai_platform_engineering.skills_middleware.api.skills_routes import SkillsApi
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog

_ABOUT = (
    "Procedures that the supervisor follows: what there is, what people store, and where the rest comes from."
)
_TAG = {"headers": {"ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}}}}
_FILE = {
    "content": {
        "text/plain": {"schema": {"type": "string"}},
        "application/octet-stream": {"schema": {"type": "string"}},
    }
}


class SkillsApp(FastAPI):
    """Described with the problems that every route can answer with."""

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
            self.openapi_schema = _description(self, needs_key=self._needs_key)
        return self.openapi_schema


def skills_app(
    catalog: SkillCatalog | None, read_only: Callable[[], bool], *, needs_key: bool = False
) -> FastAPI:
    """`needs_key`: the server around it wants a bearer token; here it is only described."""
    app = SkillsApp(needs_key=needs_key)
    refusing(app)
    _add_routes(app, SkillsApi(catalog, read_only))
    return app


def _add_routes(app: FastAPI, api: SkillsApi) -> None:
    def add(
        method: str,
        path: str,
        handler: Callable[..., Any],
        model: type | None,
        *refusals: int,
        changes: bool = False,
        body: bool = False,
        said: Documented | None = None,
        **more: Any,
    ) -> None:
        statuses = [*refusals, *((403,) if changes else ()), *((400, 413) if body else ())]
        first = [Depends(api.writable)] if changes else []
        responses = {**documented(*statuses), **(said or {})}
        app.add_api_route(
            path,
            handler,
            methods=[method],
            response_model=model,
            dependencies=first,
            responses=responses,
            **more,
        )

    tagged: dict[str, Any] = {"said": {200: _TAG}}
    # Addresses of our own before those of skills.
    add("GET", "/skills", api.list_skills, schemas.SkillsShown)
    add(
        "POST",
        "/skills",
        api.create_skill,
        schemas.SkillShown,
        409,
        changes=True,
        body=True,
        status_code=201,
        said={201: _TAG},
    )
    add("POST", "/skills/validate", api.validate_skill, schemas.CheckedShown, body=True)
    add("POST", "/skills/scan-content", api.scan_content, schemas.ScanShown, body=True)
    add("POST", "/skills/refresh", api.refresh_skills, schemas.Refreshed, 403)
    add("GET", "/internal/supervisor/skills-status", api.supervisor_status, schemas.Status)
    add("GET", "/skills/hubs", api.list_hubs, schemas.HubsShown)
    add("POST", "/skills/hubs", api.add_hub, schemas.HubShown, 409, changes=True, body=True, status_code=201)
    add("DELETE", "/skills/hubs/{hub_id}", api.remove_hub, None, 404, 409, changes=True, status_code=204)
    add("POST", "/skills/hubs/{hub_id}/refresh", api.refresh_hub, schemas.HubShown, 404, changes=True)
    add("GET", "/skills/{name}", api.show_skill, schemas.SkillShown, 404, **tagged)
    add(
        "PUT",
        "/skills/{name}",
        api.update_skill,
        schemas.SkillShown,
        404,
        409,
        412,
        changes=True,
        body=True,
        **tagged,
    )
    add("DELETE", "/skills/{name}", api.delete_skill, None, 404, 409, 412, changes=True, status_code=204)
    add(
        "POST",
        "/skills/{name}/enable",
        api.enable_skill,
        schemas.SkillShown,
        404,
        409,
        changes=True,
        **tagged,
    )
    add(
        "POST",
        "/skills/{name}/disable",
        api.disable_skill,
        schemas.SkillShown,
        404,
        409,
        changes=True,
        **tagged,
    )
    add(
        "GET",
        "/skills/{name}/files/{path:path}",
        api.show_file,
        None,
        404,
        response_class=Response,
        said={200: {**_TAG, **_FILE}},
    )


def _description(app: FastAPI, *, needs_key: bool) -> dict[str, Any]:
    document = get_openapi(title="Skills", version="1", description=_ABOUT, routes=app.routes)
    _, problems = models_json_schema(
        [(schemas.ProblemShown, "serialization")], ref_template="#/components/schemas/{model}"
    )
    document["components"]["schemas"] |= problems["$defs"]
    if needs_key:
        unknown = {
            "description": "No key, or a wrong one",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"]["401"] = unknown
    return document
