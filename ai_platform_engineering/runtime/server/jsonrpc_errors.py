"""Error responses of the JSON-RPC endpoint; none of them repeats a text that may hold a secret."""

import logging
from typing import Any

from a2a.compat.v0_3 import types as types_v03
from a2a.server.jsonrpc_models import InternalError, JSONRPCError
from a2a.utils.error_handlers import build_error_details
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from pydantic import ValidationError
from starlette.responses import Response

from ai_platform_engineering.core.failure_text import describe_for_client
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.jsonrpc_call import RequestId

log = logging.getLogger(__name__)

INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
_INTERNAL = -32603
_INTERNAL_ERROR = "Internal error. The server's log says more."
# Of protocol 0.3: its clients know no others.
_V03_CODES = frozenset({*range(-32007, -32000), -32700, *range(-32603, -32599)})


def create_error_response(request_id: RequestId, error: A2AError | JSONRPCError) -> Response:
    """The response of protocol 1.0, also for what belongs to no protocol yet."""
    if isinstance(error, A2AError):
        code = JSON_RPC_ERROR_CODE_MAP.get(type(error), _INTERNAL)
        error = JSONRPCError(code=code, message=str(error), data=build_error_details(error))
    log.info("a request is refused: %s", error.code)
    content = {"jsonrpc": "2.0", "id": request_id, "error": error.model_dump(exclude_none=True)}
    return AsciiJSONResponse(content)


def create_v03_error_response(request_id: RequestId, error: A2AError | JSONRPCError) -> Response:
    """The response of protocol 0.3."""
    if isinstance(error, A2AError):
        content = to_v03_error(error)
    else:
        content = error.model_dump(by_alias=True, exclude_none=True)
    return AsciiJSONResponse({"jsonrpc": "2.0", "id": request_id, "error": content})


def to_v03_error(error: A2AError) -> dict[str, Any]:
    """An error of ours as protocol 0.3 says it; one that it does not know is an internal error."""
    code = JSON_RPC_ERROR_CODE_MAP.get(type(error), _INTERNAL)
    if code not in _V03_CODES:
        code = _INTERNAL
    v03_error = types_v03.JSONRPCError(code=code, message=error.message, data=error.data)
    return v03_error.model_dump(by_alias=True, exclude_none=True)


def create_error_stream(response: Response) -> Response:
    """An error as the only event of a stream: clients of 0.3 insist on the content type."""
    return Response(b"data: " + bytes(response.body) + b"\n\n", media_type="text/event-stream")


def create_internal_error(error: Exception) -> InternalError:
    """The answer to an exception: in words if it can be told, else its text stays in the log."""
    text = describe_for_client(error)
    return InternalError(message=text.message if text else _INTERNAL_ERROR)


def create_problem_response(request_id: RequestId, code: int, message: str, detail: list[str]) -> Response:
    error = {"code": code, "message": message, "data": detail}
    return AsciiJSONResponse({"jsonrpc": "2.0", "id": request_id, "error": error})


def create_validation_response(request_id: RequestId, error: ValidationError) -> Response:
    details: list[str] = []
    is_in_params = False
    for problem in error.errors(include_input=False):
        location = ".".join(map(str, problem["loc"]))
        details.append(f"{location}: {problem['msg']}")
        if problem["loc"][:1] == ("params",):
            is_in_params = True
    if is_in_params:
        return create_problem_response(request_id, INVALID_PARAMS, "Invalid params", details)
    return create_problem_response(request_id, INVALID_REQUEST, "Invalid Request", details)


def create_too_large_response(reason: str) -> Response:
    error = {"code": INVALID_REQUEST, "message": reason}
    return AsciiJSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 413)
