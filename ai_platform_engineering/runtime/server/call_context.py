"""The context of a call: who calls, and in which shape the client gets events and tasks."""

from collections.abc import Mapping

from a2a.extensions.common import get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.utils import constants
from starlette.requests import Request

from ai_platform_engineering.a2a.client_shape import (
    EVENTS_EXTENSION,
    EXTENSIONS_HEADER,
    OLD_EXTENSIONS_HEADER,
    ClientShape,
    ShapeName,
    choose_shape,
)
from ai_platform_engineering.runtime.server.identity import RequestUser, owner_of_request

# In the state of a call, which clients cannot set.
_OWNER_KEY = "caipe.owner"
_SHAPE_KEY = "caipe.shape"
_V03_KEY = "caipe.v03"
_HEADERS_KEY = "headers"
_VERSION_HEADER = constants.VERSION_HEADER.lower()


class CallContextBuilder:
    """Builds the SDK's call context with the owner and the client's shape in its state."""

    def __init__(self, *, v03_shape: ShapeName = "rich", text_decisions: bool = True) -> None:
        """`v03_shape`: for clients of protocol 0.3 that activate no extension of ours.

        `text_decisions`: whether texts of clients without our extension may decide on approvals."""
        self._v03_shape: ShapeName = v03_shape
        self._text_decisions = text_decisions

    def build(self, request: Request, *, is_v03: bool | None = None) -> ServerCallContext:
        """`is_v03` is what the method says of the protocol version; else the header decides."""
        if is_v03 is None:
            is_v03 = is_v03_client(request)
        requested = get_requested_extensions(
            [
                *request.headers.getlist(EXTENSIONS_HEADER),
                *request.headers.getlist(OLD_EXTENSIONS_HEADER),
            ]
        )
        shape = choose_shape(
            requested, is_v03=is_v03, v03_shape=self._v03_shape, text_decisions=self._text_decisions
        )
        return ServerCallContext(
            user=RequestUser(request),
            state={
                _HEADERS_KEY: _read_headers(request),
                _OWNER_KEY: owner_of_request(request),
                _SHAPE_KEY: shape,
                _V03_KEY: is_v03,
            },
            requested_extensions=requested,
        )


def is_v03_client(request: Request) -> bool:
    """Whether the request names protocol 0.3, or no version, which means the same."""
    version = request.headers.get(constants.VERSION_HEADER) or _read_version_parameter(request)
    return not version or version.startswith("0.")


def _read_headers(request: Request) -> dict[str, str]:
    """The headers; of several with one name, the first. Starlette's mapping searches them for each name.

    The version may be a parameter of the query instead."""
    headers: dict[str, str] = {}
    for name, value in reversed(request.headers.raw):
        headers[name.decode("latin-1")] = value.decode("latin-1")
    if not headers.get(_VERSION_HEADER):
        headers[_VERSION_HEADER] = _read_version_parameter(request)
    return headers


def _read_version_parameter(request: Request) -> str:
    if not request.scope.get("query_string"):
        return ""
    return request.query_params.get(constants.VERSION_HEADER, "")


def headers_of_call(context: ServerCallContext) -> Mapping[str, str]:
    headers: Mapping[str, str] = context.state.get(_HEADERS_KEY) or {}
    return headers


def owner_of_call(context: ServerCallContext) -> str:
    return str(context.state.get(_OWNER_KEY, context.user.user_name))


def shape_of_call(context: ServerCallContext) -> ClientShape:
    shape = context.state.get(_SHAPE_KEY)
    if isinstance(shape, ClientShape):
        return shape
    return ClientShape()


def is_v03_call(context: ServerCallContext) -> bool:
    """Whether the method that is called is one of protocol 0.3."""
    return bool(context.state.get(_V03_KEY))


def extension_headers(context: ServerCallContext, *, is_v03: bool) -> dict[str, str]:
    """The headers of a response that name the activated extensions."""
    if EVENTS_EXTENSION not in context.requested_extensions:
        return {}
    headers = {EXTENSIONS_HEADER: EVENTS_EXTENSION}
    if is_v03:
        headers[OLD_EXTENSIONS_HEADER] = EVENTS_EXTENSION
    return headers
