"""Requests of commands to a server's own routes, beside A2A."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import httpx

from ai_platform_engineering.cli.local import a_server
from ai_platform_engineering.utils.a2a_common.client import RequestRefused, Unreachable, bearer, http_for

Api = Callable[..., Awaitable[Any]]  # (method, path, body=None) -> JSON


@contextlib.asynccontextmanager
async def api_of(url: str | None, token: str | None) -> AsyncIterator[Api]:
    """The named server, or the one that is here. Requests raise Unreachable or RequestRefused."""
    async with a_server(url) as address, api_for(address, token) as api:
        yield api


@contextlib.asynccontextmanager
async def api_for(address: str, token: str | None) -> AsyncIterator[Api]:
    """The server at the address. Requests raise Unreachable or RequestRefused."""
    async with http_for(address) as http:
        http.headers.update(bearer(token))
        yield api_over(http, address)


def api_over(http: httpx.AsyncClient, address: str) -> Api:
    """The same over a client that is given."""
    return partial(_request, http, address)


async def _request(http: httpx.AsyncClient, address: str, method: str, path: str, body: Any = None) -> Any:
    try:
        response = await http.request(method, f"{address.rstrip('/')}{path}", json=body)
    except httpx.HTTPError as error:
        raise Unreachable(f"{address} cannot be reached ({type(error).__name__}).") from None
    said = _json(response)
    if response.is_success:
        return said
    detail = (said.get("detail") or said.get("message")) if isinstance(said, dict) else None
    raise RequestRefused(str(detail or f"{address} has no answer to this (HTTP {response.status_code})."))


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
