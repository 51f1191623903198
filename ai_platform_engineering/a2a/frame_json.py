"""Frames as JSON of protocol 1.0 or 0.3, with a prepared envelope for the deltas that make up most of a stream."""

import json
from collections.abc import Callable
from typing import Any

from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as v03
from a2a.types import Task
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from ai_platform_engineering.a2a.codec import Frame, TaskRef, encode
from ai_platform_engineering.a2a.protobuf_numbers import restore_integers
from ai_platform_engineering.core.events import StoredEvent, TextDelta

# Stand-ins that no real stream contains; an envelope is the SDK's own output, cut where they stand.
_SEQ = 918273645546372
_OFFSET = 564738291192837
_TEXT = "\x01text\x01"
_PAUSED = (v03.TaskState.input_required, v03.TaskState.auth_required)

# ASCII only: clients that split lines at U+0085, U+2028 or U+2029 would break the JSON.
quote_json: Callable[[str], str] = json.encoder.encode_basestring_ascii


def frame_to_json(frame: Frame, *, is_v03: bool) -> str:
    """The `result` of a streaming response; it does not depend on the request."""
    return json.dumps(frame_to_dict(frame, is_v03=is_v03), separators=(",", ":"))


def frame_to_dict(frame: Frame, *, is_v03: bool) -> dict[str, Any]:
    response = to_stream_response(frame)
    if not is_v03:
        return _tidy(MessageToDict(response))
    old = conversions.to_compat_stream_response(response, None).result
    if isinstance(old, v03.TaskStatusUpdateEvent):
        old.final = old.final or old.status.state in _PAUSED  # the SDK says false although the stream closes
    dumped: dict[str, Any] = old.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _tidy(dumped)


def _tidy(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: restore_integers(item) for key, item in fields.items()}


def task_to_dict(task: Task, *, is_v03: bool) -> dict[str, Any]:
    """A task alone, as `tasks/get` returns it."""
    result = frame_to_dict(task, is_v03=is_v03)
    if is_v03:
        return result
    task_json: dict[str, Any] = result["task"]
    return task_json


class FrameRenderer:
    """The JSON results of events; one per stream, since it keeps an envelope for each message."""

    def __init__(self, ref: TaskRef, *, is_v03: bool) -> None:
        self._ref, self._v03 = ref, is_v03
        self._envelopes: dict[object, list[str] | None] = {}

    def render_event(self, item: StoredEvent) -> list[str]:
        event = item.event
        if not isinstance(event, TextDelta) or event.offset == 0:
            return [frame_to_json(frame, is_v03=self._v03) for frame in encode(self._ref, item)]
        key = (event.message_id, event.agent, event.parent_call, event.step_id, event.slot)
        if key not in self._envelopes:
            self._envelopes[key] = self._envelope(item, event)
        if (envelope := self._envelopes[key]) is None:
            return [frame_to_json(frame, is_v03=self._v03) for frame in encode(self._ref, item)]
        values = {"seq": str(item.seq), "offset": str(event.offset), "text": quote_json(event.text)}
        return ["".join(values.get(piece, piece) for piece in envelope)]

    def render_snapshot(self, task: Task) -> str:
        return frame_to_json(task, is_v03=self._v03)

    def _envelope(self, item: StoredEvent, event: TextDelta) -> list[str] | None:
        marked = item._replace(seq=_SEQ, event=event.model_copy(update={"offset": _OFFSET, "text": _TEXT}))
        whole = frame_to_json(encode(self._ref, marked)[0], is_v03=self._v03)
        marks = {str(_SEQ): "seq", str(_OFFSET): "offset", quote_json(_TEXT): "text"}
        if any(whole.count(mark) != 1 for mark in marks):
            return None  # a name of the event contains a stand-in: no envelope, the slow way is always right
        pieces: list[str] = []
        for mark in sorted(marks, key=whole.index):
            before, whole = whole.split(mark)
            pieces += [before, marks[mark]]
        return [*pieces, whole]
