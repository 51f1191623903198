"""The knowledge base server of RAG_SERVER_URL, named by its endpoint or by its host alone."""

from pathlib import Path

import pytest

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.mcp_servers.knowledge_base.server import create_app
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_source import RemoteKnowledge
from tests.support.harness import serve_app
from tests.support.knowing_supervisor import KnowledgeFolder


@pytest.mark.parametrize("path", ["", "/", "/mcp"])
async def test_the_tools_of_a_knowledge_base_server_are_found(tmp_path: Path, path: str) -> None:
    folder = await KnowledgeFolder.of(tmp_path / "library")
    server = create_app(folder.build_knowledge_base(), Settings().server)
    async with serve_app(server) as url:
        settings = Settings.from_variables({"RAG_SERVER_URL": url.rstrip("/") + path})
        sessions = McpSessionPool(connect_timeout=30, call_timeout=30, cache_dir=None, environment={})
        knowledge = RemoteKnowledge(sessions, settings.knowledge)
        try:
            names = {tool.name for tool in await knowledge.tools()}
        finally:
            await knowledge.aclose()
    assert {"search", "fetch_document"} <= names
