"""The stand-in for Confluence Data Center's REST API over the estate: search, pages, comments and labels."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ai_platform_engineering.demo.atlassian.api_access import (
    AtlassianApiError,
    Json,
    check_token,
    find_demo_user,
    read_json,
    read_number,
    read_object,
)
from ai_platform_engineering.demo.confluence.content_editor import ContentEditor
from ai_platform_engineering.demo.confluence.content_renderer import ContentRenderer
from ai_platform_engineering.demo.confluence.cql import search_content
from ai_platform_engineering.demo.confluence.sample_pages import build_confluence_state
from ai_platform_engineering.demo.confluence.state import (
    MAX_PROPERTIES,
    ConfluenceState,
    ContentPage,
)
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn, StandIn

DEMO_TOKEN = "demo-confluence-token"
MAX_RESULTS = 200
_DEFAULT_RESULTS = 25
_MAX_START = 10_000
_MAX_PROPERTY_NAME = 255
_MAX_PROPERTY_LENGTH = 10_000
_API = "/rest/api"
_CONTENT = f"{_API}/content/{{id}}"
_REASONS = {400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 409: "Conflict", 413: "Too Large"}

Handler = Callable[[Request], Awaitable[Response]]
Item = TypeVar("Item")


class _ConfluenceResponse(JSONResponse):
    media_type = "application/json;charset=UTF-8"


def create_app(estate: Estate, state: ConfluenceState | None = None) -> Starlette:
    """`state` is for those who look at it or share it; by default it is that of the estate's company."""
    confluence_state = state or build_confluence_state(estate.company)
    estate.register_records("pages", confluence_state.list_records)
    api = _ConfluenceApi(estate, confluence_state)
    routes = (
        ("GET", f"{_API}/space", api.list_spaces),
        ("GET", f"{_API}/space/{{key}}", api.show_space),
        ("GET", f"{_API}/search", api.search),
        ("GET", f"{_API}/content/search", api.search_pages),
        ("GET", f"{_API}/content", api.list_pages),
        ("POST", f"{_API}/content", api.create_content),
        ("POST", f"{_API}/content/", api.create_content),
        ("GET", _CONTENT, api.show_content),
        ("PUT", _CONTENT, api.update_page),
        ("DELETE", _CONTENT, api.delete_page),
        ("GET", f"{_CONTENT}/history", api.show_history),
        ("GET", f"{_CONTENT}/child/page", api.list_children),
        ("GET", f"{_CONTENT}/child/comment", api.list_comments),
        ("GET", f"{_CONTENT}/child/attachment", api.list_nothing),
        ("GET", f"{_CONTENT}/label", api.list_labels),
        ("POST", f"{_CONTENT}/label", api.add_labels),
        ("DELETE", f"{_CONTENT}/label/{{name}}", api.remove_label),
        ("GET", f"{_CONTENT}/property", api.list_properties),
        ("POST", f"{_CONTENT}/property", api.set_property),
        ("GET", f"{_CONTENT}/property/{{name}}", api.show_property),
        ("PUT", f"{_CONTENT}/property/{{name}}", api.set_property),
        ("DELETE", f"{_CONTENT}/property/{{name}}", api.delete_property),
        ("GET", f"{_API}/user/current", api.show_current_user),
        ("GET", f"{_API}/user", api.show_user),
        ("GET", f"{_API}/group/{{group}}/member", api.list_members),
    )
    return Starlette(
        routes=[Route(path, _authenticated(handler), methods=[method]) for method, path, handler in routes],
        exception_handlers={AtlassianApiError: _error_response, 404: _unknown_path, 405: _unknown_path},
    )


def _variables(running: RunningStandIn) -> Mapping[str, str]:
    return {
        "CONFLUENCE_API_URL": running.url.rstrip("/"),
        "CONFLUENCE_PERSONAL_TOKEN": DEMO_TOKEN,
        "CONFLUENCE_READ_ONLY": "false",
    }


STAND_IN = StandIn("confluence", create_app, _variables)


class _ConfluenceApi:
    def __init__(self, estate: Estate, state: ConfluenceState) -> None:
        self._estate = estate
        self._state = state
        self._user = find_demo_user(estate.company)
        self._editor = ContentEditor(state, estate, self._user)

    async def list_spaces(self, request: Request) -> Response:
        renderer = self._renderer(request)
        return _page_response(request, list(self._state.spaces.values()), renderer.space)

    async def show_space(self, request: Request) -> Response:
        space = self._state.spaces.get(request.path_params["key"].upper())
        if space is None:
            raise AtlassianApiError(404, f"No space with key '{request.path_params['key']}'.")
        return _ConfluenceResponse(self._renderer(request).space(space))

    async def search(self, request: Request) -> Response:
        contents = search_content(self._state, self._estate, self._user, _read_cql(request))
        renderer = self._renderer(request)
        expand = _read_expand(request)
        return _page_response(
            request,
            contents,
            lambda content: renderer.search_result(content, expand),
            {"totalSize": len(contents), "cqlQuery": _read_cql(request)},
        )

    async def search_pages(self, request: Request) -> Response:
        contents = search_content(self._state, self._estate, self._user, _read_cql(request))
        renderer = self._renderer(request)
        expand = _read_expand(request)
        pages = [content.page for content in contents if content.page and content.comment is None]
        return _page_response(request, pages, lambda page: renderer.page(page, expand))

    async def list_pages(self, request: Request) -> Response:
        parameters = request.query_params
        space_key = parameters.get("spaceKey", "").upper()
        if space_key and space_key not in self._state.spaces:
            raise AtlassianApiError(404, f"No space with key '{space_key}'.")
        pages = list(self._state.pages.values()) if parameters.get("type", "page") == "page" else []
        if space_key:
            pages = [page for page in pages if page.space.key == space_key]
        title = parameters.get("title", "").lower()
        if title:
            pages = [page for page in pages if page.current.title.lower() == title]
        renderer = self._renderer(request)
        expand = _read_expand(request)
        return _page_response(request, pages, lambda page: renderer.page(page, expand))

    async def create_content(self, request: Request) -> Response:
        body = await read_object(request)
        renderer = self._renderer(request)
        if body.get("type") == "comment":
            container = body.get("container")
            page_id = str(container.get("id", "")) if isinstance(container, dict) else ""
            page = self._find_page(page_id)
            return _ConfluenceResponse(renderer.comment(page, self._editor.add_comment(page, body), ()))
        if body.get("type") != "page":
            raise AtlassianApiError(400, "Only content of the types page and comment can be created here.")
        page = self._editor.create_page(body)
        return _ConfluenceResponse(renderer.page(page, ("body.storage", "version", "space", "history")))

    async def show_content(self, request: Request) -> Response:
        renderer = self._renderer(request)
        expand = _read_expand(request)
        content_id = request.path_params["id"]
        for page in self._state.pages.values():
            for comment in page.comments:
                if comment.id == content_id:
                    return _ConfluenceResponse(renderer.comment(page, comment, expand))
        page = self._find_page(content_id)
        number = read_number(request, "version", page.current.number, _MAX_START)
        version = page.find_version(number)
        if version is None:
            raise AtlassianApiError(404, f"The page has no version {number}.")
        return _ConfluenceResponse(renderer.page(page, expand, version))

    async def update_page(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        self._editor.update_page(page, await read_object(request))
        return _ConfluenceResponse(self._renderer(request).page(page, ("body.storage", "version", "space")))

    async def delete_page(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        if page.id == page.space.homepage_id:
            raise AtlassianApiError(400, "The home page of a space cannot be deleted.")
        self._state.remove_page(page)
        return Response(status_code=204)

    async def show_history(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        return _ConfluenceResponse(self._renderer(request).history(page))

    async def list_children(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        renderer = self._renderer(request)
        expand = _read_expand(request)
        children = self._state.list_children(page.id)
        return _page_response(request, children, lambda child: renderer.page(child, expand))

    async def list_comments(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        renderer = self._renderer(request)
        expand = _read_expand(request)
        return _page_response(request, page.comments, lambda comment: renderer.comment(page, comment, expand))

    async def list_nothing(self, request: Request) -> Response:
        """Attachments: the demo has none."""
        self._find_page(request.path_params["id"])
        no_attachments: list[Json] = []
        return _page_response(request, no_attachments, dict)

    async def list_labels(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        return _page_response(request, page.labels, self._renderer(request).label)

    async def add_labels(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        self._editor.add_labels(page, await read_json(request))
        return _page_response(request, page.labels, self._renderer(request).label)

    async def remove_label(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        page.labels = [label for label in page.labels if label != request.path_params["name"]]
        return Response(status_code=204)

    async def list_properties(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        names = list(page.properties)
        return _page_response(request, names, lambda name: _property(name, page.properties[name]))

    async def show_property(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        name = request.path_params["name"]
        if name not in page.properties:
            raise AtlassianApiError(404, f"The page has no property {name}.")
        return _ConfluenceResponse(_property(name, page.properties[name]))

    async def set_property(self, request: Request) -> Response:
        page = self._find_page(request.path_params["id"])
        body = await read_object(request)
        name = str(request.path_params.get("name") or body.get("key", ""))
        is_new = name not in page.properties
        if not name or len(name) > _MAX_PROPERTY_NAME or (is_new and len(page.properties) >= MAX_PROPERTIES):
            raise AtlassianApiError(400, f"A page has at most {MAX_PROPERTIES} properties, each with a key.")
        if len(json.dumps(body.get("value"))) > _MAX_PROPERTY_LENGTH:
            raise AtlassianApiError(413, f"A property has at most {_MAX_PROPERTY_LENGTH} characters.")
        page.properties[name] = body.get("value")
        return _ConfluenceResponse(_property(name, page.properties[name]))

    async def delete_property(self, request: Request) -> Response:
        self._find_page(request.path_params["id"]).properties.pop(request.path_params["name"], None)
        return Response(status_code=204)

    async def show_current_user(self, request: Request) -> Response:
        return _ConfluenceResponse(self._renderer(request).user(self._user))

    async def show_user(self, request: Request) -> Response:
        login = request.query_params.get("username") or request.query_params.get("key") or ""
        user = self._renderer(request).person(login)
        if user is None:
            raise AtlassianApiError(404, f"No user found with username {login}.")
        return _ConfluenceResponse(user)

    async def list_members(self, request: Request) -> Response:
        return _page_response(request, self._estate.company.people, self._renderer(request).user)

    def _renderer(self, request: Request) -> ContentRenderer:
        return ContentRenderer(self._state, self._estate.company, str(request.base_url).rstrip("/"))

    def _find_page(self, page_id: str) -> ContentPage:
        page = self._state.pages.get(page_id)
        if page is None:
            raise AtlassianApiError(404, f"No content found with id: ContentId{{id={page_id}}}")
        return page


def _property(name: str, value: object) -> Json:
    return {"id": name, "key": name, "value": value, "version": {"number": 1}}


def _read_cql(request: Request) -> str:
    cql = request.query_params.get("cql", "")
    if not cql.strip():
        raise AtlassianApiError(400, "Could not parse cql : the parameter cql is missing.")
    return cql


def _read_expand(request: Request) -> list[str]:
    return [name.strip() for name in request.query_params.get("expand", "").split(",") if name.strip()]


def _page_response(
    request: Request, items: Sequence[Item], render: Callable[[Item], Json], more: Json | None = None
) -> Response:
    """A page of results, with the address of the next one when there is more."""
    start = read_number(request, "start", 0, _MAX_START)
    limit = read_number(request, "limit", _DEFAULT_RESULTS, MAX_RESULTS)
    results = [render(item) for item in items[start : start + limit]]
    links = {"self": str(request.url), "base": str(request.base_url).rstrip("/"), "context": ""}
    if start + limit < len(items):
        parameters = dict(request.query_params) | {"start": str(start + limit), "limit": str(limit)}
        links["next"] = f"{request.url.path}?{urlencode(parameters)}"
    body: Json = {"results": results, "start": start, "limit": limit, "size": len(results), "_links": links}
    return _ConfluenceResponse(body | (more or {}))


def _authenticated(handler: Handler) -> Handler:
    async def endpoint(request: Request) -> Response:
        check_token(request, DEMO_TOKEN)
        return await handler(request)

    return endpoint


async def _error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, AtlassianApiError)
    return _refusal(error.status, str(error))


async def _unknown_path(request: Request, _: Exception) -> Response:
    return _refusal(404, f"{request.method} {request.url.path} is not part of this stand-in for Confluence.")


def _refusal(status: int, message: str) -> Response:
    data = {"authorized": status != 401, "valid": status != 400, "errors": [], "successful": False}
    body = {"statusCode": status, "data": data, "message": message, "reason": _REASONS.get(status, "")}
    return _ConfluenceResponse(body, status)
