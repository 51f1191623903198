"""`caipe tasks`, ids by their beginning, workflows, and a server that is lost in the middle of a run."""

import asyncio
import json
import re

import pytest

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import serve_app, supervisor
from tests.support.processes import invoke_caipe, start_command

OK, FAILED, UNREACHABLE = 0, 1, 3


async def test_recent_runs_are_listed_with_state_and_question() -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        env = {"CAIPE_URL": client.url}
        empty = await invoke_caipe("tasks", env=env)
        for question in ("What is\nfirst?", "What is second?"):
            await invoke_caipe("ask", question, env=env)
        listed = await invoke_caipe("tasks", env=env)
        newest = await invoke_caipe("tasks", "--limit", "1", env=env)
        failed = await invoke_caipe("tasks", "--state", "failed", env=env)
        rows = json.loads((await invoke_caipe("tasks", "--json", env=env)).out)
    assert (empty.code, empty.out, empty.err) == (OK, "", "There are no runs yet.\n")
    lines = listed.out.splitlines()
    assert [line.split("completed")[1].split(None, 1)[1].strip() for line in lines[1:]] == [
        "What is second?",
        "What is first?",
    ]
    assert ("second" in newest.out, "first" in newest.out) == (True, False)
    assert "1 of 2 runs" in newest.err
    assert failed.out == ""
    assert [(row["state"], row["question"]) for row in rows] == [
        ("completed", "What is second?"),
        ("completed", "What is first?"),
    ]


async def test_the_beginning_of_an_id_or_a_trace_id_names_a_run() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        env = {"CAIPE_URL": client.url}
        asked = await invoke_caipe("ask", "--json", "Which?", env=env)
        answered = json.loads(asked.out.splitlines()[-1])
        task_id, trace_id = answered["task_id"], answered["trace_id"]
        for name in (task_id, task_id[:8], trace_id, trace_id[:12]):
            assert (await invoke_caipe("follow", name, env=env)).out == f"{version.answer}\n", name
            assert version.answer in (await invoke_caipe("show", name, env=env)).out, name
        again = await invoke_caipe("ask", "--json", "--context", answered["context_id"][:8], "And?", env=env)
        traced = await invoke_caipe("ask", "--json", "--context", trace_id, "And?", env=env)
        own = await invoke_caipe("ask", "--json", "--context", "ticket-1", "And?", env=env)
        nobody = await invoke_caipe("show", "ffffffff", env=env)
    assert json.loads(again.out.splitlines()[-1])["context_id"] == answered["context_id"]
    assert json.loads(traced.out.splitlines()[-1])["context_id"] == answered["context_id"]
    assert json.loads(own.out.splitlines()[-1])["context_id"] == "ticket-1", "a chosen id is never completed"
    assert (nobody.code, nobody.out, "ffffffff" in nobody.err) == (FAILED, "", True)


async def test_an_id_that_begins_several_is_refused_with_all_of_them() -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        env = {"CAIPE_URL": client.url}
        contexts = [f"abcd1234-0000-4000-8000-00000000000{number}" for number in range(2)]
        for context in contexts:
            await invoke_caipe("ask", "--context", context, "Well?", env=env)
        done = await invoke_caipe("ask", "--context", "abcd1234", "Well?", env=env)
    assert (done.code, done.out) == (FAILED, "")
    assert all(context in done.err for context in contexts)


async def test_workflows_are_listed_without_a_server_and_of_one() -> None:
    alone = await invoke_caipe("workflows")
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        served = await invoke_caipe("workflows", "--json", "--url", client.url)
    assert alone.code == OK, alone.err
    assert "Check a service" in alone.out
    assert "Create GitHub Repo  needs the agents: github" in alone.out
    assert "Check a service" in [workflow["title"] for workflow in json.loads(served.out)["workflows"]]


@pytest.mark.full
async def test_a_server_that_is_lost_is_tried_again_and_then_the_way_back_is_named() -> None:
    waiting = BlockingScenario()
    model = ScriptedChatModel(script=waiting.script)
    app = create_app(Settings.from_variables({"SHUTDOWN_SECONDS": "0"}), tools=[waiting.tool], model=model)
    env = {"CAIPE_RECONNECT_SECONDS": "0"}
    async with asyncio.timeout(120):
        async with serve_app(app) as url:
            asking = start_command("caipe", "ask", "--url", url, "Wait.", env=env)
            program = await asking.__aenter__()
            await program.wait_for_stderr("→ wait")
        done = await program.wait_for_exit()
        await asking.__aexit__(None, None, None)
    assert (done.code, done.out) == (UNREACHABLE, "")
    assert len(re.findall("trying again", program.err)) == 1
    assert re.search(r"Follow it with: caipe follow [0-9a-f-]{36}\n", program.err)


async def test_a_lost_server_is_tried_again_for_a_minute_and_more_by_default() -> None:
    for command in ("ask", "chat", "follow", "answer", "approve", "reject"):
        described = " ".join((await invoke_caipe(command, "--help")).out.split())
        seconds = re.search(r"--reconnect SECONDS .*?\[default: (\d+)", described)
        assert seconds, command
        assert int(seconds[1]) >= 60
