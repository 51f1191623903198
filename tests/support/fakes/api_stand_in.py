"""What the stand-ins of APIs share: a server on loopback that records requests, checks credentials, and fails
as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Failure:
    """The answer to requests instead of what they ask for: those with `path` in their path, and `text` in
    their body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=dict)
    path: str = ""
    times: int = 1
    text: str = ""


class ApiStandIn(ABC):
    """A stand-in of an API; `url` is where it listens. `authorization`: what requests must send."""

    def __init__(self, authorization: str = "") -> None:
        self.authorization = authorization
        self.url = ""
        self.requests: list[SeenRequest] = []
        self.failures: list[Failure] = []
        self.gate: asyncio.Event | None = None  # requests with `gated_text` in path or query wait for it
        self.gated_text = ""
        self.arrived = asyncio.Event()  # one waits at the gate

    @abstractmethod
    def routes(self) -> Sequence[Route]:
        """What the API offers."""

    def refuse_credentials(self) -> Response:
        return JSONResponse({"message": "Bad credentials"}, 401)

    def take_requests(self) -> list[SeenRequest]:
        """The requests since the last call."""
        taken = list(self.requests)
        self.requests.clear()
        return taken

    def fail(self, *failures: Failure) -> None:
        """The next requests fail, in this order."""
        self.failures += failures

    async def intercept(self, request: Request) -> Response | None:
        """Records a request; the answer if it is not to reach its route."""
        seen = SeenRequest(
            request.method,
            request.url.path,
            dict(request.query_params),
            dict(request.headers),
            await request.body(),
        )
        self.requests.append(seen)
        if self.authorization and request.headers.get("authorization") != self.authorization:
            return self.refuse_credentials()
        if self.gate is not None and self.gated_text in f"{seen.path} {seen.query}":
            self.arrived.set()
            await self.gate.wait()
        for number, failure in enumerate(self.failures):
            if failure.path in seen.path and failure.text in seen.body.decode():
                self._use_up(number)
                return JSONResponse(dict(failure.body), failure.status, headers=dict(failure.headers))
        return None

    def _use_up(self, number: int) -> None:
        failure = self.failures.pop(number)
        if failure.times > 1:
            self.failures.insert(number, replace(failure, times=failure.times - 1))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listens on a loopback port; at the end all connections are dropped."""
        listener = socket.create_server(("127.0.0.1", 0))
        app = _Intercepted(Starlette(routes=list(self.routes())), self)
        config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", http="h11")
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield
        finally:
            for listening in server.servers:
                listening.close()
            for protocol in list(server.server_state.connections):
                protocol.transport.abort()
            for task in server.server_state.tasks:  # one may wait at the gate for ever
                task.cancel()
            await asyncio.gather(*server.server_state.tasks, return_exceptions=True)
            for listening in server.servers:
                await listening.wait_closed()


class _Intercepted:
    """The routes of a stand-in behind what it does with every request."""

    def __init__(self, app: ASGIApp, stand_in: ApiStandIn) -> None:
        self._app = app
        self._stand_in = stand_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._stand_in.intercept(request)
        if response is not None:
            await response(scope, receive, send)
            return
        body = await request.body()

        async def replay() -> dict[str, object]:
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)


_StandIn = TypeVar("_StandIn", bound=ApiStandIn)


@contextlib.asynccontextmanager
async def serve_api(stand_in: _StandIn) -> AsyncIterator[_StandIn]:
    """Runs a stand-in while the context is open."""
    async with stand_in.running():
        yield stand_in
