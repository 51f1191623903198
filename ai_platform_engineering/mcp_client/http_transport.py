"""The HTTP transport: the MCP library's own, with a client that answers every request that fails."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.connection_context import McpLimits
from ai_platform_engineering.mcp_client.json_rpc_error_client import JsonRpcErrorClient
from ai_platform_engineering.mcp_client.transport import ServerMessage
from ai_platform_engineering.net.bounded_responses import IDENTITY_ENCODING, response_hook

_READ_TIMEOUT_MARGIN = 10.0


class _UrlRedactingFilter(logging.Filter):
    """Removes user, password and query from the URLs that the HTTP client logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_redact_argument, record.args))
        return True


def _redact_argument(argument: object) -> object:
    if isinstance(argument, httpx.URL):
        return argument.copy_with(userinfo=b"", query=None)
    return argument


# The libraries log session ids, headers, whole messages and, of what they cannot read, the content. What
# matters is logged by us.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
logging.getLogger("httpcore").setLevel(logging.INFO)
logging.getLogger("httpx").addFilter(_UrlRedactingFilter())


class HttpTransport:
    """Both directions of a session over HTTP. It has no connection that could be lost as a whole."""

    def __init__(
        self,
        incoming: MemoryObjectReceiveStream[ServerMessage],
        outgoing: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def was_not_delivered(self, request_id: str | int) -> bool:
        return False  # the answer itself has the delivery status

    async def explain_failure(self) -> str:
        return ""


@asynccontextmanager
async def open_http_transport(server: McpServer, limits: McpLimits) -> AsyncIterator[HttpTransport]:
    """Opens a session at the server's address and ends it there afterwards."""
    connection_limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    timeout = httpx.Timeout(limits.connect, read=limits.longest_call + _READ_TIMEOUT_MARGIN)
    # Plain bytes: an answer of ours is put behind what was received of a broken stream.
    headers = {**server.headers, **IDENTITY_ENCODING}
    hooks = {"response": [response_hook(limits.response_limits)]}
    async with (
        JsonRpcErrorClient(
            server, headers=headers, limits=connection_limits, timeout=timeout, event_hooks=hooks
        ) as client,
        streamable_http_client(server.url or "", http_client=client) as (incoming, outgoing, _),
    ):
        yield HttpTransport(incoming, outgoing)
