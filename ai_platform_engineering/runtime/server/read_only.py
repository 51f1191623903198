"""READ_ONLY for all routes: what may be requested while nothing may be changed; whatever else is refused."""

import re
from collections.abc import Callable
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from ai_platform_engineering.core.policy import READ_ONLY
from ai_platform_engineering.runtime.rest.problems import ProblemResponse

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

# Each with its reason. A new route that is not listed here cannot be used to change anything.
_ALLOWED = (
    ("POST", r"/"),  # questions and answers of people; tools have the policy for themselves
    ("POST", r"/message:(send|stream)"),  # the same as HTTP+JSON
    ("POST", r"/tasks/[^/]+:(cancel|subscribe)"),
    ("POST", r"/tasks/[^/]+/pushNotificationConfigs"),
    ("DELETE", r"/tasks/[^/]+/pushNotificationConfigs/[^/]+"),
    ("POST", r"/mcp"),  # the knowledge base's tools only read
    ("DELETE", r"/mcp"),  # ends an MCP session
    ("POST", r"/v1/session"),  # a login, which changes nothing here
    ("DELETE", r"/v1/session"),
    ("POST", r"/v1/agents/[^/]+/login(/finish|/poll)?"),  # to a tool server, whose tools have the policy
    ("DELETE", r"/v1/agents/[^/]+/login"),
    ("POST", r"/v1/query"),  # a search
    ("POST", r"/v1/jobs/[^/]+/stop"),  # ends a change
    ("PUT", r"/v1/tasks/[^/]+/feedback"),  # a score that no prompt sees
    ("DELETE", r"/v1/tasks/[^/]+/feedback"),
    ("DELETE", r"/v1/conversations/.+/allowances/.+"),  # takes a permission away
    ("DELETE", r"/v1/shares/[^/]+"),
    ("POST", r"/skills/validate"),  # looks at what is sent
    ("POST", r"/skills/scan-content"),
    ("POST", r"/skills/refresh"),  # looks at the folder again; of hubs the route itself refuses it
)
_PATTERNS = tuple((method, re.compile(path)) for method, path in _ALLOWED)


class ReadOnlyMiddleware:
    """Refuses every request that could change something while `read_only` says so."""

    def __init__(self, app: ASGIApp, read_only: Callable[[], bool]) -> None:
        self._app = app
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and self._read_only() and not _is_allowed(scope):
            await ProblemResponse.of(HTTPStatus.FORBIDDEN, READ_ONLY)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _is_allowed(scope: Scope) -> bool:
    if scope["type"] == "websocket":
        return False
    method = scope["method"]
    if method in _SAFE_METHODS:
        return True
    path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
    return any(method == allowed and pattern.fullmatch(path) for allowed, pattern in _PATTERNS)
