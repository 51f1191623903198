"""Turns per second of concurrent conversations: storage on SQLite against storage in memory, and their ratio.

    .venv/bin/python -m benchmarks.conversations [--conversations 50] [--turns 6] [--rounds 2]

Each storage has a supervisor process of its own, started as people start it. The load and the scripted
model provider are in this process, so that both storages have the same environment; the rounds alternate.
Half of the turns answer at once, half delegate to an agent that calls a tool. Nothing leaves loopback.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation
from ai_platform_engineering.core.transcript import fold
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Book, Call, Say, Script, Turn

SERVER = str(Path(sys.executable).parent / "platform-engineer")
STORAGES = ("memory", "sqlite")
MIN_RATIO = 0.6
NETWORK = "10.0.0.0/24"
MODEL = Book(
    {
        "^Look": Script(
            Turn(
                Say("I ask the network agent. "),
                Call("task", {"description": f"Describe {NETWORK}", "subagent_type": "netutils"}),
            ),
            Turn(
                Say(
                    "The network has 256 addresses, of which 254 can be given to hosts."
                    " That was all for {{user}}"
                )
            ),
        ),
        "^Describe": Script(
            Turn(Say("I look. "), Call("cidr_info", {"cidr": NETWORK})), Turn(Say("It has 256 addresses."))
        ),
    },
    Script(
        Turn(
            Say("This needs no tool: I know it, and I say it in a sentence of some length. You said {{user}}")
        )
    ),
)


async def main(conversations: int, turns: int, rounds: int) -> None:
    seconds: dict[str, list[float]] = {storage: [] for storage in STORAGES}
    async with serve_openai(MODEL) as model, contextlib.AsyncExitStack() as stack:
        urls = {
            storage: await stack.enter_async_context(supervisor(storage, model.url)) for storage in STORAGES
        }
        for url in urls.values():
            await load(url, 2, 2)  # the first question loads libraries and starts the agent's tools
        for _ in range(rounds):
            for storage, url in urls.items():
                began = time.perf_counter()
                await load(url, conversations, turns)
                seconds[storage].append(time.perf_counter() - began)
    rates = {storage: conversations * turns * rounds / sum(took) for storage, took in seconds.items()}
    for storage, rate in rates.items():
        each = ", ".join(f"{conversations * turns / took:.1f}" for took in seconds[storage])
        print(f"{storage:7} {rate:6.1f} turns/s   (rounds: {each})")
    ratio, what = rates["sqlite"] / rates["memory"], f"{conversations} conversations of {turns} turns"
    print(f"ratio   {ratio:6.2f}   (asked: at least {MIN_RATIO}); {what}, no error")


async def load(url: str, conversations: int, turns: int) -> None:
    """So many conversations at once; raises for any answer that is not the right one."""
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as http:
        client = A2AClient(url, http)
        await asyncio.gather(*(converse(client, number, turns) for number in range(conversations)))


async def converse(client: A2AClient, number: int, turns: int) -> None:
    conversation = ClientConversation()
    for turn in range(turns):
        text = f"{'Look' if (number + turn) % 2 else 'Say'} {conversation.context_id} {turn}"
        transcript = fold([event async for event in client.ask(text, conversation)])
        if transcript.state != "completed" or text not in (transcript.answer or ""):
            raise SystemExit(f"{text}: {transcript.state}, {transcript.error or transcript.answer}")


@contextlib.asynccontextmanager
async def supervisor(storage: str, model: str) -> AsyncIterator[str]:
    """A ready supervisor; its address."""
    with tempfile.TemporaryDirectory() as home, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "CAIPE_HOME": home,
            "A2A_PORT": str(port),
            "LANGGRAPH_CHECKPOINT_TYPE": storage,
            "LLM_MODEL": "openai:scripted",
            "OPENAI_BASE_URL": model,
            "OPENAI_API_KEY": "none",
            "LOG_LEVEL": "ERROR",
        }
        process = await asyncio.create_subprocess_exec(SERVER, env=environment, cwd=home)
        try:
            yield await wait_until_ready(process, f"http://127.0.0.1:{port}/")
        finally:
            process.terminate()
            await process.wait()


async def wait_until_ready(process: asyncio.subprocess.Process, url: str) -> str:
    async with httpx.AsyncClient() as http, asyncio.timeout(60):
        while True:
            if process.returncode is not None:
                raise SystemExit("the server ended")
            with contextlib.suppress(httpx.HTTPError):
                if (await http.get(f"{url}ready")).status_code == 200:
                    return url
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--conversations", type=int, default=50)
    options.add_argument("--turns", type=int, default=6)
    options.add_argument("--rounds", type=int, default=2)
    arguments = options.parse_args()
    asyncio.run(main(arguments.conversations, arguments.turns, arguments.rounds))
