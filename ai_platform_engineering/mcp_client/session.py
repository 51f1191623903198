"""The MCP session with one server, shared by all its users.

Its connection is opened when it is first needed, and opened again when it was lost.
"""

import asyncio
import logging
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.background_tasks import BackgroundTasks
from ai_platform_engineering.mcp_client.connection import FetchRequest, McpConnection
from ai_platform_engineering.mcp_client.connection_context import ConnectionContext, ProgressCallback
from ai_platform_engineering.mcp_client.elicitation import ResumableCall
from ai_platform_engineering.mcp_client.mcp_errors import (
    McpNoSlot,
    McpRequestError,
    McpToolFailed,
    McpToolHeld,
    McpUnavailable,
    NotDeliveredError,
    RequestRejectedError,
)
from ai_platform_engineering.mcp_client.server_state import McpState
from ai_platform_engineering.mcp_client.session_calls import SessionCalls, ToolCall
from ai_platform_engineering.mcp_client.tool_list_cache import ToolListCache
from ai_platform_engineering.mcp_client.tool_trust import ToolTrust
from ai_platform_engineering.mcp_client.tool_types import ToolList, ToolResult, ToolSpec

log = logging.getLogger(__name__)

_MAX_BACKOFF_WAIT = 1.0
_LIST_DELAY = 0.1  # a server that adds ten tools says so ten times
_MAX_TOOL_NAMES = 30
_LOST = "the connection was lost"

AnswerT = TypeVar("AnswerT")


class McpSession:
    """A session with one server: its connection, its known tools, and calls of them."""

    def __init__(
        self,
        name: str,
        server: McpServer,
        context: ConnectionContext,
        cache: ToolListCache,
        trust: ToolTrust,
        *,
        closed: bool = False,
    ) -> None:
        self.name = name
        self._server = server
        self._context = context
        self._cache = cache
        self._trust = trust
        self._connection: McpConnection | None = None
        self._old_connections: set[McpConnection] = set()  # ended, or ending with their last calls
        self._tool_list: ToolList | None = None
        self._has_read_cache = False
        self._list_connection: McpConnection | None = None  # the one that the tool list came from
        self._list_lock = asyncio.Lock()
        self._calls = SessionCalls(name, context.limits, self)
        self._tasks = BackgroundTasks()
        self._closed = closed
        self._list_revision = 0
        self._login_id = ""  # the sign-in that the connection was opened with
        self._open_calls = 0
        self._uses = 0  # how often somebody has wanted the connection, apart from checks
        self.failed_check: str | None = None
        """Why the last check failed, until the server was started after all."""

    @property
    def revision(self) -> Hashable:
        """Changes whenever the known tools change, or what is trusted of them."""
        return (self._list_revision, self._trust.version)

    @property
    def is_ready(self) -> bool:
        """Whether a call would be made at once, without a start before it."""
        return self._connection is not None and self._connection.is_usable and self._connection.is_open

    @property
    def has_tool_list(self) -> bool:
        """Whether the tools are known in this process, be they from the cache."""
        return self._tool_list is not None

    @property
    def is_busy(self) -> bool:
        """Whether calls are under way, or wait for people."""
        return self._open_calls > 0 or self._calls.has_held_calls

    def for_principal(self, principal: str | None) -> "McpSession":
        """The session for calls of this person: all people share this one."""
        return self

    @property
    def held_tools(self) -> tuple[str, ...]:
        """The names of tools that the server has changed and nobody has approved."""
        tool_list = self._read_tool_list()
        if tool_list is None:
            return ()
        return self._trust.check(tool_list).held_names

    @property
    def state(self) -> McpState:
        connection = self._connection
        tools = None
        if self._tool_list is not None:
            tools = len(self._tool_list.tools)
        if connection is None:
            return McpState(self.name, "not started", tools)
        if connection.is_starting:
            return McpState(self.name, "starting", tools, since=connection.since)
        if connection.is_open:
            return McpState(self.name, "ready", tools, since=connection.since)
        if connection.is_closed and connection.failure is None:
            return McpState(self.name, "not started", tools, since=connection.since)
        reason = connection.failure or _LOST
        return McpState(self.name, "failed", tools, reason, connection.since)

    async def read_cache(self) -> None:
        """Reads the cached tool list in a thread; without this, the first look at it blocks."""
        if self._has_read_cache:
            return
        tool_list = await asyncio.to_thread(self._cache.load, self._server)
        self._has_read_cache = True
        if self._tool_list is None:  # the server may have said it meanwhile
            self._tool_list = tool_list

    def known_tool_list(self) -> ToolList | None:
        """The trusted tools that are known without a request: from this session, or from the cache."""
        tool_list = self._read_tool_list()
        if tool_list is None:
            return None
        return self._trust.check(tool_list).offered

    def _read_tool_list(self) -> ToolList | None:
        """All tools that are known, trusted or not."""
        if self._tool_list is None and not self._has_read_cache:
            self._has_read_cache = True
            self._tool_list = self._cache.load(self._server)
        return self._tool_list

    async def list_tools(self) -> ToolList:
        """The trusted tools that the server has now. Raises McpUnavailable."""
        self._uses += 1
        connection = await self.connect()
        tool_list = await self.refresh_tool_list(connection, again=False)
        return self._trust.check(tool_list).offered

    async def check(self) -> None:
        """Starts the server, lists its tools and ends it, unless somebody uses it. Raises McpUnavailable."""
        is_in_use = self._connection is not None and self._connection.is_usable
        uses_before = self._uses
        try:
            connection = await self.connect()
            await self.refresh_tool_list(connection, again=False)
        except McpNoSlot:
            return  # others are at work: that says nothing of this server
        except McpUnavailable as error:
            self.failed_check = error.reason
            raise
        finally:
            if not is_in_use and self._uses == uses_before and self._connection is not None:
                await self._connection.release()

    async def call(
        self,
        tool: ToolSpec,
        arguments: Mapping[str, Any],
        on_progress: ProgressCallback | None = None,
        *,
        principal: str | None = None,
        resumable: ResumableCall | None = None,
    ) -> ToolResult:
        """Calls a tool; a failure is an error of ours with words for the model.

        The call is made a second time only if that does no harm. `principal`: who asks, which only a server
        with `sends_user` is told. `resumable`: the call may wait for people; raises CallPaused when it does.
        """
        user = None
        if self._server.sends_user:
            user = principal or None
        self._uses += 1
        self._open_calls += 1
        try:
            return await self._calls.call(ToolCall(tool, arguments, on_progress, user, resumable))
        finally:
            self._open_calls -= 1

    async def fetch(self, send: FetchRequest[AnswerT]) -> AnswerT:
        """The answer to a request that only reads. Raises McpUnavailable and McpToolFailed."""
        self._uses += 1
        for attempt in range(2):
            connection = await self.connect()
            try:
                return await connection.fetch(send)
            except RequestRejectedError as error:
                self.raise_refusal()
                raise McpToolFailed(str(error)) from error
            except McpRequestError as error:
                connection.check_alive()
                if isinstance(error, NotDeliveredError):
                    connection.retire(str(error))
                if attempt:
                    raise McpUnavailable(self.name, str(error)) from error
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        self._closed = True
        await self._tasks.aclose()
        await asyncio.gather(*(connection.aclose() for connection in self._all_connections()))

    def _all_connections(self) -> set[McpConnection]:
        if self._connection is None:
            return self._old_connections
        return {self._connection, *self._old_connections}

    # --- connecting -------------------------------------------------------------------------------

    async def connect(self) -> McpConnection:
        """A connection that is open. Raises McpUnavailable."""
        reason = None
        await self._check_login()
        for _ in range(3):  # a connection may turn out to be lost while we wait for it
            if self._closed:
                raise McpUnavailable(self.name, "the system is being stopped")
            await self._wait_for_backoff()
            connection = self._connection
            if connection is None or not connection.is_usable:
                connection = self._open_connection()
            try:
                await connection.wait_until_open()
            except McpUnavailable:
                self.raise_refusal()
                raise
            if connection.is_usable:
                self.failed_check = None
                return connection
            reason = connection.failure
        raise McpUnavailable(self.name, reason or _LOST)

    async def _check_login(self) -> None:
        """Makes sure of an access token, where the server wants one. Raises McpUnavailable.

        A connection that another sign-in has opened is not used any more: the server knows it by that one.
        """
        tokens = self._context.tokens
        if tokens is None:
            return
        await tokens.ensure()
        if self._connection is not None and tokens.login_id != self._login_id:
            self._connection.retire("somebody signed in again")
        self._login_id = tokens.login_id

    def raise_refusal(self) -> None:
        """Raises McpLoginRequired if the server has refused the access token."""
        tokens = self._context.tokens
        refusal = tokens.find_refusal() if tokens is not None else None
        if refusal is not None:
            raise refusal

    async def _wait_for_backoff(self) -> None:
        """Waits before another start. Raises McpUnavailable when that would take long."""
        wait = 0.0
        if self._connection is not None:
            wait = self._connection.retry_at - asyncio.get_running_loop().time()
            if wait > _MAX_BACKOFF_WAIT:
                failure = self._connection.failure
                raise McpUnavailable(
                    self.name, f"{failure}; the next attempt is possible in {wait:.0f} seconds"
                )
        await asyncio.sleep(max(wait, 0))

    def _open_connection(self) -> McpConnection:
        connections = self._all_connections()
        self._old_connections = {connection for connection in connections if not connection.has_ended}
        self._connection = McpConnection(
            self.name,
            self._server,
            self._context,
            self._on_ready,
            known_protocol=self._find_known_protocol(),
        )
        return self._connection

    def _find_known_protocol(self) -> str:
        """The version that a program spoke before; a server at an address may be another one by now."""
        if self._tool_list is None or self._server.command is None:
            return ""
        return self._tool_list.protocol

    def _on_ready(self, connection: McpConnection) -> None:
        log.info("mcp %s: connected", self.name)
        self._tasks.spawn(self._watch_tools(connection))

    # --- tools ------------------------------------------------------------------------------------

    async def _watch_tools(self, connection: McpConnection) -> None:
        """Lists the tools now, and again whenever the server says that they have changed."""
        while connection.is_open:
            connection.tools_changed.clear()
            try:
                await self.refresh_tool_list(connection, again=self._list_connection is connection)
            except McpUnavailable as error:
                log.warning("%s", error)
            await connection.tools_changed.wait()
            await asyncio.sleep(_LIST_DELAY)

    async def check_trust(self, connection: McpConnection, tool: ToolSpec) -> None:
        """Raises McpToolHeld for a tool that is not any more what was trusted.

        A server that was just started, or has said that its tools changed, is asked for them first.
        """
        if not self._trust.is_active:
            return
        tool_list = await self.refresh_tool_list(connection, again=connection.tools_changed.is_set())
        if tool.name in self._trust.check(tool_list).held_names:
            raise McpToolHeld(
                f"The tool server {self.name} has changed its tool {tool.name} since it was trusted."
                " The call was not made: a person has to look at the change first, with: caipe agents trust"
            )

    async def refresh_tool_list(self, connection: McpConnection, *, again: bool) -> ToolList:
        """The tools as the server lists them; asked for once for each connection, or `again`."""
        async with self._list_lock:
            if self._tool_list is None or again or self._list_connection is not connection:
                try:
                    await self._set_tool_list(await connection.list_tools())
                except McpRequestError as error:
                    self.raise_refusal()
                    connection.check_alive()
                    raise McpUnavailable(self.name, f"it does not list its tools ({error})") from error
                self._list_connection = connection
            assert self._tool_list is not None
            return self._tool_list

    async def _set_tool_list(self, tool_list: ToolList) -> None:
        await self.read_cache()
        previous = self._tool_list
        # First the record: nothing may be offered from a list that was not compared with it.
        if self._trust.is_active:
            await asyncio.to_thread(self._trust.note_tools, tool_list)
        self._tool_list = tool_list
        if previous is None or previous.tools != tool_list.tools:
            self._list_revision += 1
            log.info("mcp %s: has %d tools now", self.name, len(tool_list.tools))
        if self.held_tools:
            names = ", ".join(self.held_tools[:_MAX_TOOL_NAMES])
            log.warning(
                "mcp %s: has changed since it was trusted; held until `caipe agents trust`: %s",
                self.name,
                names,
            )
        if previous != tool_list:
            self._tasks.spawn(self._cache.store(self._server, tool_list))
