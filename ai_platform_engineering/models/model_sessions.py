"""aiohttp sessions for model servers: one for each event loop, closed with it."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import lru_cache
from weakref import WeakKeyDictionary

import aiohttp
import httpx2

_AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
# Servers close idle connections soon after; the providers' own clients wait as long.
_KEEP_ALIVE_SECONDS = 5.0


@dataclass(slots=True)
class ModelConnections:
    """The connections of one event loop."""

    session: aiohttp.ClientSession
    lifetime: AsyncGenerator[aiohttp.ClientSession]
    tls: ssl.SSLContext | None = None
    tls_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def load_tls(self) -> ssl.SSLContext:
        """With the certificates that the environment names (SSL_CERT_FILE), else those of the machine."""
        async with self.tls_lock:
            if self.tls is None:
                self.tls = await asyncio.to_thread(httpx2.create_ssl_context)  # takes tens of milliseconds
            return self.tls


class ModelSessions:
    """The sessions of all event loops; all models with the same limit share one."""

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, ModelConnections] = (
            WeakKeyDictionary()
        )

    async def connect(self) -> ModelConnections:
        """The connections of the running event loop."""
        loop = asyncio.get_running_loop()
        connections = self._connections.get(loop)
        if connections is None:
            lifetime = self._keep_open(loop)
            session = await anext(lifetime)  # does not wait
            connections = self._connections[loop] = ModelConnections(session, lifetime)
        return connections

    async def _keep_open(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession]:
        """Yields a session. An event loop closes its asynchronous generators when it ends, and so the
        session."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._max_connections, keepalive_timeout=_KEEP_ALIVE_SECONDS
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTOMATIC_HEADERS,
        )
        try:
            yield session
        finally:
            self._connections.pop(loop, None)
            await session.close()


@lru_cache(maxsize=8)
def share_sessions(max_connections: int) -> ModelSessions:
    """The sessions with this limit; the same for every caller."""
    return ModelSessions(max_connections)
