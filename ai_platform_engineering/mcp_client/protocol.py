"""An open MCP session in the terms of the MCP library.

Loading the library takes a second, so this module is imported on first use.
"""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any, TypeVar

import anyio
from mcp import types
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, ValidationError

from ai_platform_engineering.a2a.on_behalf_of import USER_META_KEY
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.call_rounds import (
    CallAnswer,
    QuestionReader,
    call_in_rounds,
    resume_params,
)
from ai_platform_engineering.mcp_client.connection_context import (
    ConnectionContext,
    OutgoingRequest,
    ProgressCallback,
)
from ai_platform_engineering.mcp_client.elicitation import MAX_QUESTIONS, ResumableCall
from ai_platform_engineering.mcp_client.http_transport import open_http_transport
from ai_platform_engineering.mcp_client.mcp_errors import (
    DeliveryUnknownError,
    InvalidAnswerError,
    McpRequestError,
    NotDeliveredError,
    RequestRejectedError,
)
from ai_platform_engineering.mcp_client.open_call import OpenCall, OpenCalls
from ai_platform_engineering.mcp_client.secret_redactor import SecretRedactor, sanitize_line
from ai_platform_engineering.mcp_client.server_features import ServerFeatures
from ai_platform_engineering.mcp_client.session_dispatcher import SessionDispatcher, current_request
from ai_platform_engineering.mcp_client.stdio_transport import open_stdio_transport
from ai_platform_engineering.mcp_client.tool_types import (
    ToolList,
    ToolResult,
    read_tool_result,
    read_tool_specs,
)
from ai_platform_engineering.mcp_client.transport import DELIVERY_STATUS_KEY, McpTransport

log = logging.getLogger(__name__)

_MAX_PAGES = 100
_MAX_LOG_LINE_CHARS = 500
_MAX_LOG_LINES = 200  # of the server's own log, per connection
_MAX_INSTRUCTIONS_CHARS = 4000
# What the library tells all requests when its session breaks; the code alone is also used by servers.
_LIBRARY_CLOSED_MESSAGE = "Connection closed"
_LOST = "the connection was lost"
_FIRST_RELISTEN_SECONDS = 1.0
_LONGEST_RELISTEN_SECONDS = 300.0

# The library logs session ids, headers, whole messages and, of what it cannot read, the content. What matters
# is logged by us. Its session writes to a logger that is called `client`.
for _library_logger in ("mcp.client", "mcp.shared", "client"):
    logging.getLogger(_library_logger).setLevel(logging.CRITICAL)

AnswerT = TypeVar("AnswerT", bound=BaseModel)
ResultT = TypeVar("ResultT")


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
        dispatcher: SessionDispatcher,
        open_calls: OpenCalls,
        name: str,
        redactor: SecretRedactor,
    ) -> None:
        self._session = session
        self._open_calls = open_calls
        self._questions = QuestionReader(name, redactor)
        self.features = ServerFeatures(self._send, lambda: session.server_capabilities, redactor)
        self._transport = transport
        self._name = name
        self._redactor = redactor
        self._server_info = ToolList()  # without tools
        self.closed = transport.closed
        self.drained = dispatcher.ended
        """Set when the server has gone and what it said before has been read."""

    async def initialize(self, known_protocol: str = "") -> None:
        """Agrees on a version of the protocol: by `server/discover`, else by the handshake of older servers.

        `known_protocol`: the version that the server spoke before; an old one gets its handshake at once.
        """
        if known_protocol not in HANDSHAKE_PROTOCOL_VERSIONS and await self._discover():
            pass
        elif not await self._shake_hands():
            await self._translate_errors(self._session.discover(), OutgoingRequest())
        server = self._session.server_info
        self._server_info = ToolList(
            server=server.name if server else "",
            version=server.version if server else "",
            protocol=self._session.protocol_version or "",
            instructions=(self._session.instructions or "")[:_MAX_INSTRUCTIONS_CHARS],
        )

    async def _discover(self) -> bool:
        """Whether the server speaks a protocol without a handshake; raises only when it cannot be reached."""
        try:
            await self._translate_errors(self._session.discover(), OutgoingRequest())
        except RequestRejectedError as error:
            log.debug("mcp %s: it does not answer server/discover: %s", self._name, error)
            return False
        return True

    async def _shake_hands(self) -> bool:
        """False if the server has answered that it knows no handshake."""
        try:
            await self._translate_errors(self._session.initialize(), OutgoingRequest())
        except RequestRejectedError as error:
            if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
            return False
        return True

    async def watch_tools(self, on_tools_changed: Callable[[], None]) -> None:
        """Listens for changes of the tools, where the protocol has a subscription for them; ends if not."""
        capabilities = self._session.server_capabilities
        if self._session.protocol_version not in MODERN_PROTOCOL_VERSIONS or capabilities is None:
            return
        if capabilities.tools is None or not capabilities.tools.list_changed:
            return
        delay = _FIRST_RELISTEN_SECONDS
        while not self.closed.done():
            try:
                async with listen(self._session, tools_list_changed=True) as subscription:
                    delay = _FIRST_RELISTEN_SECONDS
                    async for _ in subscription:
                        on_tools_changed()
            except (MCPError, SubscriptionLost) as error:
                log.debug("mcp %s: no longer told of changed tools: %s", self._name, type(error).__name__)
            await anyio.sleep(delay)
            delay = min(2 * delay, _LONGEST_RELISTEN_SECONDS)
            on_tools_changed()  # what changed meanwhile was not told

    async def list_tools(self, request: OutgoingRequest) -> ToolList:
        raw_tools: list[Any] = []
        params: types.PaginatedRequestParams | None = None
        for _ in range(_MAX_PAGES):
            try:
                # The library's own method: it notes which arguments a server wants repeated as headers.
                page = await self._read_answer(self._session.list_tools(params=params), _ToolPage, request)
            except RequestRejectedError as error:
                if error.code != types.METHOD_NOT_FOUND:
                    raise
                break  # a server of prompts or resources only
            raw_tools += page.tools
            if not page.nextCursor:
                break
            params = types.PaginatedRequestParams(cursor=page.nextCursor)
        offer = await self.features.read_offer(request)
        tools = read_tool_specs(raw_tools, self._name)
        return self._server_info.model_copy(update={"tools": tools, "offer": offer})

    async def call(
        self,
        call: OpenCall,
        arguments: Mapping[str, Any],
        user: str | None = None,
        resumable: ResumableCall | None = None,
    ) -> ToolResult:
        """Calls a tool, or goes on with a call that required input. Raises CallPaused."""
        # Half a character, which models do send, can be sent nowhere: in the transports it would break more
        # than this call.
        clean_json = json.dumps(dict(arguments), ensure_ascii=False).encode(errors="replace")
        params: dict[str, Any] = {"name": call.tool, "arguments": json.loads(clean_json)}
        if user is not None:
            params["_meta"] = {USER_META_KEY: user}
        params |= resume_params(resumable)
        self._open_calls.add(call)
        try:
            answer = await call_in_rounds(self._send_call, call, params, self._questions, resumable)
        finally:
            self._open_calls.remove(call)
        result = read_tool_result(answer.content, answer.structuredContent, failed=answer.isError)
        redact = self._redactor.redact_error if answer.isError else self._redactor.redact
        return result.redacted(redact)

    async def _send_call(self, call: OpenCall, params: dict[str, Any]) -> CallAnswer:
        client_request = types.CallToolRequest(params=types.CallToolRequestParams.model_validate(params))
        return await self._send(client_request, CallAnswer, call.request, call.report_progress)

    async def ping(self, request: OutgoingRequest) -> None:
        await self._send(types.PingRequest(), types.EmptyResult, request)

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
            client_request,
            types.EmptyResult,
            progress_callback=report_progress if on_progress else None,
        )
        return await self._read_answer(answer, answer_type, request)

    async def _read_answer(
        self, answer: Awaitable[object], answer_type: type[AnswerT], request: OutgoingRequest
    ) -> AnswerT:
        """The answer, read leniently from what the server wrote."""
        request.result = None
        try:
            await self._translate_errors(answer, request)
        except InvalidAnswerError:
            if request.result is None:
                raise
        try:
            return answer_type.model_validate(request.result)
        except ValidationError:
            raise InvalidAnswerError("its answer is not valid MCP") from None

    async def _translate_errors(self, answer: Awaitable[ResultT], request: OutgoingRequest) -> ResultT:
        """Awaits the answer; raises McpRequestError in place of the library's errors."""
        token = current_request.set(request)
        try:
            return await answer
        except MCPError as error:
            raise self._read_error(error.error, request) from None
        except ValidationError:
            raise InvalidAnswerError("its answer is not valid MCP") from None
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
        return RequestRejectedError(text, error.code, error.data)


class _Elicitor:
    """Answers the questions that a server asks while a call is open, as people do."""

    def __init__(self, calls: OpenCalls, questions: QuestionReader, seconds: float) -> None:
        self._calls = calls
        self._questions = questions
        self._seconds = seconds

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        call = self._calls.find(current_request.get(None))
        if call is None or call.asked_count >= MAX_QUESTIONS:
            log.info("mcp %s: nobody can be asked what it wants to know", self._questions.server)
            return types.ElicitResult(action="cancel")
        try:
            question = self._questions.read(
                call.tool, params.model_dump(by_alias=True, mode="json", exclude_none=True)
            )
        except RequestRejectedError as error:
            log.info("mcp %s: %s", self._questions.server, error)
            return types.ElicitResult(action="cancel")
        answer = await call.ask(question, self._seconds)
        return types.ElicitResult.model_validate(answer.model_dump())


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

    async def handle_message(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_tools_changed()

    async with AsyncExitStack() as stack:
        transport: McpTransport
        if server.command is not None:
            transport = await stack.enter_async_context(open_stdio_transport(server, name, context, redactor))
        else:
            opening = open_http_transport(server, context.limits, context.tokens)
            transport = await stack.enter_async_context(opening)
        dispatcher = SessionDispatcher(transport)
        open_calls = OpenCalls()
        session = ClientSession(
            dispatcher=dispatcher,
            elicitation_callback=_Elicitor(
                open_calls, QuestionReader(name, redactor), context.limits.question
            ),
            client_info=types.Implementation(name="caipe", version=version("ai-platform-engineering")),
            message_handler=handle_message,
            logging_callback=_ServerLog(name, redactor).write,
        )
        await stack.enter_async_context(session)
        yield ProtocolSession(session, transport, dispatcher, open_calls, name, redactor)
