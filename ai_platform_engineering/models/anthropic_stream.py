"""Messages of Anthropic's protocol, streamed with what arrived together merged."""

import json
from typing import Any, NamedTuple

import anthropic
import httpx2

from ai_platform_engineering.core.model_streams import ModelStreamSettings
from ai_platform_engineering.models.merged_stream import MergedStream, parse_json
from ai_platform_engineering.models.sse_reader import SseEvent

_EVENT_KEYS = {"type", "index", "delta"}
# The deltas that can be merged with more of the same, and where their text is.
_TEXT_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class _BlockText(NamedTuple):
    """Text of a content block."""

    block: int
    kind: str  # of the delta
    text: str


class MessageStream(MergedStream[Any]):
    """The events of a message, as the library's stream gives them. Raises the library's errors.

    `event_type`: the union of the library's types of events.
    """

    def __init__(
        self,
        response: httpx2.Response,
        settings: ModelStreamSettings,
        client: anthropic.AsyncAnthropic,
        event_type: Any,
    ) -> None:
        super().__init__(response, settings)
        self._client = client
        self._event_type = event_type
        self._pieces: list[_BlockText] = []  # one after the other, of one block and kind

    def _add(self, event: SseEvent) -> None:
        if event.name == b"error":
            self._flush()
            raise self._build_error(event.data)
        if event.name in (b"", b"ping") or not event.data:
            return
        piece = _read_piece(parse_json(event.data))
        if piece is None:
            self._flush()
            self._items.append(self._build_event(json.loads(event.data.decode())))
            return
        if self._pieces and self._pieces[0][:2] != piece[:2]:
            self._flush()
        self._pieces.append(piece)

    def _flush(self) -> None:
        if not self._pieces:
            return
        block, kind, _ = self._pieces[0]
        text = "".join(piece.text for piece in self._pieces)
        self._pieces = []
        delta = {"type": kind, _TEXT_FIELDS[kind]: text}
        merged = {"type": "content_block_delta", "index": block, "delta": delta}
        self._items.append(self._build_event(merged))

    def _build_event(self, value: Any) -> Any:
        """The library's object for an event."""
        return self._client._process_response_data(
            data=value, cast_to=self._event_type, response=self._response
        )

    def _build_error(self, data: bytes) -> anthropic.APIStatusError:
        text = data.decode()
        try:
            body = json.loads(text)
            message = f"{body}"
        except ValueError:
            body = text
            message = text or f"Error code: {self._response.status_code}"
        return self._client._make_status_error(message, body=body, response=self._response)


def _read_piece(event: Any) -> _BlockText | None:
    """The text of a delta that holds nothing else."""
    if not isinstance(event, dict) or event.keys() != _EVENT_KEYS or event["type"] != "content_block_delta":
        return None
    block = event["index"]
    delta = event["delta"]
    if type(block) is not int or not isinstance(delta, dict) or len(delta) != 2:
        return None
    kind = delta.get("type")
    text = delta.get(_TEXT_FIELDS.get(kind, "")) if isinstance(kind, str) else None
    if not isinstance(kind, str) or not isinstance(text, str):
        return None
    return _BlockText(block, kind, text)
