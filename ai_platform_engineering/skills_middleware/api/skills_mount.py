"""The skills API at `/`, behind every other route: what matches nothing else reaches it. FastAPI is
imported by the first such request."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ai_platform_engineering.runtime.rest.problems import ProblemResponse
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog

MAX_BODY_BYTES = 4 * 1024 * 1024  # of a body: the largest skill there can be, in base64
_TOO_LARGE = f"The request is larger than {MAX_BODY_BYTES // 1024 // 1024} MB."


def build_skills_mount(
    catalog: SkillCatalog | None,
    others: Sequence[BaseRoute],
    *,
    read_only: Callable[[], bool] = lambda: False,
    needs_key: bool = False,
) -> Mount:
    """`others` are the routes in front of it. Without a catalogue the API says that skills are switched
    off."""
    return _Behind(others, LazySkillsApp(catalog, read_only, needs_key=needs_key))


class _Behind(Mount):
    """A mount that leaves other routes' addresses to them, also when the method is wrong or a slash too
    many stands at the end."""

    def __init__(self, others: Sequence[BaseRoute], app: ASGIApp) -> None:
        super().__init__("/", app, name="skills")
        self._others = tuple(others)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        plain = {**scope, "path": scope["path"].rstrip("/") or "/"}
        if any(route.matches(one)[0] is not Match.NONE for route in self._others for one in (scope, plain)):
            return Match.NONE, {}
        return super().matches(scope)


class LazySkillsApp:
    """The API as an ASGI application. A body is read, up to its limit, before anything looks at it."""

    def __init__(
        self, catalog: SkillCatalog | None, read_only: Callable[[], bool], *, needs_key: bool = False
    ) -> None:
        self._given: dict[str, Any] = {"catalog": catalog, "read_only": read_only, "needs_key": needs_key}
        self._building = asyncio.Lock()
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app or await self._built()
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            await ProblemResponse.of(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)(scope, receive, send)
            return
        with contextlib.suppress(
            Exception
        ):  # it was answered and logged; the text may hold a secret and goes no further
            await app(scope, _replayed(body, receive), send)

    async def _built(self) -> ASGIApp:
        async with self._building:
            if self._app is None:
                self._app = await asyncio.to_thread(self._build)
        return self._app

    def _build(self) -> ASGIApp:
        from ai_platform_engineering.skills_middleware.api.skills_app import skills_app

        return skills_app(**self._given)


async def _body(receive: Receive) -> bytes | None:
    """None when it is too large."""
    body = b""
    while True:
        message = await receive()
        piece: bytes = message.get("body", b"")
        body += piece
        if len(body) > MAX_BODY_BYTES:
            return None
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
