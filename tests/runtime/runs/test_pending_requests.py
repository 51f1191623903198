"""Several requests of one run, answered by several people, twice, out of order, too late, after a restart."""

import asyncio
import contextlib
import json
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt

from ai_platform_engineering.a2a.codec import decode_snapshot
from ai_platform_engineering.core.events import AnyEvent, InputRequested, InputResolved, Paused
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgent
from ai_platform_engineering.runtime.log.log_rows import Marker
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from tests.runtime.server.test_authentication import two_users
from tests.support.agent_services import AgentService, connect_remote_agent, eventually, run_agent_service
from tests.support.dialects import V10, Dialect, both_versions
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import PLAIN, Client, Frame, ReceivedStream, agent, supervisor
from tests.support.storages import KEY, in_folder, supervisor_on

REFUSED = -32004
PAST = datetime(2000, 1, 1, tzinfo=UTC)


# --- what asks, and what it was told ------------------------------------------------------------------------


def form(title: str, *fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "form", "title": title, "response": "A few details.", "fields": list(fields)}


def words(title: str) -> dict[str, Any]:
    """A question that a sentence answers."""
    return form(title, {"field_name": "answer", "field_label": "Answer"})


def details(title: str) -> dict[str, Any]:
    """A question that no sentence answers."""
    name = {"field_name": "name", "field_label": "Name", "pattern": "[a-z]+"}
    return form(
        title, name, {"field_name": "size", "field_label": "Size", "field_type": "integer", "minimum": 1}
    )


def decision(tool: str, **more: Any) -> dict[str, Any]:
    return {"type": "approval", "tool": tool, "arguments": {"name": tool}, **more}


@dataclass(slots=True)
class Desk:
    """The tools that ask, and the answers that each has worked with."""

    received: list[tuple[str, list[Any]]] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def tool(self, name: str, *questions: Mapping[str, Any], gated: bool = False) -> BaseTool:
        async def ask() -> str:
            """Asks."""
            answers = [interrupt(dict(question)) for question in questions]
            if gated:
                self.reached.set()
                await self.released.wait()
            self.received.append((name, answers))
            return json.dumps(answers)

        # It asks and changes nothing: when it is cut off in the middle, it runs again after a restart.
        return StructuredTool.from_function(coroutine=ask, name=name, metadata={"effect": "read"})

    def received_by(self, name: str) -> list[list[Any]]:
        return [answers for tool, answers in self.received if tool == name]


def calls(*names: str) -> Script:
    """Calls the tools at once, and then says so."""
    return Script(Turn(*(Call(name) for name in names)), Turn(Say("All done.")))


def delegates(*names: str, tools: Sequence[str] = ()) -> Script:
    tasks = [Call("task", {"description": "Do it.", "subagent_type": name}) for name in names]
    return Script(Turn(*(Call(name) for name in tools), *tasks), Turn(Say("All done.")))


# --- who asks and answers -----------------------------------------------------------------------------------


async def send(
    client: Client, *parts: dict[str, Any] | str, dialect: Dialect = V10, **named: Any
) -> dict[str, Any]:
    """A message that waits for nothing; the whole reply."""
    return await client.call(dialect.send, {**dialect.message(*parts, **named), **dialect.at_once})


async def say(
    client: Client, *parts: dict[str, Any] | str, dialect: Dialect = V10, **named: Any
) -> ReceivedStream:
    """A message and all that follows until the run pauses or ends."""
    return ReceivedStream(
        [frame async for frame in client.open(dialect.stream, dialect.message(*parts, **named))]
    )


async def read_whole_task(client: Client, task_id: str, *, pauses: int = 100) -> ReceivedStream:
    """The task from its beginning to its end, over so many pauses."""
    frames: list[Frame] = []
    while not frames or (
        frames[-1].state == "input-required"
        and ReceivedStream(frames).states.count("input-required") < pauses
    ):
        after = str(frames[-1].id) if frames else "0"
        frames += [frame async for frame in client.open(V10.subscribe, {"id": task_id}, Last_Event_ID=after)]
    return ReceivedStream(frames)


async def stored(client: Client, task_id: str) -> dict[str, Any]:
    task: dict[str, Any] = (await client.call(V10.get, {"id": task_id}))["result"]
    return task


def waits_for(task: dict[str, Any]) -> int:
    """How many requests a run that has paused waits for; 0 while it works."""
    last = decode_snapshot(task)[-1].event
    return len(last.requests) if isinstance(last, Paused) else 0


def answers(**values: Any) -> dict[str, Any]:
    return V10.data({"resume": values})


def events(stream: ReceivedStream) -> list[AnyEvent]:
    """What happened after the first frame: that is the task as it was."""
    return ReceivedStream(stream.frames[1:]).events


def requests(stream: ReceivedStream) -> dict[str, str]:
    """The ids of what was asked, by its name."""
    return {
        event.asked.describe(): event.request_id
        for event in events(stream)
        if isinstance(event, InputRequested)
    }


def resolved(stream: ReceivedStream) -> list[tuple[str, str]]:
    return [
        (event.request_id, event.resolution) for event in events(stream) if isinstance(event, InputResolved)
    ]


def pause(stream: ReceivedStream) -> Paused:
    last = stream.events[-1]
    assert isinstance(last, Paused)
    return last


def refusal(reply: dict[str, Any]) -> str:
    assert reply["error"]["code"] == REFUSED
    return str(reply["error"]["message"])


@contextlib.asynccontextmanager
async def at_two_windows(
    folder: Path, script: Script, *, tools: Sequence[BaseTool] = (), agents: Sequence[LocalAgent] = ()
) -> AsyncIterator[tuple[Client, Client]]:
    """A server on the folder's storage, and two clients of the same user."""
    headers = {"Authorization": f"Bearer {KEY}"}
    model = ScriptedChatModel(script=script)
    async with (
        supervisor_on(in_folder(folder), model, tools=tools, agents=agents, key=KEY) as first,
        httpx.AsyncClient(timeout=120, verify=PLAIN, headers=headers) as http,
    ):
        yield first, Client(first.url, http)


# --- five at once -------------------------------------------------------------------------------------------

FIVE: dict[str, tuple[str, dict[str, Any]]] = {  # tool: what it is called when it asks, and its answer
    "one": ("Question one", {"answer": "first"}),
    "two": ("a decision on two", {"type": "approve"}),
    "three": ("a decision on three", {"type": "edit", "arguments": {"name": "other"}}),
    "four": ("Question four", {"name": "four", "size": 4}),
    "five": ("a decision on five", {"type": "reject", "message": "not today"}),
}


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that was given thrice at once: by the message that counts, and by one that came too late."""

    request_id: str
    value: dict[str, Any]
    counts: str
    late: str

    async def again(self, client: Client, task_id: str) -> None:
        reply = await send(
            client, answers(**{self.request_id: self.value}), contextId="talk", messageId=self.counts
        )
        assert V10.sent(reply)["id"] == task_id
        too_late = await send(
            client, answers(**{self.request_id: self.value}), contextId="talk", messageId=self.late
        )
        assert " was already answered by " in refusal(too_late)


async def answer_thrice(
    first: Client, second: Client, task_id: str, request_id: str, value: dict[str, Any]
) -> Answered:
    """From two windows at once: a message, the same again, and another with the same content."""
    mine, other = str(uuid.uuid4()), str(uuid.uuid4())
    sent = [(first, mine), (second, mine), (second, other)]
    random.shuffle(sent)
    replies = await asyncio.gather(
        *(
            send(client, answers(**{request_id: value}), taskId=task_id, contextId="talk", messageId=message)
            for client, message in sent
        )
    )
    accepted = {message for (_, message), reply in zip(sent, replies, strict=True) if "result" in reply}
    assert len(accepted) == 1
    (counts,) = accepted
    for (_, message), reply in zip(sent, replies, strict=True):
        if message == counts:
            assert V10.sent(reply)["id"] == task_id
        else:
            assert " was already answered by " in refusal(reply)
    return Answered(request_id, value, counts, other if counts == mine else mine)


@pytest.mark.sample(1)
@pytest.mark.parametrize("quiet", [True, False], ids=["while it waits", "while it works"])
async def test_five_requests_answered_twice_out_of_order_over_a_restart_are_each_decided_once(
    tmp_path: Path, quiet: bool
) -> None:
    desk = Desk()
    own = [desk.tool("one", words("Question one")), desk.tool("two", decision("two"))]
    jira = agent(
        "jira",
        calls("three", "four"),
        desk.tool("three", decision("three")),
        desk.tool("four", details("Question four")),
    )
    github = agent("github", calls("five"), desk.tool("five", decision("five")))
    crew: dict[str, Any] = {"tools": own, "agents": [jira, github]}
    script, order = delegates("jira", "github", tools=("one", "two")), random.sample(sorted(FIVE), 5)
    answers: list[Answered] = []

    async with at_two_windows(tmp_path, script, **crew) as (first, second):
        paused = await say(first, "Do it all.", contextId="talk")
        request_ids = requests(paused)
        assert set(request_ids) == {title for title, _ in FIVE.values()}
        assert set(pause(paused).requests) == set(request_ids.values())
        for name in order[:2]:
            title, value = FIVE[name]
            answers.append(await answer_thrice(first, second, paused.task_id, request_ids[title], value))
        if quiet:
            await eventually(
                lambda: stored(first, paused.task_id),
                lambda task: len(desk.received) == 2 and waits_for(task) == 3,
            )

    async with at_two_windows(tmp_path, script, **crew) as (first, second):
        for old in answers:
            await old.again(second, paused.task_id)
        rest = [FIVE[name] for name in order[2:]]
        answers += await asyncio.gather(
            *(
                answer_thrice(first, second, paused.task_id, request_ids[title], value)
                for title, value in rest
            )
        )
        done = await read_whole_task(first, paused.task_id)
        for old in answers:
            await old.again(first, paused.task_id)
        listed = (await first.call("ListTasks", {}))["result"]["tasks"]

    assert done.answer == "All done."
    if quiet:
        assert Counter(name for name, _ in desk.received) == Counter(list(FIVE))
    for name, (_, value) in FIVE.items():
        got = desk.received_by(name)
        assert got
        assert [{key: answer[key] for key in value} for (answer,) in got] == [value] * len(got)
    assert Counter(request_id for request_id, _ in resolved(done)) == Counter(request_ids.values())
    assert dict(resolved(done)) == {
        request_ids["Question one"]: "answered",
        request_ids["a decision on two"]: "approved",
        request_ids["a decision on three"]: "edited",
        request_ids["Question four"]: "answered",
        request_ids["a decision on five"]: "rejected",
    }
    assert [task["id"] for task in listed] == [paused.task_id]


async def test_a_waiting_task_holds_each_of_its_requests_until_it_is_answered(tmp_path: Path) -> None:
    desk = Desk()
    tools = [desk.tool("one", words("Question one")), desk.tool("two", decision("two"))]
    async with at_two_windows(tmp_path, calls("one", "two"), tools=tools) as (client, _):
        paused = await say(client, "Do it.", contextId="talk")
        artifacts = [frame.artifact["parts"][0]["data"] for frame in paused.named("UserInputMetaData")]
    async with at_two_windows(tmp_path, calls("one", "two"), tools=tools) as (client, _):
        task = await stored(client, paused.task_id)
        assert V10.state(task) == "input-required"
        assert [
            artifact["parts"][0]["data"]
            for artifact in task["artifacts"]
            if artifact["name"] == "UserInputMetaData"
        ] == artifacts
    assert {data["request_id"] for data in artifacts} == set(requests(paused).values())
    assert [(data.get("user_input"), data.get("approval")) for data in artifacts] == [
        (True, None),
        (None, True),
    ]
    assert all(
        datetime.fromisoformat(data["expires_at"]) > datetime.now(UTC)
        for data in artifacts
        if "expires_at" in data
    )


# --- a place that asks twice --------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("inside", [False, True], ids=["supervisor", "agent"])
@pytest.mark.parametrize("second", ["Question", "Another question"], ids=["equal", "other"])
async def test_the_repeat_of_an_answer_never_reaches_the_next_question(
    tmp_path: Path, second: str, inside: bool
) -> None:
    desk = Desk()
    tool = desk.tool("ask", words("Question"), words(second))
    crew: dict[str, Any] = {"agents": [agent("jira", calls("ask"), tool)]} if inside else {"tools": [tool]}
    script = delegates("jira") if inside else calls("ask")
    async with at_two_windows(tmp_path, script, **crew) as (client, _):
        paused = await say(client, "Do it.", contextId="talk")
        (first_id,) = requests(paused).values()
        answer = Answered(first_id, {"answer": "first"}, "m-1", "m-2")
        more = await say(client, answers(**{first_id: answer.value}), contextId="talk", messageId="m-1")
        ((_, second_id),) = requests(more).items()
        await answer.again(client, paused.task_id)
        assert (desk.received, V10.state(await stored(client, paused.task_id))) == ([], "input-required")
    async with at_two_windows(tmp_path, script, **crew) as (client, _):
        await answer.again(client, paused.task_id)
        assert (desk.received, V10.state(await stored(client, paused.task_id))) == ([], "input-required")
        last = await say(client, answers(**{second_id: {"answer": "second"}}), contextId="talk")
        await answer.again(client, paused.task_id)
    assert first_id != second_id
    assert pause(more).requests == (second_id,)
    assert last.answer == "All done."
    assert desk.received == [("ask", [{"answer": "first"}, {"answer": "second"}])]


class DiesAsking(SqliteLog):
    """A log whose process dies when it is about to store the second question: the graph has stored it."""

    asked: list[str]
    dying: asyncio.Event

    async def append(
        self, run_id: str, epoch: int, events: Sequence[AnyEvent], markers: Sequence[Marker] = ()
    ) -> int:
        self.asked += [event.request_id for event in events if isinstance(event, InputRequested)]
        if len(self.asked) > 1:
            self.dying.set()
            await asyncio.Event().wait()
        return await super().append(run_id, epoch, events, markers)


@pytest.mark.sample(2)
@pytest.mark.parametrize("inside", [False, True], ids=["supervisor", "agent"])
@pytest.mark.parametrize("second", ["Question", "Another question"], ids=["equal", "other"])
async def test_an_answer_that_was_taken_before_a_crash_is_not_taken_for_the_next_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, inside: bool
) -> None:
    desk = Desk()
    tool = desk.tool("ask", words("Question"), words(second))
    crew: dict[str, Any] = {"agents": [agent("jira", calls("ask"), tool)]} if inside else {"tools": [tool]}
    script = delegates("jira") if inside else calls("ask")
    storage = in_folder(tmp_path)
    assert isinstance(storage.log, SqliteLog)
    storage.log.__class__ = DiesAsking
    monkeypatch.setattr(storage.log, "asked", [], raising=False)
    monkeypatch.setattr(storage.log, "dying", dying := asyncio.Event(), raising=False)
    async with supervisor_on(storage, ScriptedChatModel(script=script), key=KEY, **crew) as client:
        paused = await say(client, "Do it.", contextId="talk")
        (first_id,) = requests(paused).values()
        await send(client, answers(**{first_id: {"answer": "first"}}), contextId="talk")
        await asyncio.wait_for(dying.wait(), 120)
    async with at_two_windows(tmp_path, script, **crew) as (client, _):
        both = await read_whole_task(client, paused.task_id, pauses=2)
        request_ids = [event.request_id for event in events(both) if isinstance(event, InputRequested)]
        assert request_ids == [first_id, request_ids[-1]], [event.kind for event in events(both)]
        second_id = request_ids[-1]
        assert desk.received == []
        last = await say(client, answers(**{second_id: {"answer": "second"}}), contextId="talk")
    assert last.answer == "All done."
    assert desk.received == [("ask", [{"answer": "first"}, {"answer": "second"}])]


# --- while the run works ------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
async def test_an_answer_while_the_run_works_on_another_is_applied_when_that_is_done(
    tmp_path: Path, restarts: bool
) -> None:
    desk = Desk()
    tools = [desk.tool("first", words("First"), gated=True), desk.tool("second", decision("second"))]
    async with contextlib.AsyncExitStack() as stack:
        client, _ = await stack.enter_async_context(
            at_two_windows(tmp_path, calls("first", "second"), tools=tools)
        )
        paused = await say(client, "Do it.", contextId="talk")
        request_ids = requests(paused)
        await send(client, answers(**{request_ids["First"]: {"answer": "a"}}), contextId="talk")
        await asyncio.wait_for(desk.reached.wait(), 120)
        meanwhile = await send(
            client,
            answers(**{request_ids["a decision on second"]: {"type": "approve"}}),
            contextId="talk",
            messageId="m",
        )
        late = await send(
            client, answers(**{request_ids["a decision on second"]: {"type": "reject"}}), contextId="talk"
        )
        unclear = await send(client, "And?", taskId=paused.task_id)
        assert V10.sent(meanwhile)["id"] == paused.task_id
        assert refusal(late).startswith("A decision on second was already answered by ")
        assert "is working" in refusal(unclear)
        assert desk.received == []
        if restarts:
            await stack.aclose()
            client, _ = await stack.enter_async_context(
                at_two_windows(tmp_path, calls("first", "second"), tools=tools)
            )
            assert V10.sent(
                await send(
                    client,
                    answers(**{request_ids["a decision on second"]: {"type": "approve"}}),
                    contextId="talk",
                    messageId="m",
                )
            )
        desk.released.set()
        done = await read_whole_task(client, paused.task_id)
    assert done.answer == "All done."
    assert Counter(name for name, _ in desk.received) == Counter(["first", "second"])
    assert desk.received_by("second")[0][0]["type"] == "approve"
    assert Counter(resolved(done)) == Counter(
        [(request_ids["First"], "answered"), (request_ids["a decision on second"], "approved")]
    )


# --- in words -----------------------------------------------------------------------------------------------

ECHO = Turn(Say("You said {{user}}"))


def asks_once(*names: str) -> Script:
    """Asks when it is told to create something; otherwise says what it was told."""
    first = Turn(*(Call(name) for name in names))
    return Script(
        lambda request: first if "Create" in request.last_user else ECHO,
        lambda request: Turn(Say("All done.")) if "Create" in request.last_user else ECHO,
    )


@both_versions
async def test_a_sentence_answers_the_one_request_that_takes_words(dialect: Dialect) -> None:
    desk = Desk()
    tools = [
        desk.tool("free", words("Free")),
        desk.tool("form", details("Form")),
        desk.tool("decide", decision("decide")),
    ]
    async with supervisor(calls("free", "form", "decide"), tools=tools) as client:
        paused = await say(client, "Create it.", dialect=dialect)
        request_ids = requests(paused)
        more = await say(client, "Make it blue.", dialect=dialect, contextId=paused.context_id)
    assert more.task_id == paused.task_id
    assert resolved(more) == [(request_ids["Free"], "answered")]
    assert desk.received == [("free", [{"answer": "Make it blue."}])]
    assert set(pause(more).requests) == {request_ids["Form"], request_ids["a decision on decide"]}


@pytest.mark.sample(2)
@both_versions
@pytest.mark.parametrize("free", [0, 2], ids=["none takes words", "two take words"])
async def test_a_sentence_that_answers_nothing_is_held_until_the_requests_are_dropped(
    dialect: Dialect, free: int
) -> None:
    desk = Desk()
    tools = (
        [desk.tool("one", words("One")), desk.tool("two", words("Two"))]
        if free
        else [desk.tool("one", details("One")), desk.tool("two", decision("two"))]
    )
    async with supervisor(asks_once("one", "two"), tools=tools) as client:
        paused = await say(client, "Create it.", dialect=dialect)
        request_ids = requests(paused)
        unclear = await say(client, "What is the weather?", dialect=dialect, taskId=paused.task_id)
        dropped = await say(client, "Drop", dialect=dialect, contextId=paused.context_id, messageId="d")
        again = await say(client, "Drop", dialect=dialect, contextId=paused.context_id, messageId="d")
        old = await read_whole_task(client, paused.task_id)
    pause_event = pause(unclear)
    assert (unclear.task_id, pause_event.held, set(pause_event.requests)) == (
        paused.task_id,
        "What is the weather?",
        set(request_ids.values()),
    )
    assert pause_event.text.startswith("I still need your input: ")
    assert 'or send "drop"' in unclear.last.status_text
    assert (dropped.answer, dropped.context_id) == ("You said What is the weather?", paused.context_id)
    assert again.task_id == dropped.task_id != paused.task_id
    assert old.last.state == "canceled"
    assert Counter(resolved(old)) == Counter((request_id, "withdrawn") for request_id in request_ids.values())
    assert desk.received == []


@both_versions
async def test_dropped_requests_without_a_sentence_start_nothing(dialect: Dialect) -> None:
    desk = Desk()
    async with supervisor(asks_once("one"), tools=[desk.tool("one", decision("one"))]) as client:
        paused = await say(client, "Create it.", dialect=dialect)
        dropped = await say(client, '"drop it."', dialect=dialect, contextId=paused.context_id, messageId="d")
        again = V10.sent(await send(client, '"drop it."', contextId=paused.context_id, messageId="d"))
        listed = (await client.call("ListTasks", {}))["result"]["tasks"]
        fresh = await say(client, "Hello", dialect=dialect, contextId=paused.context_id)
    assert (dropped.task_id, dropped.last.state) == (paused.task_id, "canceled")
    assert [task["id"] for task in listed] == [again["id"]] == [paused.task_id]
    assert fresh.answer == "You said Hello"
    assert desk.received == []


async def test_what_was_held_survives_wrong_answers_and_more_sentences() -> None:
    desk = Desk()
    async with supervisor(
        asks_once("one", "two"), tools=[desk.tool("one", details("One")), desk.tool("two", decision("two"))]
    ) as client:
        paused = await say(client, "Create it.")
        request_ids = requests(paused)
        await say(client, "What is the weather?", contextId=paused.context_id)
        await say(client, answers(**{request_ids["One"]: {"name": "NOT GOOD"}}), contextId=paused.context_id)
        await say(
            client,
            answers(**{request_ids["a decision on two"]: {"type": "approve"}}),
            contextId=paused.context_id,
        )
        await say(client, "And tomorrow?", contextId=paused.context_id)
        dropped = await say(client, "drop", contextId=paused.context_id)
    assert dropped.answer == "You said What is the weather?\n\nAnd tomorrow?"
    assert [name for name, _ in desk.received] == ["two"]


@both_versions
async def test_a_wrong_answer_names_each_field_of_each_request_and_decides_nothing(dialect: Dialect) -> None:
    desk = Desk()
    tools = [
        desk.tool("form", details("Form")),
        desk.tool("decide", decision("decide", allowed=["approve", "reject"])),
    ]
    async with supervisor(calls("form", "decide"), tools=tools) as client:
        paused = await say(client, "Create it.", dialect=dialect)
        the_form, the_decision = (requests(paused)[name] for name in ("Form", "a decision on decide"))
        wrong = {
            the_form: {"name": "NOT GOOD", "size": 0, "colour": "red"},
            the_decision: {"type": "edit", "arguments": {}},
        }
        reply = await say(
            client, dialect.data({"resume": wrong}), dialect=dialect, contextId=paused.context_id
        )
        half = {the_form: {"name": "good"}, the_decision: {"type": "approve"}}
        partly = await say(
            client, dialect.data({"resume": half}), dialect=dialect, contextId=paused.context_id
        )
        done = await say(
            client,
            dialect.data({"resume": {the_form: {"name": "good", "size": 2}}}),
            dialect=dialect,
            taskId=paused.task_id,
        )
    assert pause(reply).wrong == {
        the_form: {
            "name": "Name must consist of lowercase letters.",
            "size": "Size must be at least 1.",
            "colour": "There is no field colour; the fields are name, size.",
        },
        the_decision: {"type": "The decision on decide is one of approve, reject."},
    }
    for sentences in pause(reply).wrong.values():
        assert all(sentence in reply.last.status_text for sentence in sentences.values())
    assert resolved(reply) == []
    assert resolved(partly) == [(the_decision, "approved")]
    assert "Size is required." in partly.raw.decode(), "what else was wrong is told as well"
    assert pause(partly).requests == (the_form,)
    assert done.answer == "All done."
    assert Counter(name for name, _ in desk.received) == Counter(["form", "decide"])


# --- too late -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
async def test_an_expired_request_is_no_denial_and_is_asked_again_under_another_id(
    tmp_path: Path, restarts: bool
) -> None:
    desk = Desk()
    tools = [desk.tool("delete", decision("delete", expires_at=PAST))]
    async with contextlib.AsyncExitStack() as stack:
        client, _ = await stack.enter_async_context(at_two_windows(tmp_path, calls("delete"), tools=tools))
        paused = await say(client, "Delete it.", contextId="talk")
        (old_id,) = requests(paused).values()
        late = await say(client, answers(**{old_id: {"type": "approve"}}), contextId="talk", messageId="late")
        assert (desk.received, late.last.state) == ([], "input-required")
        if restarts:
            await stack.aclose()
            client, _ = await stack.enter_async_context(
                at_two_windows(tmp_path, calls("delete"), tools=tools)
            )
        (new_id,) = requests(late).values()
        again = await send(
            client, answers(**{old_id: {"type": "approve"}}), contextId="talk", messageId="late"
        )
        other = await say(client, answers(**{old_id: {"type": "approve"}}), contextId="talk")
        assert (V10.sent(again)["id"], desk.received) == (paused.task_id, [])
        done = await say(client, answers(**{new_id: {"type": "approve"}}), contextId="talk")
        all_of_it = await read_whole_task(client, paused.task_id)
    assert old_id != new_id
    assert pause(late).requests == pause(other).requests == (new_id,)
    assert late.last.status_text.startswith("It had expired, so here it is again: a decision on delete.\n\n")
    assert requests(other) == {}
    assert done.answer == "All done."
    assert resolved(all_of_it) == [(old_id, "expired"), (new_id, "approved")]
    assert [[answer["type"] for answer in got] for _, got in desk.received] == [["approve"]]


@both_versions
async def test_a_request_that_nobody_answers_in_time_is_told_as_expired_and_decides_nothing(
    dialect: Dialect,
) -> None:
    desk = Desk()
    env = {"REQUEST_TIMEOUT_SECONDS": "0.3"}
    async with supervisor(
        calls("delete"), tools=[desk.tool("delete", decision("delete"))], env=env
    ) as client:
        paused = await say(client, "Delete it.", dialect=dialect)
        (request_id,) = requests(paused).values()
        more = ReceivedStream(
            [
                frame
                async for frame in client.open(
                    dialect.subscribe, {"id": paused.task_id}, Last_Event_ID=str(paused.last.id)
                )
            ]
        )
        task = (await client.call(dialect.get, {"id": paused.task_id}))["result"]
    data = paused.named("UserInputMetaData")[0].artifact["parts"][0]["data"]
    assert datetime.fromisoformat(data["expires_at"]) < datetime.now(UTC)
    assert [
        (event.request_id, event.resolution) for event in more.events if isinstance(event, InputResolved)
    ] == [(request_id, "expired")]
    assert pause(more).requests == ()
    assert more.last.status_text.startswith(
        "Nobody answered in time: a decision on delete. Nothing was decided."
    )
    assert dialect.state(task) == "input-required"
    assert desk.received == []


async def test_a_question_that_nobody_answers_in_time_keeps_its_mark() -> None:
    desk = Desk()
    question = details("") | {"response": "Which region?"}
    env = {"REQUEST_TIMEOUT_SECONDS": "0.3"}
    async with supervisor(calls("form"), tools=[desk.tool("form", question)], env=env) as client:
        paused = await say(client, "Create it.")
        frames = client.open(V10.subscribe, {"id": paused.task_id}, Last_Event_ID=str(paused.last.id))
        expired = ReceivedStream([frame async for frame in frames])
        again = await say(client, "Are you there?", contextId=paused.context_id)
    start = "Nobody answered in time: Which region? Nothing was decided."
    assert expired.last.status_text.startswith(start)
    assert again.last.status_text.startswith("It had expired, so here it is again: Which region? Answer it")


async def test_any_message_has_what_expired_asked_again_and_loses_nothing() -> None:
    desk = Desk()
    async with supervisor(
        asks_once("delete"), tools=[desk.tool("delete", decision("delete", expires_at=PAST))]
    ) as client:
        paused = await say(client, "Create and delete it.")
        more = await say(client, "Are you there?", contextId=paused.context_id)
        dropped = await say(client, "drop", contextId=paused.context_id)
    ((old_id,), (new_id,)) = requests(paused).values(), requests(more).values()
    assert old_id != new_id
    assert pause(more).requests == (new_id,)
    assert dropped.answer == "You said Are you there?"
    assert desk.received == []


# --- whose it is --------------------------------------------------------------------------------------------


async def test_a_request_is_answered_by_its_owner_alone() -> None:
    desk = Desk()
    async with two_users(
        ScriptedChatModel(script=calls("delete")), desk.tool("delete", decision("delete"))
    ) as (ann, bob):
        paused = await say(ann, "Delete it.", contextId="talk")
        (request_id,) = requests(paused).values()
        approval = answers(**{request_id: {"type": "approve"}})
        by_task = await send(bob, approval, taskId=paused.task_id)
        by_context, by_id = await send(bob, approval, contextId="talk"), await send(bob, approval)
        assert desk.received == []
        done = await say(ann, approval, contextId="talk")
        late = await send(ann, approval, contextId="talk")
    assert by_task["error"]["code"] == -32001
    assert {refusal(by_context), refusal(by_id)} == {
        "There is nothing to answer: no request of this conversation is known."
    }
    assert done.answer == "All done."
    assert [answer["by"] for _, got in desk.received for answer in got] == ["ann"]
    assert refusal(late).startswith("A decision on delete was already answered by ann at ")
    assert refusal(late).endswith(" UTC.")


# --- elsewhere ----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def with_a_far_agent(folder: Path, running: AgentService) -> AsyncIterator[Client]:
    async with connect_remote_agent(running.agent, running.url) as far:
        crew: list[PlacedAgent] = [far]
        async with supervisor_on(
            in_folder(folder), ScriptedChatModel(script=delegates("jira")), agents=crew
        ) as client:
            yield client


@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
async def test_cancelling_a_run_that_waits_for_a_remote_agents_request_cancels_its_task_there(
    tmp_path: Path, restarts: bool
) -> None:
    desk = Desk()
    async with (
        run_agent_service(agent("jira", calls("delete"), desk.tool("delete", decision("delete")))) as running,
        httpx.AsyncClient(verify=PLAIN) as http,
    ):
        there = Client(running.url, http)
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(with_a_far_agent(tmp_path, running))
            paused = await say(client, "Delete it.", contextId="talk")
            (request_id,) = requests(paused).values()
            if restarts:
                await stack.aclose()
                client = await stack.enter_async_context(with_a_far_agent(tmp_path, running))
            (before,) = (await there.call("ListTasks", {}))["result"]["tasks"]
            cancelled = (await client.call(V10.cancel, {"id": paused.task_id}))["result"]
            (after,) = (await there.call("ListTasks", {}))["result"]["tasks"]
            late = await send(client, answers(**{request_id: {"type": "approve"}}), contextId="talk")
    assert [V10.state(task) for task in (before, cancelled, after)] == [
        "input-required",
        "canceled",
        "canceled",
    ]
    assert running.methods().count(V10.cancel) == 1
    assert "was withdrawn" in refusal(late)
    assert desk.received == []
