"""The streams between the MCP library's session and a transport: they filter answers and note request ids."""

import asyncio
from contextvars import ContextVar
from typing import Any, Self

from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ai_platform_engineering.mcp_client.connection_context import OutgoingRequest
from ai_platform_engineering.mcp_client.transport import ServerMessage

current_request: ContextVar[OutgoingRequest] = ContextVar("current_request")
"""The request that is being sent in this context."""


class IncomingStream:
    """The messages that the library's session may see.

    The library logs the content of whatever it cannot read, so such messages end here. And so do answers that
    nobody waits for: the library's session breaks, for all, when an answer arrives just as its request is
    cancelled.
    """

    def __init__(self, stream: MemoryObjectReceiveStream[ServerMessage]) -> None:
        self._stream = stream
        self._delivering: int | None = None  # the answer that the session is handing to its request right now
        self._dropped: set[str | int] = set()
        self.ended = asyncio.Event()

    def drop_answer(self, request_id: str | int) -> bool:
        """Lets no answer to this request pass; False if one is passing already."""
        if self._delivering == request_id:
            return False
        self._dropped.add(request_id)
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        self._delivering = None
        async for message in self._stream:
            if isinstance(message, SessionMessage) and self._admit(message.message.root):
                return message
        self.ended.set()
        raise StopAsyncIteration

    def _admit(self, message: Any) -> bool:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            return self._admit_answer(message.id)
        if isinstance(message, types.JSONRPCNotification):
            return _is_valid_notification(message)
        return True

    def _admit_answer(self, answer_id: str | int | None) -> bool:
        if not str(answer_id).isdigit():
            return False
        request_id = int(str(answer_id))
        if request_id in self._dropped:
            self._dropped.discard(request_id)
            return False
        self._delivering = request_id
        return True


def _is_valid_notification(notification: types.JSONRPCNotification) -> bool:
    content = notification.model_dump(by_alias=True, mode="json", exclude_none=True)
    try:
        types.ServerNotification.model_validate(content)
    except ValidationError:
        return False
    return True


class OutgoingStream:
    """Notes the id that the library gives to a request and tells nobody; a call is cancelled by it."""

    def __init__(self, stream: MemoryObjectSendStream[SessionMessage]) -> None:
        self._stream = stream

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()

    async def send(self, message: SessionMessage) -> None:
        root = message.message.root
        if isinstance(root, types.JSONRPCRequest):
            request = current_request.get(None)
            if request is not None:
                request.request_id = root.id
        await self._stream.send(message)
