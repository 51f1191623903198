"""Who asks the knowledge base over MCP: a client that may speak for people names them, others do not."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from langchain_core.runnables import RunnableConfig
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from ai_platform_engineering.a2a.on_behalf_of import USER_META_KEY, on_behalf_of_headers
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.mcp_servers.knowledge_base.server import create_app
from tests.support.harness import serve_app
from tests.support.knowledge import create_knowledge_base

SHARED, DELEGATE = "the-shared-key-of-tests", "the-delegate-key-of-tests"
DOCUMENTS = [
    {"id": "open", "title": "Open", "text": "Giraffes graze."},
    {"id": "anns", "title": "Anns", "text": "Giraffes of Ann.", "visible_to": ["ann"]},
]


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    settings = Settings.from_variables({"A2A_AUTH_SHARED_KEY": SHARED, "A2A_AUTH_DELEGATE_KEY": DELEGATE})
    kb = create_knowledge_base(tmp_path)

    async def fill() -> None:
        await kb.open()
        await kb.add_pushed_datasource("wiki")
        await kb.push.push("wiki", DOCUMENTS)

    async with serve_app(create_app(kb, settings.server, on_startup=fill)) as url:
        yield f"{url}mcp"


async def search(
    address: str, key: str, *, named: str | None = None, user: str | None = None
) -> CallToolResult:
    headers = {"Authorization": f"Bearer {key}"}
    if user is not None:
        headers |= on_behalf_of_headers(user)
    meta = {USER_META_KEY: named} if named is not None else None
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(address, http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        return await session.call_tool("search", {"query": "giraffes"}, meta=meta)


def titles(result: CallToolResult) -> set[str]:
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert not result.is_error, block.text
    return {entry["title"] for entry in json.loads(block.text)["results"]}


async def test_only_the_delegate_key_names_people(address: str) -> None:
    assert titles(await search(address, DELEGATE)) == {"Open"}
    assert titles(await search(address, DELEGATE, named="ann")) == {"Open", "Anns"}
    assert titles(await search(address, DELEGATE, named="bob")) == {"Open"}
    assert titles(await search(address, DELEGATE, user="ann")) == {"Open", "Anns"}
    # The header is the identity of the connection: `_meta` does not change it.
    assert titles(await search(address, DELEGATE, user="bob", named="ann")) == {"Open"}
    assert titles(await search(address, SHARED)) == {"Open"}
    refused = await search(address, SHARED, named="ann")
    assert refused.is_error
    assert "may not speak for others" in str(refused.content)


async def test_a_server_is_told_who_asks_only_if_its_definition_says_so(address: str) -> None:
    context = RunContext(run_id="r", principal="ann")
    config: RunnableConfig = {"metadata": context.to_metadata()}
    sessions = McpSessionPool(connect_timeout=30, call_timeout=30, cache_dir=None, environment={})
    headers = {"Authorization": f"Bearer {DELEGATE}"}

    async def search_with(**more: Any) -> set[str]:
        server = McpServer(url=address, headers=headers, **more)
        tools = await sessions.tools("kb", server)
        found = json.loads(await tools[0].ainvoke({"query": "giraffes"}, config))
        return {entry["title"] for entry in found["results"]}

    try:
        assert await search_with() == {"Open"}
        assert await search_with(sends_user=True) == {"Open", "Anns"}
    finally:
        await sessions.aclose()
