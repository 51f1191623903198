"""The task of a run's events, made in a thread when there are many."""

import asyncio
from collections.abc import Sequence

from a2a.types import Task

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.a2a.snapshots import encode_snapshot
from ai_platform_engineering.core.events import StoredEvent

_QUICK_EVENTS = 200  # of a task that is encoded at once


async def build_task(ref: TaskRef, events: Sequence[StoredEvent], shape: ClientShape) -> Task:
    if len(events) <= _QUICK_EVENTS:
        return encode_snapshot(ref, events, shape)
    return await asyncio.to_thread(encode_snapshot, ref, events, shape)
