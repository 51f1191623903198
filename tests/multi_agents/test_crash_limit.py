"""A run that brings its process down: after so many times it is given up, with a sentence."""

import asyncio
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.crash.deadly import DEADLY_QUESTION, EXIT_CODE, deadly_model, deadly_tool
from tests.support.dialects import V10
from tests.support.harness import PLAIN, Client
from tests.support.ports import free_port
from tests.support.processes import process_environment
from tests.support.storages import in_folder, supervisor_on

GIVEN_UP = "I gave up on this request: the server crashed {} times while working on it."
PATIENCE = 120.0  # a busy machine takes long to start a process


async def start_process(folder: Path, port: int) -> asyncio.subprocess.Process:
    env = process_environment({"CAIPE_HOME": str(folder), "HOME": str(folder), "SHUTDOWN_SECONDS": "0"})
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.crash.deadly",
        str(port),
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def ask_deadly_question(port: int) -> str:
    """The task of the question, as soon as the server takes it."""
    async with httpx.AsyncClient(timeout=30, verify=PLAIN) as http, asyncio.timeout(PATIENCE):
        client = Client(f"http://127.0.0.1:{port}/", http)
        while True:
            try:
                message = V10.message(DEADLY_QUESTION, contextId="talk", messageId="once")
                answer = await client.call(V10.send, {**message, **V10.at_once})
            except httpx.ConnectError:
                await asyncio.sleep(0.05)
            else:
                return str(V10.sent(answer)["id"])


async def crash(folder: Path) -> str:
    """Starts a server, asks it what kills it, and sees it die."""
    port = free_port()
    process = await start_process(folder, port)
    try:
        task_id = await ask_deadly_question(port)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == EXIT_CODE
        return task_id
    finally:
        if process.returncode is None:
            process.kill()


async def crash_again(folder: Path) -> None:
    """Starts a server that takes the run over, and sees it die of it."""
    process = await start_process(folder, free_port())
    try:
        assert await asyncio.wait_for(process.wait(), PATIENCE) == EXIT_CODE
    finally:
        if process.returncode is None:
            process.kill()


@pytest.mark.parametrize("limit", [1, pytest.param(3, marks=pytest.mark.full)])
async def test_a_run_that_brought_its_process_down_so_often_is_given_up(tmp_path: Path, limit: int) -> None:
    task_id = await crash(tmp_path)
    for _ in range(limit - 1):
        await crash_again(tmp_path)
    env = {"RUN_CRASH_LIMIT": str(limit)}
    storage = in_folder(tmp_path)
    async with supervisor_on(storage, deadly_model(), tools=[deadly_tool()], env=env) as client:
        task = (await client.call("GetTask", {"id": task_id}))["result"]
        assert V10.state(task) == "failed"
        message = task["status"]["message"]["parts"][0]["text"]
        assert message.startswith(GIVEN_UP.format(limit))
        assert "Check what was done" in message
        # The conversation goes on, and the same message is not begun again.
        assert (await client.ask("Well?", contextId="talk")).answer == "You said Well?"
        assert (await client.http.get(f"{client.url}health")).status_code == 200
