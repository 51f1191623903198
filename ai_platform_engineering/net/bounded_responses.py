"""HTTP responses with a limit on every JSON text in them: on a body, and on each event of a stream."""

import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
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


def check_encoding(encoding: str) -> None:
    """Raises ResponseTooLarge for a body whose size is not known before it is decoded."""
    encoding = encoding.strip().lower()
    if encoding not in ("", "identity"):
        raise ResponseTooLarge(f"It is encoded as {encoding[:40]}, so that its size is unknown.")


def bound_chunks(
    chunks: AsyncIterable[bytes], content_type: str, limits: ResponseLimits
) -> AsyncIterator[bytes]:
    """The bytes of a response; raises ResponseTooLarge before a message that is too large is handed on."""
    if content_type.partition(";")[0].strip().lower() == _EVENT_STREAM:
        return _bound_events(chunks, limits)
    return _bound_body(chunks, limits)


def limit_response(response: httpx.Response, limits: ResponseLimits) -> None:
    """Replaces the stream of a response by one that raises ResponseTooLarge before a message is handed on."""
    check_encoding(response.headers.get("content-encoding", ""))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    content_type = response.headers.get("content-type", "")
    response.stream = _BoundedStream(response.stream, content_type, limits)


def response_hook(limits: ResponseLimits) -> ResponseHook:
    """The limits as a hook of an httpx client, which sends IDENTITY_ENCODING."""

    async def limit(response: httpx.Response) -> None:
        limit_response(response, limits)

    return limit


@dataclass(slots=True)
class _BoundedStream(httpx.AsyncByteStream):
    stream: httpx.AsyncByteStream
    content_type: str
    limits: ResponseLimits

    def __aiter__(self) -> AsyncIterator[bytes]:
        return bound_chunks(self.stream, self.content_type, self.limits)

    async def aclose(self) -> None:
        await self.stream.aclose()


async def _bound_body(chunks: AsyncIterable[bytes], limits: ResponseLimits) -> AsyncIterator[bytes]:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limits.message_bytes:
            raise limits.too_long()
    limits.check(bytes(body))
    yield bytes(body)


async def _bound_events(chunks: AsyncIterable[bytes], limits: ResponseLimits) -> AsyncIterator[bytes]:
    """Hands on whole events."""
    pending = bytearray()
    async for chunk in chunks:
        searched = max(0, len(pending) - _LONGEST_EVENT_END)
        pending += chunk
        last_end = 0
        for match in _EVENT_END.finditer(pending, searched):
            limits.check(bytes(pending[last_end : match.end()]))
            last_end = match.end()
        if last_end:
            yield bytes(pending[:last_end])
            del pending[:last_end]
        if len(pending) > limits.message_bytes:
            raise limits.too_long()
    if pending:
        limits.check(bytes(pending))
        yield bytes(pending)
