"""The MCP sessions of different people with one server: each with its own login, never shared."""

from collections.abc import Callable, Hashable

from ai_platform_engineering.mcp_client.background_tasks import BackgroundTasks
from ai_platform_engineering.mcp_client.mcp_errors import McpUnavailable
from ai_platform_engineering.mcp_client.server_state import McpState
from ai_platform_engineering.mcp_client.session import McpSession
from ai_platform_engineering.mcp_client.tool_types import ToolList


class OwnedSessions:
    """The sessions with a server whose tokens belong to people.

    Calls are made in the session of the person who asks. The tool list is that of whoever has listed it: an
    agent has one set of tools, and a tool that the server denies to a person fails when it is called.
    """

    def __init__(
        self, unowned: McpSession, create_session: Callable[[str], McpSession], max_sessions: int
    ) -> None:
        """`unowned` never connects: it has the cached tool list. `create_session` takes an owner."""
        self.name = unowned.name
        self._unowned = unowned
        self._create_session = create_session
        self._max_sessions = max_sessions
        self._sessions: dict[str, McpSession] = {}  # the one that was used last is the last
        self._tasks = BackgroundTasks()
        self.failed_check: str | None = None
        """Always None: nobody signs in for a check."""

    def for_principal(self, principal: str | None) -> McpSession:
        """The session of this person. Raises McpUnavailable when too many people use the server at once."""
        owner = principal or ""
        session = self._sessions.pop(owner, None)
        if session is None:
            self._make_room()
            session = self._create_session(owner)
        self._sessions[owner] = session
        return session

    @property
    def revision(self) -> Hashable:
        lister = self._find_lister()
        return (id(lister), lister.revision)

    @property
    def is_ready(self) -> bool:
        return any(session.is_ready for session in self._sessions.values())

    @property
    def held_tools(self) -> tuple[str, ...]:
        return self._find_lister().held_tools

    @property
    def state(self) -> McpState:
        return self._find_lister().state

    async def read_cache(self) -> None:
        await self._unowned.read_cache()

    def known_tool_list(self) -> ToolList | None:
        return self._find_lister().known_tool_list()

    async def check(self) -> None:
        """Does nothing: a check has no person whose login it could use."""

    async def aclose(self) -> None:
        await self._tasks.aclose()
        for session in (self._unowned, *self._sessions.values()):
            await session.aclose()

    def _find_lister(self) -> McpSession:
        """The session whose tool list counts: a connected one, where there is one, as its list is newer."""
        listers = [session for session in self._sessions.values() if session.has_tool_list]
        connected = [session for session in listers if session.is_ready]
        return next(iter((*connected, *listers, self._unowned)))

    def _make_room(self) -> None:
        if len(self._sessions) < self._max_sessions:
            return
        for owner, session in self._sessions.items():
            if not session.is_busy:
                del self._sessions[owner]
                self._tasks.spawn(session.aclose())
                return
        raise McpUnavailable(self.name, "too many people use it at once (MCP_OAUTH_MAX_SESSIONS)")
