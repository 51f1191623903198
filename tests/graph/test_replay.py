"""After a crash: what the stored state has and the log lacks is told, once and in order; what only the log
has is taken back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from ai_platform_engineering.core.events import (
    AnyEvent,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolStarted,
)
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.graph.replay import Replay
from ai_platform_engineering.graph.stored_graph import StoredGraph
from ai_platform_engineering.graph.translator import GraphInfo, Translator
from ai_platform_engineering.multi_agents.platform_engineer.response import PlatformEngineerResponse

SUBGRAPH = ("tools:1",)


def made(name: str, call_id: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "id": call_id, "args": args}


ROOT: tuple[AnyMessage, ...] = (
    HumanMessage("Look.", id="q"),
    AIMessage("I plan.", id="a0", tool_calls=[made("write_todos", "p")]),
    ToolMessage("Planned.", tool_call_id="p", name="write_todos"),
    AIMessage(
        "I ask the keeper.",
        id="a1",
        tool_calls=[made("task", "d", subagent_type="keeper", description="Look.")],
    ),
)
INSIDE: tuple[AnyMessage, ...] = (
    HumanMessage("Look.", id="i"),
    AIMessage("I look.", id="k1", tool_calls=[made("look", "c", key="x")]),
    ToolMessage("seen", tool_call_id="c", name="look"),
    AIMessage("I have seen it.", id="k2"),
)
DONE = ToolMessage("I have seen it.", tool_call_id="d", name="task")


@dataclass(frozen=True)
class Stored:
    """What the checkpointer holds of a run with one delegation."""

    graphs: list[StoredGraph]

    def events(self, transcript: Transcript) -> Iterator[AnyEvent]:
        translator = Translator(run_id="run", trace_id="trace", transcript=transcript, is_takeover=True)
        return Replay(translator, self.graphs).events()


def restored(*root: AnyMessage, inside: tuple[AnyMessage, ...] = INSIDE) -> Stored:
    return Stored([StoredGraph((), None, root), StoredGraph(SUBGRAPH, "d", inside)])


def told(events: list[AnyEvent]) -> list[str]:
    """Events in a few letters: who, what, and about which text or call."""
    found = []
    for event in events:
        match event:
            case TextDelta():
                found.append(f"{event.agent}: {event.text}")
            case TextEnded():
                found.append(f"{event.agent}: end of {event.message_id}, {event.role}")
            case TextDiscarded():
                found.append(f"{event.agent}: {event.message_id} is void")
            case ToolStarted():
                found.append(f"{event.agent}: {event.tool} {event.call_id} starts")
            case ToolFinished():
                found.append(f"{event.agent}: {event.tool} {event.call_id} ends, {event.outcome}")
            case _:
                found.append(event.kind)
    return found


WHOLE = [
    "supervisor: I plan.",
    "supervisor: end of a0, narration",
    "supervisor: I ask the keeper.",
    "supervisor: end of a1, narration",
    "supervisor: keeper d starts",
    "keeper: I look.",
    "keeper: end of k1, delegated",
    "keeper: look d/c starts",
    "keeper: look d/c ends, ok",
    "keeper: I have seen it.",
    "keeper: end of k2, delegated",
]


def test_all_that_was_stored_is_told_in_the_order_in_which_it_happened() -> None:
    assert told(list(restored(*ROOT, DONE).events(fold([])))) == [*WHOLE, "supervisor: keeper d ends, ok"]


def test_a_delegation_that_goes_on_is_begun_and_not_ended() -> None:
    assert told(list(restored(*ROOT).events(fold([])))) == WHOLE


def test_what_was_told_is_not_told_again_wherever_the_log_broke_off() -> None:
    events = list(restored(*ROOT, DONE).events(fold([])))
    for number in range(len(events) + 1):
        rest = list(restored(*ROOT, DONE).events(fold(events[:number])))
        assert rest == events[number:]


def test_a_call_of_which_only_the_start_was_told_ends_with_its_result() -> None:
    begun = [*list(restored(*ROOT).events(fold([])))[:8]]
    failed = ToolMessage(
        "No.", tool_call_id="c", name="look", status="error", additional_kwargs={"outcome": "unknown"}
    )
    first, *_ = restored(*ROOT, inside=(*INSIDE[:2], failed)).events(fold(begun))
    assert isinstance(first, ToolFinished)
    assert (first.call_id, first.parent_call, first.outcome, first.error, first.result) == (
        "d/c",
        "d",
        "unknown",
        "No.",
        "No.",
    )


def test_a_call_without_a_result_is_left_to_the_graph() -> None:
    events = told(list(restored(*ROOT, inside=INSIDE[:2]).events(fold([]))))
    assert not any("look" in event for event in events if "d/c" in event)


def test_an_id_that_the_model_uses_again_is_another_call() -> None:
    again = (
        *INSIDE[:3],
        AIMessage("Again.", id="k3", tool_calls=[made("look", "c", key="y")]),
        ToolMessage("2", tool_call_id="c", name="look"),
    )
    calls = [
        one
        for one in told(list(restored(*ROOT, inside=again).events(fold([]))))
        if "look" in one and "d/c" in one
    ]
    assert calls == [
        f"keeper: look {call_id} {what}" for call_id in ("d/c", "d/c#2") for what in ("starts", "ends, ok")
    ]


def test_a_text_that_is_in_no_state_is_taken_back() -> None:
    lost = TextDelta(message_id="zz", offset=0, text="Never ", agent="supervisor")
    assert told(list(restored(*ROOT).events(fold([lost])))) == [*WHOLE, "supervisor: zz is void"]


def test_the_text_of_a_delegation_that_was_told_to_its_end_stays() -> None:
    """The sub-agent's own state may be gone by then."""
    over: list[AnyEvent] = [
        ToolStarted(call_id="d", tool="keeper", delegates=True),
        TextDelta(message_id="k9", offset=0, text="Seen.", agent="keeper", parent_call="d"),
        TextEnded(message_id="k9", role="delegated", agent="keeper", parent_call="d"),
        ToolFinished(call_id="d", tool="keeper", delegates=True),
    ]
    assert "keeper: k9 is void" not in told(list(restored(*ROOT, DONE, inside=()).events(fold(over))))
    assert "keeper: k9 is void" in told(list(restored(*ROOT, inside=()).events(fold(over[:3]))))


def test_only_the_structured_call_that_was_accepted_is_the_answer() -> None:
    answer = PlatformEngineerResponse(content="It is 4.")
    root = (
        HumanMessage("Which?", id="q"),
        AIMessage("", id="a1", tool_calls=[made("answer", "x", wrong=1)]),
        ToolMessage("It does not fit.", tool_call_id="x", name="answer", status="error"),
        AIMessage("", id="a2", tool_calls=[made("answer", "y", content="It is 4.")]),
    )
    info = GraphInfo(answer_tool="answer")
    translator = Translator(run_id="run", trace_id="trace", info=info, response=answer, is_takeover=True)
    events = list(Replay(translator, [StoredGraph((), None, root)]).events())
    assert told(events) == ["supervisor: It is 4.", "supervisor: end of a2:answer, answer"]
