"""Connections to the knowledge base over REST: to the process that owns it, which may be this one."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware

from ai_platform_engineering.a2a.client import bearer_headers, create_http_client
from ai_platform_engineering.a2a.own_servers import check_own_server
from ai_platform_engineering.a2a.rest_client import RestApi, rest_api_at
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_knowledge_base
from ai_platform_engineering.knowledge_bases.owner_file import OwnerProcess
from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
from ai_platform_engineering.knowledge_bases.rest_requests import LOCAL_KEY_HEADER
from ai_platform_engineering.runtime.server.read_only import ReadOnlyMiddleware

_IN_PROCESS_URL = "http://here"


@dataclass(frozen=True, slots=True)
class KnowledgeBaseConnection:
    """The REST API of a knowledge base; `kb` is set when it is open in this process."""

    api: RestApi
    kb: KnowledgeBase | None = None


@contextlib.asynccontextmanager
async def connect_knowledge_base(
    url: str | None, token: str | None, *, changes: bool
) -> AsyncIterator[KnowledgeBaseConnection]:
    """Connects to the named server, or to this machine's knowledge base.

    The latter is opened here, or reached through the server that has it open for writing.
    """
    variables = read_environment()
    settings = Settings.from_variables(variables)
    home = settings.agent.home
    if url is not None:
        await check_own_server(url)
        async with open_remote_api(url, token, home) as api:
            yield KnowledgeBaseConnection(api)
        return
    kb = create_knowledge_base(settings, variables)
    try:
        await kb.open(start_workers=changes)
        if kb.is_writable or not changes:
            if kb.is_writable and not changes:
                await _ingest_shipped_docs(kb)
            knowledge_api = KnowledgeApi(kb, settings.knowledge, home=settings.agent.home)
            async with _open_in_process_api(knowledge_api, settings) as api:
                yield KnowledgeBaseConnection(api, kb)
            return
    finally:
        await kb.aclose()
    owner = OwnerProcess.read(home)
    if owner is None:
        raise CaipeError("Another process has the knowledge base open. Try again when it is done.")
    async with open_remote_api(owner.url, token, home) as api:
        yield KnowledgeBaseConnection(api)


async def _ingest_shipped_docs(kb: KnowledgeBase) -> None:
    job = await kb.add_shipped_docs()
    if job is not None:
        async for _ in kb.follow_job(job.job_id):
            pass


@contextlib.asynccontextmanager
async def _open_in_process_api(knowledge_api: KnowledgeApi, settings: Settings) -> AsyncIterator[RestApi]:
    read_only = Middleware(ReadOnlyMiddleware, read_only=lambda: settings.people.read_only)
    transport = httpx.ASGITransport(Starlette(routes=knowledge_api.routes(), middleware=[read_only]))
    headers = {LOCAL_KEY_HEADER: knowledge_api.local_key}
    async with httpx.AsyncClient(transport=transport, headers=headers, timeout=None) as http:
        yield rest_api_at(http, _IN_PROCESS_URL)


@contextlib.asynccontextmanager
async def open_remote_api(address: str, token: str | None, home: Path) -> AsyncIterator[RestApi]:
    """The REST API of the server at the address; of the one with this home, as its own user."""
    headers = bearer_headers(token)
    owner = OwnerProcess.read(home)
    # Only the server that wrote the key is given it.
    if owner is not None and owner.url.rstrip("/") == address.rstrip("/"):
        headers = {**headers, LOCAL_KEY_HEADER: owner.local_key}
    async with create_http_client(address) as http:
        http.headers.update(headers)
        http.timeout = httpx.Timeout(300.0, connect=10.0)  # a large datasource takes a while to remove
        yield rest_api_at(http, address)
