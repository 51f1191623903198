"""Frames as JSON of protocol 1.0 or 0.3; text deltas, most of a stream, are rendered with an envelope."""

import json
from collections.abc import Callable
from typing import Any

from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as v03
from a2a.types import Task
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from ai_platform_engineering.a2a.codec import Frame, TaskRef, encode
from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.core.events import StoredEvent, TextDelta

# Placeholders that no real stream contains; an envelope is the SDK's own output, split at them.
_SEQ_PLACEHOLDER = 918273645546372
_OFFSET_PLACEHOLDER = 564738291192837
_TEXT_PLACEHOLDER = "\x01text\x01"
_PAUSED_STATES = (v03.TaskState.input_required, v03.TaskState.auth_required)

# ASCII only: clients that split lines at U+0085, U+2028 or U+2029 would break the JSON.
quote_json: Callable[[str], str] = json.encoder.encode_basestring_ascii


def frame_to_json(frame: Frame, *, is_v03: bool) -> str:
    """The `result` of a streaming response as JSON text; it does not depend on the request."""
    return json.dumps(frame_to_dict(frame, is_v03=is_v03), separators=(",", ":"))


def frame_to_dict(frame: Frame, *, is_v03: bool) -> dict[str, Any]:
    response = to_stream_response(frame)
    if not is_v03:
        return _restore_integer_fields(MessageToDict(response))
    result = conversions.to_compat_stream_response(response, None).result
    if isinstance(result, v03.TaskStatusUpdateEvent) and result.status.state in _PAUSED_STATES:
        result.final = True  # the SDK says false although the stream closes
    fields: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _restore_integer_fields(fields)


def _restore_integer_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: restore_integers(item) for key, item in fields.items()}


class FrameRenderer:
    """Renders events as the JSON results of one stream; it keeps an envelope for each message."""

    def __init__(self, ref: TaskRef, *, is_v03: bool) -> None:
        self._ref = ref
        self._is_v03 = is_v03
        self._envelopes: dict[object, list[str] | None] = {}

    def render_event(self, item: StoredEvent) -> list[str]:
        event = item.event
        if not isinstance(event, TextDelta) or event.offset == 0:
            return [frame_to_json(frame, is_v03=self._is_v03) for frame in encode(self._ref, item)]
        key = (event.message_id, event.agent, event.parent_call, event.step_id, event.slot)
        if key not in self._envelopes:
            self._envelopes[key] = self._build_envelope(item, event)
        envelope = self._envelopes[key]
        if envelope is None:
            return [frame_to_json(frame, is_v03=self._is_v03) for frame in encode(self._ref, item)]
        values = {"seq": str(item.seq), "offset": str(event.offset), "text": quote_json(event.text)}
        return ["".join(values.get(piece, piece) for piece in envelope)]

    def render_snapshot(self, task: Task) -> str:
        return frame_to_json(task, is_v03=self._is_v03)

    def _build_envelope(self, item: StoredEvent, event: TextDelta) -> list[str] | None:
        """The JSON of a delta in pieces, with the names of the values that go between them."""
        placeholder_event = event.model_copy(
            update={"offset": _OFFSET_PLACEHOLDER, "text": _TEXT_PLACEHOLDER}
        )
        placeholder_item = item._replace(seq=_SEQ_PLACEHOLDER, event=placeholder_event)
        rest = frame_to_json(encode(self._ref, placeholder_item)[0], is_v03=self._is_v03)
        names = {
            str(_SEQ_PLACEHOLDER): "seq",
            str(_OFFSET_PLACEHOLDER): "offset",
            quote_json(_TEXT_PLACEHOLDER): "text",
        }
        if any(rest.count(placeholder) != 1 for placeholder in names):
            return None  # a name in the event contains a placeholder: without an envelope it is always right
        pieces: list[str] = []
        for placeholder in sorted(names, key=rest.index):
            before, rest = rest.split(placeholder)
            pieces += [before, names[placeholder]]
        return [*pieces, rest]
