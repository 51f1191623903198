"""`caipe follow`: a task of another client, from any event, through dropped connections, to its end."""

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from ai_platform_engineering.core.events import EVENT_ADAPTER, AnyEvent
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.storage import Storage
from tests.runtime.server.test_a2a_input_required import SCRIPT, answered, form_tool, paused, request_id
from tests.support.dialects import V10
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Fail, Say, Script, Turn
from tests.support.harness import PLAIN, Client, Frame, ReceivedStream, serve_app, supervisor
from tests.support.processes import CommandResult, invoke_caipe, start_command

OK, FAILED, USAGE, UNREACHABLE, INPUT_REQUIRED, INTERRUPTED = 0, 1, 2, 3, 4, 130
ONE_BY_ONE = {"STREAM_COALESCE_SECONDS": "0"}


@contextlib.asynccontextmanager
async def connect_client(url: str) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        yield Client(url, http)


async def follow(client: Client, *arguments: str) -> CommandResult:
    return await invoke_caipe("follow", *arguments, env={"CAIPE_URL": client.url})


def without_durations(text: str) -> str:
    return re.sub(r" · \d+\.\d s", "", text)


async def start_task(client: Client, waiting: BlockingScenario) -> str:
    """A task that works; its id."""
    task = V10.sent(await client.call(V10.send, {**V10.message("Wait."), **V10.at_once}))
    await waiting.started.wait()
    return str(task["id"])


def parse_events(done: CommandResult) -> list[AnyEvent]:
    return [EVENT_ADAPTER.validate_json(line) for line in done.out.splitlines()]


def frame_events(frames: list[Frame], after: int = 0) -> list[AnyEvent]:
    return [event for frame in frames for seq, event in frame.events if seq > after]


async def read_all_frames(client: Client, task_id: str) -> list[Frame]:
    return [frame async for frame in client.open(V10.subscribe, {"id": task_id}, Last_Event_ID="0")]


# --- what is shown --------------------------------------------------------------------------------


async def test_an_ended_task_is_shown_like_its_question_was() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        ask_result = await invoke_caipe("ask", "Which?", env={"CAIPE_URL": client.url})
        (task,) = (await client.call("ListTasks", {}))["result"]["tasks"]
        done = await follow(client, task["id"])
    assert (done.code, done.out) == (OK, f"{version.answer}\n")
    assert without_durations(done.err) == without_durations(ask_result.err)
    assert re.search(r"✓ version · \d+\.\d s", done.err)


async def test_a_running_task_is_followed_from_its_start_to_its_answer() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        task_id = await start_task(client, waiting)
        async with start_command("caipe", "follow", task_id, env={"CAIPE_URL": client.url}) as program:
            await program.wait_for_stderr("→ wait")
            waiting.released.set()
            done = await program.wait_for_exit()
    assert (done.code, done.out) == (OK, f"{waiting.answer}\n")
    *lines, ids = [line.strip() for line in without_durations(program.err).splitlines()]
    assert lines == ["Please wait.", "→ wait", "✓ wait", waiting.answer]
    assert ids.startswith(f"(task {task_id}, context ")


@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
async def test_after_a_number_only_the_rest_is_shown(ended: bool) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool], env=ONE_BY_ONE) as client:
        task_id = await start_task(client, waiting)
        before = (await client.call(V10.get, {"id": task_id}))["result"]["metadata"]["caipe.seq"]
        number = str(int(before) - 2)  # in the middle of a text
        if ended:
            waiting.released.set()
            await read_all_frames(client, task_id)
        following = asyncio.create_task(follow(client, task_id, "--after", number, "--json"))
        waiting.released.set()
        done = await following
        stored = await read_all_frames(client, task_id)
    assert parse_events(done) == frame_events(stored, int(number))
    assert "tool_started" in done.out
    assert (done.code, done.err) == (OK, "")
    assert fold(parse_events(done)).answer == waiting.answer


async def test_an_ended_task_after_its_last_number_has_only_its_answer() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        stream = await client.ask("Which?", version="1.0")
        done = await follow(client, stream.task_id, "--after", stream.last.id or "")
        beyond = await follow(client, stream.task_id, "--after", "999")
    assert (done.code, done.out) == (OK, f"{version.answer}\n")
    assert done.err == f"(task {stream.task_id}, context {stream.context_id})\n"
    assert (beyond.code, beyond.out) == (FAILED, "")
    assert (
        beyond.err == f"The task {stream.task_id} has no event 999 yet; its last one is {stream.last.id}.\n"
    )


async def test_json_of_an_ended_task_folds_to_what_was_seen() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool], env=ONE_BY_ONE) as client:
        stream = await client.ask("Which?", version="1.0")
        done = await follow(client, stream.task_id, "--json")
    assert fold(parse_events(done)) == fold(stream.events)


# --- how it ends ----------------------------------------------------------------------------------


async def test_an_unknown_task_is_a_sentence_and_code_one() -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        done = await follow(client, "nothing")
    assert (done.code, done.out, done.err) == (FAILED, "", "Task not found. There is no task nothing.\n")


async def test_a_server_that_cannot_be_reached_is_code_three() -> None:
    for url in ("http://127.0.0.1:1/", "nonsense", "http://127.0.0.1:99999/"):
        done = await invoke_caipe("follow", "--url", url, "some-task")
        assert (done.code, done.out) == (UNREACHABLE, "")
        assert url in done.err


@pytest.mark.parametrize(
    "arguments", [(), ("task", "--after", "-1"), ("task", "--after", "x"), ("one", "two")]
)
async def test_a_wrong_command_line_is_code_two(arguments: tuple[str, ...]) -> None:
    assert (await invoke_caipe("follow", *arguments)).code == USAGE


async def test_a_failed_task_is_code_one_with_its_reason() -> None:
    async with supervisor(Script(Turn(Fail(401)))) as client:
        done = await follow(client, (await client.ask("Well?")).task_id)
    assert (done.code, done.out) == (FAILED, "")
    assert "credentials" in done.err


async def test_a_task_that_is_stopped_meanwhile_is_code_130() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        task_id = await start_task(client, waiting)
        async with start_command("caipe", "follow", task_id, env={"CAIPE_URL": client.url}) as program:
            await program.wait_for_stderr("→ wait")
            await client.call(V10.cancel, {"id": task_id})
            assert (await program.wait_for_exit()).code == INTERRUPTED
    assert "The run was stopped." in program.err


async def test_leaving_stops_nothing() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        task_id = await start_task(client, waiting)
        async with start_command("caipe", "follow", task_id, env={"CAIPE_URL": client.url}) as program:
            await program.wait_for_stderr("→ wait")
            program.send_signal(signal.SIGINT)
            done = await program.wait_for_exit()
        waiting.released.set()
        stream = ReceivedStream(await read_all_frames(client, task_id))
    assert (done.code, done.out) == (INTERRUPTED, "")
    assert "Traceback" not in program.err
    assert stream.answer == waiting.answer
    assert not waiting.cancelled.is_set()


# --- pauses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, "last"])
async def test_a_paused_task_is_code_four_and_says_what_is_asked(after: int | str) -> None:
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        stream = await paused(client, V10)
        done = await follow(
            client, stream.task_id, "--after", str(stream.last.id if after == "last" else after)
        )
    assert (done.code, done.out) == (INPUT_REQUIRED, "")
    heading, *lines = done.err.splitlines()[-8:]
    assert heading.startswith("Supervisor asks: Create GitHub Repo (expires in ")
    assert lines == [
        "  A new repository.",
        "  I need a few details.",
        "  - repo: Repository; at most 80 characters, lowercase letters, digits and hyphens",
        "  - stars: a whole number, at least 0, optional",
        f"  caipe answer {request_id(stream)} repo=… [stars=…]",
        f'  caipe reject {request_id(stream)} --reason "…"',
        f"(task {stream.task_id}, context {stream.context_id})",
    ]


@pytest.mark.parametrize("running", [True, False], ids=["running", "ended"])
async def test_a_pause_that_was_answered_is_passed(running: bool) -> None:
    waiting = BlockingScenario()
    script = Script(
        Turn(Call("ask_form")),
        Turn(Call("wait")),
        Turn(Say("Made {{tool:ask_form.repo}} and {{tool:wait.waited}}.")),
    )
    async with supervisor(script, tools=[form_tool(), waiting.tool], env=ONE_BY_ONE) as client:
        stream = await paused(client, V10)
        answering = asyncio.create_task(
            answered(client, V10, V10.data({"repo": "one"}), taskId=stream.task_id)
        )
        await waiting.started.wait()
        if running:
            async with start_command(
                "caipe", "follow", stream.task_id, env={"CAIPE_URL": client.url}
            ) as program:
                await program.wait_for_stderr("→ wait")
                waiting.released.set()
                done = await program.wait_for_exit()
        else:
            waiting.released.set()
            await answering
            done = await follow(client, stream.task_id, "--after", "1")
        rest = await answering
    assert (done.code, done.out) == (OK, f"Made one and {waiting.value}.\n")
    lines = [line for line in without_durations(done.err).splitlines() if "wait" in line]
    assert lines[:2] == ["→ wait", "✓ wait"]
    assert rest.answer == f"Made one and {waiting.value}."


# --- dropped lines --------------------------------------------------------------------------------


async def test_a_dropped_line_is_taken_up_again() -> None:
    waiting = BlockingScenario()
    app = create_app(
        Settings.from_variables(ONE_BY_ONE),
        tools=[waiting.tool],
        model=ScriptedChatModel(script=waiting.script),
    )
    async with serve_app(app) as url, connect_client(url) as client:
        task_id = await start_task(client, waiting)
        async with start_command("caipe", "follow", "--json", task_id, env={"CAIPE_URL": url}) as program:
            assert program.process.stdout is not None
            head = b""
            while b"tool_started" not in head:
                head += await program.process.stdout.readline()
            app.streams.cancel_all()
            waiting.released.set()
            done = await program.wait_for_exit()
        stored = await read_all_frames(client, task_id)
    assert parse_events(CommandResult(OK, head.decode() + done.out, "")) == frame_events(stored)
    assert done.code == OK


async def test_a_task_of_a_process_that_is_gone_is_found_in_its_storage(tmp_path: Path) -> None:
    version = VersionScenario()
    answers: list[str] = []
    for _ in range(2):
        storage = Storage.from_settings(Settings.from_variables({}).storage, tmp_path, "supervisor")
        app = create_app(
            Settings.from_variables({}),
            tools=[version.tool],
            model=ScriptedChatModel(script=version.script),
            storage=storage,
        )
        async with serve_app(app) as url, connect_client(url) as client:
            if not answers:
                answers.append((await client.ask("Which?")).task_id)
            answers.append((await follow(client, answers[0])).out)
    assert answers[1:] == [f"{version.answer}\n"] * 2
