"""`caipe ask` from outside: what it prints where, how it ends, and what it leaves behind on the server."""

import asyncio
import json
import re
import secrets
import signal

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ai_platform_engineering.core.events import EVENT_ADAPTER
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.runtime.server.test_a2a_input_required import form_tool
from tests.support.dialects import V10
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Fail, Say, Script, Turn
from tests.support.harness import Client, serve_app, supervisor
from tests.support.processes import CommandResult, invoke_caipe, run_command, start_command

OK, FAILED, USAGE, UNREACHABLE, INPUT_REQUIRED, TIMED_OUT, INTERRUPTED = 0, 1, 2, 3, 4, 124, 130


async def ask(client: Client, *arguments: str, **env: str) -> CommandResult:
    return await invoke_caipe("ask", *arguments, env={"CAIPE_URL": client.url, **env})


async def ask_outside(client: Client, *arguments: str, stdin: str | None = None) -> CommandResult:
    """The same, as a process of its own."""
    done = await run_command("caipe", "ask", *arguments, env={"CAIPE_URL": client.url}, stdin=stdin)
    assert "Traceback" not in done.err
    return done


async def only_task_state(client: Client) -> str:
    """The state of the only task on the server."""
    (task,) = (await client.call("ListTasks", {}))["result"]["tasks"]
    return V10.state(task)


async def test_the_answer_alone_is_on_stdout_and_progress_on_stderr() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        done = await ask_outside(client, "Which", "version?")
        (task,) = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert (done.code, done.out) == (OK, f"{version.answer}\n")
    narration, begun, over, answer, ids = done.err.splitlines()
    assert narration.strip() == "Let me look."
    assert begun == "→ version"
    assert re.fullmatch(r"✓ version · \d+\.\d s", over)
    assert answer == version.answer
    assert ids == f"(task {task['id']}, context {task['contextId']})"


async def test_stdin_is_joined_to_the_question() -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("Read."))))
    log = f"line one\nline {secrets.token_hex(4)}\n"
    async with supervisor(model) as client:
        assert (await ask_outside(client, "What", "is wrong?", stdin=log)).out == "Read.\n"
        assert (await invoke_caipe("ask", env={"CAIPE_URL": client.url}, stdin=log)).out == "Read.\n"
    assert [request.last_user for request in model.requests] == [
        f"What is wrong?\n\n{log.strip()}",
        log.strip(),
    ]


async def test_json_is_one_event_per_line() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        done = await ask(client, "--json", "Which version?")
    events = [EVENT_ADAPTER.validate_json(line) for line in done.out.splitlines()]
    assert (done.code, done.err) == (OK, "")
    assert events[0].kind == "run_started"
    assert events[-1].kind == "answered"
    assert fold(events).answer == version.answer


async def test_a_conversation_goes_on_with_its_context() -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("You said {{user}}."))))
    async with supervisor(model) as client:
        for text in ("one", "two"):
            assert (await ask(client, "--context", "talk", text)).out == f"You said {text}.\n"
    assert [message.text for message in model.requests[-1].messages] == ["one", "You said one.", "two"]


async def test_a_failed_task_is_code_one_and_its_reason_is_on_stderr() -> None:
    async with supervisor(Script(Turn(Fail(401)))) as client:
        done = await ask(client, "Well?")
    assert (done.code, done.out) == (FAILED, "")
    assert "credentials" in done.err


async def test_a_server_without_a_model_says_what_to_set() -> None:
    async with supervisor(None) as client:
        done = await ask(client, "Well?")
    assert (done.code, done.out) == (FAILED, "")
    assert "LLM_MODEL" in done.err


@pytest.mark.parametrize(
    "arguments", [(), ("",), ("--timeout", "0", "x"), ("--timeout", "soon", "x"), ("--nothing", "x")]
)
async def test_a_wrong_command_line_is_code_two(arguments: tuple[str, ...]) -> None:
    done = await invoke_caipe("ask", *arguments)
    assert (done.code, done.out) == (USAGE, "")
    assert "Usage: main ask" in done.err


async def test_a_server_that_cannot_be_reached_is_code_three() -> None:
    for url in (
        "http://127.0.0.1:1/",
        "ftp://127.0.0.1/",
        "nonsense",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:x/",
    ):
        done = await invoke_caipe("ask", "--url", url, "Well?")
        assert (url, done.code, done.out) == (url, UNREACHABLE, "")
        assert url in done.err
        assert ("caipe serve" in done.err) == (url == "http://127.0.0.1:1/")


async def test_a_server_that_speaks_something_else_is_told_apart() -> None:
    async def page(_: object) -> PlainTextResponse:
        return PlainTextResponse("<html>hello</html>")

    async with serve_app(Starlette(routes=[Route("/", page, methods=["POST"])])) as url:
        done = await invoke_caipe("ask", "--url", url, "Well?")
        requests = await invoke_caipe("pending", "--url", url)
    for command in (done, requests):
        assert (command.code, command.out) == (UNREACHABLE, "")
        assert "not a server of this program" in command.err
        assert "Nothing was sent" in command.err


async def test_a_task_that_asks_is_code_four_and_says_how_to_find_it() -> None:
    async with supervisor(Script(Turn(Call("ask_form"))), tools=[form_tool()]) as client:
        done = await ask(client, "Create a repo.")
        (task,) = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert (done.code, done.out) == (INPUT_REQUIRED, "")
    assert task["id"] in done.err
    assert task["contextId"] in done.err


async def test_a_timeout_is_code_124_and_stops_the_task() -> None:
    for seconds in ("1", "5", "25"):  # a slow machine reaches the first limit before the tool starts
        waiting = BlockingScenario()
        async with supervisor(waiting.script, tools=[waiting.tool]) as client:
            done = await ask(client, "--timeout", seconds, "Wait.")
            if not waiting.started.is_set():
                continue
            assert await only_task_state(client) == "canceled"
        break
    assert (done.code, done.out) == (TIMED_OUT, "")
    assert waiting.cancelled.is_set()
    assert "stopped" in done.err


async def test_an_interrupt_is_code_130_and_stops_the_task() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        async with start_command("caipe", "ask", "Wait.", env={"CAIPE_URL": client.url}) as program:
            await program.wait_for_stderr("→ wait")
            program.send_signal(signal.SIGINT)
            done = await program.wait_for_exit()
        assert await only_task_state(client) == "canceled"
    assert (done.code, done.out) == (INTERRUPTED, "")
    assert waiting.cancelled.is_set()
    assert "Traceback" not in program.err


async def test_a_task_that_somebody_stops_is_code_130() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        asking = asyncio.create_task(ask(client, "Wait."))
        await waiting.started.wait()
        (task,) = (await client.call("ListTasks", {}))["result"]["tasks"]
        await client.call(V10.cancel, {"id": task["id"]})
        done = await asking
    assert (done.code, done.out) == (INTERRUPTED, "")
    assert "The run was stopped." in done.err


async def test_control_characters_never_reach_the_terminal() -> None:
    odd = "\x1b[31mred\x1b[0m \x07bell \x9b2J \x08 tab\there \x7f \x1b]0;title\x07 end"
    async with supervisor(Script(Turn(Say(odd, "\r\nnext\r\x1b[2Jline\n", "last")))) as client:
        done = await ask(client, "Paint.")
        raw = await ask(client, "--json", "Paint.")
    assert done.code == OK
    for stream in (done.out, done.err, raw.out, raw.err):
        assert [
            character for character in stream if not character.isprintable() and character not in "\n\t"
        ] == []
    assert done.out == "[31mred[0m bell 2J  tab\there  ]0;title end\nnext[2Jline\nlast\n"
    answered = json.loads(raw.out.splitlines()[-1])
    assert answered["text"].startswith("\x1b[31mred")


async def test_the_key_is_sent_from_the_environment_or_the_option() -> None:
    key = secrets.token_urlsafe()
    async with supervisor(Script(Turn(Say("Yes."))), env={"A2A_AUTH_SHARED_KEY": key}) as client:
        assert (await ask(client, "Well?", A2A_AUTH_SHARED_KEY=key)).out == "Yes.\n"
        assert (await ask(client, "--token", key, "Well?")).out == "Yes.\n"
        refused = await ask(client, "Well?")
    assert (refused.code, refused.out) == (FAILED, "")
    assert "401" in refused.err


async def test_a_stream_that_breaks_off_is_followed_to_the_answer() -> None:
    waiting = BlockingScenario()
    app = create_app(
        Settings.from_variables({}), tools=[waiting.tool], model=ScriptedChatModel(script=waiting.script)
    )
    async with serve_app(app) as url:
        asking = asyncio.create_task(invoke_caipe("ask", "--json", "Wait.", env={"CAIPE_URL": url}))
        await waiting.started.wait()
        app.streams.cancel_all()
        waiting.released.set()
        done = await asking
    events = [EVENT_ADAPTER.validate_json(line) for line in done.out.splitlines()]
    assert (done.code, fold(events).answer) == (OK, waiting.answer)
    assert [event.kind for event in events].count("tool_started") == 1
