"""The A2A client for servers of ours: ask, follow and cancel; gives back the events of the run, once each, in order."""

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

from ai_platform_engineering.a2a.codec import SCOPE_PART, decode
from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import (
    AnyEvent,
    FilePart,
    InputResolved,
    Paused,
    ends_turn,
    is_terminal,
)
from ai_platform_engineering.core.settings import is_loopback

_VERSION = {"A2A-Version": "1.0"}
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
_GATEWAY = (502, 503, 504)  # said by what stands before a server that is away for a moment
_MAX_SAID = 300


class Unreachable(CaipeError):
    """The server cannot be reached, or broke off. `accepted` says whether it has the message: None means that nobody knows."""

    code = "unreachable"
    retryable = True

    def __init__(self, message: str, *, accepted: bool | None = None) -> None:
        super().__init__(message)
        self.accepted = accepted


class RequestRefused(CaipeError):
    """The server answered with a protocol error."""

    code = "refused"


class CredentialsRefused(RequestRefused):
    """The server does not let us in."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to an agent. With `task_id` it answers what the task asked. `scope` bounds the run: its agents, and instructions for it."""

    message_id: str
    text: str = ""
    data: Any = None
    context_id: str | None = None
    task_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[FilePart, ...] = ()
    scope: Mapping[str, Any] | None = None


@dataclass(slots=True)
class ClientConversation:
    """What the client must remember between questions, and of the task it follows now."""

    context_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    task_id: str | None = None
    last_event_id: str | None = None
    seq: int = 0
    seq_at_send: int = (
        0  # what the task had come to when it was sent a message; everything above is what came of it
    )
    on_task_id: Callable[[str], Awaitable[None]] | None = (
        None  # is told the task's id when it is known, before anything else happens
    )

    async def set_task_id(self, task_id: str | None) -> None:
        self.task_id = task_id
        if task_id is not None and self.on_task_id is not None:
            tell, self.on_task_id = self.on_task_id, None
            await tell(task_id)


def create_http_client(url: str, **options: Any) -> httpx.AsyncClient:
    """The HTTP client for a server; a proxy of the environment is for the way out, not for this machine."""
    return httpx.AsyncClient(trust_env=not is_loopback(httpx.URL(url).host), **options)


def bearer_headers(token: str | None) -> dict[str, str]:
    """The header that carries a token, where there is one."""
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
    ) -> None:
        """`idle_timeout` is for a stream that falls silent: the server sends a keep-alive every 15 s."""
        self._url = url
        self._http = http
        self._token = token
        self._timeout = httpx.Timeout(idle_timeout, connect=connect_timeout)
        self._headers = {**_VERSION, **bearer_headers(token)}

    def on_behalf_of(self, user: str, owner: str | None = None) -> "A2AClient":
        """The same client for a person, in conversations of the owner or of the person's own. The token must be one that may do so."""
        client = copy.copy(self)
        client._headers = {**_VERSION, **bearer_headers(self._token), **on_behalf_of_headers(user, owner)}
        return client

    @property
    def url(self) -> str:
        return self._url

    @property
    def http(self) -> httpx.AsyncClient:
        return self._http

    @property
    def headers(self) -> Mapping[str, str]:
        """What says whose requests they are; for requests beside A2A."""
        return self._headers

    async def ask(self, text: str, talk: ClientConversation) -> AsyncIterator[AnyEvent]:
        """Sends a question and yields what happens until it is answered or needs input."""
        talk.task_id = None
        talk.last_event_id = None
        talk.seq = 0
        talk.seq_at_send = 0
        async for event in self.send(
            OutgoingMessage(str(uuid.uuid4()), text, context_id=talk.context_id), talk
        ):
            yield event

    async def answer(self, given: Mapping[str, Any], talk: ClientConversation) -> AsyncIterator[AnyEvent]:
        """Answers what the task of the conversation asked, by request id. Yields the task from its beginning, up to the end of the turn
        in which the answers were taken in or sent back: a task that was still at work may pause before it comes to them."""
        assert talk.task_id is not None
        talk.last_event_id = None
        talk.seq = 0
        talk.seq_at_send = 0
        events = self.send(
            OutgoingMessage(str(uuid.uuid4()), data={"resume": dict(given)}, task_id=talk.task_id), talk
        )
        taken = False
        while not taken:
            async for event in events:
                yield event
                taken = (
                    taken or is_terminal(event) or _takes(event, given, sent_back=talk.seq > talk.seq_at_send)
                )
            events = self.follow(talk.task_id, talk)

    async def send(self, order: OutgoingMessage, talk: ClientConversation) -> AsyncIterator[AnyEvent]:
        """Sends a message and yields what happens above the conversation's number, until the turn ends."""
        async for event in self._follow("SendStreamingMessage", {"message": _message(order)}, talk):
            yield event

    async def follow(self, task_id: str, talk: ClientConversation) -> AsyncIterator[AnyEvent]:
        """Yields what happens in a task, from the cursor on."""
        talk.task_id = task_id
        async for event in self._follow("SubscribeToTask", {"id": task_id}, talk):
            yield event

    async def find_task_id(self, order: OutgoingMessage) -> str | None:
        """The task of a message that may have arrived: sent again under its id, it names the one it has."""
        talk = ClientConversation()
        async with contextlib.aclosing(
            self._stream("SendStreamingMessage", {"message": _message(order)}, talk)
        ) as events:
            await anext(events, None)
        return talk.task_id

    async def cancel(self, task_id: str) -> None:
        await self.call("CancelTask", {"id": task_id})

    async def call(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One request, one answer."""
        try:
            response = await self._http.post(self._url, json=_request(method, params), headers=self._headers)
        except httpx.HTTPError as error:
            raise Unreachable(
                f"{self._url} cannot be reached ({type(error).__name__}).", accepted=_accepted(error)
            ) from None
        return self._result(self._body(response))

    async def _follow(
        self, method: str, params: Mapping[str, Any], talk: ClientConversation
    ) -> AsyncIterator[AnyEvent]:
        failures, sent = 0, False
        answers, before = talk.task_id is not None, talk.seq
        while True:
            problem, accepted = "ended the stream early", True
            try:
                async for event in self._stream(method, params, talk):
                    failures = 0
                    yield event
                    if ends_turn(event) and talk.seq > talk.seq_at_send:
                        return
            except httpx.HTTPError as error:
                problem, accepted = f"cannot be reached ({_reason(error)})", _accepted(error) is not False
                silent = (
                    isinstance(error, httpx.TimeoutException) and talk.task_id is None
                )  # who says nothing at all is not asked again
                failures = len(_PAUSES) if silent else failures
            # The stream broke off or ended without an end: the run goes on, come back with the number. A message that may have
            # arrived is sent again under its id, which the server knows.
            sent = sent or accepted
            if not sent or failures >= len(_PAUSES):
                raise Unreachable(
                    f"{self._url} {problem}.", accepted=True if talk.task_id else None if sent else False
                )
            await asyncio.sleep(_PAUSES[failures])
            failures += 1
            # An answer counts as taken only when something came of it: a task that goes on waiting says nothing for ever.
            if talk.task_id is not None and (not answers or talk.seq > max(before, talk.seq_at_send)):
                method, params = "SubscribeToTask", {"id": talk.task_id}

    async def _stream(
        self, method: str, params: Mapping[str, Any], talk: ClientConversation
    ) -> AsyncGenerator[AnyEvent]:
        headers = {**self._headers, "Accept": "text/event-stream"}
        if talk.last_event_id:
            headers["Last-Event-ID"] = talk.last_event_id
        request = _request(method, params)
        last = talk.seq if talk.last_event_id else None
        async with self._http.stream(
            "POST", self._url, json=request, headers=headers, timeout=self._timeout
        ) as response:
            if response.status_code in _GATEWAY:
                response.raise_for_status()
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                await response.aread()
                self._result(self._body(response))
                raise RequestRefused(f"{self._url} did not answer with a stream.")
            async for number, data in _frames(response):
                result, events = self._decoded(data)
                is_snapshot = "task" in result  # which joins events, so its numbers have gaps
                if events and not is_snapshot and last is not None and events[0][0] > last + 1:
                    return  # a frame was lost on the way: come back with the number of the last one before it
                await talk.set_task_id(talk.task_id or _task_id(result))
                talk.last_event_id = number or talk.last_event_id
                if is_snapshot:
                    last = None
                elif events:
                    last = events[-1][0]
                if is_snapshot and events and method == "SendStreamingMessage":
                    talk.seq_at_send = events[-1][0]
                for seq, event in events:
                    if seq > talk.seq:  # a snapshot may repeat what was seen
                        talk.seq = seq
                        yield event

    def _decoded(self, data: str) -> tuple[dict[str, Any], list[tuple[int, AnyEvent]]]:
        try:
            result = self._result(json.loads(data))
            return result, decode(result)
        except (ValueError, KeyError, TypeError, AttributeError):  # a validation error is a ValueError
            raise RequestRefused(f"{self._url} sent something that is not A2A.") from None

    def _body(self, response: httpx.Response) -> Any:
        if response.status_code in (401, 403):
            said = self._refusal(
                f"The server refused the request ({response.status_code}): {response.text.strip()}"
            )
            raise CredentialsRefused(str(said))
        try:
            return response.json()
        except ValueError:
            raise self._not_a2a(f" (HTTP {response.status_code})") from None

    def _result(self, body: Any) -> dict[str, Any]:
        match body:
            case {"error": {"message": str(said)}} if said:
                raise self._refusal(said)
            case {"error": str(), "message": str(said)} if said:
                raise self._refusal(said)
            case {"error": error} if error:
                raise self._refusal(f"The server refused the request: {error}")
            case {"result": dict(result)}:
                return result
            case _:
                raise self._not_a2a()

    def _not_a2a(self, more: str = "") -> RequestRefused:
        return RequestRefused(f"The server's answer is not A2A{more}.")

    def _refusal(self, said: str) -> RequestRefused:
        """A server's own words, which may repeat what it was sent."""
        return RequestRefused((said.replace(self._token, "…") if self._token else said)[:_MAX_SAID])


def _takes(event: AnyEvent, given: Mapping[str, Any], *, sent_back: bool) -> bool:
    """The event says what became of the answers."""
    if isinstance(event, InputResolved):
        return event.request_id in given
    return sent_back and isinstance(event, Paused) and not event.wrong.keys().isdisjoint(given)


async def _frames(response: httpx.Response) -> AsyncIterator[tuple[str | None, str]]:
    number: str | None = None
    data: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("id:"):
            number = line[3:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].lstrip())
        elif not line and data:
            yield number, "\n".join(data)
            data = []


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    return type(error).__name__


def _accepted(error: httpx.HTTPError) -> bool | None:
    """Whether a request that failed can have arrived: without a connection it has not."""
    if isinstance(
        error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.UnsupportedProtocol
    ):
        return False
    return None


def _message(order: OutgoingMessage) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": order.text}] if order.text else []
    parts += [_file(one) for one in order.files]
    if order.data is not None:
        parts.append({"data": order.data})
    if order.scope is not None:
        parts.append({"data": {SCOPE_PART: dict(order.scope)}})
    ids = {"contextId": order.context_id, "taskId": order.task_id}
    more = {name: value for name, value in {**ids, "metadata": dict(order.metadata)}.items() if value}
    return {"messageId": order.message_id, "role": "ROLE_USER", "parts": parts, **more}


def _file(given: FilePart) -> dict[str, Any]:
    return {
        "raw": base64.b64encode(given.text.encode()).decode(),
        "filename": given.name,
        "mediaType": given.media_type,
    }


def _request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}


def _task_id(result: Mapping[str, Any]) -> str | None:
    task = result.get("task")
    if isinstance(task, dict) and task.get("id"):
        return str(task["id"])
    return None
