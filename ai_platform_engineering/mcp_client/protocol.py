"""One open session in the words of the MCP library. Loading the library takes a second, so this module is imported on first use."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from typing import Any, Protocol, Self, TypeVar, cast

from anyio import BrokenResourceError, ClosedResourceError
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import McpError
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, Field, ValidationError

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.http_transport import DELIVERY_STATUS_KEY, open_http_transport
from ai_platform_engineering.mcp_client.server import (
    DeliveryUnknownError,
    McpLimits,
    NotDeliveredError,
    OutgoingRequest,
    ProgressCallback,
    RequestRejectedError,
    SecretRedactor,
    sanitize_line,
)
from ai_platform_engineering.mcp_client.server_process import OrphanReaper
from ai_platform_engineering.mcp_client.stdio_transport import open_stdio_transport
from ai_platform_engineering.mcp_client.tool_types import (
    ToolList,
    ToolResult,
    read_tool_result,
    read_tool_specs,
)

log = logging.getLogger(__name__)

_MOST_PAGES = 100
_LONGEST_LINE = 500
_MOST_LINES = 200  # of the server's own log, per connection
_MOST_OF_INSTRUCTIONS = 4000
_CLOSED = "Connection closed"  # what the library tells all requests when its session breaks; the code alone is also used by servers

AnswerT = TypeVar("AnswerT", bound=BaseModel)
ServerMessage = SessionMessage | Exception

_sending: ContextVar[OutgoingRequest] = ContextVar("_sending")


class McpTransport(Protocol):
    """A transport: the two streams of a session, and what became of them."""

    incoming: MemoryObjectReceiveStream[ServerMessage]
    outgoing: MemoryObjectSendStream[SessionMessage]
    closed: asyncio.Future[None]

    def was_not_delivered(self, request_id: str | int) -> bool: ...

    def explain_failure(self) -> Awaitable[str]: ...


class _Answer(BaseModel):
    """A tool's answer, read leniently: a kind of content that the library does not know must not cost the rest."""

    content: list[Any] = Field(default_factory=list)
    structuredContent: Any = None
    isError: bool = False


class _Page(BaseModel):
    tools: list[Any] = Field(default_factory=list)
    nextCursor: str | None = None


class ProtocolSession:
    """What we ask of a server. Fails with Unseen, Broken or Refused, whatever the library and the transport raise."""

    def __init__(
        self,
        session: ClientSession,
        link: McpTransport,
        incoming: "_Incoming",
        name: str,
        veil: SecretRedactor,
    ) -> None:
        self._session = session
        self._link = link
        self._incoming = incoming
        self._name = name
        self._veil = veil
        self._about = ToolList()
        self.closed = link.closed
        self.drained = incoming.ended
        """Set when the server has gone and what it said before has been read."""

    async def initialize(self) -> None:
        told = await self._translated(self._session.initialize(), OutgoingRequest())
        info = told.serverInfo
        self._about = ToolList(
            server=info.name,
            version=info.version,
            instructions=(told.instructions or "")[:_MOST_OF_INSTRUCTIONS],
        )

    async def list_tools(self, sent: OutgoingRequest) -> ToolList:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            try:
                page = await self._ask(types.ListToolsRequest(params=params), _Page, sent)
            except RequestRejectedError as refused:
                if refused.code != types.METHOD_NOT_FOUND:
                    raise
                break  # a server of prompts or resources only
            found += page.tools
            cursor = page.nextCursor
            if not cursor:
                break
        return self._about.model_copy(update={"tools": read_tool_specs(found, self._name)})

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        sent: OutgoingRequest,
        report: ProgressCallback | None = None,
    ) -> ToolResult:
        # Half a character, which models do send, can be sent nowhere: in the transports it would break more than this call.
        clean = json.loads(json.dumps(dict(arguments), ensure_ascii=False).encode(errors="replace"))
        params = types.CallToolRequestParams(name=tool, arguments=clean)
        answer = await self._ask(types.CallToolRequest(params=params), _Answer, sent, report)
        result = read_tool_result(answer.content, answer.structuredContent, failed=answer.isError)
        return replace(result, text=self._veil(result.text))

    async def ping(self, sent: OutgoingRequest) -> None:
        await self._ask(types.PingRequest(), types.EmptyResult, sent)

    async def send_cancellation(self, sent: OutgoingRequest, reason: str) -> None:
        """Tells the server that nobody waits for this request any more."""
        if sent.request_id is not None and not self.closed.done():
            params = types.CancelledNotificationParams(requestId=sent.request_id, reason=reason)
            with suppress(BrokenResourceError, ClosedResourceError):
                await self._session.send_notification(
                    types.ClientNotification(types.CancelledNotification(params=params))
                )

    def drop_answer(self, sent: OutgoingRequest) -> bool:
        """Nobody waits for this request any more: its answer will be dropped. True if the waiting itself may be cancelled."""
        return sent.request_id is None or self._incoming.drop(sent.request_id)

    def connection_lost_error(self, sent: OutgoingRequest) -> NotDeliveredError | DeliveryUnknownError:
        """What became of a request when the connection went."""
        unseen = sent.request_id is None or self._link.was_not_delivered(sent.request_id)
        return (NotDeliveredError if unseen else DeliveryUnknownError)("the connection was lost")

    async def explain_failure(self) -> str:
        return self._veil(await self._link.explain_failure())

    async def _ask(
        self, request: Any, kind: type[AnswerT], sent: OutgoingRequest, report: ProgressCallback | None = None
    ) -> AnswerT:
        async def told(progress: float, total: float | None, message: str | None) -> None:
            try:
                if report is not None:
                    report(progress, total, message and self._veil(message))
            except Exception as error:  # noqa: BLE001 - a run that has ended takes no progress; the call goes on
                log.debug("mcp %s: progress could not be told: %s", self._name, type(error).__name__)

        # Not the library's call_tool(): it validates answers against the output schema, and a server's slip there is not ours to punish.
        asked = self._session.send_request(
            types.ClientRequest(request), kind, progress_callback=told if report else None
        )
        return await self._translated(asked, sent)

    async def _translated(self, asking: Awaitable[AnswerT], sent: OutgoingRequest) -> AnswerT:
        marked = _sending.set(sent)
        try:
            return await asking
        except McpError as error:
            raise self._fate(error.error, sent) from None
        except (BrokenResourceError, ClosedResourceError):
            raise NotDeliveredError("the connection was lost") from None
        except ValidationError:
            raise RequestRejectedError("its answer is not valid MCP") from None
        except RuntimeError as error:  # a protocol version that the library does not know
            raise RequestRejectedError(str(error)) from None
        finally:
            _sending.reset(marked)

    def _fate(self, error: types.ErrorData, sent: OutgoingRequest) -> Exception:
        fate = error.data.get(DELIVERY_STATUS_KEY) if isinstance(error.data, dict) else None
        text = self._veil(error.message)
        if fate == "unseen":
            return NotDeliveredError(text)
        if fate == "broken":
            return DeliveryUnknownError(text)
        if error.code == types.CONNECTION_CLOSED and (self.closed.done() or error.message == _CLOSED):
            return self.connection_lost_error(sent)
        return RequestRejectedError(text, error.code)


class _Incoming:
    """What the session may see.

    The library logs the content of whatever it cannot read, so such messages end here. And so do answers that nobody waits for: the
    library's session breaks, for all, when an answer arrives just as its request is cancelled.
    """

    def __init__(self, stream: MemoryObjectReceiveStream[ServerMessage]) -> None:
        self._stream = stream
        self._handing: str | int | None = (
            None  # the answer that the session is handing to its request right now
        )
        self._dropped: set[str | int] = set()
        self.ended = asyncio.Event()

    def drop(self, request_id: str | int) -> bool:
        """Lets no answer to this request pass; False if one is passing already."""
        if self._handing == request_id:
            return False
        self._dropped.add(request_id)
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        self._handing = None
        async for message in self._stream:
            if isinstance(message, SessionMessage) and self._passes(message.message.root):
                return message
        self.ended.set()
        raise StopAsyncIteration

    def _passes(self, root: Any) -> bool:
        if isinstance(root, types.JSONRPCResponse | types.JSONRPCError):
            if not str(root.id).isdigit():
                return False
            answered = int(root.id)
            if answered in self._dropped:
                self._dropped.discard(answered)
                return False
            self._handing = answered
        elif isinstance(root, types.JSONRPCNotification):
            try:
                types.ServerNotification.model_validate(
                    root.model_dump(by_alias=True, mode="json", exclude_none=True)
                )
            except ValidationError:
                return False
        return True


class _Outgoing:
    """Notes the id that the library gave to a request, which it tells nobody; a call is withdrawn by it."""

    def __init__(self, stream: MemoryObjectSendStream[SessionMessage]) -> None:
        self._stream = stream

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()

    async def send(self, message: SessionMessage) -> None:
        root = message.message.root
        if isinstance(root, types.JSONRPCRequest) and (sent := _sending.get(None)) is not None:
            sent.request_id = root.id
        await self._stream.send(message)


@asynccontextmanager
async def open_protocol_session(
    server: McpServer,
    *,
    name: str,
    limits: McpLimits,
    environment: Mapping[str, str],
    guard: OrphanReaper,
    veil: SecretRedactor,
    tools_changed: Callable[[], None],
) -> AsyncIterator[ProtocolSession]:
    """A session with the server, not yet initialized; it is closed, and a process of ours ended, on the way out."""

    async def heard(message: Any) -> None:
        if isinstance(message, types.ServerNotification) and isinstance(
            message.root, types.ToolListChangedNotification
        ):
            tools_changed()

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        if next(spoken) < _MOST_LINES:
            log.debug("mcp %s says: %s", name, sanitize_line(veil(str(params.data)), _LONGEST_LINE))

    spoken = count()
    async with AsyncExitStack() as stack:
        link: McpTransport
        if server.command is not None:
            link = await stack.enter_async_context(
                open_stdio_transport(server, environment, guard, name, veil)
            )
        else:
            link = await stack.enter_async_context(
                open_http_transport(server, connect_timeout=limits.connect, longest_call=limits.longest_call)
            )
        incoming = _Incoming(link.incoming)
        session = ClientSession(
            cast(MemoryObjectReceiveStream[ServerMessage], incoming),
            cast(MemoryObjectSendStream[SessionMessage], _Outgoing(link.outgoing)),
            client_info=types.Implementation(name="caipe", version=version("ai-platform-engineering")),
            message_handler=heard,
            logging_callback=logged,
        )
        await stack.enter_async_context(session)
        yield ProtocolSession(session, link, incoming, name, veil)
