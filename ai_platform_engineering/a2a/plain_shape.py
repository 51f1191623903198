"""The plain shape of a run, for generic clients: progress as status messages, the answer as one artifact.

The artifact grows with the supervisor's text and is never sent again. A text that turns out to be narration
leaves it: the next message begins with `append: false`. It is pure, as the rich shape is."""

from collections.abc import Sequence
from typing import assert_never

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.a2a.answer_data import answer_data
from ai_platform_engineering.a2a.codec import ANSWER, TRACE_KEY, TaskRef
from ai_platform_engineering.a2a.frames import (
    ArtifactFrame,
    Content,
    Metadata,
    PlainFrame,
    State,
    TextContent,
)
from ai_platform_engineering.a2a.request_frames import pause_text, pending_data, resolution_parts
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
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)

_EMPTY_TEXT = TextContent("")


def build_frames(
    ref: TaskRef,
    item: StoredEvent,
    requests: Sequence[InputRequested] = (),
    *,
    text_decisions: bool = False,
) -> list[PlainFrame]:
    """The frames of an event; none for what only a rich client shows, such as a sub-agent's own text.

    `requests` are all of the run so far, in order; only a pause and a resolution need them."""
    event = item.event
    match event:
        case TextDelta(parent_call=None):
            return [_answer_artifact(ref, (TextContent(event.text),), append=event.offset > 0)]
        case TextEnded(role="narration", parent_call=None) | TextDiscarded(parent_call=None):
            return [_answer_artifact(ref, (_EMPTY_TEXT,))]
        case TextDelta() | TextEnded() | TextDiscarded():
            return []
        case RunStarted():
            task = submitted_task(ref, item, event, {})
            return [task, status_frame(ref, item, state_after_start(event), (), {})]
        case MessageReceived():
            return [status_frame(ref, item, "working", (), {})]
        case InputRequested():
            return []
        case ToolStarted():
            return _progress(ref, item, notification_text.tool_started(event))
        case ToolFinished():
            return _progress(ref, item, notification_text.tool_finished(event))
        case ToolProgress():
            return _progress(ref, item, event.text)
        case PlanUpdated():
            return _progress(ref, item, notification_text.plan(event))
        case Notice():
            return [status_frame(ref, item, state_after_notice(event), text_parts(event.text), {})]
        case InputResolved():
            if event.resolution in ("expired", "withdrawn"):
                return []  # the status that follows says why the run waits or ended
            return [status_frame(ref, item, "working", resolution_parts(event, requests), {})]
        case Paused():
            text = pause_text(event, requests, text_decisions=text_decisions)
            parts = (*text_parts(text), *pending_data(event, requests))
            return [status_frame(ref, item, "input-required", parts, {})]
        case Answered():
            return [_whole_answer(ref, event), _end(ref, item, "completed", "", event.trace_id)]
        case Failed():
            return [_end(ref, item, "failed", end_text(event), event.trace_id)]
        case Cancelled():
            return [_end(ref, item, "canceled", end_text(event), event.trace_id)]
        case _:
            assert_never(event)


def _progress(ref: TaskRef, item: StoredEvent, text: str) -> list[PlainFrame]:
    text = text.strip()
    if not text:
        return []
    return [status_frame(ref, item, "working", text_parts(text), {})]


def _end(ref: TaskRef, item: StoredEvent, state: State, text: str, trace_id: str) -> PlainFrame:
    return status_frame(ref, item, state, text_parts(text), {TRACE_KEY: trace_id})


def _whole_answer(ref: TaskRef, event: Answered) -> ArtifactFrame:
    """The end of the artifact, with the answer's data; with its text only if that was not streamed."""
    metadata: Metadata = {TRACE_KEY: event.trace_id}
    parts = answer_data(event)
    is_streamed = event.message_id is not None
    if not is_streamed:
        parts = (TextContent(event.text), *parts)
    return _answer_artifact(
        ref, parts or (_EMPTY_TEXT,), append=is_streamed, last_chunk=True, metadata=metadata
    )


def _answer_artifact(
    ref: TaskRef,
    parts: tuple[Content, ...],
    *,
    append: bool = False,
    last_chunk: bool = False,
    metadata: Metadata | None = None,
) -> ArtifactFrame:
    return ArtifactFrame(
        ref.task_id,
        ref.context_id,
        f"{ANSWER}-{ref.task_id}",
        ANSWER,
        parts,
        metadata or {},
        append=append,
        last_chunk=last_chunk,
    )
