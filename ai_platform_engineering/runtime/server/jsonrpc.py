"""JSON-RPC dispatcher for protocol 1.0 and 0.3: the SDK's, with our streaming and error responses.

The overridden methods are no public API of the SDK, so its version is pinned and each has a contract test.
"""

import json
import logging
import math
import re
from typing import Any, NoReturn

from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter, _to_v03_jsonrpc_error
from a2a.server.context import ServerCallContext
from a2a.server.jsonrpc_models import InternalError, JSONParseError
from a2a.utils import constants
from a2a.utils.errors import A2AError, InvalidRequestError
from a2a.utils.version_validator import validate_version
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.core.events import clean_json
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.identity import CallContextBuilder
from ai_platform_engineering.runtime.server.request_handler import LogRequestHandler

# isort: skip - must come first: the adapter imports in a circle
from ai_platform_engineering.runtime.server.sdk_routes import JsonRpcDispatcher
from ai_platform_engineering.runtime.server.sse_stream import LogStream, OpenStreams, StreamStart

_JSON_TYPES = ("application/json", "application/a2a+json")
_PART_KINDS = ("text", "file", "data")
_INTERNAL_ERROR = "Internal error. The server's log says more."
_INVALID_ENVELOPE = (
    'Invalid Request: send one object {"jsonrpc": "2.0", "id": a string or a number, "method": a string, '
    '"params": an object}.'
)
_UNREADABLE_MESSAGE = "params.message: it is nested too deeply, or a number or a file in it cannot be read"
_MESSAGE_METHODS = ("message/send", "message/stream")
_INVALID_REQUEST = -32600
_INVALID_PARAMS = -32602


class Adapter03(JSONRPC03Adapter):
    """The SDK's adapter for protocol 0.3, with streams from the run log and -32602 for bad parameters."""

    def __init__(self, handler: LogRequestHandler, context_builder: Any, streams: OpenStreams) -> None:
        super().__init__(handler, context_builder)
        self._log_handler = handler
        self._streams = streams

    async def handle_request(
        self, request_id: str | int | None, method: str, body: dict[str, Any], request: Request
    ) -> Any:
        try:
            model: Any = self.METHOD_TO_MODEL[method]
            request_obj = model.model_validate(body)
        except ValidationError as error:
            return _validation_error_response(request_id, error)
        message = (body.get("params") or {}).get("message") or {}
        if any(part.get("kind") not in _PART_KINDS for part in message.get("parts") or ()):
            reason = "params.message.parts: every part needs a kind: text, file or data"
            return _error_response(request_id, _INVALID_PARAMS, "Invalid params", [reason])
        try:
            if method in _MESSAGE_METHODS:
                conversions.to_core_send_message_request(request_obj)
        except Exception:  # noqa: BLE001 - whatever the conversion raises, the message is wrong
            return _error_response(request_id, _INVALID_PARAMS, "Invalid params", [_UNREADABLE_MESSAGE])
        return await super().handle_request(request_id, method, body, request)

    def _generate_error_response(self, request_id: str | int | None, error: Any) -> JSONResponse:
        return super()._generate_error_response(request_id, _remove_details(error))

    @validate_version(constants.PROTOCOL_VERSION_0_3)
    async def _process_streaming_request(
        self, request_id: Any, request_obj: Any, context: ServerCallContext
    ) -> Any:
        try:
            start = await self._open_stream(request_obj, context)
        except A2AError as refusal:
            # In 0.3 a stream's refusal is an event of the stream: clients insist on the content type.
            error = _to_v03_jsonrpc_error(refusal).model_dump(by_alias=True, exclude_none=True)
            frame = json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
            return Response(f"data: {frame}\n\n", media_type="text/event-stream")
        return LogStream(start, request_id, is_v03=True, streams=self._streams)

    async def _open_stream(self, request_obj: Any, context: ServerCallContext) -> StreamStart:
        start: StreamStart
        if request_obj.method == "message/stream":
            message_request = conversions.to_core_send_message_request(request_obj)
            start = await self._log_handler.open_message(message_request, context)
        else:
            subscribe_request = conversions.to_core_subscribe_to_task_request(request_obj)
            start = await self._log_handler.open_subscription(subscribe_request, context)
        return start


def _remove_exception_text(record: logging.LogRecord) -> bool:
    """A log filter that replaces an exception of the SDK by its traceback without the text.

    The text of a parser quotes the request, which may hold a secret."""
    if record.exc_info and record.exc_info[1] is not None:
        record.msg = f"{record.getMessage()}: {format_traceback(record.exc_info[1])}"
        record.args = ()
        record.exc_info = None
        record.exc_text = None
    return True


for _name in ("a2a.server.routes.jsonrpc_dispatcher", "a2a.compat.v0_3.jsonrpc_adapter"):
    logging.getLogger(_name).addFilter(_remove_exception_text)


class Dispatcher(JsonRpcDispatcher):
    """The SDK's dispatcher with a size limit, strict JSON, ASCII responses, and streams from the run log."""

    def __init__(self, handler: LogRequestHandler, streams: OpenStreams, *, max_request_bytes: int) -> None:
        super().__init__(handler, context_builder=CallContextBuilder(), enable_v0_3_compat=True)
        self._log_handler = handler
        self._streams = streams
        self._max_bytes = max_request_bytes
        self._v03_adapter = Adapter03(handler, self._context_builder, streams)

    async def handle_requests(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON_TYPES:
            return PlainTextResponse("Unsupported media type: send application/json.\n", 415)
        if not await self._read_body(request):
            reason = (
                f"The request is larger than {self._max_bytes} bytes. "
                "Send less, or raise A2A_MAX_REQUEST_BYTES."
            )
            error = {"code": _INVALID_REQUEST, "message": reason}
            return AsciiJSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 413)
        try:
            body = _parse_json(await request.body())
        except json.JSONDecodeError as problem:
            reason = f"Parse error at line {problem.lineno}, column {problem.colno}: this is not JSON."
            return self._generate_error_response(None, JSONParseError(message=reason))
        except (ValueError, RecursionError):
            reason = "Parse error: this is not JSON in UTF-8, or too deep."
            return self._generate_error_response(None, JSONParseError(message=reason))
        if isinstance(body, dict):
            body.setdefault("jsonrpc", "2.0")
        request._json = body  # Starlette's cache: the SDK sees the same object
        return _to_ascii(await super().handle_requests(request))

    async def _read_body(self, request: Request) -> bool:
        """Reads the body into Starlette's cache; false if it is larger than the limit."""
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > self._max_bytes:
                return False
            chunks.append(chunk)
        request._body = b"".join(chunks)
        return True

    def _generate_error_response(self, request_id: str | int | None, error: Any) -> JSONResponse:
        return super()._generate_error_response(request_id, _remove_details(error))

    @validate_version(constants.PROTOCOL_VERSION_1_0)
    async def _process_streaming_request(
        self, request_id: Any, request_obj: Any, context: ServerCallContext
    ) -> Any:
        if context.state["method"] == "SubscribeToTask":
            return await self._log_handler.open_subscription(request_obj, context)
        return await self._log_handler.open_message(request_obj, context)

    def _create_response(self, context: ServerCallContext, handler_result: Any) -> Response:
        if isinstance(handler_result, StreamStart):
            return LogStream(handler_result, context.state["request_id"], is_v03=False, streams=self._streams)
        return super()._create_response(context, handler_result)


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


def _remove_details(error: Any) -> Any:
    """The error without texts that may hold a secret: of a parser's only the field's name is left.

    The text of an unforeseen exception stays in the log."""
    if isinstance(error, A2AError) and isinstance(error.data, dict) and "parseError" in error.data:
        if isinstance(error, InvalidRequestError):
            return InvalidRequestError(message=_INVALID_ENVELOPE)
        field = ".".join(re.findall(r"Failed to parse (\w+) field", str(error.data["parseError"])))
        if field:
            return type(error)(message=f"Invalid params: {field} cannot be read.")
        return type(error)(message="Invalid params: send an object.")
    if isinstance(error, A2AError):
        return error
    if hasattr(error, "code") and not isinstance(error, InternalError):
        return error
    return InternalError(message=_INTERNAL_ERROR)


def _validation_error_response(request_id: Any, error: ValidationError) -> JSONResponse:
    details: list[str] = []
    is_in_params = False
    for problem in error.errors(include_input=False):
        location = ".".join(map(str, problem["loc"]))
        details.append(f"{location}: {problem['msg']}")
        if problem["loc"][:1] == ("params",):
            is_in_params = True
    if is_in_params:
        return _error_response(request_id, _INVALID_PARAMS, "Invalid params", details)
    return _error_response(request_id, _INVALID_REQUEST, "Invalid Request", details)


def _error_response(request_id: Any, code: int, message: str, detail: list[str]) -> JSONResponse:
    return AsciiJSONResponse(
        {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message, "data": detail}}
    )


def _to_ascii(response: Response) -> Response:
    """The response with its JSON ASCII-escaped and its integers restored."""
    if not isinstance(response, JSONResponse):
        return response
    body = json.dumps(restore_integers(json.loads(bytes(response.body))), separators=(",", ":"))
    return Response(body, response.status_code, media_type="application/json")
