"""Whose request it is: the principal, who speaks, and the owner, whose conversations it is about. For most requests they are one."""

from a2a.server.context import ServerCallContext
from starlette.requests import Request

from ai_platform_engineering.runtime.server.authentication import Acting
from ai_platform_engineering.runtime.server.sdk_routes import DefaultServerCallContextBuilder

_OWNER = "caipe.owner"  # in the state of a call; what a client sends never gets there


class ContextBuilder(DefaultServerCallContextBuilder):
    """The SDK's context, with the owner beside its user."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[_OWNER] = owner_of_request(request)
        return context


def owner_of(context: ServerCallContext) -> str:
    return str(context.state.get(_OWNER, context.user.user_name))


def owner_of_request(request: Request) -> str:
    user = request.scope.get("user")
    return user.owner if isinstance(user, Acting) else principal_of_request(request)


def principal_of_request(request: Request) -> str:
    """Empty where nobody is known."""
    user = request.scope.get("user")
    return str(user.display_name) if user is not None else ""
