"""Calls of protocol 1.0 over JSON-RPC."""

from a2a.server.jsonrpc_models import MethodNotFoundError
from a2a.utils.errors import A2AError
from starlette.requests import Request
from starlette.responses import Response

from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.jsonrpc_call import JsonRpcCall
from ai_platform_engineering.runtime.server.jsonrpc_errors import create_error_response
from ai_platform_engineering.runtime.server.methods_10 import Methods10
from ai_platform_engineering.runtime.server.sse_stream import LogStream, OpenStreams, jsonrpc_envelope


class JsonRpc10:
    """Answers calls of protocol 1.0."""

    def __init__(self, methods: Methods10, streams: OpenStreams) -> None:
        self._methods = methods
        self._streams = streams

    async def answer(self, call: JsonRpcCall, request: Request) -> Response:
        """The response, a stream included. Raises what is no A2AError."""
        if not self._methods.supports(call.method):
            return create_error_response(call.request_id, MethodNotFoundError())
        try:
            result = await self._methods.call(call.method, call.params, request)
        except A2AError as error:
            return create_error_response(call.request_id, error)
        if result.stream is not None:
            envelope = jsonrpc_envelope(call.request_id)
            stream = LogStream(result.stream, envelope, is_v03=False, streams=self._streams)
            stream.extra_headers = result.headers
            return stream
        content = {"result": result.content, "id": call.request_id, "jsonrpc": "2.0"}
        return await AsciiJSONResponse.create(content, result.headers, is_large=result.is_large)
