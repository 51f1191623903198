"""JSON-RPC at one URL for protocol 1.0 and 0.3: the SDK's checks and conversions, with our streaming and our corrections.

The overridden methods are not public API of the SDK, so its version is pinned and each has a contract test.
"""

import json
import logging
import math
import re
from typing import Any, NoReturn

from ai_platform_engineering.runtime.server.sdk_routes import JsonRpcDispatcher  # isort: skip - must come first: the adapter imports in a circle
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
from ai_platform_engineering.runtime.server.sse_stream import LogStream, OpenStreams, StreamStart

_JSON_TYPES = ("application/json", "application/a2a+json")
_PART_KINDS = ("text", "file", "data")
_HIDDEN = "Internal error. The server's log says more."
_ENVELOPE = 'Invalid Request: send one object {"jsonrpc": "2.0", "id": a string or a number, "method": a string, "params": an object}.'
_UNREADABLE = "params.message: it is nested too deeply, or a number or a file in it cannot be read"
_MESSAGES = ("message/send", "message/stream")


class Adapter03(JSONRPC03Adapter):
    """Protocol 0.3: bad parameters are -32602, streams follow the log."""

    def __init__(self, handler: LogRequestHandler, context_builder: Any, streams: OpenStreams) -> None:
        super().__init__(handler, context_builder)
        self._log_handler, self._streams = handler, streams

    async def handle_request(
        self, request_id: str | int | None, method: str, body: dict[str, Any], request: Request
    ) -> Any:
        try:
            model: Any = self.METHOD_TO_MODEL[method]
            asked = model.model_validate(body)
        except ValidationError as error:
            bad_params = any(found["loc"][:1] == ("params",) for found in error.errors())
            detail = [
                f"{'.'.join(map(str, found['loc']))}: {found['msg']}"
                for found in error.errors(include_input=False)
            ]
            return _refused(
                request_id,
                *((-32602, "Invalid params") if bad_params else (-32600, "Invalid Request")),
                detail,
            )
        message = (body.get("params") or {}).get("message") or {}
        if any(part.get("kind") not in _PART_KINDS for part in message.get("parts") or ()):
            return _refused(
                request_id,
                -32602,
                "Invalid params",
                ["params.message.parts: every part needs a kind: text, file or data"],
            )
        try:
            if method in _MESSAGES:
                conversions.to_core_send_message_request(asked)
        except Exception:  # noqa: BLE001 - whatever a conversion stumbles over, the message is what is wrong
            return _refused(request_id, -32602, "Invalid params", [_UNREADABLE])
        return await super().handle_request(request_id, method, body, request)

    def _generate_error_response(self, request_id: str | int | None, error: Any) -> JSONResponse:
        return super()._generate_error_response(request_id, _without_details(error))

    @validate_version(constants.PROTOCOL_VERSION_0_3)
    async def _process_streaming_request(
        self, request_id: Any, request_obj: Any, context: ServerCallContext
    ) -> Any:
        try:
            opened = await self._opened(request_obj, context)
        except A2AError as refusal:
            # In 0.3 a stream's refusal is an event of the stream: clients insist on the content type.
            error = _to_v03_jsonrpc_error(refusal).model_dump(by_alias=True, exclude_none=True)
            frame = json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
            return Response(f"data: {frame}\n\n", media_type="text/event-stream")
        return LogStream(opened, request_id, is_v03=True, streams=self._streams)

    async def _opened(self, request_obj: Any, context: ServerCallContext) -> StreamStart:
        opened: StreamStart
        if request_obj.method == "message/stream":
            opened = await self._log_handler.open_message(
                conversions.to_core_send_message_request(request_obj), context
            )
        else:
            opened = await self._log_handler.open_subscription(
                conversions.to_core_subscribe_to_task_request(request_obj), context
            )
        return opened


def _without_exception_text(record: logging.LogRecord) -> bool:
    """Logs where an exception of the SDK came from and not its text: a parser quotes the request, and a request may hold a secret."""
    if record.exc_info and record.exc_info[1] is not None:
        record.msg, record.args = f"{record.getMessage()}: {format_traceback(record.exc_info[1])}", ()
        record.exc_info = record.exc_text = None
    return True


for _name in ("a2a.server.routes.jsonrpc_dispatcher", "a2a.compat.v0_3.jsonrpc_adapter"):
    logging.getLogger(_name).addFilter(_without_exception_text)


class Dispatcher(JsonRpcDispatcher):
    def __init__(self, handler: LogRequestHandler, streams: OpenStreams, *, max_request_bytes: int) -> None:
        super().__init__(handler, context_builder=CallContextBuilder(), enable_v0_3_compat=True)
        self._log_handler = handler
        self._streams = streams
        self._max_bytes = max_request_bytes
        self._v03_adapter = Adapter03(handler, self._context_builder, streams)

    async def handle_requests(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON_TYPES:
            return PlainTextResponse("Unsupported media type: send application/json.\n", 415)
        if not await self._read(request):
            limit = f"The request is larger than {self._max_bytes} bytes. Send less, or raise A2A_MAX_REQUEST_BYTES."
            too_large = {"code": -32600, "message": limit}
            return AsciiJSONResponse({"jsonrpc": "2.0", "id": None, "error": too_large}, 413)
        try:
            body = _parsed(await request.body())
        except json.JSONDecodeError as error:
            place = f"Parse error at line {error.lineno}, column {error.colno}: this is not JSON."
            return self._generate_error_response(None, JSONParseError(message=place))
        except (ValueError, RecursionError):
            return self._generate_error_response(
                None, JSONParseError(message="Parse error: this is not JSON in UTF-8, or too deep.")
            )
        if isinstance(body, dict):
            body.setdefault("jsonrpc", "2.0")
        request._json = body  # where Starlette keeps its own: the SDK sees the same object
        return _ascii(await super().handle_requests(request))

    async def _read(self, request: Request) -> bool:
        """Reads the body within the limit; Starlette finds it where it keeps its own."""
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
        return super()._generate_error_response(request_id, _without_details(error))

    @validate_version(constants.PROTOCOL_VERSION_1_0)
    async def _process_streaming_request(
        self, request_id: Any, request_obj: Any, context: ServerCallContext
    ) -> Any:
        subscribes = context.state["method"] == "SubscribeToTask"
        return await (self._log_handler.open_subscription if subscribes else self._log_handler.open_message)(
            request_obj, context
        )

    def _create_response(self, context: ServerCallContext, handler_result: Any) -> Response:
        if isinstance(handler_result, StreamStart):
            return LogStream(handler_result, context.state["request_id"], is_v03=False, streams=self._streams)
        return super()._create_response(context, handler_result)


def _parsed(raw: bytes) -> Any:
    """Strict JSON in UTF-8; half an emoji becomes U+FFFD, since nothing behind this door can hold it."""
    text = raw.decode("utf-8-sig")
    body = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    if "\\ud" in text.lower():
        return clean_json(body)
    return body


def _no_number(text: str) -> NoReturn:
    raise ValueError("not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isfinite(number):
        return number
    return _no_number(text)


def _without_details(error: Any) -> Any:
    """An unforeseen exception's text stays in the log: it may hold a secret. Of a parser's text the field's name is kept."""
    if isinstance(error, A2AError) and isinstance(error.data, dict) and "parseError" in error.data:
        if isinstance(error, InvalidRequestError):
            return InvalidRequestError(message=_ENVELOPE)
        field = ".".join(re.findall(r"Failed to parse (\w+) field", str(error.data["parseError"])))
        return type(error)(
            message=f"Invalid params: {field} cannot be read." if field else "Invalid params: send an object."
        )
    foreseen = isinstance(error, A2AError) or (
        hasattr(error, "code") and not isinstance(error, InternalError)
    )
    if foreseen:
        return error
    return InternalError(message=_HIDDEN)


def _refused(request_id: Any, code: int, message: str, detail: list[str]) -> JSONResponse:
    return AsciiJSONResponse(
        {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message, "data": detail}}
    )


def _ascii(response: Response) -> Response:
    """The same JSON, ASCII-escaped, as everything on this wire."""
    if not isinstance(response, JSONResponse):
        return response
    body = json.dumps(restore_integers(json.loads(bytes(response.body))), separators=(",", ":"))
    return Response(body, response.status_code, media_type="application/json")
