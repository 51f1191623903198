"""Codec: events to A2A frames and back. The only home of artifact names and metadata keys.

It is pure, so every reader of a run gets the same frames."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never

from a2a.types import Task

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.a2a.event_json import TEXT_FIELD, event_to_json
from ai_platform_engineering.a2a.frame_protobuf import Frame, to_artifact, to_message, to_protobuf, to_status
from ai_platform_engineering.a2a.frames import (
    ArtifactFrame,
    Content,
    DataContent,
    FileContent,
    MessageFrame,
    Metadata,
    PlainFrame,
    State,
    StatusFrame,
    TaskFrame,
    TextContent,
)
from ai_platform_engineering.a2a.request_data import request_to_data
from ai_platform_engineering.a2a.snapshot_events import join_deltas
from ai_platform_engineering.core.events import (
    EVENT_ADAPTER,
    Answered,
    AnyEvent,
    Cancelled,
    DataPart,
    Failed,
    FilePart,
    InputRequested,
    InputResolved,
    Notice,
    Paused,
    PlanUpdated,
    RunStarted,
    StoredEvent,
    TerminalEvent,
    TextDelta,
    TextDiscarded,
    TextEnded,
    TextPart,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from ai_platform_engineering.core.json_limits import JsonLimits, JsonTooLarge

STREAMING_RESULT = "streaming_result"
SUBAGENT_RESULT = "subagent_result"
FINAL_RESULT = "final_result"
PARTIAL_RESULT = "partial_result"
TOOL_START = "tool_notification_start"
TOOL_END = "tool_notification_end"
PLAN = "execution_plan_update"
USER_INPUT = "UserInputMetaData"

# Metadata of frames. An event is one JSON string, and its sequence number a string: a protobuf Struct would
# turn 3 into 3.0 and lose the order of keys.
EVENT_KEY = "caipe.event"
SEQ_KEY = "caipe.seq"
EVENTS_KEY = "caipe.events"  # of a snapshot: all its events, with joined deltas

_NESTED_JSON = JsonLimits(values=200_000, depth=1_000)

_TOOL_STATUS = {"ok": "completed", "error": "failed", "unknown": "unknown"}
_EMPTY_TEXT = TextContent("")
_PAYLOADS = ("task", "statusUpdate", "artifactUpdate", "message")  # of a streaming response in protocol 1.0


@dataclass(frozen=True, slots=True)
class TaskRef:
    """The A2A task that an event belongs to; a run is a task."""

    task_id: str
    context_id: str


def encode(ref: TaskRef, item: StoredEvent) -> list[Frame]:
    """The frames of an event as messages of the SDK."""
    return [to_protobuf(frame) for frame in build_frames(ref, item)]


def build_frames(ref: TaskRef, item: StoredEvent) -> list[PlainFrame]:
    """The frames of an event. Senders number all but the last `<seq>.<part>`."""
    event = item.event
    match event:
        case TextDelta():
            return [_text_artifact(ref, item, event)]
        case RunStarted():
            return [_submitted_task(ref, item, event), _working_status(ref, item)]
        case TextDiscarded():
            return [_emptied_text_artifact(ref, item, event)]
        case ToolStarted():
            return [_tool_started_artifact(ref, item, event)]
        case ToolFinished():
            return [_tool_finished_artifact(ref, item, event)]
        case PlanUpdated():
            return [_plan_artifact(ref, item, event)]
        case InputRequested():
            return [_request_artifact(ref, item, event)]
        case TextEnded() | InputResolved():
            return [_working_status(ref, item)]
        case Notice() | ToolProgress():
            return [_working_status(ref, item, event.text)]
        case Paused():
            return [_status_update(ref, item, "input-required", event.text, with_event=True)]
        case Answered():
            return [
                _result_artifact(ref, item, event, FINAL_RESULT),
                _terminal_status(ref, item, event, "completed"),
            ]
        case Failed():
            return _unanswered(ref, item, event, "failed", event.message)
        case Cancelled():
            text = f"Stopped by {event.by}." if event.by else "Stopped."
            return _unanswered(ref, item, event, "canceled", text)
        case _:
            assert_never(event)


def encode_snapshot(ref: TaskRef, items: Sequence[StoredEvent]) -> Task:
    """The task after the events, with its sequence number; `decode` gives back events with the same fold."""
    joined = join_deltas(items)
    task = Task(id=ref.task_id, context_id=ref.context_id)
    status: TaskFrame | StatusFrame | None = None
    artifacts: dict[str, ArtifactFrame] = {}
    for item in joined:
        for frame in build_frames(ref, item):
            if isinstance(frame, ArtifactFrame):
                artifacts[frame.artifact_id] = frame
                continue
            status = frame
            if isinstance(frame, TaskFrame):
                task.history.append(to_message(frame.message))
    if status is not None:
        message = status.message if isinstance(status, StatusFrame) else None
        task.status.CopyFrom(to_status(status.state, status.at, message))
    for frame in artifacts.values():
        frame.metadata.pop(EVENT_KEY, None)
        if any(part != _EMPTY_TEXT for part in frame.parts):
            task.artifacts.append(to_artifact(frame))
    if items:
        task.metadata[SEQ_KEY] = str(items[-1].seq)
        task.metadata[EVENTS_KEY] = json.dumps(_snapshot_rows(joined, artifacts))
    return task


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
            artifact_id = f"text-{fields.get('slot') or fields['message_id']}"
            fields["text"] = texts.get(artifact_id, "")  # a snapshot leaves empty artifacts out
        elif fields["kind"] == "answered" and "text" not in fields:
            fields["text"] = texts.get(f"{FINAL_RESULT}-{task['id']}", "")
        event = EVENT_ADAPTER.validate_python(fields)
        decoded.append(StoredEvent(seq, datetime.fromisoformat(stored_at), event))
    return decoded


def plan_to_data(event: PlanUpdated) -> dict[str, Any]:
    steps = [{**step.model_dump(), "order": order} for order, step in enumerate(event.steps)]
    return {"title": event.title, "steps": steps}


# --- frames -------------------------------------------------------------------------------------------------


def _submitted_task(ref: TaskRef, item: StoredEvent, event: RunStarted) -> TaskFrame:
    message = MessageFrame(
        message_id=event.message_id,
        task_id=ref.task_id,
        context_id=ref.context_id,
        role="user",
        parts=tuple(_encode_part(part) for part in event.parts),
    )
    metadata = {SEQ_KEY: str(item.seq)}
    return TaskFrame(ref.task_id, ref.context_id, "submitted", item.stored_at, metadata, message)


def _working_status(ref: TaskRef, item: StoredEvent, text: str = "") -> StatusFrame:
    return _status_update(ref, item, "working", text, with_event=True)


def _status_update(
    ref: TaskRef, item: StoredEvent, state: State, text: str = "", *, with_event: bool = False
) -> StatusFrame:
    message: MessageFrame | None = None
    if text:
        message = MessageFrame(
            message_id=f"{ref.task_id}-{item.seq}",
            task_id=ref.task_id,
            context_id=ref.context_id,
            role="agent",
            parts=(TextContent(text),),
        )
    metadata = {SEQ_KEY: str(item.seq)}
    if with_event:
        metadata[EVENT_KEY] = json.dumps(event_to_json(item.event, omit_text=False))
    return StatusFrame(ref.task_id, ref.context_id, state, item.stored_at, metadata, message)


def _artifact_update(
    ref: TaskRef,
    item: StoredEvent,
    artifact_id: str,
    name: str,
    parts: tuple[Content, ...],
    metadata: Metadata,
    *,
    description: str = "",
    append: bool = False,
    last_chunk: bool = False,
) -> ArtifactFrame:
    metadata[SEQ_KEY] = str(item.seq)
    metadata[EVENT_KEY] = json.dumps(event_to_json(item.event, omit_text=True))
    return ArtifactFrame(
        ref.task_id,
        ref.context_id,
        artifact_id,
        name,
        parts,
        metadata,
        description=description,
        append=append,
        last_chunk=last_chunk,
    )


def _text_artifact(ref: TaskRef, item: StoredEvent, event: TextDelta) -> ArtifactFrame:
    metadata = {"source_agent": event.agent, "message_id": event.message_id}
    if event.step_id:
        metadata["plan_step_id"] = event.step_id
    if event.parent_call:
        metadata["tool_call_id"] = event.parent_call
    parts = (TextContent(event.text),)
    return _artifact_update(
        ref, item, _text_id(event), _text_name(event), parts, metadata, append=event.offset > 0
    )


def _emptied_text_artifact(ref: TaskRef, item: StoredEvent, event: TextDiscarded) -> ArtifactFrame:
    metadata = {"source_agent": event.agent, "message_id": event.message_id}
    return _artifact_update(ref, item, _text_id(event), _text_name(event), (_EMPTY_TEXT,), metadata)


def _tool_started_artifact(ref: TaskRef, item: StoredEvent, event: ToolStarted) -> ArtifactFrame:
    return _artifact_update(
        ref,
        item,
        f"start-{event.call_id}",
        TOOL_START,
        (TextContent(notification_text.tool_started(event)),),
        _tool_metadata(event),
        description=f"Tool call started: {event.tool}",
    )


def _tool_finished_artifact(ref: TaskRef, item: StoredEvent, event: ToolFinished) -> ArtifactFrame:
    metadata = _tool_metadata(event)
    metadata["status"] = _TOOL_STATUS[event.outcome]
    return _artifact_update(
        ref,
        item,
        f"end-{event.call_id}",
        TOOL_END,
        (TextContent(notification_text.tool_finished(event)),),
        metadata,
        description=f"Tool call completed: {event.tool}",
    )


def _tool_metadata(event: ToolStarted | ToolFinished) -> Metadata:
    source = event.tool if event.delegates else event.agent
    metadata = {
        "source_agent": source,
        "sourceAgent": source,
        "tool_name": event.tool,
        "tool_call_id": event.call_id,
    }
    if event.step_id:
        metadata["plan_step_id"] = event.step_id
    return metadata


def _plan_artifact(ref: TaskRef, item: StoredEvent, event: PlanUpdated) -> ArtifactFrame:
    parts = (DataContent(plan_to_data(event)), TextContent(notification_text.plan(event)))
    return _artifact_update(ref, item, f"plan-{ref.task_id}", PLAN, parts, {})


def _request_artifact(ref: TaskRef, item: StoredEvent, event: InputRequested) -> ArtifactFrame:
    parts = (DataContent(request_to_data(event)),)
    return _artifact_update(ref, item, f"request-{event.request_id}", USER_INPUT, parts, {})


def _result_artifact(ref: TaskRef, item: StoredEvent, event: TerminalEvent, name: str) -> ArtifactFrame:
    parts: tuple[Content, ...]
    if isinstance(event, Answered):
        parts = (TextContent(event.text),)
        data = _answer_data(event)
        if data is not None:
            parts = (*parts, DataContent(data))
    else:
        parts = (TextContent(event.partial or ""),)
    metadata = {"trace_id": event.trace_id}
    return _artifact_update(ref, item, f"{name}-{ref.task_id}", name, parts, metadata, last_chunk=True)


def _terminal_status(
    ref: TaskRef,
    item: StoredEvent,
    event: TerminalEvent,
    state: State,
    text: str = "",
    *,
    with_event: bool = False,
) -> StatusFrame:
    frame = _status_update(ref, item, state, text, with_event=with_event)
    frame.metadata["trace_id"] = event.trace_id
    return frame


def _unanswered(
    ref: TaskRef, item: StoredEvent, event: Failed | Cancelled, state: State, text: str
) -> list[PlainFrame]:
    """The frames of a run that ended without an answer: its partial result, if any, and its status."""
    if event.partial:
        return [
            _result_artifact(ref, item, event, PARTIAL_RESULT),
            _terminal_status(ref, item, event, state, text),
        ]
    return [_terminal_status(ref, item, event, state, text, with_event=True)]


def _answer_data(event: Answered) -> Any:
    citations = [citation.model_dump(exclude_none=True) for citation in event.citations]
    if not citations:
        return event.data
    if isinstance(event.data, dict):
        return {**event.data, "citations": citations}
    return {"citations": citations}


def _text_id(event: TextDelta | TextDiscarded) -> str:
    return f"text-{event.slot or event.message_id}"


def _text_name(event: TextDelta | TextDiscarded) -> str:
    if event.parent_call:
        return SUBAGENT_RESULT
    return STREAMING_RESULT


def _encode_part(part: TextPart | DataPart | FilePart) -> Content:
    match part:
        case TextPart():
            return TextContent(part.text)
        case DataPart():
            return DataContent(part.data)
        case FilePart():
            return FileContent(part.text, part.name, part.media_type)


# --- snapshots ----------------------------------------------------------------------------------------------


def _snapshot_rows(items: Sequence[StoredEvent], artifacts: Mapping[str, ArtifactFrame]) -> list[list[Any]]:
    """Sequence number, event and time of each event, for the metadata of a snapshot."""
    rows: list[list[Any]] = []
    for item in items:
        omit_text = _is_text_in_artifact(item.event, artifacts)
        event = event_to_json(item.event, omit_text=omit_text)
        rows.append([item.seq, event, item.stored_at.isoformat()])
    return rows


def _is_text_in_artifact(event: AnyEvent, artifacts: Mapping[str, ArtifactFrame]) -> bool:
    """Whether an artifact of the snapshot holds exactly this event's text."""
    if isinstance(event, TextDelta):
        artifact = artifacts.get(_text_id(event))
        return artifact is not None and artifact.parts[0] == TextContent(event.text)
    return isinstance(event, Answered)


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
