"""The embedded offline model in both roles: what users see of it, and that its work is bounded."""

import json
import secrets
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ai_platform_engineering.core.events import Answered
from ai_platform_engineering.models.offline_model import OFFLINE_NOTICE, OfflineModel
from tests.support.examples import scale_examples
from tests.support.fakes.script import Fail, Script, Turn
from tests.support.harness import ReceivedStream, agent, supervisor
from tests.support.offline_tools import Recorder

README_QUESTION = "is port 8000 open on localhost, and what does 10.0.0.0/22 contain?"


def steps(stream: ReceivedStream) -> list[dict[str, Any]]:
    """The plan as it was last told."""
    parts = stream.named("execution_plan_update")[-1].artifact["parts"]
    return next(part["data"] for part in parts if "data" in part)["steps"]


async def answer(tools: Sequence[BaseTool], *messages: BaseMessage) -> AIMessage:
    """What a domain agent with these tools says in the end."""
    result = await create_agent(OfflineModel(), tools=list(tools)).ainvoke({"messages": list(messages)})
    last = result["messages"][-1]
    assert isinstance(last, AIMessage)
    return last


async def chunks(messages: list[BaseMessage], tools: Sequence[BaseTool] = ()) -> list[AIMessageChunk]:
    return [chunk async for chunk in OfflineModel().bind_tools(list(tools)).astream(messages)]  # type: ignore[misc]


# --- the supervisor -------------------------------------------------------------------------------


async def test_the_question_of_the_readme_is_planned_delegated_in_parallel_and_answered() -> None:
    recorder = Recorder()
    async with supervisor(OfflineModel(), agents=recorder.agents("netutils")) as client:
        stream = await client.ask(README_QUESTION)

    assert stream.states[-1] == "completed"
    assert recorder.calls[0] != recorder.calls[1]
    assert all(token in stream.answer for token in recorder.tokens)
    assert stream.streamed_texts[0] == "Two steps, in parallel: netutils."
    assert stream.streamed_texts[1:] == [stream.answer]
    assert [(step["title"], step["agent"], step["status"]) for step in steps(stream)] == [
        ("Is port 8000 open on localhost?", "netutils", "completed"),
        ("What does 10.0.0.0/22 contain?", "netutils", "completed"),
    ]
    assert sorted(stream.notifications) == sorted(
        [
            "🔧 Supervisor: Calling Agent Netutils...\n",
            "🔧 Supervisor: Calling Agent Netutils...\n",
            "🔧 Netutils: Calling tool: Check_Port\n",
            "🔧 Netutils: Calling tool: Cidr_Info\n",
            "✅ Netutils: Tool Check_Port completed\n",
            "✅ Netutils: Tool Cidr_Info completed\n",
            "✅ Supervisor: Netutils completed\n",
            "✅ Supervisor: Netutils completed\n",
        ]
    )
    started = stream.notifications[:2]
    assert started == ["🔧 Supervisor: Calling Agent Netutils...\n"] * 2, "both run at the same time"
    ids = {
        frame.metadata.get("plan_step_id")
        for frame in stream.named("tool_notification_end")
        if "Supervisor" in frame.text
    }
    assert ids == {step["step_id"] for step in steps(stream)}


async def test_the_plan_is_told_before_the_first_delegation_and_the_narration_before_the_plan() -> None:
    async with supervisor(OfflineModel(), agents=Recorder().agents("netutils")) as client:
        stream = await client.ask(README_QUESTION)

    order = [frame.name for frame in stream.frames]
    assert (
        order.index("streaming_result")
        < order.index("execution_plan_update")
        < order.index("tool_notification_start")
    )


async def test_a_single_request_needs_no_plan_and_is_told_in_one_sentence() -> None:
    recorder = Recorder()
    async with supervisor(OfflineModel(), agents=recorder.agents("netutils")) as client:
        stream = await client.ask("is port 22 open on localhost?")

    assert stream.named("execution_plan_update") == []
    assert stream.streamed_texts[0] == "Asking netutils: “is port 22 open on localhost?”"
    assert recorder.tokens[0] in stream.answer


async def test_two_agents_share_one_question() -> None:
    recorder = Recorder()
    async with supervisor(OfflineModel(), agents=recorder.agents("netutils", "jira")) as client:
        stream = await client.ask("show ticket OPS-7 and resolve example.com")

    assert {call[0] for call in recorder.calls} == {"netutils", "jira"}
    assert all(token in stream.answer for token in recorder.tokens)
    assert "netutils" in stream.streamed_texts[0]
    assert "jira" in stream.streamed_texts[0]
    assert [(step["agent"], step["status"]) for step in steps(stream)] == [
        ("jira", "completed"),
        ("netutils", "completed"),
    ]


async def test_an_agent_that_fails_is_named_as_failed_and_the_rest_is_answered() -> None:
    recorder = Recorder()
    broken = agent("jira", Script([Turn(Fail(401, "no"))]), *recorder.tools("jira"))
    async with supervisor(OfflineModel(), agents=[*recorder.agents("netutils"), broken]) as client:
        stream = await client.ask("show ticket OPS-7 and resolve example.com")

    assert [(step["agent"], step["status"]) for step in steps(stream)] == [
        ("jira", "failed"),
        ("netutils", "completed"),
    ]
    assert "This part failed" in stream.answer
    assert recorder.tokens[0] in stream.answer


@pytest.mark.parametrize("question", ["hi", "what can you do?", "?!", "which agents do you have?", "help"])
async def test_who_asks_for_nothing_gets_a_list_of_what_can_be_asked(question: str) -> None:
    recorder = Recorder()
    async with supervisor(OfflineModel(), agents=recorder.agents("netutils", "argocd")) as client:
        stream = await client.ask(question)

    assert stream.states[-1] == "completed"
    assert recorder.calls == []
    assert "**netutils**: Network checks" in stream.answer
    assert "Is port 443 open on example.org?" in stream.answer
    assert "**argocd**" in stream.answer


async def test_the_part_that_nobody_takes_is_said() -> None:
    recorder = Recorder()
    async with supervisor(OfflineModel(), agents=recorder.agents("netutils")) as client:
        stream = await client.ask("resolve example.com and what is its certificate, then write a poem")

    assert "I cannot do this: “write a poem”." in stream.answer
    assert "set `LLM_MODEL`" in stream.answer
    assert len(recorder.tokens) == 2
    assert recorder.tokens[0] in stream.answer


async def test_a_follow_up_takes_its_subject_from_the_question_before() -> None:
    recorder = Recorder()
    async with supervisor(OfflineModel(), agents=recorder.agents("netutils")) as client:
        first = await client.ask("is port 8000 open on localhost?")
        await client.ask("and port 22?", contextId=first.context_id)
        await client.ask("what about example.com?", contextId=first.context_id)

    assert [arguments for _, _, arguments in recorder.calls] == [
        {"host": "localhost", "port": 8000},
        {"host": "localhost", "port": 22},
        {"host": "example.com", "port": 22},
    ]


async def test_a_structured_answer_goes_through_its_call() -> None:
    recorder = Recorder()
    async with supervisor(
        OfflineModel(), agents=recorder.agents("netutils"), env={"USE_STRUCTURED_RESPONSE": "true"}
    ) as client:
        stream = await client.ask("resolve example.com")

    ended = stream.events[-1]
    assert isinstance(ended, Answered)
    assert ended.data is not None
    assert ended.data["content"] == ended.text == stream.answer
    assert recorder.tokens[0] in stream.answer


async def test_the_knowledge_base_is_asked_when_no_agent_fits_and_its_step_ends() -> None:
    word, recorder = secrets.token_hex(8), Recorder()

    @tool
    async def search(query: str, limit: int = 3) -> str:
        """Search the knowledge base for documents."""
        text = f"{query}: {word} " + "and more of it " * 20
        return json.dumps(
            {
                "results": [
                    {
                        "document_id": "doc-1",
                        "title": "Slim",
                        "url": "https://docs.example/slim",
                        "snippet": text,
                    }
                ]
            }
        )

    env = {"USE_STRUCTURED_RESPONSE": "true"}
    async with supervisor(
        OfflineModel(), agents=recorder.agents("netutils"), tools=[search], env=env
    ) as client:
        alone = await client.ask("what is agntcy slim?")
        both = await client.ask("what is agntcy slim? And resolve example.com.")

    assert alone.notifications == [
        "🔧 Supervisor: Calling tool: Search\n",
        "✅ Supervisor: Tool Search completed\n",
    ]
    assert f"what is agntcy slim?: {word}" in alone.answer
    ended = alone.events[-1]
    assert isinstance(ended, Answered)
    assert [(cited.title, cited.url) for cited in ended.citations] == [("Slim", "https://docs.example/slim")]
    assert [(step["agent"], step["status"]) for step in steps(both)] == [
        ("supervisor", "completed"),
        ("netutils", "completed"),
    ]
    assert word in both.answer
    assert recorder.tokens[0] in both.answer


async def test_a_question_keeps_its_mark_in_titles_searches_and_examples() -> None:
    recorder = Recorder()
    words = "for everybody who tries it from outside of this building or inside of it " * 2
    long_question = f"Is port 8000 open on localhost {words}?"
    async with supervisor(OfflineModel(), agents=recorder.agents("netutils")) as client:
        planned = await client.ask(f"{long_question} And what does 10.0.0.0/22 contain?")
        lacking = await client.ask("what does the network contain?")
    assert [step["title"][-2:] for step in steps(planned)] == ["…?", "n?"]
    [plan, *_] = planned.named("execution_plan_update")
    assert plan.artifact["parts"][0]["data"]["title"].endswith("…?")
    assert lacking.answer.endswith("for example: what does the network contain `cidr=…`?")


# --- a domain agent -------------------------------------------------------------------------------


async def test_an_agent_makes_the_calls_of_one_assignment_in_one_turn() -> None:
    recorder = Recorder()
    graph = create_agent(OfflineModel(), tools=list(recorder.tools("netutils")))

    result = await graph.ainvoke({"messages": [HumanMessage(README_QUESTION)]})

    turns = [message for message in result["messages"] if isinstance(message, AIMessage)]
    assert [len(turn.tool_calls) for turn in turns] == [2, 0]
    assert all(token in turns[-1].text for token in recorder.tokens)


async def test_a_result_is_a_list_of_its_facts_without_what_was_asked() -> None:
    message = await answer(Recorder().tools("netutils"), HumanMessage("is port 8000 open on localhost?"))

    assert message.text.splitlines()[0] == "- open: yes"
    assert "localhost" not in message.text


async def test_several_results_become_a_table() -> None:
    recorder = Recorder()

    message = await answer(
        recorder.tools("netutils"), HumanMessage("are the ports 22, 80 and 443 open on localhost?")
    )

    lines = message.text.splitlines()
    assert lines[0] == "| host | port | open | token |"
    assert [line.split(" | ")[1:3] for line in lines[2:]] == [["22", "yes"], ["80", "yes"], ["443", "yes"]]


async def test_lists_of_objects_become_tables_and_sentences_of_a_tool_lead() -> None:
    state = secrets.token_hex(4)

    @tool
    async def list_applications() -> list[dict[str, str]]:
        """List the applications."""
        return [{"name": f"app|{number}", "state": state} for number in range(40)]

    @tool
    async def get_cluster(cluster: str) -> str:
        """Read one cluster."""
        return f"{cluster} runs {state}.\n" + json.dumps({"cluster": cluster, "version": state, "nodes": 17})

    listed = await answer([list_applications, get_cluster], HumanMessage("list the applications"))
    cluster_message = await answer(
        [list_applications, get_cluster], HumanMessage("show the cluster production")
    )

    assert "40 results" in listed.text
    assert f"| app\\|0 | {state} |" in listed.text
    assert "… and 10 more." in listed.text
    assert cluster_message.text == f"production runs {state}."


async def test_a_missing_argument_is_named_with_a_way_to_ask() -> None:
    recorder = Recorder()

    message = await answer(recorder.tools("netutils"), HumanMessage("is port 8000 open?"))

    assert recorder.calls == []
    assert "`check_port`" in message.text
    assert "**host**" in message.text
    assert "`host=…`" in message.text


async def test_the_way_to_ask_works() -> None:
    recorder = Recorder()

    await answer(recorder.tools("netutils"), HumanMessage("is port 8000 open host=db01"))

    assert recorder.calls == [("netutils", "check_port", {"host": "db01", "port": 8000})]


async def test_a_value_out_of_bounds_is_refused_with_the_bounds() -> None:
    recorder = Recorder()

    message = await answer(recorder.tools("netutils"), HumanMessage("is port 99999 open on localhost?"))

    assert recorder.calls == []
    assert "`port` must be between 1 and 65535, and 99999 is not" in message.text


async def test_a_failing_tool_is_named_and_the_others_are_answered() -> None:
    recorder = Recorder(failing=frozenset({"tls_certificate"}))
    async with supervisor(OfflineModel(), agents=recorder.agents("netutils")) as client:
        stream = await client.ask("resolve example.com and show the certificate of example.com")

    assert "`tls_certificate` failed for host `example.com`: RuntimeError." in stream.answer
    assert "secret detail" not in stream.answer
    assert recorder.tokens[0] in stream.answer
    assert "❌ Netutils: Tool Tls_Certificate failed\n" in stream.notifications


async def test_an_agent_without_tools_says_so() -> None:
    message = await answer([], HumanMessage("is port 1 open on localhost?"))

    assert "No tool of this agent is available now" in message.text


async def test_it_answers_from_what_it_has_when_its_tools_are_taken_away() -> None:
    word = secrets.token_hex(6)
    call = {"name": "check_port", "args": {"host": "localhost", "port": 1}, "id": "one"}
    messages: list[BaseMessage] = [
        SystemMessage("The budget of this request is used up."),
        HumanMessage("is port 1 open on localhost?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage(json.dumps({"open": False, "word": word}), tool_call_id="one"),
    ]

    message = await OfflineModel().ainvoke(messages)

    assert word in message.text
    assert not message.tool_calls


# --- the model itself -----------------------------------------------------------------------------


async def test_it_streams_words_and_calls_in_pieces_and_counts_no_tokens() -> None:
    tools = Recorder().tools("netutils")
    called = await chunks([HumanMessage("is port 8000 open on localhost?")], tools)
    hello_chunks = await chunks([HumanMessage("hello")], tools)

    total = sum(called[1:], called[0])
    assert [(call["name"], call["args"]) for call in total.tool_calls] == [
        ("check_port", {"host": "localhost", "port": 8000})
    ]
    assert sum(bool(chunk.tool_call_chunks) for chunk in called) > 2
    assert all(len(chunk.text.split()) <= 1 for chunk in hello_chunks)
    assert total.usage_metadata == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}


async def test_the_same_input_gives_the_same_output() -> None:
    def written(received: list[AIMessageChunk]) -> list[Any]:
        return [(chunk.content, chunk.tool_call_chunks) for chunk in received]

    tools, messages = Recorder().tools("netutils"), [HumanMessage(README_QUESTION)]

    first, second = await chunks([*messages], tools), await chunks([*messages], tools)
    whole_message = await OfflineModel(disable_streaming=True).bind_tools(list(tools)).ainvoke(messages)

    assert written(first) == written(second)
    assert whole_message.tool_calls == sum(first[1:], first[0]).tool_calls


def test_it_says_what_it_is_and_how_to_configure_a_model() -> None:
    # That it is said once per conversation is shown on the wire, in test_agents_end_to_end.py.
    assert "offline router" in OFFLINE_NOTICE
    assert "LLM_MODEL" in OFFLINE_NOTICE


async def test_it_does_not_pretend_to_summarise() -> None:
    message = await OfflineModel().ainvoke(
        "Summarise the conversation below for yourself, in at most 300 words.\n\nhuman: hi"
    )

    assert message.text == ""


HOSTILE = [
    "is port 1 open on a.example.com and ",
    "a.b.",
    "((((",
    "\"'`“",
    "http://",
    "10.0.0.0/8 ",
    "port 80, ",
    "between a and ",
    "x=y ",
    "1. ",
    "\n- ",
    "a/",
    "[::1]:",
    "@",
    "😀 ",
    "\x00\x1b[31m",
    "what is what does ",
    "ports 1-2 ",
    " " * 50,
    "and then also ",
    "find for ",
    "A" * 50 + "-1 ",
]


@pytest.mark.sample(8)
@pytest.mark.parametrize("piece", HOSTILE)
async def test_the_work_for_an_endless_question_is_that_for_a_long_one(piece: str) -> None:
    # The long one first: whatever is kept between calls helps the endless one, and never the other way round.
    long, endless = await _work(piece, 10_000), await _work(piece, 100_000)

    assert endless <= long * 1.5 + 2000


async def _work(piece: str, size: int) -> int:
    """How many functions run until the reply is there.

    Regular expressions that go astray run into the test's time limit.
    """
    messages: list[BaseMessage] = [HumanMessage((piece * (size // len(piece) + 1))[:size])]
    model = OfflineModel(disable_streaming=True).bind_tools(list(Recorder().tools("netutils")))
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        message = await model.ainvoke(messages)
    finally:
        sys.setprofile(None)
    assert len(message.tool_calls) <= 16
    assert len(message.text) < 20_000
    return count


@given(st.text(max_size=300), st.text(max_size=100))
@settings(max_examples=scale_examples(30))
def test_any_text_gets_an_answer_or_a_call(question: str, before: str) -> None:
    tools = [convert_to_openai_tool(agent_tool) for agent_tool in Recorder().tools("netutils")]

    message = OfflineModel().invoke(
        [HumanMessage(before), AIMessage("."), HumanMessage(question)], tools=tools
    )

    assert message.text or message.tool_calls
