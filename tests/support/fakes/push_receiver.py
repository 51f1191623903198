"""A receiver of push notifications on a loopback port: it writes down what arrives and answers as told."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.harness import serve_app

WAIT = 120  # seconds after which a notification that never comes is a failure
OPERATOR = {"A2A_PUSH_PRIVATE_HOSTS": "127.0.0.0/8", "A2A_PUSH_RETRY_SECONDS": "0"}


@dataclass(frozen=True, slots=True)
class Received:
    """A notification as it came; names of headers are in lower case."""

    path: str
    headers: dict[str, str]
    raw: bytes
    status: int  # that it was answered with

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.raw)
        return body

    @property
    def kind(self) -> str:
        """`task` or `statusUpdate` of protocol 1.0, `v03` for a task of 0.3."""
        return "v03" if "kind" in self.body else next(iter(self.body))

    @property
    def update(self) -> dict[str, Any]:
        update: dict[str, Any] = self.body if self.kind == "v03" else self.body[self.kind]
        return update

    @property
    def state(self) -> str:
        """In the words of protocol 0.3."""
        state: str = self.update["status"]["state"]
        return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


@dataclass(slots=True)
class PushReceiver:
    """What arrived, by the path that it was sent to; `statuses` are those of the next answers, then 200."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    location: str = ""  # of redirects
    held: dict[str, asyncio.Event] = field(default_factory=dict)  # paths that answer when the event is set
    most_at_once: int = 0  # requests without an answer
    _at_once: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def taken(self, path: str) -> list[Received]:
        """What was answered with success."""
        return [item for item in self.received if item.path == path and item.status == 200]

    def tried(self, path: str) -> list[Received]:
        return [item for item in self.received if item.path == path]

    async def wait_for(self, path: str, state: str) -> list[Received]:
        """What the path took, once it has been told this state."""
        async with asyncio.timeout(WAIT), self._changed:
            await self._changed.wait_for(lambda: any(item.state == state for item in self.taken(path)))
        return self.taken(path)

    async def wait_for_tries(self, path: str, count: int) -> list[Received]:
        async with asyncio.timeout(WAIT), self._changed:
            await self._changed.wait_for(lambda: len(self.tried(path)) >= count)
        return self.tried(path)

    async def handle(self, request: Request) -> Response:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._take(request)
        finally:
            self._at_once -= 1

    async def _take(self, request: Request) -> Response:
        path = request.url.path
        raw = await request.body()
        statuses = self.statuses.get(path, [])
        status = statuses.pop(0) if statuses else 200
        async with self._changed:
            self.received.append(Received(path, dict(request.headers), raw, status))
            self._changed.notify_all()
        if path in self.held:
            await self.held[path].wait()
        headers = {"Location": self.location} if 300 <= status < 400 else None
        return Response(status_code=status, headers=headers)


@contextlib.asynccontextmanager
async def push_receiver() -> AsyncIterator[PushReceiver]:
    """The receiver; its `url` ends without a slash."""
    receiver = PushReceiver()
    app = Starlette(routes=[Route("/{path:path}", receiver.handle, methods=["POST", "GET"])])
    async with serve_app(app) as url:
        receiver.url = url.rstrip("/")
        yield receiver
        for event in receiver.held.values():
            event.set()
