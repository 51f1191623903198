"""REST client for a server's own routes, which are not part of A2A."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx

from ai_platform_engineering.a2a.client import A2AClient, RequestRefused, Unreachable
from ai_platform_engineering.core.connection_failures import why_unreachable

_MAX_PAGES = 100  # that a client reads of one list

# (method, path, body=None) -> JSON; raises Unreachable or RequestRefused.
RestApi = Callable[..., Awaitable[Any]]


def rest_api_at(http: httpx.AsyncClient, address: str, headers: Mapping[str, str] | None = None) -> RestApi:
    """The REST routes of the server at the address."""
    return partial(_request, http, address, dict(headers or {}))


def rest_api_for_client(client: A2AClient) -> RestApi:
    """The REST routes of the client's server, with the client's headers."""
    return rest_api_at(client.http, client.url, client.headers)


async def read_all_pages(api: RestApi, path: str, key: str) -> list[Any]:
    """The rows of all pages of a list; `key` names them in the body. Raises as the API does."""
    rows: list[Any] = []
    page_path = path
    for _ in range(_MAX_PAGES):
        body = await api("GET", page_path)
        rows += body[key]
        token = body.get("next_page_token")
        if not token:
            break
        separator = "&" if "?" in path else "?"
        page_path = f"{path}{separator}page_token={quote(token, safe='')}"
    return rows


async def _request(
    http: httpx.AsyncClient,
    address: str,
    headers: Mapping[str, str],
    method: str,
    path: str,
    body: Any = None,
) -> Any:
    try:
        response = await http.request(method, f"{address.rstrip('/')}{path}", json=body, headers=headers)
    except httpx.HTTPError as error:
        raise Unreachable(f"{address} cannot be reached{why_unreachable(error)}.") from None
    response_body = _read_json(response)
    if response.is_success:
        return response_body
    detail = None
    if isinstance(response_body, dict):
        detail = response_body.get("detail") or response_body.get("message")
    raise RequestRefused(str(detail or f"{address} has no answer to this (HTTP {response.status_code})."))


def _read_json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
