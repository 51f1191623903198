"""Mounts the skills API at `/` behind every other route. FastAPI is imported by the first request that
reaches it."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from http import HTTPStatus

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ai_platform_engineering.core.json_limits import JsonLimits, JsonTooLarge
from ai_platform_engineering.runtime.rest.problems import ProblemResponse
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog

MAX_BODY_BYTES = 4 * 1024 * 1024  # the largest skill there can be, in base64
_LIMITS = JsonLimits(values=20_000)
_TOO_LARGE = f"The request is larger than {MAX_BODY_BYTES // 1024 // 1024} MB."


def build_skills_mount(
    catalog: SkillCatalog | None,
    other_routes: Sequence[BaseRoute],
    *,
    read_only: Callable[[], bool] = lambda: False,
    needs_key: bool = False,
) -> Mount:
    """`other_routes` take precedence. Without a catalogue the API answers that skills are switched off."""
    return _FallbackMount(other_routes, LazySkillsApp(catalog, read_only, needs_key=needs_key))


class _FallbackMount(Mount):
    """A mount that matches no path of the other routes, also when the method is wrong or the path ends
    with a slash."""

    def __init__(self, other_routes: Sequence[BaseRoute], app: ASGIApp) -> None:
        super().__init__("/", app, name="skills")
        self._other_routes = tuple(other_routes)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        scope_without_slash = {**scope, "path": scope["path"].rstrip("/") or "/"}
        for route in self._other_routes:
            if _matches(route, scope) or _matches(route, scope_without_slash):
                return Match.NONE, {}
        return super().matches(scope)


class LazySkillsApp:
    """The API as an ASGI application, built at the first request. A body is read, up to its limit, before the
    application sees it."""

    def __init__(
        self, catalog: SkillCatalog | None, read_only: Callable[[], bool], *, needs_key: bool = False
    ) -> None:
        self._catalog = catalog
        self._read_only = read_only
        self._needs_key = needs_key
        self._build_lock = asyncio.Lock()
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app or await self._get_app()
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        body = await _read_body(receive)
        if body is None:
            await ProblemResponse.of(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)(scope, receive, send)
            return
        try:
            _LIMITS.check(body)
        except JsonTooLarge as refusal:
            await ProblemResponse.of(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(refusal))(scope, receive, send)
            return
        # An error was answered and logged; its text may hold a secret and goes no further.
        with contextlib.suppress(Exception):
            await app(scope, _replay_body(body, receive), send)

    async def _get_app(self) -> ASGIApp:
        async with self._build_lock:
            if self._app is None:
                self._app = await asyncio.to_thread(self._build_app)
        return self._app

    def _build_app(self) -> ASGIApp:
        from ai_platform_engineering.skills_middleware.api.skills_app import build_skills_app

        return build_skills_app(self._catalog, self._read_only, needs_key=self._needs_key)


def _matches(route: BaseRoute, scope: Scope) -> bool:
    return route.matches(scope)[0] is not Match.NONE


async def _read_body(receive: Receive) -> bytes | None:
    """None when it is too large."""
    body = b""
    while True:
        message = await receive()
        chunk: bytes = message.get("body", b"")
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return None
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return body


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body in one message, then goes on with the original."""
    is_sent = False

    async def receive_again() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
