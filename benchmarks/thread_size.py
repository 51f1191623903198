"""Size of a long conversation on disk: turns with a plan, delegations and tools, after pruning.

    .venv/bin/python -m benchmarks.thread_size [--turns 60]

The server is in this process; both files are measured after a WAL checkpoint. Nothing leaves loopback.
"""

import argparse
import asyncio
import contextlib
import sqlite3
import tempfile
from pathlib import Path

import httpx
from langchain_core.tools import BaseTool, StructuredTool

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import (
    create_app,
)
from ai_platform_engineering.runtime.server.embedded_server import run_embedded_server
from ai_platform_engineering.runtime.storage import STORAGE_NAME, Storage
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import agent

MAX_MB = 5.0  # MB
SENTENCES = (
    "The application is in sync and healthy, and its last deployment was made by the pipeline an hour ago. "
    * 6
)


def create_tool(name: str) -> BaseTool:
    async def listed() -> str:
        """Lists."""
        return "\n".join(
            f"{name} {number}: healthy, synced, revision {number * 7919:08x}" for number in range(40)
        )

    return StructuredTool.from_function(coroutine=listed, name=name)


def task_call(name: str) -> Call:
    return Call(
        "task",
        {
            "subagent_type": name,
            "description": "What is there? List everything that you find, with its state.",
        },
    )


def scripts() -> tuple[Script, Script]:
    """The supervisor's and an agent's."""
    todos = [
        {"agent": "argocd", "title": "Applications"},
        {"agent": "github", "title": "Repositories"},
        {"title": "Sum up"},
    ]
    supervisor = Script(
        Turn(Say("I make a plan. "), Call("write_todos", {"title": "Look", "todos": todos})),
        Turn(Say("I ask two agents. "), task_call("argocd"), task_call("github")),
        Turn(Say(f"{SENTENCES} You said {{{{user}}}}")),
    )
    return supervisor, Script(Turn(Say("I look. "), Call("listed", {})), Turn(Say(SENTENCES)))


async def main(turns: int) -> None:
    supervisor, worker = scripts()
    with tempfile.TemporaryDirectory() as home:
        storage = Storage.from_settings(Settings.from_variables({}).storage, Path(home), STORAGE_NAME)
        agents = [agent(name, worker, create_tool("listed")) for name in ("argocd", "github")]
        app = create_app(
            Settings.from_variables({}),
            agents=agents,
            model=ScriptedChatModel(script=supervisor),
            storage=storage,
        )
        async with run_embedded_server(app) as url, httpx.AsyncClient() as http:
            await converse(A2AClient(url, http), turns)
        sizes = {path.name: size(path) for path in sorted((Path(home) / STORAGE_NAME).glob("*.db"))}
    for name, megabytes in sizes.items():
        print(f"{name:16} {megabytes:5.2f} MB")
    print(
        f"{'together':16} {sum(sizes.values()):5.2f} MB   (asked: less than {MAX_MB:g}) after {turns} turns"
    )


async def converse(client: A2AClient, turns: int) -> None:
    conversation = ClientConversation()
    for number in range(turns):
        text = f"Question {number}: how are the applications and the repositories?"
        transcript = fold([event async for event in client.ask(text, conversation)])
        if text not in (transcript.answer or ""):
            raise SystemExit(f"{text}: {transcript.state}, {transcript.error or transcript.answer}")


def size(path: Path) -> float:
    """In MB, with nothing left beside the file."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")) / 1e6


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--turns", type=int, default=60)
    asyncio.run(main(options.parse_args().turns))
