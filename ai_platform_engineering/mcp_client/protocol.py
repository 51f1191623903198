"""An open MCP session in the terms of the MCP library.

Loading the library takes a second, so this module is imported on first use.
"""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any, TypeVar, cast

from anyio import BrokenResourceError, ClosedResourceError
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import McpError
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, Field, ValidationError

from ai_platform_engineering.a2a.on_behalf_of import USER_META_KEY
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.connection_context import (
    ConnectionContext,
    OutgoingRequest,
    ProgressCallback,
)
from ai_platform_engineering.mcp_client.http_transport import open_http_transport
from ai_platform_engineering.mcp_client.mcp_errors import (
    DeliveryUnknownError,
    McpRequestError,
    NotDeliveredError,
    RequestRejectedError,
)
from ai_platform_engineering.mcp_client.secret_redactor import SecretRedactor, sanitize_line
from ai_platform_engineering.mcp_client.session_streams import IncomingStream, OutgoingStream, current_request
from ai_platform_engineering.mcp_client.stdio_transport import open_stdio_transport
from ai_platform_engineering.mcp_client.tool_types import (
    ToolList,
    ToolResult,
    read_tool_result,
    read_tool_specs,
)
from ai_platform_engineering.mcp_client.transport import DELIVERY_STATUS_KEY, McpTransport, ServerMessage

log = logging.getLogger(__name__)

_MAX_PAGES = 100
_MAX_LOG_LINE_CHARS = 500
_MAX_LOG_LINES = 200  # of the server's own log, per connection
_MAX_INSTRUCTIONS_CHARS = 4000
# What the library tells all requests when its session breaks; the code alone is also used by servers.
_LIBRARY_CLOSED_MESSAGE = "Connection closed"
_LOST = "the connection was lost"

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class _CallAnswer(BaseModel):
    """A tool's answer, read leniently: an unknown kind of content must not cost the rest."""

    content: list[Any] = Field(default_factory=list)
    structuredContent: Any = None
    isError: bool = False


class _ToolPage(BaseModel):
    tools: list[Any] = Field(default_factory=list)
    nextCursor: str | None = None


class ProtocolSession:
    """The requests that we send to a server.

    They fail with McpRequestError, whatever the library and the transport raise.
    """

    def __init__(
        self,
        session: ClientSession,
        transport: McpTransport,
        incoming: IncomingStream,
        name: str,
        redactor: SecretRedactor,
    ) -> None:
        self._session = session
        self._transport = transport
        self._incoming = incoming
        self._name = name
        self._redactor = redactor
        self._server_info = ToolList()  # without tools
        self.closed = transport.closed
        self.drained = incoming.ended
        """Set when the server has gone and what it said before has been read."""

    async def initialize(self) -> None:
        result = await self._translate_errors(self._session.initialize(), OutgoingRequest())
        instructions = result.instructions or ""
        self._server_info = ToolList(
            server=result.serverInfo.name,
            version=result.serverInfo.version,
            instructions=instructions[:_MAX_INSTRUCTIONS_CHARS],
        )

    async def list_tools(self, request: OutgoingRequest) -> ToolList:
        raw_tools: list[Any] = []
        params: types.PaginatedRequestParams | None = None
        for _ in range(_MAX_PAGES):
            try:
                page = await self._send(types.ListToolsRequest(params=params), _ToolPage, request)
            except RequestRejectedError as error:
                if error.code != types.METHOD_NOT_FOUND:
                    raise
                break  # a server of prompts or resources only
            raw_tools += page.tools
            if not page.nextCursor:
                break
            params = types.PaginatedRequestParams(cursor=page.nextCursor)
        return self._server_info.model_copy(update={"tools": read_tool_specs(raw_tools, self._name)})

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        request: OutgoingRequest,
        on_progress: ProgressCallback | None = None,
        user: str | None = None,
    ) -> ToolResult:
        # Half a character, which models do send, can be sent nowhere: in the transports it would break more
        # than this call.
        clean_json = json.dumps(dict(arguments), ensure_ascii=False).encode(errors="replace")
        params = types.CallToolRequestParams(name=tool, arguments=json.loads(clean_json))
        if user is not None:
            params.meta = types.RequestParams.Meta.model_validate({USER_META_KEY: user})
        answer = await self._send(types.CallToolRequest(params=params), _CallAnswer, request, on_progress)
        result = read_tool_result(answer.content, answer.structuredContent, failed=answer.isError)
        redact = self._redactor.redact_error if answer.isError else self._redactor.redact
        return replace(result, text=redact(result.text))

    async def ping(self, request: OutgoingRequest) -> None:
        await self._send(types.PingRequest(), types.EmptyResult, request)

    async def send_cancellation(self, request: OutgoingRequest, reason: str) -> None:
        """Tells the server that nobody waits for this request any more."""
        if request.request_id is None or self.closed.done():
            return
        params = types.CancelledNotificationParams(requestId=request.request_id, reason=reason)
        notification = types.ClientNotification(types.CancelledNotification(params=params))
        with suppress(BrokenResourceError, ClosedResourceError):
            await self._session.send_notification(notification)

    def drop_answer(self, request: OutgoingRequest) -> bool:
        """Drops the answer to a request that nobody waits for; True if its task may be cancelled."""
        return request.request_id is None or self._incoming.drop_answer(request.request_id)

    def connection_lost_error(self, request: OutgoingRequest) -> McpRequestError:
        """The error of a request whose connection was lost, by its delivery status."""
        if request.request_id is None or self._transport.was_not_delivered(request.request_id):
            return NotDeliveredError(_LOST)
        return DeliveryUnknownError(_LOST)

    async def explain_failure(self) -> str:
        return self._redactor.redact_error(await self._transport.explain_failure())

    async def _send(
        self,
        client_request: Any,
        answer_type: type[AnswerT],
        request: OutgoingRequest,
        on_progress: ProgressCallback | None = None,
    ) -> AnswerT:
        async def report_progress(progress: float, total: float | None, message: str | None) -> None:
            try:
                if on_progress is not None:
                    on_progress(progress, total, message and self._redactor.redact(message))
            except Exception as error:  # noqa: BLE001 - a run that has ended takes no progress; the call goes on
                log.debug("mcp %s: progress could not be told: %s", self._name, type(error).__name__)

        # Not the library's call_tool(): it validates answers against the output schema, and a server's slip
        # there is not ours to punish.
        answer = self._session.send_request(
            types.ClientRequest(client_request),
            answer_type,
            progress_callback=report_progress if on_progress else None,
        )
        return await self._translate_errors(answer, request)

    async def _translate_errors(self, answer: Awaitable[AnswerT], request: OutgoingRequest) -> AnswerT:
        """Awaits the answer; raises McpRequestError in place of the library's errors."""
        token = current_request.set(request)
        try:
            return await answer
        except McpError as error:
            raise self._read_error(error.error, request) from None
        except (BrokenResourceError, ClosedResourceError):
            raise NotDeliveredError(_LOST) from None
        except ValidationError:
            raise RequestRejectedError("its answer is not valid MCP") from None
        except RuntimeError as error:  # a protocol version that the library does not know
            raise RequestRejectedError(str(error)) from None
        finally:
            current_request.reset(token)

    def _read_error(self, error: types.ErrorData, request: OutgoingRequest) -> McpRequestError:
        text = self._redactor.redact_error(error.message)
        status = error.data.get(DELIVERY_STATUS_KEY) if isinstance(error.data, dict) else None
        if status == "not delivered":
            return NotDeliveredError(text)
        if status == "unknown":
            return DeliveryUnknownError(text)
        has_library_text = error.message == _LIBRARY_CLOSED_MESSAGE
        if error.code == types.CONNECTION_CLOSED and (has_library_text or self.closed.done()):
            return self.connection_lost_error(request)
        return RequestRejectedError(text, error.code)


class _ServerLog:
    """Writes the log messages of a server to our log, up to a limit."""

    def __init__(self, name: str, redactor: SecretRedactor) -> None:
        self._name = name
        self._redactor = redactor
        self._lines = 0

    async def write(self, params: types.LoggingMessageNotificationParams) -> None:
        self._lines += 1
        if self._lines <= _MAX_LOG_LINES:
            line = sanitize_line(self._redactor.redact(str(params.data)), _MAX_LOG_LINE_CHARS)
            log.debug("mcp %s says: %s", self._name, line)


@asynccontextmanager
async def open_protocol_session(
    server: McpServer,
    *,
    name: str,
    context: ConnectionContext,
    redactor: SecretRedactor,
    on_tools_changed: Callable[[], None],
) -> AsyncIterator[ProtocolSession]:
    """A session with the server, not yet initialized.

    On the way out it is closed, and the process of a stdio server ended.
    """

    async def handle_message(message: Any) -> None:
        if not isinstance(message, types.ServerNotification):
            return
        if isinstance(message.root, types.ToolListChangedNotification):
            on_tools_changed()

    async with AsyncExitStack() as stack:
        transport: McpTransport
        if server.command is not None:
            transport = await stack.enter_async_context(open_stdio_transport(server, name, context, redactor))
        else:
            transport = await stack.enter_async_context(open_http_transport(server, context.limits))
        incoming = IncomingStream(transport.incoming)
        session = ClientSession(
            cast(MemoryObjectReceiveStream[ServerMessage], incoming),
            cast(MemoryObjectSendStream[SessionMessage], OutgoingStream(transport.outgoing)),
            client_info=types.Implementation(name="caipe", version=version("ai-platform-engineering")),
            message_handler=handle_message,
            logging_callback=_ServerLog(name, redactor).write,
        )
        await stack.enter_async_context(session)
        yield ProtocolSession(session, transport, incoming, name, redactor)
