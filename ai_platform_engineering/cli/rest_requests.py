"""Requests of commands to a server's own routes, beside A2A."""

import contextlib
from collections.abc import AsyncIterator

from ai_platform_engineering.a2a.client import bearer_headers, create_http_client
from ai_platform_engineering.a2a.rest_client import RestApi, rest_api_at
from ai_platform_engineering.cli.server_address import find_or_start_server

__all__ = ["RestApi", "open_api_at", "open_server_api", "rest_api_at"]


@contextlib.asynccontextmanager
async def open_server_api(url: str | None, token: str | None) -> AsyncIterator[RestApi]:
    """The named server, or the one that is here. Requests raise Unreachable or RequestRefused."""
    async with find_or_start_server(url) as address, open_api_at(address, token) as api:
        yield api


@contextlib.asynccontextmanager
async def open_api_at(address: str, token: str | None) -> AsyncIterator[RestApi]:
    """The server at the address. Requests raise Unreachable or RequestRefused."""
    async with create_http_client(address) as http:
        yield rest_api_at(http, address, bearer_headers(token))
