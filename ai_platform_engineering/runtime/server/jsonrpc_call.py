"""A JSON-RPC call, read from the body of a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from a2a.utils.errors import InvalidRequestError

RequestId = str | int | None

_FIELDS = frozenset({"jsonrpc", "method", "params", "id"})
_RESERVED_PREFIX = "rpc."
_INVALID_ENVELOPE = (
    'Invalid Request: send one object {"jsonrpc": "2.0", "id": a string or a number, "method": a string, '
    '"params": an object}.'
)


@dataclass(frozen=True, slots=True)
class JsonRpcCall:
    """A method with its parameters; `body` is the whole object."""

    request_id: RequestId
    method: str
    params: Any
    body: Mapping[str, Any]


def read_call(body: Any) -> JsonRpcCall:
    """Raises InvalidRequestError."""
    if isinstance(body, list) and body and all(isinstance(item, dict) and "method" in item for item in body):
        raise InvalidRequestError(message="Batch requests are not supported")
    if not isinstance(body, dict) or not body.keys() <= _FIELDS:
        raise InvalidRequestError(message=_INVALID_ENVELOPE)
    method = body.get("method")
    if not isinstance(method, str) or method.startswith(_RESERVED_PREFIX):
        raise InvalidRequestError(message=_INVALID_ENVELOPE)
    if not isinstance(body.get("params"), dict | list | None):
        raise InvalidRequestError(message=_INVALID_ENVELOPE)
    request_id = body.get("id")
    if not isinstance(request_id, str | int | None):
        raise InvalidRequestError(message=_INVALID_ENVELOPE)
    if body.get("jsonrpc") != "2.0":
        raise InvalidRequestError(message="Invalid request: 'jsonrpc' must be exactly '2.0'")
    if isinstance(request_id, bool):
        raise InvalidRequestError(message="Invalid request: id must be a string, integer, or null")
    if not method:
        raise InvalidRequestError(message="Method is required")
    return JsonRpcCall(request_id, method, body.get("params", {}), body)


def read_request_id(body: Any) -> RequestId:
    """The id that an answer repeats; None for what is no id."""
    if not isinstance(body, dict):
        return None
    request_id = body.get("id")
    if isinstance(request_id, str | int) and not isinstance(request_id, bool):
        return request_id
    return None
