"""The JSON-RPC dispatcher of a session: it notes the id and the plain result of the request being sent."""

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from itertools import count
from typing import Any

import anyio
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext

from ai_platform_engineering.mcp_client.connection_context import OutgoingRequest
from ai_platform_engineering.mcp_client.transport import McpTransport

current_request: ContextVar[OutgoingRequest] = ContextVar("current_request")
"""The request that is being sent in this context."""


class SessionDispatcher(JSONRPCDispatcher[TransportContext]):
    """The library's dispatcher, which hands `current_request` its id and its result.

    The result is kept as the server sent it: the library refuses a whole answer for one value that is not as
    the protocol has it.
    """

    def __init__(self, transport: McpTransport) -> None:
        super().__init__(transport.incoming, transport.outgoing)
        self._request_ids = count(1)
        self.ended = asyncio.Event()
        """Set when the server has gone and what it said before has been read."""

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: str | int | None = None,
    ) -> dict[str, Any]:
        options: CallOptions = {"request_id": next(self._request_ids), **(opts or {})}
        request = current_request.get(None)
        if request is None:
            return await super().send_raw_request(
                method, params, options, _related_request_id=_related_request_id
            )
        request.request_id = options["request_id"]
        request.result = await super().send_raw_request(
            method, params, options, _related_request_id=_related_request_id
        )
        return request.result

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self.ended.set()
