"""Requests to the stand-in for Jira and its answers: parameters, pages and errors in Jira's shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ai_platform_engineering.demo.atlassian.api_access import (
    AtlassianApiError,
    Json,
    read_number,
    read_object,
)

API_PATH = "/rest/api/2"
MAX_RESULTS = 1000
_DEFAULT_RESULTS = 50
_DEFAULT_FIELDS = "*navigable"


class JiraResponse(JSONResponse):
    media_type = "application/json;charset=UTF-8"


@dataclass(frozen=True, slots=True)
class SearchParameters:
    jql: str
    start: int
    limit: int
    fields: Sequence[str]
    expand: Sequence[str]


async def read_search(request: Request) -> SearchParameters:
    """Of a GET request, or of a POST request's body. Raises AtlassianApiError."""
    if request.method == "GET":
        parameters = request.query_params
        return SearchParameters(
            jql=parameters.get("jql", ""),
            start=read_number(request, "startAt", 0, MAX_RESULTS),
            limit=read_number(request, "maxResults", _DEFAULT_RESULTS, MAX_RESULTS),
            fields=split_names(parameters.get("fields") or _DEFAULT_FIELDS),
            expand=split_names(parameters.get("expand", "")),
        )
    body = await read_object(request)
    return SearchParameters(
        jql=str(body.get("jql", "")),
        start=_read_integer(body, "startAt", 0),
        limit=_read_integer(body, "maxResults", _DEFAULT_RESULTS),
        fields=_read_names(body.get("fields")) or (_DEFAULT_FIELDS,),
        expand=_read_names(body.get("expand")),
    )


def read_part(body: Any, name: str) -> Json:
    """A part of a body that is an object; without it, an empty one. Raises AtlassianApiError."""
    part = body.get(name) if isinstance(body, dict) else None
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise AtlassianApiError(400, f"'{name}' is not a JSON object.")
    return part


def split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def base_url(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def page_of(request: Request, values: Sequence[Json]) -> Json:
    """A page of values as createmeta answers it."""
    start = read_number(request, "startAt", 0, MAX_RESULTS)
    limit = read_number(request, "maxResults", _DEFAULT_RESULTS, MAX_RESULTS)
    return {
        "startAt": start,
        "maxResults": limit,
        "total": len(values),
        "isLast": start + limit >= len(values),
        "values": list(values[start : start + limit]),
    }


def error_body(error: AtlassianApiError) -> Json:
    return {"errorMessages": [str(error)] if str(error) else [], "errors": error.errors}


async def error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, AtlassianApiError)
    return JiraResponse(error_body(error), error.status)


async def unknown_path(request: Request, _: Exception) -> Response:
    message = f"{request.method} {request.url.path} is not part of this stand-in for Jira."
    return JiraResponse({"errorMessages": [message], "errors": {}}, 404)


def _read_integer(body: Json, name: str, default: int) -> int:
    value = body.get(name, default)
    if not isinstance(value, int) or value < 0:
        raise AtlassianApiError(400, f"The parameter {name} must be a number that is not negative.")
    return min(value, MAX_RESULTS)


def _read_names(value: Any) -> list[str]:
    if isinstance(value, str):
        return split_names(value)
    return [str(name) for name in value] if isinstance(value, list) else []
