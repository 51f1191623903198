"""A2A client for third-party servers of protocol 1.0 or 0.3: sends, polls and cancels; yields our events."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
from a2a.client import ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    TaskState,
)
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.json_format import Error as NotProtobuf
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from ai_platform_engineering.a2a.client import (
    ClientConversation,
    CredentialsRefused,
    OutgoingMessage,
    RequestRefused,
    Unreachable,
    bearer_headers,
)
from ai_platform_engineering.a2a.third_party_reader import PAUSED_STATES, ThirdPartyReader
from ai_platform_engineering.core.events import AnyEvent, clean_json, clean_text

for _name in ("a2a.client", "a2a.compat", "a2a.utils"):  # below WARNING the SDK logs whole requests
    logging.getLogger(_name).setLevel(logging.WARNING)

_MAX_POLL_DELAY = 30.0  # seconds
_MAX_REFUSAL_LENGTH = 300
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
)
# Exceptions that leave the SDK when a body is JSON but not A2A, or no JSON at all.
_NOT_A2A = (
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
        poll: float = 1.0,
        max_failures: int = 5,
    ) -> None:
        """`idle_timeout` is for a silent stream and for a poll, not for an agent without streaming."""
        self._agent = agent
        self._token = token
        self._idle_timeout = idle_timeout
        self._connect_timeout = connect_timeout
        self._poll_delay = poll
        self._max_failures = max_failures
        self._can_stream = card.capabilities.streaming
        try:
            self._client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        except ValueError:
            raise RequestRefused(f"The agent {agent} offers no way to speak to it that we know.") from None

    async def send(
        self, message: OutgoingMessage, conversation: ClientConversation
    ) -> AsyncIterator[AnyEvent]:
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

    async def follow(self, task_id: str, conversation: ClientConversation) -> AsyncIterator[AnyEvent]:
        """Yields the events of a task from its beginning until its end."""
        reader = ThirdPartyReader(self._agent)
        reader.task_id = task_id
        conversation.task_id = task_id
        async for event in self._poll_until_end(reader, conversation):
            yield event

    async def cancel(self, task_id: str) -> None:
        request = CancelTaskRequest(id=task_id)
        try:
            await self._client.cancel_task(request, context=self._call_context(self._idle_timeout))
        except (A2AError, *_NOT_A2A) as error:
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
        request = SendMessageRequest(message=_build_message(message))
        stream = self._client.send_message(request, context=self._call_context(None))
        idle_timeout = self._idle_timeout if self._can_stream else None
        may_repeat_pause = self._can_stream and bool(message.task_id)
        try:
            while True:
                async with asyncio.timeout(idle_timeout):
                    frame = await anext(stream, None)
                if frame is None:
                    return
                if may_repeat_pause:
                    _clear_pause(frame)
                    may_repeat_pause = False
                yield frame
        except TimeoutError:
            raise Unreachable(f"The agent {self._agent} fell silent.") from None
        except (A2AError, *_NOT_A2A) as error:
            raise self._translate_error(error) from None
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def _poll_until_end(
        self,
        reader: ThirdPartyReader,
        conversation: ClientConversation,
        refusal: RequestRefused | None = None,
    ) -> AsyncIterator[AnyEvent]:
        """Polls the task and yields its events; a `refusal` is raised if the task has not ended."""
        failures = 0
        while not reader.ended:
            request = GetTaskRequest(id=reader.task_id)
            try:
                task = await self._client.get_task(request, context=self._call_context(self._idle_timeout))
            except (A2AError, *_NOT_A2A) as error:
                failures += 1
                if failures >= self._max_failures:
                    raise self._translate_error(error, accepted=True) from None
            else:
                failures = 0
                for event in self._read_frame(reader, StreamResponse(task=task), conversation):
                    yield event
                if refusal is not None and not reader.ended:
                    raise refusal
            if not reader.ended:
                await asyncio.sleep(min(self._poll_delay * 2**failures, _MAX_POLL_DELAY))
        for event in reader.closing_events():
            yield event

    def _call_context(self, read_timeout: float | None) -> ClientCallContext:
        timeout: Any = httpx.Timeout(read_timeout, connect=self._connect_timeout, pool=self._connect_timeout)
        headers = bearer_headers(self._token)
        # Not validated: the field is declared as a number, but is passed to httpx as it is, and a connection
        # needs a limit of its own.
        return ClientCallContext.model_construct(state={}, timeout=timeout, service_parameters=headers)

    def _translate_error(
        self, error: BaseException, *, accepted: bool | None = None
    ) -> Unreachable | RequestRefused:
        """The SDK's error as one of ours, without the texts of transports, which may hold addresses."""
        cause = error.__cause__
        if isinstance(cause, httpx.HTTPStatusError):
            return self._translate_status(cause.response, accepted)
        if isinstance(cause, httpx.RequestError):
            if accepted is None and isinstance(cause, _NOT_SENT):
                accepted = False
            return self._unreachable(cause, accepted)
        if isinstance(error, httpx.HTTPError):
            return self._unreachable(error, accepted)
        if isinstance(error, A2AError):
            code = JSON_RPC_ERROR_CODE_MAP.get(type(error))
            if code:
                return self._refusal(code, str(error))
        if isinstance(error, A2AClientError) and cause is None and _is_server_message(error.message):
            return self._refusal(None, error.message)
        return RequestRefused(f"The agent {self._agent} did not answer in A2A.")

    def _unreachable(self, error: httpx.HTTPError, accepted: bool | None) -> Unreachable:
        return Unreachable(
            f"The agent {self._agent} cannot be reached ({type(error).__name__}).", accepted=accepted
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


def _is_server_message(text: str) -> bool:
    """Whether an error's text is from the server and not from the SDK."""
    return not text.startswith(("Invalid JSON-RPC", "SSE stream error"))


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
