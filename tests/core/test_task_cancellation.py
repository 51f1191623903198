"""Cancellation of background tasks."""

import asyncio

import pytest

from ai_platform_engineering.core import task_cancellation
from ai_platform_engineering.core.task_cancellation import cancel_and_wait


async def test_a_task_that_loses_a_cancellation_ends_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_cancellation, "_SECONDS", 0.01)
    lost = 0

    async def work() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if lost == 2:
                    raise
                lost += 1

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert lost == 2
    assert task.cancelled()


async def test_tasks_that_have_ended_are_no_problem() -> None:
    async def fail() -> None:
        raise ValueError

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    await cancel_and_wait(task)
    await cancel_and_wait()
    assert isinstance(task.exception(), ValueError)
