"""An HTTP client that turns every failure into a JSON-RPC error for the request it hit.

The MCP library's transport drops a whole session when one request fails to connect, and does not say whether
a request that failed has reached the server. Here each request that can get no answer gets one from us: a
JSON-RPC error whose `data` has the delivery status. The session and the other calls go on.
"""

import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.secret_redactor import redact_url
from ai_platform_engineering.mcp_client.transport import DELIVERY_STATUS_KEY, McpDeliveryStatus
from ai_platform_engineering.net.bounded_responses import ResponseTooLarge

log = logging.getLogger(__name__)

_ERROR_CODE = -32000
_CLOSE_TIMEOUT = 2.0
_STREAM = "text/event-stream"
_JSON = "application/json"
_NOT_DELIVERED_ERRORS = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
    httpx2.ProxyError,
)
_TRANSPORT_ERRORS = (httpx2.TransportError, ResponseTooLarge)
_MAX_ERROR_BODY_BYTES = 2000
_MAX_EVENT_ID_BYTES = 1000
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")

_STATUS_TEXTS = {
    401: "it refused our credentials",
    403: "it refused our credentials",
    404: "there is no MCP endpoint, or the session has ended",
    405: "there is no MCP endpoint",
    429: "it is busy (rate limit)",
}


class JsonRpcErrorClient(httpx2.AsyncClient):
    """Sends what the library's transport sends, and lets no request go without an answer."""

    def __init__(self, server: McpServer, **options: Any) -> None:
        super().__init__(**options)
        self._address = redact_url(server)
        # The last event id of a stream that can be resumed -> the request that it answers.
        self._resumable: dict[str, _PendingRequest] = {}

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        pending = _find_pending_request(request, self._resumable)
        _set_timeout(request, pending)
        try:
            response = await super().send(request, **options)
        except _TRANSPORT_ERRORS as error:
            if pending is not None:
                status: McpDeliveryStatus = "unknown"
                if isinstance(error, _NOT_DELIVERED_ERRORS):
                    status = "not delivered"
                return _make_error_response(request, pending, status, self._explain_error(error))
            if request.method == "POST":
                return _accept_notification(request)
            raise
        if _redirects_within_server(request, response):
            return response
        if pending is not None:
            return await self._check_response(request, response, pending)
        if request.method == "POST" and not response.is_success:
            await response.aclose()
            return _accept_notification(request)
        return response

    async def _check_response(
        self, request: httpx2.Request, response: httpx2.Response, pending: "_PendingRequest"
    ) -> httpx2.Response:
        """The response as it is, if it holds an answer or will; else one of ours."""
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.is_success and content_type == _STREAM:
            response.stream = _AnswerStream(response.stream, pending, self._resumable, self._explain_error)
            return response
        try:
            body = await response.aread()
        except _TRANSPORT_ERRORS as error:
            return _make_error_response(request, pending, "unknown", self._explain_error(error))
        finally:
            await response.aclose()
        if response.is_success:
            is_json = response.status_code != 202 and content_type == _JSON
            if is_json and _is_answer(body, pending.request_id):
                return response
            text = f"{self._address} answers something that is not MCP"
            return _make_error_response(request, pending, "rejected", text)
        status: McpDeliveryStatus = "rejected"
        if response.status_code in (400, 404) and "mcp-session-id" in request.headers:
            # A session that the server has forgotten, after a restart for example: 404 by the book, 400 in
            # practice.
            status = "not delivered"
        return _make_error_response(request, pending, status, self._explain_status(response, body))

    def _explain_error(self, error: Exception) -> str:
        if isinstance(error, ResponseTooLarge):
            log.warning("mcp: the answer of %s is not read. %s", self._address, error)
            return f"the answer of {self._address} is not read. {error}"
        text = str(error).lower()
        if "certificate" in text or "ssl" in text:
            return (
                f"the certificate of {self._address} could not be verified "
                "(SSL_CERT_FILE names the authorities to trust)"
            )
        if isinstance(error, httpx2.UnsupportedProtocol):
            return f"{self._address} is not an http or https address"
        if isinstance(error, httpx2.ConnectError):
            return f"nothing answers at {self._address}"
        if isinstance(error, httpx2.TimeoutException):
            return f"{self._address} does not answer in time"
        return f"the connection to {self._address} broke off"

    def _explain_status(self, response: httpx2.Response, body: bytes) -> str:
        if response.next_request is not None:
            target = response.next_request.url.copy_with(userinfo=b"", query=None)
            return f"it redirects to {target}, which is not followed; use that address if it is the right one"
        text = _STATUS_TEXTS.get(response.status_code) or _read_error_text(body)
        if not text and response.is_server_error:
            text = "it has a problem"
        elif not text:
            text = "it refused the request"
        return f"{text} (HTTP {response.status_code} from {self._address})"


class _PendingRequest:
    """A JSON-RPC request that somebody waits for."""

    def __init__(self, request_id: Any) -> None:
        self.request_id = request_id


class _AnswerStream(httpx2.AsyncByteStream):
    """A stream that is to bring an answer: if it ends without, and cannot be resumed, the answer is ours.

    The library stops reading at the answer, so whoever gets to the end has not had one.
    """

    def __init__(
        self,
        stream: Any,
        pending: _PendingRequest,
        resumable: dict[str, _PendingRequest],
        explain_error: Callable[[Exception], str],
    ) -> None:
        self._stream = stream
        self._pending = pending
        self._resumable = resumable
        self._explain_error = explain_error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        last_event_id = ""
        rest = b""
        text = "the stream ended without an answer"
        try:
            async for chunk in self._stream:
                *lines, rest = (rest + chunk).split(b"\n")
                rest = rest[:_MAX_EVENT_ID_BYTES]  # of a long line only the beginning matters here
                for line in lines:
                    if line.startswith(b"id:"):
                        last_event_id = line[3:].strip().decode(errors="replace")
                # The limits hand on whole events; what else there is broke off in the middle.
                if chunk.endswith(_EVENT_ENDS):
                    yield chunk
        except _TRANSPORT_ERRORS as error:
            text = self._explain_error(error)
        if last_event_id:
            self._resumable[last_event_id] = self._pending
        else:
            yield b"\n\n" + _make_event(_make_error(self._pending.request_id, "unknown", text))

    async def aclose(self) -> None:
        await self._stream.aclose()


def _find_pending_request(
    request: httpx2.Request, resumable: dict[str, _PendingRequest]
) -> _PendingRequest | None:
    """The JSON-RPC request whose answer is awaited: a posted one, or one whose stream is resumed."""
    if request.method == "GET":
        return resumable.pop(request.headers.get("last-event-id", ""), None)
    if request.method != "POST":
        return None
    message = json.loads(request.content)
    if "method" in message and "id" in message:
        return _PendingRequest(message["id"])
    return None


def _set_timeout(request: httpx2.Request, pending: _PendingRequest | None) -> None:
    timeout = dict(request.extensions.get("timeout") or {})
    if request.method == "DELETE":  # the end of the session: a courtesy, not worth waiting for
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), _CLOSE_TIMEOUT)
    elif request.method == "GET" and pending is None:  # the server's own messages, which may be rare
        timeout["read"] = None
    request.extensions["timeout"] = timeout


def _redirects_within_server(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Whether the transport follows the redirect: to the same server, or from http to https there."""
    redirect = response.next_request
    if redirect is None or redirect.method != request.method or redirect.url.host != request.url.host:
        return False
    source_origin = (request.url.scheme, request.url.port)
    target_origin = (redirect.url.scheme, redirect.url.port)
    if source_origin == target_origin:
        return True
    return source_origin == ("http", None) and target_origin == ("https", None)


def _is_answer(body: bytes, request_id: Any) -> bool:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(message, dict) or message.get("id") != request_id:
        return False
    return "result" in message or "error" in message


def _read_error_text(body: bytes) -> str:
    """The error that a server explains in its body, as JSON-RPC or as plain JSON."""
    try:
        message = json.loads(body[:_MAX_ERROR_BODY_BYTES])
    except (ValueError, RecursionError):
        return ""
    if not isinstance(message, dict):
        return ""
    error = message.get("error")
    if isinstance(error, dict):
        error = error.get("message")
    if isinstance(error, str):
        return error
    return ""


def _accept_notification(request: httpx2.Request) -> httpx2.Response:
    """The response to a notification, whatever became of it: nobody waits for an answer."""
    return httpx2.Response(202, request=request)


def _make_error_response(
    request: httpx2.Request, pending: _PendingRequest, status: McpDeliveryStatus, text: str
) -> httpx2.Response:
    if request.method == "GET":  # a resumed stream: the request itself was taken long ago
        content = _make_event(_make_error(pending.request_id, "unknown", text))
        return httpx2.Response(200, headers={"content-type": _STREAM}, content=content, request=request)
    content = _make_error(pending.request_id, status, text)
    return httpx2.Response(200, headers={"content-type": _JSON}, content=content, request=request)


def _make_error(request_id: Any, status: McpDeliveryStatus, text: str) -> bytes:
    error = {"code": _ERROR_CODE, "message": text, "data": {DELIVERY_STATUS_KEY: status}}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()


def _make_event(answer: bytes) -> bytes:
    return b"event: message\ndata: " + answer + b"\n\n"
