"""The clock of the tests."""

import asyncio

from tests.support.fakes.clock import ScaledClock


async def test_a_sleep_counts_from_its_call_even_if_the_clock_jumps_before_its_task_runs() -> None:
    clock = ScaledClock(scale=0)
    sleeping = asyncio.create_task(clock.sleep(50))
    clock.advance(50)
    async with asyncio.timeout(60):
        await sleeping
