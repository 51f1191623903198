"""LangGraph Studio: the real `langgraph dev`, in an environment of its own, with the repository's
`langgraph.json`."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT, need
from tests.support.fakes.mcp_servers import list_processes, until
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import PLAIN
from tests.support.knowing_supervisor import KnowledgeFolder
from tests.support.ports import free_port

REQUIREMENTS = ROOT / "tests" / "fixtures" / "studio_requirements.txt"
LIMIT = 240.0  # a busy machine takes long to start it

CANARY = uuid.uuid4().hex
SKILL = "incident-triage"
BOOK = Book(
    {
        "^Describe 10": Script(
            Turn(Call("cidr_info", {"cidr": "10.0.0.0/24"})), Turn(Say("It says: {{tool:cidr_info}}"))
        ),
        "^Look at everything": Script(
            Turn(Call("task", {"description": "Describe 10.0.0.0/24.", "subagent_type": "netutils"})),
            Turn(Call("search", {"query": "who invites agents to a group"})),
            Turn(Call("load_skill", {"name": SKILL})),
            Turn(Say(f"All of it: {CANARY}.")),
        ),
    }
)

Event = tuple[str, Any]  # its name, with the namespace of a sub-agent, and its data


def studio_command() -> Path:
    """`langgraph` in the environment that `make test-full` installs."""
    folder = Path(sys.prefix) / "studio"
    installed = [mark.read_bytes() for mark in folder.glob(".installed-*")]
    need("langgraph-cli", REQUIREMENTS.read_bytes() in installed, "`make test-full` installs it")
    return folder / "bin" / "langgraph"


@dataclass(frozen=True)
class Studio:
    """A running server of LangGraph Studio."""

    http: httpx.AsyncClient
    output: Path

    async def create_thread(self) -> str:
        response = await self.http.post("/threads", json={})
        response.raise_for_status()
        return str(response.json()["thread_id"])

    async def run(self, thread_id: str, **run: Any) -> list[Event]:
        """The events of one run of the supervisor."""
        body = {"assistant_id": "supervisor", "stream_mode": ["updates"], "stream_subgraphs": True, **run}
        events: list[Event] = []
        async with self.http.stream("POST", f"/threads/{thread_id}/runs/stream", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    events.append((value, None))
                elif field == "data":
                    events[-1] = (events[-1][0], json.loads(value))
        assert [data for name, data in events if name == "error"] == [], self.output.read_text()
        return events

    async def read_messages(self, thread_id: str) -> list[dict[str, Any]]:
        """The messages of the thread, as Studio's checkpointer stored them."""
        response = await self.http.get(f"/threads/{thread_id}/state")
        response.raise_for_status()
        messages: list[dict[str, Any]] = response.json()["values"]["messages"]
        return messages


@contextlib.asynccontextmanager
async def run_studio(folder: Path, env: dict[str, str]) -> AsyncIterator[Studio]:
    """`langgraph dev` in the folder, with the repository's configuration; it ends when it is told to."""
    shutil.copy(ROOT / "langgraph.json", folder)
    command = studio_command()
    port = free_port()
    output = folder / "output"
    with output.open("w") as stream:
        process = await asyncio.create_subprocess_exec(
            *(str(command), "dev", "--no-browser", "--port", str(port)),
            cwd=folder,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=LIMIT, verify=PLAIN
        ) as http:
            await _wait_until_served(http, process, output)
            yield Studio(http, output)
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), LIMIT)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _wait_until_served(
    http: httpx.AsyncClient, process: asyncio.subprocess.Process, output: Path
) -> None:
    async with asyncio.timeout(LIMIT):
        while True:
            # The process that watches the files stays when the server could not start.
            has_failed = process.returncode is not None or "startup failed" in output.read_text()
            assert not has_failed, output.read_text()
            with contextlib.suppress(httpx.TransportError):
                if (await http.get("/ok")).is_success:
                    return
            await asyncio.sleep(0.1)


def question(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def tool_results(events: list[Event], *, namespace: bool) -> dict[str, str]:
    """The results by tool, of the supervisor or of its sub-agents."""
    results: dict[str, str] = {}
    for name, data in events:
        if name.startswith("updates") and ("|" in name) == namespace:
            for message in (data.get("tools") or {}).get("messages") or ():
                results[message["name"]] = message["content"]
    return results


def studio_environment(folder: Path, guarded_environment: dict[str, str]) -> dict[str, str]:
    """The environment of a person who uses Studio; nothing of it leaves this machine."""
    return {
        **guarded_environment,
        "HOME": str(folder),
        "CAIPE_HOME": str(folder / "caipe-home"),
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "LANGGRAPH_NO_VERSION_CHECK": "true",
        "LANGSMITH_TRACING": "false",
    }


async def check_end(studio: Studio, folder: Path) -> None:
    """Nothing blocked the loop of the server, and nothing of it is left."""
    assert "BlockingError" not in studio.output.read_text()
    await until(lambda: not list_processes(folder), "the end of its processes")


@pytest.mark.full
async def test_the_supervisor_works_in_studio_with_agents_knowledge_and_skills(
    tmp_path: Path, guarded_environment: dict[str, str]
) -> None:
    await KnowledgeFolder.of(tmp_path / "caipe-home")
    async with serve_openai(BOOK) as model:
        env = {
            **studio_environment(tmp_path, guarded_environment),
            "LLM_MODEL": "openai:scripted",
            "OPENAI_API_KEY": "scripted",
            "OPENAI_BASE_URL": model.url,
        }
        async with run_studio(tmp_path, env) as studio:
            thread = await studio.create_thread()
            events = await studio.run(thread, input=question("Look at everything."))

            results = tool_results(events, namespace=False)
            assert "254 usable hosts" in tool_results(events, namespace=True)["cidr_info"]
            assert "254 usable hosts" in results["task"]
            assert "A moderator of the group invites agents" in results["search"]

            # After text of others a skill is loaded only if a person says so.
            [request] = events[-1][1]["__interrupt__"]
            assert request["value"]["tool"] == "load_skill"
            answer = {"type": "approve", "digest": request["value"]["digest"]}
            events = await studio.run(thread, command={"resume": answer})
            assert SKILL in tool_results(events, namespace=False)["load_skill"]
            assert f"# The skill {SKILL} " in model.requests[-1].system
            assert (await studio.read_messages(thread))[-1]["content"] == f"All of it: {CANARY}."
        assert model.refusals == []
    await check_end(studio, tmp_path)


@pytest.mark.full
async def test_with_nothing_configured_the_embedded_router_works_in_studio(
    tmp_path: Path, guarded_environment: dict[str, str]
) -> None:
    async with run_studio(tmp_path, studio_environment(tmp_path, guarded_environment)) as studio:
        thread = await studio.create_thread()
        events = await studio.run(thread, input=question("What does 10.0.0.0/24 contain?"))
        assert "254 usable hosts" in tool_results(events, namespace=True)["cidr_info"]
        assert "254 usable hosts" in (await studio.read_messages(thread))[-1]["content"]
    await check_end(studio, tmp_path)
