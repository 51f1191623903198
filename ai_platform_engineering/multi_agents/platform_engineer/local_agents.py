"""In-process agents: their tools come from MCP servers, are listed when first needed, and may change."""

import contextlib
import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.policy import NOT_ALLOWED, READ_ONLY, TOOL_HELD, decide_permission
from ai_platform_engineering.core.tool_traits import traits_of
from ai_platform_engineering.mcp_client.mcp_errors import McpUnavailable
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool

log = logging.getLogger(__name__)

_MAX_TOOLS_NAMED = 10


class ToolSource(Protocol):
    """The source of an agent's tools."""

    async def load(self, principal: str | None = None) -> Sequence[BaseTool]:
        """The tools; those of a server that cannot be reached are missing, and `problem` says so.

        `principal`: whose login is used, where servers have logins of people.
        """
        ...

    async def read_cache(self) -> None:
        """Reads from disk what is known of the tools; `tool_names` does so otherwise, and blocks."""
        ...

    async def list_starting_servers(self) -> tuple[str, ...]:
        """The tool servers that `load` has to start first, which may take seconds."""
        ...

    @property
    def revision(self) -> Hashable:
        """Changes when the tools have changed: a graph that was built from them is outdated."""
        ...

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools, as far as they are known without any request."""
        ...

    def known_tools(self) -> Sequence[BaseTool] | None:
        """The tools, as far as they are known without any request; None when nothing is known of them."""
        ...

    @property
    def denied(self) -> Mapping[str, str]:
        """Tools that the servers have and that are not offered, with the reason; set by `load`."""
        ...

    @property
    def notice(self) -> str | None:
        """What people should know about the tools in each run; set by `load`."""
        ...

    @property
    def problem(self) -> str | None: ...

    async def check(self) -> None:
        """Tries whether the tools can be used; `problem` says if not."""
        ...


class StaticTools:
    """A fixed list of tools."""

    def __init__(self, tools: Sequence[BaseTool]) -> None:
        self._tools = tuple(tools)

    async def load(self, principal: str | None = None) -> Sequence[BaseTool]:
        return self._tools

    async def read_cache(self) -> None:
        """Does nothing: the tools are here."""

    async def list_starting_servers(self) -> tuple[str, ...]:
        return ()

    @property
    def revision(self) -> Hashable:
        return None

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self._tools)

    def known_tools(self) -> Sequence[BaseTool] | None:
        return self._tools

    @property
    def denied(self) -> Mapping[str, str]:
        return {}

    @property
    def notice(self) -> str | None:
        return None

    @property
    def problem(self) -> str | None:
        return None

    async def check(self) -> None:
        """Does nothing: the tools are here."""


class McpTools:
    """The tools of a definition's MCP servers, under its policy."""

    def __init__(
        self, sessions: McpSessionPool, definition: AgentDefinition, *, read_only: bool = False
    ) -> None:
        self._sessions = sessions
        self._definition = definition
        self._read_only = read_only
        self._denied: dict[str, str] = {}
        self._held: tuple[str, ...] = ()
        self._missing_logins: tuple[str, ...] = ()
        self._problems: dict[str, str] = {}
        self._known_tools: tuple[BaseTool, ...] | None = None
        self._known_tools_revision: Hashable = None

    async def load(self, principal: str | None = None) -> Sequence[BaseTool]:
        agent_tools = await self._sessions.agent_tools(
            self._definition.mcp_servers, self._definition.tools, principal=principal
        )
        self._missing_logins = agent_tools.missing_logins
        self._problems = dict(agent_tools.problems)
        for server, reason in self._problems.items():
            log.warning(
                "agent %s: the tool server %s gives no tools: %s", self._definition.name, server, reason
            )
        self._held = agent_tools.held_tools
        self._denied = {
            **dict.fromkeys(agent_tools.denied, NOT_ALLOWED),
            **dict.fromkeys(agent_tools.held_tools, TOOL_HELD),
        }
        offered: list[BaseTool] = []
        for tool in agent_tools.tools:
            if self._is_offered(tool):
                offered.append(tool)
            else:
                self._denied[tool.name] = READ_ONLY
        return offered

    async def read_cache(self) -> None:
        await self._sessions.read_caches(self._definition.mcp_servers)

    async def list_starting_servers(self) -> tuple[str, ...]:
        return await self._sessions.list_unseen(self._definition.mcp_servers)

    def _is_offered(self, tool: BaseTool) -> bool:
        return decide_permission(traits_of(tool), read_only=self._read_only).permission != "deny"

    @property
    def revision(self) -> Hashable:
        if self._problems:
            return object()  # unlike any other: a server that failed is asked again next time
        return self._sessions.revision(self._definition.mcp_servers)

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.known_tools() or ())

    def known_tools(self) -> Sequence[BaseTool] | None:
        revision = self._sessions.revision(self._definition.mcp_servers)
        # Cached, as each run reads it.
        if self._known_tools_revision != revision:
            self._known_tools = self._read_cached_tools()
            self._known_tools_revision = revision
        return self._known_tools

    def _read_cached_tools(self) -> tuple[BaseTool, ...] | None:
        """The tools of the servers that were ever seen; None when none was."""
        offered: list[BaseTool] = []
        is_known = False
        for name, server in self._definition.mcp_servers.items():
            tools = self._sessions.cached_tools(name, server, self._definition.tools)
            if tools is not None:
                is_known = True
                offered += [tool for tool in tools if self._is_offered(tool)]
        if is_known:
            return tuple(offered)
        return None

    @property
    def denied(self) -> Mapping[str, str]:
        return self._denied

    @property
    def notice(self) -> str | None:
        if self._missing_logins:
            name = self._definition.name
            return (
                f"{name} needs you to sign in to {', '.join(self._missing_logins)}:"
                f" caipe agents login {name}, or Sign in under Agents on the web page."
            )
        if not self._held:
            return None
        names = ", ".join(self._held[:_MAX_TOOLS_NAMED])
        if len(self._held) > _MAX_TOOLS_NAMED:
            names += f" and {len(self._held) - _MAX_TOOLS_NAMED} more"
        return (
            f"These tools of {self._definition.name} are on hold because their server changed them:"
            f" {names}. To review and allow the changes: caipe agents trust {self._definition.name}"
        )

    async def check(self) -> None:
        """Starts each server once, one after the other."""
        for name, server in self._definition.mcp_servers.items():
            with contextlib.suppress(McpUnavailable):  # the session knows
                await self._sessions.check(name, server)
                self._problems.pop(name, None)

    @property
    def problem(self) -> str | None:
        problems = {**self._sessions.failed_checks(self._definition.mcp_servers), **self._problems}
        return "; ".join(f"{server}: {reason}" for server, reason in problems.items()) or None


@dataclass(frozen=True, slots=True)
class LocalAgent:
    """An in-process agent: its definition, its tools, its own model if it has one, and its own sub-agents."""

    definition: AgentDefinition
    source: ToolSource = field(default_factory=lambda: StaticTools(()))
    model: BaseChatModel | None = None
    agents: "tuple[LocalAgent, ...]" = ()
