"""HTTP responses with a limit on every JSON text in them: on a body, and on each event of a stream."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import httpx

from ai_platform_engineering.core.json_limits import JsonLimits, JsonTooLarge

IDENTITY_ENCODING = {
    "Accept-Encoding": "identity"
}  # a compressed answer could hold a thousand times its size
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")
_LONGEST_EVENT_END = 4
_EVENT_STREAM = "text/event-stream"

ResponseHook = Callable[[httpx.Response], Awaitable[None]]


class ResponseTooLarge(JsonTooLarge, httpx.TransportError):
    """A response that is not read any further; for code that knows httpx alone a broken connection."""


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """How large a JSON text in a response may be."""

    message_bytes: int
    json: JsonLimits

    def check(self, message: bytes) -> None:
        """Raises ResponseTooLarge."""
        if len(message) > self.message_bytes:
            raise self.too_long()
        try:
            self.json.check(message)
        except JsonTooLarge as error:
            raise ResponseTooLarge(str(error)) from None

    def too_long(self) -> ResponseTooLarge:
        return ResponseTooLarge(f"It is larger than {self.message_bytes} bytes.")


def limit_response(response: httpx.Response, limits: ResponseLimits) -> None:
    """Replaces the stream of a response by one that raises ResponseTooLarge before a message is handed on."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ResponseTooLarge(f"It is encoded as {encoding[:40]}, so that its size is unknown.")
    assert isinstance(response.stream, httpx.AsyncByteStream)
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == _EVENT_STREAM:
        response.stream = _BoundedEvents(response.stream, limits)
    else:
        response.stream = _BoundedBody(response.stream, limits)


def response_hook(limits: ResponseLimits) -> ResponseHook:
    """The limits as a hook of an httpx client, which sends IDENTITY_ENCODING."""

    async def limit(response: httpx.Response) -> None:
        limit_response(response, limits)

    return limit


@dataclass(slots=True)
class _BoundedBody(httpx.AsyncByteStream):
    stream: httpx.AsyncByteStream
    limits: ResponseLimits

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self.stream:
            body += chunk
            if len(body) > self.limits.message_bytes:
                raise self.limits.too_long()
        self.limits.check(bytes(body))
        yield bytes(body)

    async def aclose(self) -> None:
        await self.stream.aclose()


@dataclass(slots=True)
class _BoundedEvents(httpx.AsyncByteStream):
    """Hands on whole events."""

    stream: httpx.AsyncByteStream
    limits: ResponseLimits

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pending = bytearray()
        async for chunk in self.stream:
            searched = max(0, len(pending) - _LONGEST_EVENT_END)
            pending += chunk
            last_end = 0
            for match in _EVENT_END.finditer(pending, searched):
                self.limits.check(bytes(pending[last_end : match.end()]))
                last_end = match.end()
            if last_end:
                yield bytes(pending[:last_end])
                del pending[:last_end]
            if len(pending) > self.limits.message_bytes:
                raise self.limits.too_long()
        if pending:
            self.limits.check(bytes(pending))
            yield bytes(pending)

    async def aclose(self) -> None:
        await self.stream.aclose()
