"""Frames as the protobuf messages of the SDK, for snapshots and for programs that embed an agent."""

from datetime import datetime
from typing import assert_never

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

from ai_platform_engineering.a2a.frames import (
    ArtifactFrame,
    Content,
    DataContent,
    FileContent,
    MessageFrame,
    PlainFrame,
    State,
    StatusFrame,
    TaskFrame,
    TextContent,
)
from ai_platform_engineering.a2a.protobuf_values import to_protobuf_value

Frame = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

_STATES: dict[State, TaskState] = {
    "submitted": TaskState.TASK_STATE_SUBMITTED,
    "working": TaskState.TASK_STATE_WORKING,
    "input-required": TaskState.TASK_STATE_INPUT_REQUIRED,
    "completed": TaskState.TASK_STATE_COMPLETED,
    "failed": TaskState.TASK_STATE_FAILED,
    "canceled": TaskState.TASK_STATE_CANCELED,
}
_NAMES: dict[TaskState, State] = {state: name for name, state in _STATES.items()}


def read_state(state: TaskState) -> State | None:
    """The state of the protocol by our name; None for one that no task of ours has."""
    return _NAMES.get(state)


def to_protobuf(frame: PlainFrame) -> Frame:
    match frame:
        case TaskFrame():
            task = Task(
                id=frame.task_id,
                context_id=frame.context_id,
                status=to_status(frame.state, frame.at),
                history=[to_message(frame.message)],
            )
            task.metadata.update(frame.metadata)
            return task
        case StatusFrame():
            update = TaskStatusUpdateEvent(
                task_id=frame.task_id,
                context_id=frame.context_id,
                status=to_status(frame.state, frame.at, frame.message),
            )
            update.metadata.update(frame.metadata)
            return update
        case ArtifactFrame():
            return TaskArtifactUpdateEvent(
                task_id=frame.task_id,
                context_id=frame.context_id,
                artifact=to_artifact(frame),
                append=frame.append,
                last_chunk=frame.last_chunk,
            )
        case _:
            assert_never(frame)


def to_status(state: State, at: datetime, message: MessageFrame | None = None) -> TaskStatus:
    status = TaskStatus(state=_STATES[state], timestamp=at)
    if message is not None:
        status.message.CopyFrom(to_message(message))
    return status


def to_artifact(frame: ArtifactFrame) -> Artifact:
    artifact = Artifact(
        artifact_id=frame.artifact_id,
        name=frame.name,
        description=frame.description,
        parts=[_to_part(part) for part in frame.parts],
    )
    artifact.metadata.update(frame.metadata)
    return artifact


def to_message(frame: MessageFrame) -> Message:
    return Message(
        message_id=frame.message_id,
        context_id=frame.context_id,
        task_id=frame.task_id,
        role=Role.ROLE_USER if frame.role == "user" else Role.ROLE_AGENT,
        parts=[_to_part(part) for part in frame.parts],
    )


def _to_part(part: Content) -> Part:
    match part:
        case TextContent():
            return Part(text=part.text)
        case DataContent():
            return Part(data=to_protobuf_value(part.data))
        case FileContent():
            return Part(raw=part.text.encode(), filename=part.name, media_type=part.media_type)
        case _:
            assert_never(part)
