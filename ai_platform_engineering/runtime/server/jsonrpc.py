"""The JSON-RPC endpoint for protocols 1.0 and 0.3: limits, strict JSON, and which protocol answers.

The SDK has a dispatcher of its own, whose import brings FastAPI with it: 10 MB and a quarter of a second at
every start.
"""

import logging
from functools import partial
from typing import Any

from a2a.server.jsonrpc_models import JSONParseError
from a2a.utils.errors import A2AError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.call_context import CallContextBuilder, is_v03_client
from ai_platform_engineering.runtime.server.identity import owner_of_request
from ai_platform_engineering.runtime.server.jsonrpc_03 import STREAMING_METHODS, Methods03
from ai_platform_engineering.runtime.server.jsonrpc_10 import JsonRpc10
from ai_platform_engineering.runtime.server.jsonrpc_call import read_call, read_request_id
from ai_platform_engineering.runtime.server.jsonrpc_errors import (
    INVALID_PARAMS,
    create_error_response,
    create_error_stream,
    create_internal_error,
    create_problem_response,
    create_too_large_response,
)
from ai_platform_engineering.runtime.server.methods_10 import WAITING_METHODS, Methods10
from ai_platform_engineering.runtime.server.request_body import (
    BodyTooLarge,
    NotJson,
    UnsupportedMediaType,
    check_media_type,
    parse_body,
    read_body,
)
from ai_platform_engineering.runtime.server.request_handler import LogRequestHandler
from ai_platform_engineering.runtime.server.request_limits import RequestLimits
from ai_platform_engineering.runtime.server.sse_stream import OpenStreams, TooManyStreams

log = logging.getLogger(__name__)

_WAITING_METHODS = WAITING_METHODS | {"message/send", "message/stream", "tasks/resubscribe"}
_BUSY = -32000  # of the codes that JSON-RPC leaves to servers


class Dispatcher:
    """Answers requests to the endpoint: JSON in ASCII, or a stream from the run log."""

    def __init__(
        self,
        handler: LogRequestHandler,
        streams: OpenStreams,
        limits: RequestLimits,
        context_builder: CallContextBuilder,
        methods: Methods10,
    ) -> None:
        self._streams = streams
        self._limits = limits
        self._methods_10 = JsonRpc10(methods, streams)
        self._methods_03 = Methods03(handler, context_builder, streams)

    async def handle_requests(self, request: Request) -> Response:
        try:
            check_media_type(request)
            body = parse_body(await read_body(request, self._limits), self._limits)
        except UnsupportedMediaType as refusal:
            return PlainTextResponse(f"{refusal}\n", 415)
        except BodyTooLarge as refusal:
            return create_too_large_response(str(refusal))
        except NotJson as problem:
            return create_error_response(None, JSONParseError(message=str(problem)))
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
            return await self._streams.run_within_limits(
                owner_of_request(request), partial(self._answer, request, body)
            )
        except TooManyStreams as refusal:
            error = {"code": _BUSY, "message": str(refusal)}
            answer = {"jsonrpc": "2.0", "id": self._limits.echoed_id(body), "error": error}
            return AsciiJSONResponse(answer, refusal.status_code, refusal.headers)

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
