"""Codec: events to A2A frames and back. The only home of artifact names and metadata keys.

It is pure, so every reader of a run gets the same frames."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never

from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.a2a.protobuf_values import to_protobuf_value
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

Frame = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

_NESTED_JSON = JsonLimits(values=200_000, depth=1_000)

# The field of an event that is sent in the frame's text part and not in its JSON: no text is sent twice.
_TEXT_FIELD = {"text_delta": "text", "answered": "text", "failed": "partial", "cancelled": "partial"}
_TOOL_STATUS = {"ok": "completed", "error": "failed", "unknown": "unknown"}
_PAYLOADS = ("task", "statusUpdate", "artifactUpdate", "message")  # of a streaming response in protocol 1.0


@dataclass(frozen=True, slots=True)
class TaskRef:
    """The A2A task that an event belongs to; a run is a task."""

    task_id: str
    context_id: str


def encode(ref: TaskRef, item: StoredEvent) -> list[Frame]:
    """The frames of an event. Senders number all but the last `<seq>.<part>`."""
    event = item.event
    match event:
        case RunStarted():
            return [_submitted_task(ref, item, event), _working_status(ref, item)]
        case TextDelta():
            return [_text_artifact(ref, item, event)]
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
            return [
                _status_update(ref, item, TaskState.TASK_STATE_INPUT_REQUIRED, event.text, with_event=True)
            ]
        case Answered():
            return [
                _result_artifact(ref, item, event, FINAL_RESULT),
                _terminal_status(ref, item, event, TaskState.TASK_STATE_COMPLETED),
            ]
        case Failed():
            return _unanswered(ref, item, event, TaskState.TASK_STATE_FAILED, event.message)
        case Cancelled():
            text = f"Stopped by {event.by}." if event.by else "Stopped."
            return _unanswered(ref, item, event, TaskState.TASK_STATE_CANCELED, text)
        case _:
            assert_never(event)


def encode_snapshot(ref: TaskRef, items: Sequence[StoredEvent]) -> Task:
    """The task after the events, with its sequence number; `decode` gives back events with the same fold."""
    joined = join_deltas(items)
    task = Task(id=ref.task_id, context_id=ref.context_id)
    artifacts: dict[str, Artifact] = {}
    for item in joined:
        for frame in encode(ref, item):
            if isinstance(frame, Task):
                task.history.extend(frame.history)
            if isinstance(frame, TaskArtifactUpdateEvent):
                artifacts[frame.artifact.artifact_id] = frame.artifact
            else:
                task.status.CopyFrom(frame.status)
    for artifact in artifacts.values():
        if EVENT_KEY in artifact.metadata:
            del artifact.metadata[EVENT_KEY]
        if any(part.text or not part.HasField("text") for part in artifact.parts):
            task.artifacts.append(artifact)
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
    text_field = _TEXT_FIELD.get(fields["kind"])
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


def user_message(ref: TaskRef, event: RunStarted) -> Message:
    """The user's message as the task's history shows it."""
    return Message(
        message_id=event.message_id,
        context_id=ref.context_id,
        task_id=ref.task_id,
        role=Role.ROLE_USER,
        parts=[_encode_part(part) for part in event.parts],
    )


# --- frames -------------------------------------------------------------------------------------------------


def _submitted_task(ref: TaskRef, item: StoredEvent, event: RunStarted) -> Task:
    status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED, timestamp=item.stored_at)
    task = Task(id=ref.task_id, context_id=ref.context_id, status=status, history=[user_message(ref, event)])
    task.metadata[SEQ_KEY] = str(item.seq)
    return task


def _working_status(ref: TaskRef, item: StoredEvent, text: str = "") -> TaskStatusUpdateEvent:
    return _status_update(ref, item, TaskState.TASK_STATE_WORKING, text, with_event=True)


def _status_update(
    ref: TaskRef, item: StoredEvent, state: TaskState, text: str = "", *, with_event: bool = False
) -> TaskStatusUpdateEvent:
    status = TaskStatus(state=state, timestamp=item.stored_at)
    if text:
        message = Message(
            message_id=f"{ref.task_id}-{item.seq}",
            context_id=ref.context_id,
            task_id=ref.task_id,
            role=Role.ROLE_AGENT,
            parts=[Part(text=text)],
        )
        status.message.CopyFrom(message)
    frame = TaskStatusUpdateEvent(task_id=ref.task_id, context_id=ref.context_id, status=status)
    frame.metadata[SEQ_KEY] = str(item.seq)
    if with_event:
        frame.metadata[EVENT_KEY] = json.dumps(_event_to_json(item.event, omit_text=False))
    return frame


def _artifact_update(
    ref: TaskRef, item: StoredEvent, artifact: Artifact, *, append: bool = False, last: bool = False
) -> TaskArtifactUpdateEvent:
    artifact.metadata[SEQ_KEY] = str(item.seq)
    artifact.metadata[EVENT_KEY] = json.dumps(_event_to_json(item.event, omit_text=True))
    return TaskArtifactUpdateEvent(
        task_id=ref.task_id, context_id=ref.context_id, artifact=artifact, append=append, last_chunk=last
    )


def _text_artifact(ref: TaskRef, item: StoredEvent, event: TextDelta) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id=_text_id(event), name=_text_name(event), parts=[Part(text=event.text)])
    artifact.metadata.update({"source_agent": event.agent, "message_id": event.message_id})
    if event.step_id:
        artifact.metadata["plan_step_id"] = event.step_id
    if event.parent_call:
        artifact.metadata["tool_call_id"] = event.parent_call
    return _artifact_update(ref, item, artifact, append=event.offset > 0)


def _emptied_text_artifact(ref: TaskRef, item: StoredEvent, event: TextDiscarded) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id=_text_id(event), name=_text_name(event), parts=[Part(text="")])
    artifact.metadata.update({"source_agent": event.agent, "message_id": event.message_id})
    return _artifact_update(ref, item, artifact)


def _tool_started_artifact(ref: TaskRef, item: StoredEvent, event: ToolStarted) -> TaskArtifactUpdateEvent:
    artifact = Artifact(
        artifact_id=f"start-{event.call_id}",
        name=TOOL_START,
        description=f"Tool call started: {event.tool}",
        parts=[Part(text=notification_text.tool_started(event))],
    )
    _add_tool_metadata(artifact, event)
    return _artifact_update(ref, item, artifact)


def _tool_finished_artifact(ref: TaskRef, item: StoredEvent, event: ToolFinished) -> TaskArtifactUpdateEvent:
    artifact = Artifact(
        artifact_id=f"end-{event.call_id}",
        name=TOOL_END,
        description=f"Tool call completed: {event.tool}",
        parts=[Part(text=notification_text.tool_finished(event))],
    )
    _add_tool_metadata(artifact, event)
    artifact.metadata["status"] = _TOOL_STATUS[event.outcome]
    return _artifact_update(ref, item, artifact)


def _add_tool_metadata(artifact: Artifact, event: ToolStarted | ToolFinished) -> None:
    source = event.tool if event.delegates else event.agent
    artifact.metadata.update(
        {
            "source_agent": source,
            "sourceAgent": source,
            "tool_name": event.tool,
            "tool_call_id": event.call_id,
        }
    )
    if event.step_id:
        artifact.metadata["plan_step_id"] = event.step_id


def _plan_artifact(ref: TaskRef, item: StoredEvent, event: PlanUpdated) -> TaskArtifactUpdateEvent:
    data = Part(data=to_protobuf_value(plan_to_data(event)))
    text = Part(text=notification_text.plan(event))
    artifact = Artifact(artifact_id=f"plan-{ref.task_id}", name=PLAN, parts=[data, text])
    return _artifact_update(ref, item, artifact)


def _request_artifact(ref: TaskRef, item: StoredEvent, event: InputRequested) -> TaskArtifactUpdateEvent:
    data = Part(data=to_protobuf_value(request_to_data(event)))
    artifact = Artifact(artifact_id=f"request-{event.request_id}", name=USER_INPUT, parts=[data])
    return _artifact_update(ref, item, artifact)


def _result_artifact(
    ref: TaskRef, item: StoredEvent, event: TerminalEvent, name: str
) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id=f"{name}-{ref.task_id}", name=name)
    if isinstance(event, Answered):
        artifact.parts.append(Part(text=event.text))
        data = _answer_data(event)
        if data is not None:
            artifact.parts.append(Part(data=to_protobuf_value(data)))
    else:
        artifact.parts.append(Part(text=event.partial or ""))
    artifact.metadata["trace_id"] = event.trace_id
    return _artifact_update(ref, item, artifact, last=True)


def _terminal_status(
    ref: TaskRef,
    item: StoredEvent,
    event: TerminalEvent,
    state: TaskState,
    text: str = "",
    *,
    with_event: bool = False,
) -> TaskStatusUpdateEvent:
    frame = _status_update(ref, item, state, text, with_event=with_event)
    frame.metadata["trace_id"] = event.trace_id
    return frame


def _unanswered(
    ref: TaskRef, item: StoredEvent, event: Failed | Cancelled, state: TaskState, text: str
) -> list[Frame]:
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


def _encode_part(part: TextPart | DataPart | FilePart) -> Part:
    match part:
        case TextPart():
            return Part(text=part.text)
        case DataPart():
            return Part(data=to_protobuf_value(part.data))
        case FilePart():
            return Part(raw=part.text.encode(), filename=part.name, media_type=part.media_type)


# --- our event as JSON --------------------------------------------------------------------------------------


def _event_to_json(event: AnyEvent, *, omit_text: bool) -> dict[str, Any]:
    """The event without defaults; `omit_text` leaves out the text that the frame carries in its text part."""
    omitted: set[str] = set()
    for name, field in type(event).model_fields.items():
        if not field.is_required() and getattr(event, name) == field.get_default(call_default_factory=True):
            omitted.add(name)
    if omit_text and event.kind in _TEXT_FIELD:
        omitted.add(_TEXT_FIELD[event.kind])
    return {"kind": event.kind, **event.model_dump(mode="json", exclude=omitted)}


def _snapshot_rows(items: Sequence[StoredEvent], artifacts: Mapping[str, Artifact]) -> list[list[Any]]:
    """Sequence number, event and time of each event, for the metadata of a snapshot."""
    rows: list[list[Any]] = []
    for item in items:
        omit_text = _is_text_in_artifact(item.event, artifacts)
        event = _event_to_json(item.event, omit_text=omit_text)
        rows.append([item.seq, event, item.stored_at.isoformat()])
    return rows


def _is_text_in_artifact(event: AnyEvent, artifacts: Mapping[str, Artifact]) -> bool:
    """Whether an artifact of the snapshot holds exactly this event's text."""
    if isinstance(event, TextDelta):
        artifact = artifacts.get(_text_id(event))
        return artifact is not None and artifact.parts[0].text == event.text
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
