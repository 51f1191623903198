"""The ASGI application of an agent (A2A, agent cards, probes, further routes), and its server."""

import asyncio
import contextlib
import errno
import hashlib
import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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

_DRAIN_SECONDS = 1.0  # for readers to receive the end of their runs

Readiness = Callable[[], Awaitable[dict[str, dict[str, Any]]]]


class App(Starlette):
    """A Starlette application with its open streams, and hooks for reload and shutdown."""

    streams: OpenStreams
    reload: Callable[[], Awaitable[None]] | None = None
    # Ends runs that cannot go on in another process; true if readers should receive their ends.
    before_shutdown: Callable[[], Awaitable[bool]] | None = None


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
    """The application of an agent; `card` is called for each request of the card.

    `starting` is called before the first request is served, `stopping` ends the runs at shutdown, and
    `closing` is called last."""
    streams = OpenStreams(runs, settings.keep_alive)
    handler = LogRequestHandler(runs, max_file_bytes=settings.max_file_bytes, streams=streams)
    dispatcher = Dispatcher(handler, streams, max_request_bytes=settings.max_request_bytes)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        for start in starting:
            await start()
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
        status = _worst_status(components)
        status_code = 503 if status == "unavailable" else 200
        return AsciiJSONResponse({"status": status, "components": components}, status_code)

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


def _worst_status(components: Mapping[str, Mapping[str, Any]]) -> str:
    statuses = {component["status"] for component in components.values()}
    for status in ("unavailable", "degraded"):
        if status in statuses:
            return status
    return "ok"


def _card_routes(card: Callable[[], AgentCard]) -> list[Route]:
    """Routes of the agent card: for both protocol versions at the new and the old path, and for 1.0 alone."""
    cache_headers = {"Cache-Control": "max-age=60", "Last-Modified": formatdate(usegmt=True)}

    def serve(path: str, card_to_dict: Callable[[], dict[str, Any]]) -> Route:
        async def get(request: Request) -> Response:
            body = json.dumps(card_to_dict(), separators=(",", ":"))
            etag = f'W/"{hashlib.sha256(body.encode()).hexdigest()[:32]}"'
            headers = {**cache_headers, "ETag": etag}
            if request.headers.get("if-none-match") == etag:
                return Response(status_code=304, headers=headers)
            return Response(body, headers=headers, media_type="application/json")

        return Route(path, get)

    return [
        serve("/.well-known/agent-card.json", lambda: agent_card_to_dict(card())),
        serve("/.well-known/agent.json", lambda: agent_card_to_dict(card())),
        serve("/v1/.well-known/agent-card.json", lambda: MessageToDict(card())),
    ]


class Server(uvicorn.Server):
    """A uvicorn server that ends the open streams at shutdown, and reloads the configuration on SIGHUP.

    Readers reconnect with their cursor, unless they have received the end of their run."""

    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app = app
        self._reloading: set[asyncio.Task[None]] = set()

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
            listening.close()  # no new connections
        if self._app.before_shutdown is not None and await self._app.before_shutdown():
            await self._app.streams.wait_until_closed(_DRAIN_SECONDS)
        self._app.streams.cancel_all()
        await super().shutdown(sockets)


def listen(settings: ServerSettings) -> socket.socket:
    """The server's socket, bound first: a port in use is reported at once, and port 0 gets its number."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        reason = (error.strerror or "").partition(" (while")[0]
        if error.errno == errno.EADDRINUSE:
            reason = "another program uses this port"
        raise ConfigurationError(
            f"Cannot listen on {settings.host}, port {settings.port}: {reason}. "
            "Set A2A_HOST and A2A_PORT (or --host and --port) to an address and a port that are free."
        ) from None


def serve(app: App, listener: socket.socket, log_level: str) -> None:
    """Runs the server on the socket until a signal stops it."""
    config = uvicorn.Config(
        app, log_config=None, log_level=log_level.lower(), access_log=False, timeout_graceful_shutdown=5
    )
    with contextlib.suppress(KeyboardInterrupt):  # raised again by uvicorn after its clean end
        Server(config, app).run(sockets=[listener])
