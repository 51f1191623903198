"""An MCP server at an address: the library's transport, with a client that turns every failure into the answer of the call it hit.

The library's transport drops a whole session when one request fails to connect or gets an error status, and says nothing at all when
a stream breaks off, so that its caller waits for ever. Here each request that can get no answer gets one from us, in the protocol's
own form: a JSON-RPC error whose `data` says what happened. The session and the other calls go on.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.server import redact_url


class _PlainAddresses(logging.Filter):
    """Takes user, password and query out of the addresses that the HTTP client logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            plain = (
                arg.copy_with(userinfo=b"", query=None) if isinstance(arg, httpx.URL) else arg
                for arg in record.args
            )
            record.args = tuple(plain)
        return True


# The libraries log session ids, headers, whole messages and, of what they cannot read, the content. What matters is told by us.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
logging.getLogger("httpcore").setLevel(logging.INFO)
logging.getLogger("httpx").addFilter(_PlainAddresses())

McpDeliveryStatus = Literal["unseen", "broken", "refused"]
"""Unseen: the server cannot have taken the request. Broken: nobody knows. Refused: the server answered, with an error."""

DELIVERY_STATUS_KEY = "caipe.fate"
_FAILED = -32000
_CLOSE_WITHIN = 2.0
_SLACK = 10.0
_STREAM, _JSON = "text/event-stream", "application/json"
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
)
_MOST_OF_ERROR = 2000
_LONGEST_ID = 1000

_STATUS_WORDS = {
    401: "it refused our credentials",
    403: "it refused our credentials",
    404: "there is no MCP endpoint, or the session has ended",
    405: "there is no MCP endpoint",
    429: "it is busy (rate limit)",
}


class HttpTransport:
    """Both directions of a session over HTTP. It has no connection that could be lost as a whole."""

    def __init__(
        self,
        incoming: MemoryObjectReceiveStream[SessionMessage | Exception],
        outgoing: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def was_not_delivered(self, request_id: str | int) -> bool:
        return False  # told by the answer itself

    async def explain_failure(self) -> str:
        return ""


@asynccontextmanager
async def open_http_transport(
    server: McpServer, *, connect_timeout: float, longest_call: float
) -> AsyncIterator[HttpTransport]:
    """Opens a session at the server's address and ends it there afterwards."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    timeout = httpx.Timeout(connect_timeout, read=longest_call + _SLACK)
    # Plain bytes: an answer of ours is put behind what was received of a broken stream.
    headers = {**server.headers, "Accept-Encoding": "identity"}
    async with (
        JsonRpcErrorClient(server, headers=headers, limits=limits, timeout=timeout) as client,
        streamable_http_client(server.url or "", http_client=client) as (incoming, outgoing, _),
    ):
        yield HttpTransport(incoming, outgoing)


class JsonRpcErrorClient(httpx.AsyncClient):
    """Sends what the library's transport sends, and lets no request go without an answer."""

    def __init__(self, server: McpServer, **options: Any) -> None:
        super().__init__(**options)
        self._address = redact_url(server)
        self._resumed: dict[
            str, Any
        ] = {}  # the last event of a stream that can be resumed -> the request that it answers

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        waits = _waits(request, self._resumed)
        self._limit(request, waits)
        try:
            response = await super().send(request, **options)
        except httpx.TransportError as error:
            if waits is not None:
                return self._answered(
                    request,
                    waits,
                    "unseen" if isinstance(error, _NEVER_SENT) else "broken",
                    self._in_words(error),
                )
            if request.method == "POST":
                return httpx.Response(202, request=request)  # a notification: nobody waits for an answer
            raise
        if _leads_back(request, response):
            return response
        if waits is not None:
            return await self._checked(request, response, waits)
        if request.method == "POST" and not response.is_success:
            await response.aclose()
            return httpx.Response(202, request=request)
        return response

    async def _checked(
        self, request: httpx.Request, response: httpx.Response, waits: "_Waits"
    ) -> httpx.Response:
        """The response as it is, if it holds an answer or will; else one of ours."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.is_success and kind == _STREAM:
            response.stream = _Watched(response.stream, waits, self._resumed, self._in_words)
            return response
        try:
            body = await response.aread()
        except httpx.TransportError as error:
            return self._answered(request, waits, "broken", self._in_words(error))
        finally:
            await response.aclose()
        if response.is_success:
            if response.status_code != 202 and kind == _JSON and _answers(body, waits.request_id):
                return response
            return self._answered(
                request, waits, "refused", f"{self._address} answers something that is not MCP"
            )
        # A session that the server has forgotten, after a restart for example: 404 by the book, 400 in practice.
        forgotten = response.status_code in (400, 404) and "mcp-session-id" in request.headers
        return self._answered(
            request, waits, "unseen" if forgotten else "refused", self._status_in_words(response, body)
        )

    def _answered(
        self, request: httpx.Request, waits: "_Waits", fate: McpDeliveryStatus, text: str
    ) -> httpx.Response:
        if request.method == "GET":  # the request itself was taken long ago
            stream = _event(_error(waits.request_id, "broken", text))
            return httpx.Response(200, headers={"content-type": _STREAM}, content=stream, request=request)
        answer = _error(waits.request_id, fate, text)
        return httpx.Response(200, headers={"content-type": _JSON}, content=answer, request=request)

    def _limit(self, request: httpx.Request, waits: "_Waits | None") -> None:
        timeout = dict(request.extensions.get("timeout") or {})
        if request.method == "DELETE":  # the end of the session: a courtesy, not worth waiting for
            timeout = dict.fromkeys(("connect", "read", "write", "pool"), _CLOSE_WITHIN)
        elif request.method == "GET" and waits is None:  # the server's own messages, which may be rare
            timeout["read"] = None
        request.extensions["timeout"] = timeout

    def _in_words(self, error: Exception) -> str:
        text = str(error).lower()
        if "certificate" in text or "ssl" in text:
            return f"the certificate of {self._address} could not be verified (SSL_CERT_FILE names the authorities to trust)"
        if isinstance(error, httpx.UnsupportedProtocol):
            return f"{self._address} is not an http or https address"
        if isinstance(error, httpx.ConnectError):
            return f"nothing answers at {self._address}"
        if isinstance(error, httpx.TimeoutException):
            return f"{self._address} does not answer in time"
        return f"the connection to {self._address} broke off"

    def _status_in_words(self, response: httpx.Response, body: bytes) -> str:
        if response.next_request is not None:
            moved = response.next_request.url.copy_with(userinfo=b"", query=None)
            return f"it redirects to {moved}, which is not followed; use that address if it is the right one"
        known = _STATUS_WORDS.get(response.status_code)
        said = (
            known
            or _said(body)
            or ("it has a problem" if response.is_server_error else "it refused the request")
        )
        return f"{said} (HTTP {response.status_code} from {self._address})"


class _Waits:
    """A request that somebody waits for."""

    def __init__(self, request_id: Any) -> None:
        self.request_id = request_id


class _Watched(httpx.AsyncByteStream):
    """A stream that is to bring an answer: if it ends without, and cannot be resumed, the answer is ours.

    The library stops reading at the answer, so whoever gets to the end has not had one.
    """

    def __init__(self, stream: Any, waits: _Waits, resumed: dict[str, Any], in_words: Any) -> None:
        self._stream = stream
        self._waits = waits
        self._resumed = resumed
        self._in_words = in_words

    async def __aiter__(self) -> AsyncIterator[bytes]:
        last_id = ""
        line = b""
        text = "the stream ended without an answer"
        try:
            async for chunk in self._stream:
                *lines, line = (line + chunk).split(b"\n")
                line = line[:_LONGEST_ID]  # of a long line only the beginning matters here
                for whole in lines:
                    if whole.startswith(b"id:"):
                        last_id = whole[3:].strip().decode(errors="replace")
                yield chunk
        except httpx.TransportError as error:
            text = self._in_words(error)
        if last_id:
            self._resumed[last_id] = self._waits.request_id
        else:
            yield b"\n\n" + _event(_error(self._waits.request_id, "broken", text))

    async def aclose(self) -> None:
        await self._stream.aclose()


def _waits(request: httpx.Request, resumed: dict[str, Any]) -> _Waits | None:
    """The request whose answer is awaited here: a posted one, or one whose stream is resumed."""
    if request.method == "GET":
        last_id = request.headers.get("last-event-id")
        if last_id in resumed:
            return _Waits(resumed.pop(last_id))
        return None
    if request.method != "POST":
        return None
    message = json.loads(request.content)
    if "method" in message and "id" in message:
        return _Waits(message["id"])
    return None


def _leads_back(request: httpx.Request, response: httpx.Response) -> bool:
    """A redirect within the server, which the transport follows."""
    following, sent = response.next_request, request.url
    if following is None or following.method != request.method or following.url.host != sent.host:
        return False
    same = (following.url.scheme, following.url.port) == (sent.scheme, sent.port)
    return same or (sent.scheme, sent.port, following.url.scheme, following.url.port) == (
        "http",
        None,
        "https",
        None,
    )


def _answers(body: bytes, request_id: Any) -> bool:
    try:
        message = json.loads(body)
    except ValueError:
        return False
    return (
        isinstance(message, dict)
        and message.get("id") == request_id
        and ("result" in message or "error" in message)
    )


def _said(body: bytes) -> str:
    """The error that a server explains in its body, as JSON-RPC or as plain JSON."""
    try:
        told = json.loads(body[:_MOST_OF_ERROR])
    except ValueError:
        return ""
    error = told.get("error") if isinstance(told, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    if isinstance(text, str):
        return text
    return ""


def _error(request_id: Any, fate: McpDeliveryStatus, text: str) -> bytes:
    error = {"code": _FAILED, "message": text, "data": {DELIVERY_STATUS_KEY: fate}}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()


def _event(answer: bytes) -> bytes:
    return b"event: message\ndata: " + answer + b"\n\n"
