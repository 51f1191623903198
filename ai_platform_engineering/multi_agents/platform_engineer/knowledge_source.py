"""The source of the supervisor's knowledge tools: a knowledge base in this process, or a remote server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from langchain_core.tools import BaseTool

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, DatabaseUnavailable
from ai_platform_engineering.core.knowledge_settings import KnowledgeSettings
from ai_platform_engineering.core.storage_settings import REQUIRED
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_tools import in_process_tools
from ai_platform_engineering.multi_agents.platform_engineer.rag_tools import wrap_knowledge_tools

log = logging.getLogger(__name__)

_SERVER = "knowledge_base"
_MCP_PATH = "/mcp"


class KnowledgeSource(Protocol):
    """Gives the tools of a knowledge base, as long as it has documents."""

    async def tools(self) -> Sequence[BaseTool]: ...

    async def start(self) -> None: ...

    async def wait_until_open(self) -> None:
        """Waits until it is open, or has failed to open."""
        ...

    async def aclose(self) -> None: ...

    async def has_documents(self) -> bool:
        """Whether there is something to find, as far as that is known without a request."""
        ...

    def report(self) -> dict[str, Any] | None:
        """Its state, for `/ready`."""
        ...


class InProcessKnowledge:
    """The knowledge base of this process. It opens in the background: another process may hold its files."""

    def __init__(
        self,
        kb: KnowledgeBase,
        settings: KnowledgeSettings,
        open_base: Callable[[], Awaitable[None]] | None = None,
        *,
        required: bool = False,
    ) -> None:
        """`open_base` opens it; a `required` one is open before the server starts, or stops the start."""
        self._kb = kb
        self._settings = settings
        self._open_base = open_base or kb.open
        self._required = required
        self._tools = wrap_knowledge_tools(in_process_tools(kb), settings)
        self._opening: asyncio.Task[None] | None = None
        self._open_finished = asyncio.Event()
        self._problem = ""

    async def start(self) -> None:
        self._opening = asyncio.create_task(self._open(), name="opening the knowledge base")
        if self._required:
            await self._opening

    async def wait_until_open(self) -> None:
        await self._open_finished.wait()

    async def _open(self) -> None:
        try:
            await self._open_base()
        except CaipeError as error:
            if self._required and isinstance(error, DatabaseUnavailable):
                raise ConfigurationError(error.describe(REQUIRED)) from None
            if self._required:
                raise
            self._problem = f"{error}"
            log.warning("the knowledge base cannot be opened: %s", error)
        except Exception as error:  # noqa: BLE001 - without documents the rest of the system works
            self._problem = f"The knowledge base cannot be opened ({type(error).__name__})."
            log.error("the knowledge base cannot be opened: %s", format_traceback(error))
        finally:
            self._open_finished.set()

    async def tools(self) -> Sequence[BaseTool]:
        if self._opening is None or not self._opening.done() or self._problem:
            return ()
        if self._settings.enabled or await self._kb.has_documents():
            return self._tools
        return ()

    async def has_documents(self) -> bool:
        if self._opening is None or not self._opening.done() or self._problem:
            return False
        return not await self._kb.is_empty()

    async def aclose(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
            await self._kb.aclose()

    def report(self) -> dict[str, Any] | None:
        if self._problem:
            return {"status": "degraded", "message": self._problem}
        if self._opening is not None and self._opening.done():
            return {"status": "ok", "embeddings": self._kb.has_embeddings}
        return None


class RemoteKnowledge:
    """A remote knowledge base server, at RAG_SERVER_URL."""

    def __init__(self, sessions: McpSessionPool, settings: KnowledgeSettings) -> None:
        headers: dict[str, str] = {}
        if settings.server_token and settings.server_token.get_secret_value():
            headers["Authorization"] = f"Bearer {settings.server_token.get_secret_value()}"
        # It is told who asks, because documents may be for some people only.
        self._server = McpServer(
            url=_add_mcp_path(settings.server_url or ""), headers=headers, sends_user=True
        )
        self._sessions = sessions
        self._settings = settings
        self._problem = ""
        self._mcp_tools: tuple[BaseTool, ...] = ()
        self._tools: list[BaseTool] = []

    async def start(self) -> None:
        """Does nothing: the server is asked when its tools are first needed."""

    async def wait_until_open(self) -> None:
        """Returns at once: the server is asked each time."""

    async def tools(self) -> Sequence[BaseTool]:
        tool_list = await self._sessions.agent_tools({_SERVER: self._server}, knowledge=("*",))
        problem = tool_list.problems.get(_SERVER, "")
        if problem and problem != self._problem:
            log.warning("the knowledge base server gives no tools: %s", problem)
        self._problem = problem
        # The wrappers hold the counts of running runs: they are replaced only when the tools have changed.
        if tool_list.tools != self._mcp_tools:
            self._mcp_tools = tool_list.tools
            self._tools = wrap_knowledge_tools(tool_list.tools, self._settings)
        return self._tools

    async def has_documents(self) -> bool:
        return bool(self._mcp_tools)

    async def aclose(self) -> None:
        await self._sessions.aclose()

    def report(self) -> dict[str, Any] | None:
        if self._problem:
            return {"status": "degraded", "message": self._problem}
        return {"status": "ok", "url": self._settings.server_url}


def _add_mcp_path(server_url: str) -> str:
    """The MCP endpoint of a knowledge base server that is named by its host alone, or the URL as it is."""
    parts = urlsplit(server_url)
    if parts.path.strip("/"):
        return server_url
    return parts._replace(path=_MCP_PATH).geturl()
