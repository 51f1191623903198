"""Where events are encoded: at once, or in a thread when there are many."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from ai_platform_engineering.core.events import StoredEvent

T = TypeVar("T")

_QUICK_EVENTS = 200  # that are encoded at once


async def encode_aside(events: Sequence[StoredEvent], encode: Callable[[], T]) -> T:
    """The result of encoding the events, without holding up the event loop."""
    if len(events) <= _QUICK_EVENTS:
        return encode()
    return await asyncio.to_thread(encode)
