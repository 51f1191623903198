"""Where the supervisor's knowledge comes from: the knowledge base of this process, or a server elsewhere."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from langchain_core.tools import BaseTool

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.settings import KnowledgeSettings
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_tools import in_process_tools
from ai_platform_engineering.multi_agents.platform_engineer.rag_tools import wrap_knowledge_tools

log = logging.getLogger(__name__)

_SERVER = "knowledge_base"


class KnowledgeSource(Protocol):
    """The tools of a knowledge base, as long as there is something to find."""

    async def tools(self) -> Sequence[BaseTool]: ...

    async def start(self) -> None: ...

    async def opened(self) -> None:
        """Waits until it can be used, as far as it ever can."""
        ...

    async def aclose(self) -> None: ...

    def report(self) -> dict[str, Any] | None:
        """How it is, for `/ready`."""
        ...


class OwnKnowledge:
    """The knowledge base of this process, opened beside the start: nobody waits for its libraries."""

    def __init__(
        self,
        kb: KnowledgeBase,
        settings: KnowledgeSettings,
        opened: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._kb = kb
        self._settings = settings
        self._open = opened or kb.open
        self._tools = wrap_knowledge_tools(in_process_tools(kb), settings)
        self._opening: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._problem = ""

    async def start(self) -> None:
        self._opening = asyncio.create_task(self._opened(), name="opening the knowledge base")

    async def opened(self) -> None:
        await self._settled.wait()

    async def _opened(self) -> None:
        try:
            await self._open()
        except Exception as error:  # noqa: BLE001 - without documents the rest of the system works
            self._problem = f"The knowledge base cannot be opened ({type(error).__name__})."
            log.error("the knowledge base cannot be opened: %s", format_traceback(error))
        finally:
            self._settled.set()

    async def tools(self) -> Sequence[BaseTool]:
        if self._opening is None or not self._opening.done() or self._problem:
            return ()
        if self._settings.enabled or await self._kb.has_documents():
            return self._tools
        return ()

    async def aclose(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._opening
            await self._kb.aclose()

    def report(self) -> dict[str, Any] | None:
        if self._problem:
            return {"status": "degraded", "message": self._problem}
        if self._opening is not None and self._opening.done():
            return {"status": "ok", "embeddings": self._kb.has_embeddings}
        return None


class ServedKnowledge:
    """A knowledge base server elsewhere, at RAG_SERVER_URL."""

    def __init__(self, sessions: McpSessionPool, settings: KnowledgeSettings) -> None:
        token = settings.server_token.get_secret_value() if settings.server_token else None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._server = McpServer(url=settings.server_url, headers=headers)
        self._sessions = sessions
        self._settings = settings
        self._problem = ""
        self._found, self._tools = tuple[BaseTool, ...](), list[BaseTool]()

    async def start(self) -> None:
        """Asked when it is first needed."""

    async def opened(self) -> None:
        """It is always asked anew."""

    async def tools(self) -> Sequence[BaseTool]:
        found = await self._sessions.agent_tools({_SERVER: self._server}, knowledge=("*",))
        problem = found.problems.get(_SERVER, "")
        if problem and problem != self._problem:
            log.warning("the knowledge base server gives no tools: %s", problem)
        self._problem = problem
        if found.tools != self._found:  # kept otherwise: what they have counted must be found when a run ends
            self._found, self._tools = found.tools, wrap_knowledge_tools(found.tools, self._settings)
        return self._tools

    async def aclose(self) -> None:
        await self._sessions.aclose()

    def report(self) -> dict[str, Any] | None:
        if self._problem:
            return {"status": "degraded", "message": self._problem}
        return {"status": "ok", "url": self._settings.server_url}
