"""Histories that were cut off: every call gets its result behind it, whatever shape the provider gave the
call.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.tools import tool
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import PlatformEngineerDeepAgent
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_repair import (
    INTERRUPTED,
    INVALID,
    _extract_tool_call_ids,
    repair_tool_calls,
)
from tests.support import strategies as given_by
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import FAST


def call(call_id: str | None, name: str = "look") -> dict[str, Any]:
    return {"name": name, "args": {}, "id": call_id, "type": "tool_call"}


def invalid(call_id: str | None) -> dict[str, Any]:
    return {"name": "look", "args": "{", "id": call_id, "error": None, "type": "invalid_tool_call"}


def calling(*ids: str, text: str = "") -> AIMessage:
    return AIMessage(text, tool_calls=[call(call_id) for call_id in ids])


def result(call_id: str, text: str = "found") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id, name="look")


def shape(messages: list[AnyMessage]) -> list[str]:
    """A history in short: who spoke, and which call a result answers."""
    return [
        f"{message.tool_call_id}={message.text}" if isinstance(message, ToolMessage) else message.type
        for message in messages
    ]


# --- where providers put their ids ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "ids"),
    [
        (AIMessage("", tool_calls=[call("a"), call("b")]), ["a", "b"]),
        (AIMessage("", invalid_tool_calls=[invalid("x")]), ["x"]),
        (AIMessage("", tool_calls=[call("a")], invalid_tool_calls=[invalid("x")]), ["a", "x"]),
        (
            AIMessage(
                "",
                additional_kwargs={
                    "tool_calls": [
                        {"id": "k", "type": "function", "function": {"name": "look", "arguments": "{"}}
                    ]
                },
            ),
            ["k"],
        ),
        (AIMessage("", additional_kwargs={"tool_calls": None}), []),
        (
            AIMessage(
                [
                    {"type": "text", "text": "Hm."},
                    {"type": "tool_use", "id": "u", "name": "look", "input": {}},
                ]
            ),
            ["u"],
        ),
        (AIMessage([{"toolUse": {"toolUseId": "bedrock", "name": "look", "input": {}}}]), ["bedrock"]),
        (AIMessage([{"type": "tool_use", "tool_use": {"id": "inner"}, "id": "outer"}]), ["outer"]),
        (AIMessage([{"tool_use": {"toolUseId": "bedrock-2"}}]), ["bedrock-2"]),
        (AIMessage([{"type": "function_call", "call_id": "responses", "id": "fc_1"}]), ["responses"]),
        (AIMessage(["plain", {"type": "text", "text": "no call"}]), []),
        (AIMessage([{"type": "server_tool_call", "id": "not ours to answer"}]), []),
        (AIMessage("no call"), []),
        (
            AIMessage(
                [{"type": "tool_use", "id": "a", "name": "look", "input": {}}],
                tool_calls=[call("a")],
                additional_kwargs={"tool_calls": [{"id": "a"}]},
            ),
            ["a"],
        ),
    ],
    ids=[
        "tool_calls",
        "invalid",
        "valid and invalid",
        "openai kwargs",
        "kwargs of nothing",
        "anthropic block",
        "bedrock block",
        "block with its own id",
        "bedrock block, other spelling",
        "responses block",
        "text blocks",
        "a provider's own tool",
        "plain text",
        "one call in three places",
    ],
)
def test_the_ids_of_a_message_are_found_wherever_they_stand(message: AIMessage, ids: list[str]) -> None:
    assert _extract_tool_call_ids(message) == ids


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", tool_calls=[call(None)]),
        AIMessage("", tool_calls=[call("")]),
        AIMessage("", invalid_tool_calls=[invalid(None)]),
        AIMessage(
            "",
            additional_kwargs={
                "tool_calls": [{"function": {"name": "look"}}, {"id": None}, {"id": 7}, "odd"]
            },
        ),
        AIMessage(
            [
                {"type": "tool_use", "name": "look"},
                {"type": "tool_use", "id": None},
                {"toolUse": {}},
                {"toolUse": None},
            ]
        ),
        AIMessage([{"toolUse": "odd"}, {"type": "function_call", "id": "fc_1"}]),
    ],
    ids=["none", "empty", "invalid without", "kwargs without", "blocks without", "odd blocks"],
)
def test_a_call_without_an_id_has_none(message: AIMessage) -> None:
    assert _extract_tool_call_ids(message) == []


# --- repair ---------------------------------------------------------------------------------------


def test_an_intact_history_stays_as_it_is() -> None:
    intact = [
        SystemMessage("You help."),
        HumanMessage("Which?"),
        calling("a", "b"),
        result("a"),
        result("b"),
        AIMessage("It is 3."),
        HumanMessage("And now?"),
        calling("c", text="I look."),
        result("c"),
    ]
    assert repair_tool_calls(intact) == intact


def test_a_call_without_a_result_is_answered_in_its_place() -> None:
    fixed = repair_tool_calls(
        [HumanMessage("Which?"), calling("a", "b"), result("b"), HumanMessage("Hello?")]
    )
    assert shape(fixed) == ["human", "ai", f"a={INTERRUPTED}", "b=found", "human"]
    answer = fixed[2]
    assert isinstance(answer, ToolMessage)
    assert (answer.name, answer.status) == ("look", "error")


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", tool_calls=[call("a")]),
        AIMessage("", additional_kwargs={"tool_calls": [{"id": "a"}]}),
        AIMessage([{"type": "tool_use", "id": "a", "name": "look", "input": {}}]),
        AIMessage([{"toolUse": {"toolUseId": "a", "name": "look", "input": {}}}]),
    ],
    ids=["tool_calls", "openai kwargs", "anthropic block", "bedrock block"],
)
def test_a_call_in_any_shape_is_answered(message: AIMessage) -> None:
    assert shape(repair_tool_calls([HumanMessage("Which?"), message, HumanMessage("Hello?")])) == [
        "human",
        "ai",
        f"a={INTERRUPTED}",
        "human",
    ]


def test_a_call_that_could_not_be_read_is_told_so() -> None:
    message = AIMessage("", invalid_tool_calls=[invalid("x")])
    assert shape(repair_tool_calls([HumanMessage("Which?"), message])) == ["human", "ai", f"x={INVALID}"]


def test_a_call_without_an_id_is_dropped() -> None:
    [_, message, answer] = repair_tool_calls(
        [HumanMessage("Which?"), AIMessage("Hm.", tool_calls=[call(None), call("a")])]
    )
    assert isinstance(message, AIMessage)
    assert (message.text, [tool_call["id"] for tool_call in message.tool_calls]) == ("Hm.", ["a"])
    assert isinstance(answer, ToolMessage)


def test_a_result_without_a_call_is_dropped() -> None:
    assert shape(
        repair_tool_calls([result("early"), HumanMessage("Which?"), AIMessage("3."), result("nobodys")])
    ) == ["human", "ai"]


def test_a_result_that_stands_elsewhere_comes_back_to_its_call() -> None:
    moved = [
        HumanMessage("Which?"),
        calling("a", "b"),
        HumanMessage("Hello?"),
        result("b", "2"),
        AIMessage("Hm."),
        result("a", "1"),
    ]
    assert shape(repair_tool_calls(moved)) == ["human", "ai", "a=1", "b=2", "human", "ai"]


def test_of_two_results_of_a_call_the_first_counts() -> None:
    assert shape(repair_tool_calls([calling("a"), result("a", "first"), result("a", "second")])) == [
        "ai",
        "a=first",
    ]


def test_a_call_id_that_a_provider_uses_again_keeps_each_result_with_its_own_call() -> None:
    again = [calling("call_0"), result("call_0", "one"), calling("call_0"), result("call_0", "two")]
    assert repair_tool_calls(again) == again


def test_a_call_id_that_is_used_again_does_not_answer_the_call_that_was_cut_off() -> None:
    cut = [calling("call_0"), HumanMessage("Hello?"), calling("call_0"), result("call_0", "two")]
    assert shape(repair_tool_calls(cut)) == ["ai", f"call_0={INTERRUPTED}", "human", "ai", "call_0=two"]


# --- any history ----------------------------------------------------------------------------------

IDS = ["a", "b", "c", "d"]


def _in_shape(ids: list[str], kind: str) -> AIMessage:
    match kind:
        case "openai":
            return AIMessage("", additional_kwargs={"tool_calls": [{"id": call_id} for call_id in ids]})
        case "anthropic":
            return AIMessage(
                [{"type": "tool_use", "id": call_id, "name": "look", "input": {}} for call_id in ids]
            )
        case "bedrock":
            return AIMessage([{"toolUse": {"toolUseId": call_id}} for call_id in ids])
        case "unnamed":
            return AIMessage("", tool_calls=[call(None), *map(call, ids)])
        case _:
            return calling(*ids)


messages = st.one_of(
    st.just(HumanMessage("Which?")),
    st.builds(AIMessage, st.sampled_from(["", "Hm."])),
    st.builds(
        _in_shape,
        st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True),
        st.sampled_from(["plain", "openai", "anthropic", "bedrock", "unnamed"]),
    ),
    st.builds(result, st.sampled_from([*IDS, "nobodys"]), st.sampled_from(["1", "2"])),
)
histories = st.lists(messages, max_size=12)


@given_by.examples(150)
@given(history=histories)
def test_after_the_repair_every_call_has_its_one_result_directly_behind_the_message(
    history: list[AnyMessage],
) -> None:
    fixed = repair_tool_calls(history)
    at = 0
    while at < len(fixed):
        message = fixed[at]
        assert not isinstance(message, ToolMessage), "a result without a call"
        at += 1
        if isinstance(message, AIMessage):
            ids = _extract_tool_call_ids(message)
            behind = fixed[at : at + len(ids)]
            assert [
                tool_result.tool_call_id for tool_result in behind if isinstance(tool_result, ToolMessage)
            ] == ids
            at += len(ids)


@given_by.examples(100)
@given(history=histories)
def test_a_repaired_history_needs_no_repair(history: list[AnyMessage]) -> None:
    fixed = repair_tool_calls(history)
    assert repair_tool_calls(fixed) == fixed


@given_by.examples(100)
@given(history=histories)
def test_the_repair_keeps_what_was_said_in_its_order(history: list[AnyMessage]) -> None:
    def said(some: list[AnyMessage]) -> list[tuple[str, Any]]:
        return [(message.type, message.content) for message in some if not isinstance(message, ToolMessage)]

    assert said(repair_tool_calls(history)) == said(history)


@given_by.examples(60)
@given(history=histories, cut=st.integers(0, 12))
def test_a_history_that_was_cut_off_is_whole_up_to_the_cut(history: list[AnyMessage], cut: int) -> None:
    repaired = repair_tool_calls(history)
    fixed = repair_tool_calls(repaired[:cut])
    assert fixed[: min(cut, len(repaired))] == repaired[:cut]
    assert all(isinstance(message, ToolMessage) and message.text == INTERRUPTED for message in fixed[cut:])


# --- on its way to the model ----------------------------------------------------------------------


async def test_a_model_sees_a_repaired_history_and_the_stored_one_stays() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "found"

    model = ScriptedChatModel(script=Script(Turn(Say("It is 3."))))
    saver = InMemorySaver()
    graph = await PlatformEngineerDeepAgent(
        Settings.from_variables(FAST), tools=[look], model=model, checkpointer=saver
    ).graph()
    config: Any = {"configurable": {"thread_id": "t"}}
    cut_off = [HumanMessage("Which?"), calling("a", "b"), result("b")]
    await graph.aupdate_state(config, {"messages": cut_off}, as_node="tools")
    answered = await graph.ainvoke({"messages": [HumanMessage("Hello?")]}, config)
    stream = [(message.role, message.tool_call_id, message.text) for message in model.requests[-1].messages]
    assert stream == [
        ("user", None, "Which?"),
        ("assistant", None, ""),
        ("tool", "a", INTERRUPTED),
        ("tool", "b", "found"),
        ("user", None, "Hello?"),
    ]
    assert shape(answered["messages"]) == ["human", "ai", "b=found", "human", "ai"]
