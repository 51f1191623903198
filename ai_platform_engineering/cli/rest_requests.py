"""Requests of commands to a server's own routes, beside A2A."""

import contextlib
from collections.abc import AsyncIterator

from ai_platform_engineering.a2a.client import bearer, http_for
from ai_platform_engineering.a2a.rest_client import Api, api_over
from ai_platform_engineering.cli.server_address import a_server

__all__ = ["Api", "api_for", "api_of", "api_over"]


@contextlib.asynccontextmanager
async def api_of(url: str | None, token: str | None) -> AsyncIterator[Api]:
    """The named server, or the one that is here. Requests raise Unreachable or RequestRefused."""
    async with a_server(url) as address, api_for(address, token) as api:
        yield api


@contextlib.asynccontextmanager
async def api_for(address: str, token: str | None) -> AsyncIterator[Api]:
    """The server at the address. Requests raise Unreachable or RequestRefused."""
    async with http_for(address) as http:
        yield api_over(http, address, bearer(token))
