"""Error responses of the HTTP+JSON binding (`google.rpc.Status`), with the reasons that clients map back."""

import logging
from collections.abc import Mapping
from http import HTTPStatus

from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError, ContentTypeNotSupportedError, InternalError, InvalidRequestError
from starlette.responses import Response

from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.jsonrpc_errors import create_internal_error
from ai_platform_engineering.runtime.server.sse_stream import TooManyStreams

log = logging.getLogger(__name__)

_BUSY_STATUSES = {HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED"}


def create_error_response(error: A2AError, status: HTTPStatus | None = None) -> Response:
    """The response of an error; `status` where HTTP says more than the SDK's table."""
    payload = build_rest_error_payload(error)
    if status is not None:
        payload["error"]["code"] = status.value
    log.info("a request is refused: %s", payload["error"]["status"])
    return AsciiJSONResponse(payload, payload["error"]["code"])


def create_too_large_response(reason: str) -> Response:
    return create_error_response(InvalidRequestError(message=reason), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def create_unsupported_media_response(reason: str) -> Response:
    return create_error_response(
        ContentTypeNotSupportedError(message=reason), HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    )


def create_busy_response(refusal: TooManyStreams) -> Response:
    """Too many streams are open; a header says when to try again."""
    status = _BUSY_STATUSES.get(HTTPStatus(refusal.status_code), "UNAVAILABLE")
    error = {"code": refusal.status_code, "status": status, "message": str(refusal)}
    headers: Mapping[str, str] = refusal.headers
    return AsciiJSONResponse({"error": error}, refusal.status_code, headers)


def create_internal_error_response(error: Exception) -> Response:
    return create_error_response(InternalError(message=create_internal_error(error).message))
