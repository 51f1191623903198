"""The interface of a transport: the two streams of an MCP session, and what became of them."""

import asyncio
from collections.abc import Awaitable
from typing import Literal, Protocol

from mcp.client._transport import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

ServerMessage = SessionMessage | Exception
IncomingMessages = ReadStream[ServerMessage]
OutgoingMessages = WriteStream[SessionMessage]

McpDeliveryStatus = Literal["not delivered", "unknown", "rejected"]
"""Not delivered: the server cannot have taken the request. Rejected: it answered with an error."""

DELIVERY_STATUS_KEY = "caipe.delivery_status"  # in the `data` of a JSON-RPC error that a transport made


class McpTransport(Protocol):
    """A transport of one session: stdio or HTTP."""

    @property
    def incoming(self) -> IncomingMessages: ...

    @property
    def outgoing(self) -> OutgoingMessages: ...

    closed: asyncio.Future[None]

    def was_not_delivered(self, request_id: str | int) -> bool:
        """Whether the server is gone and cannot have read this request."""
        ...

    def explain_failure(self) -> Awaitable[str]:
        """Why the server does not answer, in words for people; empty when nothing is known."""
        ...
