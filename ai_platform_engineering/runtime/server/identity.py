"""The principal of a request (who speaks) and the owner of its conversations; mostly the same."""

from a2a.auth.user import User
from starlette.requests import Request

from ai_platform_engineering.runtime.server.authentication import OnBehalfOfUser, principal_of_request


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


def owner_of_request(request: Request) -> str:
    user = request.scope.get("user")
    if isinstance(user, OnBehalfOfUser):
        return user.owner
    return principal_of_request(request)
