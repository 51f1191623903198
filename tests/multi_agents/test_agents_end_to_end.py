"""Agents from files with real MCP servers behind the real supervisor: from the catalogue to the bytes of
the stream.
"""

import contextlib
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.events import AnyEvent, Notice, ToolFinished, ToolProgress, ToolStarted
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.offline_model import OFFLINE_NOTICE
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from tests.support.agent_services import real_server
from tests.support.fakes.mcp_servers import list_processes, until
from tests.support.fakes.script import Book, Call, Fail, Say, Script, Turn
from tests.support.harness import FAST, Client, serve_app
from tests.support.providers import OPENAI


def agent_file(folder: Path, name: str, **server: Any) -> None:
    definition = {
        "name": name,
        "description": f"Knows {name}.",
        "mcpServers": {name: server},
        "examples": [f"Ask {name}."],
    }
    (folder / f"{name}.json").write_text(json.dumps(definition))


@contextlib.asynccontextmanager
async def running(folder: Path, **variables: str) -> AsyncIterator[Client]:
    """The whole system with the agents of a folder."""
    environment = {
        **FAST,
        "AGENTS_CONFIG": str(folder),
        "CAIPE_HOME": str(folder / "home"),
        "MCP_CONNECT_TIMEOUT": "20",
        **variables,
    }
    app = build_app(Settings.from_variables(environment), environment)
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120) as http:
        yield Client(url, http)


async def test_a_delegation_runs_real_tools_and_names_them(tmp_path: Path) -> None:
    number = random.randint(10**6, 10**9)
    agent_file(tmp_path, "sums", **real_server())
    supervisor = Script(
        Turn(Say("I ask."), Call("task", {"description": f"double {number}", "subagent_type": "sums"})),
        Turn(Say("It is {{tool:sums}}.")),
    )
    worker = Script(Turn(Call("double", {"number": number})), Turn(Say("{{tool:double}}")))
    book = Book({f"^double {number}$": worker}, default=supervisor)
    async with OPENAI.serve(book) as server, running(tmp_path, **OPENAI.settings(server)) as client:
        stream = await client.ask("What is twice that?")
        tools = (await client.http.get(f"{client.url}tools")).json()["tools"]
    assert stream.answer == f"It is {2 * number}."
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Sums...\n",
        "🔧 Sums: Calling tool: Double\n",
        "✅ Sums: Tool Double completed\n",
        "✅ Supervisor: Sums completed\n",
    ]
    assert "double" in tools["sums"]
    assert server.refusals == []


async def test_a_broken_tool_server_costs_only_its_own_agent(tmp_path: Path) -> None:
    number = random.randint(10**6, 10**9)
    agent_file(tmp_path, "sums", **real_server())
    agent_file(tmp_path, "broken", command="no-such-program-anywhere")
    both = [
        Call("task", {"description": f"ask {name} {number}", "subagent_type": name})
        for name in ("sums", "broken")
    ]
    supervisor = Script(Turn(*both), Turn(Say("{{tool:sums}} and {{tool:broken}}")))
    worker = Script(Turn(Call("double", {"number": number})), Turn(Say("{{tool:double}}")))
    book = Book(
        {f"^ask sums {number}$": worker, "^ask broken": Script(Turn(Say("I have no tools.")))},
        default=supervisor,
    )
    async with OPENAI.serve(book) as server, running(tmp_path, **OPENAI.settings(server)) as client:
        stream = await client.ask("Ask both.")
        again = await client.ask("Ask both.", contextId=stream.context_id)
        ready = (await client.http.get(f"{client.url}ready")).json()
    assert stream.answer == again.answer == f"{2 * number} and I have no tools."
    assert (ready["status"], ready["components"]["agent broken"]["status"]) == ("degraded", "degraded")
    assert ready["components"]["agent sums"]["status"] == "ready"
    broken = [request for request in server.requests if request.last_user.startswith("ask broken")]
    assert all(request.tools == ("CAIPEAgentResponse", "wait") for request in broken)
    assert "None of your domain tools can be used now" in broken[0].system
    # The supervisor is told once it is known.
    requests = [request for request in server.requests if request.last_user == "Ask both."]
    assert "Its tools are unavailable now" not in requests[0].system
    assert "Its tools are unavailable now" in requests[-1].system


async def test_without_a_model_the_router_answers_and_says_so_once_per_conversation(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        first = await client.ask("what does 10.0.0.0/22 contain?")
        second = await client.ask("and what does 10.1.0.0/24 contain?", contextId=first.context_id)
        ready = (await client.http.get(f"{client.url}ready")).json()
    assert "1,024 addresses" in first.answer
    assert "256 addresses" in second.answer
    notices = [
        [event.text for event in stream.events if isinstance(event, Notice)] for stream in (first, second)
    ]
    assert notices == [[OFFLINE_NOTICE, "Starting the tool server netutils ..."], []]
    assert ready["status"] == "degraded"
    assert ready["components"]["agent netutils"]["status"] == "ready"
    assert ready["components"]["agent argocd"]["status"] == "not_configured"


async def test_another_model_takes_over_with_a_notice(tmp_path: Path) -> None:
    casting = Book.for_model(
        {"scripted": Script(Turn(Fail(500))), "spare": Script(Turn(Say("From the spare.")))}
    )
    async with OPENAI.serve(casting) as server:
        settings = OPENAI.settings(server, LLM_ATTEMPTS="2", LLM_FALLBACK_MODELS="openai:spare")
        async with running(tmp_path, **settings) as client:
            stream = await client.ask("Anybody?")
    assert stream.answer == "From the spare."
    assert [event.text for event in stream.events if event.kind == "notice"] == [
        "The model's server failed (HTTP 500). Trying again now (attempt 2 of 2).",
        "The model is unavailable; continuing with openai:spare.",
    ]
    assert [request.model for request in server.requests] == ["scripted", "scripted", "spare"]


async def test_an_agent_has_a_model_of_its_own(tmp_path: Path) -> None:
    agent_file(tmp_path, "sums", **real_server())
    supervisor = Script(
        Turn(Call("task", {"description": "go", "subagent_type": "sums"})), Turn(Say("{{tool:sums}}"))
    )
    casting = Book.for_model({"scripted": supervisor, "own": Script(Turn(Say("Mine.")))})
    async with (
        OPENAI.serve(casting) as server,
        running(tmp_path, **OPENAI.settings(server, SUMS_LLM_MODEL="openai:own")) as client,
    ):
        assert (await client.ask("Who?")).answer == "Mine."


def list_starts(events: list[AnyEvent]) -> list[AnyEvent]:
    """The events that say that a tool server is being started."""
    return [
        event
        for event in events
        if isinstance(event, Notice | ToolProgress) and event.text == "Starting the tool server sums ..."
    ]


async def test_the_start_of_a_tool_server_is_shown_within_the_delegation(tmp_path: Path) -> None:
    agent_file(tmp_path, "sums", **real_server())
    supervisor = Script(
        Turn(Call("task", {"description": "double 4", "subagent_type": "sums"})), Turn(Say("{{tool:sums}}"))
    )
    worker = Script(Turn(Call("double", {"number": 4})), Turn(Say("{{tool:double}}")))
    book = Book({"^double 4$": worker}, default=supervisor)
    async with OPENAI.serve(book) as server:
        async with running(tmp_path, **OPENAI.settings(server)) as client:
            unknown = await client.ask("Twice?")
            running_already = await client.ask("Twice?")
        # Its tools are known from the disk now: the start belongs to the call that needs it.
        async with running(tmp_path, **OPENAI.settings(server)) as client:
            known = await client.ask("Twice?")
    assert unknown.answer == running_already.answer == known.answer == "8"
    (delegation,) = [e for e in unknown.events if isinstance(e, ToolStarted) and e.delegates]
    (notice,) = list_starts(unknown.events)
    assert isinstance(notice, Notice)
    assert (notice.agent, notice.parent_call) == ("sums", delegation.call_id)
    assert unknown.events.index(delegation) < unknown.events.index(notice)
    first_call = next(e for e in unknown.events if isinstance(e, ToolStarted) and e.tool == "double")
    assert unknown.events.index(notice) < unknown.events.index(first_call)
    assert list_starts(running_already.events) == []
    (progress,) = list_starts(known.events)
    assert isinstance(progress, ToolProgress)
    (ended,) = [e for e in known.events if isinstance(e, ToolFinished) and e.tool == "double"]
    assert (progress.agent, progress.call_id) == ("sums", ended.call_id)
    assert known.events.index(progress) < known.events.index(ended)


@pytest.mark.full
async def test_a_tool_server_that_nobody_uses_is_ended(tmp_path: Path) -> None:
    agent_file(tmp_path, "sums", **real_server())
    supervisor = Script(
        Turn(Call("task", {"description": "double 4", "subagent_type": "sums"})), Turn(Say("{{tool:sums}}"))
    )
    worker = Script(Turn(Call("double", {"number": 4})), Turn(Say("{{tool:double}}")))
    book = Book({"^double 4$": worker}, default=supervisor)
    variables = {"MCP_IDLE_SECONDS": "1", "HOME": str(tmp_path), "MCP_SANDBOX": "off"}
    async with OPENAI.serve(book) as server:
        async with running(tmp_path, **OPENAI.settings(server, **variables)) as client:
            assert (await client.ask("Twice?")).answer == "8"
            await until(lambda: not _list_servers(tmp_path), "the end of the idle server")
            again = await client.ask("Twice?")
            assert (again.answer, len(list_starts(again.events))) == ("8", 1)
        assert _list_servers(tmp_path) == []


def _list_servers(home: Path) -> list[str]:
    return [command for command in list_processes(home).values() if "mcp_real" in command]
