"""Event <-> A2A. The only home of artifact names and metadata keys; pure, so every reader of a run gets the same frames."""

import json
from collections.abc import Iterable, Mapping, Sequence
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
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.a2a.snapshot_events import join_deltas
from ai_platform_engineering.core.events import (
    EVENT_ADAPTER,
    Answered,
    AnyEvent,
    Approval,
    Cancelled,
    DataPart,
    Failed,
    FilePart,
    Form,
    InputRequested,
    InputResolved,
    Notice,
    Paused,
    PlanUpdated,
    RunStarted,
    StoredEvent,
    TextDelta,
    TextDiscarded,
    TextEnded,
    TextPart,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)

STREAMING_RESULT = "streaming_result"
SUBAGENT_RESULT = "subagent_result"
FINAL_RESULT = "final_result"
PARTIAL_RESULT = "partial_result"
TOOL_START = "tool_notification_start"
TOOL_END = "tool_notification_end"
PLAN = "execution_plan_update"
USER_INPUT = "UserInputMetaData"

EVENT_KEY = "caipe.event"  # our whole event as one JSON string: a protobuf Struct would turn 3 into 3.0 and lose the order
SEQ_KEY = "caipe.seq"  # its number, as a string for the same reason
TIMEOUT_KEY = "caipe.timeout_seconds"  # of a message: how long its sender will wait
NEW_QUESTION_KEY = "caipe.new_question"  # of a message: it answers nothing; what its conversation still waits for was given up
BUSY_KEY = (
    "caipe.when_busy"  # of a message: enqueue, reject or interrupt, when its conversation works on another
)
CALL_PART = "caipe.call"  # in a data part: one tool of an agent with its arguments, to be called without the agent's model
WORKFLOW_PART = "workflow"  # in a data part: the name of a workflow to start, with `values` for its form
SCOPE_PART = (
    "caipe.scope"  # in a data part of its own: the agents that the run may use, and instructions for it alone
)
EVENTS_KEY = "caipe.events"  # of a snapshot: the events behind it, joined

Frame = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

# The one field of an event that travels in the frame's text part and not in its JSON, so that no text is sent twice.
_TEXT_FIELD = {"text_delta": "text", "answered": "text", "failed": "partial", "cancelled": "partial"}
_TOOL_STATUS = {"ok": "completed", "error": "failed", "unknown": "unknown"}
_DEEPEST = 24  # protobuf reads at most 100 levels of its own, and one of an object takes three


@dataclass(frozen=True, slots=True)
class TaskRef:
    """Which task an event belongs to; a run is a task."""

    task_id: str
    context_id: str


def encode(ref: TaskRef, item: StoredEvent) -> list[Frame]:
    """The frames of an event. All but the last are numbered `<seq>.<part>` by whoever sends them."""
    event = item.event
    match event:
        case RunStarted():
            return [
                _submitted(ref, item, event),
                _status(ref, item, TaskState.TASK_STATE_WORKING, event=True),
            ]
        case TextDelta():
            return [_text(ref, item, event)]
        case TextDiscarded():
            artifact = Artifact(artifact_id=_text_id(event), name=_text_name(event), parts=[Part(text="")])
            artifact.metadata.update({"source_agent": event.agent, "message_id": event.message_id})
            return [_artifact(ref, item, artifact)]
        case ToolStarted():
            return [
                _tool(
                    ref, item, event, TOOL_START, "Tool call started", notification_text.tool_started(event)
                )
            ]
        case ToolFinished():
            return [
                _tool(
                    ref, item, event, TOOL_END, "Tool call completed", notification_text.tool_finished(event)
                )
            ]
        case PlanUpdated():
            parts = [Part(data=_value(plan_to_data(event))), Part(text=notification_text.plan(event))]
            return [_artifact(ref, item, Artifact(artifact_id=f"plan-{ref.task_id}", name=PLAN, parts=parts))]
        case InputRequested():
            parts = [Part(data=_value(request_to_data(event)))]
            return [
                _artifact(
                    ref,
                    item,
                    Artifact(artifact_id=f"request-{event.request_id}", name=USER_INPUT, parts=parts),
                )
            ]
        case TextEnded() | InputResolved():
            return [_status(ref, item, TaskState.TASK_STATE_WORKING, event=True)]
        case Notice() | ToolProgress():
            return [_status(ref, item, TaskState.TASK_STATE_WORKING, text=event.text, event=True)]
        case Paused():
            return [_status(ref, item, TaskState.TASK_STATE_INPUT_REQUIRED, text=event.text, event=True)]
        case Answered():
            return [
                _result(ref, item, event, FINAL_RESULT),
                _ended(ref, item, event, TaskState.TASK_STATE_COMPLETED),
            ]
        case Failed():
            return _broken_off(ref, item, event, TaskState.TASK_STATE_FAILED, event.message)
        case Cancelled():
            return _broken_off(
                ref,
                item,
                event,
                TaskState.TASK_STATE_CANCELED,
                f"Stopped by {event.by}." if event.by else "Stopped.",
            )
        case _:
            assert_never(event)


def encode_snapshot(ref: TaskRef, items: Sequence[StoredEvent]) -> Task:
    """The task as it stands after the events; it names its number, and `decode` gives back events with the same fold."""
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
        texts = {artifact_id: artifact.parts[0].text for artifact_id, artifact in artifacts.items()}
        behind = [
            [item.seq, _bare(item.event, _carrier(item, texts)), item.stored_at.isoformat()]
            for item in joined
        ]
        task.metadata[EVENTS_KEY] = json.dumps(behind)
    return task


def decode(result: Mapping[str, Any]) -> list[tuple[int, AnyEvent]]:
    """Our events in the `result` of a streaming response or in a task, as JSON of protocol 1.0 or 0.3; none for a foreign one."""
    body = _body(result)
    if EVENTS_KEY in (metadata := body.get("metadata") or {}):
        return [(item.seq, item.event) for item in decode_snapshot(body)]
    artifact = body.get("artifact")
    if artifact:
        metadata = artifact.get("metadata") or {}
    if EVENT_KEY not in metadata:
        return []
    fields = json.loads(metadata[EVENT_KEY])
    if artifact and (name := _TEXT_FIELD.get(fields["kind"])):
        fields[name] = _joined(artifact)
    return [(int(metadata[SEQ_KEY]), EVENT_ADAPTER.validate_python(fields))]


def plan_to_data(event: PlanUpdated) -> dict[str, Any]:
    steps = [{**step.model_dump(), "order": order} for order, step in enumerate(event.steps)]
    return {"title": event.title, "steps": steps}


def request_to_data(event: InputRequested) -> dict[str, Any]:
    """A form or an approval in the shape that clients know."""
    asked = event.asked
    match asked:
        case Form():
            fields = [field.model_dump(mode="json") for field in asked.fields]
            head = {"user_input": True, "request_id": event.request_id, "input_title": asked.title}
            return {
                **head,
                "input_description": asked.description,
                "response": asked.response,
                "input_fields": fields,
            }
        case Approval():
            body = asked.model_dump(mode="json", exclude={"type"})
            return {"approval": True, "request_id": event.request_id, "agent": event.agent, **body}


def request_from_data(data: Mapping[str, Any]) -> Form | Approval:
    """The same read back. Raises ValueError."""
    if data.get("approval"):
        return Approval.model_validate({**data, "type": "approval"})
    head = {
        "title": data.get("input_title"),
        "description": data.get("input_description"),
        "response": data.get("response") or "",
    }
    return Form.model_validate({**head, "fields": data.get("input_fields") or ()})


def user_message(ref: TaskRef, event: RunStarted) -> Message:
    """The user's message as the task's history shows it."""
    parts = [_part(part) for part in event.parts]
    return Message(
        message_id=event.message_id,
        context_id=ref.context_id,
        task_id=ref.task_id,
        role=Role.ROLE_USER,
        parts=parts,
    )


# --- frames -----------------------------------------------------------------------------------------------------------


def _submitted(ref: TaskRef, item: StoredEvent, event: RunStarted) -> Task:
    status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED, timestamp=item.stored_at)
    task = Task(id=ref.task_id, context_id=ref.context_id, status=status, history=[user_message(ref, event)])
    task.metadata[SEQ_KEY] = str(item.seq)
    return task


def _status(
    ref: TaskRef, item: StoredEvent, state: TaskState, *, text: str = "", event: bool = False
) -> TaskStatusUpdateEvent:
    status = TaskStatus(state=state, timestamp=item.stored_at)
    if text:
        message_id = f"{ref.task_id}-{item.seq}"
        said = Message(
            message_id=message_id,
            context_id=ref.context_id,
            task_id=ref.task_id,
            role=Role.ROLE_AGENT,
            parts=[Part(text=text)],
        )
        status.message.CopyFrom(said)
    frame = TaskStatusUpdateEvent(task_id=ref.task_id, context_id=ref.context_id, status=status)
    frame.metadata[SEQ_KEY] = str(item.seq)
    if event:
        frame.metadata[EVENT_KEY] = json.dumps(_bare(item.event, carried=False))
    return frame


def _artifact(
    ref: TaskRef, item: StoredEvent, artifact: Artifact, *, append: bool = False, last: bool = False
) -> TaskArtifactUpdateEvent:
    artifact.metadata[SEQ_KEY] = str(item.seq)
    artifact.metadata[EVENT_KEY] = json.dumps(_bare(item.event, carried=True))
    return TaskArtifactUpdateEvent(
        task_id=ref.task_id, context_id=ref.context_id, artifact=artifact, append=append, last_chunk=last
    )


def _text(ref: TaskRef, item: StoredEvent, event: TextDelta) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id=_text_id(event), name=_text_name(event), parts=[Part(text=event.text)])
    artifact.metadata.update({"source_agent": event.agent, "message_id": event.message_id})
    if event.step_id:
        artifact.metadata["plan_step_id"] = event.step_id
    if event.parent_call:
        artifact.metadata["tool_call_id"] = event.parent_call
    return _artifact(ref, item, artifact, append=event.offset > 0)


def _tool(
    ref: TaskRef, item: StoredEvent, event: ToolStarted | ToolFinished, name: str, what: str, said: str
) -> TaskArtifactUpdateEvent:
    source = event.tool if event.delegates else event.agent
    prefix = "start" if isinstance(event, ToolStarted) else "end"
    artifact = Artifact(
        artifact_id=f"{prefix}-{event.call_id}",
        name=name,
        description=f"{what}: {event.tool}",
        parts=[Part(text=said)],
    )
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
    if isinstance(event, ToolFinished):
        artifact.metadata["status"] = _TOOL_STATUS[event.outcome]
    return _artifact(ref, item, artifact)


def _result(
    ref: TaskRef, item: StoredEvent, event: Answered | Failed | Cancelled, name: str
) -> TaskArtifactUpdateEvent:
    text = event.text if isinstance(event, Answered) else event.partial or ""
    artifact = Artifact(artifact_id=f"{name}-{ref.task_id}", name=name, parts=[Part(text=text)])
    if isinstance(event, Answered) and (data := _structured(event)) is not None:
        artifact.parts.append(Part(data=_value(data)))
    artifact.metadata["trace_id"] = event.trace_id
    return _artifact(ref, item, artifact, last=True)


def _ended(
    ref: TaskRef,
    item: StoredEvent,
    event: Answered | Failed | Cancelled,
    state: TaskState,
    text: str = "",
    *,
    carry: bool = False,
) -> TaskStatusUpdateEvent:
    frame = _status(ref, item, state, text=text, event=carry)
    frame.metadata["trace_id"] = event.trace_id
    return frame


def _broken_off(
    ref: TaskRef, item: StoredEvent, event: Failed | Cancelled, state: TaskState, text: str
) -> list[Frame]:
    if event.partial:
        return [_result(ref, item, event, PARTIAL_RESULT), _ended(ref, item, event, state, text)]
    return [_ended(ref, item, event, state, text, carry=True)]


def _structured(event: Answered) -> Any:
    cited = [citation.model_dump(exclude_none=True) for citation in event.citations]
    if not cited:
        return event.data
    return {**(event.data if isinstance(event.data, dict) else {}), "citations": cited}


def _text_id(event: TextDelta | TextDiscarded) -> str:
    return f"text-{event.slot or event.message_id}"


def _text_name(event: TextDelta | TextDiscarded) -> str:
    if event.parent_call:
        return SUBAGENT_RESULT
    return STREAMING_RESULT


def _part(part: TextPart | DataPart | FilePart) -> Part:
    match part:
        case TextPart():
            return Part(text=part.text)
        case DataPart():
            return Part(data=_value(part.data))
        case FilePart():
            return Part(raw=part.text.encode(), filename=part.name, media_type=part.media_type)


def _value(data: Any) -> Value:
    return ParseDict(_holdable(data), Value())


def _holdable(data: Any, depth: int = 0) -> Any:
    """The data with text for what protobuf cannot hold: long integers and deep nesting. Our event in the metadata stays exact."""
    if isinstance(data, int) and abs(data) > 2**53:
        return str(data)
    if isinstance(data, dict | list) and depth >= _DEEPEST:
        return json.dumps(data)
    if isinstance(data, dict):
        return {key: _holdable(item, depth + 1) for key, item in data.items()}
    if isinstance(data, list):
        return [_holdable(item, depth + 1) for item in data]
    return data


# --- our event as JSON ------------------------------------------------------------------------------------------------


def _bare(event: AnyEvent, carried: bool) -> dict[str, Any]:
    """The event as JSON, without defaults, and without the text that the frame carries in its text part."""
    leave_out = {
        name
        for name, field in type(event).model_fields.items()
        if not field.is_required() and _is_default(event, name)
    }
    if carried and event.kind in _TEXT_FIELD:
        leave_out.add(_TEXT_FIELD[event.kind])
    return {"kind": event.kind, **event.model_dump(mode="json", exclude=leave_out)}


def _is_default(event: AnyEvent, name: str) -> bool:
    default: Any = type(event).model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(event, name) == default)


def _carrier(item: StoredEvent, texts: Mapping[str, str]) -> bool:
    """Whether an artifact of the snapshot holds exactly this event's text."""
    event = item.event
    if isinstance(event, TextDelta):
        return texts.get(_text_id(event)) == event.text
    return isinstance(event, Answered)


def decode_snapshot(task: Mapping[str, Any]) -> list[StoredEvent]:
    """The events behind a snapshot of ours, with their times; none for a foreign task."""
    texts = {artifact["artifactId"]: _joined(artifact) for artifact in task.get("artifacts") or ()}
    decoded: list[StoredEvent] = []
    for seq, fields, at in json.loads((task.get("metadata") or {}).get(EVENTS_KEY) or "[]"):
        if fields["kind"] == "text_delta" and "text" not in fields:
            fields["text"] = texts.get(
                f"text-{fields.get('slot') or fields['message_id']}", ""
            )  # an empty artifact is left out
        elif fields["kind"] == "answered" and "text" not in fields:
            fields["text"] = texts.get(f"{FINAL_RESULT}-{task['id']}", "")
        decoded.append(StoredEvent(seq, datetime.fromisoformat(at), EVENT_ADAPTER.validate_python(fields)))
    return decoded


def _body(result: Mapping[str, Any]) -> Mapping[str, Any]:
    if "kind" in result or "id" in result:
        return result
    inner: Iterable[Any] = (
        result[key] for key in ("task", "statusUpdate", "artifactUpdate", "message") if key in result
    )
    return next(iter(inner), {})


def _joined(artifact: Mapping[str, Any]) -> str:
    return "".join(part.get("text") or "" for part in artifact.get("parts") or ())
