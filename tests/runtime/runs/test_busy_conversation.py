"""A message to a busy conversation: queued, refused or interrupting, by setting and per message."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.events import Cancelled, Notice
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.storage import Storage
from tests.runtime.server.test_a2a_streams import reading
from tests.support.dialects import V10, Dialect, both_versions
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Hang, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, Frame, ReceivedStream, serve_app

REFUSED, BAD = -32004, -32602
TALK = {"contextId": "talk"}
ECHO = Turn(Say("You said {{user}}"))


class Talk:
    """A conversation on a server whose first question, "Wait.", works until it is let go."""

    def __init__(self, client: Client, model: ScriptedChatModel, waiting: BlockingScenario) -> None:
        self.client, self.model, self.waiting = client, model, waiting

    async def send(self, text: str, dialect: Dialect = V10, busy: Any = None, **more: Any) -> dict[str, Any]:
        """The whole answer to a message that does not wait."""
        metadata = {} if busy is None else {"metadata": {"caipe.when_busy": busy}}
        return await self.client.call(
            dialect.send, {**dialect.message(text, **TALK, **metadata, **more), **dialect.at_once}
        )

    async def sent(self, text: str, dialect: Dialect = V10, busy: Any = None, **more: Any) -> str:
        return str(dialect.sent(await self.send(text, dialect, busy, **more))["id"])

    async def busy(self, dialect: Dialect = V10, **more: Any) -> str:
        """The task that works."""
        task_id = await self.sent("Wait.", dialect, **more)
        await self.waiting.started.wait()
        return task_id

    async def read_whole_task(self, task_id: str) -> ReceivedStream:
        """Everything of a task, once it has ended."""
        async with reading(self.client, V10, task_id, "0") as (reader,):
            pass
        return ReceivedStream(reader.frames)

    async def tasks(self) -> dict[str, str]:
        """Every task and its state."""
        return {
            task["id"]: V10.state(task)
            for task in (await self.client.call("ListTasks", {}))["result"]["tasks"]
        }

    @property
    def model_questions(self) -> list[str]:
        """What the model was asked, in order; a question that it worked on in two steps is there twice."""
        return [request.last_user for request in self.model.requests]


@contextlib.asynccontextmanager
async def talking(
    home: Path | None, *, script: Script | None = None, key: str = "", **env: str
) -> AsyncIterator[Talk]:
    """A supervisor, on SQLite when it has a home."""
    waiting = BlockingScenario()
    settings = Settings.from_variables({**FAST, **env, "A2A_AUTH_SHARED_KEY": key})
    step = Script(
        lambda request: (
            Turn(Call("wait")) if request.last_user == "Wait." and not request.tool_results else ECHO
        )
    )
    model = ScriptedChatModel(script=script or step)
    storage = Storage.from_settings(settings.storage, home, "supervisor") if home else Storage.in_memory()
    app = create_app(settings, tools=[waiting.tool], model=model, storage=storage)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN, headers=headers) as http:
        yield Talk(Client(url, http), model, waiting)


@pytest.fixture(params=["memory", "sqlite"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "sqlite" else None


def positions(stream: ReceivedStream) -> list[str]:
    return [event.text for event in stream.events if isinstance(event, Notice) and event.position is not None]


def queued(number: int) -> str:
    return (
        f"Queued: {number} {'question' if number == 1 else 'questions'} of this conversation before this one."
    )


# --- enqueue ------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("setting", ["", "Enqueue"], ids=["default", "set"])
async def test_questions_are_queued_with_their_position_and_answered_in_order(
    home: Path | None, setting: str
) -> None:
    async with talking(home, WHEN_BUSY=setting) as talk:
        first = await talk.busy()
        rest = [await talk.sent(text) for text in ("two", "three", "four")]
        assert talk.model_questions == ["Wait."]
        talk.waiting.released.set()
        streams = [await talk.read_whole_task(task_id) for task_id in (first, *rest)]
    assert [positions(stream) for stream in streams] == [[], [queued(1)], [queued(2)], [queued(3)]]
    assert [stream.answer for stream in streams] == [
        "You said Wait.",
        "You said two",
        "You said three",
        "You said four",
    ]
    assert talk.model_questions == ["Wait.", "Wait.", "two", "three", "four"]
    assert [message.text for message in talk.model.requests[-1].messages if message.role == "user"] == [
        "Wait.",
        "two",
        "three",
        "four",
    ]


async def test_another_conversation_is_not_held_up(home: Path | None) -> None:
    async with talking(home, WHEN_BUSY="reject") as talk:
        first = await talk.busy()
        assert (await talk.client.ask("Hello", contextId="another")).answer == "You said Hello"
        assert (await talk.client.ask("Alone")).answer == "You said Alone"
        assert (await talk.tasks())[first] == "working"


# --- reject -------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@both_versions
async def test_a_question_is_refused_and_nothing_of_it_is_stored(home: Path | None, dialect: Dialect) -> None:
    async with talking(home, WHEN_BUSY="reject") as talk:
        first = await talk.busy(dialect)
        refused = await talk.send("Next.", dialect, messageId="next")
        assert await talk.tasks() == {first: "working"}
        talk.waiting.released.set()
        assert (await talk.read_whole_task(first)).answer == "You said Wait."
        again = await talk.read_whole_task(await talk.sent("Next.", dialect, messageId="next"))
    assert refused["error"]["code"] == REFUSED
    assert refused["error"]["message"].startswith("The conversation is busy with another question.")
    assert again.answer == "You said Next."
    assert positions(again) == []
    assert talk.model_questions == ["Wait.", "Wait.", "Next."]


@both_versions
async def test_a_stream_is_refused_in_its_own_way(dialect: Dialect) -> None:
    async with talking(None, WHEN_BUSY="reject") as talk:
        first = await talk.busy(dialect)
        body = {
            "jsonrpc": "2.0",
            "id": "1",
            "method": dialect.stream,
            "params": dialect.message("Next.", **TALK),
        }
        response = await talk.client.http.post(
            talk.client.url, json=body, headers={} if dialect.old else {"A2A-Version": "1.0"}
        )
        assert await talk.tasks() == {first: "working"}
    assert f'"code": {REFUSED}' in response.text.replace('":', '": ').replace("  ", " ")


async def test_of_questions_at_once_one_is_worked_on(home: Path | None) -> None:
    async with talking(home, WHEN_BUSY="reject") as talk:
        answers = await asyncio.gather(*(talk.send("Wait.") for _ in range(8)))
        assert list((await talk.tasks()).values()) == ["working"]
    assert sorted(answer.get("error", {}).get("code", 0) for answer in answers) == [REFUSED] * 7 + [0]


# --- interrupt ----------------------------------------------------------------------------------------------


async def test_the_new_question_stops_what_works_and_what_waits(home: Path | None) -> None:
    async with talking(home, key="a-key-of-the-tests", WHEN_BUSY="interrupt") as talk:
        first = await talk.busy()
        second = await talk.sent("two", busy="enqueue")
        third = await talk.read_whole_task(await talk.sent("three"))
        stopped = [await talk.read_whole_task(task_id) for task_id in (first, second)]
        principal = next(event.principal for event in stopped[0].events if event.kind == "run_started")
    assert talk.waiting.cancelled.is_set()
    assert [stream.last.state for stream in stopped] == ["canceled", "canceled"]
    assert [event.by for stream in stopped for event in stream.events if isinstance(event, Cancelled)] == [
        principal,
        principal,
    ]
    assert principal
    assert third.answer == "You said three"
    assert positions(third) == []
    assert talk.model_questions == ["Wait.", "three"]


async def test_a_conversation_that_rests_has_nothing_to_stop(home: Path | None) -> None:
    async with talking(home, WHEN_BUSY="interrupt") as talk:
        streams = [await talk.read_whole_task(await talk.sent(text)) for text in ("one", "two")]
    assert [stream.answer for stream in streams] == ["You said one", "You said two"]


# --- per message --------------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@both_versions
@pytest.mark.parametrize("setting", ["enqueue", "reject", "interrupt"])
async def test_a_message_says_for_itself_what_it_wants(dialect: Dialect, setting: str) -> None:
    async with talking(None, WHEN_BUSY=setting) as talk:
        first = await talk.busy(dialect)
        refused = await talk.send("no", dialect, busy="reject")
        second = await talk.sent("two", dialect, busy="enqueue")
        assert await talk.tasks() == {second: "submitted", first: "working"}
        third = await talk.read_whole_task(await talk.sent("three", dialect, busy="interrupt"))
        states = await talk.tasks()
    assert refused["error"]["code"] == REFUSED
    assert (states[first], states[second]) == ("canceled", "canceled")
    assert third.answer == "You said three"


@pytest.mark.sample(7)
@both_versions
@pytest.mark.parametrize("value", ["later", "", "ENQUEUE", 5, True, ["reject"], {"reject": True}], ids=str)
async def test_a_value_that_is_none_is_told(dialect: Dialect, value: Any) -> None:
    async with talking(None) as talk:
        answer = await talk.send("Hello", dialect, busy=value)
        assert await talk.tasks() == {}
    assert answer["error"]["code"] == BAD
    assert "caipe.when_busy is one of enqueue, reject and interrupt." in answer["error"]["message"]


# --- repeats ------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("setting", ["reject", "interrupt"])
async def test_a_repeated_message_finds_its_task_and_stops_nothing(home: Path | None, setting: str) -> None:
    async with talking(home, WHEN_BUSY=setting) as talk:
        before = await talk.sent("Before.", messageId="before")
        await talk.read_whole_task(before)
        first = await talk.busy(messageId="first")
        second = await talk.sent("two", messageId="second", busy="enqueue")
        again = [
            await talk.sent("Wait.", messageId="first"),
            await talk.sent("two", messageId="second"),
            await talk.sent("Before.", messageId="before"),
        ]
        states = await talk.tasks()
        talk.waiting.released.set()
        answers = [(await talk.read_whole_task(task_id)).answer for task_id in (first, second)]
    assert again == [first, second, before]
    assert states == {second: "submitted", first: "working", before: "completed"}
    assert answers == ["You said Wait.", "You said two"]


# --- over a restart -----------------------------------------------------------------------------------------


async def read_until(client: Client, task_id: str, text: str) -> list[Frame]:
    frames: list[Frame] = []
    async with contextlib.aclosing(client.open(V10.subscribe, {"id": task_id}, Last_Event_ID="0")) as stream:
        async for frame in stream:
            frames.append(frame)
            if text in frame.text or text in frame.status_text:
                return frames
    raise AssertionError(f"{text!r} was not said")


async def test_a_queue_survives_a_restart_in_order(tmp_path: Path) -> None:
    texts = ("one", "two", "three", "four")
    async with talking(tmp_path, script=Script(Turn(Say("Half "), Hang()))) as talk:
        tasks = [await talk.sent(text) for text in texts]
        notices = ("Half", queued(1), queued(2), queued(3))
        before = [
            await read_until(talk.client, task_id, text) for task_id, text in zip(tasks, notices, strict=True)
        ]
    async with talking(tmp_path) as after:
        streams = [await after.read_whole_task(task_id) for task_id in tasks]
        added = await after.read_whole_task(await after.sent("five"))
    assert talk.model_questions == ["one"]
    assert after.model_questions == [*texts, "five"]
    assert [stream.answer for stream in [*streams, added]] == [
        f"You said {text}" for text in (*texts, "five")
    ]
    assert [positions(stream) for stream in streams] == [[], [queued(1)], [queued(2)], [queued(3)]]
    for old, now in zip(before, streams, strict=True):
        assert [frame.raw for frame in now.frames[: len(old)]] == [frame.raw for frame in old]
    users = [message.text for message in after.model.requests[-1].messages if message.role == "user"]
    assert users == [*texts, "five"]


async def test_a_list_finds_a_queued_task_by_its_state(home: Path | None) -> None:
    async with talking(home) as talk:
        first = await talk.busy()
        second = await talk.sent("Next.")

        async def listed(state: str) -> list[str]:
            answer = await talk.client.call("ListTasks", {"status": f"TASK_STATE_{state}"})
            return [task["id"] for task in answer["result"]["tasks"]]

        assert await listed("SUBMITTED") == [second]
        assert await listed("WORKING") == [first]
        talk.waiting.released.set()
        await talk.read_whole_task(second)
        assert sorted(await listed("COMPLETED")) == sorted([first, second])
