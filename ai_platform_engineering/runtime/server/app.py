"""The ASGI application of an agent (A2A, agent cards, probes, further routes), and its server."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import uvicorn
from a2a.types import AgentCard
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError
from ai_platform_engineering.core.failure_text import describe_failure
from ai_platform_engineering.core.settings import ServerSettings
from ai_platform_engineering.core.terminals import is_in_terminal
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.net.http_connections import ConnectionLimits, server_options
from ai_platform_engineering.runtime.push.push_configs import PushConfigs
from ai_platform_engineering.runtime.rest.session import SessionApi
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.access_keys import AccessKeys
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import (
    BearerAuthMiddleware,
    HostCheckMiddleware,
    is_trusted,
)
from ai_platform_engineering.runtime.server.call_context import CallContextBuilder
from ai_platform_engineering.runtime.server.card_routes import ServedCards
from ai_platform_engineering.runtime.server.http_json import HttpJsonBinding
from ai_platform_engineering.runtime.server.jsonrpc import Dispatcher
from ai_platform_engineering.runtime.server.methods_10 import Methods10
from ai_platform_engineering.runtime.server.read_only import ReadOnlyMiddleware
from ai_platform_engineering.runtime.server.request_handler import LogRequestHandler
from ai_platform_engineering.runtime.server.request_limits import RequestLimits
from ai_platform_engineering.runtime.server.sessions import Sessions
from ai_platform_engineering.runtime.server.signing_keys import SigningKeys
from ai_platform_engineering.runtime.server.sse_stream import OpenStreams

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 1.0  # for readers to receive the end of their runs

Readiness = Callable[[], Awaitable[dict[str, dict[str, Any]]]]


class App(Starlette):
    """A Starlette application with its open streams, and hooks for reload and shutdown."""

    streams: OpenStreams
    connection_limits: ConnectionLimits
    reload: Callable[[], Awaitable[None]] | None = None
    # Ends runs that cannot go on in another process; true if readers should receive their ends.
    before_shutdown: Callable[[], Awaitable[bool]] | None = None
    startup_error: CaipeError | None = None
    # What a person should know at the start, a line each.
    greeting: Callable[[], Sequence[str]] = staticmethod(tuple)
    # Called when requests are served, and when everything is closed: a signal may end the process after it.
    on_ready: Callable[[], None] | None = None
    on_stopped: Callable[[], None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            send = self._without_traceback(send)
        await super().__call__(scope, receive, send)

    def _without_traceback(self, send: Send) -> Send:
        """Tells the server an expected failure to start in its own words: Starlette sends the traceback."""

        async def send_message(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed" and self.startup_error is not None:
                message = {**message, "message": f"{self.startup_error}"}
            await send(message)

        return send_message


def create_a2a_app(
    settings: ServerSettings,
    card: Callable[[], AgentCard],
    runs: Runs,
    *,
    ready: Readiness,
    read_only: Callable[[], bool] = lambda: False,
    keys: SigningKeys | None = None,
    push: PushConfigs | None = None,
    routes: Sequence[BaseRoute] = (),
    serves_page: bool = False,
    starting: Sequence[Callable[[], Awaitable[None]]] = (),
    stopping: Callable[[], Awaitable[None]] | None = None,
    closing: Sequence[Callable[[], Awaitable[None]]] = (),
) -> App:
    """The application of an agent; `card` is called for each request of the card.

    `read_only`: nothing may be changed now. `keys`: the signing keys, those of the settings alone by default.
    `push`: the configs of push notifications, where those are sent. `serves_page`: browsers can sign in.
    `starting` is called before the first request is served, `stopping` ends the runs at shutdown, and
    `closing` is called last."""
    streams = OpenStreams(
        runs,
        settings.keep_alive,
        max_streams=settings.max_streams,
        max_user_streams=settings.max_user_streams,
    )
    signing_keys = keys or SigningKeys(settings.card_signing_key, None, signs_notifications=False)
    cards = ServedCards(card, settings, signing_keys.card_key)
    handler = LogRequestHandler(
        runs,
        max_file_bytes=settings.max_file_bytes,
        streams=streams,
        extended_card=cards.full if settings.needs_key else None,
        push=push,
    )
    context_builder = CallContextBuilder(v03_shape=settings.v03_shape, text_decisions=settings.text_decisions)
    limits = RequestLimits.from_settings(settings)
    methods = Methods10(handler, context_builder)
    dispatcher = Dispatcher(handler, streams, limits, context_builder, methods)
    http_json = HttpJsonBinding(methods, streams, limits)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            for start in starting:
                await start()
        except BaseException as error:
            app.startup_error = _to_startup_error(error)
            await _close_after_failure(closing)
            raise
        yield
        if stopping is not None:
            await stopping()
        streams.cancel_all()
        for close in closing:
            await close()

    access_keys = AccessKeys(settings)
    sessions = Sessions.from_settings(settings) if serves_page else None
    session_routes = SessionApi(access_keys, sessions).routes() if serves_page else []
    app = App(
        lifespan=lifespan,
        middleware=[
            Middleware(HostCheckMiddleware, settings=settings),
            Middleware(BearerAuthMiddleware, settings=settings, keys=access_keys, sessions=sessions),
            Middleware(ReadOnlyMiddleware, read_only=read_only),
        ],
        routes=[
            Route("/", dispatcher.handle_requests, methods=["POST"]),
            *http_json.routes(),
            *cards.routes(),
            *signing_keys.routes(),
            *_probe_routes(settings, ready),
            *session_routes,
            *routes,
        ],
    )
    app.streams = streams
    app.connection_limits = ConnectionLimits.from_settings(settings)
    return app


def _probe_routes(settings: ServerSettings, ready: Readiness) -> list[Route]:
    """`/health` and `/ready`; what is not ready, and why, is for trusted callers."""

    async def health(_: Request) -> Response:
        return AsciiJSONResponse({"status": "ok"})

    async def readiness(request: Request) -> Response:
        components = await ready()
        status = _worst_status(components)
        status_code = 503 if status == "unavailable" else 200
        report: dict[str, Any] = {"status": status}
        if is_trusted(request.scope, settings):
            report["components"] = components
        return AsciiJSONResponse(report, status_code)

    return [Route("/health", health), Route("/ready", readiness)]


def _to_startup_error(error: BaseException) -> CaipeError | None:
    """The failure of a start in words; none for one that nobody foresaw."""
    if isinstance(error, CaipeError):
        return error
    text = describe_failure(error)
    return CaipeError(text.message) if text else None


async def _close_after_failure(closing: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Closes what was opened before the start failed: an open database would keep the process alive."""
    for close in closing:
        try:
            await close()
        except Exception as error:  # noqa: BLE001 - the failure of the start is the one to be told
            log.debug("after the failed start: %s", format_traceback(error))


def _worst_status(components: Mapping[str, Mapping[str, Any]]) -> str:
    statuses = {component["status"] for component in components.values()}
    for status in ("unavailable", "degraded"):
        if status in statuses:
            return status
    return "ok"


@contextlib.contextmanager
def raised_startup_error(app: App) -> Iterator[None]:
    """Raises the error that stopped the start of uvicorn, which would log it and end the process."""

    def is_other(record: logging.LogRecord) -> bool:
        return app.startup_error is None

    logger = logging.getLogger("uvicorn.error")
    logger.addFilter(is_other)
    try:
        yield
    except SystemExit:
        if app.startup_error is None:
            raise
        raise app.startup_error from None
    finally:
        logger.removeFilter(is_other)


class Server(uvicorn.Server):
    """A uvicorn server that ends the open streams at shutdown, and reloads the configuration on SIGHUP.

    In a terminal SIGHUP ends it: the terminal was closed. Readers reconnect with their cursor, unless they
    have received the end of their run."""

    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app = app
        self._reloading: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        with raised_startup_error(self._app):
            await super().startup(sockets)
        if self._app.reload is not None and hasattr(signal, "SIGHUP"):
            handler = self._stop if is_in_terminal() else self._reload
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, handler)
        if self._app.on_ready is not None:
            self._app.on_ready()

    def _stop(self) -> None:
        self.should_exit = True

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
        if self._app.on_stopped is not None:
            self._app.on_stopped()


class PortInUse(ConfigurationError):
    """Another program listens on the port already."""


def listen(settings: ServerSettings) -> socket.socket:
    """The server's socket, bound first: a port in use is reported at once, and port 0 gets its number.

    Raises ConfigurationError, PortInUse among them."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        reason = (error.strerror or "").partition(" (while")[0]
        kind = ConfigurationError
        if error.errno == errno.EADDRINUSE:
            reason = "another program uses this port"
            kind = PortInUse
        raise kind(
            f"Cannot listen on {settings.host}, port {settings.port}: {reason}. "
            "Set A2A_HOST and A2A_PORT (or --host and --port) to an address and a port that are free."
        ) from None


def serve(app: App, listener: socket.socket, log_level: str) -> None:
    """Runs the server on the socket until a signal stops it. Raises CaipeError when it cannot start."""
    config = uvicorn.Config(
        app,
        log_config=None,
        # Its steps of starting and stopping are not told: we say when requests are served.
        log_level="debug" if log_level == "DEBUG" else "warning",
        access_log=False,
        timeout_graceful_shutdown=5,
        **server_options(app.connection_limits),
    )
    with contextlib.suppress(KeyboardInterrupt):  # raised again by uvicorn after its clean end
        Server(config, app).run(sockets=[listener])
