"""OpenAI's Responses API, streamed with what arrived together merged."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx2
import openai
from openai._models import construct_type
from openai.resources.responses import AsyncResponses
from openai.types.responses import ResponseStreamEvent

from ai_platform_engineering.core.model_streams import ModelStreamSettings
from ai_platform_engineering.models.merged_stream import parse_json
from ai_platform_engineering.models.openai_requests import OpenAIStream, StreamingRequests, is_sent_by_us
from ai_platform_engineering.models.sse_reader import SseEvent

_PATH = "/responses"
_TEXT_DELTA = "response.output_text.delta"
_ARGUMENTS_DELTA = "response.function_call_arguments.delta"
_ENDS = frozenset({"response.completed", "response.incomplete"})
# LangChain reads none of these, or reads them from another event.
_IGNORED = frozenset(
    {
        "response.in_progress",
        "response.queued",
        "response.content_part.added",
        "response.content_part.done",
        "response.function_call_arguments.done",
        "keepalive",
    }
)


class MergedResponses(AsyncResponses):
    """The responses of a client; a streaming one is read by ResponseStream.

    `chunk_seconds`: how long a stream may stay without an event.
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
        return ResponseStream(response, self._settings, self._chunk_seconds, params.get("model"))


class _Position(NamedTuple):
    """Which text or which arguments a delta continues."""

    kind: str
    item_id: Any
    output_index: Any
    content_index: Any


class ResponseStream(OpenAIStream[Any]):
    """The events of a response, as the library's stream gives them. Raises the library's errors."""

    def __init__(
        self,
        response: httpx2.Response,
        settings: ModelStreamSettings,
        chunk_seconds: float | None,
        model_name: str | None,
    ) -> None:
        super().__init__(response, settings, chunk_seconds, model_name)
        self._pieces: list[str] = []  # one after the other, of one text or one tool call
        self._position: _Position | None = None

    def _add(self, event: SseEvent) -> None:
        if not event.data or event.data.startswith(b"[DONE]"):
            return
        value = parse_json(event.data)
        if not isinstance(value, dict):
            return
        self._count_chunk()
        kind = value.get("type")
        if kind in (_TEXT_DELTA, _ARGUMENTS_DELTA) and isinstance(value.get("delta"), str):
            self._add_delta(value)
            return
        if kind in _IGNORED:
            return
        self._flush()
        self._raise_failure(value)
        self._items.append(construct_type(value=value, type_=ResponseStreamEvent))
        self._ended = kind in _ENDS

    def _add_delta(self, value: dict[str, Any]) -> None:
        position = _Position(
            value["type"], value.get("item_id"), value.get("output_index"), value.get("content_index")
        )
        if position != self._position:
            self._flush()
            self._position = position
        self._pieces.append(value["delta"])

    def _flush(self) -> None:
        if not self._pieces or self._position is None:
            return
        position = self._position
        self._items.append(
            SimpleNamespace(
                type=position.kind,
                item_id=position.item_id,
                output_index=position.output_index,
                content_index=position.content_index,
                delta="".join(self._pieces),
            )
        )
        self._pieces = []

    def _raise_failure(self, value: dict[str, Any]) -> None:
        """Raises APIError for an event that reports one: LangChain would raise a ValueError, which says
        nothing about another attempt."""
        kind = value.get("type")
        if kind == "response.failed":
            raise self._api_error((value.get("response") or {}).get("error"))
        if kind == "error" or value.get("error"):
            raise self._api_error(value.get("error") or value)
