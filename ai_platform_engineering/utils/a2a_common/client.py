"""The A2A client of our surfaces: ask, follow and cancel; gives back the events of the run, once each, in order."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import AnyEvent, ends_turn
from ai_platform_engineering.core.settings import is_loopback
from ai_platform_engineering.utils.a2a_common.codec import decode

_VERSION = {"A2A-Version": "1.0"}
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)


class Unreachable(CaipeError):
    code = "unreachable"
    retryable = True


class RequestRefused(CaipeError):
    """The server answered with a protocol error."""

    code = "refused"


@dataclass(slots=True)
class Conversation:
    """What the client must remember between questions, and of the task it follows now."""

    context_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    task_id: str | None = None
    last_event_id: str | None = None
    seq: int = 0


def http_for(url: str) -> httpx.AsyncClient:
    """The HTTP client for a server; a proxy of the environment is for the way out, not for this machine."""
    return httpx.AsyncClient(trust_env=not is_loopback(httpx.URL(url).host))


class A2AClient:
    """Speaks protocol 1.0 to a server of ours. A dropped stream is followed again from its cursor."""

    def __init__(self, url: str, http: httpx.AsyncClient, *, token: str | None = None) -> None:
        self._url, self._http = url, http
        self._headers = {**_VERSION, **({"Authorization": f"Bearer {token}"} if token else {})}

    async def ask(self, text: str, talk: Conversation) -> AsyncIterator[AnyEvent]:
        """Sends a question and yields what happens until it is answered or needs input."""
        message = {"messageId": str(uuid.uuid4()), "contextId": talk.context_id, "role": "ROLE_USER", "parts": [{"text": text}]}
        talk.task_id, talk.last_event_id, talk.seq = None, None, 0
        async for event in self._follow("SendStreamingMessage", {"message": message}, talk):
            yield event

    async def follow(self, task_id: str, talk: Conversation) -> AsyncIterator[AnyEvent]:
        """Yields what happens in a task, from the cursor on."""
        talk.task_id = task_id
        async for event in self._follow("SubscribeToTask", {"id": task_id}, talk):
            yield event

    async def cancel(self, task_id: str) -> None:
        await self.call("CancelTask", {"id": task_id})

    async def call(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One request, one answer."""
        try:
            response = await self._http.post(self._url, json=_request(method, params), headers=self._headers)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self._url} cannot be reached ({type(error).__name__}).") from None
        return _result(_body(response))

    async def _follow(self, method: str, params: Mapping[str, Any], talk: Conversation) -> AsyncIterator[AnyEvent]:
        failures = 0
        while True:
            try:
                async for event in self._stream(method, params, talk):
                    failures = 0
                    yield event
                    if ends_turn(event):
                        return
            except httpx.HTTPError as error:
                if talk.task_id is None or failures >= len(_PAUSES):
                    raise Unreachable(f"{self._url} cannot be reached ({type(error).__name__}).") from None
            # The stream broke off or ended without an end: the run goes on, come back with the number.
            if talk.task_id is None or failures >= len(_PAUSES):
                raise Unreachable(f"{self._url} ended the stream early.")
            await asyncio.sleep(_PAUSES[failures])
            failures += 1
            method, params = "SubscribeToTask", {"id": talk.task_id}

    async def _stream(self, method: str, params: Mapping[str, Any], talk: Conversation) -> AsyncIterator[AnyEvent]:
        headers = {**self._headers, "Accept": "text/event-stream"}
        if talk.last_event_id:
            headers["Last-Event-ID"] = talk.last_event_id
        timeout = httpx.Timeout(10, read=60)  # the server sends a keep-alive every 15 s
        async with self._http.stream("POST", self._url, json=_request(method, params), headers=headers, timeout=timeout) as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                await response.aread()
                _result(_body(response))
                raise RequestRefused(f"{self._url} did not answer with a stream.")
            async for number, data in _frames(response):
                result = _result(json.loads(data))
                talk.task_id = talk.task_id or _task_id(result)
                talk.last_event_id = number or talk.last_event_id
                for seq, event in decode(result):
                    if seq > talk.seq:  # a snapshot may repeat what was seen
                        talk.seq = seq
                        yield event


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


def _request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}


def _body(response: httpx.Response) -> dict[str, Any]:
    if response.status_code in (401, 403):
        raise RequestRefused(f"The server refused the request ({response.status_code}): {response.text.strip()[:300]}")
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise RequestRefused(f"The server's answer is not A2A (HTTP {response.status_code}).")
    return body


def _result(body: Mapping[str, Any]) -> dict[str, Any]:
    if error := body.get("error"):
        raise RequestRefused(str(error.get("message") or error))
    result: dict[str, Any] = body.get("result") or {}
    return result


def _task_id(result: Mapping[str, Any]) -> str | None:
    task: str | None = (result.get("task") or {}).get("id")
    return task
