"""US-7: narration reaches a Slack thread while it is said, a delegate's echo never does, and the answer
stands there once.

From the model's call to the Web API calls that a Slack server receives, with Slack's streams and with
messages that are updated.
"""

import contextlib
import json
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.transcript import Span, Transcript
from ai_platform_engineering.integrations.slack_bot import blocks, slack_stream, stream_text, thread_view
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from tests.support.agent_services import Where, place_agent
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Attempts, Book, Call, Die, Fail, Gate, Say, Script, Turn, unique_pieces
from tests.support.harness import agent
from tests.support.scenarios import delegate, tool
from tests.support.slack_threads import (
    AnsweredThread,
    ask,
    ask_all,
    both_modes,
    report_to_gate,
    start_in_mode,
    start_with_knowledge,
    steps_of,
    texts_of,
)

STRUCTURED = {"USE_STRUCTURED_RESPONSE": "true"}
ANSWER = "PlatformEngineerResponse"


# --- models, agents and plans ---------------------------------------------------------------------


def write(*steps: str) -> Call:
    return Call("write_todos", {"todos": list(steps), "title": "Release"})


def own(name: str = "own") -> Call:
    return Call(name, {})


def after(text: str, name: str, arguments: str = "{}", **more: Any) -> Call:
    """A call that the model completes only when Slack has the text."""
    return Call(name, arg_pieces=(arguments[:1], arguments[1:]), gated=(text,), **more)


def agents(*names: str, inner: str = "look") -> list[LocalAgent]:
    """Agents that look something up and say what they found."""
    return [
        agent(name, Script(Turn(Call(inner, {})), Turn(Say(f"{name} found it"))), tool(inner, "nothing"))
        for name in names
    ]


def knowledge(name: str) -> BaseTool:
    """A tool that the supervisor takes for one of the knowledge base."""
    knowledge_tool = tool(name, "nothing")
    knowledge_tool.metadata = {"knowledge": True}
    return knowledge_tool


def book(**scripts: Script) -> ScriptedChatModel:
    """A model that does for each question what its script says."""
    return ScriptedChatModel(
        script=Book({f"^{re.escape(name)}$": script for name, script in scripts.items()})
    )


def pieces(prefix: str, count: int = 3) -> tuple[str, ...]:
    return unique_pieces(prefix, count, random.Random())


# --- the three acceptance scenarios ---------------------------------------------------------------


@pytest.mark.sample(1)
@both_modes
async def test_narration_of_a_knowledge_question_with_a_plan_is_there_before_the_search_is_made(
    way: str, tmp_path: Path
) -> None:
    gate, (first, second) = Gate(), pieces("narration", 2)
    model = Script(
        Turn(write("Search the knowledge base", "Read", "Sum up")),
        Turn(Say(first), after(first, "search", '{"query": "slim"}')),
        Turn(Say(second), after(second, "list_datasources", "{}")),
        Turn(Say("SLIM is a messaging layer.")),
        gate=gate,
    )
    async with start_with_knowledge(way, tmp_path, model) as on, report_to_gate(on.slack, gate):
        thread = await ask(on, "What is SLIM?")
    assert gate.failure is None
    assert thread.text == f"{first}\n\n{second}\n\nSLIM is a messaging layer."
    looked_up = ["✅ [Knowledge base] Search", "✅ [Knowledge base] List_Datasources"]
    assert sorted(thread.steps) == sorted(
        ["✅ Search the knowledge base", "✅ Read", "✅ Sum up", *looked_up]
    )


@pytest.mark.sample(1)
@both_modes
async def test_what_is_said_after_a_sub_agent_is_not_shown_and_the_final_answer_is(
    way: str, tmp_path: Path
) -> None:
    model = Script(
        Turn(Say("I ask GitHub."), delegate("github")),
        Turn(Say("GitHub said that ECHO"), own()),
        Turn(delegate("github")),
        Turn(Say("The answer ", "is ", "here.")),
    )
    async with start_in_mode(
        way, tmp_path, model, agents=agents("github"), tools=[tool("own", "nothing")]
    ) as on:
        thread = await ask(on)
    assert "ECHO" not in thread.received
    assert "github found it" not in thread.received
    assert thread.text == "I ask GitHub.\n\nThe answer is here."
    with_answer = [text for call in thread.calls for text in texts_of(call) if "The answer" in text]
    assert all("The answer is here." in text for text in with_answer)  # it comes whole, from the final result
    assert thread.steps == ["✅ [Github] Do it.", "✅ Own", "✅ [Github] Do it."]


@pytest.mark.sample(1)
@both_modes
async def test_narration_of_a_knowledge_step_streams_after_a_sub_agent_finished_in_an_earlier_step(
    way: str, tmp_path: Path
) -> None:
    gate, (first, second) = Gate(), pieces("narration", 2)
    model = Script(
        Turn(write("[Github] Find the repository", "Search the knowledge base", "Sum up")),
        Turn(delegate("github")),
        Turn(Say(first), after(first, "search", '{"query": "slim"}')),
        Turn(Say(second), after(second, "fetch_document", '{"document_id": "0"}')),
        Turn(Say("Both say so.")),
        gate=gate,
    )
    async with (
        start_with_knowledge(way, tmp_path, model, agents=agents("github")) as on,
        report_to_gate(on.slack, gate),
    ):
        thread = await ask(on, "What is SLIM, and where is it?")
    assert gate.failure is None
    assert thread.text == f"{first}\n\n{second}\n\nBoth say so."
    assert thread.steps[:3] == [
        "✅ [Github] Find the repository",
        "✅ Search the knowledge base",
        "✅ Sum up",
    ]


async def test_where_slack_refuses_streams_the_same_is_posted_and_updated(tmp_path: Path) -> None:
    model = Script(
        Turn(Say("I ask GitHub."), delegate("github")), Turn(Say("ECHO"), own()), Turn(Say("The answer."))
    )
    async with start_in_mode(
        "refused", tmp_path, model, agents=agents("github"), tools=[tool("own", "nothing")]
    ) as on:
        thread = await ask(on)
    assert [call.answer for call in on.slack.called("chat.startStream")] == ["unknown_method"]
    assert {call.method for call in thread.calls} == {"chat.postMessage", "chat.update"}
    assert "ECHO" not in thread.received
    assert thread.text == "I ask GitHub.\n\nThe answer."
    assert len(thread.messages) == 1


# --- the decision table ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What a model does, and which of its texts are shown and which never reach Slack."""

    turns: tuple[Turn, ...]
    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    thinking: tuple[tuple[str, str], ...] = ()  # by step


_PLAN = Turn(write("[Argocd] Look", "[Jira] Search", "Sum up"))
_ONE_STEP = Turn(write("[Argocd] Look"))
_NO_PLAN = Turn(write())
_ECHO, _END = Turn(Say("ECHO"), own()), Turn(Say("The end."))
CASES = {
    # 4: otherwise it shows
    "nothing has finished yet": Case((Turn(Say("First."), own()), _END), ("First.", "The end.")),
    "a tool finished last": Case(
        (Turn(delegate("argocd")), Turn(own()), Turn(Say("After."), own()), _END), ("After.", "The end.")
    ),
    "a knowledge tool finished last": Case(
        (Turn(delegate("argocd")), Turn(own("search")), Turn(Say("After."), own("fetch_document")), _END),
        ("After.", "The end."),
    ),
    # 3: no plan, and a delegation finished last
    "a delegation finished last": Case(
        (Turn(Say("First."), own()), Turn(delegate("argocd")), _ECHO, _END), ("First.", "The end."), ("ECHO",)
    ),
    "two delegations finished last": Case(
        (Turn(delegate("argocd"), delegate("jira")), _ECHO, _END), ("The end.",), ("ECHO",)
    ),
    "a delegation that failed finished last": Case(
        (Turn(delegate("nobody")), _ECHO, _END), ("The end.",), ("ECHO",)
    ),
    "a delegation, then a plan of no steps": Case(
        (Turn(delegate("argocd")), _NO_PLAN, _ECHO, _END), ("The end.",), ("ECHO",)
    ),
    "an agent whose tool is named search": Case(
        (Turn(delegate("finder")), _ECHO, _END), ("The end.",), ("ECHO",)
    ),
    "an agent that is named search": Case((Turn(delegate("search")), _ECHO, _END), ("The end.",), ("ECHO",)),
    "the answer itself": Case((Turn(Say("First."), delegate("argocd")), _END), ("First.", "The end.")),
    # 2: a plan
    "in every step of a plan": Case(
        (
            _PLAN,
            Turn(Say("One."), delegate("argocd")),
            Turn(Say("Two."), delegate("jira")),
            Turn(Say("Three."), own()),
            _END,
        ),
        ("One.", "Two.", "Three.", "The end."),
        thinking=(("step-1", "One."), ("step-2", "Two."), ("step-3", "")),
    ),
    "several texts in one step": Case(
        (
            _PLAN,
            Turn(Say("One."), own()),
            Turn(Say("More."), delegate("argocd")),
            Turn(delegate("jira")),
            _END,
        ),
        ("One.", "More.", "The end."),
        thinking=(("step-1", "One.More."), ("step-2", "")),
    ),
    "all steps of the plan are finished": Case(
        (_ONE_STEP, Turn(delegate("argocd")), Turn(Say("After."), own()), _END), ("After.", "The end.")
    ),
    # 1: the answer has begun
    "the last step began the answer, and the plan is gone": Case(
        (
            _ONE_STEP,
            Turn(Say("Begun."), own()),
            _NO_PLAN,
            Turn(delegate("argocd")),
            Turn(Say("After."), own()),
            _END,
        ),
        ("Begun.", "After.", "The end."),
    ),
    "a finished plan began the answer, and the plan is gone": Case(
        (
            _ONE_STEP,
            Turn(delegate("argocd")),
            Turn(Say("Begun."), own()),
            _NO_PLAN,
            Turn(delegate("jira")),
            Turn(Say("After."), own()),
            _END,
        ),
        ("Begun.", "After.", "The end."),
    ),
    "what is said after the answer began is nobody's thinking": Case(
        (_ONE_STEP, Turn(Say("Begun."), own()), _PLAN, Turn(Say("After."), own()), _END),
        ("Begun.", "After.", "The end."),
        thinking=(("step-1", ""), ("step-2", ""), ("step-3", "")),
    ),
    "an intermediate step does not begin the answer": Case(
        (_PLAN, Turn(Say("One."), delegate("argocd")), _NO_PLAN, _ECHO, _END), ("One.", "The end."), ("ECHO",)
    ),
}


@pytest.mark.sample(1)
@both_modes
async def test_the_echo_rule_holds_in_every_case(way: str, tmp_path: Path) -> None:
    tools = [tool("own", "nothing"), knowledge("search"), knowledge("fetch_document")]
    team = [*agents("argocd", "jira", "search"), *agents("finder", inner="search")]
    model = book(**{name: Script(*case.turns) for name, case in CASES.items()})
    async with start_in_mode(way, tmp_path, model, agents=team, tools=tools) as on:
        threads = await ask_all(on, list(CASES))
        stream = {name: await thread.load_transcript() for name, thread in threads.items()}
    assert {name: thread.text for name, thread in threads.items()} == {
        name: "\n\n".join(case.shown) for name, case in CASES.items()
    }
    for name, case in CASES.items():
        assert not [text for text in case.hidden if text in threads[name].received], name
        assert [text for text in case.hidden if text in stream[name].text] == list(case.hidden), (
            name
        )  # hidden in Slack alone
        assert {step: stream[name].thinking(step) for step, _ in case.thinking} == dict(case.thinking), name
        assert not [line for line in threads[name].steps if line[0] not in "✅❌"], name
        assert ("[Knowledge base]" in str(threads[name].steps)) == (
            name == "a knowledge tool finished last"
        ), name
        assert len(threads[name].messages) == 1, name
        assert "waits for an answer" not in str(threads[name].messages), (
            name
        )  # a step that was dropped from the plan waits for nobody
    begun = {"streams": "chat.startStream", "posts": "chat.postMessage"}[way]
    assert {thread.calls[0].method for thread in threads.values()} == {begun}


# --- what a turn has come to ----------------------------------------------------------------------

_BROKEN = Turn(Fail(503))
ENDINGS = {
    "the final result": ((Turn(Say("First."), own()), _END), "First.\n\nThe end.", False),
    "a final result made of what was streamed": (
        (Turn(Say("First."), own()), Turn(Say("Second."), own()), Turn()),
        "First.\n\nSecond.",
        False,
    ),
    "a final result made of what was streamed, some of it as an echo": (
        (
            Turn(Say("First."), delegate("argocd")),
            Turn(Say("Second."), own()),
            Turn(Say("Third."), own()),
            Turn(),
        ),
        "First.\n\nSecond.\n\nThird.",
        False,
    ),
    "the partial result": (
        (Turn(Say("First."), own()), Turn(Say("Half an answer"), Die())),
        "First.\n\nHalf an answer",
        True,
    ),
    "a partial result that was an echo": (
        (Turn(Say("First."), delegate("argocd")), Turn(Say("Half an answer"), Die())),
        "First.\n\nHalf an answer",
        True,
    ),
    "the last agent's words": (
        (Turn(Say("First."), delegate("argocd")), _BROKEN),
        "First.\n\nargocd found it",
        True,
    ),
    "what was streamed": ((Turn(Say("First."), own()), _BROKEN), "First.", True),
    "an error": ((_BROKEN,), "", True),
}  # fmt: skip
_ERROR = (
    "The model's server could not be reached or failed in the middle of its answer. Try again in a moment."
)


@pytest.mark.sample(1)
@both_modes
async def test_a_turn_ends_with_the_best_that_there_is_and_says_it_once(way: str, tmp_path: Path) -> None:
    model = book(**{name: Script(*turns) for name, (turns, _, _) in ENDINGS.items()})
    async with start_in_mode(
        way, tmp_path, model, agents=agents("argocd"), tools=[tool("own", "nothing")]
    ) as on:
        threads = await ask_all(on, list(ENDINGS))
    assert {name: thread.text for name, thread in threads.items()} == {
        name: text for name, (_, text, _) in ENDINGS.items()
    }
    for name, (_, _, failed) in ENDINGS.items():
        content = threads[name].text + str([message.all_blocks for message in threads[name].messages])
        assert content.count(_ERROR) == int(failed), name
        assert content.count(blocks.RETRY_ACTION) == int(failed), name
        assert content.count(blocks.FEEDBACK_ACTION) == int(not failed), name
        assert len(threads[name].messages) == 1, name


@pytest.mark.sample(1)
@both_modes
async def test_a_structured_answer_is_shown_once(way: str, tmp_path: Path) -> None:
    answer = Turn(Call(ANSWER, {"content": "The answer."}))
    scripts = {
        "alone": Script(answer),
        "after a tool": Script(Turn(Say("First."), own()), answer),
        "after a delegation": Script(Turn(Say("First."), delegate("argocd")), answer),
        "with a plan": Script(_PLAN, Turn(Say("First."), delegate("argocd")), Turn(delegate("jira")), answer),
        "said and called": Script(
            Turn(Say("First."), own()), Turn(Say("The answer."), Call(ANSWER, {"content": "The answer."}))
        ),
        "begun anew": Script(
            Turn(Say("First."), own()),
            Attempts(Turn(Call(ANSWER, arg_pieces=('{"content": "Lost', '"')), Die()), answer),
        ),
    }
    async with start_in_mode(
        way,
        tmp_path,
        book(**scripts),
        agents=agents("argocd", "jira"),
        tools=[tool("own", "nothing")],
        env=STRUCTURED,
    ) as on:
        threads = await ask_all(on, list(scripts))
    expected = {name: "The answer." if name == "alone" else "First.\n\nThe answer." for name in scripts}
    assert {name: thread.text for name, thread in threads.items()} == expected


# --- nothing is held back -------------------------------------------------------------------------


@pytest.mark.sample(2)
@both_modes
@pytest.mark.parametrize("planned", [True, False], ids=["with a plan", "without a plan"])
async def test_the_model_goes_on_only_when_slack_has_what_it_said(
    planned: bool, way: str, tmp_path: Path
) -> None:
    gate = Gate()
    first = pieces("first")
    second = pieces("second")
    answer = pieces("answer")
    between = [delegate("argocd"), delegate("jira")] if planned else [own(), own()]
    turns = [Turn(Say(*first), between[0]), Turn(Say(*second), between[1]), Turn(Say(*answer))]
    model = Script(*([_PLAN] if planned else []), *turns, gate=gate)
    tools = [tool("own", "nothing")]
    async with (
        start_in_mode(way, tmp_path, model, agents=agents("argocd", "jira"), tools=tools) as on,
        report_to_gate(on.slack, gate),
    ):
        thread = await ask(on)
    assert gate.failure is None
    assert gate.sent == (*first, *second, *answer)
    assert thread.text == "\n\n".join("".join(text) for text in (first, second, answer))
    assert len(thread.messages) == 1


@pytest.mark.sample(1)
@both_modes
async def test_a_structured_answer_is_there_while_its_call_is_incomplete(way: str, tmp_path: Path) -> None:
    gate, (first, two, three) = Gate(), pieces("answer")
    call = Call(
        ANSWER,
        arg_pieces=(f'{{"content": "{first}', f"{two}\\n", f'{three}"', "}"),
        gated=(first, two, three),
    )
    async with (
        start_in_mode(way, tmp_path, Script(Turn(call), gate=gate), env=STRUCTURED) as on,
        report_to_gate(on.slack, gate),
    ):
        thread = await ask(on)
    assert gate.failure is None
    assert thread.text == f"{first}{two}\n{three}"


@pytest.mark.sample(3)
@both_modes
@pytest.mark.parametrize(("structured", "spoken"), [(False, False), (False, True), (True, True)])
async def test_what_a_lost_attempt_had_said_is_taken_back_before_the_next_one_speaks(
    structured: bool, spoken: bool, way: str, tmp_path: Path
) -> None:
    gate, (first, two) = Gate(), pieces("lost", 2)
    attempts_text = (
        Call(ANSWER, arg_pieces=(f'{{"content": "{first}', two, " and"), gated=(first, two))
        if structured
        else Say(first, two, ".")
    )
    attempts = Attempts(Turn(attempts_text, Die(), gate=gate), Turn(after("TAKEN BACK", "own"), gate=gate))
    end = Turn(Call(ANSWER, {"content": "The answer."}) if structured else Say("The answer."))
    before = [Turn(Say("First."), own())] if spoken else []
    env = {"USE_STRUCTURED_RESPONSE": str(structured).lower()}
    async with start_in_mode(
        way, tmp_path, Script(*before, attempts, end), tools=[tool("own", "nothing")], env=env
    ) as on:

        def taken_back() -> str:
            sent = [text for call in on.slack.calls for text in texts_of(call)]
            stands = [message.shown for message in on.slack.messages.values() if not message.deleted]
            return "TAKEN BACK" if two in "".join(sent) and two not in "".join(stands) else ""

        async with report_to_gate(on.slack, gate, taken_back):
            thread = await ask(on)
    assert gate.failure is None
    assert two in thread.received
    assert thread.text == ("First.\n\nThe answer." if spoken else "The answer.")
    assert len(thread.messages) == 1


# --- in both placements ---------------------------------------------------------------------------


async def shown_in(where: Where, way: str, tmp_path: Path) -> Any:
    """What Slack was told, step by step, of agents that work in this place; ids and the borders of pieces
    left out.
    """
    gate = Gate()
    first = pieces("first")
    second = pieces("second")

    def held(name: str, shown: str) -> BaseTool:
        """A tool that works until Slack has this step."""

        async def work() -> str:
            await gate.wait_seen(shown)
            return "nothing"

        return tool(name, work)

    look, find = (
        held("look", "🔄 [Argocd] Do it. — Argocd: Look"),
        held("find", "🔄 [Jira] Search — Jira: Find"),
    )
    argocd = agent(
        "argocd", Script(Turn(Say("I look."), Call("look", {})), Turn(Say("argocd found it"))), look
    )
    jira = agent("jira", Script(Turn(Call("find", {})), Turn(Fail(401))), find)
    order = json.dumps({"subagent_type": "jira", "description": "Search."})
    model = Script(
        Turn(Say(*first), delegate("argocd", id="one"), gate=gate),
        Turn(Say("ECHO"), after("✅ [Argocd] Do it. — Argocd: Look", "own", id="two"), gate=gate),
        Turn(write("[Jira] Search", "Sum up")),
        Turn(after("⏳ [Jira] Search", "task", order, id="three"), gate=gate),
        Turn(after("❌ [Jira] Search", "own", id="four"), gate=gate),
        Turn(Say(*second)),
    )
    async with contextlib.AsyncExitStack() as stack:
        team = [
            await stack.enter_async_context(place_agent(local_agent, where)) for local_agent in (argocd, jira)
        ]
        on = await stack.enter_async_context(
            start_in_mode(way, tmp_path / where, model, agents=team, tools=[held("own", "🔄 Own")])
        )
        await stack.enter_async_context(report_to_gate(on.slack, gate))
        thread = await ask(on)
    assert gate.failure is None
    assert thread.text == f"{''.join(first)}\n\n{''.join(second)}"
    content = str(_told(thread)).replace("".join(first), "FIRST").replace("".join(second), "SECOND")
    return re.sub(r"\d+\.\d{6}|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}", "ID", content)


def _told(thread: AnsweredThread) -> list[Any]:
    """The last that was said of each step in each of its states, and what the messages have come to."""
    steps: dict[str, dict[str, str]] = {}
    for line in (line for call in thread.calls for line in steps_of(call)):
        steps.setdefault(line[2:].partition(" — ")[0], {})[line[0]] = line
    return [
        sorted(steps.items()),
        [
            (message.shown, message.cards, message.plan_title, message.all_blocks, message.metadata)
            for message in thread.messages
        ],
    ]


@pytest.mark.sample(1)
@both_modes
async def test_slack_is_told_the_same_wherever_the_agents_run(way: str, tmp_path: Path) -> None:
    here, there = await shown_in("in-process", way, tmp_path), await shown_in("remote", way, tmp_path)
    assert "🔄 [Argocd] Do it. — Argocd: Look" in here
    assert "❌ [Jira] Search" in here
    assert here == there


# --- the names that the specification keeps -------------------------------------------------------


def test_the_best_text_of_a_turn_is_chosen_in_this_order() -> None:
    spans = (Span("1", "Said."), Span("2", "Found.", "argocd", "call"), Span("3", "Echo.", echo=True))
    stream = Transcript(state="completed", answer="Answer.", partial="Part.", spans=spans, error="Error.")
    chosen = [stream_text._get_final_text(stream)]
    for removed in (
        {"answer": " "},
        {"partial": None},
        {"spans": (spans[0], spans[2])},
        {"spans": ()},
        {"error": None},
    ):
        stream = replace(stream, **removed)
        chosen.append(stream_text._get_final_text(stream))
    assert chosen[:5] == ["Answer.", "Part.", "Found.", "Said.\n\nEcho.", "Error."]
    assert chosen[5].startswith("There was no answer.")


def test_the_knowledge_tools_are_these_four() -> None:
    assert {"search", "fetch_document", "list_datasources", "fetch_url"} == stream_text.RAG_TOOL_NAMES


class NothingTaken(stream_text.StreamBuffer):
    def next_segment(self, used: int, opens: bool) -> stream_text.TextSegment | None:
        return None


@pytest.mark.parametrize("name", ["nothing", "StreamBuffer", "RAG_TOOL_NAMES", "_get_final_text"])
async def test_the_work_is_done_with_the_names_of_the_specification(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    match name:
        case "StreamBuffer":
            monkeypatch.setattr(slack_stream, name, NothingTaken)
        case "RAG_TOOL_NAMES":
            monkeypatch.setattr(thread_view, name, frozenset())
        case "_get_final_text":
            monkeypatch.setattr(stream_text, name, lambda stream: "Something else.")
        case _:
            pass
    model = Script(Turn(Say("First."), own("search")), Turn(Say("The answer.")))
    async with start_in_mode("streams", tmp_path, model, tools=[knowledge("search")]) as on:
        thread = await ask(on)
    right = (thread.text, thread.steps) == ("First.\n\nThe answer.", ["✅ [Knowledge base] Search"])
    assert right == (name == "nothing")
