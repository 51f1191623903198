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
from ai_platform_engineering.mcp_client.http_transport import FATE, http_link
from ai_platform_engineering.mcp_client.results import Listing, ToolResult, tool_result, tool_specs
from ai_platform_engineering.mcp_client.server import Broken, McpLimits, Refused, Report, Sent, Unseen, Veil, shown
from ai_platform_engineering.mcp_client.server_process import Guard
from ai_platform_engineering.mcp_client.stdio_transport import stdio_link

log = logging.getLogger(__name__)

_MOST_PAGES = 100
_LONGEST_LINE = 500
_MOST_LINES = 200  # of the server's own log, per connection
_MOST_OF_INSTRUCTIONS = 4000
_CLOSED = "Connection closed"  # what the library tells all requests when its session breaks; the code alone is also used by servers

AnswerT = TypeVar("AnswerT", bound=BaseModel)
FromServer = SessionMessage | Exception

_sending: ContextVar[Sent] = ContextVar("_sending")


class Link(Protocol):
    """A transport: the two streams of a session, and what became of them."""

    incoming: MemoryObjectReceiveStream[FromServer]
    outgoing: MemoryObjectSendStream[SessionMessage]
    gone: asyncio.Future[None]

    def unseen(self, request_id: str | int) -> bool: ...

    def why(self) -> Awaitable[str]: ...


class _Answer(BaseModel):
    """A tool's answer, read leniently: a kind of content that the library does not know must not cost the rest."""

    content: list[Any] = Field(default_factory=list)
    structuredContent: Any = None
    isError: bool = False


class _Page(BaseModel):
    tools: list[Any] = Field(default_factory=list)
    nextCursor: str | None = None


class Wire:
    """What we ask of a server. Fails with Unseen, Broken or Refused, whatever the library and the transport raise."""

    def __init__(self, session: ClientSession, link: Link, incoming: "_Incoming", name: str, veil: Veil) -> None:
        self._session, self._link, self._incoming, self._name, self._veil = session, link, incoming, name, veil
        self._about = Listing()
        self.gone = link.gone
        self.drained = incoming.ended
        """Set when the server has gone and what it said before has been read."""

    async def initialize(self) -> None:
        told = await self._translated(self._session.initialize(), Sent())
        info = told.serverInfo
        self._about = Listing(server=info.name, version=info.version, instructions=(told.instructions or "")[:_MOST_OF_INSTRUCTIONS])

    async def list_tools(self, sent: Sent) -> Listing:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            try:
                page = await self._ask(types.ListToolsRequest(params=params), _Page, sent)
            except Refused as refused:
                if refused.code != types.METHOD_NOT_FOUND:
                    raise
                break  # a server of prompts or resources only
            found += page.tools
            cursor = page.nextCursor
            if not cursor:
                break
        return self._about.model_copy(update={"tools": tool_specs(found, self._name)})

    async def call(self, tool: str, arguments: Mapping[str, Any], sent: Sent, report: Report | None = None) -> ToolResult:
        # Half a character, which models do send, can be sent nowhere: in the transports it would break more than this call.
        clean = json.loads(json.dumps(dict(arguments), ensure_ascii=False).encode(errors="replace"))
        params = types.CallToolRequestParams(name=tool, arguments=clean)
        answer = await self._ask(types.CallToolRequest(params=params), _Answer, sent, report)
        result = tool_result(answer.content, answer.structuredContent, failed=answer.isError)
        return replace(result, text=self._veil(result.text))

    async def ping(self, sent: Sent) -> None:
        await self._ask(types.PingRequest(), types.EmptyResult, sent)

    async def withdraw(self, sent: Sent, reason: str) -> None:
        """Tells the server that nobody waits for this request any more."""
        if sent.request_id is not None and not self.gone.done():
            params = types.CancelledNotificationParams(requestId=sent.request_id, reason=reason)
            with suppress(BrokenResourceError, ClosedResourceError):
                await self._session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))

    def abandon(self, sent: Sent) -> bool:
        """Nobody waits for this request any more: its answer will be dropped. True if the waiting itself may be cancelled."""
        return sent.request_id is None or self._incoming.drop(sent.request_id)

    def lost(self, sent: Sent) -> Unseen | Broken:
        """What became of a request when the connection went."""
        unseen = sent.request_id is None or self._link.unseen(sent.request_id)
        return (Unseen if unseen else Broken)("the connection was lost")

    async def why(self) -> str:
        return self._veil(await self._link.why())

    async def _ask(self, request: Any, kind: type[AnswerT], sent: Sent, report: Report | None = None) -> AnswerT:
        async def told(progress: float, total: float | None, message: str | None) -> None:
            try:
                if report is not None:
                    report(progress, total, message and self._veil(message))
            except Exception as error:  # noqa: BLE001 - a run that has ended takes no progress; the call goes on
                log.debug("mcp %s: progress could not be told: %s", self._name, type(error).__name__)

        # Not the library's call_tool(): it validates answers against the output schema, and a server's slip there is not ours to punish.
        asked = self._session.send_request(types.ClientRequest(request), kind, progress_callback=told if report else None)
        return await self._translated(asked, sent)

    async def _translated(self, asking: Awaitable[AnswerT], sent: Sent) -> AnswerT:
        marked = _sending.set(sent)
        try:
            return await asking
        except McpError as error:
            raise self._fate(error.error, sent) from None
        except (BrokenResourceError, ClosedResourceError):
            raise Unseen("the connection was lost") from None
        except ValidationError:
            raise Refused("its answer is not valid MCP") from None
        except RuntimeError as error:  # a protocol version that the library does not know
            raise Refused(str(error)) from None
        finally:
            _sending.reset(marked)

    def _fate(self, error: types.ErrorData, sent: Sent) -> Exception:
        fate = error.data.get(FATE) if isinstance(error.data, dict) else None
        text = self._veil(error.message)
        if fate == "unseen":
            return Unseen(text)
        if fate == "broken":
            return Broken(text)
        if error.code == types.CONNECTION_CLOSED and (self.gone.done() or error.message == _CLOSED):
            return self.lost(sent)
        return Refused(text, error.code)


class _Incoming:
    """What the session may see.

    The library logs the content of whatever it cannot read, so such messages end here. And so do answers that nobody waits for: the
    library's session breaks, for all, when an answer arrives just as its request is cancelled.
    """

    def __init__(self, stream: MemoryObjectReceiveStream[FromServer]) -> None:
        self._stream = stream
        self._handing: str | int | None = None  # the answer that the session is handing to its request right now
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
                types.ServerNotification.model_validate(root.model_dump(by_alias=True, mode="json", exclude_none=True))
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
async def open_wire(
    server: McpServer,
    *,
    name: str,
    limits: McpLimits,
    environment: Mapping[str, str],
    guard: Guard,
    veil: Veil,
    tools_changed: Callable[[], None],
) -> AsyncIterator[Wire]:
    """A session with the server, not yet initialized; it is closed, and a process of ours ended, on the way out."""

    async def heard(message: Any) -> None:
        if isinstance(message, types.ServerNotification) and isinstance(message.root, types.ToolListChangedNotification):
            tools_changed()

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        if next(spoken) < _MOST_LINES:
            log.debug("mcp %s says: %s", name, shown(veil(str(params.data)), _LONGEST_LINE))

    spoken = count()
    async with AsyncExitStack() as stack:
        link: Link
        if server.command is not None:
            link = await stack.enter_async_context(stdio_link(server, environment, guard, name, veil))
        else:
            link = await stack.enter_async_context(http_link(server, connect_timeout=limits.connect, longest_call=limits.longest_call))
        incoming = _Incoming(link.incoming)
        session = ClientSession(
            cast(MemoryObjectReceiveStream[FromServer], incoming),
            cast(MemoryObjectSendStream[SessionMessage], _Outgoing(link.outgoing)),
            client_info=types.Implementation(name="caipe", version=version("ai-platform-engineering")),
            message_handler=heard,
            logging_callback=logged,
        )
        await stack.enter_async_context(session)
        yield Wire(session, link, incoming, name, veil)
