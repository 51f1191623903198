"""Agents that run in this process: their tools come from MCP servers, are listed when first needed, and may change."""

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.policy import NOT_ALLOWED, READ_ONLY, decide_permission
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool

log = logging.getLogger(__name__)


class ToolSource(Protocol):
    """Where an agent's tools come from."""

    async def load(self) -> Sequence[BaseTool]:
        """The tools; those of a server that cannot be reached are missing, and `problem` says so."""
        ...

    @property
    def revision(self) -> Hashable:
        """Changes when the tools have changed: what was built from them is old."""
        ...

    @property
    def known(self) -> tuple[str, ...]:
        """The names of the tools as far as they are known without asking anybody."""
        ...

    @property
    def denied(self) -> Mapping[str, str]:
        """Tools that are there and are not offered, with the reason; known when the others are loaded."""
        ...

    @property
    def problem(self) -> str | None: ...


class StaticTools:
    """Tools that are simply there."""

    def __init__(self, tools: Sequence[BaseTool]) -> None:
        self._tools = tuple(tools)

    async def load(self) -> Sequence[BaseTool]:
        return self._tools

    @property
    def revision(self) -> Hashable:
        return None

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self._tools)

    @property
    def denied(self) -> Mapping[str, str]:
        return {}

    @property
    def problem(self) -> str | None:
        return None


class McpTools:
    """The tools of a definition's MCP servers, under its policy."""

    def __init__(
        self, sessions: McpSessionPool, definition: AgentDefinition, *, read_only: bool = False
    ) -> None:
        self._sessions = sessions
        self._definition = definition
        self._read_only = read_only
        self._denied: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._names: tuple[Hashable, tuple[str, ...]] | None = None

    async def load(self) -> Sequence[BaseTool]:
        found = await self._sessions.agent_tools(self._definition.mcp_servers, self._definition.tools)
        self._problems = dict(found.problems)
        for server, reason in self._problems.items():
            log.warning(
                "agent %s: the tool server %s gives no tools: %s", self._definition.name, server, reason
            )
        offered = [tool for tool in found.tools if self._is_offered(tool)]
        self._denied = dict.fromkeys(found.denied, NOT_ALLOWED)
        self._denied |= {tool.name: READ_ONLY for tool in found.tools if tool not in offered}
        return offered

    def _is_offered(self, tool: BaseTool) -> bool:
        return decide_permission(tool.metadata or {}, read_only=self._read_only).permission != "deny"

    @property
    def revision(self) -> Hashable:
        # A server that failed is asked again next time.
        if self._problems:
            return None
        return self._sessions.revision(self._definition.mcp_servers)

    @property
    def known(self) -> tuple[str, ...]:
        servers = self._definition.mcp_servers
        revision = self._sessions.revision(servers)
        if self._names is None or self._names[0] != revision:  # asked for at every run
            cached = [
                self._sessions.cached_tools(name, server, self._definition.tools) or []
                for name, server in servers.items()
            ]
            self._names = (
                revision,
                tuple(tool.name for tools in cached for tool in tools if self._is_offered(tool)),
            )
        return self._names[1]

    @property
    def denied(self) -> Mapping[str, str]:
        return self._denied

    @property
    def problem(self) -> str | None:
        return "; ".join(f"{server}: {reason}" for server, reason in self._problems.items()) or None


@dataclass(frozen=True, slots=True)
class LocalAgent:
    """An agent that runs here: its definition, its tools, its model if not the common one, and its own sub-agents."""

    definition: AgentDefinition
    source: ToolSource = field(default_factory=lambda: StaticTools(()))
    model: BaseChatModel | None = None
    agents: "tuple[LocalAgent, ...]" = ()
