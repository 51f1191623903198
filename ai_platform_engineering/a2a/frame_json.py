"""Frames as JSON of protocol 1.0 or 0.3, equal to the SDK's own conversion and without its cost.

Text deltas, most of a stream, are rendered with an envelope."""

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, assert_never

from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as v03
from a2a.types import Task
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.a2a.event_frames import RICH, build_frames
from ai_platform_engineering.a2a.frame_protobuf import Frame
from ai_platform_engineering.a2a.frames import (
    ArtifactFrame,
    Content,
    DataContent,
    FileContent,
    MessageFrame,
    PlainFrame,
    StatusFrame,
    TaskFrame,
    TextContent,
)
from ai_platform_engineering.a2a.protobuf_values import restore_integers, to_wire_value
from ai_platform_engineering.core.events import InputRequested, StoredEvent, TextDelta

# Placeholders that no real stream contains; an envelope is a rendered delta, split at them.
_SEQ_PLACEHOLDER = 918273645546372
_OFFSET_PLACEHOLDER = 564738291192837
_TEXT_PLACEHOLDER = "\x01text\x01"
_MAX_ENVELOPES = 64  # of messages that are written at the same time
_PAUSED_STATES = (v03.TaskState.input_required, v03.TaskState.auth_required)
_OPEN_STATES = ("submitted", "working")  # after any other, the stream closes

# ASCII only: clients that split lines at U+0085, U+2028 or U+2029 would break the JSON.
quote_json: Callable[[str], str] = json.encoder.encode_basestring_ascii
# What changes from delta to delta: the plain shape sends neither the event's number nor its offset.
_TEXT_NAME = {quote_json(_TEXT_PLACEHOLDER): "text"}
_PLACEHOLDERS = {
    "rich": {str(_SEQ_PLACEHOLDER): "seq", str(_OFFSET_PLACEHOLDER): "offset", **_TEXT_NAME},
    "plain": _TEXT_NAME,
}
_dump_json = json.JSONEncoder(separators=(",", ":")).encode


def frame_to_json(frame: Frame, *, is_v03: bool) -> str:
    """The `result` of a streaming response as JSON text, converted by the SDK."""
    return _dump_json(frame_to_dict(frame, is_v03=is_v03))


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

    def __init__(self, ref: TaskRef, *, is_v03: bool, shape: ClientShape = RICH) -> None:
        self._ref = ref
        self._is_v03 = is_v03
        self._shape = shape
        self._to_dict = _to_v03 if is_v03 else _to_v10
        self._placeholders = _PLACEHOLDERS[shape.name]
        self._envelopes: dict[object, list[str] | None] = {}

    def render_event(self, item: StoredEvent, requests: Sequence[InputRequested] = ()) -> list[str]:
        """The results of an event; `requests` are all of the run, for an event that needs them."""
        event = item.event
        if not isinstance(event, TextDelta) or event.offset == 0:
            return self._render_frames(item, requests)
        key = (event.message_id, event.agent, event.parent_call, event.step_id, event.slot)
        if key not in self._envelopes:
            if len(self._envelopes) >= _MAX_ENVELOPES:
                self._envelopes.clear()
            self._envelopes[key] = self._build_envelope(item, event)
        envelope = self._envelopes[key]
        if envelope is None:
            return self._render_frames(item)
        values = {"seq": str(item.seq), "offset": str(event.offset), "text": quote_json(event.text)}
        return ["".join(values.get(piece, piece) for piece in envelope)]

    def render_snapshot(self, task: Task) -> str:
        return frame_to_json(task, is_v03=self._is_v03)

    def _render_frames(self, item: StoredEvent, requests: Sequence[InputRequested] = ()) -> list[str]:
        frames = build_frames(self._ref, item, self._shape, requests)
        return [_dump_json(self._to_dict(frame)) for frame in frames]

    def _build_envelope(self, item: StoredEvent, event: TextDelta) -> list[str] | None:
        """The JSON of a delta in pieces, with the names of the values that go between them."""
        placeholder_event = event.model_copy(
            update={"offset": _OFFSET_PLACEHOLDER, "text": _TEXT_PLACEHOLDER}
        )
        results = self._render_frames(item._replace(seq=_SEQ_PLACEHOLDER, event=placeholder_event))
        if not results:
            return None  # the shape leaves this text out
        [rest] = results
        names = self._placeholders
        if any(rest.count(placeholder) != 1 for placeholder in names):
            return None  # a name in the event contains a placeholder: without an envelope it is always right
        pieces: list[str] = []
        for placeholder in sorted(names, key=rest.index):
            before, rest = rest.split(placeholder)
            pieces += [before, names[placeholder]]
        return [*pieces, rest]


def _format_time(at: datetime) -> str:
    """The time as protobuf writes it: in UTC, with no more digits than needed, in groups of three."""
    if not at.microsecond:
        precision = "seconds"
    elif at.microsecond % 1000:
        precision = "microseconds"
    else:
        precision = "milliseconds"
    return at.astimezone(UTC).isoformat(timespec=precision).removesuffix("+00:00") + "Z"


def _encode_file(part: FileContent) -> str:
    return base64.b64encode(part.text.encode()).decode()


def _omit_empty(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as protobuf prints them: without those that have their default."""
    return {name: value for name, value in fields.items() if value}


# --- protocol 1.0 -------------------------------------------------------------------------------------------


def _to_v10(frame: PlainFrame) -> dict[str, Any]:
    match frame:
        case ArtifactFrame():
            artifact = _omit_empty(
                {
                    "artifactId": frame.artifact_id,
                    "name": frame.name,
                    "description": frame.description,
                    "parts": [_part_to_v10(part) for part in frame.parts],
                    "metadata": frame.metadata,
                }
            )
            update = {
                "taskId": frame.task_id,
                "contextId": frame.context_id,
                "artifact": artifact,
                "append": frame.append,
                "lastChunk": frame.last_chunk,
            }
            return {"artifactUpdate": _omit_empty(update)}
        case StatusFrame():
            update = {
                "taskId": frame.task_id,
                "contextId": frame.context_id,
                "status": _status_to_v10(frame, frame.message),
                "metadata": frame.metadata,
            }
            return {"statusUpdate": _omit_empty(update)}
        case TaskFrame():
            task = {
                "id": frame.task_id,
                "contextId": frame.context_id,
                "status": _status_to_v10(frame),
                "history": [_message_to_v10(frame.message)],
                "metadata": frame.metadata,
            }
            return {"task": _omit_empty(task)}
        case _:
            assert_never(frame)


def _status_to_v10(frame: TaskFrame | StatusFrame, message: MessageFrame | None = None) -> dict[str, Any]:
    status: dict[str, Any] = {"state": "TASK_STATE_" + frame.state.upper().replace("-", "_")}
    if message is not None:
        status["message"] = _message_to_v10(message)
    status["timestamp"] = _format_time(frame.at)
    return status


def _message_to_v10(message: MessageFrame) -> dict[str, Any]:
    return _omit_empty(
        {
            "messageId": message.message_id,
            "contextId": message.context_id,
            "taskId": message.task_id,
            "role": "ROLE_USER" if message.role == "user" else "ROLE_AGENT",
            "parts": [_part_to_v10(part) for part in message.parts],
        }
    )


def _part_to_v10(part: Content) -> dict[str, Any]:
    match part:
        case TextContent():
            return {"text": part.text}
        case DataContent():
            return {"data": to_wire_value(part.data)}
        case FileContent():
            details = _omit_empty({"filename": part.name, "mediaType": part.media_type})
            return {"raw": _encode_file(part), **details}
        case _:
            assert_never(part)


# --- protocol 0.3 -------------------------------------------------------------------------------------------


def _to_v03(frame: PlainFrame) -> dict[str, Any]:
    match frame:
        case ArtifactFrame():
            labels = _omit_empty({"name": frame.name, "description": frame.description})
            return {
                "append": frame.append,
                "artifact": {
                    "artifactId": frame.artifact_id,
                    **labels,
                    **_omit_empty({"metadata": frame.metadata}),
                    "parts": [_part_to_v03(part) for part in frame.parts],
                },
                "contextId": frame.context_id,
                "kind": "artifact-update",
                "lastChunk": frame.last_chunk,
                "taskId": frame.task_id,
            }
        case StatusFrame():
            return {
                "contextId": frame.context_id,
                "final": frame.state not in _OPEN_STATES,
                "kind": "status-update",
                **_omit_empty({"metadata": frame.metadata}),
                "status": _status_to_v03(frame, frame.message),
                "taskId": frame.task_id,
            }
        case TaskFrame():
            return {
                "contextId": frame.context_id,
                "history": [_message_to_v03(frame.message)],
                "id": frame.task_id,
                "kind": "task",
                **_omit_empty({"metadata": frame.metadata}),
                "status": _status_to_v03(frame),
            }
        case _:
            assert_never(frame)


def _status_to_v03(frame: TaskFrame | StatusFrame, message: MessageFrame | None = None) -> dict[str, Any]:
    status: dict[str, Any] = {"state": frame.state, "timestamp": _format_time(frame.at)}
    if message is not None:
        status["message"] = _message_to_v03(message)
    return status


def _message_to_v03(message: MessageFrame) -> dict[str, Any]:
    ids = _omit_empty({"contextId": message.context_id, "taskId": message.task_id})
    return {
        **ids,
        "kind": "message",
        "messageId": message.message_id,
        "parts": [_part_to_v03(part) for part in message.parts],
        "role": message.role,
    }


def _part_to_v03(part: Content) -> dict[str, Any]:
    match part:
        case TextContent():
            return {"kind": "text", "text": part.text}
        case DataContent():
            data = to_wire_value(part.data)
            if isinstance(data, dict):
                return {"data": data, "kind": "data"}
            # 0.3 has objects only; the SDK reads the mark back.
            return {"data": {"value": data}, "kind": "data", "metadata": {"data_part_compat": True}}
        case FileContent():
            details = _omit_empty({"mimeType": part.media_type, "name": part.name})
            return {"file": {"bytes": _encode_file(part), **details}, "kind": "file"}
        case _:
            assert_never(part)
