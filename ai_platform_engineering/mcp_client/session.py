"""The session with one server: opened when it is first needed, opened again when it is lost, shared by all its users."""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.connection import (
    BackgroundTasks,
    CallTimeoutError,
    ConnectionContext,
    McpConnection,
)
from ai_platform_engineering.mcp_client.server import (
    DeliveryUnknownError,
    McpCallLost,
    McpState,
    McpToolFailed,
    McpToolGone,
    McpUnavailable,
    NotDeliveredError,
    ProgressCallback,
    RequestRejectedError,
)
from ai_platform_engineering.mcp_client.tool_list_cache import ToolListCache
from ai_platform_engineering.mcp_client.tool_types import ToolList, ToolResult, ToolSpec

log = logging.getLogger(__name__)

_WORTH_WAITING = 1.0
_SETTLE = 0.1  # a server that adds ten tools says so ten times
_UNKNOWN_TOOL = re.compile(r"unknown|not found|no such|does not exist|unavailable|not exist", re.IGNORECASE)
_MOST_NAMES = 30


class McpSession:
    def __init__(
        self,
        name: str,
        server: McpServer,
        around: ConnectionContext,
        cache: ToolListCache,
        *,
        closed: bool = False,
    ) -> None:
        self.name = name
        self._server = server
        self._around = around
        self._cache = cache
        self._connection: McpConnection | None = None
        self._older: set[McpConnection] = set()  # ended, or ending with their last calls
        self._known: ToolList | None = None
        self._looked_up = False
        self._listed_on: McpConnection | None = None
        self._listing = asyncio.Lock()
        self._tasks = BackgroundTasks()
        self._closed = closed
        self.revision = 0
        """Rises whenever the known tools change."""

    @property
    def state(self) -> McpState:
        connection, tools = self._connection, None if self._known is None else len(self._known.tools)
        if connection is None:
            return McpState(self.name, "not started", tools)
        if connection.is_starting:
            return McpState(self.name, "starting", tools, since=connection.since)
        if connection.is_open:
            return McpState(self.name, "ready", tools, since=connection.since)
        if connection.is_closed and connection.failure is None:
            return McpState(self.name, "not started", tools, since=connection.since)
        return McpState(
            self.name, "failed", tools, connection.failure or "the connection was lost", connection.since
        )

    def known_tool_list(self) -> ToolList | None:
        """The tools as far as they are known without asking: from this session, or from the cache."""
        if self._known is None and not self._looked_up:
            self._looked_up = True
            self._known = self._cache.load(self._server)
        return self._known

    async def list_tools(self) -> ToolList:
        """The tools that the server has now. Raises McpUnavailable."""
        connection = await self._connected()
        return await self._list(connection, again=False)

    async def call(
        self, tool: ToolSpec, arguments: Mapping[str, Any], report: ProgressCallback | None = None
    ) -> ToolResult:
        """The result; a failure is an error of ours with words for the model. Tried a second time only if that does no harm."""
        connection = await self._connected()
        try:
            return await self._called(connection, tool, arguments, report)
        except NotDeliveredError as error:
            connection.retire(str(error))
        except DeliveryUnknownError as error:
            connection.check_alive()
            if not tool.is_repeatable:
                raise self._lost(tool) from error
        connection = await self._connected()
        try:
            return await self._called(connection, tool, arguments, report)
        except NotDeliveredError as error:
            connection.retire(str(error))
            raise McpUnavailable(self.name, str(error)) from error
        except DeliveryUnknownError as error:
            connection.check_alive()
            raise self._lost(tool) from error

    async def aclose(self) -> None:
        self._closed = True
        await self._tasks.aclose()
        await asyncio.gather(
            *(
                connection.aclose()
                for connection in {self._connection, *self._older}
                if connection is not None
            )
        )

    # --- connecting --------------------------------------------------------------------------------------------------

    async def _connected(self) -> McpConnection:
        reason = None
        for _ in range(3):  # a connection may turn out to be lost while we wait for it
            if self._closed:
                raise McpUnavailable(self.name, "the system is being stopped")
            await self._not_too_soon()
            connection = (
                self._connection
                if self._connection is not None and self._connection.is_usable
                else self._open()
            )
            await connection.wait_until_open()
            if connection.is_usable:
                return connection
            reason = connection.failure
        raise McpUnavailable(self.name, reason or "the connection was lost")

    async def _not_too_soon(self) -> None:
        """After a start that failed: waits if that is short, else says so."""
        last = self._connection
        wait = 0.0 if last is None else last.retry_at - asyncio.get_running_loop().time()
        if last is not None and wait > _WORTH_WAITING:
            raise McpUnavailable(
                self.name, f"{last.failure}; the next attempt is possible in {wait:.0f} seconds"
            )
        await asyncio.sleep(max(wait, 0))

    def _open(self) -> McpConnection:
        known = {self._connection, *self._older}
        self._older = {
            connection for connection in known if connection is not None and not connection.has_ended
        }
        self._connection = McpConnection(self.name, self._server, self._around, self._on_ready)
        return self._connection

    def _on_ready(self, connection: McpConnection) -> None:
        log.info("mcp %s: connected", self.name)
        self._tasks.spawn(self._watch(connection))

    # --- tools -------------------------------------------------------------------------------------------------------

    async def _watch(self, connection: McpConnection) -> None:
        """Keeps the list of tools fresh, now and whenever the server says that it has changed."""
        while connection.is_open:
            connection.tools_changed.clear()
            try:
                await self._list(connection, again=self._listed_on is connection)
            except McpUnavailable as error:
                log.warning("%s", error)
            await connection.tools_changed.wait()
            await asyncio.sleep(_SETTLE)

    async def _list(self, connection: McpConnection, *, again: bool) -> ToolList:
        async with self._listing:
            if self._known is None or again or self._listed_on is not connection:
                try:
                    self._learn(await connection.list_tools())
                except (
                    CallTimeoutError,
                    NotDeliveredError,
                    DeliveryUnknownError,
                    RequestRejectedError,
                ) as error:
                    connection.check_alive()
                    raise McpUnavailable(self.name, f"it does not list its tools ({error})") from error
                self._listed_on = connection
            assert self._known is not None
            return self._known

    def _learn(self, listing: ToolList) -> None:
        before, self._known = self.known_tool_list(), listing
        if before is None or before.tools != listing.tools:
            self.revision += 1
            log.info("mcp %s: has %d tools now", self.name, len(listing.tools))
        if before != listing:
            self._tasks.spawn(self._cache.store(self._server, listing))

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _called(
        self,
        connection: McpConnection,
        tool: ToolSpec,
        arguments: Mapping[str, Any],
        report: ProgressCallback | None,
    ) -> ToolResult:
        try:
            result = await connection.call(tool.name, arguments, report)
        except CallTimeoutError:
            connection.check_alive()
            seconds = self._around.limits.call
            raise McpCallLost(
                f"{tool.name} gave no answer in {seconds:g} seconds and was given up. Whether it took effect is unknown."
            ) from None
        except RequestRejectedError as error:
            raise await self._failure(connection, tool, str(error)) from error
        if result.failed:
            raise await self._failure(connection, tool, result.text)
        return result

    async def _failure(
        self, connection: McpConnection, tool: ToolSpec, text: str
    ) -> McpToolFailed | McpToolGone:
        """What the server said; if it does not know the tool any more, that."""
        if tool.name in text and _UNKNOWN_TOOL.search(text):
            try:
                names = (await self._list(connection, again=True)).tool_names()
            except McpUnavailable:
                return McpToolFailed(text)
            if tool.name not in names:
                told = ", ".join(names[:_MOST_NAMES]) or "none"
                return McpToolGone(
                    f"The tool server {self.name} no longer has a tool {tool.name}. Its tools are now: {told}."
                )
        return McpToolFailed(text)

    def _lost(self, tool: ToolSpec) -> McpCallLost:
        return McpCallLost(
            f"The connection to {self.name} was lost while {tool.name} was running. Whether it took effect is unknown."
        )
