"""The rich shape of a run: every event as a frame with the event in its metadata, and progress as artifacts.

For our own clients and for those of protocol 0.3. It is pure, so every reader of a run gets the same
frames."""

import json
from collections.abc import Sequence
from typing import Any, assert_never

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.a2a.answer_data import answer_data
from ai_platform_engineering.a2a.codec import (
    EVENT_KEY,
    FINAL_ANSWER_KEY,
    FINAL_RESULT,
    PARTIAL_RESULT,
    PLAN,
    SEQ_KEY,
    STREAMING_RESULT,
    SUBAGENT_RESULT,
    TOOL_END,
    TOOL_START,
    TRACE_KEY,
    USER_INPUT,
    USER_INPUT_OVER,
    TaskRef,
    answer_artifact_id,
    text_artifact_id,
)
from ai_platform_engineering.a2a.event_json import event_to_json
from ai_platform_engineering.a2a.frames import (
    ArtifactFrame,
    Content,
    DataContent,
    Metadata,
    PlainFrame,
    State,
    StatusFrame,
    TextContent,
)
from ai_platform_engineering.a2a.request_data import request_to_data
from ai_platform_engineering.a2a.request_frames import pause_text, resolution_data
from ai_platform_engineering.a2a.status_frames import (
    end_text,
    state_after_notice,
    state_after_start,
    status_frame,
    submitted_task,
    text_parts,
)
from ai_platform_engineering.core.events import (
    Answered,
    Cancelled,
    Failed,
    InputRequested,
    InputResolved,
    MessageReceived,
    Notice,
    Paused,
    PlanUpdated,
    RunStarted,
    StoredEvent,
    TerminalEvent,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)

_TOOL_STATUS = {"ok": "completed", "error": "failed", "unknown": "unknown"}
_EMPTY_TEXT = TextContent("")


def build_frames(
    ref: TaskRef,
    item: StoredEvent,
    requests: Sequence[InputRequested] = (),
    *,
    text_decisions: bool = False,
) -> list[PlainFrame]:
    """The frames of an event. Senders number all but the last `<seq>.<part>`.

    `requests` are all of the run so far, in order; only a pause and a resolution need them."""
    event = item.event
    match event:
        case TextDelta():
            return [_text_artifact(ref, item, event)]
        case RunStarted():
            task = submitted_task(ref, item, event, {SEQ_KEY: str(item.seq)})
            return [task, _status_update(ref, item, state_after_start(event))]
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
        case TextEnded(role="answer", parent_call=None):
            return [_answer_end_artifact(ref, item, event)]
        case TextEnded() | MessageReceived():
            return [_status_update(ref, item, "working")]
        case InputResolved():
            return _resolved(ref, item, event, requests)
        case ToolProgress():
            return [_status_update(ref, item, "working", event.text)]
        case Notice():
            return [_status_update(ref, item, state_after_notice(event), event.text)]
        case Paused():
            text = pause_text(event, requests, text_decisions=text_decisions)
            return [_status_update(ref, item, "input-required", text)]
        case Answered():
            return [
                _result_artifact(ref, item, event, FINAL_RESULT),
                _terminal_status(ref, item, event, "completed"),
            ]
        case Failed():
            return _unanswered(ref, item, event, "failed")
        case Cancelled():
            return _unanswered(ref, item, event, "canceled")
        case _:
            assert_never(event)


def plan_to_data(event: PlanUpdated) -> dict[str, Any]:
    steps = [{**step.model_dump(), "order": order} for order, step in enumerate(event.steps)]
    return {"title": event.title, "steps": steps}


# --- frames -------------------------------------------------------------------------------------------------


def _status_update(
    ref: TaskRef, item: StoredEvent, state: State, text: str = "", *, with_event: bool = True
) -> StatusFrame:
    metadata: Metadata = {SEQ_KEY: str(item.seq)}
    if with_event:
        metadata[EVENT_KEY] = json.dumps(event_to_json(item.event, omit_text=False))
    return status_frame(ref, item, state, text_parts(text), metadata)


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
    metadata: Metadata = {"source_agent": event.agent, "message_id": event.message_id}
    if event.step_id:
        metadata["plan_step_id"] = event.step_id
    if event.parent_call:
        metadata["tool_call_id"] = event.parent_call
    artifact_id = text_artifact_id(event.message_id, event.slot)
    parts = (TextContent(event.text),)
    return _artifact_update(
        ref,
        item,
        artifact_id,
        _text_name(event),
        parts,
        metadata,
        append=event.offset > 0,
    )


def _emptied_text_artifact(ref: TaskRef, item: StoredEvent, event: TextDiscarded) -> ArtifactFrame:
    metadata: Metadata = {"source_agent": event.agent, "message_id": event.message_id}
    artifact_id = text_artifact_id(event.message_id, event.slot)
    return _artifact_update(ref, item, artifact_id, _text_name(event), (_EMPTY_TEXT,), metadata)


def _answer_end_artifact(ref: TaskRef, item: StoredEvent, event: TextEnded) -> ArtifactFrame:
    """An empty chunk that marks the end of the answer's text: older clients show `final_result` only without
    it."""
    metadata: Metadata = {
        "source_agent": event.agent,
        "message_id": event.message_id,
        FINAL_ANSWER_KEY: True,
    }
    artifact_id = text_artifact_id(event.message_id, event.slot)
    return _artifact_update(ref, item, artifact_id, STREAMING_RESULT, (_EMPTY_TEXT,), metadata, append=True)


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
    metadata: Metadata = {
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


def _resolved(
    ref: TaskRef, item: StoredEvent, event: InputResolved, requests: Sequence[InputRequested]
) -> list[PlainFrame]:
    """The request's artifact says what became of it, under another name: clients show a form for the name of
    an open one. An answer lets the run work; without one it waits on."""
    parts = (DataContent(resolution_data(event, requests)),)
    metadata: Metadata = {"resolution": event.resolution}
    mark = _artifact_update(ref, item, f"request-{event.request_id}", USER_INPUT_OVER, parts, metadata)
    if event.resolution in ("expired", "withdrawn"):
        return [mark]
    return [mark, _status_update(ref, item, "working", with_event=False)]


def _result_artifact(ref: TaskRef, item: StoredEvent, event: TerminalEvent, name: str) -> ArtifactFrame:
    parts: tuple[Content, ...]
    artifact_id = f"{name}-{ref.task_id}"
    if isinstance(event, Answered):
        artifact_id = answer_artifact_id(ref.task_id, event.message_id, event.slot)
        parts = (TextContent(event.text), *answer_data(event))
    else:
        parts = (TextContent(event.partial or ""),)
    metadata: Metadata = {TRACE_KEY: event.trace_id}
    return _artifact_update(ref, item, artifact_id, name, parts, metadata, last_chunk=True)


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
    frame.metadata[TRACE_KEY] = event.trace_id
    return frame


def _unanswered(ref: TaskRef, item: StoredEvent, event: Failed | Cancelled, state: State) -> list[PlainFrame]:
    """The frames of a run that ended without an answer: its partial result, if any, and its status."""
    text = end_text(event)
    if event.partial:
        return [
            _result_artifact(ref, item, event, PARTIAL_RESULT),
            _terminal_status(ref, item, event, state, text),
        ]
    return [_terminal_status(ref, item, event, state, text, with_event=True)]


def _text_name(event: TextDelta | TextDiscarded) -> str:
    if event.parent_call:
        return SUBAGENT_RESULT
    return STREAMING_RESULT
