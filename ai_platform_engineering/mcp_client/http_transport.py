"""The HTTP transport: the MCP library's own, with a client that answers every request that fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
from mcp.client.streamable_http import streamable_http_client

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.connection_context import McpLimits
from ai_platform_engineering.mcp_client.json_rpc_error_client import JsonRpcErrorClient
from ai_platform_engineering.mcp_client.oauth.access_tokens import AccessTokens
from ai_platform_engineering.mcp_client.oauth.bearer_auth import BearerAuth
from ai_platform_engineering.mcp_client.transport import IncomingMessages, OutgoingMessages
from ai_platform_engineering.net.bounded_responses import (
    IDENTITY_ENCODING,
    ResponseLimits,
    bound_chunks,
    check_encoding,
)

_READ_TIMEOUT_MARGIN = 10.0


class _UrlRedactingFilter(logging.Filter):
    """Removes user, password and query from the URLs that the HTTP client logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_redact_argument, record.args))
        return True


def _redact_argument(argument: object) -> object:
    if isinstance(argument, httpx2.URL):
        return argument.copy_with(userinfo=b"", query=None)
    return argument


# The client logs headers, and addresses with passwords; what matters is logged by us.
logging.getLogger("httpcore2").setLevel(logging.INFO)
logging.getLogger("httpx2").addFilter(_UrlRedactingFilter())


class HttpTransport:
    """Both directions of a session over HTTP. It has no connection that could be lost as a whole."""

    def __init__(
        self,
        incoming: IncomingMessages,
        outgoing: OutgoingMessages,
    ) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def was_not_delivered(self, request_id: str | int) -> bool:
        return False  # the answer itself has the delivery status

    async def explain_failure(self) -> str:
        return ""


@asynccontextmanager
async def open_http_transport(
    server: McpServer, limits: McpLimits, tokens: AccessTokens | None = None
) -> AsyncIterator[HttpTransport]:
    """Opens a session at the server's address and ends it there afterwards.

    `tokens`: sent with each request, where the server wants access tokens.
    """
    connection_limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    timeout = httpx2.Timeout(limits.connect, read=limits.longest_call + _READ_TIMEOUT_MARGIN)
    # Plain bytes: an answer of ours is put behind what was received of a broken stream.
    headers = {**server.sent_headers, **IDENTITY_ENCODING}
    auth = BearerAuth(server, tokens) if tokens is not None else None
    hooks = {"response": [_response_hook(limits.response_limits)]}
    async with (
        JsonRpcErrorClient(
            server,
            headers=headers,
            auth=auth,
            limits=connection_limits,
            timeout=timeout,
            event_hooks=hooks,
        ) as client,
        streamable_http_client(
            server.url or "", http_client=client, max_sse_event_size=limits.message_bytes
        ) as (incoming, outgoing),
    ):
        yield HttpTransport(incoming, outgoing)


def _response_hook(limits: ResponseLimits) -> Callable[[httpx2.Response], Awaitable[None]]:
    """The limits as a hook of the client, which sends IDENTITY_ENCODING."""

    async def limit(response: httpx2.Response) -> None:
        check_encoding(response.headers.get("content-encoding", ""))
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        content_type = response.headers.get("content-type", "")
        response.stream = _LimitedStream(response.stream, content_type, limits)

    return limit


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of a response within the limits."""

    def __init__(self, stream: httpx2.AsyncByteStream, content_type: str, limits: ResponseLimits) -> None:
        self._stream = stream
        self._content_type = content_type
        self._limits = limits

    def __aiter__(self) -> AsyncIterator[bytes]:
        return bound_chunks(self._stream, self._content_type, self._limits)

    async def aclose(self) -> None:
        await self._stream.aclose()
