"""The SQLite file of conversations is free when it is closed, whatever was being written at that moment."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.runtime.checkpoints.checkpointer import CHECKPOINT_FILE, open_checkpoints

PLACE = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "c"}}


@pytest.mark.parametrize("cancelled", [False, True], ids=["under way", "cancelled"])
async def test_a_write_in_the_middle_of_the_close_does_not_hold_the_file(
    tmp_path: Path, cancelled: bool
) -> None:
    held: list[
        asyncio.Task[None]
    ] = []  # with what they refer to: an open cursor keeps the connection behind it alive
    for steps in range(25):
        folder = tmp_path / str(steps)
        checkpoints = await open_checkpoints(Settings.from_variables({}).storage, folder)
        assert checkpoints.backend == "sqlite"
        writing = asyncio.create_task(
            checkpoints.saver.aput_writes(PLACE, [("messages", "text")], f"task {steps}")
        )
        held.append(writing)
        for _ in range(steps):
            await asyncio.sleep(0)
        if cancelled:
            writing.cancel()
        await checkpoints.aclose()
        await asyncio.wait({writing})
        with contextlib.closing(sqlite3.connect(folder / CHECKPOINT_FILE, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")  # raises when the file is locked
    for task in held:
        task.cancelled() or task.exception()
