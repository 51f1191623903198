"""What the agents with the heaviest tool servers cost while nobody uses them: start-up, idle memory, and the
characters of the supervisor's system prompt and tool schemas.

    .venv/bin/python -m benchmarks.heavy_agents [--rounds 5] [--idle 10]

The server runs with no agent and with every shipped one, with dummy credentials, in turn. The tool lists of
the agents are in its cache, as they are after their first use, with the names and sizes that were recorded
from the real servers. No tool server is started, and nothing leaves loopback.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.core.agent_definition import enabling_variable
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.tool_list_cache import ToolListCache
from ai_platform_engineering.mcp_client.tool_types import ToolList, ToolSpec
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import place_catalog
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from benchmarks.startup import SERVER, memory
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import Client
from tests.support.ports import free_port
from tests.support.tool_lists import RecordedTool, list_recorded_agents, load_record

DUMMY = "dummy"
READY_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one server: seconds until it is ready, and MB when idle and after a first question."""

    seconds: float
    idle: float
    asked: float


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--idle", type=float, default=10.0, help="seconds before memory is read")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        async with serve_openai(Script(Turn(Say("Nothing to do.")))) as model:
            none = base_variables(Path(folder, "none"), model) | enabled("false")
            every = base_variables(Path(folder, "every"), model) | credentials() | enabled("true")
            names = await fill_caches(every)
            for variables in (none, every):
                await measure(variables, 0)  # bytecode, disk cache and the first start of a folder
            check_prompt(model.requests[-1].raw)
            model.requests.clear()
            figures: dict[str, list[Figures]] = {"none": [], "every": []}
            for _ in range(arguments.rounds):
                figures["none"].append(await measure(none, arguments.idle))
                figures["every"].append(await measure(every, arguments.idle))
    print(f"agents: {', '.join(names)}")
    print_figures("no agent", figures["none"])
    print_figures(f"{len(names)} agents", figures["every"])
    print_prompt("no agent", model.requests[0].raw)
    print_prompt(f"{len(names)} agents", model.requests[-1].raw)


def base_variables(home: Path, model: OpenAIServer) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        # Ours: definitions with a path in the home folder are other servers in another one, and a cached tool
        # list belongs to one server.
        "HOME": str(Path.home()),
        "CAIPE_HOME": str(home),
        "LOG_LEVEL": "ERROR",
        "MCP_CHECK_SERVERS": "false",
        "LLM_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": DUMMY,
    }


def enabled(value: str) -> dict[str, str]:
    return {enabling_variable(entry.name): value for entry in load_catalog({}, agents_config=None)}


def credentials() -> dict[str, str]:
    """Every variable that an agent lacks, with a dummy value."""
    variables: dict[str, str] = {}
    for entry in load_catalog({}, agents_config=None):
        for names, _ in entry.missing:
            name = names.partition("|")[0]
            variables[name] = f"http://127.0.0.1:9/{DUMMY}" if name.endswith("URL") else DUMMY
    return variables


async def fill_caches(variables: Mapping[str, str]) -> list[str]:
    """Stores the recorded tool lists as the server finds them; the names of the agents that are offered."""
    settings = Settings.from_variables(variables)
    cache = ToolListCache(settings.agent.home / "cache" / "mcp", dict(variables))
    recorded = list_recorded_agents()
    names: list[str] = []
    for agent in place_catalog(settings, variables).agents:
        assert isinstance(agent, LocalAgent)
        name = agent.definition.name
        names.append(name)
        if name not in recorded:
            continue
        servers = agent.definition.mcp_servers
        for server_name, tools in load_record(name).servers.items():
            await cache.store(servers[server_name], ToolList(tools=tuple(map(to_spec, tools))))
    return names


def to_spec(tool: RecordedTool) -> ToolSpec:
    """A tool of the recorded size."""
    description = "x" * max(1, tool.size - len(tool.name) - 100)
    return ToolSpec(name=tool.name, description=description, annotations=dict(tool.hints))


async def measure(variables: Mapping[str, str], idle_seconds: float) -> Figures:
    began = time.perf_counter()
    async with run_server(variables) as (pid, client):
        seconds = time.perf_counter() - began
        await asyncio.sleep(idle_seconds)
        idle = memory(pid)
        await client.ask("Hello?")
        return Figures(seconds, idle, memory(pid))


@contextlib.asynccontextmanager
async def run_server(variables: Mapping[str, str]) -> AsyncIterator[tuple[int, Client]]:
    """A server that is ready: its process, and a client."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        SERVER, env={**variables, "A2A_PORT": str(port)}, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with httpx.AsyncClient(timeout=120) as http:
            await wait_until_ready(http, f"http://127.0.0.1:{port}/ready")
            yield process.pid, Client(f"http://127.0.0.1:{port}/", http)
    finally:
        process.terminate()
        await process.wait()


async def wait_until_ready(http: httpx.AsyncClient, url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if (await http.get(url)).status_code == httpx.codes.OK:
                return
        await asyncio.sleep(0.005)
    raise SystemExit(f"the server is not ready after {READY_SECONDS} s")


def check_prompt(body: Mapping[str, Any]) -> None:
    """Stops if the supervisor does not know the tools of an agent: then it costs less than it would."""
    lines = read_system_prompt(body).splitlines()
    for name in list_recorded_agents():
        [description] = [line for line in lines if line.startswith(f"- {name}:")]
        if "Tools: " not in description:
            raise SystemExit(f"the supervisor has not read the tool list of {name}")


def read_system_prompt(body: Mapping[str, Any]) -> str:
    return "".join(message["content"] for message in body["messages"] if message["role"] == "system")


def print_figures(name: str, figures: list[Figures]) -> None:
    seconds = statistics.median(item.seconds for item in figures)
    best = min(item.seconds for item in figures)
    idle = statistics.median(item.idle for item in figures)
    asked = statistics.median(item.asked for item in figures)
    print(
        f"{name}: start to /ready median {seconds:.2f} s (best {best:.2f}),"
        f" {idle:.1f} MB idle, {asked:.1f} MB after a first question"
    )


def print_prompt(name: str, body: dict[str, Any]) -> None:
    system = len(read_system_prompt(body))
    tools = len(json.dumps(body["tools"], ensure_ascii=False))
    print(
        f"{name}: the supervisor's request has {system:,} characters of system prompt"
        f" and {tools:,} of {len(body['tools'])} tool schemas: {system + tools:,}"
    )


if __name__ == "__main__":
    asyncio.run(main())
