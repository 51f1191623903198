"""A server inside another program: on a loopback port, without signal handlers."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from ai_platform_engineering.net.http_connections import server_options
from ai_platform_engineering.runtime.server.app import App, raised_startup_error


class _EmbeddedServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        with raised_startup_error(self._app):
            await super().startup(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals belong to the program around it


def bind_loopback(port: int = 0) -> socket.socket:
    """A socket for an embedded server, on a free port unless one is named. Raises OSError."""
    return socket.create_server(("127.0.0.1", port), backlog=2048)


@contextlib.asynccontextmanager
async def run_embedded_server(app: App, listener: socket.socket | None = None) -> AsyncIterator[str]:
    """Runs the application while the context is open; yields its URL.

    Raises CaipeError when it cannot start."""
    listener = listener or bind_loopback()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        **server_options(app.connection_limits),
    )
    server = _EmbeddedServer(config, app)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="embedded server")
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        app.streams.cancel_all()
        server.should_exit = True
        await task
        listener.close()
