"""Requests to PagerDuty's API: parameters, pages, bodies, and errors as it answers them."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ai_platform_engineering.demo.estate.cluster_objects import Json, timestamp

INVALID_CODE = 2001
UNAUTHORIZED_CODE = 2006
NOT_FOUND_CODE = 2100
_DEFAULT_LIMIT = 25
_MAX_LIMIT = 100
_MAX_OFFSET = 10_000
_MAX_BODY_BYTES = 200_000


class PagerDutyApiError(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def not_found() -> PagerDutyApiError:
    return PagerDutyApiError(404, NOT_FOUND_CODE, "Not Found")


def invalid(message: str) -> PagerDutyApiError:
    return PagerDutyApiError(400, INVALID_CODE, message)


async def error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, PagerDutyApiError)
    return JSONResponse({"error": {"message": str(error), "code": error.code}}, error.status)


async def read_body(request: Request) -> Json:
    """Raises PagerDutyApiError."""
    raw_body = await request.body()
    if len(raw_body) > _MAX_BODY_BYTES:
        raise PagerDutyApiError(413, INVALID_CODE, "The body is too long")
    try:
        body: Any = json.loads(raw_body)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise invalid("The body is no JSON object")
    return body


def page_response(request: Request, key: str, items: list[Json]) -> Response:
    """A page of a list, by `limit` and `offset`."""
    limit = min(_read_number(request, "limit", _DEFAULT_LIMIT), _MAX_LIMIT)
    offset = min(_read_number(request, "offset", 0), _MAX_OFFSET)
    page = items[offset : offset + limit]
    has_total = request.query_params.get("total", "").lower() == "true"
    return JSONResponse(
        {
            key: page,
            "limit": limit,
            "offset": offset,
            "more": offset + len(page) < len(items),
            "total": len(items) if has_total else None,
        }
    )


def filter_by_ids(
    request: Request, parameter: str, items: Iterable[Json], read_ids: Callable[[Json], list[str]]
) -> list[Json]:
    """Items with one of the parameter's values; all of them where it is not there."""
    values = set(request.query_params.getlist(f"{parameter}[]"))
    if not values:
        return list(items)
    return [item for item in items if values.intersection(read_ids(item))]


def filter_by_name(request: Request, items: Iterable[Json]) -> list[Json]:
    """Items with the parameter `query` in their name, whatever its case."""
    query = request.query_params.get("query", "").lower()
    return [item for item in items if query in item["name"].lower()]


def filter_by_time(request: Request, items: Iterable[Json], key: str) -> list[Json]:
    """Items between `since` and `until`. Raises PagerDutyApiError."""
    since = _read_time(request, "since")
    until = _read_time(request, "until")
    selected = list(items)
    if since is not None:
        selected = [item for item in selected if item[key] >= timestamp(since)]
    if until is not None:
        selected = [item for item in selected if item[key] <= timestamp(until)]
    return selected


def read_reference_ids(key: str) -> Callable[[Json], list[str]]:
    """Reads the ids of what an item refers to under a key, one reference or a list of them."""

    def read(item: Json) -> list[str]:
        value = item.get(key) or []
        references = value if isinstance(value, list) else [value]
        return [reference["id"] for reference in references]

    return read


def _read_number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 9:
        raise invalid(f"{name} is not a number")
    return int(text)


def _read_time(request: Request, name: str) -> datetime | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise invalid(f"{name} is not a time in ISO 8601") from None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
