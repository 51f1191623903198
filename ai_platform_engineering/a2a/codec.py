"""Codec: what a frame is called, and from A2A frames back to events. The only home of artifact names and
metadata keys; `rich_shape.py` and `plain_shape.py` make the frames."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ai_platform_engineering.a2a.event_json import TEXT_FIELD
from ai_platform_engineering.core.events import EVENT_ADAPTER, AnyEvent, StoredEvent
from ai_platform_engineering.core.json_limits import JsonLimits, JsonTooLarge

STREAMING_RESULT = "streaming_result"
SUBAGENT_RESULT = "subagent_result"
FINAL_RESULT = "final_result"
PARTIAL_RESULT = "partial_result"
TOOL_START = "tool_notification_start"
TOOL_END = "tool_notification_end"
PLAN = "execution_plan_update"
USER_INPUT = "UserInputMetaData"
USER_INPUT_OVER = "UserInputResolved"  # in the place of a request that is over
ANSWER = "answer"  # the one artifact of the plain shape

# Metadata of frames. An event is one JSON string, and its sequence number a string: a protobuf Struct would
# turn 3 into 3.0 and lose the order of keys.
EVENT_KEY = "caipe.event"
SEQ_KEY = "caipe.seq"
EVENTS_KEY = "caipe.events"  # of a snapshot: all its events, with joined deltas
TRACE_KEY = "trace_id"
FINAL_ANSWER_KEY = "is_final_answer"  # of a chunk: the answer's text ends here

_NESTED_JSON = JsonLimits(values=200_000, depth=1_000)

_PAYLOADS = ("task", "statusUpdate", "artifactUpdate", "message")  # of a streaming response in protocol 1.0


@dataclass(frozen=True, slots=True)
class TaskRef:
    """The A2A task that an event belongs to; a run is a task."""

    task_id: str
    context_id: str


def text_artifact_id(message_id: str, slot: str | None) -> str:
    """The artifact of a message's chunks; a message takes over that of the discarded one it replaces."""
    return f"text-{slot or message_id}"


def answer_artifact_id(task_id: str, message_id: str | None, slot: str | None) -> str:
    """The artifact of the whole answer: that of the message with the same text, which it replaces."""
    if message_id is None:
        return f"{FINAL_RESULT}-{task_id}"
    return text_artifact_id(message_id, slot)


def decode(result: Mapping[str, Any]) -> list[tuple[int, AnyEvent]]:
    """Our events with their sequence numbers; none for a third-party server's frame.

    `result` is that of a streaming response, or a task, as JSON of protocol 1.0 or 0.3."""
    payload = _read_payload(result)
    metadata = payload.get("metadata") or {}
    if EVENTS_KEY in metadata:
        return [(item.seq, item.event) for item in decode_snapshot(payload)]
    artifact = payload.get("artifact")
    if artifact:
        metadata = artifact.get("metadata") or {}
    if EVENT_KEY not in metadata:
        return []
    fields = _parse_json(metadata[EVENT_KEY])
    text_field = TEXT_FIELD.get(fields["kind"])
    if artifact and text_field:
        fields[text_field] = _join_text_parts(artifact)
    return [(int(metadata[SEQ_KEY]), EVENT_ADAPTER.validate_python(fields))]


def _parse_json(text: str) -> Any:
    """The JSON in a text of the frame, whose values no limit on the frame has counted. Raises ValueError."""
    try:
        _NESTED_JSON.check(text.encode(errors="replace"))
    except JsonTooLarge as error:
        raise ValueError(str(error)) from None
    return json.loads(text)


def decode_snapshot(task: Mapping[str, Any]) -> list[StoredEvent]:
    """The events in the metadata of a snapshot, with their times; none for a third-party server's task."""
    texts = {artifact["artifactId"]: _join_text_parts(artifact) for artifact in task.get("artifacts") or ()}
    decoded: list[StoredEvent] = []
    for seq, fields, stored_at in _parse_json((task.get("metadata") or {}).get(EVENTS_KEY) or "[]"):
        if fields["kind"] == "text_delta" and "text" not in fields:
            artifact_id = text_artifact_id(fields["message_id"], fields.get("slot"))
            fields["text"] = texts.get(artifact_id, "")  # a snapshot leaves empty artifacts out
        elif fields["kind"] == "answered" and "text" not in fields:
            artifact_id = answer_artifact_id(task["id"], fields.get("message_id"), fields.get("slot"))
            fields["text"] = texts.get(artifact_id, "")
        event = EVENT_ADAPTER.validate_python(fields)
        decoded.append(StoredEvent(seq, datetime.fromisoformat(stored_at), event))
    return decoded


def _read_payload(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The task, update or message in a result; in protocol 0.3 the result itself."""
    if "kind" in result or "id" in result:
        return result
    for key in _PAYLOADS:
        if key in result:
            payload: Mapping[str, Any] = result[key]
            return payload
    return {}


def _join_text_parts(artifact: Mapping[str, Any]) -> str:
    return "".join(part.get("text") or "" for part in artifact.get("parts") or ())
