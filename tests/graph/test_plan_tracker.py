"""The plan in the events of real graphs: its states are always those of the calls in the same events, over
pauses, crashes and whatever the model writes; and the graph's state holds the same plan."""

import asyncio
import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Notice,
    PlanStep,
    PlanUpdated,
    StepStatus,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolStarted,
)
from ai_platform_engineering.core.plan import DelegationEnded, Plan, PlanState
from ai_platform_engineering.core.step_delegations import StepDelegation
from ai_platform_engineering.core.transcript import ToolCallView, fold
from ai_platform_engineering.graph.plan_tracker import PlanTracker
from ai_platform_engineering.graph.tool_calls import TrackedCall
from ai_platform_engineering.runtime.runs.closing_events import closing_events
from tests.support import strategies as given_by
from tests.support.asking_agent import form_tool
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Fail, Say, Script, Turn
from tests.support.graph_runner import GraphConversation, scripted_model
from tests.support.harness import agent
from tests.support.plan_account import PlanAccount

AGENTS = ("argocd", "jira")
Todo = tuple[str, str, StepStatus]
"""Agent, title, and what the model says of it."""


@dataclass(frozen=True)
class Delegated:
    """A delegation of the model: to whom, on which step if it says so, and what comes of it."""

    agent: str
    step_id: str | None
    outcome: str  # Look, Fail, Ask


@dataclass(frozen=True)
class Message:
    """A message of the supervisor's model: the plan that it writes, if any, and its delegations."""

    todos: tuple[Todo, ...] | None
    calls: tuple[Delegated, ...]

    def to_turn(self, number: int) -> Turn:
        calls: list[Call] = []
        for position, call in enumerate(self.calls):
            named = {} if call.step_id is None else {"step_id": call.step_id}
            arguments = {"subagent_type": call.agent, "description": call.outcome, **named}
            calls.append(Call("task", arguments, id=f"{number}-{position}"))
        if self.todos is not None:
            todos = [{"agent": agent, "title": title, "status": word} for agent, title, word in self.todos]
            # Between the delegations, where there are some: its place in the message means nothing.
            calls.insert(len(calls) // 2, Call("write_todos", {"todos": todos}))
        return Turn(Say(f"Message {number}."), *calls)


def conversation(messages: Sequence[Message]) -> GraphConversation:
    turns = [message.to_turn(number) for number, message in enumerate(messages)]
    book = Book(
        {
            "Look": Script(Turn(Say("Found."))),
            "Fail": Script(Turn(Fail(401))),
            "Ask": Script(Turn(Call("ask", {})), Turn(Say("Found."))),
        }
    )
    ask = form_tool("ask", [{"field_name": "answer"}])
    agents = [agent(name, ScriptedChatModel(script=book), ask) for name in AGENTS]
    return GraphConversation(scripted_model(*turns, Turn(Say("Done."))), agents)


@dataclass
class EventAccount:
    """Reads events, and compares every plan in them with an account of the calls in them."""

    messages: Sequence[Message]
    account: PlanAccount = field(default_factory=PlanAccount)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)  # of the steps in the plan
    id_count: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    earlier: dict[str, tuple[PlanAccount, dict[tuple[str, str], str], int]] = field(default_factory=dict)
    plan: dict[str, StepStatus] = field(default_factory=dict)
    is_replayed: bool = False  # after a crash the plan follows when everything else is said

    def read(self, events: Sequence[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, PlanUpdated):
                self.plan = {step.step_id: step.status for step in event.steps}
                assert self.plan == self.account.shown
                continue
            if not self.is_replayed:
                # What changed the plan was followed by it at once.
                assert self.plan == self.account.shown, event
            self._apply(event)

    def _apply(self, event: AnyEvent) -> None:
        match event:
            case TextDelta(parent_call=None):
                self.texts[event.message_id] = self.texts.get(event.message_id, "") + event.text
            case TextEnded(parent_call=None, role="narration"):
                number = int(self.texts[event.message_id].removeprefix("Message ").rstrip("."))
                self.earlier[event.message_id] = copy.deepcopy((self.account, self.ids, self.id_count))
                self._begin_message(number)
            case TextDiscarded(parent_call=None) if event.message_id in self.earlier:
                self.account, self.ids, self.id_count = self.earlier.pop(event.message_id)
            case ToolStarted(parent_call=None, delegates=True):
                call = self.account.move(event.call_id, "running")
                assert (event.step_id, event.tool) == (call.step_id, call.agent)
            case ToolFinished(parent_call=None, delegates=True):
                state = "completed" if event.outcome == "ok" else "failed"
                assert event.step_id == self.account.move(event.call_id, state).step_id
            case Notice(code="recovery"):
                self.is_replayed = False
            case _:
                pass

    def _begin_message(self, number: int) -> None:
        message = self.messages[number]
        if message.todos is not None:
            self._write(message.todos)
        self.account.make(
            number,
            [
                (f"{number}-{position}", call.agent, call.step_id)
                for position, call in enumerate(message.calls)
            ],
        )

    def _write(self, todos: Sequence[Todo]) -> None:
        ids: dict[tuple[str, str], str] = {}
        for agent_name, title, _ in todos:
            key = (agent_name, title)
            if key not in self.ids:
                self.id_count += 1
                self.ids[key] = f"step-{self.id_count}"
            ids[key] = self.ids[key]
        self.ids = ids
        self.account.write(
            [
                PlanStep(step_id=ids[agent_name, title], title=title, agent=agent_name, status=word)
                for agent_name, title, word in todos
            ]
        )


def check_end(account: EventAccount, events: Sequence[AnyEvent]) -> None:
    """The answer closes the plan, as the account says."""
    assert isinstance(events[-1], Answered)
    assert account.plan == account.account.shown
    closed = fold(closing_events(fold(events[:-1]), answered=True), fold(events[:-1])).plan
    assert [step.status for step in closed.steps] == account.account.close() if closed else not account.plan


# Each example runs a graph or two: a failing one is shown as it was found.
GRAPHS = settings(given_by.examples(60), phases=[Phase.explicit, Phase.reuse, Phase.generate])
WORDS = ("pending", "pending", "in_progress", "completed", "failed", "skipped")
STEPS = (("argocd", "A"), ("argocd", "B"), ("jira", "C"), ("argocd", "D"), ("supervisor", "E"))


def messages(*outcomes: str) -> st.SearchStrategy[list[Message]]:
    todos = st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from(WORDS)),
        min_size=1,
        max_size=5,
        unique_by=lambda item: item[0],
    ).map(lambda items: tuple((*step, word) for step, word in items))
    calls = st.lists(
        st.builds(
            Delegated,
            st.sampled_from(("argocd", "argocd", "argocd", "jira", "nobody")),
            st.sampled_from((None, None, None, "step-1", "step-2", "step-9")),
            st.sampled_from(outcomes),
        ),
        max_size=3,
    ).map(tuple)
    first = st.builds(Message, todos, calls)
    more = st.builds(Message, st.none() | todos, calls).filter(lambda message: message.todos or message.calls)
    return st.builds(lambda head, rest: [head, *rest], first, st.lists(more, max_size=3))


@GRAPHS
@given(script=messages("Look", "Look", "Fail", "Ask"), data=st.data())
def test_the_plan_is_true_at_every_moment_and_over_pauses(script: list[Message], data: st.DataObject) -> None:
    async def run() -> None:
        talk = conversation(script)
        account = EventAccount(script)
        account.read(await talk.ask())
        while talk.transcript.requests:
            pending = [request.request_id for request in talk.transcript.requests]
            answered = data.draw(
                st.lists(st.sampled_from(pending), min_size=1, unique=True), label="answered"
            )
            account.read(await talk.answer({request_id: {"answer": "yes"} for request_id in answered}))
        check_end(account, talk.events)
        stored = await talk.stored_plan()
        assert {step.step_id: step.status for step in stored.steps} == account.plan

    asyncio.run(run())


@GRAPHS
@given(script=messages("Look", "Fail"), data=st.data())
def test_the_plan_is_true_after_a_crash_at_any_moment(script: list[Message], data: st.DataObject) -> None:
    async def run() -> None:
        whole = conversation(script)
        count = data.draw(st.integers(1, len(await whole.ask()) - 1), label="events before the crash")
        stored = data.draw(st.integers(max(0, count - 4), count), label="events in the log")
        talk = conversation(script)
        await talk.break_off(count, stored)
        account = EventAccount(script)
        account.read(talk.events)
        account.is_replayed = True
        account.read(await talk.take_over())
        check_end(account, talk.events)
        assert talk.transcript.plan == whole.transcript.plan

    asyncio.run(run())


# --- what older versions have stored, and ids that are used again -------------------------------------------


def tracked(raw_id: str, step_id: str | None) -> TrackedCall:
    return TrackedCall(raw_id, raw_id, "argocd", delegates=True, arguments={}, step_id=step_id)


def steps(*states: StepStatus) -> Plan:
    return Plan(
        steps=tuple(
            PlanStep(step_id=f"step-{number}", title="Look", agent="argocd", status=status)
            for number, status in enumerate(states, 1)
        )
    )


def shown(updates: Iterable[PlanUpdated]) -> list[list[str]]:
    return [[step.status for step in update.steps] for update in updates]


def ended(call_id: str, status: Literal["completed", "failed"]) -> dict[str, Any]:
    return DelegationEnded(call_id=call_id, agent="argocd", status=status).model_dump()


def test_a_run_that_an_older_version_has_paused_goes_on_with_its_step_in_progress() -> None:
    stored = PlanState.model_validate({"plan": steps("pending", "pending").model_dump(), "given": 2})
    tracker = PlanTracker(stored, steps("pending", "in_progress"), is_takeover=False)
    assert tracker.claim_step("call") is None
    tracker.begin(tracked("call", "step-2"))  # as the log says
    assert shown(tracker.update()) == []
    assert shown(tracker.change(ended("call", "failed"))) == [["pending", "failed"]]


def test_a_run_of_an_older_version_is_taken_over_with_its_step_in_progress() -> None:
    stored = PlanState.model_validate({"plan": steps("completed", "pending").model_dump(), "given": 2})
    tracker = PlanTracker(stored, steps("completed", "in_progress"), is_takeover=True)
    running = ToolCallView("call", "argocd", delegates=True, step_id="step-2")
    over = ToolCallView("earlier", "argocd", delegates=True, step_id="step-1", outcome="ok")
    assert shown(tracker.release([over, running])) == []
    tracker.begin(tracked("call", "step-2"))
    assert shown(tracker.change(ended("call", "completed"))) == [["completed", "completed"]]


def test_after_a_crash_ids_that_were_used_again_belong_to_their_steps_in_order() -> None:
    made = [
        StepDelegation(call_id="call", agent="argocd", step_id="step-1", status="completed", message=1),
        StepDelegation(call_id="call", agent="argocd", step_id="step-2", message=2),
    ]
    stored = PlanState(plan=steps("completed", "pending"), given=2, delegations=tuple(made))
    tracker = PlanTracker(stored, steps("in_progress", "pending"), is_takeover=True)
    assert [tracker.claim_step("call") for _ in range(3)] == ["step-1", "step-2", None]
    calls = [
        ToolCallView("call", "argocd", delegates=True, step_id="step-1", outcome="ok"),
        ToolCallView("call#2", "argocd", delegates=True, step_id="step-2"),
    ]
    assert shown(tracker.release(calls)) == [["completed", "in_progress"]]


def test_the_plan_is_not_said_before_what_it_follows_from() -> None:
    tracker = PlanTracker(PlanState(plan=steps("completed")), steps("pending"), is_takeover=True)
    assert shown(tracker.update()) == []
    assert shown(tracker.release([])) == [["completed"]]
    assert shown(tracker.update()) == []
