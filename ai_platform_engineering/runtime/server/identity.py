"""Whose request it is: the principal, who speaks, and the owner, whose conversations it is about. For most requests they are one."""

from a2a.server.context import ServerCallContext
from starlette.requests import Request

from ai_platform_engineering.runtime.server.authentication import OnBehalfOfUser
from ai_platform_engineering.runtime.server.sdk_routes import DefaultServerCallContextBuilder

_OWNER = "caipe.owner"  # in the state of a call; what a client sends never gets there


class CallContextBuilder(DefaultServerCallContextBuilder):
    """The SDK's context, with the owner beside its user."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[_OWNER] = owner_of_request(request)
        return context


def owner_of_call(context: ServerCallContext) -> str:
    return str(context.state.get(_OWNER, context.user.user_name))


def owner_of_request(request: Request) -> str:
    user = request.scope.get("user")
    if isinstance(user, OnBehalfOfUser):
        return user.owner
    return principal_of_request(request)


def principal_of_request(request: Request) -> str:
    """Empty where nobody is known."""
    user = request.scope.get("user")
    if user is not None:
        return str(user.display_name)
    return ""
