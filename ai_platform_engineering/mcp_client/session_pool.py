"""The MCP sessions of this process and their tools; one session for each server and its credentials."""

import asyncio
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from langchain_core.tools import BaseTool

from ai_platform_engineering.core.agent_definition import McpServer, ToolPolicy
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.setting_types import SandboxMode
from ai_platform_engineering.mcp_client.connection_context import ConnectionContext, McpLimits
from ai_platform_engineering.mcp_client.feature_tools import list_all_specs
from ai_platform_engineering.mcp_client.langchain_tools import (
    ServerTools,
    build_langchain_tools,
    list_denied_tools,
    list_held_tools,
)
from ai_platform_engineering.mcp_client.mcp_errors import McpLoginRequired, McpUnavailable
from ai_platform_engineering.mcp_client.oauth.access_tokens import INSTALLATION
from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess
from ai_platform_engineering.mcp_client.owned_sessions import OwnedSessions
from ai_platform_engineering.mcp_client.sandbox import Sandbox
from ai_platform_engineering.mcp_client.server_environment import base_environment, server_key
from ai_platform_engineering.mcp_client.server_process import OrphanReaper
from ai_platform_engineering.mcp_client.server_slots import ServerSlots
from ai_platform_engineering.mcp_client.server_state import McpState
from ai_platform_engineering.mcp_client.session import McpSession
from ai_platform_engineering.mcp_client.tool_list_cache import ToolListCache
from ai_platform_engineering.mcp_client.tool_trust import ToolTrust
from ai_platform_engineering.mcp_client.tool_types import ToolList
from ai_platform_engineering.mcp_client.working_folders import WorkingFolders

_ALLOW_ALL = ToolPolicy()


def _list_server_tools(name: str, session: McpSession | OwnedSessions, tool_list: ToolList) -> ServerTools:
    return ServerTools(name, session, list_all_specs(name, tool_list))


@dataclass(frozen=True, slots=True)
class AgentTools:
    """The tools of all servers of an agent, and the problems of the servers whose tools are not known."""

    tools: tuple[BaseTool, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    instructions: Mapping[str, str] = field(default_factory=dict)
    """What servers say about how to use them; third-party text."""
    denied: tuple[str, ...] = ()
    """The names of tools that the servers have and the policy denies."""
    held_tools: tuple[str, ...] = ()
    """The names of tools that servers have changed since they were trusted."""
    missing_logins: tuple[str, ...] = ()
    """The servers, of those with problems, that the person has to sign in to."""


class McpSessionPool:
    """The sessions of one event loop.

    Nothing is started before a tool is called, or listed for the first time.
    """

    def __init__(
        self,
        *,
        connect_timeout: float = McpLimits.connect,
        call_timeout: float = McpLimits.call,
        idle: float = McpLimits.idle,
        backoff: float = McpLimits.backoff,
        question: float = McpLimits.question,
        message_bytes: int = McpLimits.message_bytes,
        message_values: int = McpLimits.message_values,
        cache_dir: Path | None = None,
        environment: Mapping[str, str] | None = None,
        sandbox: SandboxMode = "off",
        private_paths: Sequence[Path] = (),
        trust_dir: Path | None = None,
        oauth: OAuthAccess | None = None,
        slots: ServerSlots | None = None,
    ) -> None:
        """`environment` is ours; a server gets the harmless part of it, and what its definition says.

        `private_paths` are hidden from servers in a sandbox. Without `trust_dir` changed tools are not held.
        `oauth`: the logins at servers that want access tokens. `slots`: how many servers on stdio may run.
        """
        own_environment = dict(environment or {})
        folders = WorkingFolders(own_environment.get("TMPDIR"))
        self._context = ConnectionContext(
            McpLimits(connect_timeout, call_timeout, idle, backoff, question, message_bytes, message_values),
            own_environment,
            OrphanReaper(base_environment(own_environment), folders),
            folders,
            Sandbox(sandbox, own_environment, private_paths),
            slots,
        )
        self._cache = ToolListCache(cache_dir, own_environment)
        self._trust_dir = trust_dir
        self._oauth = oauth
        self._sessions: dict[str, McpSession | OwnedSessions] = {}
        self._closed = False

    async def tools(
        self,
        name: str,
        server: McpServer,
        policy: ToolPolicy = _ALLOW_ALL,
        *,
        knowledge: Collection[str] = (),
        principal: str | None = None,
    ) -> list[BaseTool]:
        """The tools that the server has now; starts it if need be. Raises McpUnavailable.

        `principal`: whose login is used, where the server has logins of people.
        """
        session = self._find_session(name, server)
        tool_list = await session.for_principal(principal).list_tools()
        return build_langchain_tools([_list_server_tools(name, session, tool_list)], policy, knowledge)

    async def read_caches(self, servers: Mapping[str, McpServer]) -> None:
        """Reads the cached tool lists of these servers, so that `cached_tools` need not."""
        await asyncio.gather(
            *(self._find_session(name, server).read_cache() for name, server in servers.items())
        )

    def cached_tools(
        self,
        name: str,
        server: McpServer,
        policy: ToolPolicy = _ALLOW_ALL,
        *,
        knowledge: Collection[str] = (),
    ) -> list[BaseTool] | None:
        """The tools that the server had when it was last seen, without starting it; None if it never was."""
        session = self._find_session(name, server)
        tool_list = session.known_tool_list()
        if tool_list is None:
            return None
        return build_langchain_tools([_list_server_tools(name, session, tool_list)], policy, knowledge)

    async def agent_tools(
        self,
        servers: Mapping[str, McpServer],
        policy: ToolPolicy = _ALLOW_ALL,
        *,
        knowledge: Collection[str] = (),
        principal: str | None = None,
    ) -> AgentTools:
        """The tools of several servers together: those last seen, else those that a server has now.

        A broken server costs only its own tools. `principal`: whose login is used, where servers have logins
        of people.
        """
        results = await asyncio.gather(
            *(self._find_tools(name, server, principal) for name, server in servers.items())
        )
        missing_logins = list[str]()
        server_tools = list[ServerTools]()
        problems = dict[str, str]()
        instructions = dict[str, str]()
        for name, result in zip(servers, results, strict=True):
            if isinstance(result, McpUnavailable):
                problems[name] = result.reason
                if isinstance(result, McpLoginRequired):
                    missing_logins.append(name)
                continue
            server_tools.append(result)
            tool_list = result.session.known_tool_list()
            if tool_list and tool_list.instructions:
                instructions[name] = tool_list.instructions
        tools = build_langchain_tools(server_tools, policy, knowledge)
        denied = list_denied_tools(server_tools, policy)
        held_tools = list_held_tools(server_tools, policy)
        return AgentTools(tuple(tools), problems, instructions, denied, held_tools, tuple(missing_logins))

    async def list_unseen(self, servers: Mapping[str, McpServer]) -> tuple[str, ...]:
        """The servers that `agent_tools` has to start, since nobody knows their tools."""
        await self.read_caches(servers)
        unseen = list[str]()
        for name, server in servers.items():
            session = self._find_session(name, server)
            if session.known_tool_list() is None and not session.is_ready:
                unseen.append(name)
        return tuple(unseen)

    async def check(self, name: str, server: McpServer) -> None:
        """Starts the server, lists its tools and ends it, unless somebody uses it. Raises McpUnavailable."""
        await self._find_session(name, server).check()

    def failed_checks(self, servers: Mapping[str, McpServer]) -> dict[str, str]:
        """The servers whose last check failed, and why; those that were started since are left out."""
        failures = {name: self._find_session(name, server).failed_check for name, server in servers.items()}
        return {name: reason for name, reason in failures.items() if reason}

    def revision(self, servers: Mapping[str, McpServer]) -> tuple[Hashable, ...]:
        """A revision of the known tools of these servers: another one means that they have changed."""
        return tuple(self._find_session(name, server).revision for name, server in servers.items())

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
        await self._context.reaper.aclose()
        await asyncio.to_thread(self._context.folders.remove_all)

    def _find_session(self, name: str, server: McpServer) -> McpSession | OwnedSessions:
        key = server_key(server)
        if key not in self._sessions:
            self._sessions[key] = self._create_session(name, server)
        return self._sessions[key]

    def _create_session(self, name: str, server: McpServer) -> McpSession | OwnedSessions:
        trust = ToolTrust(self._trust_dir, name, server)

        def create(context: ConnectionContext) -> McpSession:
            return McpSession(name, server, context, self._cache, trust, closed=self._closed)

        config = server.oauth
        oauth = self._oauth
        if config is None:
            return create(self._context)
        if oauth is None:
            raise ConfigurationError(
                f"The tool server {name} has `auth: oauth`, and no logins are kept here."
            )

        def create_owned(owner: str) -> McpSession:
            return create(replace(self._context, tokens=oauth.tokens_for(name, server, owner)))

        if config.owner == "installation":
            return create_owned(INSTALLATION)
        return OwnedSessions(create(self._context), create_owned, oauth.settings.max_sessions)

    async def _find_tools(
        self, name: str, server: McpServer, principal: str | None
    ) -> ServerTools | McpUnavailable:
        """The tools of a server, or why it is not available."""
        session = self._find_session(name, server)
        await session.read_cache()
        try:
            tool_list = session.known_tool_list() or await session.for_principal(principal).list_tools()
        except McpUnavailable as error:
            return error
        return _list_server_tools(name, session, tool_list)
