"""The snapshot of a task: the frames of its events folded as a client folds them, with all messages."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from a2a.types import Task

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.a2a.codec import (
    EVENT_KEY,
    EVENTS_KEY,
    SEQ_KEY,
    TRACE_KEY,
    TaskRef,
    answer_artifact_id,
    text_artifact_id,
)
from ai_platform_engineering.a2a.event_frames import RICH, build_frames
from ai_platform_engineering.a2a.event_json import event_to_json
from ai_platform_engineering.a2a.frame_protobuf import to_artifact, to_message, to_status
from ai_platform_engineering.a2a.frames import (
    ArtifactFrame,
    Content,
    MessageFrame,
    PlainFrame,
    StatusFrame,
    TaskFrame,
    TextContent,
)
from ai_platform_engineering.a2a.snapshot_events import join_deltas
from ai_platform_engineering.a2a.status_frames import user_message
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    InputRequested,
    InputResolved,
    MessageReceived,
    StoredEvent,
    TextDelta,
)

_EMPTY_TEXT = TextContent("")


def encode_snapshot(ref: TaskRef, items: Sequence[StoredEvent], shape: ClientShape = RICH) -> Task:
    """The task after the events, with its sequence number.

    In the rich shape `decode` gives back events with the same fold."""
    joined = join_deltas(items)
    folded = _FoldedTask(ref, shape)
    for item in joined:
        folded.apply(item)
    task = folded.to_task()
    if items and shape.name == "rich":
        task.metadata[SEQ_KEY] = str(items[-1].seq)
        task.metadata[EVENTS_KEY] = json.dumps(_snapshot_rows(ref, joined, folded.artifacts))
    return task


class _FoldedTask:
    """A task while the frames of its events are folded."""

    def __init__(self, ref: TaskRef, shape: ClientShape) -> None:
        self._ref = ref
        self._shape = shape
        self._requests: dict[str, InputRequested] = {}
        self._status: TaskFrame | StatusFrame | None = None
        self._messages: dict[str, MessageFrame] = {}  # by id: one that is sent again is no second one
        self.artifacts: dict[str, ArtifactFrame] = {}

    def apply(self, item: StoredEvent) -> None:
        event = item.event
        if isinstance(event, InputRequested):
            self._requests[event.request_id] = event
        if isinstance(event, MessageReceived):
            self._keep_question()
            self._messages[event.message_id] = user_message(self._ref, event)
        for frame in build_frames(self._ref, item, self._shape, tuple(self._requests.values())):
            self._apply_frame(frame)
            if isinstance(event, InputResolved) and isinstance(frame, StatusFrame) and frame.message:
                # The plain shape has no artifact that says what became of a request.
                self._messages[frame.message.message_id] = frame.message

    def _apply_frame(self, frame: PlainFrame) -> None:
        if isinstance(frame, ArtifactFrame):
            self._apply_artifact(frame)
            return
        if isinstance(frame, TaskFrame):
            self._messages[frame.message.message_id] = frame.message
        else:
            self._keep_question()
        self._status = frame

    def _keep_question(self) -> None:
        """What the agent asked stays a message of the task when another status follows; progress does not."""
        status = self._status
        if isinstance(status, StatusFrame) and status.state == "input-required" and status.message:
            self._messages[status.message.message_id] = status.message

    def _apply_artifact(self, frame: ArtifactFrame) -> None:
        before = self.artifacts.get(frame.artifact_id)
        if before is None or not frame.append:
            self.artifacts[frame.artifact_id] = replace(frame, append=False)
            return
        parts = _append_parts(before.parts, frame.parts)
        metadata = {**before.metadata, **frame.metadata}
        self.artifacts[frame.artifact_id] = replace(before, parts=parts, metadata=metadata)

    def to_task(self) -> Task:
        task = Task(id=self._ref.task_id, context_id=self._ref.context_id)
        task.history.extend(to_message(message) for message in self._messages.values())
        if self._status is not None:
            message = self._status.message if isinstance(self._status, StatusFrame) else None
            task.status.CopyFrom(to_status(self._status.state, self._status.at, message))
            if TRACE_KEY in self._status.metadata:
                task.metadata[TRACE_KEY] = self._status.metadata[TRACE_KEY]
        for frame in self.artifacts.values():
            frame.metadata.pop(EVENT_KEY, None)
            if any(part != _EMPTY_TEXT for part in frame.parts):
                task.artifacts.append(to_artifact(frame))
        return task


def _append_parts(parts: tuple[Content, ...], more: tuple[Content, ...]) -> tuple[Content, ...]:
    """The parts with others behind them; a text continues the text before it."""
    joined = list(parts)
    for part in more:
        last = joined[-1] if joined else None
        if isinstance(part, TextContent) and isinstance(last, TextContent):
            joined[-1] = TextContent(last.text + part.text)
        else:
            joined.append(part)
    return tuple(joined)


def _snapshot_rows(
    ref: TaskRef, items: Sequence[StoredEvent], artifacts: Mapping[str, ArtifactFrame]
) -> list[list[Any]]:
    """Sequence number, event and time of each event, for the metadata of a snapshot."""
    rows: list[list[Any]] = []
    for item in items:
        omit_text = _is_text_in_artifact(ref, item.event, artifacts)
        event = event_to_json(item.event, omit_text=omit_text)
        rows.append([item.seq, event, item.stored_at.isoformat()])
    return rows


def _is_text_in_artifact(ref: TaskRef, event: AnyEvent, artifacts: Mapping[str, ArtifactFrame]) -> bool:
    """Whether an artifact of the snapshot holds exactly this event's text, and nothing before it."""
    match event:
        case TextDelta():
            artifact_id = text_artifact_id(event.message_id, event.slot)
        case Answered():
            artifact_id = answer_artifact_id(ref.task_id, event.message_id, event.slot)
        case _:
            return False
    artifact = artifacts.get(artifact_id)
    return artifact is not None and _joined_text(artifact) == event.text


def _joined_text(artifact: ArtifactFrame) -> str:
    return "".join(part.text for part in artifact.parts if isinstance(part, TextContent))
