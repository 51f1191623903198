"""The tool calls of a session: made again when that does no harm, and held while people are asked."""

import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ai_platform_engineering.mcp_client.connection import HeldCall, McpConnection
from ai_platform_engineering.mcp_client.connection_context import McpLimits, ProgressCallback
from ai_platform_engineering.mcp_client.elicitation import ResumableCall
from ai_platform_engineering.mcp_client.mcp_errors import (
    CallTimeoutError,
    DeliveryUnknownError,
    McpCallLost,
    McpToolFailed,
    McpToolGone,
    McpUnavailable,
    NotDeliveredError,
    RequestRejectedError,
)
from ai_platform_engineering.mcp_client.open_call import CANCELLED, OpenCall
from ai_platform_engineering.mcp_client.tool_types import ToolList, ToolResult, ToolSpec

_UNKNOWN_TOOL = re.compile(r"unknown|not found|no such|does not exist|unavailable|not exist", re.IGNORECASE)
_MAX_TOOL_NAMES = 30
_MAX_HELD_CALLS = 100

_HeldConnection = tuple[McpConnection, OpenCall]


class SessionConnections(Protocol):
    """What calls need of their session."""

    async def connect(self) -> McpConnection: ...

    async def check_trust(self, connection: McpConnection, tool: ToolSpec) -> None: ...

    async def refresh_tool_list(self, connection: McpConnection, *, again: bool) -> ToolList: ...

    def raise_refusal(self) -> None:
        """Raises McpLoginRequired if the server has refused the access token."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call to be made. `user`: who asks, as the server is told. `resumable`: it may wait for people."""

    tool: ToolSpec
    arguments: Mapping[str, Any]
    on_progress: ProgressCallback | None = None
    user: str | None = None
    resumable: ResumableCall | None = None

    @property
    def was_left_open(self) -> bool:
        """Whether the call goes on that a server holds open."""
        if self.resumable is None or self.resumable.pause is None:
            return False
        return self.resumable.pause.kind == "open"


class SessionCalls:
    """Makes the calls of one session, and keeps those that wait for people."""

    def __init__(self, name: str, limits: McpLimits, session: SessionConnections) -> None:
        self._name = name
        self._limits = limits
        self._session = session
        self._held_calls: dict[str, _HeldConnection] = {}  # by the call's key

    @property
    def has_held_calls(self) -> bool:
        return bool(self._held_calls)

    async def call(self, call: ToolCall) -> ToolResult:
        """The result of a call; a failure is an error of ours with words for the model."""
        if call.was_left_open and call.resumable is not None:
            held_connection = self._held_calls.pop(call.resumable.key, None)
            if held_connection is not None:
                return await self._resume_held(held_connection, call, call.resumable)
            if not call.resumable.is_repeatable:
                raise self._call_lost_error(call.tool)
        connection = await self._session.connect()
        await self._session.check_trust(connection, call.tool)
        try:
            return await self._call_once(connection, call)
        except NotDeliveredError as error:
            connection.retire(str(error))
        except DeliveryUnknownError as error:
            connection.check_alive()
            if not call.tool.is_repeatable:
                raise self._call_lost_error(call.tool) from error
        connection = await self._session.connect()
        await self._session.check_trust(connection, call.tool)
        try:
            return await self._call_once(connection, call)
        except NotDeliveredError as error:
            connection.retire(str(error))
            raise McpUnavailable(self._name, str(error)) from error
        except DeliveryUnknownError as error:
            connection.check_alive()
            raise self._call_lost_error(call.tool) from error

    async def _call_once(self, connection: McpConnection, call: ToolCall) -> ToolResult:
        answer = connection.call(call.tool.name, call.arguments, call.on_progress, call.user, call.resumable)
        return await self._read_result(connection, call, answer)

    async def _resume_held(
        self, held: _HeldConnection, call: ToolCall, resumable: ResumableCall
    ) -> ToolResult:
        """Goes on with a call that was left open, and never makes it again by itself."""
        connection, open_call = held
        answer = connection.resume_call(open_call, call.on_progress, resumable)
        try:
            return await self._read_result(connection, call, answer)
        except (NotDeliveredError, DeliveryUnknownError) as error:
            connection.check_alive()
            raise self._call_lost_error(call.tool) from error

    async def _read_result(
        self, connection: McpConnection, call: ToolCall, answer: Awaitable[ToolResult]
    ) -> ToolResult:
        """The result of a call that succeeded; its failure is an error of ours."""
        tool = call.tool
        try:
            result = await answer
        except HeldCall as held:
            assert call.resumable is not None
            self._hold(call.resumable.key, (connection, held.call))
            raise
        except CallTimeoutError:
            connection.check_alive()
            seconds = self._limits.call
            raise McpCallLost(
                f"{tool.name} gave no answer in {seconds:g} seconds and was abandoned. "
                "Whether it took effect is unknown."
            ) from None
        except RequestRejectedError as error:
            self._session.raise_refusal()
            raise await self._make_tool_error(connection, tool, str(error)) from error
        if result.failed:
            raise await self._make_tool_error(connection, tool, result.text)
        return result

    def _hold(self, key: str, held: _HeldConnection) -> None:
        """Keeps a call until its question is answered; of too many the oldest is given up."""
        self._held_calls[key] = held
        if len(self._held_calls) > _MAX_HELD_CALLS:
            _, call = self._held_calls.pop(next(iter(self._held_calls)))
            call.answer(CANCELLED)

    async def _make_tool_error(
        self, connection: McpConnection, tool: ToolSpec, text: str
    ) -> McpToolFailed | McpToolGone:
        """The error of a failed call: the server's own text, or that it does not have the tool any more."""
        if tool.name in text and _UNKNOWN_TOOL.search(text):
            try:
                names = (await self._session.refresh_tool_list(connection, again=True)).tool_names()
            except McpUnavailable:
                return McpToolFailed(text)
            if tool.name not in names:
                remaining = ", ".join(names[:_MAX_TOOL_NAMES]) or "none"
                return McpToolGone(
                    f"The tool server {self._name} no longer has a tool {tool.name}. "
                    f"Its tools are now: {remaining}."
                )
        return McpToolFailed(text)

    def _call_lost_error(self, tool: ToolSpec) -> McpCallLost:
        return McpCallLost(
            f"The connection to {self._name} was lost while {tool.name} was running. "
            "Whether it took effect is unknown."
        )
