"""The principal of a request (who speaks) and the owner of its conversations; mostly the same."""

from a2a.auth.user import User
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from starlette.requests import Request

from ai_platform_engineering.runtime.server.authentication import OnBehalfOfUser

_OWNER_KEY = "caipe.owner"  # in the state of a call, which clients cannot set


class RequestUser(User):
    """The principal of a request, as the SDK wants it."""

    def __init__(self, request: Request) -> None:
        user = request.scope.get("user")
        self._is_authenticated = user is not None and bool(user.is_authenticated)
        self._name = principal_of_request(request)

    @property
    def is_authenticated(self) -> bool:
        return self._is_authenticated

    @property
    def user_name(self) -> str:
        return self._name


class CallContextBuilder:
    """Builds the SDK's call context with the owner in its state."""

    def build(self, request: Request) -> ServerCallContext:
        return ServerCallContext(
            user=RequestUser(request),
            state={"headers": _read_headers(request), _OWNER_KEY: owner_of_request(request)},
            requested_extensions=get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER)),
        )


def _read_headers(request: Request) -> dict[str, str]:
    """The headers; of several with one name, the first. Starlette's mapping searches them for each name."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.headers.raw)}


def owner_of_call(context: ServerCallContext) -> str:
    return str(context.state.get(_OWNER_KEY, context.user.user_name))


def owner_of_request(request: Request) -> str:
    user = request.scope.get("user")
    if isinstance(user, OnBehalfOfUser):
        return user.owner
    return principal_of_request(request)


def principal_of_request(request: Request) -> str:
    """The authenticated user's name; empty without one."""
    user = request.scope.get("user")
    if user is not None:
        return str(user.display_name)
    return ""
