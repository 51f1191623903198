"""The JSON-RPC endpoint for protocols 1.0 and 0.3: limits, strict JSON, and which protocol answers.

The SDK has a dispatcher of its own, whose import brings FastAPI with it: 10 MB and a quarter of a second at
every start.
"""

import json
import logging
import math
from typing import Any, NoReturn

from a2a.server.jsonrpc_models import JSONParseError
from a2a.utils.errors import A2AError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ai_platform_engineering.core.events import clean_json
from ai_platform_engineering.core.json_limits import JsonTooLarge
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.call_context import CallContextBuilder, is_v03_client
from ai_platform_engineering.runtime.server.identity import owner_of_request
from ai_platform_engineering.runtime.server.jsonrpc_03 import STREAMING_METHODS, Methods03
from ai_platform_engineering.runtime.server.jsonrpc_10 import Methods10
from ai_platform_engineering.runtime.server.jsonrpc_call import read_call, read_request_id
from ai_platform_engineering.runtime.server.jsonrpc_errors import (
    INVALID_PARAMS,
    create_error_response,
    create_error_stream,
    create_internal_error,
    create_problem_response,
    create_too_large_response,
)
from ai_platform_engineering.runtime.server.request_handler import LogRequestHandler
from ai_platform_engineering.runtime.server.request_limits import RequestLimits
from ai_platform_engineering.runtime.server.sse_stream import LogStream, OpenStreams, TooManyStreams

log = logging.getLogger(__name__)

_JSON_TYPES = ("application/json", "application/a2a+json")
_WAITING_METHODS = frozenset(
    (
        "message/send",
        "message/stream",
        "tasks/resubscribe",
        "SendMessage",
        "SendStreamingMessage",
        "SubscribeToTask",
    )
)
_BUSY = -32000  # of the codes that JSON-RPC leaves to servers


class Dispatcher:
    """Answers requests to the endpoint: JSON in ASCII, or a stream from the run log."""

    def __init__(
        self,
        handler: LogRequestHandler,
        streams: OpenStreams,
        limits: RequestLimits,
        context_builder: CallContextBuilder,
    ) -> None:
        self._streams = streams
        self._limits = limits
        self._methods_10 = Methods10(handler, context_builder, streams)
        self._methods_03 = Methods03(handler, context_builder, streams)

    async def handle_requests(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON_TYPES:
            return PlainTextResponse("Unsupported media type: send application/json.\n", 415)
        content = await self._read_body(request)
        if content is None:
            return create_too_large_response(
                f"The request is larger than {self._limits.body_bytes} bytes. "
                "Send less, or raise A2A_MAX_REQUEST_BYTES."
            )
        try:
            self._limits.json.check(content)
            body = _parse_json(content)
        except JsonTooLarge as refusal:
            reason = f"{refusal} Send less, or raise A2A_MAX_JSON_VALUES or A2A_MAX_JSON_DEPTH."
            return create_too_large_response(reason)
        except json.JSONDecodeError as problem:
            reason = f"Parse error at line {problem.lineno}, column {problem.colno}: this is not JSON."
            return create_error_response(None, JSONParseError(message=reason))
        except (ValueError, RecursionError):
            reason = "Parse error: this is not JSON in UTF-8, or too deep."
            return create_error_response(None, JSONParseError(message=reason))
        if not isinstance(body, dict):
            return await self._answer(request, body)
        body.setdefault("jsonrpc", "2.0")
        response = await self._answer_object(request, body)
        is_refused = isinstance(response, AsciiJSONResponse) and response.status_code == 200
        if is_refused and body.get("method") in STREAMING_METHODS and is_v03_client(request):
            return create_error_stream(response)
        return response

    async def _answer_object(self, request: Request, body: dict[str, Any]) -> Response:
        excess = self._limits.find_problem(body)
        if excess:
            request_id = self._limits.echoed_id(body)
            return create_problem_response(request_id, INVALID_PARAMS, "Invalid params", [excess])
        if str(body.get("method")) in _WAITING_METHODS:
            return await self._answer_waiting(request, body)
        return await self._answer(request, body)

    async def _answer_waiting(self, request: Request, body: dict[str, Any]) -> Response:
        """Answers a call that takes as long as the run, within the limits of open streams."""
        try:
            release = self._streams.reserve(owner_of_request(request))
        except TooManyStreams as refusal:
            error = {"code": _BUSY, "message": str(refusal)}
            answer = {"jsonrpc": "2.0", "id": self._limits.echoed_id(body), "error": error}
            return AsciiJSONResponse(answer, refusal.status_code, refusal.headers)
        response: Response | None = None
        try:
            response = await self._answer(request, body)
        finally:
            if isinstance(response, LogStream):
                response.release = release
            else:
                release()
        return response

    async def _answer(self, request: Request, body: Any) -> Response:
        try:
            call = read_call(body)
            if self._methods_03.supports(call.method):
                return await self._methods_03.answer(call, request)
            return await self._methods_10.answer(call, request)
        except A2AError as error:
            return create_error_response(read_request_id(body), error)
        except Exception as error:  # noqa: BLE001 - its text may hold a secret and stays in the log
            log.error("a request failed: %s", format_traceback(error))
            return create_error_response(read_request_id(body), create_internal_error(error))

    async def _read_body(self, request: Request) -> bytes | None:
        """The body; None if it is larger than the limit."""
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > self._limits.body_bytes:
                return None
            chunks.append(chunk)
        return b"".join(chunks)


def _parse_json(raw: bytes) -> Any:
    """Parses strict JSON in UTF-8; a lone surrogate becomes U+FFFD, since UTF-8 cannot hold it."""
    text = raw.decode("utf-8-sig")
    body = json.loads(text, parse_constant=_reject_number, parse_float=_parse_finite_float)
    if "\\ud" in text.lower():
        return clean_json(body)
    return body


def _reject_number(text: str) -> NoReturn:
    raise ValueError("not a number of JSON")


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if math.isfinite(number):
        return number
    return _reject_number(text)
