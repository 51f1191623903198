"""The translator behind real graphs: whatever models and tools do, a run's events are whole, in order and said once."""

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    Answered,
    AnyEvent,
    DataPart,
    Failed,
    InputRequested,
    Paused,
    PlanUpdated,
    RunStarted,
    TextDelta,
    TextDiscarded,
    TextEnded,
    TextPart,
    ToolFinished,
    ToolStarted,
    ends_turn,
    is_terminal,
)
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import LocalAgent, PlatformEngineerDeepAgent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent import AIPlatformEngineerA2ABinding
from ai_platform_engineering.runtime.log import RunRow
from ai_platform_engineering.runtime.runs import Turn as RunTurn
from ai_platform_engineering.runtime.runs import trace_of
from tests import strategies as given_by
from tests.fakes.corpora import CORPORA, Corpus, CorpusChatModel
from tests.fakes.model import ScriptedChatModel
from tests.fakes.script import Attempts, Call, Die, Fail, Say, Script, Think, Turn
from tests.harness import FAST, agent

# --- a conversation with the graph, below the server --------------------------------------------------------------------


@dataclass
class Talk:
    """The supervisor's graph with a model, and the events of each question put to it."""

    model: BaseChatModel
    agents: Sequence[LocalAgent] = ()
    tools: Sequence[BaseTool] = ()
    env: dict[str, str] = field(default_factory=dict)
    events: list[AnyEvent] = field(default_factory=list)  # of the current run

    def __post_init__(self) -> None:
        settings = Settings.of({**FAST, **self.env})
        supervisor = PlatformEngineerDeepAgent(
            settings, agents=self.agents, tools=self.tools, model=self.model, checkpointer=InMemorySaver()
        )
        self._binding = AIPlatformEngineerA2ABinding(supervisor)
        self._context, self._run = str(uuid.uuid4()), ""

    async def ask(self, text: str = "Which?") -> list[AnyEvent]:
        """A new question on the same thread; its events."""
        self._run = str(uuid.uuid4())
        parts = (TextPart(text=text),)
        self.events = [RunStarted(message_id=str(uuid.uuid4()), parts=parts)]
        return await self._turn(parts, resumes=False)

    async def answer(self, values: dict[str, Any]) -> list[AnyEvent]:
        """Answers to what was asked, by request id; what follows."""
        return await self._turn((DataPart(data={"resume": values}),), resumes=True)

    @property
    def seen(self) -> Transcript:
        return fold(self.events)

    async def _turn(self, parts: Any, *, resumes: bool) -> list[AnyEvent]:
        now = datetime.now(UTC)
        row = RunRow(self._run, self._context, "me", "me", "m", "running", len(self.events), 1, now, now)
        new = [event async for event in self._binding.stream(RunTurn(row, parts, "me", resumes=resumes), self.seen)]
        assert [ends_turn(event) for event in new] == [False] * (len(new) - 1) + [True], "one end, and it is the last"
        self.events += new
        return new


def scripted(*turns: Any, streaming: bool = True) -> ScriptedChatModel:
    return ScriptedChatModel(script=Script(*turns), streaming=streaming)


def check_whole(events: Sequence[AnyEvent]) -> None:
    """What holds for the events of every run."""
    _check_calls(events)
    _check_texts(events)
    assert sum(map(is_terminal, events)) <= 1


def _check_calls(events: Sequence[AnyEvent]) -> None:
    running: dict[str, ToolStarted] = {}
    used: set[str] = set()
    for event in events:
        if event.parent_call is not None:
            around = running[event.parent_call]
            assert around.delegates
            assert event.agent == around.tool
        elif not isinstance(event, RunStarted):
            assert event.agent == SUPERVISOR
        match event:
            case ToolStarted():
                assert event.call_id not in used, "a call starts once"
                used.add(event.call_id)
                running[event.call_id] = event
            case ToolFinished():
                started = running.pop(event.call_id)  # it runs: it has started, and it ends once
                assert (event.tool, event.agent, event.parent_call) == (started.tool, started.agent, started.parent_call)
                assert not any(inner.parent_call == event.call_id for inner in running.values()), "what it started has ended"
            case Answered():
                assert not running
            case _:
                pass


def _check_texts(events: Sequence[AnyEvent]) -> None:
    length: dict[str, int] = {}
    over: set[str] = set()
    for event in events:
        match event:
            case TextDelta():
                assert event.message_id not in over
                assert event.offset == length.get(event.message_id, 0)
                assert event.text
                length[event.message_id] = event.offset + len(event.text)
            case TextEnded() | TextDiscarded():
                assert event.message_id in length
                assert event.message_id not in over, "a text ends or is discarded once"
                over.add(event.message_id)
            case Answered() | Paused():
                assert over == set(length)
            case _:
                pass


def roles(events: Sequence[AnyEvent], agent: str = SUPERVISOR) -> list[tuple[str, str]]:
    """The texts of an agent that count, each with its role."""
    ended = {event.message_id: event.role for event in events if isinstance(event, TextEnded)}
    return [(ended.get(span.message_id, "open"), span.text) for span in fold(events).spans if span.agent == agent]


def calls(events: Sequence[AnyEvent]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(event.agent, event.tool, dict(event.arguments)) for event in events if isinstance(event, ToolStarted)]


def outcomes(events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    return [(event.tool, event.outcome) for event in events if isinstance(event, ToolFinished)]


def answer_of(events: Sequence[AnyEvent]) -> str:
    last = events[-1]
    assert isinstance(last, Answered), last
    return last.text


# --- tools ------------------------------------------------------------------------------------------------------------


def version_tool(name: str = "version") -> tuple[str, BaseTool]:
    """A tool whose result nobody can guess."""
    value = f"{random.randrange(10**9)}.{random.randrange(10**9)}"

    @tool(name)
    async def version(app: str = "web") -> str:
        """The version of an app."""
        return json.dumps({"app": app, "version": value})

    return value, version


@tool
async def broken() -> str:
    """It fails."""
    raise RuntimeError("secret text")


@tool
async def ask_person(question: str = "Sure?") -> str:
    """Ask a person."""
    given = interrupt({"type": "form", "response": question, "fields": [{"field_name": "answer"}]})
    return json.dumps(given)


# --- any script ---------------------------------------------------------------------------------------------------------

INNER_TOOLS = ("version", "broken", "ask_person")
OUTER_TOOLS = ("look", "broken", "ask_person", "nothing_like_it", "argocd", "argocd", "jira", "nobody", "write_todos")


@dataclass(frozen=True)
class Plays:
    """One model message as data: thoughts, words, calls, and whether its first attempt breaks off."""

    thinks: bool = False
    says: str = ""
    calls: tuple[str, ...] = ()
    counted: bool = False  # some providers count the calls of each message anew
    breaks: int = 0  # 0: no; 1: at once; 2: in the middle of other words; 3: after everything was said

    def turn(self) -> Turn | Attempts:
        called = [_call(name, f"call_{number}" if self.counted else None) for number, name in enumerate(self.calls)]
        items = [*([Think("Let me see.")] if self.thinks else []), *([Say(self.says)] if self.says else []), *called]
        broken_off = (None, Turn(Die()), Turn(Say("Broken ", "off "), Die()), Turn(*items, Fail(503)))[self.breaks]
        return Attempts(broken_off, Turn(*items)) if broken_off else Turn(*items)


def _call(name: str, call_id: str | None) -> Call:
    if name in ("argocd", "jira", "nobody"):
        return Call("task", {"description": f"Ask {name}.", "subagent_type": name}, id=call_id)
    if name == "write_todos":
        return Call("write_todos", {"todos": [{"agent": "argocd", "title": "Look"}, "[Jira] Find tickets"]}, id=call_id)
    return Call(name, {}, id=call_id)


def plays(tools: Sequence[str], most: int = 3) -> st.SearchStrategy[Plays]:
    return st.builds(
        Plays,
        thinks=st.booleans(),
        says=st.sampled_from(["", "", "One word.", "Some more words."]),
        calls=st.lists(st.sampled_from(tools), max_size=most).map(tuple) if tools else st.just(()),
        counted=st.booleans(),
        breaks=st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
    )


def parts_of(tools: Sequence[str], most: int = 3) -> st.SearchStrategy[list[Plays]]:
    """A script as data: some messages with calls, and a last one without."""
    return st.tuples(st.lists(plays(tools, most), max_size=2), plays(())).map(lambda found: [*found[0], found[1]])


def script_of(messages: Sequence[Plays], *, stubborn: bool = False) -> Script:
    """The script; a stubborn model calls tools also when it is offered none."""

    def step(message: Plays) -> Any:
        return lambda request: message.turn() if request.tools or stubborn else messages[-1].turn()

    return Script(*(step(message) for message in messages))


@settings(given_by.examples(40), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    outer=parts_of(OUTER_TOOLS),
    argocd=parts_of(INNER_TOOLS, 2),
    jira=parts_of(INNER_TOOLS, 2),
    streaming=st.booleans(),
    stubborn=st.booleans(),
)
async def test_every_run_ends_once_and_says_and_does_everything_once(
    outer: list[Plays], argocd: list[Plays], jira: list[Plays], streaming: bool, stubborn: bool
) -> None:
    inner = [ask_person, broken, version_tool()[1]]
    talk = Talk(
        ScriptedChatModel(script=script_of(outer, stubborn=stubborn), streaming=streaming),
        [agent("argocd", script_of(argocd), *inner), agent("jira", script_of(jira), *inner)],
        [version_tool("look")[1], broken, ask_person],
        {"MODEL_CALL_LIMIT": "5"},
    )
    await talk.ask()
    for _ in range(100):
        if is_terminal(talk.events[-1]):
            break
        pending = talk.seen.requests
        assert pending, "a pause waits for something"
        await talk.answer({pending[0].request_id: {"answer": "yes"}})
    assert is_terminal(talk.events[-1])
    check_whole(talk.events)
