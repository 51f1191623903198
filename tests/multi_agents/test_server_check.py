"""The check of tool servers after the start: what cannot be started is told before anybody needs it, and
what can be started costs no process."""

import asyncio
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service import (
    build_service,
)
from tests.support.agent_services import (
    eventually,
    read_readiness,
    run_supervisor,
    write_agent_definition,
)
from tests.support.clocks import advance_clock
from tests.support.fakes.mcp_servers import FAKES, list_server_pids, until
from tests.support.fakes.script import Gate, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.processes import invoke_caipe
from tests.support.providers import OPENAI

# The shipped agent that needs no variables is out: its server would be checked, too.
CHECKED = {"MCP_CHECK_SERVERS": "true", "MCP_CHECK_DELAY_SECONDS": "0", "ENABLE_NETUTILS": "false"}
NO_TOKEN = "broken: it exited with code 3: the token is wrong"
HELLO = Script(Turn(Say("Hello.")))
RAW = [sys.executable, "-S", str(FAKES / "mcp_raw.py")]


def raw_server(*options: str) -> dict[str, Any]:
    command, *arguments = RAW
    return {"command": command, "args": [*arguments, *options]}


async def component(client: Client, name: str) -> dict[str, Any]:
    report: dict[str, Any] = (await read_readiness(client))["components"][f"agent {name}"]
    return report


def own_folders(folder: Path) -> dict[str, str]:
    """The environment of a command that uses the supervisor's folders."""
    return {"AGENTS_CONFIG": str(folder / "agents"), "CAIPE_HOME": str(folder / "home"), "COLUMNS": "300"}


async def listed(folder: Path, name: str) -> str:
    """The line of the agent in `caipe agents`."""
    done = await invoke_caipe("agents", env=own_folders(folder))
    [line] = [line for line in done.out.splitlines() if line.startswith(name)]
    return line


def started(folder: Path) -> list[Path]:
    """A file for each start of a raw server with this folder for its marks."""
    return list(folder.glob("pid-*"))


async def test_a_server_that_cannot_start_is_told_before_anybody_needs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("more", "sums"):
        write_agent_definition(tmp_path / "agents", name, raw_server("--api-token", name))
    write_agent_definition(tmp_path / "agents", "broken", raw_server("--exit", "the token is wrong"))
    write_agent_definition(tmp_path / "agents", "gone", {"command": "no-such-program"})
    most_at_once = 0
    async with OPENAI.serve(HELLO) as model, run_supervisor(tmp_path, model, **CHECKED) as client:

        async def look() -> dict[str, Any]:
            nonlocal most_at_once
            most_at_once = max(most_at_once, len(list_server_pids(tmp_path)))
            tools: dict[str, Any] = (await client.http.get(f"{client.url}tools")).json()["tools"]
            return {"tools": tools, "broken": await component(client, "broken")}

        state = await eventually(look, lambda now: now["tools"]["more"] and now["tools"]["sums"])
        assert (state["broken"]["status"], state["broken"]["message"]) == ("degraded", NO_TOKEN)
        gone = await component(client, "gone")
        assert (gone["status"], gone["message"]) == (
            "degraded",
            "gone: the program no-such-program is not installed, or not on the PATH",
        )
        assert (await component(client, "sums"))["status"] == "ready"
        assert (await read_readiness(client))["status"] == "degraded"
        await until(lambda: list_server_pids(tmp_path) == [], "the end of the servers")
        assert most_at_once <= 1
        line = await listed(tmp_path, "broken")
        assert re.match(
            rf"broken +failing +{re.escape(NO_TOKEN)} \(seen \d{{4}}-\d\d-\d\d \d\d:\d\d\); ", line
        )
        assert "to try it: caipe agents test broken" in line
        assert re.match(r"sums +ready +here", await listed(tmp_path, "sums"))
        doctor = (await invoke_caipe("doctor", env=own_folders(tmp_path))).out
        assert NO_TOKEN in " ".join(doctor.split())
        # The supervisor's model is told, too.
        await client.ask("Hello?")
        assert (
            f"- broken: Knows broken. (Its tools are unavailable now: {NO_TOKEN}.)"
            in model.requests[0].system
        )
        assert "- sums: Knows sums. Tools: " in model.requests[0].system
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    warning = f"agent broken: its tools cannot be used: {NO_TOKEN}. To try it: caipe agents test broken"
    assert logged.count(warning) == 1


async def test_a_server_that_works_again_is_told_too(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    write_agent_definition(tmp_path / "agents", "shaky", {"command": str(program)})
    often = {**CHECKED, "MCP_CHECK_SECONDS": "0.05"}
    async with OPENAI.serve(HELLO) as model, run_supervisor(tmp_path, model, **often) as client:
        await eventually(lambda: component(client, "shaky"), lambda now: now["status"] == "degraded")
        assert re.match(r"shaky +failing", await listed(tmp_path, "shaky"))
        program.write_text(f"#!/bin/sh\nexec {' '.join(RAW)}\n")
        await eventually(lambda: component(client, "shaky"), lambda now: now["status"] == "ready")
        await eventually(lambda: listed(tmp_path, "shaky"), lambda line: re.match(r"shaky +ready", line))
        await until(lambda: list_server_pids(tmp_path) == [], "the end of the server")


async def test_what_was_wrong_with_other_credentials_is_not_told(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "broken", raw_server("--exit", "the token is wrong"))
    async with OPENAI.serve(HELLO) as model, run_supervisor(tmp_path, model, **CHECKED) as client:
        await eventually(lambda: component(client, "broken"), lambda now: now["status"] == "degraded")
    assert re.match(r"broken +failing", await listed(tmp_path, "broken"))
    write_agent_definition(tmp_path / "agents", "broken", {**raw_server(), "env": {"TOKEN": "another"}})
    assert re.match(r"broken +ready", await listed(tmp_path, "broken"))


async def test_trying_an_agent_says_whether_it_works_now(tmp_path: Path) -> None:
    env = {**own_folders(tmp_path), "MCP_SANDBOX": "off"}
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    write_agent_definition(tmp_path / "agents", "shaky", {"command": str(program)})
    assert (await invoke_caipe("agents", "test", "shaky", env=env)).code == 1
    assert re.match(r"shaky +failing +shaky: it exited with code 3", await listed(tmp_path, "shaky"))
    program.write_text(f"#!/bin/sh\nexec {' '.join(RAW)}\n")
    assert (await invoke_caipe("agents", "test", "shaky", env=env)).code == 0
    assert re.match(r"shaky +ready", await listed(tmp_path, "shaky"))


async def test_nothing_is_started_while_somebody_waits_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_agent_definition(tmp_path / "agents", "raw", raw_server("--marks", str(tmp_path)))
    gate = Gate()
    slow = Script(Turn(Say("One ", "two."), gate=gate))
    delay = 30.0
    later = {**CHECKED, "MCP_CHECK_DELAY_SECONDS": str(delay)}
    async with OPENAI.serve(slow) as model, run_supervisor(tmp_path, model, **later) as client:
        question = asyncio.create_task(client.ask("Hello?"))
        await until(lambda: model.requests, "the request to the model")
        advance_clock(monkeypatch, delay)
        for _ in range(40):  # long enough for a start, which is not to come
            assert (await client.http.get(f"{client.url}health")).is_success
            assert started(tmp_path) == []
            await asyncio.sleep(0.05)
        assert not question.done()
        for piece in ("One ", "two."):
            gate.seen(piece)
        assert (await question).answer == "One two."
        await until(lambda: started(tmp_path), "the check")
        await until(lambda: list_server_pids(tmp_path) == [], "the end of the server")


@pytest.mark.full
async def test_a_server_that_hangs_is_given_up_and_the_others_are_checked(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "hanging", raw_server("--hang"))
    write_agent_definition(tmp_path / "agents", "raw", raw_server())
    # Long enough for the good one on a busy machine: the limit is the same for both.
    limits = {**CHECKED, "MCP_CONNECT_TIMEOUT": "5"}
    async with OPENAI.serve(HELLO) as model, run_supervisor(tmp_path, model, **limits) as client:
        assert (await client.ask("Hello?")).answer == "Hello."
        report = await eventually(
            lambda: component(client, "hanging"), lambda now: now["status"] == "degraded"
        )
        assert report["message"].startswith("hanging: it did not answer in 5 seconds")
        await until((tmp_path / "home" / "cache" / "mcp").exists, "the check of the other one")
        await until(lambda: list_server_pids(tmp_path) == [], "the end of the servers")


async def test_without_the_check_nothing_is_started(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "raw", raw_server("--marks", str(tmp_path)))
    off = {**CHECKED, "MCP_CHECK_SERVERS": "false"}
    async with OPENAI.serve(HELLO) as model, run_supervisor(tmp_path, model, **off) as client:
        assert (await client.ask("Hello?")).answer == "Hello."
        assert (await component(client, "raw"))["status"] == "ready"
    assert started(tmp_path) == []


async def test_a_service_knows_its_tools_before_the_first_question(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "sums", raw_server())
    variables = {
        **FAST,
        **CHECKED,
        "AGENTS_CONFIG": str(tmp_path / "agents"),
        "CAIPE_HOME": str(tmp_path / "home"),
        "HOME": str(tmp_path),
    }
    async with (
        serve_app(build_service("sums", Settings.from_variables(variables), variables)) as url,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):

        async def card() -> str:
            return json.dumps((await http.get(f"{url}.well-known/agent-card.json")).json())

        await eventually(card, lambda text: '"who"' in text)
        await until(lambda: list_server_pids(tmp_path) == [], "the end of the server")
