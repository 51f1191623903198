"""Frames that both shapes have in common: the new task, messages of both sides, and status updates."""

from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.a2a.frames import (
    Content,
    DataContent,
    FileContent,
    MessageFrame,
    Metadata,
    State,
    StatusFrame,
    TaskFrame,
    TextContent,
)
from ai_platform_engineering.core.events import (
    Cancelled,
    DataPart,
    Failed,
    FilePart,
    MessageReceived,
    Notice,
    RunStarted,
    StoredEvent,
    TextPart,
)


def submitted_task(ref: TaskRef, item: StoredEvent, event: RunStarted, metadata: Metadata) -> TaskFrame:
    """The task with the question, first in a stream."""
    message = user_message(ref, event)
    return TaskFrame(ref.task_id, ref.context_id, "submitted", item.stored_at, metadata, message)


def user_message(ref: TaskRef, event: RunStarted | MessageReceived) -> MessageFrame:
    return MessageFrame(
        message_id=event.message_id,
        task_id=ref.task_id,
        context_id=ref.context_id,
        role="user",
        parts=tuple(_encode_part(part) for part in event.parts),
    )


def agent_message(ref: TaskRef, item: StoredEvent, parts: tuple[Content, ...]) -> MessageFrame:
    return MessageFrame(
        message_id=f"{ref.task_id}-{item.seq}",
        task_id=ref.task_id,
        context_id=ref.context_id,
        role="agent",
        parts=parts,
    )


def status_frame(
    ref: TaskRef, item: StoredEvent, state: State, parts: tuple[Content, ...], metadata: Metadata
) -> StatusFrame:
    """A status update; with parts it has a message."""
    message: MessageFrame | None = None
    if parts:
        message = agent_message(ref, item, parts)
    return StatusFrame(ref.task_id, ref.context_id, state, item.stored_at, metadata, message)


def text_parts(text: str) -> tuple[Content, ...]:
    """One text part; none for an empty text."""
    if not text:
        return ()
    return (TextContent(text),)


def state_after_start(event: RunStarted) -> State:
    return "submitted" if event.queued else "working"


def state_after_notice(event: Notice) -> State:
    """A run that waits for its turn has not begun."""
    return "working" if event.position is None else "submitted"


def end_text(event: Failed | Cancelled) -> str:
    """Why there is no answer."""
    if isinstance(event, Failed):
        return event.message
    if event.by:
        return f"Stopped by {event.by}."
    return "Stopped."


def _encode_part(part: TextPart | DataPart | FilePart) -> Content:
    match part:
        case TextPart():
            return TextContent(part.text)
        case DataPart():
            return DataContent(part.data)
        case FilePart():
            return FileContent(part.text, part.name, part.media_type)
