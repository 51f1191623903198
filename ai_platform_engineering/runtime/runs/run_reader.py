"""Reads the stored events of a run."""

import asyncio

from ai_platform_engineering.core.events import StoredEvent
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.runtime.log.run_log import RunLog


async def load_events(run_log: RunLog, run_id: str, upto: int | None = None) -> list[StoredEvent]:
    """The stored events, up to a number or all."""
    events: list[StoredEvent] = []
    while upto is None or len(events) < upto:
        batch = await run_log.read(run_id, len(events))
        if not batch:
            break
        events += batch
        await asyncio.sleep(0)  # a log in this process does not wait: a long run would hold up the others
    return events[:upto]


async def load_transcript(run_log: RunLog, run_id: str) -> Transcript:
    """What a reader sees of all stored events."""
    return fold(item.event for item in await load_events(run_log, run_id))
