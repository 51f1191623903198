"""Chat completions of OpenAI and compatible servers, streamed with what arrived together merged."""

import asyncio
import json
import logging
import ssl
from types import NoneType
from typing import Any, NamedTuple, cast

import httpx2
import openai
import orjson
from langchain_openai import StreamChunkTimeoutError
from openai import AsyncStream
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletionChunk

from ai_platform_engineering.core.model_streams import ModelStreamSettings
from ai_platform_engineering.models.merged_stream import MergedStream, parse_json
from ai_platform_engineering.models.sse_reader import SseEvent

log = logging.getLogger(__name__)

_PATH = "/chat/completions"
_END = b"[DONE]"
_STREAM_ERROR = "An error occurred during streaming"
# Options of a single request: the library's own method knows all that they mean.
_REQUEST_OPTIONS = frozenset({"extra_headers", "extra_query", "timeout"})
_ORJSON_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME

Chunk = ChatCompletionChunk | dict[str, Any]


class MergedCompletions(AsyncCompletions):
    """The completions of a client; a streaming one is read by CompletionStream.

    `chunk_seconds`: how long a stream may stay without a chunk.
    """

    def __init__(
        self, client: openai.AsyncOpenAI, settings: ModelStreamSettings, chunk_seconds: float | None
    ) -> None:
        super().__init__(client)
        self._settings = settings
        self._chunk_seconds = chunk_seconds
        self._template: httpx2.Request | None = None  # a request that the library made, and that was answered

    async def create(self, **params: Any) -> Any:
        if not params.get("stream") or not _REQUEST_OPTIONS.isdisjoint(params):
            return await super().create(**params)
        response = await self._send(params)
        return CompletionStream(response, self._settings, self._chunk_seconds, params.get("model"))

    async def _send(self, params: dict[str, Any]) -> httpx2.Response:
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
            _PATH,
            body=payload if content is None else None,
            content=content,
            cast_to=httpx2.Response,
            options={"security": {"bearer_auth": True}},
            stream=True,
            stream_cls=AsyncStream[ChatCompletionChunk],
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


class _Piece(NamedTuple):
    """Text, or arguments of the tool call of that number: what can be merged with more of the same."""

    call: int | None
    text: str


class CompletionStream(MergedStream[Chunk]):
    """The chunks of a completion, as the library's stream gives them. Raises the library's errors."""

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
        self._pieces: list[str] = []  # one after the other, of one text or one tool call
        self._call: int | None = None

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

    def _add(self, event: SseEvent) -> None:
        data = event.data
        if not data:
            return
        if data.startswith(_END):
            self._ended = True
            return
        self._chunk_deadline = None
        self._chunk_count += 1
        # The first chunk is the library's whatever it holds: it has the role.
        piece = _read_piece(parse_json(data)) if self._chunk_count > 1 else None
        if piece is None:
            self._flush()
            self._items.append(self._build_chunk(data))
            return
        if piece.call != self._call:
            self._flush()
            self._call = piece.call
        if piece.text:
            self._pieces.append(piece.text)

    def _flush(self) -> None:
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces = []
        if self._call is None:
            delta: dict[str, Any] = {"content": text}
        else:
            delta = {"tool_calls": [{"index": self._call, "function": {"arguments": text}}]}
        self._items.append({"choices": [{"delta": delta}]})

    def _build_chunk(self, data: bytes) -> Chunk:
        """A chunk for LangChain: the library's object, or its fields. Raises APIError for an error."""
        value = json.loads(data.decode())
        error = value.get("error") if isinstance(value, dict) else None
        if not error:
            if _has_plain_fields(value):
                return cast("dict[str, Any]", value)
            return ChatCompletionChunk.construct(**value)
        message = error.get("message") if isinstance(error, dict) else None
        if not isinstance(message, str) or not message:
            message = _STREAM_ERROR
        raise openai.APIError(message=message, request=self._response.request, body=error)


def _has_plain_fields(chunk: Any) -> bool:
    """Whether LangChain reads the same from the JSON as from the library's object, which is slow to build.

    So for the role at the beginning, the reason at the end and the usage; not for calls and logprobs.
    """
    try:
        if type(chunk.get("usage")) not in (dict, NoneType) or chunk.get("type"):
            return False
        choices = chunk["choices"]
        if type(choices) is not list or len(choices) > 1:
            return False
        for choice in choices:
            delta = choice["delta"]
            if delta.get("tool_calls") or delta.get("function_call") or choice.get("logprobs"):
                return False
    except (AttributeError, KeyError, TypeError):
        return False
    return True


def _read_piece(chunk: Any) -> _Piece | None:
    """The text or the arguments of a chunk, if that is all that LangChain reads of it."""
    try:
        choice = chunk["choices"][0]
        delta = choice["delta"]
        if chunk.get("usage") or chunk.get("error") or chunk.get("type"):
            return None
        if choice.get("finish_reason") or choice.get("logprobs"):
            return None
        if delta.get("function_call") or delta.get("id") or delta.get("role") not in (None, "assistant"):
            return None
        content = delta.get("content")
        calls = delta.get("tool_calls")
        if calls:
            return None if content else _read_arguments(calls)
    except (AttributeError, IndexError, KeyError, TypeError):
        return None
    if content is None:
        return _Piece(None, "")  # such as reasoning, which has a field of its own
    if isinstance(content, str):
        return _Piece(None, content)
    return None


def _read_arguments(calls: Any) -> _Piece | None:
    """The arguments of the only call, if it does not begin here."""
    [call] = calls if len(calls) == 1 else [None]
    if call is None or call.get("id") is not None:
        return None
    function = call["function"]
    index = call["index"]
    arguments = function["arguments"]
    if function.get("name") is not None or type(index) is not int or not isinstance(arguments, str):
        return None
    return _Piece(index, arguments)
