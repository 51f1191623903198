"""An agent as an ASGI application: A2A first, then probes, then what the composition root adds."""

import asyncio
import contextlib
import errno
import hashlib
import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from email.utils import formatdate
from typing import Any

import uvicorn
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import AgentCard
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import ServerSettings
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import BearerAuthMiddleware, HostCheckMiddleware
from ai_platform_engineering.runtime.server.jsonrpc import Dispatcher
from ai_platform_engineering.runtime.server.request_handler import LogRequestHandler
from ai_platform_engineering.runtime.server.sse_stream import OpenStreams

_LAST_WORDS = 1.0  # seconds for readers to take the end of their runs

Readiness = Callable[[], Awaitable[dict[str, dict[str, Any]]]]


class App(Starlette):
    """A Starlette application that can end its streams before the server waits for them, and read its configuration again."""

    streams: OpenStreams
    reload: Callable[[], Awaitable[None]] | None = None
    before_shutdown: Callable[[], Awaitable[bool]] | None = (
        None  # ends what cannot go on in another process; true when readers are to hear it
    )


def create_a2a_app(
    settings: ServerSettings,
    card: Callable[[], AgentCard],
    runs: Runs,
    *,
    ready: Readiness,
    routes: Sequence[BaseRoute] = (),
    starting: Sequence[Callable[[], Awaitable[None]]] = (),
    stopping: Callable[[], Awaitable[None]] | None = None,
    closing: Sequence[Callable[[], Awaitable[None]]] = (),
) -> App:
    """`card` is asked at each request. `starting` is done before the server answers, `stopping` ends its runs when it stops, and
    `closing` is what must be closed then."""
    streams = OpenStreams(runs, settings.keep_alive)
    handler = LogRequestHandler(runs, max_file_bytes=settings.max_file_bytes, streams=streams)
    dispatcher = Dispatcher(handler, streams, max_request_bytes=settings.max_request_bytes)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        for begin in starting:
            await begin()
        yield
        if stopping is not None:
            await stopping()
        streams.cancel_all()
        for close in closing:
            await close()

    async def health(_: Request) -> Response:
        return AsciiJSONResponse({"status": "ok"})

    async def readiness(_: Request) -> Response:
        components = await ready()
        states = {component["status"] for component in components.values()}
        if "unavailable" in states:
            status = "unavailable"
        elif "degraded" in states:
            status = "degraded"
        else:
            status = "ok"
        return AsciiJSONResponse(
            {"status": status, "components": components}, 503 if status == "unavailable" else 200
        )

    app = App(
        lifespan=lifespan,
        middleware=[
            Middleware(HostCheckMiddleware, settings=settings),
            Middleware(BearerAuthMiddleware, settings=settings),
        ],
        routes=[
            Route("/", dispatcher.handle_requests, methods=["POST"]),
            *_card_routes(card),
            Route("/health", health),
            Route("/ready", readiness),
            *routes,
        ],
    )
    app.streams = streams
    return app


def _card_routes(card: Callable[[], AgentCard]) -> list[Route]:
    """The card for both protocol versions in one, at its new and its old address, and alone for strict 1.0 readers."""
    headers = {"Cache-Control": "max-age=60", "Last-Modified": formatdate(usegmt=True)}

    def serve(path: str, fields: Callable[[], dict[str, Any]]) -> Route:
        async def get(request: Request) -> Response:
            body = json.dumps(fields(), separators=(",", ":"))
            tag = f'W/"{hashlib.sha256(body.encode()).hexdigest()[:32]}"'
            tagged = {**headers, "ETag": tag}
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers=tagged)
            return Response(body, headers=tagged, media_type="application/json")

        return Route(path, get)

    return [
        serve("/.well-known/agent-card.json", lambda: agent_card_to_dict(card())),
        serve("/.well-known/agent.json", lambda: agent_card_to_dict(card())),
        serve("/v1/.well-known/agent-card.json", lambda: MessageToDict(card())),
    ]


class Server(uvicorn.Server):
    """Ends the open streams when a signal arrives: readers come back with their number, or have heard that there is nothing to come back
    to. SIGHUP reads the configuration again."""

    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app, self._reloading = app, set[asyncio.Task[None]]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._app.reload is not None and hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        assert self._app.reload is not None
        task = asyncio.ensure_future(self._app.reload())
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in self.servers:
            listening.close()  # nobody new
        if self._app.before_shutdown is not None and await self._app.before_shutdown():
            await self._app.streams.wait_until_closed(_LAST_WORDS)
        self._app.streams.cancel_all()
        await super().shutdown(sockets)


def listen(settings: ServerSettings) -> socket.socket:
    """The socket of the server, bound before anything else is built: a taken port is told at once, a free one has its number."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "another program uses this port" if taken else (error.strerror or "").partition(" (while")[0]
        raise ConfigurationError(
            f"Cannot listen on {settings.host}, port {settings.port}: {reason}. "
            "Set A2A_HOST and A2A_PORT (or --host and --port) to an address and a port that are free."
        ) from None


def serve(app: App, listener: socket.socket, log_level: str) -> None:
    """Runs the server on the socket until it is told to stop."""
    config = uvicorn.Config(
        app, log_config=None, log_level=log_level.lower(), access_log=False, timeout_graceful_shutdown=5
    )
    with contextlib.suppress(KeyboardInterrupt):  # raised again by uvicorn after its clean end
        Server(config, app).run(sockets=[listener])
