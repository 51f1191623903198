"""A model message with thousands of tool calls: it is cut before it is stored, everybody is told, and the
server stays responsive.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, tool
from pydantic import PrivateAttr

from ai_platform_engineering.core.events import ToolFinished
from ai_platform_engineering.core.message_metadata import LeftOutCallsNote
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.runtime.checkpoints.checkpointer import open_checkpoints
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import ReceivedStream, agent, supervisor
from tests.support.health_witness import health_witness
from tests.support.storages import in_folder, supervisor_on

AT_ONCE = 50


class FloodingModel(BaseChatModel):
    """Writes `count` calls in one message, each in two pieces, then an answer; it notes what it was told."""

    count: int
    tool: str = "dig"
    arguments: str = '{"place": NUMBER}'  # NUMBER: that of the call
    whole: bool = False  # not streamed
    blocks: bool = False  # calls are content blocks, too
    same_index: bool = False  # every call has the same index, as some servers do
    _prompts: list[str] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "flooding"

    @property
    def prompts(self) -> list[str]:
        """The system prompts of the requests, in order."""
        return self._prompts

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind()

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self._note(messages)
        if isinstance(messages[-1], ToolMessage):
            return ChatResult(generations=[ChatGeneration(message=AIMessage("Done."))])
        calls: list[Any] = [
            {"name": self.tool, "args": json.loads(self._arguments_of(n)), "id": f"c{n}"}
            for n in range(self.count)
        ]
        content: Any = ""
        if self.blocks:
            content = [
                {"type": "tool_use", "id": call["id"], "name": self.tool, "input": {}} for call in calls
            ]
        message = AIMessage(content, tool_calls=calls, additional_kwargs={"tool_calls": list(calls)})
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if self.whole:
            raise NotImplementedError
        self._note(messages)
        if isinstance(messages[-1], ToolMessage):
            yield ChatGenerationChunk(message=AIMessageChunk("Done."))
            return
        for number in range(self.count):
            await asyncio.sleep(0)
            index = 0 if self.same_index else number
            block = {"type": "tool_use", "id": f"c{number}", "name": self.tool, "input": {}, "index": index}
            begun = tool_call_chunk(name=self.tool, args="", id=f"c{number}", index=index)
            rest = tool_call_chunk(name=None, args=self._arguments_of(number), id=None, index=index)
            if self.same_index:
                whole = self._arguments_of(number)
                begun = tool_call_chunk(name=self.tool, args=whole, id=f"c{number}", index=index)
                rest = tool_call_chunk(name=None, args="", id=f"c{number}", index=index)
            content: Any = [block] if self.blocks else ""
            yield ChatGenerationChunk(message=AIMessageChunk(content, tool_call_chunks=[begun]))
            yield ChatGenerationChunk(
                message=AIMessageChunk([] if self.blocks else "", tool_call_chunks=[rest])
            )

    def _arguments_of(self, number: int) -> str:
        return self.arguments.replace("NUMBER", str(number))

    def _should_stream(self, **kwargs: Any) -> bool:
        return not self.whole

    def _note(self, messages: Sequence[BaseMessage]) -> None:
        systems = [message for message in messages if isinstance(message, SystemMessage)]
        self._prompts.append(systems[0].text if systems else "")


class Mine:
    """A tool that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

        @tool
        async def dig(place: int) -> str:
            """Dig."""
            self.calls += 1
            return f"depth {self.calls}"

        self.tool: BaseTool = dig


def notices(stream: ReceivedStream) -> list[str]:
    return [frame.status_text for frame in stream.frames if frame.state == "working" and frame.status_text]


def left_out_notice(total: int, made: int = AT_ONCE) -> str:
    return f"The model asked for {total} tool calls at once: {made} are made, {total - made} are left out."


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.full)])
async def test_a_flood_of_calls_is_cut_and_the_server_answers_all_the_while(
    tmp_path: Path, count: int
) -> None:
    model, mine = FloodingModel(count=count), Mine()
    async with (
        supervisor_on(in_folder(tmp_path), model, tools=[mine.tool]) as client,
        health_witness(client.url),
    ):
        stream = await client.ask("Dig")
    assert stream.answer == "Done."
    assert mine.calls == AT_ONCE
    assert notices(stream) == [left_out_notice(count)]
    assert f"Your last message had {count} tool calls." in model.prompts[-1]
    assert f"{count - AT_ONCE} were left out" in model.prompts[-1]
    stored = await read_model_messages(tmp_path)
    assert [len(message.tool_calls) for message in stored] == [AT_ONCE, 0]
    assert LeftOutCallsNote.of(stored[0]) == LeftOutCallsNote(count - AT_ONCE)


async def read_model_messages(folder: Path) -> list[AIMessage]:
    """The messages of the model in the only conversation, as the next process would read them."""
    checkpoints = await open_checkpoints(Settings.from_variables({}).storage, folder / "supervisor")
    try:
        [restored] = [checkpoint async for checkpoint in checkpoints.saver.alist(None)]
        messages = restored.checkpoint["channel_values"]["messages"]
        return [message for message in messages if isinstance(message, AIMessage)]
    finally:
        await checkpoints.aclose()


@pytest.mark.sample(3)
@pytest.mark.parametrize("flood", [{"whole": True}, {"blocks": True}, {"same_index": True}], ids=str)
@pytest.mark.parametrize("blocks", [False, True])
async def test_every_shape_of_a_message_is_cut(flood: dict[str, bool], blocks: bool) -> None:
    model, mine = FloodingModel(count=300, **{"blocks": blocks, **flood}), Mine()
    async with supervisor(model, tools=[mine.tool]) as client:
        stream = await client.ask("Dig")
    assert (stream.answer, mine.calls) == ("Done.", AT_ONCE)
    assert notices(stream) == [left_out_notice(300)]


async def test_what_remains_of_the_limit_of_the_run_counts() -> None:
    model, mine = FloodingModel(count=300), Mine()
    async with supervisor(model, tools=[mine.tool], env={"TOOL_CALL_LIMIT": "7"}) as client:
        stream = await client.ask("Dig")
    assert (stream.answer, mine.calls) == ("Done.", 7)
    assert notices(stream) == [
        left_out_notice(300),
        "I stop using tools and answer now: 7 tool calls are the most for one question.",
    ]
    assert "250 were left out" in model.prompts[-1]
    refused = [call.error or "" for call in finished_calls(stream) if call.outcome == "error"]
    assert len(refused) == AT_ONCE - 7
    assert all(text.startswith("Not run: the budget of this request is used up") for text in refused)


async def test_calls_beyond_the_budget_of_the_run_get_a_result_and_do_not_run() -> None:
    model, mine = FloodingModel(count=9), Mine()
    async with supervisor(model, tools=[mine.tool], env={"RUN_TOOL_CALL_LIMIT": "4"}) as client:
        stream = await client.ask("Dig")
    assert (stream.answer, mine.calls) == ("Done.", 4)
    refused = [call.error or "" for call in finished_calls(stream) if call.outcome == "error"]
    assert (
        refused
        == [
            "Not run: the budget of this request is used up (4 tool calls are what remained for it). "
            "Answer from what you have, and say what is missing."
        ]
        * 5
    )


@pytest.mark.parametrize("whole", [False, True])
async def test_the_same_call_many_times_in_one_message_runs_a_few_times(whole: bool) -> None:
    model, mine = FloodingModel(count=30, arguments='{"place": 1}', whole=whole), Mine()
    async with supervisor(model, tools=[mine.tool]) as client:
        stream = await client.ask("Dig")
    assert (stream.answer, mine.calls) == ("Done.", 6)
    assert notices(stream) == ["I stop using tools and answer now: dig gave the same result 6 times."]


def finished_calls(stream: ReceivedStream) -> list[ToolFinished]:
    return [event for event in stream.events if isinstance(event, ToolFinished)]


async def test_an_agent_is_cut_as_the_supervisor_is() -> None:
    model, mine = FloodingModel(count=300), Mine()
    script = Script(
        Turn(Call("task", {"description": "Dig", "subagent_type": "digger"})),
        Turn(Say("It said: {{tool:task}}")),
    )
    async with supervisor(script, agents=[agent("digger", model, mine.tool)]) as client:
        stream = await client.ask("Dig")
    assert (stream.answer, mine.calls) == ("It said: Done.", AT_ONCE)
    assert notices(stream) == [left_out_notice(300)]


async def test_delegations_are_cut_as_other_calls_are() -> None:
    asked: list[str] = []

    def answer(request: Request) -> Turn:
        asked.append(request.last_user)
        return Turn(Say("Dug."))

    model = FloodingModel(
        count=300, tool="task", arguments='{"description": "Dig", "subagent_type": "digger"}'
    )
    digger = agent("digger", Script(answer))
    async with (
        supervisor(model, agents=[digger], env={"TOOL_CALLS_AT_ONCE": "3"}) as client,
        health_witness(client.url),
    ):
        stream = await client.ask("Dig")
    assert (stream.answer, len(asked)) == ("Done.", 3)
    assert notices(stream) == [left_out_notice(300, made=3)]


@pytest.mark.parametrize("whole", [False, True])
async def test_arguments_without_end_stop_the_model_with_a_sentence(whole: bool) -> None:
    arguments = '{"place": 1, "x": "' + "x" * 5_000 + '"}'
    model, mine = FloodingModel(count=40, arguments=arguments, whole=whole), Mine()
    async with supervisor(model, tools=[mine.tool]) as client, health_witness(client.url):
        stream = await client.ask("Dig")
    assert stream.last.state == "failed"
    assert "more than 100000 characters of arguments" in stream.last.status_text
    assert mine.calls == 0


async def test_a_message_within_the_budget_stays_as_it_is() -> None:
    model, mine = FloodingModel(count=AT_ONCE), Mine()
    async with supervisor(model, tools=[mine.tool]) as client:
        stream = await client.ask("Dig")
    assert (stream.answer, mine.calls) == ("Done.", AT_ONCE)
    assert notices(stream) == []
    assert not any("left out" in prompt for prompt in model.prompts)
