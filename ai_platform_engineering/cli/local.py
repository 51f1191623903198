"""Which server a command talks to: the named one, the one on this machine, or one started for the command alone."""

import contextlib
import logging
from collections.abc import AsyncIterator

import httpx

from ai_platform_engineering.core.settings import is_loopback

DEFAULT_URL = "http://127.0.0.1:8000/"


def http_client(url: str) -> httpx.AsyncClient:
    """A client for the server; a proxy of the environment is for the way out, not for this machine."""
    return httpx.AsyncClient(trust_env=not is_loopback(httpx.URL(url).host))


@contextlib.asynccontextmanager
async def a_server(url: str | None) -> AsyncIterator[str]:
    """The address of a server to ask."""
    if url is not None:
        yield url
        return
    if await _is_there(DEFAULT_URL):
        yield DEFAULT_URL
        return
    # Imported late: a command that finds a server needs none of the graph's libraries.
    from ai_platform_engineering.core.settings import Settings, environment
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
    from ai_platform_engineering.runtime.embedded import embedded

    logging.basicConfig(level=logging.ERROR)
    variables = environment()
    async with embedded(build_app(Settings.of(variables), variables)) as started:
        yield started


async def _is_there(url: str) -> bool:
    try:
        async with http_client(url) as http:
            response = await http.get(f"{url}.well-known/agent-card.json", timeout=1)
            return response.status_code == 200 and "name" in response.json()
    except (httpx.HTTPError, ValueError):
        return False
