"""US-1.3: the states of a plan's steps are those of the work on them, whoever does it and wherever it runs:
several delegations on one step, several steps of one agent, failures, retries, pauses, and the answer itself.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from tests.support.agent_services import Where, place_agent
from tests.support.asking_agent import form_tool, request_ids, send_answers
from tests.support.fakes.gate import Gate
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Book, Call, Casting, Fail, Say, Script, Turn
from tests.support.harness import Client, Frame, ReceivedStream, agent, supervisor
from tests.support.scenarios import NOTIFICATIONS, data_of, delegate, plans, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAN = "execution_plan_update"
AGENTS = ("argocd", "jira")


def write(*todos: Any, title: str | None = "Release") -> Call:
    return Call("write_todos", {"todos": list(todos), "title": title})


@dataclass
class Questions(Casting):
    """The supervisor's model: each question has a script of its own."""

    scripts: dict[str, Script] = field(default_factory=dict)

    def choose(self, request: Request) -> Script:
        return self.scripts[request.last_user]


@dataclass
class System:
    """A supervisor whose agents do what they are told: look, fail, ask a person, and that after others."""

    client: Client
    model: ScriptedChatModel
    questions: Questions
    gates: dict[str, Gate]

    async def run(self, question: str, *turns: Turn) -> ReceivedStream:
        """The stream of a question; what an agent waits for is what has arrived here."""
        self.questions.scripts[question] = Script(*turns)
        gate = self.gates[question] = Gate()
        frames: list[Frame] = []
        async for frame in self.client.stream(question, version="1.0"):
            frames.append(frame)
            if frame.name in NOTIFICATIONS:
                gate.seen(f"{frame.metadata['tool_call_id']} {frame.metadata.get('status', 'started')}; ")
            if frame.name == PLAN:
                gate.seen(f"{' '.join(statuses_of(frame))}; ")
        assert gate.failure is None
        return ReceivedStream(frames)


def agent_book(gates: dict[str, Gate]) -> tuple[Book, Any]:
    async def wait_until(question: str, seen: str) -> str:
        await gates[question].wait_seen(seen)
        return "It is so."

    def waiting(last: Turn) -> Script:
        def wait(request: Request) -> Turn:
            _, question, seen = request.last_user.split(": ")
            return Turn(Call("wait_until", {"question": question, "seen": seen}))

        return Script(wait, last)

    book = Book(
        {
            "^Look after": waiting(Turn(Say("Found."))),
            "^Look": Script(Turn(Say("Found."))),
            "^Fail after": waiting(Turn(Fail(401))),
            "^Fail": Script(Turn(Fail(401))),
            "^Ask": Script(Turn(Call("ask", {})), Turn(Say("Found."))),
        }
    )
    return book, tool("wait_until", wait_until)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["in-process", "remote"])
async def system(request: pytest.FixtureRequest) -> AsyncIterator[System]:
    where: Where = request.param
    gates: dict[str, Gate] = {}
    questions = Questions()
    model = ScriptedChatModel(script=questions)
    ask = form_tool("ask", [{"field_name": "answer"}])
    async with contextlib.AsyncExitStack() as stack:
        placed: list[Any] = []
        for name in AGENTS:
            book, wait_until = agent_book(gates)
            local = agent(name, ScriptedChatModel(script=book), wait_until, ask)
            placed.append(await stack.enter_async_context(place_agent(local, where)))
        client = await stack.enter_async_context(
            supervisor(model, agents=placed, tools=[tool("own", "nothing")])
        )
        yield System(client, model, questions, gates)


def statuses_of(frame: Frame) -> list[str]:
    return [step["status"] for step in data_of(frame)[0]["steps"]]


def statuses(stream: ReceivedStream) -> list[list[str]]:
    return [statuses_of(frame) for frame in stream.named(PLAN)]


def path(stream: ReceivedStream, number: int) -> list[str]:
    """The states of one step, one after the other."""
    states: list[str] = []
    for plan in statuses(stream):
        if states[-1:] != [plan[number]]:
            states.append(plan[number])
    return states


def steps_of_calls(stream: ReceivedStream, name: str) -> dict[str, str | None]:
    """The step that each notification names, by call."""
    return {
        frame.metadata["tool_call_id"]: frame.metadata.get("plan_step_id")
        for frame in stream.named(name)
        if "/" not in frame.metadata["tool_call_id"]
    }


ANSWER = Turn(Say("Done."))


# --- several delegations on one step ------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("step_id", ["step-1", None], ids=["named", "matched"])
async def test_a_step_with_two_delegations_is_in_progress_until_both_have_ended(
    system: System, step_id: str | None
) -> None:
    question = f"Both of {step_id}"
    stream = await system.run(
        question,
        Turn(write("[Argocd] Look")),
        Turn(
            delegate("argocd", "Look.", id="first", step_id=step_id),
            delegate("argocd", f"Look after: {question}: first completed", id="second", step_id=step_id),
        ),
        ANSWER,
    )
    assert path(stream, 0) == ["pending", "in_progress", "completed"]
    assert steps_of_calls(stream, "tool_notification_start") == {"first": "step-1", "second": "step-1"}
    ends = [frame for frame in stream.frames if frame.name in ("tool_notification_end", PLAN)]
    last_end = [frame for frame in ends if frame.name != PLAN][-1]
    before = [statuses_of(frame) for frame in ends[: ends.index(last_end)] if frame.name == PLAN]
    assert before[-1] == ["in_progress"], "the first one had ended by then"


@pytest.mark.sample(2)
@pytest.mark.parametrize("failing", ["first", "second"])
async def test_a_step_fails_when_one_of_its_delegations_fails(system: System, failing: str) -> None:
    question = f"The {failing} one fails"
    after = f"after: {question}: first {'failed' if failing == 'first' else 'completed'}"
    tasks = {"first": "Fail.", "second": f"Look {after}"}
    if failing == "second":
        tasks = {"first": "Look.", "second": f"Fail {after}"}
    stream = await system.run(
        question,
        Turn(write("[Argocd] Look", "Sum up")),
        Turn(*(delegate("argocd", text, id=name, step_id="step-1") for name, text in tasks.items())),
        Turn(write({"id": "step-1", "agent": "argocd", "title": "Look", "status": "completed"}, "Sum up")),
        ANSWER,
    )
    assert path(stream, 0) == ["pending", "in_progress", "failed"]
    assert statuses(stream)[-1] == ["failed", "completed"]
    assert stream.named(PLAN)[-1].text.splitlines()[1].startswith("❌")


@pytest.mark.sample(1)
async def test_a_step_that_two_agents_work_on_needs_both(system: System) -> None:
    stream = await system.run(
        "Two agents",
        Turn(write("[Argocd] Compare")),
        Turn(
            delegate("argocd", "Look.", id="one", step_id="step-1"),
            delegate("jira", "Fail.", id="two", step_id="step-1"),
        ),
        Turn(delegate("argocd", "Look.", id="three", step_id="step-1")),
        ANSWER,
    )
    assert statuses(stream)[-1] == ["failed"], "nobody made up for what the other one failed at"


# --- several steps of one agent -----------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("at_once", [False, True], ids=["plan first", "plan in the same message"])
async def test_steps_of_one_agent_are_told_apart_without_an_id(system: System, at_once: bool) -> None:
    question = f"Three of one agent, {at_once}"
    plan = write("[Argocd] East", "[Jira] Find", "[Argocd] West", "[Argocd] North")
    both = "in_progress pending in_progress pending"
    tasks = [
        delegate("argocd", f"Look after: {question}: {both}", id="east"),
        delegate("argocd", f"Fail after: {question}: east completed", id="west"),
    ]
    turns = [Turn(plan, *tasks)] if at_once else [Turn(plan), Turn(*tasks)]
    stream = await system.run(question, *turns, ANSWER)
    for name in NOTIFICATIONS:
        assert steps_of_calls(stream, name) == {"east": "step-1", "west": "step-3"}
    assert [path(stream, number) for number in range(4)] == [
        ["pending", "in_progress", "completed"],
        ["pending", "skipped"],
        ["pending", "in_progress", "failed"],
        ["pending", "skipped"],
    ]
    inner = {
        frame.metadata["tool_call_id"].partition("/")[0]: frame.metadata["plan_step_id"]
        for frame in stream.named(*NOTIFICATIONS)
        if "/" in frame.metadata["tool_call_id"]
    }
    assert inner == {"east": "step-1", "west": "step-3"}


@pytest.mark.sample(1)
async def test_a_step_that_is_named_is_not_given_to_another_delegation(system: System) -> None:
    stream = await system.run(
        "One is named",
        Turn(write("[Argocd] East", "[Argocd] West")),
        Turn(
            delegate("argocd", "Look.", id="any"), delegate("argocd", "Look.", id="named", step_id="step-1")
        ),
        ANSWER,
    )
    assert steps_of_calls(stream, "tool_notification_start") == {"any": "step-2", "named": "step-1"}


@pytest.mark.sample(1)
async def test_more_delegations_than_steps_share_the_last_one(system: System) -> None:
    stream = await system.run(
        "Too many",
        Turn(write("[Argocd] East", "[Argocd] West")),
        Turn(
            delegate("argocd", "Look.", id="one"),
            delegate("argocd", "Look.", id="two"),
            delegate("argocd", "Fail.", id="three"),
        ),
        Turn(*(delegate("argocd", "Look.", id=f"later {number}") for number in range(2))),
        ANSWER,
    )
    assert statuses(stream)[-1] == ["completed", "completed"]
    assert steps_of_calls(stream, "tool_notification_start") == {
        "one": "step-1",
        "two": "step-2",
        "three": "step-2",
        "later 0": "step-2",
        "later 1": "step-2",
    }


@pytest.mark.sample(1)
async def test_a_failed_step_is_tried_again_without_its_id(system: System) -> None:
    stream = await system.run(
        "Again",
        Turn(write("[Argocd] East", "[Argocd] West")),
        Turn(delegate("argocd", "Fail.", id="one")),
        Turn(delegate("argocd", "Look.", id="two")),
        Turn(delegate("argocd", "Look.", id="three")),
        Turn(delegate("argocd", "Look.", id="four")),
        ANSWER,
    )
    starts = steps_of_calls(stream, "tool_notification_start")
    assert starts == {"one": "step-1", "two": "step-2", "three": "step-1", "four": None}
    assert path(stream, 0) == ["pending", "in_progress", "failed", "in_progress", "completed"]
    assert path(stream, 1) == ["pending", "in_progress", "completed"]


@pytest.mark.sample(1)
async def test_an_id_that_a_provider_uses_again_is_another_delegation(system: System) -> None:
    stream = await system.run(
        "The same id",
        Turn(write("[Argocd] East", "[Argocd] West")),
        Turn(delegate("argocd", "Look.", id="call")),
        Turn(delegate("argocd", "Fail.", id="call")),
        ANSWER,
    )
    assert steps_of_calls(stream, "tool_notification_end") == {"call": "step-1", "call#2": "step-2"}
    assert statuses(stream)[-1] == ["completed", "failed"]


# --- what the model writes ----------------------------------------------------------------------------------


@pytest.mark.sample(5)
@pytest.mark.parametrize("word", ["pending", "in_progress", "skipped", "failed", "completed"])
async def test_what_a_model_writes_does_not_change_what_was_done(system: System, word: str) -> None:
    todos = [
        {"id": "step-1", "agent": "argocd", "title": "Look", "status": word},
        {"id": "step-2", "agent": "jira", "title": "Find", "status": word},
        {"id": "step-3", "title": "Think", "status": word},
    ]
    stream = await system.run(
        f"It is {word}",
        Turn(write("[Argocd] Look", "[Jira] Find", "Think")),
        Turn(delegate("argocd", "Look.", id="one"), delegate("jira", "Fail.", id="two")),
        Turn(write(*todos), Call("own", {})),
        ANSWER,
    )
    assert statuses(stream)[-1][:2] == ["completed", "failed"]
    assert path(stream, 0) == ["pending", "in_progress", "completed"]
    assert path(stream, 1) == ["pending", "in_progress", "failed"]
    expected = {"failed": "failed", "skipped": "skipped"}
    assert statuses(stream)[-1][2] == expected.get(word, "completed"), "the model's own step is as it says"
    [result] = [
        message.text for message in system.model.requests[-1].messages if message.tool == "write_todos"
    ][-1:]
    assert [f'"status": "{status}"' in result for status in ("completed", "failed", word)] == [True] * 3


async def test_a_call_with_wrong_arguments_ends_its_step_too(system: System) -> None:
    stream = await system.run(
        "Wrong arguments",
        Turn(write("[Argocd] Look")),
        Turn(Call("task", {"subagent_type": "argocd", "step_id": "step-1"}, id="one")),
        ANSWER,
    )
    assert path(stream, 0) == ["pending", "in_progress", "failed"]


async def test_the_supervisors_own_tools_are_not_part_of_a_step_that_an_agent_works_on(
    system: System,
) -> None:
    stream = await system.run(
        "Own tools",
        Turn(write("[Argocd] Look", {"title": "Think", "status": "in_progress"}, "Sum up")),
        Turn(delegate("argocd", "Look.", id="one"), Call("own", {}, id="two")),
        Turn(write("[Argocd] Look", {"title": "Think", "status": "completed"}, "Sum up")),
        Turn(delegate("argocd", "Look.", id="three", step_id="step-1"), Call("own", {}, id="four")),
        ANSWER,
    )
    starts = steps_of_calls(stream, "tool_notification_start")
    assert starts == {"one": "step-1", "two": "step-2", "three": "step-1", "four": None}


# --- the answer, and pauses ---------------------------------------------------------------------------------


async def test_the_answer_completes_the_steps_that_stand_for_it_and_no_others(system: System) -> None:
    stream = await system.run(
        "Sum up",
        Turn(write("Think", "[Argocd] Look", "Compare", "[Jira] File a ticket", "Sum up")),
        Turn(delegate("argocd", "Look.", id="one")),
        ANSWER,
    )
    assert statuses(stream)[-1] == [
        "skipped",  # passed over
        "completed",
        "completed",
        "skipped",  # never delegated
        "completed",
    ]
    last_plan, final = stream.frames.index(stream.named(PLAN)[-1]), stream.named("final_result")[0]
    assert last_plan < stream.frames.index(final)


async def test_a_step_of_an_agent_that_was_never_called_is_not_completed_by_the_answer(
    system: System,
) -> None:
    stream = await system.run(
        "Never called", Turn(write({"agent": "argocd", "title": "Look", "status": "in_progress"})), ANSWER
    )
    assert statuses(stream) == [["in_progress"], ["skipped"]]


async def test_a_step_stays_in_progress_while_one_of_its_delegations_waits_for_a_person(
    system: System,
) -> None:
    paused = await system.run(
        "A person",
        Turn(write("[Argocd] Look", "[Argocd] Find")),
        Turn(
            delegate("argocd", "Look.", id="one", step_id="step-1"),
            delegate("argocd", "Ask.", id="two", step_id="step-1"),
            delegate("argocd", "Fail.", id="three"),
        ),
        ANSWER,
    )
    assert paused.last.state == "input-required"
    assert statuses(paused)[-1] == ["in_progress", "failed"]
    [request_id] = request_ids(paused)
    resumed = await send_answers(system.client, paused, {request_id: {"answer": "yes"}})
    assert statuses(resumed) == [["completed", "failed"]]
    assert steps_of_calls(resumed, "tool_notification_end") == {"two": "step-1"}
    assert resumed.answer == "Done."


# --- without a title ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", [None, "", "  "])
async def test_a_plan_without_a_title_has_no_empty_place_for_it(system: System, title: str | None) -> None:
    stream = await system.run(f"No title {title!r}", Turn(write("Think", title=title)), ANSWER)
    assert {frame.text.splitlines()[0] for frame in stream.named(PLAN)} == {"⟦🎯 Execution Plan⟧"}
    assert {plan["title"] for plan in plans(stream)} == {""}
