"""Streaming requests of the OpenAI client, and the bytes of their answers."""

import asyncio
import logging
import ssl
from typing import Any, TypeVar, cast

import httpx2
import openai
import orjson
from langchain_openai import StreamChunkTimeoutError
from openai import AsyncStream

from ai_platform_engineering.core.model_streams import ModelStreamSettings
from ai_platform_engineering.models.merged_stream import MergedStream

log = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")

STREAM_ERROR = "An error occurred during streaming"
# Options of a single request: the library's own method knows all that they mean.
_REQUEST_OPTIONS = frozenset({"extra_headers", "extra_query", "timeout"})
_ORJSON_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def is_sent_by_us(params: dict[str, Any]) -> bool:
    """Whether a request is streamed, with the client's own options."""
    return bool(params.get("stream")) and _REQUEST_OPTIONS.isdisjoint(params)


class StreamingRequests:
    """Posts requests to one path of a client, and raises the library's errors."""

    def __init__(self, client: openai.AsyncOpenAI, path: str) -> None:
        self._client = client
        self._path = path
        self._template: httpx2.Request | None = None  # a request that the library made, and that was answered

    async def send(self, params: dict[str, Any]) -> httpx2.Response:
        """Posts the parameters as they are: the library's method would first walk through all of them, for
        4 ms."""
        extra_body = params.pop("extra_body", None) or {}
        payload: dict[str, Any] = {**params, **extra_body}
        content = None
        if not isinstance(self._client, openai.AsyncAzureOpenAI):  # which looks for the model in the payload
            content = _encode(payload)
        if content is not None and self._template is not None:
            return await self._send_again(self._template, content)
        answer = await self._client.post(
            self._path,
            body=payload if content is None else None,
            content=content,
            cast_to=httpx2.Response,
            options={"security": {"bearer_auth": True}},
            stream=True,
            stream_cls=AsyncStream[Any],
        )
        response = cast("httpx2.Response", answer)
        if content is not None and not response.history and _has_static_requests(self._client):
            self._template = response.request
        return response

    async def _send_again(self, template: httpx2.Request, content: bytes) -> httpx2.Response:
        """Sends the library's earlier request with another body, and raises the library's errors.

        Making the request takes the library four times as long as sending it.
        """
        headers = [header for header in template.headers.raw if header[0].lower() != b"content-length"]
        request = httpx2.Request(
            template.method, template.url, headers=headers, content=content, extensions=template.extensions
        )
        try:
            response = await self._client._client.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=request) from error
        except (httpx2.RequestError, ssl.SSLError) as error:
            raise openai.APIConnectionError(request=request) from error
        if not response.is_success:
            await response.aread()
            raise self._client._make_status_error_from_response(response) from None
        return response


def _has_static_requests(client: openai.AsyncOpenAI) -> bool:
    """Whether all requests of a client are alike but for their bodies: one fixed key, no retries."""
    return (
        type(client) is openai.AsyncOpenAI
        and client.max_retries == 0
        and client.custom_auth is None
        and client._api_key_provider is None
        and client._workload_identity_auth is None
        and client._provider_runtime is None
    )


def _encode(payload: dict[str, Any]) -> bytes | None:
    """The payload as JSON; none if it holds what only the library can encode."""
    try:
        return orjson.dumps(payload, option=_ORJSON_OPTIONS)
    except TypeError:
        return None


class OpenAIStream(MergedStream[ItemT]):
    """The bytes of an answer. Raises the library's errors.

    `chunk_seconds`: how long a stream may stay without a chunk.
    """

    def __init__(
        self,
        response: httpx2.Response,
        settings: ModelStreamSettings,
        chunk_seconds: float | None,
        model_name: str | None,
    ) -> None:
        super().__init__(response, settings)
        self._chunk_seconds = chunk_seconds
        self._chunk_deadline: float | None = None
        self._model_name = model_name
        self._chunk_count = 0

    def _count_chunk(self) -> None:
        self._chunk_deadline = None
        self._chunk_count += 1

    async def _receive(self) -> bytes:
        try:
            if not self._chunk_seconds:
                return await super()._receive()
            return await self._receive_in_time(self._chunk_seconds)
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=self._response.request) from error
        except httpx2.RequestError as error:
            raise openai.APIConnectionError(request=self._response.request) from error

    async def _receive_in_time(self, seconds: float) -> bytes:
        """A server may send comments for ever, and no chunk."""
        if self._chunk_deadline is None:
            self._chunk_deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(self._chunk_deadline):
                return await super()._receive()
        except TimeoutError:
            log.warning("a model's stream gave no chunk for %g s", seconds)
            raise StreamChunkTimeoutError(
                seconds, model_name=self._model_name, chunks_received=self._chunk_count
            ) from None

    def _api_error(self, error: Any) -> openai.APIError:
        """The error that the server reports in its stream."""
        message = error.get("message") if isinstance(error, dict) else None
        if not isinstance(message, str) or not message:
            message = STREAM_ERROR
        return openai.APIError(message=message, request=self._response.request, body=error)
