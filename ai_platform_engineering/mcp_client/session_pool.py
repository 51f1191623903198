"""The MCP sessions of this process and the tools behind them; one session for everybody with the same server and credentials."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from langchain_core.tools import BaseTool

from ai_platform_engineering.core.agent_definition import McpServer, ToolPolicy
from ai_platform_engineering.mcp_client.connection import ConnectionContext
from ai_platform_engineering.mcp_client.langchain_tools import (
    ServerTools,
    build_langchain_tools,
    list_denied_tools,
)
from ai_platform_engineering.mcp_client.server import (
    McpLimits,
    McpState,
    McpUnavailable,
    base_environment,
    server_key,
)
from ai_platform_engineering.mcp_client.server_process import OrphanReaper
from ai_platform_engineering.mcp_client.session import McpSession
from ai_platform_engineering.mcp_client.tool_list_cache import ToolListCache

_ALL = ToolPolicy()


@dataclass(frozen=True, slots=True)
class AgentTools:
    """The tools of all servers of an agent, and what is wrong with the servers that have none to give."""

    tools: tuple[BaseTool, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    instructions: Mapping[str, str] = field(default_factory=dict)
    """What servers say about how to use them; a stranger's text."""
    denied: tuple[str, ...] = ()
    """The names of tools that the servers have and the policy denies."""


class McpSessionPool:
    """Belongs to one event loop. Nothing is started before a tool is called, or listed for the first time."""

    def __init__(
        self,
        *,
        connect_timeout: float = McpLimits.connect,
        call_timeout: float = McpLimits.call,
        idle: float = McpLimits.idle,
        backoff: float = McpLimits.backoff,
        cache_dir: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is ours; a server gets the harmless part of it, and what its definition says."""
        ours = dict(environment or {})
        self._around = ConnectionContext(
            McpLimits(connect_timeout, call_timeout, idle, backoff),
            ours,
            OrphanReaper(base_environment(ours)),
        )
        self._cache = ToolListCache(cache_dir, ours)
        self._sessions: dict[str, McpSession] = {}
        self._closed = False

    async def tools(
        self, name: str, server: McpServer, policy: ToolPolicy = _ALL, *, knowledge: Collection[str] = ()
    ) -> list[BaseTool]:
        """The tools that the server has now; starts it if need be. Raises McpUnavailable."""
        session = self._session(name, server)
        return build_langchain_tools(
            [ServerTools(name, session, (await session.list_tools()).tools)], policy, knowledge
        )

    def cached_tools(
        self, name: str, server: McpServer, policy: ToolPolicy = _ALL, *, knowledge: Collection[str] = ()
    ) -> list[BaseTool] | None:
        """The tools that the server had when it was last seen, without starting it; None if it never was."""
        session = self._session(name, server)
        known = session.known_tool_list()
        if known is None:
            return None
        return build_langchain_tools([ServerTools(name, session, known.tools)], policy, knowledge)

    async def agent_tools(
        self, servers: Mapping[str, McpServer], policy: ToolPolicy = _ALL, *, knowledge: Collection[str] = ()
    ) -> AgentTools:
        """The tools of several servers together: those last seen, else those that it has now. A broken server costs only its own."""
        found = await asyncio.gather(*(self._offer(name, server) for name, server in servers.items()))
        offers = [offer for offer in found if isinstance(offer, ServerTools)]
        problems = {name: offer for name, offer in zip(servers, found, strict=True) if isinstance(offer, str)}
        told = {
            offer.server: known.instructions
            for offer in offers
            if (known := offer.session.known_tool_list()) and known.instructions
        }
        return AgentTools(
            tuple(build_langchain_tools(offers, policy, knowledge)),
            problems,
            told,
            list_denied_tools(offers, policy),
        )

    def revision(self, servers: Mapping[str, McpServer]) -> tuple[int, ...]:
        """Differs from an earlier one when the known tools of these servers have changed since: what was built from them is old."""
        return tuple(self._session(name, server).revision for name, server in servers.items())

    def state(self, name: str, server: McpServer) -> McpState:
        """How this server is doing; starts nothing."""
        session = self._sessions.get(server_key(server))
        if session:
            return session.state
        return McpState(name, "not started")

    def states(self) -> tuple[McpState, ...]:
        return tuple(session.state for session in self._sessions.values())

    async def aclose(self) -> None:
        """Ends all sessions and their processes; calls under way fail."""
        self._closed = True
        await asyncio.gather(*(session.aclose() for session in self._sessions.values()))
        await self._around.guard.aclose()

    def _session(self, name: str, server: McpServer) -> McpSession:
        key = server_key(server)
        if key not in self._sessions:
            self._sessions[key] = McpSession(name, server, self._around, self._cache, closed=self._closed)
        return self._sessions[key]

    async def _offer(self, name: str, server: McpServer) -> ServerTools | str:
        session = self._session(name, server)
        try:
            listing = session.known_tool_list() or await session.list_tools()
        except McpUnavailable as error:
            return error.reason
        return ServerTools(name, session, listing.tools)
