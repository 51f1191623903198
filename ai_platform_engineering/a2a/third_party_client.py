"""The A2A client for servers that are not ours, of protocol 1.0 or 0.3: asks, follows by polling, cancels; gives back our events."""

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
from ai_platform_engineering.a2a.third_party_reader import PAUSED, ThirdPartyReader
from ai_platform_engineering.core.events import AnyEvent, clean_json, clean_text

for _name in ("a2a.client", "a2a.compat", "a2a.utils"):  # below WARNING the SDK logs whole requests
    logging.getLogger(_name).setLevel(logging.WARNING)

_LONGEST_PAUSE = 30.0
_MAX_MESSAGE = 300
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
)
# What the SDK lets through when a body is JSON but not A2A, or no JSON at all.
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
_PASSING = (408, 425, 429)  # the same request may be answered later


class ThirdPartyClient:
    """Never sends a message twice. A stream that breaks off is followed by polling: no second subscription loses or repeats text."""

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
        """`idle_timeout` is for a stream without an event and for a poll; an agent that does not stream may take its time."""
        self._agent, self._token = agent, token
        self._idle = idle_timeout
        self._connect = connect_timeout
        self._poll = poll
        self._max_failures = max_failures
        self._streams = card.capabilities.streaming
        try:
            self._client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        except ValueError:
            raise RequestRefused(f"The agent {agent} offers no way to speak to it that we know.") from None

    async def send(self, order: OutgoingMessage, talk: ClientConversation) -> AsyncIterator[AnyEvent]:
        """Sends a message and yields what happens until the agent has answered, failed or asked."""
        reader, broken = ThirdPartyReader(self._agent), None
        talk.task_id = order.task_id
        try:
            async with contextlib.aclosing(self._frames(order)) as frames:
                async for frame in frames:
                    events = self._read(reader, frame, talk)
                    await talk.set_task_id(talk.task_id)
                    for event in events:
                        yield event
                    if reader.ended:
                        break
        except (Unreachable, RequestRefused) as error:
            broken = error
        if reader.task_id is None and not reader.ended:
            raise broken or Unreachable(f"The agent {self._agent} ended its stream without a word.")
        # An error in the middle of a stream is the server's last word, unless the task has ended all the same.
        async for event in self._polled(
            reader, talk, refusal=broken if isinstance(broken, RequestRefused) else None
        ):
            yield event

    async def follow(self, task_id: str, talk: ClientConversation) -> AsyncIterator[AnyEvent]:
        """Yields what is known of a task, and what happens in it until its end."""
        reader = ThirdPartyReader(self._agent)
        reader.task_id = talk.task_id = task_id
        async for event in self._polled(reader, talk):
            yield event

    async def cancel(self, task_id: str) -> None:
        try:
            await self._client.cancel_task(CancelTaskRequest(id=task_id), context=self._context(self._idle))
        except (A2AError, *_NOT_A2A) as error:
            raise self._problem(error) from None

    def _read(
        self, reader: ThirdPartyReader, frame: StreamResponse, talk: ClientConversation
    ) -> list[AnyEvent]:
        events = reader.read(frame)
        talk.task_id, talk.context_id = reader.task_id or talk.task_id, reader.context_id or talk.context_id
        return events

    async def _frames(self, order: OutgoingMessage) -> AsyncGenerator[StreamResponse]:
        """The server's frames; raises Unreachable, also after a long silence, and RequestRefused."""
        request, first = SendMessageRequest(message=_message(order)), True
        stream = self._client.send_message(request, context=self._context(None))
        try:
            while True:
                async with asyncio.timeout(self._idle if self._streams else None):
                    frame = await anext(stream, None)
                if frame is None:
                    return
                yield _resumed(frame) if first and order.task_id and self._streams else frame
                first = False
        except TimeoutError:
            raise Unreachable(f"The agent {self._agent} fell silent.") from None
        except (A2AError, *_NOT_A2A) as error:
            raise self._problem(error) from None
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()

    async def _polled(
        self, reader: ThirdPartyReader, talk: ClientConversation, refusal: RequestRefused | None = None
    ) -> AsyncIterator[AnyEvent]:
        failures = 0
        while not reader.ended:
            try:
                task = await self._client.get_task(
                    GetTaskRequest(id=reader.task_id), context=self._context(self._idle)
                )
            except (A2AError, *_NOT_A2A) as error:
                failures += 1
                if failures >= self._max_failures:
                    raise self._problem(error, accepted=True) from None
            else:
                failures = 0
                for event in self._read(reader, StreamResponse(task=task), talk):
                    yield event
                if refusal is not None and not reader.ended:
                    raise refusal
            if not reader.ended:
                await asyncio.sleep(min(self._poll * 2**failures, _LONGEST_PAUSE))
        for event in reader.closing_events():
            yield event

    def _context(self, read: float | None) -> ClientCallContext:
        timeout: Any = httpx.Timeout(read, connect=self._connect, pool=self._connect)
        headers = bearer_headers(self._token)
        # Not validated: the field is declared as a number, but goes to httpx as it is, and the connection has a limit of its own.
        return ClientCallContext.model_construct(state={}, timeout=timeout, service_parameters=headers)

    def _problem(self, error: BaseException, *, accepted: bool | None = None) -> Unreachable | RequestRefused:
        """The SDK's error in our words; the texts of transports may hold addresses and are left out."""
        cause, who = error.__cause__, f"The agent {self._agent}"
        if isinstance(cause, httpx.HTTPStatusError):
            return self._status_problem(cause.response, accepted)
        if isinstance(cause, httpx.RequestError):
            if accepted is not None:
                sent = accepted
            elif isinstance(cause, _NOT_SENT):
                sent = False
            else:
                sent = None
            return Unreachable(f"{who} cannot be reached ({type(cause).__name__}).", accepted=sent)
        if isinstance(error, httpx.HTTPError):
            return Unreachable(f"{who} cannot be reached ({type(error).__name__}).", accepted=accepted)
        if code := JSON_RPC_ERROR_CODE_MAP.get(type(error)) if isinstance(error, A2AError) else None:
            return self._refusal(code, str(error))
        if (
            isinstance(error, A2AClientError)
            and cause is None
            and not error.message.startswith(("Invalid JSON-RPC", "SSE stream error"))
        ):
            return self._refusal(None, error.message)
        return RequestRefused(f"{who} did not answer in A2A.")

    def _status_problem(
        self, response: httpx.Response, accepted: bool | None
    ) -> Unreachable | RequestRefused:
        status = response.status_code
        with contextlib.suppress(ValueError, httpx.ResponseNotRead):
            body: Any = response.json()
            if (
                isinstance(body, dict)
                and isinstance(problem := body.get("error"), dict)
                and "message" in problem
            ):
                return self._refusal(problem.get("code"), str(problem["message"]))
        if status in (401, 403):
            return CredentialsRefused(f"The agent {self._agent} refused our credentials (HTTP {status}).")
        if status >= 500 or status in _PASSING:
            return Unreachable(
                f"The agent {self._agent} cannot answer now (HTTP {status}).", accepted=accepted
            )
        return RequestRefused(f"The agent {self._agent} did not answer in A2A (HTTP {status}).")

    def _refusal(self, code: Any, message: str) -> RequestRefused:
        said = clean_text(" ".join(message.split()))
        said = (said.replace(self._token, "…") if self._token else said)[:_MAX_MESSAGE]
        return RequestRefused(
            f"The agent {self._agent} refused the request{f' ({code})' if isinstance(code, int) else ''}: {said}"
        )


def _message(order: OutgoingMessage) -> Message:
    message = Message(
        message_id=order.message_id,
        role=Role.ROLE_USER,
        context_id=order.context_id or "",
        task_id=order.task_id or "",
    )
    if order.text:
        message.parts.append(Part(text=clean_text(order.text)))
    if order.data is not None:
        message.parts.append(_data_part(clean_json(order.data)))
    if order.metadata:
        message.metadata.update({name: clean_json(value) for name, value in order.metadata.items()})
    return message


def _data_part(data: Any) -> Part:
    try:
        return Part(data=ParseDict(data, Value()))
    except NotProtobuf:  # nested deeper than protobuf goes
        return Part(text=json.dumps(data))


def _resumed(frame: StreamResponse) -> StreamResponse:
    """The first frame after an answer; a task that still waits in it is shown as it was before the answer came."""
    if frame.HasField("task") and frame.task.status.state in PAUSED:
        frame.task.status.state = TaskState.TASK_STATE_WORKING
        frame.task.status.ClearField("message")
    return frame
