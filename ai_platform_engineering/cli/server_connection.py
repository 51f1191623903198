"""Connections to a server: the named one, that of this CAIPE_HOME or of the settings, or one of our own."""

import asyncio
import contextlib
import getpass
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path

import httpx

from ai_platform_engineering.a2a.client import A2AClient, bearer_headers, create_http_client
from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.a2a.own_servers import check_own_server, is_own_server
from ai_platform_engineering.a2a.rest_client import RestApi, rest_api_at
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.server_address import ServerAddress
from ai_platform_engineering.core.settings import Settings

_RETRY_SECONDS = 0.3
_START_SECONDS = 60.0  # for a server that another command is starting, or ending


@contextlib.asynccontextmanager
async def find_or_start_server(
    url: str | None, on_start: Callable[[], None] = lambda: None
) -> AsyncIterator[str]:
    """Yields the URL of a server of ours; one that was started here ends with the context.

    Commands with the same CAIPE_HOME share one server, whichever of them started it (ADR 0041). `on_start` is
    called before one is started, which takes a while.
    """
    if url is not None:
        await check_own_server(url)
        yield url
        return
    settings = Settings.from_variables(read_environment())
    deadline = asyncio.get_running_loop().time() + _START_SECONDS
    is_starting = False
    while True:
        address = await find_local_server(settings)
        if address is not None:
            async with _join_server(address, settings.agent.home):
                yield address
            return
        if not is_starting:
            on_start()
            is_starting = True
        # Imported late: a command that finds a server needs none of the graph's libraries.
        from ai_platform_engineering.cli.embedded_supervisor import EmbeddedSupervisor
        from ai_platform_engineering.databases.sql_connections import StorageInUse

        try:
            supervisor = EmbeddedSupervisor.from_environment()
        except StorageInUse as error:  # by a server that starts or ends just now
            if asyncio.get_running_loop().time() > deadline:
                raise _describe_silent_server(settings.agent.home, error) from None
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        async with supervisor.run() as address:
            yield address
        return


async def find_local_server(settings: Settings) -> str | None:
    """The server that has this CAIPE_HOME open, else the one at the host and port of the settings."""
    server = ServerAddress.read(settings.agent.home)
    if server is not None and server.is_running and await is_own_server(server.url):
        return server.url
    if settings.server.port and await is_own_server(settings.server.local_url):
        return settings.server.local_url
    return None


@contextlib.asynccontextmanager
async def _join_server(address: str, home: Path) -> AsyncIterator[None]:
    """Uses a server of another process. When that is a command which ends first, this process serves in its
    place."""
    succession = asyncio.create_task(_succeed(address, home), name="succession of the server")
    try:
        yield
    finally:
        succession.cancel()
        await asyncio.gather(succession, return_exceptions=True)


async def _succeed(address: str, home: Path) -> None:
    """Waits until the command that serves is gone, and serves at its address: stored runs go on."""
    while True:
        await asyncio.sleep(_RETRY_SECONDS)
        server = ServerAddress.read(home)
        if server is None or server.url != address or not server.embedded:
            return
        if not server.is_running:
            await _serve_in_its_place()


async def _serve_in_its_place() -> None:
    """Serves until it is cancelled; returns when another process was faster."""
    module = await asyncio.to_thread(import_module, "ai_platform_engineering.cli.embedded_supervisor")
    from ai_platform_engineering.databases.sql_connections import StorageInUse

    try:
        supervisor = module.EmbeddedSupervisor.from_environment()
    except StorageInUse:
        return
    async with supervisor.run():
        await asyncio.Event().wait()


def _describe_silent_server(home: Path, error: CaipeError) -> CaipeError:
    server = ServerAddress.read(home)
    if server is None or not server.is_running:
        return error
    return CaipeError(f"{error} It is the server at {server.url} (process {server.pid}); it does not answer.")


@contextlib.asynccontextmanager
async def open_server_api(
    url: str | None, token: str | None, user: str | None = None
) -> AsyncIterator[RestApi]:
    """Opens the REST API of the named server, or of the one found or started here.

    `user`: on whose behalf requests are made. They raise Unreachable or RequestRefused.
    """
    async with find_or_start_server(url) as address, open_api_at(address, token, user) as api:
        yield api


def create_client(
    http: httpx.AsyncClient,
    address: str,
    token: str | None,
    owner: str | None,
    user: str | None,
    reconnect_seconds: float = 0.0,
) -> A2AClient:
    """A client of the server at the address, for the conversations of an owner if one is named."""
    client = A2AClient(address, http, token=token, reconnect_seconds=reconnect_seconds)
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
async def open_api_at(address: str, token: str | None, user: str | None = None) -> AsyncIterator[RestApi]:
    """Opens the REST API of the server at the address. Requests raise Unreachable or RequestRefused."""
    headers = bearer_headers(token)
    if user is not None:
        headers = {**headers, **on_behalf_of_headers(user)}
    async with create_http_client(address) as http:
        yield rest_api_at(http, address, headers)
