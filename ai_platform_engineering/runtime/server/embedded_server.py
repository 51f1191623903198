"""A server inside another program: on a free loopback port, without signal handlers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import uvicorn

from ai_platform_engineering.runtime.server.app import App


class _EmbeddedServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals belong to the program around it


@contextlib.asynccontextmanager
async def run_embedded_server(app: App) -> AsyncIterator[str]:
    """Runs the application while the context is open; yields its URL."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_config=None, access_log=False, timeout_graceful_shutdown=2
    )
    server = _EmbeddedServer(config)
    task = asyncio.create_task(server.serve(), name="embedded server")
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        app.streams.cancel_all()
        server.should_exit = True
        await task
