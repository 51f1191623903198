"""A2A client for our servers: sends messages, follows and cancels tasks; yields each event once, in order."""

import asyncio
import base64
import contextlib
import copy
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from ai_platform_engineering.a2a.client_shape import EVENTS_EXTENSION, EXTENSIONS_HEADER
from ai_platform_engineering.a2a.codec import decode
from ai_platform_engineering.a2a.message_parts import ANSWER_PART, BUDGET_PART, SCOPE_PART, UNTRUSTED_PART
from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.a2a.sse_frames import read_sse_frames
from ai_platform_engineering.core.connection_failures import why_unreachable
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import (
    AnyEvent,
    FilePart,
    InputResolved,
    Paused,
    ends_turn,
    is_terminal,
)
from ai_platform_engineering.core.host_patterns import is_loopback
from ai_platform_engineering.core.json_limits import JsonTooLarge
from ai_platform_engineering.core.tls_context import trusted_tls_context

# With the extension, frames carry our events.
_PROTOCOL_HEADERS = {"A2A-Version": "1.0", EXTENSIONS_HEADER: EVENTS_EXTENSION}
RETRY_DELAYS = (0.2, 0.5, 1.0, 2.0, 4.0)  # seconds; the last one repeats for a client that is more patient
_GATEWAY_ERRORS = (502, 503, 504)  # from a proxy in front of a server that is away for a moment
_MAX_REFUSAL_LENGTH = 300
_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class Unreachable(CaipeError):
    """The server cannot be reached, or the connection broke.

    `accepted` says whether the server has the message; None means that nobody knows."""

    code = "unreachable"
    retryable = True

    def __init__(self, message: str, *, accepted: bool | None = None) -> None:
        super().__init__(message)
        self.accepted = accepted


class RequestRefused(CaipeError):
    """The server answered with a protocol error."""

    code = "refused"


class CredentialsRefused(RequestRefused):
    """The server refused our credentials (HTTP 401 or 403)."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to an agent.

    With `task_id` it answers requests of that task. `scope` bounds the run: its agents and instructions.
    `untrusted` is the untrusted content that its sender had read, `named` the data of `named_part`,
    `budget` what the run may still use."""

    message_id: str
    text: str = ""
    data: Any = None
    context_id: str | None = None
    task_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[FilePart, ...] = ()
    scope: Mapping[str, Any] | None = None
    untrusted: Mapping[str, Any] | None = None
    named: Mapping[str, Any] | None = None
    budget: Mapping[str, Any] | None = None


@dataclass(slots=True)
class ClientConversation:
    """The client's state of a conversation: its context id, and the task and cursor that it follows now."""

    context_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    task_id: str | None = None
    last_event_id: str | None = None
    seq: int = 0
    # The task's last sequence number when a message was sent to it; events above it are the message's effect.
    seq_at_send: int = 0
    # Called once with the task's id, as soon as it is known and before any event is yielded.
    on_task_id: Callable[[str], Awaitable[None]] | None = None
    # Called before a broken stream is opened again, with the reason and the number of the attempt.
    on_retry: Callable[[str, int], None] | None = None

    async def set_task_id(self, task_id: str | None) -> None:
        self.task_id = task_id
        if task_id is not None and self.on_task_id is not None:
            callback = self.on_task_id
            self.on_task_id = None
            await callback(task_id)

    def reset_cursor(self) -> None:
        """Forgets what was read of the task, so that it is yielded from its beginning."""
        self.last_event_id = None
        self.seq = 0
        self.seq_at_send = 0


def create_http_client(url: str, **options: Any) -> httpx.AsyncClient:
    """An HTTP client for a server; a proxy of the environment is never used for loopback addresses."""
    trust_env = not is_loopback(httpx.URL(url).host)
    return httpx.AsyncClient(trust_env=trust_env, verify=trusted_tls_context(), **options)


def bearer_headers(token: str | None) -> dict[str, str]:
    """The Authorization header with the token; no header without one."""
    if token:
        return {"Authorization": f"Bearer {token}"}
    return {}


class A2AClient:
    """Speaks protocol 1.0 to a server of ours. A dropped stream is followed again from its cursor."""

    def __init__(
        self,
        url: str,
        http: httpx.AsyncClient,
        *,
        token: str | None = None,
        connect_timeout: float = 10.0,
        idle_timeout: float = 60.0,
        reconnect_seconds: float = 0.0,
    ) -> None:
        """`idle_timeout` ends a stream without any bytes: the server sends a keep-alive every 15 s.

        A broken stream is tried again after each of the delays, and on for at least `reconnect_seconds`."""
        self._url = url
        self._http = http
        self._token = token
        self._timeout = httpx.Timeout(idle_timeout, connect=connect_timeout)
        self._reconnect_seconds = reconnect_seconds
        self._headers = {**_PROTOCOL_HEADERS, **bearer_headers(token)}

    def on_behalf_of(self, user: str, owner: str | None = None) -> "A2AClient":
        """The same client that speaks for a person, in conversations of the owner or of the person's own.

        The token must be one that may speak on behalf of others."""
        client = copy.copy(self)
        client._headers = {
            **_PROTOCOL_HEADERS,
            **bearer_headers(self._token),
            **on_behalf_of_headers(user, owner),
        }
        return client

    @property
    def url(self) -> str:
        return self._url

    @property
    def http(self) -> httpx.AsyncClient:
        return self._http

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that authenticate a request and name its user; REST requests send them too."""
        return self._headers

    async def ask(self, text: str, conversation: ClientConversation) -> AsyncIterator[AnyEvent]:
        """Sends a question and yields events until it is answered or needs input."""
        conversation.task_id = None
        conversation.reset_cursor()
        message = OutgoingMessage(str(uuid.uuid4()), text, context_id=conversation.context_id)
        async for event in self.send(message, conversation):
            yield event

    async def answer(
        self, answers: Mapping[str, Any], conversation: ClientConversation
    ) -> AsyncIterator[AnyEvent]:
        """Answers requests of the conversation's task, by request id.

        Yields the task from its beginning, up to the end of the turn in which the answers were accepted or
        sent back: a task that was still working may pause before it reads them."""
        assert conversation.task_id is not None
        conversation.reset_cursor()
        message = OutgoingMessage(
            str(uuid.uuid4()), data={ANSWER_PART: dict(answers)}, task_id=conversation.task_id
        )
        events = self.send(message, conversation)
        resolved = False
        while not resolved:
            async for event in events:
                yield event
                is_new = conversation.seq > conversation.seq_at_send
                if is_terminal(event) or _resolves_answers(event, answers, is_new=is_new):
                    resolved = True
            events = self.follow(conversation.task_id, conversation)

    async def send(
        self, message: OutgoingMessage, conversation: ClientConversation
    ) -> AsyncGenerator[AnyEvent]:
        """Sends a message and yields events above the conversation's sequence number, until the turn ends."""
        params = {"message": _message_to_json(message)}
        async for event in self._follow("SendStreamingMessage", params, conversation):
            yield event

    async def follow(self, task_id: str, conversation: ClientConversation) -> AsyncGenerator[AnyEvent]:
        """Yields the events of a task after the conversation's cursor."""
        conversation.task_id = task_id
        async for event in self._follow("SubscribeToTask", {"id": task_id}, conversation):
            yield event

    async def find_task_id(self, message: OutgoingMessage) -> str | None:
        """The task of a message that may have arrived; the server recognizes a repeated message id."""
        conversation = ClientConversation()
        params = {"message": _message_to_json(message)}
        stream = self._stream("SendStreamingMessage", params, conversation)
        async with contextlib.aclosing(stream) as events:
            await anext(events, None)
        return conversation.task_id

    async def cancel(self, task_id: str) -> None:
        await self.call("CancelTask", {"id": task_id})

    async def call(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one JSON-RPC request without a stream."""
        try:
            response = await self._http.post(
                self._url, json=_build_request(method, params), headers=self._headers
            )
        except JsonTooLarge as error:
            raise RequestRefused(f"The answer of {self._url} is not read. {error}") from None
        except httpx.HTTPError as error:
            raise Unreachable(
                f"{self._url} cannot be reached{why_unreachable(error)}.", accepted=_was_accepted(error)
            ) from None
        return self._read_result(self._read_body(response))

    async def _follow(
        self, method: str, params: Mapping[str, Any], conversation: ClientConversation
    ) -> AsyncIterator[AnyEvent]:
        """Yields the events of a stream until the turn ends; reconnects with the cursor if it breaks.

        The run goes on without a reader. A message that may have arrived is sent again under its id, which
        the server recognizes."""
        loop = asyncio.get_running_loop()
        failures = 0
        failing_since = loop.time()
        maybe_sent = False
        is_answer = conversation.task_id is not None
        first_seq = conversation.seq
        while True:
            problem = "ended the stream early"
            accepted = True
            never_answered = False
            try:
                async for event in self._stream(method, params, conversation):
                    failures = 0
                    yield event
                    if ends_turn(event) and conversation.seq > conversation.seq_at_send:
                        return
            except JsonTooLarge as error:
                raise RequestRefused(f"An answer of {self._url} is not read. {error}") from None
            except httpx.HTTPError as error:
                problem = f"cannot be reached{_describe_error(error)}"
                accepted = _was_accepted(error) is not False
                timed_out = isinstance(error, httpx.TimeoutException)
                never_answered = timed_out and conversation.task_id is None  # it is not asked again
            maybe_sent = maybe_sent or accepted
            if failures == 0:
                failing_since = loop.time()
            delay = RETRY_DELAYS[min(failures, len(RETRY_DELAYS) - 1)]
            was_patient = loop.time() - failing_since >= self._reconnect_seconds
            gives_up = failures >= len(RETRY_DELAYS) and was_patient
            if not maybe_sent or never_answered or gives_up:
                raise Unreachable(
                    f"{self._url} {problem}.", accepted=_acceptance(conversation.task_id, maybe_sent)
                )
            failures += 1
            if conversation.on_retry is not None:
                conversation.on_retry(problem, failures)
            await asyncio.sleep(delay)
            # An answer was accepted only when events followed it: a task that goes on waiting sends none.
            has_effect = conversation.seq > max(first_seq, conversation.seq_at_send)
            if conversation.task_id is not None and (has_effect or not is_answer):
                method = "SubscribeToTask"
                params = {"id": conversation.task_id}

    async def _stream(
        self, method: str, params: Mapping[str, Any], conversation: ClientConversation
    ) -> AsyncGenerator[AnyEvent]:
        """Yields the new events of one streaming request; ends early at a gap in the sequence numbers."""
        headers = {**self._headers, "Accept": "text/event-stream"}
        last_seq: int | None = None
        if conversation.last_event_id:
            headers["Last-Event-ID"] = conversation.last_event_id
            last_seq = conversation.seq
        request = _build_request(method, params)
        async with self._http.stream(
            "POST", self._url, json=request, headers=headers, timeout=self._timeout
        ) as response:
            await self._check_stream(response)
            async for event_id, data in read_sse_frames(response):
                result, events = self._decode_frame(data)
                is_snapshot = "task" in result  # it joins events, so its sequence numbers have gaps
                if events and not is_snapshot and last_seq is not None and events[0][0] > last_seq + 1:
                    return  # a frame was lost: reconnect with the number of the last one before it
                await conversation.set_task_id(conversation.task_id or _read_task_id(result))
                conversation.last_event_id = event_id or conversation.last_event_id
                if is_snapshot:
                    last_seq = None
                elif events:
                    last_seq = events[-1][0]
                if is_snapshot and events and method == "SendStreamingMessage":
                    conversation.seq_at_send = events[-1][0]
                for seq, event in events:
                    if seq > conversation.seq:  # a snapshot may repeat events that were yielded before
                        conversation.seq = seq
                        yield event

    async def _check_stream(self, response: httpx.Response) -> None:
        """Raises HTTPStatusError for a gateway error, and RequestRefused for what is no event stream."""
        if response.status_code in _GATEWAY_ERRORS:
            response.raise_for_status()
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            await response.aread()
            self._read_result(self._read_body(response))
            raise RequestRefused(f"{self._url} did not answer with a stream.")

    def _decode_frame(self, data: str) -> tuple[dict[str, Any], list[tuple[int, AnyEvent]]]:
        try:
            result = self._read_result(json.loads(data))
            return result, decode(result)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # a validation error, too
            raise RequestRefused(f"{self._url} sent something that is not A2A.") from None

    def _read_body(self, response: httpx.Response) -> Any:
        if response.status_code in (401, 403):
            reason = f"The server refused the request ({response.status_code}): {response.text.strip()}"
            raise CredentialsRefused(self._clean_refusal(reason))
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise RequestRefused(f"The server's answer is not A2A (HTTP {response.status_code}).") from None

    def _read_result(self, body: Any) -> dict[str, Any]:
        """The `result` of a JSON-RPC response. Raises RequestRefused for an error."""
        match body:
            case {"error": {"message": str(reason)}} if reason:
                raise RequestRefused(self._clean_refusal(reason))
            case {"error": str(), "message": str(reason)} if reason:
                raise RequestRefused(self._clean_refusal(reason))
            case {"error": error} if error:
                raise RequestRefused(self._clean_refusal(f"The server refused the request: {error}"))
            case {"result": dict(result)}:
                return result
            case _:
                raise RequestRefused("The server's answer is not A2A.")

    def _clean_refusal(self, reason: str) -> str:
        """The server's own words, cut, without our token: a server may repeat what it was sent."""
        if self._token:
            reason = reason.replace(self._token, "…")
        return reason[:_MAX_REFUSAL_LENGTH]


def _resolves_answers(event: AnyEvent, answers: Mapping[str, Any], *, is_new: bool) -> bool:
    """Whether the event says that the answers were accepted, or sent back as wrong."""
    if isinstance(event, InputResolved):
        return event.request_id in answers
    return is_new and isinstance(event, Paused) and not event.wrong.keys().isdisjoint(answers)


def _describe_error(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f" (HTTP {error.response.status_code})"
    return why_unreachable(error)


def _was_accepted(error: httpx.HTTPError) -> bool | None:
    """Whether a request that failed can have arrived: without a connection it has not, else nobody knows."""
    if isinstance(error, _NOT_CONNECTED):
        return False
    return None


def _acceptance(task_id: str | None, maybe_sent: bool) -> bool | None:
    if task_id:
        return True
    if maybe_sent:
        return None
    return False


def _message_to_json(message: OutgoingMessage) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if message.text:
        parts.append({"text": message.text})
    parts += [_file_to_json(file) for file in message.files]
    if message.data is not None:
        parts.append({"data": message.data})
    if message.scope is not None:
        parts.append({"data": {SCOPE_PART: dict(message.scope)}})
    if message.untrusted is not None:
        parts.append({"data": {UNTRUSTED_PART: dict(message.untrusted)}})
    if message.budget is not None:
        parts.append({"data": {BUDGET_PART: dict(message.budget)}})
    if message.named is not None:
        parts.append({"data": dict(message.named)})
    fields: dict[str, Any] = {"messageId": message.message_id, "role": "ROLE_USER", "parts": parts}
    if message.context_id:
        fields["contextId"] = message.context_id
    if message.task_id:
        fields["taskId"] = message.task_id
    if message.metadata:
        fields["metadata"] = dict(message.metadata)
    return fields


def _file_to_json(file: FilePart) -> dict[str, Any]:
    return {
        "raw": base64.b64encode(file.text.encode()).decode(),
        "filename": file.name,
        "mediaType": file.media_type,
    }


def _build_request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}


def _read_task_id(result: Mapping[str, Any]) -> str | None:
    task = result.get("task")
    if isinstance(task, dict) and task.get("id"):
        return str(task["id"])
    return None
