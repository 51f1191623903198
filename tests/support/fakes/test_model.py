"""The scripted model and the corpora, alone and in an agent."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core import exceptions as errors
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from pydantic import BaseModel

from tests.support.fakes.corpora import CORPORA, Corpus, CorpusChatModel
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import (
    Call,
    Die,
    Fail,
    Gate,
    GateTimeout,
    Hang,
    Request,
    Say,
    Script,
    ScriptError,
    Think,
    Turn,
    words,
)

MODES = ["messages", "updates", "custom", "tools", "tasks"]


class Answer(BaseModel):
    """The structured answer."""

    text: str


def look(org: str, limit: int = 1) -> str:
    """List the repositories."""
    return f"found count={limit} in {org}"


async def collect(stream: AsyncIterator[Any]) -> AIMessageChunk:
    total: AIMessageChunk | None = None
    async for chunk in stream:
        total = chunk if total is None else total + chunk
    assert total is not None
    return total


def test_words_join_to_the_text() -> None:
    assert words("  one two\n\nthree ") == ("  ", "one ", "two\n\n", "three ")
    assert Say("a", "b").text == "ab"


async def test_argument_pieces_wait_for_what_they_make_visible() -> None:
    gate = Gate()
    call = Call("Answer", {"text": "onetwo"}, arg_pieces=('{"text": "one', 'two"}'), gated=("one", None))
    model = ScriptedChatModel(script=Script(Turn(call, gate=gate)))
    got: list[str] = []
    async for chunk in model.astream("Hello"):
        assert isinstance(chunk, AIMessageChunk)
        got += [str(c["args"]) for c in chunk.tool_call_chunks]
        if got[-1:] == ['{"text": "one']:
            asyncio.get_running_loop().call_later(0.01, gate.seen, b'data: {"text":"one')
    assert "".join(got) == '{"text": "onetwo"}'
    with pytest.raises(GateTimeout, match="'one'"):
        await collect(ScriptedChatModel(script=Script(Turn(call, gate=Gate(timeout=0.02)))).astream("Hello"))


def test_steps_by_position_by_function_and_past_the_end() -> None:
    def counted(request: Request) -> Turn:
        return Turn(Say(f"{len(request.messages)} messages"))

    asked = [HumanMessage("Hello"), AIMessage("one")]
    assert ScriptedChatModel(script=Script(Turn(), counted)).invoke(asked).text == "2 messages"
    assert ScriptedChatModel(script=Script(Turn(Say("again")))).invoke(asked).text == "again"
    with pytest.raises(ScriptError, match="asked for turn 2, there are 1"):
        ScriptedChatModel(script=Script(Turn(), exhausted="error")).invoke(asked)


async def test_the_model_in_an_agent_streams_words_and_calls() -> None:
    script = Script(
        Turn(Think("hm"), Say("I look first."), Call("look", {"org": "acme", "limit": 3})),
        Turn(Say("There are {{tool:look.count}}.")),
    )
    model = ScriptedChatModel(script=script)
    seen: dict[str, list[Any]] = {mode: [] for mode in MODES}
    stream = create_agent(model, [look]).astream(
        {"messages": "Hello"}, stream_mode=MODES, subgraphs=True, version="v2"
    )
    async for part in stream:
        seen[part["type"]].append(part["data"])
    texts = [
        str(message.text)
        for message, _ in seen["messages"]
        if isinstance(message, AIMessageChunk) and message.text
    ]
    assert texts == ["I ", "look ", "first.", "There ", "are ", "3."]
    assert [event["event"] for event in seen["tools"]] == ["tool-started", "tool-finished"]
    assert [r.tools for r in model.requests] == [("look",), ("look",)] == model.bound_tools


@pytest.mark.parametrize("streaming", [True, False])
async def test_the_model_gives_structured_answers(streaming: bool) -> None:
    script = Script(
        Turn(Call("look", {"org": "acme"})), Turn(Call("Answer", {"text": "{{tool:look.count}}"}), id="given")
    )
    model = ScriptedChatModel(script=script, streaming=streaming)
    agent = create_agent(model, [look], response_format=ToolStrategy(Answer))
    parts = [part async for part in agent.astream({"messages": "Hello"}, stream_mode=["messages", "values"])]
    assert parts[-1][1]["structured_response"] == Answer(text="1")
    assert parts[-1][1]["messages"][-2].id == "given"
    assert any(isinstance(data[0], AIMessageChunk) for mode, data in parts if mode == "messages") is streaming
    assert [r.stream for r in model.requests] == [streaming, streaming]


async def test_the_model_fails_in_its_process() -> None:
    failures = {
        Fail(503): ConnectionError,
        Fail(503, message="seen as a model error too"): errors.ModelAPIError,
        Fail(429): errors.ModelRateLimitError,
        Fail(400, "context_length_exceeded"): errors.ContextOverflowError,
        Fail(400): errors.ModelInvalidRequestError,
        Fail(error=KeyError("special")): KeyError,
        Die(): ConnectionError,
    }
    for item, expected in failures.items():
        with pytest.raises(expected):
            await collect(ScriptedChatModel(script=Script(Turn(Say("one"), item))).astream("Hello"))
    model = ScriptedChatModel(script=Script(Turn(Hang())))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(model.ainvoke("Hello"), 0.05)
    assert model.abandoned == model.requests


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.name)
async def test_corpora_mean_what_they_say(corpus: Corpus) -> None:
    model = CorpusChatModel(replies=(corpus, CORPORA[0]))
    whole = await collect(model.astream("Hello"))
    assert [(c["name"], c["args"], c["id"]) for c in whole.tool_calls] == [
        (c.name, c.args, c.id) for c in corpus.calls
    ]
    assert (await model.ainvoke("Hello")).text == whole.text
    if not corpus.inline:
        assert "".join(str(chunk.text) for chunk in corpus.chunks) == whole.text == corpus.text
        blocks = [block for chunk in corpus.chunks for block in chunk.content_blocks]
        assert (
            "".join(str(block.get("reasoning", "")) for block in blocks if block["type"] == "reasoning")
            == corpus.reasoning
        )
    else:
        assert set(corpus.text + corpus.reasoning) <= set(whole.text)
    assert (await model.ainvoke([HumanMessage("Hello"), AIMessage("")])).text == CORPORA[0].text
