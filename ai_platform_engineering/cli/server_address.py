"""Which server a command talks to: the named one, the one on this machine, or one started for the command alone."""

import contextlib
import logging
from collections.abc import AsyncIterator

import httpx

from ai_platform_engineering.a2a.client import create_http_client

DEFAULT_URL = "http://127.0.0.1:8000/"


@contextlib.asynccontextmanager
async def find_or_start_server(url: str | None) -> AsyncIterator[str]:
    """The address of a server to ask."""
    if url is not None:
        yield url
        return
    if await is_serving(DEFAULT_URL):
        yield DEFAULT_URL
        return
    # Imported late: a command that finds a server needs none of the graph's libraries.
    from ai_platform_engineering.core.settings import Settings, read_environment
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import (
        STORAGE_NAME,
        build_app,
    )
    from ai_platform_engineering.runtime.log.sqlite_database import StorageInUse
    from ai_platform_engineering.runtime.server.embedded_server import run_embedded_server
    from ai_platform_engineering.runtime.storage import Storage

    logging.basicConfig(level=logging.ERROR)
    variables = read_environment()
    settings = Settings.from_variables(variables)
    try:
        kept = Storage.from_settings(settings.storage, settings.agent.home, STORAGE_NAME)
    except StorageInUse:
        kept = Storage.in_memory()  # a server elsewhere on this machine has it
    async with run_embedded_server(build_app(settings, variables, storage=kept)) as started:
        yield started


async def is_serving(url: str) -> bool:
    """Whether a server of A2A answers."""
    try:
        async with create_http_client(url) as http:
            response = await http.get(f"{url}.well-known/agent-card.json", timeout=1)
            return response.status_code == 200 and "name" in response.json()
    except (httpx.HTTPError, ValueError):
        return False
