"""JSON-RPC with a third-party server, in protocol 1.0 or 0.3 as its card says; frames are read leniently."""

import json
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NoReturn, Protocol

import httpx
from a2a.client.transports.http_helpers import send_http_request, send_http_stream_request
from a2a.compat.v0_3 import conversions
from a2a.types import (
    AgentCard,
    AgentInterface,
    CancelTaskRequest,
    GetTaskRequest,
    SendMessageRequest,
    StreamResponse,
)
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from google.protobuf.json_format import MessageToDict

from ai_platform_engineering.a2a.third_party_frames import parse_frame

_JSON_RPC = "JSONRPC"

Request = SendMessageRequest | GetTaskRequest | CancelTaskRequest


class JsonRpcError(Exception):
    """The error of a JSON-RPC response."""

    def __init__(self, code: Any, message: str) -> None:
        super().__init__(message)
        self.code = code


class _LegacyRequest(Protocol):
    params: Any


# The methods of 1.0 in 0.3: their names, and how the parameters are converted.
_LEGACY_METHODS: dict[str, tuple[str, Callable[[Any, int], _LegacyRequest]]] = {
    "SendMessage": ("message/send", conversions.to_compat_send_message_request),
    "SendStreamingMessage": ("message/stream", conversions.to_compat_send_message_request),
    "GetTask": ("tasks/get", conversions.to_compat_get_task_request),
    "CancelTask": ("tasks/cancel", conversions.to_compat_cancel_task_request),
}


class ThirdPartyTransport:
    """Requests to one server, by their names in protocol 1.0."""

    def __init__(self, card: AgentCard, http: httpx.AsyncClient) -> None:
        """Raises ValueError for a card without JSON-RPC."""
        interface = _choose_interface(card)
        self._http = http
        self._url = interface.url
        self._tenant = interface.tenant
        self._is_legacy = interface.protocol_version.startswith("0.")

    async def call(
        self, method: str, request: Request, headers: Mapping[str, str], timeout: httpx.Timeout
    ) -> StreamResponse:
        """The frame in the response; a task where the method returns one."""
        http_request = self._http.build_request(
            "POST",
            self._url,
            json=self._build_body(method, request),
            headers=self._build_headers(headers),
            timeout=timeout,
        )
        return _read_response(await send_http_request(self._http, http_request))

    async def stream(
        self, method: str, request: Request, headers: Mapping[str, str], timeout: httpx.Timeout
    ) -> AsyncGenerator[StreamResponse]:
        """The frames of a streaming response; of one frame when the server does not stream."""
        messages = send_http_stream_request(
            self._http,
            "POST",
            self._url,
            None,
            _raise_sse_error,
            json=self._build_body(method, request),
            headers=self._build_headers(headers),
            timeout=timeout,
        )
        async for message in messages:
            yield _read_response(json.loads(message))

    def _build_body(self, method: str, request: Request) -> dict[str, Any]:
        if self._tenant:
            request.tenant = self._tenant
        if self._is_legacy:
            method, convert = _LEGACY_METHODS[method]
            params = convert(request, 0).params.model_dump(by_alias=True, exclude_none=True, mode="json")
        else:
            params = MessageToDict(request)
        return {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}

    def _build_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        version = PROTOCOL_VERSION_0_3 if self._is_legacy else PROTOCOL_VERSION_1_0
        return {**headers, VERSION_HEADER: version}


def _choose_interface(card: AgentCard) -> AgentInterface:
    """The JSON-RPC interface of the newest protocol that we speak; older than 0.3 is tried as 0.3."""
    interfaces = [
        interface for interface in card.supported_interfaces if interface.protocol_binding == _JSON_RPC
    ]
    if not interfaces:
        raise ValueError("no JSON-RPC interface")
    for interface in interfaces:
        if not interface.protocol_version.startswith("0."):
            return interface
    return interfaces[0]


def _read_response(body: Any) -> StreamResponse:
    """The frame of a JSON-RPC response. Raises JsonRpcError, and ValueError for what is no response."""
    match body:
        case {"error": {**error}}:
            message = error.get("message")
            raise JsonRpcError(error.get("code"), message if isinstance(message, str) else "")
        case {"result": result} if not body.get("error"):
            return parse_frame(result)
        case _:
            raise ValueError("no JSON-RPC response")


def _raise_sse_error(message: str) -> NoReturn:
    """Raises the error that an SSE event of the type `error` holds."""
    _read_response(json.loads(message))
    raise ValueError("an error without an error")
