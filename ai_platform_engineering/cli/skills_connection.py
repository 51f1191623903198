"""Connections to the skills over REST: to a server, or to the skill catalogue of this machine."""

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import httpx

from ai_platform_engineering.a2a.client import bearer_headers, create_http_client
from ai_platform_engineering.a2a.own_servers import check_own_server
from ai_platform_engineering.a2a.rest_client import RestApi, rest_api_at
from ai_platform_engineering.cli.server_connection import find_local_server
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.runtime.server.read_only import ReadOnlyMiddleware
from ai_platform_engineering.skills_middleware.api.skills_mount import LazySkillsApp
from ai_platform_engineering.skills_middleware.catalog_factory import build_skill_catalog

_IN_PROCESS_URL = "http://here"


@contextlib.asynccontextmanager
async def open_skills_api(url: str | None, token: str | None) -> AsyncIterator[RestApi]:
    """Opens the skills API of the named server, of the one on this machine, or of the catalogue itself.

    A server that is started later finds what was changed in the catalogue.
    """
    variables = read_environment()
    settings = Settings.from_variables(variables)
    address = url
    if address:
        await check_own_server(address)
    else:
        address = await find_local_server(settings)
    if address:
        async with create_http_client(address) as http:
            http.headers.update(bearer_headers(token))
            http.timeout = httpx.Timeout(300.0, connect=10.0)  # a repository takes a while to fetch
            yield rest_api_at(http, address)
        return
    catalog = build_skill_catalog(settings, variables)
    await catalog.open()
    try:
        app = LazySkillsApp(catalog, lambda: settings.people.read_only)
        protected_app = ReadOnlyMiddleware(app, lambda: settings.people.read_only)
        transport = httpx.ASGITransport(protected_app)
        async with httpx.AsyncClient(transport=transport, timeout=None) as http:
            yield rest_api_at(http, _IN_PROCESS_URL)
    finally:
        await catalog.close()


def skills_path(path: str, **parameters: str | None) -> str:
    """A path with the query parameters that have a value."""
    query = urlencode({name: value for name, value in parameters.items() if value})
    if query:
        return f"{path}?{query}"
    return path
