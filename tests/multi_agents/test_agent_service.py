"""`caipe agent NAME`: one agent as an A2A service of its own, with our events and the words of a sub-agent
for strangers.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.events import Answered
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service import (
    build_service,
)
from tests.runtime.server.test_a2a_input_required import form_tool
from tests.support.agent_services import (
    model_of,
    read_readiness,
    run_agent_service,
    run_server_process,
    run_supervisor,
    write_agent_definition,
)
from tests.support.dialects import V10, Dialect, both_versions
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, ReceivedStream, agent, serve_app
from tests.support.processes import invoke_caipe, run_command
from tests.support.providers import OPENAI

WORK = Script(Turn(Say("Let me look. "), Call("double", {"number": 21})), Turn(Say("It is {{tool:double}}.")))
WORDS = ["🔧 Sums: Calling tool: Double\n", "✅ Sums: Tool Double completed\n"]


@contextlib.asynccontextmanager
async def built(folder: Path, casting: Any, **variables: str) -> AsyncIterator[tuple[Any, Client]]:
    """The service of the agent `sums` of the folder's `agents`, in this process, as the command builds it."""
    async with OPENAI.serve(casting) as model:
        environment = {
            **FAST,
            "AGENTS_CONFIG": str(folder / "agents"),
            "CAIPE_HOME": str(folder / "home"),
            **OPENAI.settings(model),
            **variables,
        }
        async with (
            serve_app(build_service("sums", Settings.from_variables(environment), environment)) as url,
            httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
        ):
            yield model, Client(url, http)


@contextlib.asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        yield Client(url, http)


# --- as a process ---------------------------------------------------------------------------------


async def test_a_service_process_answers_both_versions_with_the_agents_own_words(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "sums", title="The Sums", examples=["Twice 4?"])
    async with (
        serve_openai(WORK) as model,
        run_server_process("caipe", "agent", "sums", AGENTS_CONFIG="agents", **model_of(model)) as (
            process,
            client,
        ),
    ):
        old = await client.ask("Twice 21?")
        new = await client.ask("Twice 21?", version="1.0")
        card = (await client.http.get(f"{client.url}.well-known/agent-card.json")).json()
        health = (await client.http.get(f"{client.url}health")).json()
        tools = (await client.http.get(f"{client.url}tools")).json()["tools"]
        state = await read_readiness(client)
    for stream in (old, new):
        assert (stream.answer, stream.notifications) == ("It is 42.", WORDS)
        assert {
            frame.metadata["source_agent"]
            for frame in stream.named("tool_notification_start", "tool_notification_end")
        } == {"sums"}
        assert {event.agent for event in stream.events if event.kind not in ("run_started", "answered")} == {
            "sums"
        }
        assert [span.role for span in fold(stream.events).spans] == ["narration", "answer"]
        assert stream.streamed_texts == ["Let me look. ", "It is 42."]
        assert b"upervisor" not in stream.raw
    assert health == {"status": "ok"}
    assert list(tools) == ["sums"]
    assert "double" in tools["sums"]
    assert (state["status"], state["components"]["agent sums"]["status"]) == ("ok", "ready")
    assert (card["name"], card["description"]) == ("The Sums", "Knows sums.")
    assert [(skill["id"], skill["tags"], skill["examples"]) for skill in card["skills"]] == [
        ("sums", ["sums"], ["Twice 4?"])
    ]
    assert [extension["uri"] for extension in card["capabilities"]["extensions"]] == ["urn:caipe:events:1"]
    assert {extension["protocolVersion"][:3] for extension in card["supportedInterfaces"]} == {"1.0", "0.3"}
    assert model.refusals == []
    assert "Traceback" not in process.err


async def test_what_cannot_be_served_is_told_in_a_sentence(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "locked", requires=["LOCKED_KEY"])
    write_agent_definition(tmp_path / "agents", "elsewhere", url="http://127.0.0.1:9/")
    write_agent_definition(tmp_path / "agents", "sums")
    env = {"AGENTS_CONFIG": "agents", "A2A_PORT": "0", "A2A_AUTH_SHARED_KEY": "a-very-secret-key"}
    cases = {
        "nobody": (env, "There is no agent nobody. The agents are: "),
        "locked": (env, "The agent locked is not configured: set LOCKED_KEY (agents/locked.json:1)."),
        "elsewhere": (
            env,
            "The agent elsewhere has no tools of its own: it is the service at http://127.0.0.1:9/.",
        ),
        "sums": ({**env, "ENABLE_SUMS": "false"}, "The agent sums is disabled: switched off by ENABLE_SUMS."),
    }
    for name, (variables, sentence) in cases.items():
        done = await invoke_caipe("agent", name, env=variables)
        output = done.out + done.err
        assert (done.code, output[: len(sentence)], len(output.splitlines())) == (1, sentence, 1)
        assert "very-secret" not in output
    assert (await run_command("caipe", "agent", "nobody", env=env)).err.startswith(cases["nobody"][1])


async def test_a_service_beyond_this_machine_needs_a_key(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "sums")
    done = await invoke_caipe(
        "agent", "sums", "--host", "0.0.0.0", env={"AGENTS_CONFIG": "agents", "A2A_PORT": "0"}
    )
    assert done.code == 1
    assert "A2A_AUTH_SHARED_KEY" in done.out + done.err


@pytest.mark.full
async def test_the_port_is_its_own_and_can_be_set(tmp_path: Path) -> None:
    """Each port is taken: the sentence says which one was wanted."""
    write_agent_definition(tmp_path / "agents", "sums")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # somebody else may have it, which is as good
            stack.enter_context(contextlib.closing(_listening(8001)))
        used_port = stack.enter_context(contextlib.closing(_listening(0))).getsockname()[1]
        env = {"AGENTS_CONFIG": "agents"}
        default = await invoke_caipe("agent", "sums", env=env)
        variable = await invoke_caipe("agent", "sums", env={**env, "A2A_PORT": str(used_port)})
        option = await invoke_caipe("agent", "sums", "--port", str(used_port), env={**env, "A2A_PORT": "0"})
    assert [done.code for done in (default, variable, option)] == [1, 1, 1]
    assert "port 8001:" in default.out + default.err
    assert f"port {used_port}:" in variable.out + variable.err
    assert f"port {used_port}:" in option.out + option.err


def _listening(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


# --- its state ------------------------------------------------------------------------------------


async def test_a_broken_tool_server_is_told(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "sums", {"command": "no-such-program-anywhere"})
    async with built(tmp_path, Script(Turn(Say("I have no tools.")))) as (model, client):
        assert (await client.ask("Twice 21?")).answer == "I have no tools."
        probe = await client.http.get(f"{client.url}ready")
    assert (probe.status_code, probe.json()["status"]) == (200, "degraded")
    assert "no-such-program-anywhere" in probe.json()["components"]["agent sums"]["message"]
    assert "None of your domain tools can be used now" in model.requests[0].system


async def test_a_model_that_cannot_be_used_makes_it_unavailable(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "sums")
    async with built(tmp_path, WORK, SUMS_LLM_MODEL="nobody:x") as (_, client):
        probe = await client.http.get(f"{client.url}ready")
        stream = await client.ask("Twice 21?")
    assert (probe.status_code, probe.json()["components"]["model"]["status"]) == (503, "unavailable")
    assert stream.last.state == "failed"
    assert "nobody:x" in stream.last.status_text


@pytest.mark.full
async def test_without_a_model_the_router_answers() -> None:
    variables = {**FAST, "CAIPE_HOME": "home"}
    async with (
        serve_app(build_service("netutils", Settings.from_variables(variables), variables)) as url,
        client_of(url) as client,
    ):
        stream = await client.ask("what does 10.0.0.0/22 contain?")
        state = await read_readiness(client)
    assert "1,024 addresses" in stream.answer
    assert stream.notifications[0].startswith("🔧 Netutils: Calling tool: ")
    assert (state["status"], state["components"]["model"]["name"]) == ("degraded", "offline")


# --- its runs -------------------------------------------------------------------------------------


@both_versions
async def test_a_task_is_cancelled_with_its_tool(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with (
        run_agent_service(agent("slow", waiting.script, waiting.tool)) as running,
        client_of(running.url) as client,
    ):
        asking = asyncio.create_task(_all(client, dialect))
        async with asyncio.timeout(120):
            await waiting.started.wait()
        (task,) = (await client.call("ListTasks", {}))["result"]["tasks"]
        await client.call(dialect.cancel, {"id": task["id"]})
        stream = await asking
        assert waiting.cancelled.is_set()
    assert stream.last.state == "canceled"
    assert stream.notifications == ["🔧 Slow: Calling tool: Wait\n", "❌ Slow: Tool Wait failed\n"]


async def _all(client: Client, dialect: Dialect) -> ReceivedStream:
    return ReceivedStream([frame async for frame in client.open(dialect.stream, dialect.message("Well?"))])


@both_versions
async def test_a_reader_that_leaves_comes_back_with_its_number(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with (
        run_agent_service(agent("slow", waiting.script, waiting.tool)) as running,
        client_of(running.url) as client,
    ):
        first = []
        stream = client.open(dialect.stream, dialect.message("Well?"))
        async for frame in stream:
            first.append(frame)
            if frame.name == "tool_notification_start":
                break
        await stream.aclose()  # type: ignore[attr-defined]
        task_id = ReceivedStream(first).task_id
        waiting.released.set()
        rest = [
            frame
            async for frame in client.open(
                dialect.subscribe, {"id": task_id}, Last_Event_ID=first[-1].id or ""
            )
        ]
    assert not waiting.cancelled.is_set()
    numbers = [int((frame.id or "").partition(".")[0]) for frame in (*first, *rest)]
    assert numbers == sorted(numbers)
    assert rest[0].id != first[-1].id
    received = ReceivedStream([*first, *rest])
    assert (received.answer, received.notifications) == (
        waiting.answer,
        ["🔧 Slow: Calling tool: Wait\n", "✅ Slow: Tool Wait completed\n"],
    )
    assert sum(isinstance(event, Answered) for event in received.events) == 1


@both_versions
async def test_a_conversation_is_remembered_and_another_is_not(dialect: Dialect) -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("Heard {{user}}"))))
    async with run_agent_service(agent("memo", model)) as running, client_of(running.url) as client:
        for text, context in (("one", "a"), ("two", "a"), ("three", "b")):
            await client.call(dialect.send, dialect.message(text, contextId=context))
    heard = [[(message.role, message.text) for message in request.messages] for request in model.requests]
    assert heard == [
        [("user", "one")],
        [("user", "one"), ("assistant", "Heard one"), ("user", "two")],
        [("user", "three")],
    ]


@both_versions
async def test_a_message_that_comes_twice_is_one_task(dialect: Dialect) -> None:
    versions = VersionScenario()
    model = ScriptedChatModel(script=versions.script)
    async with (
        run_agent_service(agent("versions", model, versions.tool)) as running,
        client_of(running.url) as client,
    ):
        message = dialect.message("Which?", messageId="m-1", contextId="c-1")
        first = ReceivedStream([frame async for frame in client.open(dialect.stream, message)])
        again = ReceivedStream([frame async for frame in client.open(dialect.stream, message)])
        other = await client.call(dialect.send, dialect.message("Another?", messageId="m-1", contextId="c-1"))
        tasks = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert first.answer == again.answer == versions.answer
    assert (again.task_id, len(tasks), len(model.requests)) == (first.task_id, 1, 2)
    assert "already used with different content" in other["error"]["message"]


async def test_a_new_question_gives_up_what_the_conversation_waited_for() -> None:
    """A supervisor whose run was cancelled while its agent waited for a person asks something else."""
    script = Script(Turn(Call("ask_form")), Turn(Say("Made {{tool:ask_form.repo}}.")))
    async with (
        run_agent_service(agent("github", script, form_tool())) as running,
        client_of(running.url) as client,
    ):
        old = V10.sent(await client.call(V10.send, V10.message("One?", contextId="c")))
        unclear = V10.sent(await client.call(V10.send, V10.message("Two?", contextId="c")))
        new = V10.sent(
            await client.call(
                V10.send, V10.message("Two?", contextId="c", metadata={"caipe.new_question": True})
            )
        )
        given_up = (await client.call(V10.get, {"id": old["id"]}))["result"]
        done = V10.sent(await client.call(V10.send, V10.message(V10.data({"repo": "x"}), taskId=new["id"])))
    assert unclear["id"] == old["id"]  # for everybody else a message is an answer first
    assert new["id"] != old["id"]
    assert (V10.state(new), V10.state(given_up), V10.state(done)) == (
        "input-required",
        "canceled",
        "completed",
    )


# --- who may ask ----------------------------------------------------------------------------------


DELEGATES = Script(
    Turn(Call("task", {"description": "Well?", "subagent_type": "sums"})), Turn(Say("{{tool:sums}}"))
)


@contextlib.asynccontextmanager
async def guarded(folder: Path, key: str, **variables: str) -> AsyncIterator[Client]:
    """A supervisor whose agent's service has a key."""
    write_agent_definition(folder / "agents", "sums")
    far = agent("sums", Script(Turn(Say("Only for friends."))))
    async with run_agent_service(far, A2A_AUTH_SHARED_KEY=key) as running, OPENAI.serve(DELEGATES) as model:
        remote = {"DISTRIBUTED_AGENTS": "sums", "SUMS_AGENT_URL": running.url}
        async with run_supervisor(folder, model, **remote, **variables) as client:
            yield client


@pytest.mark.parametrize("variable", ["SUMS_AGENT_TOKEN", "AGENT_TOKEN"])
async def test_a_supervisor_with_the_token_is_let_in(
    tmp_path: Path, variable: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = secrets.token_urlsafe()
    more = (
        {"AGENT_TOKEN": "for-others"} if variable == "SUMS_AGENT_TOKEN" else {}
    )  # the agent's own comes first
    async with guarded(tmp_path, key, **{variable: key}, **more) as client:
        stream = await client.ask("Well?")
        state = await client.http.get(f"{client.url}ready")
    assert (stream.answer, state.json()["components"]["agent sums"]["reachable"]) == (
        "Only for friends.",
        "reachable",
    )
    for text in (stream.raw.decode(), state.text, caplog.text):
        assert key not in text


@pytest.mark.parametrize(
    "variables", [{}, {"SUMS_AGENT_TOKEN": "wrong-4711"}], ids=["without a token", "with a wrong one"]
)
async def test_a_supervisor_without_the_token_is_told_what_to_set(
    tmp_path: Path, variables: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = secrets.token_urlsafe()
    async with guarded(tmp_path, key, **variables) as client:
        stream = await client.ask("Well?")
    assert stream.notifications[-1] == "❌ Supervisor: Sums failed\n"
    assert stream.answer.startswith("Agent sums failed: ")
    assert "Only for friends" not in stream.answer
    assert "AGENT_TOKEN" in stream.answer
    for text in (stream.raw.decode(), caplog.text):
        assert key not in text
        assert "wrong-4711" not in text
