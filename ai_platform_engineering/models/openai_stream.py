"""Chat completions of OpenAI and compatible servers, streamed with what arrived together merged."""

import json
from types import NoneType
from typing import Any, NamedTuple, cast

import httpx2
import openai
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletionChunk

from ai_platform_engineering.core.model_streams import ModelStreamSettings
from ai_platform_engineering.models.merged_stream import parse_json
from ai_platform_engineering.models.openai_requests import OpenAIStream, StreamingRequests, is_sent_by_us
from ai_platform_engineering.models.sse_reader import SseEvent

_PATH = "/chat/completions"
_END = b"[DONE]"

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
        self._requests = StreamingRequests(client, _PATH)

    async def create(self, **params: Any) -> Any:
        if not is_sent_by_us(params):
            return await super().create(**params)
        response = await self._requests.send(params)
        return CompletionStream(response, self._settings, self._chunk_seconds, params.get("model"))


class _ChoiceText(NamedTuple):
    """Text, or arguments of the tool call of that number: what can be merged with more of the same."""

    call: int | None
    text: str


class CompletionStream(OpenAIStream[Chunk]):
    """The chunks of a completion, as the library's stream gives them. Raises the library's errors."""

    def __init__(
        self,
        response: httpx2.Response,
        settings: ModelStreamSettings,
        chunk_seconds: float | None,
        model_name: str | None,
    ) -> None:
        super().__init__(response, settings, chunk_seconds, model_name)
        self._pieces: list[str] = []  # one after the other, of one text or one tool call
        self._call: int | None = None

    def _add(self, event: SseEvent) -> None:
        data = event.data
        if not data:
            return
        if data.startswith(_END):
            self._ended = True
            return
        self._count_chunk()
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
        raise self._api_error(error)


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


def _read_piece(chunk: Any) -> _ChoiceText | None:
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
        return _ChoiceText(None, "")  # such as reasoning, which has a field of its own
    if isinstance(content, str):
        return _ChoiceText(None, content)
    return None


def _read_arguments(calls: Any) -> _ChoiceText | None:
    """The arguments of the only call, if it does not begin here."""
    [call] = calls if len(calls) == 1 else [None]
    if call is None or call.get("id") is not None:
        return None
    function = call["function"]
    index = call["index"]
    arguments = function["arguments"]
    if function.get("name") is not None or type(index) is not int or not isinstance(arguments, str):
        return None
    return _ChoiceText(index, arguments)
