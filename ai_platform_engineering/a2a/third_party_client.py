"""A2A client for third-party servers of protocol 1.0 or 0.3: sends, polls and cancels; yields our events."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
from a2a.client.errors import A2AClientError
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    TaskState,
)
from google.protobuf.json_format import Error as NotProtobuf
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from ai_platform_engineering.a2a.client import (
    RETRY_DELAYS,
    ClientConversation,
    CredentialsRefused,
    OutgoingMessage,
    RequestRefused,
    Unreachable,
    bearer_headers,
)
from ai_platform_engineering.a2a.third_party_reader import PAUSED_STATES, ThirdPartyReader
from ai_platform_engineering.a2a.third_party_transport import JsonRpcError, ThirdPartyTransport
from ai_platform_engineering.core.connection_failures import why_unreachable
from ai_platform_engineering.core.events import AnyEvent, clean_json
from ai_platform_engineering.core.json_limits import JsonTooLarge
from ai_platform_engineering.core.storable_text import clean_text

for _name in ("a2a.client", "a2a.compat", "a2a.utils"):  # below WARNING the SDK logs whole requests
    logging.getLogger(_name).setLevel(logging.WARNING)

_MAX_REFUSAL_LENGTH = 300
# Servers that stream by status keep each token as a message of the history: the whole of it is never needed.
_MAX_HISTORY_LENGTH = 20
_ABANDONED_SECONDS = 5.0  # for the first frame of a request that nobody waits for any more
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
)
# What a request may raise: errors of HTTP, of the server, and of a body that is JSON but not A2A, or no JSON.
_FAILURES = (
    A2AClientError,
    JsonRpcError,
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    NotProtobuf,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
)
_RETRYABLE_STATUSES = (408, 425, 429)  # the same request may be answered later


class ThirdPartyClient:
    """A2A client for one third-party agent. It never sends a message twice.

    A stream that breaks is followed by polling: no second subscription loses or repeats text."""

    def __init__(
        self,
        card: AgentCard,
        http: httpx.AsyncClient,
        *,
        agent: str,
        token: str | None = None,
        idle_timeout: float = 60.0,
        connect_timeout: float = 5.0,
        lost_timeout: float = 12.0,
        poll: float = 1.0,
    ) -> None:
        """`idle_timeout` is for a silent stream, `lost_timeout` for an agent that does not answer polls."""
        self._agent = agent
        self._token = token
        self._idle_timeout = idle_timeout
        self._connect_timeout = connect_timeout
        self._lost_timeout = lost_timeout
        self._poll_delay = poll
        self._can_stream = card.capabilities.streaming
        self._first_frames: dict[str, asyncio.Future[StreamResponse | None]] = {}  # by the message's id
        self._abandoned: set[asyncio.Task[None]] = set()
        try:
            self._transport = ThirdPartyTransport(card, http)
        except ValueError:
            raise RequestRefused(f"The agent {agent} offers no way to speak to it that we know.") from None

    async def send(
        self, message: OutgoingMessage, conversation: ClientConversation
    ) -> AsyncGenerator[AnyEvent]:
        """Sends a message and yields events until the agent has answered, failed or asked for input."""
        reader = ThirdPartyReader(self._agent)
        stream_error: Unreachable | RequestRefused | None = None
        conversation.task_id = message.task_id
        try:
            async with contextlib.aclosing(self._stream_frames(message)) as frames:
                async for frame in frames:
                    events = self._read_frame(reader, frame, conversation)
                    await conversation.set_task_id(conversation.task_id)
                    for event in events:
                        yield event
                    if reader.ended:
                        break
        except (Unreachable, RequestRefused) as error:
            stream_error = error
        if reader.task_id is None and not reader.ended:
            raise stream_error or Unreachable(f"The agent {self._agent} ended its stream without a word.")
        # A protocol error in the middle of a stream is final, unless the task has ended all the same.
        refusal = stream_error if isinstance(stream_error, RequestRefused) else None
        async for event in self._poll_until_end(reader, conversation, refusal=refusal):
            yield event

    async def follow(self, task_id: str, conversation: ClientConversation) -> AsyncGenerator[AnyEvent]:
        """Yields the events of a task from its beginning until its end."""
        reader = ThirdPartyReader(self._agent)
        reader.task_id = task_id
        conversation.task_id = task_id
        async for event in self._poll_until_end(reader, conversation):
            yield event

    async def find_task_id(self, message: OutgoingMessage) -> str | None:
        """The task of a message whose first frame nobody waited for; None without one."""
        pending_frame = self._first_frames.get(message.message_id)
        if pending_frame is None:
            return None
        frame = await asyncio.shield(pending_frame)
        if frame is None:
            return None
        reader = ThirdPartyReader(self._agent)
        reader.read(frame)
        return reader.task_id

    async def close_abandoned(self) -> None:
        """Waits until the streams that nobody reads any more are closed."""
        await asyncio.gather(*self._abandoned, return_exceptions=True)

    async def cancel(self, task_id: str) -> None:
        request = CancelTaskRequest(id=task_id)
        try:
            await self._transport.call(
                "CancelTask", request, self._headers(), self._timeout(self._idle_timeout)
            )
        except _FAILURES as error:
            raise self._translate_error(error) from None

    def _read_frame(
        self, reader: ThirdPartyReader, frame: StreamResponse, conversation: ClientConversation
    ) -> list[AnyEvent]:
        events = reader.read(frame)
        conversation.task_id = reader.task_id or conversation.task_id
        conversation.context_id = reader.context_id or conversation.context_id
        return events

    async def _stream_frames(self, message: OutgoingMessage) -> AsyncGenerator[StreamResponse]:
        """The server's frames. Raises Unreachable, also after the idle timeout, and RequestRefused."""
        stream = self._open_stream(message)
        # A task of its own: a reader that is cancelled must not lose the id of what has begun there.
        first_frame = asyncio.ensure_future(anext(stream, None))
        self._first_frames[message.message_id] = first_frame
        idle_timeout = self._idle_timeout if self._can_stream else None
        try:
            async with asyncio.timeout(idle_timeout):
                frame = await asyncio.shield(first_frame)
            if frame is not None and self._can_stream and message.task_id:
                _clear_pause(frame)
            while frame is not None:
                yield frame
                async with asyncio.timeout(idle_timeout):
                    frame = await anext(stream, None)
        except TimeoutError:
            raise Unreachable(f"The agent {self._agent} fell silent.") from None
        except _FAILURES as error:
            raise self._translate_error(error) from None
        finally:
            if first_frame.done():
                self._first_frames.pop(message.message_id, None)
                await stream.aclose()
            else:
                abandoned = asyncio.ensure_future(self._close_abandoned(message, first_frame, stream))
                self._abandoned.add(abandoned)
                abandoned.add_done_callback(self._abandoned.discard)

    async def _close_abandoned(
        self,
        message: OutgoingMessage,
        first_frame: asyncio.Future[StreamResponse | None],
        stream: AsyncGenerator[StreamResponse],
    ) -> None:
        """Closes a stream after its first frame, which has the id that a cancellation needs, or a timeout."""
        await asyncio.wait({first_frame}, timeout=_ABANDONED_SECONDS)
        first_frame.cancel()
        await asyncio.gather(first_frame, return_exceptions=True)
        self._first_frames.pop(message.message_id, None)
        await stream.aclose()

    async def _open_stream(self, message: OutgoingMessage) -> AsyncGenerator[StreamResponse]:
        # Without a stream the id of a new task must come at once: only then can it be cancelled and polled.
        # After an answer the task may look as if it still waited, so the end of the turn is waited for.
        configuration = SendMessageConfiguration(
            return_immediately=not self._can_stream and not message.task_id,
            history_length=_MAX_HISTORY_LENGTH,
        )
        request = SendMessageRequest(message=_build_message(message), configuration=configuration)
        timeout = self._timeout(None)
        if not self._can_stream:
            yield await self._transport.call("SendMessage", request, self._headers(), timeout)
            return
        frames = self._transport.stream("SendStreamingMessage", request, self._headers(), timeout)
        async with contextlib.aclosing(frames):
            async for frame in frames:
                yield frame

    async def _poll_until_end(
        self,
        reader: ThirdPartyReader,
        conversation: ClientConversation,
        refusal: RequestRefused | None = None,
    ) -> AsyncIterator[AnyEvent]:
        """Polls the task and yields its events; a `refusal` is raised if the task has not ended."""
        failures = 0
        loop = asyncio.get_running_loop()
        failing_since = loop.time()
        while not reader.ended:
            if failures == 0:
                failing_since = loop.time()
            try:
                frame = await self._get_task(reader.task_id or "")
            except (*_FAILURES, TimeoutError) as error:
                lost_at = failing_since + self._lost_timeout
                if failures == len(RETRY_DELAYS) or loop.time() + RETRY_DELAYS[failures] > lost_at:
                    raise self._translate_error(error, accepted=True) from None
                delay = RETRY_DELAYS[failures]
                failures += 1
            else:
                delay = self._poll_delay
                failures = 0
                for event in self._read_frame(reader, frame, conversation):
                    yield event
                if refusal is not None and not reader.ended:
                    raise refusal
            if not reader.ended:
                await asyncio.sleep(delay)
        for event in reader.closing_events():
            yield event

    async def _get_task(self, task_id: str) -> StreamResponse:
        request = GetTaskRequest(id=task_id, history_length=_MAX_HISTORY_LENGTH)
        async with asyncio.timeout(self._lost_timeout):
            return await self._transport.call(
                "GetTask", request, self._headers(), self._timeout(self._lost_timeout)
            )

    def _headers(self) -> dict[str, str]:
        return bearer_headers(self._token)

    def _timeout(self, read_timeout: float | None) -> httpx.Timeout:
        return httpx.Timeout(read_timeout, connect=self._connect_timeout, pool=self._connect_timeout)

    def _translate_error(
        self, error: BaseException, *, accepted: bool | None = None
    ) -> Unreachable | RequestRefused:
        """The error as one of ours, without the texts of transports, which may hold addresses."""
        cause = error.__cause__
        for reason in (error, cause):
            if isinstance(reason, JsonTooLarge):
                return RequestRefused(f"An answer of the agent {self._agent} is not read. {reason}")
        if isinstance(error, JsonRpcError):
            return self._refusal(error.code, str(error))
        if isinstance(error, TimeoutError):
            return Unreachable(f"The agent {self._agent} no longer answers.", accepted=accepted)
        if isinstance(cause, httpx.HTTPStatusError):
            return self._translate_status(cause.response, accepted)
        if isinstance(cause, httpx.RequestError):
            if accepted is None and isinstance(cause, _NOT_SENT):
                accepted = False
            return self._unreachable(cause, accepted)
        if isinstance(error, httpx.HTTPError):
            return self._unreachable(error, accepted)
        return RequestRefused(f"The agent {self._agent} did not answer in A2A.")

    def _unreachable(self, error: httpx.HTTPError, accepted: bool | None) -> Unreachable:
        return Unreachable(
            f"The agent {self._agent} cannot be reached{why_unreachable(error)}.", accepted=accepted
        )

    def _translate_status(
        self, response: httpx.Response, accepted: bool | None
    ) -> Unreachable | RequestRefused:
        status = response.status_code
        with contextlib.suppress(ValueError, httpx.ResponseNotRead):
            match response.json():
                case {"error": {"message": message, **error}}:
                    return self._refusal(error.get("code"), str(message))
                case _:
                    pass
        if status in (401, 403):
            return CredentialsRefused(f"The agent {self._agent} refused our credentials (HTTP {status}).")
        if status >= 500 or status in _RETRYABLE_STATUSES:
            return Unreachable(
                f"The agent {self._agent} cannot answer now (HTTP {status}).", accepted=accepted
            )
        return RequestRefused(f"The agent {self._agent} did not answer in A2A (HTTP {status}).")

    def _refusal(self, code: Any, message: str) -> RequestRefused:
        reason = clean_text(" ".join(message.split()))
        if self._token:
            reason = reason.replace(self._token, "…")
        suffix = f" ({code})" if isinstance(code, int) else ""
        return RequestRefused(
            f"The agent {self._agent} refused the request{suffix}: {reason[:_MAX_REFUSAL_LENGTH]}"
        )


def _build_message(outgoing: OutgoingMessage) -> Message:
    message = Message(
        message_id=outgoing.message_id,
        role=Role.ROLE_USER,
        context_id=outgoing.context_id or "",
        task_id=outgoing.task_id or "",
    )
    if outgoing.text:
        message.parts.append(Part(text=clean_text(outgoing.text)))
    if outgoing.data is not None:
        message.parts.append(_build_data_part(clean_json(outgoing.data)))
    if outgoing.metadata:
        message.metadata.update({name: clean_json(value) for name, value in outgoing.metadata.items()})
    return message


def _build_data_part(data: Any) -> Part:
    try:
        return Part(data=ParseDict(data, Value()))
    except NotProtobuf:  # nested deeper than protobuf goes
        return Part(text=json.dumps(data))


def _clear_pause(frame: StreamResponse) -> None:
    """Sets a paused task to working: the first frame after an answer may show the state before it."""
    if frame.HasField("task") and frame.task.status.state in PAUSED_STATES:
        frame.task.status.state = TaskState.TASK_STATE_WORKING
        frame.task.status.ClearField("message")
        del frame.task.history[:]
