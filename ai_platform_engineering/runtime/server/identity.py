"""The principal of a request (who speaks) and the owner of its conversations; mostly the same."""

from a2a.server.context import ServerCallContext
from starlette.requests import Request

from ai_platform_engineering.runtime.server.authentication import OnBehalfOfUser
from ai_platform_engineering.runtime.server.sdk_routes import DefaultServerCallContextBuilder

_OWNER_KEY = "caipe.owner"  # in the state of a call, which clients cannot set


class CallContextBuilder(DefaultServerCallContextBuilder):
    """Builds the SDK's call context with the owner in its state."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[_OWNER_KEY] = owner_of_request(request)
        return context


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
