"""Frames as plain values, from which the SDK's messages and the JSON of each protocol version are made."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

State = Literal["submitted", "working", "input-required", "completed", "failed", "canceled"]
Role = Literal["user", "agent"]
Metadata = dict[str, str | bool]


@dataclass(frozen=True, slots=True)
class TextContent:
    text: str


@dataclass(frozen=True, slots=True)
class DataContent:
    data: Any  # JSON


@dataclass(frozen=True, slots=True)
class FileContent:
    text: str
    name: str
    media_type: str


Content = TextContent | DataContent | FileContent


@dataclass(frozen=True, slots=True)
class MessageFrame:
    """A message of a user or of the agent, inside another frame."""

    message_id: str
    task_id: str
    context_id: str
    role: Role
    parts: tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class StatusFrame:
    """A status update."""

    task_id: str
    context_id: str
    state: State
    at: datetime
    metadata: Metadata
    message: MessageFrame | None = None


@dataclass(frozen=True, slots=True)
class ArtifactFrame:
    """An artifact update."""

    task_id: str
    context_id: str
    artifact_id: str
    name: str
    parts: tuple[Content, ...]
    metadata: Metadata
    description: str = ""
    append: bool = False
    last_chunk: bool = False


@dataclass(frozen=True, slots=True)
class TaskFrame:
    """A new task with the user's message, first in a stream."""

    task_id: str
    context_id: str
    state: State
    at: datetime
    metadata: Metadata
    message: MessageFrame


PlainFrame = TaskFrame | StatusFrame | ArtifactFrame
