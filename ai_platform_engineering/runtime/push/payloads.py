"""The body of a push notification: a task or a status update, in the shape of the client that registered.

Protocol 0.3 sends a task, 1.0 what a stream sends: the task when it waits for people or has ended, so that
the receiver has the question or the answer, and else the status alone."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from a2a.types import Task, TaskStatusUpdateEvent

from ai_platform_engineering.a2a.codec import SEQ_KEY, TaskRef
from ai_platform_engineering.a2a.frame_json import frame_to_dict
from ai_platform_engineering.a2a.snapshots import encode_snapshot
from ai_platform_engineering.core.events import StoredEvent
from ai_platform_engineering.core.transcript import TranscriptState
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.push_store import DueNotification
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.runs.event_encoding import encode_aside
from ai_platform_engineering.runtime.runs.run_reader import load_events

_OPEN_STATES: tuple[TranscriptState, ...] = ("submitted", "working")


async def render_body(run_log: RunLog, row: RunRow, notification: DueNotification, max_bytes: int) -> bytes:
    """The JSON of a notification. One that would be too large leaves out what `tasks/get` gives, too."""
    if notification.state in _OPEN_STATES:
        outlines = await run_log.read_outlines([row.run_id])
        events = [item for item in outlines[row.run_id] if item.seq <= notification.seq]
    else:
        events = await load_events(run_log, row.run_id, notification.seq)
    return await encode_aside(events, lambda: _render(row.ref, events, notification, max_bytes))


def _render(
    ref: TaskRef, events: Sequence[StoredEvent], notification: DueNotification, max_bytes: int
) -> bytes:
    target = notification.config.target
    task = encode_snapshot(ref, events, target.shape)
    if not target.is_v03 and notification.state in _OPEN_STATES:
        return _encode(frame_to_dict(_status_update(task), is_v03=False))
    body = b""
    for version in _ever_smaller(task, is_v03=target.is_v03):
        body = _encode(frame_to_dict(version, is_v03=target.is_v03))
        if len(body) <= max_bytes:
            break
    return body


def _ever_smaller(task: Task, *, is_v03: bool) -> Iterator[Task | TaskStatusUpdateEvent]:
    yield task
    status_alone = Task(id=task.id, context_id=task.context_id, status=task.status)
    yield status_alone if is_v03 else _status_update(status_alone)
    status_alone.status.ClearField("message")
    yield status_alone if is_v03 else _status_update(status_alone)


def _status_update(task: Task) -> TaskStatusUpdateEvent:
    update = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)
    if SEQ_KEY in task.metadata:
        update.metadata[SEQ_KEY] = task.metadata[SEQ_KEY]
    return update


def _encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
