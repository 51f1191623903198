"""The graph is built at the start, without a question: the first one finds it built."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.offline_model import OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.harness import serve_app
from tests.support.processes import TIMEOUT


class AskedKnowledge:
    """An empty knowledge base; building a graph asks it for its tools."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def tools(self) -> Sequence[BaseTool]:
        self.asked.set()
        return ()

    async def start(self) -> None: ...

    async def wait_until_open(self) -> None: ...

    async def aclose(self) -> None: ...

    def report(self) -> dict[str, Any] | None:
        return None


async def test_the_graph_is_built_before_anybody_asks() -> None:
    knowledge = AskedKnowledge()
    app = create_app(Settings.from_variables({}), router=OfflineModel(), knowledge=knowledge)
    async with serve_app(app):
        async with asyncio.timeout(TIMEOUT):
            await knowledge.asked.wait()


async def test_a_model_that_is_not_installed_is_told_by_ready_and_does_not_stop_the_start() -> None:
    app = create_app(Settings.from_variables({"LLM_MODEL": "xai:model"}))
    async with serve_app(app) as url, httpx.AsyncClient(timeout=TIMEOUT) as http:
        answer = await http.get(f"{url}ready")
    assert answer.status_code == 503
    assert answer.json()["components"]["model"]["status"] == "unavailable"
