"""The translator behind real graphs: whatever models and tools do, a run's events are whole, in order and
said once."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import tool
from langchain_core.messages import RemoveMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import interrupt

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    Answered,
    AnyEvent,
    Failed,
    InputRequested,
    InputResolved,
    Paused,
    PlanUpdated,
    RunStarted,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolStarted,
    is_terminal,
)
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.graph.translator import STREAM_MODES, Translator
from ai_platform_engineering.runtime.runs.turn import derive_trace_id
from tests.support import strategies as given_by
from tests.support.fakes.corpora import CORPORA, Corpus, CorpusChatModel
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Attempts, Call, Die, Fail, Say, Script, Think, Turn
from tests.support.graph_runner import GraphConversation, scripted_model
from tests.support.harness import agent


def check_whole(events: Sequence[AnyEvent]) -> None:
    """What holds for the events of every run."""
    _check_calls(events)
    _check_texts(events)
    assert sum(map(is_terminal, events)) <= 1


def _check_calls(events: Sequence[AnyEvent]) -> None:
    running: dict[str, ToolStarted] = {}
    used: set[str] = set()
    asking: dict[str, str] = {}
    for event in events:
        if isinstance(event, InputResolved):
            assert event.agent == asking.pop(event.request_id), "an answer is for the agent that asked, once"
        elif event.parent_call is not None:
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
                assert (event.tool, event.agent, event.parent_call) == (
                    started.tool,
                    started.agent,
                    started.parent_call,
                )
                assert not any(inner.parent_call == event.call_id for inner in running.values()), (
                    "what it started has ended"
                )
            case InputRequested():
                asking[event.request_id] = event.agent
            case Answered():
                assert not running
                assert not asking
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
    return [
        (ended.get(span.message_id, "open"), span.text) for span in fold(events).spans if span.agent == agent
    ]


def calls(events: Sequence[AnyEvent]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (event.agent, event.tool, dict(event.arguments)) for event in events if isinstance(event, ToolStarted)
    ]


def outcomes(events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    return [(event.tool, event.outcome) for event in events if isinstance(event, ToolFinished)]


def answer_of(events: Sequence[AnyEvent]) -> str:
    last = events[-1]
    assert isinstance(last, Answered), last
    return last.text


# --- tools --------------------------------------------------------------------------------------------------


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


# --- any script ---------------------------------------------------------------------------------------------

STRUCTURED = {"USE_STRUCTURED_RESPONSE": "true"}
INNER_TOOLS = ("version", "broken", "ask_person")
OUTER_TOOLS = (
    "look",
    "broken",
    "ask_person",
    "nothing_like_it",
    "argocd",
    "argocd",
    "jira",
    "nobody",
    "write_todos",
)
ANSWER_TOOLS = (*OUTER_TOOLS, "answer", "half an answer")


@dataclass(frozen=True)
class Plays:
    """One model message as data: thoughts, words, calls, and whether its first attempt breaks off."""

    thinks: bool = False
    says: str = ""
    calls: tuple[str, ...] = ()
    counted: bool = False  # some providers count the calls of each message anew
    same_id: bool = False  # and some give every message the same id
    breaks: int = 0  # 0: no; 1: at once; 2: in the middle of other words; 3: after everything was said

    def turn(self) -> Turn | Attempts:
        called = [
            _call(name, str(number) if self.counted else None) for number, name in enumerate(self.calls)
        ]
        items = [
            *([Think("Let me see.")] if self.thinks else []),
            *([Say(self.says)] if self.says else []),
            *called,
        ]
        whole = Turn(*items, id="same" if self.same_id else None)
        broken_off = (None, Turn(Die()), Turn(Say("Broken ", "off "), Die()), Turn(*items, Fail(503)))[
            self.breaks
        ]
        return Attempts(broken_off, whole) if broken_off else whole


def _call(name: str, call_id: str | None) -> Call:
    if name in ("argocd", "jira", "nobody"):
        return Call("task", {"description": f"Ask {name}.", "subagent_type": name}, id=call_id)
    if name == "write_todos":
        return Call(
            "write_todos",
            {"todos": [{"agent": "argocd", "title": "Look"}, "[Jira] Find tickets"]},
            id=call_id,
        )
    if name in ("answer", "half an answer"):
        return Call(
            "PlatformEngineerResponse",
            {"content": name, "citations": [] if name == "answer" else "none"},
            id=call_id,
        )
    return Call(name, {}, id=call_id)


def plays(tools: Sequence[str], most: int = 3) -> st.SearchStrategy[Plays]:
    return st.builds(
        Plays,
        thinks=st.booleans(),
        says=st.sampled_from(["", "", "One word.", "Some more words."]),
        calls=st.lists(st.sampled_from(tools), max_size=most).map(tuple) if tools else st.just(()),
        counted=st.booleans(),
        same_id=st.booleans(),
        breaks=st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
    )


def parts_of(tools: Sequence[str], most: int = 3) -> st.SearchStrategy[list[Plays]]:
    """A script as data: some messages with calls, and a last one without."""
    return st.tuples(st.lists(plays(tools, most), max_size=2), plays(())).map(
        lambda found: [*found[0], found[1]]
    )


def script_of(messages: Sequence[Plays], *, stubborn: bool = False) -> Script:
    """The script; a stubborn model calls tools also when it is offered none."""

    def step(message: Plays) -> Any:
        return lambda request: message.turn() if request.tools or stubborn else messages[-1].turn()

    return Script(*(step(message) for message in messages))


# Without shrinking, which takes minutes when every step runs a graph; the scripts are small as they are.
GRAPHS = settings(given_by.examples(30), phases=[Phase.explicit, Phase.reuse, Phase.generate])


async def played(
    outer: Sequence[Plays], argocd: Sequence[Plays], jira: Sequence[Plays], env: dict[str, str], **how: bool
) -> GraphConversation:
    """A run to its end, with every question of it answered."""
    inner = [ask_person, broken, version_tool()[1]]
    talk = GraphConversation(
        ScriptedChatModel(script=script_of(outer, stubborn=how["stubborn"]), streaming=how["streaming"]),
        [agent("argocd", script_of(argocd), *inner), agent("jira", script_of(jira), *inner)],
        [version_tool("look")[1], broken, ask_person],
        {"MODEL_CALL_LIMIT": "5", **env},
    )
    await talk.ask()
    for _ in range(100):
        if is_terminal(talk.events[-1]):
            break
        pending = talk.transcript.requests
        assert pending, "a pause waits for something"
        await talk.answer({pending[0].request_id: {"answer": "yes"}})
    last = talk.events[-1]
    assert is_terminal(last)
    check_whole(talk.events)
    if isinstance(last, Answered):
        started = [
            event.tool
            for event in talk.events
            if isinstance(event, ToolStarted) and event.parent_call is None
        ]
        assert sorted(started) == sorted(set_aside(await talk.called_names())), (
            "every call of the model is told once"
        )
    return talk


def set_aside(called: Sequence[str]) -> list[str]:
    """The calls that are told: not the plan, not the structured answer."""
    return [name for name in called if name not in ("write_todos", "PlatformEngineerResponse")]


@GRAPHS
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
    talk = await played(outer, argocd, jira, {}, streaming=streaming, stubborn=stubborn)
    last = talk.events[-1]
    if isinstance(last, Answered):
        said = [text for _, text in roles(talk.events)]
        assert said == await talk.stored_texts()
        assert last.text == (said[-1] if roles(talk.events)[-1][0] == "answer" else "\n\n".join(said))


@GRAPHS
@given(
    outer=parts_of(ANSWER_TOOLS),
    argocd=parts_of(INNER_TOOLS, 1),
    streaming=st.booleans(),
    stubborn=st.booleans(),
)
async def test_every_run_with_structured_answers_ends_once_and_says_everything_once(
    outer: list[Plays], argocd: list[Plays], streaming: bool, stubborn: bool
) -> None:
    talk = await played(outer, argocd, argocd, STRUCTURED, streaming=streaming, stubborn=stubborn)
    last = talk.events[-1]
    if isinstance(last, Answered):
        answers = [text for role, text in roles(talk.events) if role == "answer"]
        assert last.text == (answers[-1] if answers else "\n\n".join(text for _, text in roles(talk.events)))


# --- corpora of providers -----------------------------------------------------------------------------------


@tool
async def github_list_repos(org: str, limit: int = 1) -> str:
    """List repositories."""
    return f"{limit} of {org}"


@tool
async def argocd_get_app(name: str) -> str:
    """An app."""
    return f"app {name}"


CLOSING = Corpus("closing", CORPORA[0].stream, CORPORA[0].text)


@pytest.mark.parametrize(
    "corpus", [corpus for corpus in CORPORA if corpus.calls], ids=lambda corpus: corpus.name
)
async def test_a_providers_message_with_calls_becomes_narration_and_calls(corpus: Corpus) -> None:
    talk = GraphConversation(
        CorpusChatModel(replies=(corpus, CLOSING)), tools=[github_list_repos, argocd_get_app]
    )
    events = await talk.ask()
    check_whole(events)
    narration = [("narration", corpus.text)] if corpus.text else []
    assert roles(events) == [*narration, ("answer", CLOSING.text)]
    assert calls(events) == [(SUPERVISOR, call.name, dict(call.args)) for call in corpus.calls]
    assert [event.call_id for event in events if isinstance(event, ToolStarted)] == [
        call.id for call in corpus.calls
    ]
    assert [outcome for _, outcome in outcomes(events)] == ["ok"] * len(corpus.calls)
    assert answer_of(events) == CLOSING.text


@pytest.mark.parametrize(
    "corpus",
    [corpus for corpus in CORPORA if corpus.text and not corpus.calls],
    ids=lambda corpus: corpus.name,
)
async def test_a_providers_message_without_calls_becomes_the_answer(corpus: Corpus) -> None:
    events = await GraphConversation(CorpusChatModel(replies=(corpus,))).ask()
    check_whole(events)
    assert roles(events) == [("answer", corpus.text)]
    assert answer_of(events) == corpus.text


@pytest.mark.parametrize(
    "corpus",
    [corpus for corpus in CORPORA if not corpus.text and not corpus.calls],
    ids=lambda corpus: corpus.name,
)
async def test_a_providers_message_without_words_is_no_answer(corpus: Corpus) -> None:
    events = await GraphConversation(CorpusChatModel(replies=(corpus,))).ask()
    check_whole(events)
    assert roles(events) == []
    assert isinstance(events[-1], Failed)


@pytest.mark.parametrize(
    "corpus", [corpus for corpus in CORPORA if corpus.reasoning], ids=lambda corpus: corpus.name
)
async def test_reasoning_never_reaches_anybody_not_even_in_a_delegation(corpus: Corpus) -> None:
    supervisor = scripted_model(
        Turn(Call("task", {"description": "Look.", "subagent_type": "argocd"})),
        Turn(Say("Done: {{tool:argocd}}")),
    )
    inner = agent("argocd", CorpusChatModel(replies=(corpus, CLOSING)), github_list_repos, argocd_get_app)
    events = await GraphConversation(supervisor, [inner]).ask()
    check_whole(events)
    assert corpus.reasoning not in "".join(event.model_dump_json() for event in events)
    texts = [text for text in (corpus.text, CLOSING.text if corpus.calls else "") if text]
    assert roles(events, "argocd") == [("delegated", text) for text in texts]


# --- ids that providers use again ---------------------------------------------------------------------------


async def test_call_ids_that_a_provider_uses_again_are_told_apart() -> None:
    value, look = version_tool("look")
    same = [Turn(Call("look", {"app": name}, id="call_0")) for name in ("one", "two")]
    events = await GraphConversation(
        scripted_model(*same, Turn(Say("{{tool:look.app}} has {{tool:look.version}}"))), tools=[look]
    ).ask()
    check_whole(events)
    assert [arguments["app"] for _, _, arguments in calls(events)] == ["one", "two"]
    assert answer_of(events) == f"two has {value}"


async def test_the_same_call_ids_in_two_delegations_and_outside_are_told_apart() -> None:
    value, version = version_tool()
    inner = Script(Turn(Call("version", {}, id="call_0")), Turn(Say("{{tool:version.version}}")))
    delegate = Turn(
        *(
            Call("task", {"description": "Go.", "subagent_type": name}, id=f"call_{n}")
            for n, name in enumerate(["argocd", "jira"])
        )
    )
    talk = GraphConversation(
        scripted_model(delegate, Turn(Say("{{tool:argocd}} and {{tool:jira}}"))),
        [agent("argocd", inner, version), agent("jira", inner, version)],
    )
    events = await talk.ask()
    check_whole(events)
    assert answer_of(events) == f"{value} and {value}"
    started = [event for event in events if isinstance(event, ToolStarted)]
    assert sorted((event.agent, event.tool) for event in started) == [
        ("argocd", "version"),
        ("jira", "version"),
        (SUPERVISOR, "argocd"),
        (SUPERVISOR, "jira"),
    ]


async def test_message_ids_that_a_provider_uses_again_are_told_apart() -> None:
    value, look = version_tool("look")
    turns = [
        Turn(Say("I look."), Call("look", {}), id="same"),
        Turn(Say("It is {{tool:look.version}}."), id="same"),
    ]
    talk = GraphConversation(scripted_model(*turns), tools=[look])
    events = await talk.ask()
    check_whole(events)
    assert roles(events) == [("narration", "I look."), ("answer", f"It is {value}.")]
    assert await talk.stored_texts() == ["I look.", f"It is {value}."]


async def test_message_ids_that_a_provider_uses_again_break_no_longer_run() -> None:
    value, look = version_tool("look")
    looks = [Turn(Say(f"Look {n}."), Call("look", {"app": f"app-{n}"}), id="same") for n in (1, 2, 3)]
    talk = GraphConversation(
        scripted_model(*looks, Turn(Say("It is {{tool:look.version}}."), id="same")), tools=[look]
    )
    events = await talk.ask()
    check_whole(events)
    assert answer_of(events) == f"It is {value}."
    assert [arguments["app"] for _, _, arguments in calls(events)] == ["app-1", "app-2", "app-3"]


async def test_a_message_id_of_an_earlier_question_does_not_rewrite_the_past() -> None:
    model = scripted_model(Turn(Say("You said: {{user}}"), id="same"))
    talk = GraphConversation(model)
    await talk.ask("one")
    events = await talk.ask("two")
    assert answer_of(events) == "You said: two"
    await talk.ask("three")
    assert [message.text for message in model.requests[-1].messages] == [
        "one",
        "You said: one",
        "two",
        "You said: two",
        "three",
    ]


# --- models that do not stream, and models inside tools -----------------------------------------------------


async def test_a_model_that_does_not_stream_says_everything_too() -> None:
    value, look = version_tool("look")
    inner = agent("argocd", ScriptedChatModel(script=Script(Turn(Say("It is up."))), streaming=False))
    turns = [
        Turn(
            Think("Hm."),
            Say("I look."),
            Call("look", {}),
            Call("task", {"description": "Up?", "subagent_type": "argocd"}),
        ),
        Turn(Say("{{tool:look.version}}: {{tool:argocd}}")),
    ]
    events = await GraphConversation(scripted_model(*turns, streaming=False), [inner], [look]).ask()
    check_whole(events)
    assert roles(events) == [("narration", "I look."), ("answer", f"{value}: It is up.")]
    assert roles(events, "argocd") == [("delegated", "It is up.")]


async def test_what_a_model_inside_a_tool_says_is_nobodys_text() -> None:
    inner = scripted_model(Turn(Say("inner-words-of-a-tool")))

    @tool
    async def ask_model() -> str:
        """A tool with a model of its own."""
        await inner.ainvoke("Hello")
        return f"asked {len(inner.requests)}"

    events = await GraphConversation(
        scripted_model(Turn(Say("I ask."), Call("ask_model", {})), Turn(Say("{{tool:ask_model}}"))),
        tools=[ask_model],
    ).ask()
    check_whole(events)
    assert roles(events) == [("narration", "I ask."), ("answer", "asked 1")]
    assert "inner-words" not in "".join(event.model_dump_json() for event in events)


async def test_what_an_agent_inside_a_tool_says_and_does_is_nobodys_text_and_call() -> None:
    value, look = version_tool("look")
    inner = create_agent(
        scripted_model(Turn(Say("inner-words"), Call("look", {})), Turn(Say("inner-answer"))), [look]
    )

    @tool
    async def ask_agent() -> str:
        """A tool with an agent of its own."""
        state = await inner.ainvoke({"messages": "Hello"})
        return str(state["messages"][-2].text)

    turns = [Turn(Say("I ask."), Call("ask_agent", {})), Turn(Say("It is {{tool:ask_agent.version}}."))]
    events = await GraphConversation(scripted_model(*turns), tools=[ask_agent]).ask()
    check_whole(events)
    assert roles(events) == [("narration", "I ask."), ("answer", f"It is {value}.")]
    assert calls(events) == [(SUPERVISOR, "ask_agent", {})]


async def test_an_agent_inside_a_tool_of_a_sub_agent_is_not_the_sub_agent() -> None:
    inner = create_agent(scripted_model(Turn(Say("inner-words"))), [])

    @tool
    async def ask_agent() -> str:
        """A tool with an agent of its own."""
        await inner.ainvoke({"messages": "Hello"})
        return "asked"

    argocd = agent(
        "argocd", Script(Turn(Call("ask_agent", {})), Turn(Say("I {{tool:ask_agent}}."))), ask_agent
    )
    turns = [
        Turn(Call("task", {"description": "Go.", "subagent_type": "argocd"})),
        Turn(Say("{{tool:argocd}}")),
    ]
    events = await GraphConversation(scripted_model(*turns), [argocd]).ask()
    check_whole(events)
    assert roles(events, "argocd") == [("delegated", "I asked.")]
    assert roles(events) == [("answer", "I asked.")]


# --- attempts that fail -------------------------------------------------------------------------------------


async def test_what_a_broken_attempt_said_is_discarded_and_its_place_is_taken() -> None:
    events = await GraphConversation(
        scripted_model(Attempts(Turn(Say("The answer ", "is 4"), Die()), Turn(Say("The answer is 3."))))
    ).ask()
    check_whole(events)
    [void] = [event for event in events if isinstance(event, TextDiscarded)]
    assert roles(events) == [("answer", "The answer is 3.")]
    after = [event for event in events[events.index(void) :] if isinstance(event, TextDelta)]
    assert {event.slot for event in after} == {void.message_id}
    assert answer_of(events) == "The answer is 3."


async def test_a_broken_attempt_of_a_sub_agent_leaves_the_supervisors_words_alone() -> None:
    argocd = agent("argocd", Script(Attempts(Turn(Say("Broken "), Die()), Turn(Say("It is up.")))))
    turns = [
        Turn(Say("I ask."), Call("task", {"description": "Go.", "subagent_type": "argocd"})),
        Turn(Say("{{tool:argocd}}")),
    ]
    events = await GraphConversation(scripted_model(*turns), [argocd]).ask()
    check_whole(events)
    assert [event.agent for event in events if isinstance(event, TextDiscarded)] == ["argocd"]
    assert roles(events) == [("narration", "I ask."), ("answer", "It is up.")]
    assert roles(events, "argocd") == [("delegated", "It is up.")]


async def test_a_model_that_never_recovers_fails_the_run_once() -> None:
    events = await GraphConversation(scripted_model(Turn(Say("So "), Die()))).ask()
    check_whole(events)
    last = events[-1]
    assert isinstance(last, Failed)
    assert (last.code, last.retryable) == ("model_unavailable", True)
    assert sum(map(is_terminal, events)) == 1


async def test_a_failing_tool_is_an_outcome_and_the_run_goes_on() -> None:
    events = await GraphConversation(
        scripted_model(Turn(Call("broken", {})), Turn(Say("It failed: {{tool:broken}}"))), tools=[broken]
    ).ask()
    check_whole(events)
    assert outcomes(events) == [("broken", "error")]
    assert "secret text" not in "".join(event.model_dump_json() for event in events)


# --- pauses -------------------------------------------------------------------------------------------------


async def test_a_pause_asks_each_request_once_and_the_run_goes_on_from_there() -> None:
    value, look = version_tool("look")
    argocd = agent(
        "argocd",
        Script(Turn(Call("ask_person", {"question": "Which app?"})), Turn(Say("{{tool:ask_person.answer}}"))),
        ask_person,
    )
    first = Turn(
        Say("I ask."),
        Call("look", {}),
        Call("ask_person", {"question": "Sure?"}),
        Call("task", {"description": "Go.", "subagent_type": "argocd"}),
    )
    talk = GraphConversation(
        scripted_model(
            first, Turn(Say("{{tool:look.version}}, {{tool:ask_person.answer}}, {{tool:argocd}}"))
        ),
        [argocd],
        [look, ask_person],
    )
    await talk.ask()
    asked = {event.asked.response: event for event in talk.events if isinstance(event, InputRequested)}  # type: ignore[union-attr]
    assert {text: event.agent for text, event in asked.items()} == {
        "Sure?": SUPERVISOR,
        "Which app?": "argocd",
    }
    assert isinstance(talk.events[-1], Paused)
    assert set(talk.events[-1].requests) == {event.request_id for event in asked.values()}
    await talk.answer({asked["Sure?"].request_id: {"answer": "yes"}})
    assert isinstance(talk.events[-1], Paused)
    assert talk.events[-1].requests == (asked["Which app?"].request_id,)
    await talk.answer({asked["Which app?"].request_id: {"answer": "web"}})
    check_whole(talk.events)
    assert answer_of(talk.events) == f"{value}, yes, web"
    assert sorted(tool for tool, _ in outcomes(talk.events)) == ["argocd", "ask_person", "ask_person", "look"]
    assert sum(isinstance(event, InputRequested) for event in talk.events) == 2


async def test_after_a_pause_what_runs_still_belongs_to_its_step_and_the_step_is_still_in_progress() -> None:
    inner = Script(
        Turn(Call("ask_person", {"question": "{{user}}"})), Turn(Say("{{tool:ask_person.answer}}"))
    )
    agents = [agent(name, inner, ask_person) for name in ("argocd", "jira")]
    steps = Turn(Call("write_todos", {"todos": ["[Argocd] Look", "[Jira] Find"]}))
    both = Turn(*(Call("task", {"description": name, "subagent_type": name}) for name in ("argocd", "jira")))
    talk = GraphConversation(scripted_model(steps, both, Turn(Say("{{tool:argocd}}, {{tool:jira}}"))), agents)
    await talk.ask()
    asked = {request.agent: request.request_id for request in talk.transcript.requests}
    events = await talk.answer({asked["jira"]: {"answer": "two"}})
    shown = [[step.status for step in event.steps] for event in events if isinstance(event, PlanUpdated)]
    assert shown == [["in_progress", "completed"]]
    events += await talk.answer({asked["argocd"]: {"answer": "one"}})
    assert answer_of(events) == "one, two"
    texts = [
        (event.agent, event.step_id) for event in events if isinstance(event, TextDelta) and event.parent_call
    ]
    ends = [
        (event.tool, event.step_id) for event in events if isinstance(event, ToolFinished) and event.delegates
    ]
    assert texts == ends == [("jira", "step-2"), ("argocd", "step-1")]


async def test_the_id_of_a_message_that_was_discarded_before_a_pause_is_not_used_again() -> None:
    first = Attempts(
        Turn(Say("Broken "), Die(), id="same"), Turn(Say("I ask."), Call("ask_person", {}), id="other")
    )
    talk = GraphConversation(scripted_model(first, Turn(Say("Done."), id="same")), tools=[ask_person])
    await talk.ask()
    [pending] = talk.transcript.requests
    await talk.answer({pending.request_id: {"answer": "yes"}})
    check_whole(talk.events)
    assert roles(talk.events) == [("narration", "I ask."), ("answer", "Done.")]


async def test_a_plan_that_was_written_before_a_pause_is_neither_told_again_nor_forgotten() -> None:
    first = Turn(Call("write_todos", {"todos": ["[Argocd] Look", "[Jira] Find"]}), Call("ask_person", {}))
    more = Turn(Call("write_todos", {"todos": ["[Argocd] Look", "[Jira] Find", "Sum up"]}))
    talk = GraphConversation(scripted_model(first, more, Turn(Say("Done."))), tools=[ask_person])
    await talk.ask()
    [pending] = talk.transcript.requests
    await talk.answer({pending.request_id: {"answer": "yes"}})
    plans = [
        [step.step_id for step in event.steps] for event in talk.events if isinstance(event, PlanUpdated)
    ]
    assert plans == [["step-1", "step-2"], ["step-1", "step-2", "step-3"]]


async def test_an_answer_to_something_else_leaves_the_requests_pending() -> None:
    talk = GraphConversation(
        scripted_model(Turn(Call("ask_person", {})), Turn(Say("{{tool:ask_person.answer}}"))),
        tools=[ask_person],
    )
    await talk.ask()
    await talk.answer({"somebody-elses": {"answer": "no"}}, taken=False)
    assert isinstance(talk.events[-1], Paused)
    [pending] = talk.transcript.requests
    await talk.answer({pending.request_id: {"answer": "yes"}})
    assert answer_of(talk.events) == "yes"


# --- structured answers -------------------------------------------------------------------------------------


def final(content: str, **more: Any) -> Call:
    return Call("PlatformEngineerResponse", {"content": content, **more})


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_structured_answers_content_is_the_answer(streaming: bool) -> None:
    value, look = version_tool("look")
    cited = [{"title": "Runbook", "url": "https://wiki.example/run"}]
    seen = {"app": cited[0]["url"]}  # the tool says it again: only what was returned can be cited
    turns = [
        Turn(Say("I look."), Call("look", seen)),
        Turn(final('It is "{{tool:look.version}}".\n\u00e9 😀', citations=cited)),
    ]
    events = await GraphConversation(
        scripted_model(*turns, streaming=streaming), tools=[look], env=STRUCTURED
    ).ask()
    check_whole(events)
    answer = f'It is "{value}".\né 😀'
    assert roles(events) == [("narration", "I look."), ("answer", answer)]
    last = events[-1]
    assert isinstance(last, Answered)
    assert last.text == answer
    assert last.data == {"content": answer, "citations": [{**cited[0], "document_id": None, "number": 1}]}
    assert [citation.title for citation in last.citations] == ["Runbook"]
    assert calls(events) == [(SUPERVISOR, "look", seen)]


async def test_a_structured_answer_streams_as_it_grows() -> None:
    pieces = ('{"citations": [{"title": "content\\": \\"no"}], "con', 'tent": "One ', "two ", 'three."}')
    events = await GraphConversation(
        scripted_model(Turn(Call("PlatformEngineerResponse", arg_pieces=pieces))), env=STRUCTURED
    ).ask()
    check_whole(events)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["One ", "two ", "three."]


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_invalid_structured_answer_is_discarded_and_the_next_takes_its_place(
    streaming: bool,
) -> None:
    wrong = Call("PlatformEngineerResponse", {"content": "Half an ans", "citations": "none"})
    events = await GraphConversation(
        scripted_model(Turn(wrong), Turn(final("The whole answer.")), streaming=streaming), env=STRUCTURED
    ).ask()
    check_whole(events)
    assert roles(events) == [("answer", "The whole answer.")]
    assert answer_of(events) == "The whole answer."
    discarded = [event.message_id for event in events if isinstance(event, TextDiscarded)]
    assert len(discarded) == streaming
    assert calls(events) == []
    if streaming:
        assert {event.slot for event in events if isinstance(event, TextDelta)} == {None, discarded[0]}


@pytest.mark.parametrize("streaming", [True, False])
async def test_words_next_to_a_structured_answer_are_narration(streaming: bool) -> None:
    events = await GraphConversation(
        scripted_model(Turn(Say("Here it is."), final("It is 3.")), streaming=streaming), env=STRUCTURED
    ).ask()
    check_whole(events)
    assert roles(events) == [("narration", "Here it is."), ("answer", "It is 3.")]
    assert answer_of(events) == "It is 3."


async def test_a_structured_answer_that_was_given_before_a_pause_is_the_answer_after_it() -> None:
    cited = [{"title": "Runbook", "url": "https://wiki.example/run"}]
    looked = Turn(Call("look", {"app": cited[0]["url"]}))
    turn = Turn(Say("Here it is."), final("It is 3.", citations=cited), Call("ask_person", {}))
    talk = GraphConversation(
        scripted_model(looked, turn, Turn()), tools=[version_tool("look")[1], ask_person], env=STRUCTURED
    )
    await talk.ask()
    [pending] = talk.transcript.requests
    await talk.answer({pending.request_id: {"answer": "yes"}})
    check_whole(talk.events)
    last = talk.events[-1]
    assert isinstance(last, Answered)
    assert last.text == "It is 3."
    assert [citation.title for citation in last.citations] == ["Runbook"]


async def test_with_structured_answers_on_a_plain_message_is_an_answer_too() -> None:
    events = await GraphConversation(scripted_model(Turn(Say("It is 3."))), env=STRUCTURED).ask()
    check_whole(events)
    assert answer_of(events) == "It is 3."


async def test_a_broken_structured_attempt_is_discarded() -> None:
    begun = Call("PlatformEngineerResponse", arg_pieces=('{"content": "It is ', "4 "))
    events = await GraphConversation(
        scripted_model(Attempts(Turn(begun, Die()), Turn(final("It is 3.")))), env=STRUCTURED
    ).ask()
    check_whole(events)
    assert roles(events) == [("answer", "It is 3.")]
    assert sum(isinstance(event, TextDiscarded) for event in events) == 1


# --- the plan -----------------------------------------------------------------------------------------------


async def test_planning_is_a_plan_and_no_call() -> None:
    turns = [Turn(Call("write_todos", {"title": "T", "todos": ["[Argocd] Look"]})), Turn(Say("Done."))]
    events = await GraphConversation(scripted_model(*turns)).ask()
    check_whole(events)
    assert calls(events) == []
    [plan] = [event for event in events if isinstance(event, PlanUpdated)]
    assert [(step.step_id, step.agent, step.title) for step in plan.steps] == [("step-1", "argocd", "Look")]


async def test_the_trace_of_a_run_is_on_its_end() -> None:
    talk = GraphConversation(scripted_model(Turn(Say("Done."))))
    events = await talk.ask()
    last = events[-1]
    assert isinstance(last, Answered)
    assert last.trace_id == derive_trace_id(talk.run_id)


# --- other people's graphs ----------------------------------------------------------------------------------


async def translated(
    model: ScriptedChatModel, tools: Sequence[BaseTool], *middleware: AgentMiddleware[Any, Any, Any]
) -> list[AnyEvent]:
    """The events of an agent that is not ours."""
    graph = create_agent(model, list(tools), middleware=list(middleware))
    items = graph.astream({"messages": "Which?"}, stream_mode=STREAM_MODES, subgraphs=True, version="v2")
    events = [event async for event in Translator(run_id="run", trace_id="0" * 32).events(items)]
    check_whole(events)
    return events


async def test_a_message_that_was_corrected_after_it_was_streamed_is_told_again_in_its_place() -> None:
    class Correcting(AgentMiddleware):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            response = await handler(request)
            response.result = [
                one.model_copy(update={"content": one.text.replace("4", "3")}) for one in response.result
            ]
            return response

    events = await translated(scripted_model(Turn(Say("It is 4."))), [], Correcting())
    [void] = [event for event in events if isinstance(event, TextDiscarded)]
    assert roles(events) == [("answer", "It is 3.")]
    assert [event.slot for event in events if isinstance(event, TextDelta)][-1] == void.message_id
    assert answer_of(events) == "It is 3."


async def test_a_middleware_that_writes_the_history_anew_says_nothing() -> None:
    class Rewriting(AgentMiddleware):
        async def abefore_model(self, state: Any, runtime: Any) -> Any:
            return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *state["messages"]]}

    value, look = version_tool("look")
    turns = [Turn(Say("I look."), Call("look", {})), Turn(Say("It is {{tool:look.version}}."))]
    events = await translated(scripted_model(*turns), [look], Rewriting())
    assert roles(events) == [("narration", "I look."), ("answer", f"It is {value}.")]
    assert outcomes(events) == [("look", "ok")]


async def test_a_result_that_a_middleware_tells_again_counts_once() -> None:
    class Shortening(AgentMiddleware):
        async def abefore_model(self, state: Any, runtime: Any) -> Any:
            return {"messages": [one for one in state["messages"] if isinstance(one, ToolMessage)]}

    _, look = version_tool("look")
    events = await translated(
        scripted_model(Turn(Call("look", {})), Turn(Say("Done."))), [look], Shortening()
    )
    assert outcomes(events) == [("look", "ok")]


async def test_what_a_middlewares_own_model_says_is_nobodys_text() -> None:
    guard = scripted_model(Turn(Say("guard-words")))

    class Guarding(AgentMiddleware):
        async def abefore_model(self, state: Any, runtime: Any) -> Any:
            await guard.ainvoke("Is this fine?")

    events = await translated(scripted_model(Turn(Say("Done."))), [], Guarding())
    assert len(guard.requests) == 1
    assert roles(events) == [("answer", "Done.")]


async def test_a_graph_that_breaks_ends_in_words_without_the_errors_text() -> None:
    class Breaking(AgentMiddleware):
        async def abefore_model(self, state: Any, runtime: Any) -> Any:
            raise RuntimeError("secret text")

    events = await translated(scripted_model(Turn(Say("Done."))), [], Breaking())
    [last] = events
    assert isinstance(last, Failed)
    assert "secret text" not in last.model_dump_json()
    assert last.message
