"""Connections to a server: the named one, the one on this machine, or one started for the command."""

import contextlib
import getpass
import logging
from collections.abc import AsyncIterator

import httpx

from ai_platform_engineering.a2a.client import A2AClient, bearer_headers, create_http_client
from ai_platform_engineering.a2a.rest_client import RestApi, rest_api_at

DEFAULT_URL = "http://127.0.0.1:8000/"


@contextlib.asynccontextmanager
async def find_or_start_server(url: str | None) -> AsyncIterator[str]:
    """Yields the URL of a server; one that was started here ends with the context."""
    if url is not None:
        yield url
        return
    if await is_serving(DEFAULT_URL):
        yield DEFAULT_URL
        return
    # Imported late: a command that finds a server needs none of the graph's libraries.
    from ai_platform_engineering.core.settings import Settings, read_environment
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import (
        build_app,
    )
    from ai_platform_engineering.runtime.log.sqlite_database import StorageInUse
    from ai_platform_engineering.runtime.server.embedded_server import run_embedded_server
    from ai_platform_engineering.runtime.storage import STORAGE_NAME, Storage

    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("ai_platform_engineering.runtime.storage").setLevel(logging.WARNING)
    variables = read_environment()
    # It lives as long as one command: what cannot be used is told when it is needed.
    settings = Settings.from_variables({**variables, "MCP_CHECK_SERVERS": "false"})
    try:
        storage = Storage.from_settings(settings.storage, settings.agent.home, STORAGE_NAME)
    except StorageInUse:
        storage = Storage.in_memory()  # a server elsewhere on this machine has it
    async with run_embedded_server(build_app(settings, variables, storage=storage)) as server_url:
        yield server_url


async def is_serving(url: str) -> bool:
    """Whether an A2A server answers at the URL."""
    try:
        async with create_http_client(url) as http:
            response = await http.get(f"{url}.well-known/agent-card.json", timeout=1)
            return response.status_code == 200 and "name" in response.json()
    except (httpx.HTTPError, ValueError):
        return False


@contextlib.asynccontextmanager
async def open_server_api(url: str | None, token: str | None) -> AsyncIterator[RestApi]:
    """Opens the REST API of the named server, or of the one found or started here.

    Requests raise Unreachable or RequestRefused.
    """
    async with find_or_start_server(url) as address, open_api_at(address, token) as api:
        yield api


def create_client(
    http: httpx.AsyncClient, address: str, token: str | None, owner: str | None, user: str | None
) -> A2AClient:
    """A client of the server at the address, for the conversations of an owner if one is named."""
    client = A2AClient(address, http, token=token)
    if owner is None:
        return client
    return client.on_behalf_of(user or getpass.getuser(), owner)


@contextlib.asynccontextmanager
async def open_client(
    url: str | None, token: str | None, owner: str | None, user: str | None
) -> AsyncIterator[A2AClient]:
    """Opens a client of the named server, or of the one found or started here."""
    async with find_or_start_server(url) as address, create_http_client(address) as http:
        yield create_client(http, address, token, owner, user)


@contextlib.asynccontextmanager
async def open_api_at(address: str, token: str | None) -> AsyncIterator[RestApi]:
    """Opens the REST API of the server at the address. Requests raise Unreachable or RequestRefused."""
    async with create_http_client(address) as http:
        yield rest_api_at(http, address, bearer_headers(token))
