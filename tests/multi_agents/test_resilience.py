"""What breaks on the way: models that fail, calls that are wrong, tools and agents that misbehave,
histories that were cut off.
"""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from ai_platform_engineering.core.errors import AgentUnavailable
from ai_platform_engineering.core.events import Failed, ToolFinished
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import PlatformEngineerDeepAgent
from tests.conftest import ROOT
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Attempts, Book, Call, Die, Fail, Item, Say, Script, Turn
from tests.support.harness import Client, Frame, ReceivedStream, agent, supervisor
from tests.support.providers import OPENAI, PROVIDERS, Provider, run_behind_provider

WAIT = 120  # seconds after which a wait that never ends is a failure
UNREACHED = "The model's server at http://127.0.0.1:"

each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=str)


class Value:
    """A tool with a value of this run: who can tell it has called the tool."""

    def __init__(self, name: str = "look") -> None:
        self.value, self.calls = uuid.uuid4().hex, 0

        async def run() -> str:
            self.calls += 1
            return f"value={self.value}"

        self.tool: BaseTool = StructuredTool.from_function(
            coroutine=run, name=name, description="Tells the value."
        )


class Waiting:
    """A tool that waits until it is let go; what happens to it can be waited for."""

    def __init__(self, name: str = "wait") -> None:
        self.started, self.stopped = asyncio.Event(), asyncio.Event()

        async def run() -> str:
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()
            return "never"

        self.tool: BaseTool = StructuredTool.from_function(coroutine=run, name=name, description="Waits.")


LOOKING = Script(Turn(Call("look")), Turn(Say("It is {{tool:look.value}}.")))


def delegation(name: str, description: str = "Look") -> Call:
    return Call("task", {"description": description, "subagent_type": name})


def failure(stream: ReceivedStream) -> Failed:
    last = stream.events[-1]
    assert isinstance(last, Failed), last
    assert (stream.last.state, stream.last.status_text) == ("failed", last.message)
    return last


def assert_silent(stream: ReceivedStream, *secrets: str) -> None:
    for word in ("Traceback", ".py", *secrets):
        assert word.encode() not in stream.raw


async def read_until(frames: Any, is_last: Callable[[Frame], bool]) -> list[Frame]:
    stream: list[Frame] = []
    async with asyncio.timeout(WAIT):
        async for frame in frames:
            stream.append(frame)
            if is_last(frame):
                return stream
    raise AssertionError("the stream ended before")


# --- a model that fails ---------------------------------------------------------------------------

PASSING = [Fail(503), Fail(500), Fail(429), Fail(429, retry_after=0), Die()]


@pytest.mark.sample(5)
@each_provider
@pytest.mark.parametrize("trouble", PASSING, ids=["503", "500", "429", "429-retry-after", "broken"])
async def test_a_model_that_is_down_at_first_is_asked_again(provider: Provider, trouble: Item) -> None:
    look = Value()
    flaky = Script(
        Attempts(Turn(trouble), Turn(trouble), Turn(Call("look"))),
        Attempts(Turn(trouble), Turn(Say("It is {{tool:look.value}}."))),
    )
    async with run_behind_provider(provider, flaky, tools=[look.tool]) as (server, client):
        stream = await client.ask("Look")
        assert stream.answer == f"It is {look.value}."
        assert look.calls == 1
        assert len(server.requests) == 5
        assert server.refusals == []


async def test_the_time_that_a_busy_model_asks_for_is_obeyed() -> None:
    """With the own delay the question would outlast the bound."""
    busy = Script(Attempts(Turn(Fail(429, retry_after=0)), Turn(Say("Now I have time."))))
    async with run_behind_provider(OPENAI, busy, LLM_RETRY_SECONDS="3600") as (_, client):
        async with asyncio.timeout(WAIT):
            assert (await client.ask("Hello")).answer == "Now I have time."


@each_provider
async def test_a_model_that_breaks_off_is_asked_again_and_its_half_text_is_gone(provider: Provider) -> None:
    half, complete = uuid.uuid4().hex, uuid.uuid4().hex
    async with run_behind_provider(
        provider, Script(Attempts(Turn(Say(half, " and"), Die()), Turn(Say(complete, " it is."))))
    ) as (_, client):
        stream = await client.ask("Hello")
        assert stream.answer == f"{complete} it is."
        assert stream.streamed_texts == [f"{complete} it is."]
        task = (await client.call("tasks/get", {"id": stream.task_id}))["result"]
        assert half not in json.dumps(task)


@pytest.mark.sample(2)
@each_provider
@pytest.mark.parametrize("trouble", [Fail(503), Die()], ids=["503", "broken"])
async def test_after_the_last_attempt_the_run_fails_and_says_that_trying_again_helps(
    provider: Provider, trouble: Item
) -> None:
    secret = uuid.uuid4().hex
    trouble = Fail(503, message=secret) if isinstance(trouble, Fail) else trouble
    script = Script(Attempts(*[Turn(trouble)] * 2, Turn(Say("Back."))))
    async with run_behind_provider(provider, script, LLM_ATTEMPTS="2") as (server, client):
        stream = await client.ask("Hello")
        ended = failure(stream)
        assert ended.message.startswith(UNREACHED)
        assert (ended.code, ended.retryable) == ("model_unavailable", True)
        assert len(server.requests) == 2
        assert_silent(stream, secret)
        assert (await client.ask("Hello again", contextId=stream.context_id)).last.state == "failed"
        # Another conversation has the same first words, which is what the script counts attempts by.
        assert (await client.ask("Hello")).answer == "Back."
        assert (await client.http.get(client.url + "health")).status_code == 200


async def test_a_model_that_is_busy_for_too_long_is_called_busy() -> None:
    async with run_behind_provider(OPENAI, Script(Turn(Fail(429)))) as (server, client):
        ended = failure(await client.ask("Hello"))
        assert (ended.message, ended.retryable) == (
            "The model is busy (rate limit). Try again in a moment.",
            True,
        )
        assert len(server.requests) == 3


@pytest.mark.sample(3)
@each_provider
@pytest.mark.parametrize(
    ("status", "word"), [(401, "credentials"), (404, "LLM_MODEL"), (400, "refused the request")]
)
async def test_a_refusal_for_good_is_not_tried_again(provider: Provider, status: int, word: str) -> None:
    secret = uuid.uuid4().hex
    async with run_behind_provider(provider, Script(Turn(Fail(status, message=secret)))) as (server, client):
        stream = await client.ask("Hello")
        ended = failure(stream)
        assert word in ended.message
        assert not ended.retryable
        assert "not help" in ended.message
        assert len(server.requests) == 1
        assert_silent(stream, secret)


async def test_a_server_that_is_not_there_is_a_failed_task_in_words() -> None:
    async with OPENAI.serve(LOOKING) as server:
        env = OPENAI.settings(server)
    async with supervisor(None, env=env) as client:  # nothing listens there any more
        message = failure(await client.ask("Hello")).message
    assert message.startswith(UNREACHED)
    assert "could not be reached: nothing listens at its address." in message


async def test_without_a_model_the_server_answers_what_to_set() -> None:
    async with supervisor(None) as client:
        stream = await client.ask("Hello")
        assert "LLM_MODEL" in failure(stream).message
        assert (await client.http.get(client.url + "ready")).status_code == 503


# --- histories that were cut off ------------------------------------------------------------------


async def cancel_in(client: Client, waiting: Waiting, question: str) -> ReceivedStream:
    """Asks, cancels while the tool waits, and gives what the stream held."""
    frames = client.stream(question)
    stream = await read_until(
        frames, lambda frame: frame.name == "tool_notification_start" and "Wait" in frame.text
    )
    await asyncio.wait_for(waiting.started.wait(), WAIT)
    answer = await client.call("tasks/cancel", {"id": ReceivedStream(stream).task_id})
    assert answer["result"]["status"]["state"] == "canceled"
    stream += [frame async for frame in frames]
    assert waiting.stopped.is_set()
    assert stream[-1].state == "canceled"
    return ReceivedStream(stream)


@pytest.mark.sample(3)
@each_provider
@pytest.mark.parametrize(
    "calls",
    [(Call("wait"),), (Call("look"), Call("wait")), (Call("wait"), Call("look"), Call("look"))],
    ids=["one", "a-done-one-before", "done-ones-behind"],
)
async def test_after_a_cancel_in_a_tool_the_next_question_is_answered(
    provider: Provider, calls: tuple[Call, ...]
) -> None:
    look, waiting = Value(), Waiting()
    book = Book({"^Stop": Script(Turn(Say("I wait."), *calls)), "^Go": LOOKING})
    async with run_behind_provider(provider, book, tools=[look.tool, waiting.tool]) as (server, client):
        stopped = await cancel_in(client, waiting, "Stop")
        stream = await client.ask("Go on", contextId=stopped.context_id)
        assert stream.answer == f"It is {look.value}."
        assert server.refusals == []
        history = server.requests[-1].messages
        assert [m.text for m in history if m.role == "user"] == ["Stop", "Go on"], (
            "the model knows what was asked before"
        )
        assert any("Interrupted" in m.text for m in history if m.role == "tool")


@each_provider
async def test_after_a_cancel_inside_an_agent_the_next_question_is_answered(provider: Provider) -> None:
    look, waiting = Value(), Waiting()
    book = Book(
        {
            "^Stop": Script(Turn(delegation("argocd", "Wait for it"))),
            "^Wait": Script(Turn(Call("wait"))),
            "^Go": Script(Turn(delegation("argocd")), Turn(Say("Argo CD: {{tool:argocd}}"))),
            "^Look": LOOKING,
        }
    )
    async with provider.serve(book) as server:
        argocd = agent("argocd", None, look.tool, waiting.tool)
        async with supervisor(None, agents=[argocd], env=provider.settings(server)) as client:
            stopped = await cancel_in(client, waiting, "Stop")
            stream = await client.ask("Go on", contextId=stopped.context_id)
            assert stream.answer == f"Argo CD: It is {look.value}."
            assert server.refusals == []


@each_provider
async def test_after_too_many_steps_the_next_question_is_answered(provider: Provider) -> None:
    look = Value()
    book = Book({"^Stop": Script(Turn(Call("look"), Call("look"))), "^Go": LOOKING})
    async with run_behind_provider(provider, book, tools=[look.tool], LANGGRAPH_RECURSION_LIMIT="7") as (
        server,
        client,
    ):
        first = await client.ask("Stop")
        assert first.last.state == "completed"
        assert first.answer.startswith(
            "I stopped before I had a complete answer: the limit of steps is near."
        )
        assert look.value in first.answer
        stream = await client.ask("Go on", contextId=first.context_id)
        assert stream.answer == f"It is {look.value}."
        assert server.refusals == []


@pytest.mark.sample(3)
@each_provider
@pytest.mark.parametrize("when", [0, 1, 2])
async def test_after_a_failed_run_the_next_question_is_answered(provider: Provider, when: int) -> None:
    look = Value()
    turns = [Turn(Say("I look."), Call("look"), Call("look")), Turn(Call("look")), Turn(Say("Done."))]
    turns[when] = Turn(Fail(400))
    async with run_behind_provider(
        provider, Book({"Go on$": LOOKING, "^Stop": Script(*turns)}), tools=[look.tool]
    ) as (server, client):
        first = await client.ask("Stop")
        assert failure(first).code == "model_refused"
        stream = await client.ask("Go on", contextId=first.context_id)
        assert stream.answer == f"It is {look.value}."
        assert server.refusals == []


# --- calls that are wrong -------------------------------------------------------------------------

BROKEN = ["{place: 1}", "not JSON", '{"place": 1}}', "[1, 2]", '"text"']


def stumbling(broken: str, text: str = "") -> Callable[[Request], Turn]:
    """The first call has arguments that are no JSON; told so, it calls properly, and then it answers."""

    def turn(request: Request) -> Turn:
        results = [message for message in request.since_user if message.role == "tool"]
        if any("value=" in message.text for message in results):
            return Turn(Say("It is {{tool:look.value}}."))
        if any("not valid JSON" in message.text for message in results):
            return Turn(Call("look"))
        return Turn(*([Say(text)] if text else []), Call("look", arg_pieces=(broken,)))

    return turn


@pytest.mark.sample(5)
@each_provider
@pytest.mark.parametrize("broken", BROKEN)
async def test_arguments_that_are_no_json_are_asked_for_again(provider: Provider, broken: str) -> None:
    look = Value()
    async with run_behind_provider(provider, Script(stumbling(broken)), tools=[look.tool]) as (
        server,
        client,
    ):
        stream = await client.ask("Look")
        assert stream.last.state == "completed", stream.last.status_text
        assert stream.answer == f"It is {look.value}."
        assert look.calls == 1
        assert server.refusals == []


@each_provider
async def test_what_was_said_with_a_broken_call_is_not_said_twice(provider: Provider) -> None:
    look, words = Value(), uuid.uuid4().hex
    async with run_behind_provider(
        provider, Script(stumbling("not JSON", text=words)), tools=[look.tool]
    ) as (server, client):
        stream = await client.ask("Look")
        assert stream.answer == f"It is {look.value}."
        assert stream.streamed_texts == [stream.answer]
        again = await client.ask("And now?", contextId=stream.context_id)
        assert again.last.state == "completed"
        assert server.refusals == []


async def test_an_agent_with_arguments_that_are_no_json_is_asked_again() -> None:
    look = Value()
    book = Book(
        {
            "^Look": Script(stumbling("not JSON")),
            "^Go": Script(Turn(delegation("argocd")), Turn(Say("Argo CD: {{tool:argocd}}"))),
        }
    )
    async with run_behind_provider(OPENAI, book, agents=[agent("argocd", None, look.tool)]) as (
        server,
        client,
    ):
        assert (await client.ask("Go")).answer == f"Argo CD: It is {look.value}."
        assert server.refusals == []


@each_provider
async def test_a_model_that_never_gives_valid_arguments_ends_in_words(provider: Provider) -> None:
    look = Value()
    book = Book({"Go on$": LOOKING, "^Look": Script(Turn(Call("look", arg_pieces=("not JSON",))))})
    async with run_behind_provider(provider, book, tools=[look.tool]) as (server, client):
        stream = await client.ask("Look")
        assert stream.last.state == "completed"
        assert "the model's tool calls could not be read" in stream.answer
        assert look.calls == 0
        again = await client.ask("Go on", contextId=stream.context_id)
        assert again.answer == f"It is {look.value}."
        assert server.refusals == []


@each_provider
async def test_a_valid_call_beside_a_broken_one_is_made(provider: Provider) -> None:
    look = Value()
    script = Script(
        Turn(Call("look"), Call("other", arg_pieces=("not JSON",))), Turn(Say("It is {{tool:look.value}}."))
    )
    book = Book({"^Look": script, "^Go": LOOKING})
    async with run_behind_provider(provider, book, tools=[look.tool]) as (server, client):
        stream = await client.ask("Look")
        assert stream.last.state == "completed", stream.last.status_text
        assert look.calls == 1
        assert (await client.ask("Go on", contextId=stream.context_id)).answer == f"It is {look.value}."
        assert server.refusals == []


@each_provider
async def test_a_call_that_was_cut_off_is_not_made_with_what_is_there(provider: Provider) -> None:
    """Clients complete half an object to a whole one: `{"names": ["a", "b` would delete two things of
    three.
    """
    deleted: list[list[str]] = []

    @tool
    async def delete(names: list[str]) -> str:
        """Deletes."""
        deleted.append(names)
        return f"value={len(names)}"

    def turn(request: Request) -> Turn:
        if any("value=" in message.text for message in request.since_user):
            return Turn(Say("Deleted {{tool:delete.value}}."))
        if any("not valid JSON" in message.text for message in request.since_user):
            return Turn(Call("delete", {"names": ["a", "b", "c"]}))
        return Turn(Say("I delete."), Call("delete", arg_pieces=('{"names": ["a", ', '"b')), cut=True)

    async with run_behind_provider(provider, Script(turn), tools=[delete]) as (server, client):
        stream = await client.ask("Delete all three")
        assert stream.answer == "Deleted 3."
        assert deleted == [["a", "b", "c"]]
        assert server.refusals == []
        assert (await client.ask("Again", contextId=stream.context_id)).last.state == "completed"
        assert server.refusals == []


@pytest.mark.sample(1)
@each_provider
async def test_of_several_calls_only_the_one_that_was_cut_off_is_left_out(provider: Provider) -> None:
    look, other = Value(), Value("other")
    first = Turn(Call("look"), Call("other", arg_pieces=("{",)), cut=True)
    book = Book(
        {"^Look": Script(first, Turn(Say("It is {{tool:look.value}}: {{tool:other}}"))), "^Go": LOOKING}
    )
    async with run_behind_provider(provider, book, tools=[look.tool, other.tool]) as (server, client):
        stream = await client.ask("Look")
        assert stream.answer.startswith(f"It is {look.value}: ")
        assert (look.calls, other.calls) == (1, 0)
        assert (await client.ask("Go on", contextId=stream.context_id)).answer == f"It is {look.value}."
        assert server.refusals == []


@each_provider
async def test_an_unknown_tool_is_told_to_the_model_and_the_run_goes_on(provider: Provider) -> None:
    look = Value()
    script = Script(
        Turn(Call("ghost", {"a": 1})), Turn(Call("look")), Turn(Say("{{tool:look.value}} and {{tool:ghost}}"))
    )
    async with run_behind_provider(provider, script, tools=[look.tool]) as (server, client):
        stream = await client.ask("Look")
        assert stream.answer.startswith(f"{look.value} and ")
        assert "ghost" in stream.answer
        assert "look" in stream.answer.partition(" and ")[2], "the model is told what there is"
        assert stream.notifications[:2] == [
            "🔧 Supervisor: Calling tool: Ghost\n",
            "❌ Supervisor: Tool Ghost failed\n",
        ]
        assert server.refusals == []


async def test_an_unknown_agent_is_told_to_the_model_and_the_run_goes_on() -> None:
    look = Value()
    script = Script(
        Turn(delegation("ghost")),
        Turn(delegation("argocd")),
        Turn(Say("{{tool:argocd}} But: {{tool:ghost}}")),
    )
    async with supervisor(script, agents=[agent("argocd", LOOKING, look.tool)]) as client:
        stream = await client.ask("Look")
        assert stream.answer == f"It is {look.value}. But: There is no agent ghost. The agents are: argocd."
        assert stream.notifications[:2] == [
            "🔧 Supervisor: Calling Agent Ghost...\n",
            "❌ Supervisor: Ghost failed\n",
        ]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "call",
    [
        Call("task", {}),
        Call("task", {"description": 1, "subagent_type": ["a"]}),
        Call("measure", {"at": "no number"}),
        Call("write_todos", {}),
    ],
    ids=lambda call: f"{call.name}{dict(call.args)}",
)
async def test_arguments_that_do_not_fit_are_told_to_the_model(call: Call) -> None:
    @tool
    async def measure(at: int) -> str:
        """Measures."""
        return f"measured at {at}"

    look = Value()
    script = Script(Turn(call), Turn(Call("look")), Turn(Say("It is {{tool:look.value}}.")))
    async with supervisor(
        script, agents=[agent("argocd", LOOKING, look.tool)], tools=[measure, look.tool]
    ) as client:
        stream = await client.ask("Look")
        assert stream.last.state == "completed", stream.last.status_text
        assert stream.answer == f"It is {look.value}."
        assert_silent(stream)


# --- tools that misbehave -------------------------------------------------------------------------


def returning(content: Any, name: str = "odd") -> BaseTool:
    async def run() -> Any:
        return content

    return StructuredTool.from_function(coroutine=run, name=name, description="Returns something.")


ODD: dict[str, Any] = {
    "blocks": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}],
    "strings": ["one", "two"],
    "no_blocks": [],
    "nested": {"a": [1, {"b": None}], "c": float("nan")},
    "nothing": None,
    "empty": "",
    "blank": " \n ",
    "number": 10**30,
    "bytes": b"\x00\xff",
    "unicode": "日本語 🧨 é \u2028 \u0085 \ufeff \U0010ffff",
    "nul": "a\x00b",
    "surrogates": "a\ud800b\udc00c",
    "blocks_of_surrogates": [{"type": "text", "text": "x\ud83dy"}],
    "data_of_surrogates": {"k\ud800": "v\udfff"},
    "huge": "x" * 1_000_000,
    "an_exception": ValueError("as a value"),
}


@pytest.mark.sample(1)
@each_provider
async def test_whatever_tools_return_the_run_goes_on(provider: Provider) -> None:
    look = Value()
    script = Script(Turn(*map(Call, ODD), Call("look")), Turn(Say("It is {{tool:look.value}}.")))
    tools = [look.tool, *(returning(content, name) for name, content in ODD.items())]
    async with run_behind_provider(provider, script, tools=tools) as (server, client):
        stream = await client.ask("Look")
        assert stream.last.state == "completed", stream.last.status_text
        assert stream.answer == f"It is {look.value}."
        assert server.refusals == []
        finished = {event.tool: event.outcome for event in stream.events if isinstance(event, ToolFinished)}
        assert finished == {**dict.fromkeys(ODD, "ok"), "look": "ok"}
        assert (await client.ask("Look again", contextId=stream.context_id)).answer == stream.answer


@each_provider
async def test_half_characters_in_the_arguments_of_a_call_do_no_lasting_harm(provider: Provider) -> None:
    look = Value()

    @tool
    async def echo(text: str) -> str:
        """Says it again."""
        return text

    halves = Script(
        Turn(Call("echo", arg_pieces=('{"text": "a\\ud83d', 'b\\u0000"}')), Call("look")),
        Turn(Say("It is {{tool:look.value}}.")),
    )
    async with run_behind_provider(provider, halves, tools=[look.tool, echo]) as (server, client):
        stream = await client.ask("Look")
        assert stream.last.state == "completed", stream.last.status_text
        assert (await client.ask("Look again", contextId=stream.context_id)).answer == f"It is {look.value}."
        assert server.refusals == []


async def test_text_of_a_tool_reaches_the_model_and_the_reader_as_it_is() -> None:
    text = f"日本語 🧨 é {uuid.uuid4().hex}"
    script = Script(Turn(Call("odd")), Turn(Say("{{tool:odd}}")))
    async with run_behind_provider(OPENAI, script, tools=[returning(text)]) as (_, client):
        assert (await client.ask("Look")).answer == text


def raising(error: BaseException) -> BaseTool:
    async def run() -> str:
        raise error

    return StructuredTool.from_function(coroutine=run, name="odd", description="Fails.")


SECRET = f"secret-{uuid.uuid4().hex}"
RAISED: dict[str, BaseException] = {
    "value": ValueError(SECRET),
    "timeout": TimeoutError(SECRET),
    "group": ExceptionGroup(SECRET, [OSError(SECRET)]),
    "cancelled": asyncio.CancelledError(SECRET),
    "stop": StopAsyncIteration(SECRET),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED.keys())
@pytest.mark.parametrize("inside", [False, True], ids=["supervisor", "agent"])
async def test_whatever_a_tool_raises_is_a_failed_tool_and_its_text_stays_inside(
    error: BaseException, inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    look = Value()
    script = Script(Turn(Call("odd"), Call("look")), Turn(Say("It is {{tool:look.value}}: {{tool:odd}}")))
    model = ScriptedChatModel(script=script)
    tools = [raising(error), look.tool]
    outer = Script(Turn(delegation("argocd")), Turn(Say("{{tool:argocd}}")))
    who = "Argocd" if inside else "Supervisor"
    async with supervisor(
        outer if inside else model,
        agents=[agent("argocd", model, *tools)] if inside else [],
        tools=[] if inside else tools,
    ) as client:
        async with asyncio.timeout(WAIT):
            stream = await client.ask("Look")
        assert stream.last.state == "completed", stream.last.status_text
        assert stream.answer == f"It is {look.value}: odd failed: {type(error).__name__}"
        assert f"❌ {who}: Tool Odd failed\n" in stream.notifications
        assert f"✅ {who}: Tool Look completed\n" in stream.notifications
        assert_silent(stream, SECRET)
        assert SECRET not in repr(model.requests)
        assert SECRET not in caplog.text


async def test_an_error_of_ours_is_told_in_its_words() -> None:
    script = Script(Turn(Call("odd")), Turn(Say("{{tool:odd}}")))
    async with supervisor(
        script, tools=[raising(AgentUnavailable("The far end is closed on Sundays."))]
    ) as client:
        assert (await client.ask("Look")).answer == "odd failed: The far end is closed on Sundays."


# --- agents that misbehave ------------------------------------------------------------------------

DYING: dict[str, tuple[Item, ...]] = {
    "at once": (Die(),),
    "in mid-text": (Say("I was about to", " say"), Die()),
    "refused": (Fail(401),),
    "empty": (),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("items", DYING.values(), ids=DYING.keys())
async def test_an_agent_whose_model_dies_fails_alone(items: tuple[Item, ...]) -> None:
    book = Book(
        {
            "^Go": Script(Turn(delegation("argocd", "Ask it")), Turn(Say("Sorry: {{tool:argocd}}"))),
            "^(Ask|Your last message)": Script(Turn(*items)),
        },
    )
    async with run_behind_provider(OPENAI, book, agents=[agent("argocd", None)]) as (server, client):
        stream = await client.ask("Go")
        assert stream.last.state == "completed", stream.last.status_text
        assert stream.answer.startswith("Sorry: Agent argocd ")
        assert stream.notifications == [
            "🔧 Supervisor: Calling Agent Argocd...\n",
            "❌ Supervisor: Argocd failed\n",
        ]
        assert_silent(stream)
        assert server.refusals == []


async def test_an_agent_whose_model_is_not_there_fails_alone() -> None:
    script = Script(Turn(delegation("argocd")), Turn(Say("Sorry: {{tool:argocd}}")))
    async with supervisor(script, agents=[agent("argocd", None, model="nobody:nothing")]) as client:
        stream = await client.ask("Go")
        assert stream.answer.startswith("Sorry: Agent argocd failed: ")
        assert_silent(stream)


@pytest.mark.sample(1)
@each_provider
async def test_when_one_of_parallel_agents_fails_the_work_of_the_others_is_kept(provider: Provider) -> None:
    looks = {"argocd": Value(), "jira": Value()}
    everything = "{{tool:argocd}} {{tool:jira}} {{tool:github}}"
    book = Book(
        {
            "^Go": Script(
                Turn(*(delegation(name, f"Ask {name}") for name in ("argocd", "github", "jira"))),
                Turn(Say(everything)),
            ),
            "^Ask github": Script(Turn(Fail(401))),
            "^Ask": LOOKING,
        }
    )
    async with provider.serve(book) as server:
        agents = [agent("github", None), *(agent(name, None, look.tool) for name, look in looks.items())]
        async with supervisor(None, agents=agents, env=provider.settings(server)) as client:
            stream = await client.ask("Go")
            results = f"It is {looks['argocd'].value}. It is {looks['jira'].value}. Agent github failed: "
            assert stream.answer.startswith(results)
            ends = {
                word
                for word in stream.texts("tool_notification_end")
                if word.startswith(("✅ Supervisor", "❌ Supervisor"))
            }
            assert ends == {
                "✅ Supervisor: Argocd completed\n",
                "✅ Supervisor: Jira completed\n",
                "❌ Supervisor: Github failed\n",
            }
            assert server.refusals == []


# --- LangGraph Studio -----------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "attached"), [("true", False), ("1", False), ("", True), ("false", True)])
async def test_in_studio_no_checkpointer_is_attached(value: str, attached: bool) -> None:
    settings = Settings.from_variables({"LANGGRAPH_DEV": value})
    model = ScriptedChatModel(script=LOOKING)
    graph = await PlatformEngineerDeepAgent(settings, model=model, checkpointer=InMemorySaver()).graph()
    assert (graph.checkpointer is not None) == attached


async def test_in_studio_the_server_still_answers() -> None:
    look = Value()
    async with supervisor(LOOKING, tools=[look.tool], env={"LANGGRAPH_DEV": "true"}) as client:
        assert (await client.ask("Look")).answer == f"It is {look.value}."


STUDIO = """
import asyncio, importlib, sys
module, _, name = sys.argv[1].partition(":")
async def main():
    graph = await getattr(importlib.import_module(module), name)()
    assert graph.checkpointer is None
    answer = await graph.ainvoke({"messages": [("user", "Hello")]})
    print(answer["messages"][-1].text)
asyncio.run(main())
"""


@pytest.mark.full
async def test_the_factory_that_studio_is_told_of_builds_a_graph_from_settings(
    guarded_environment: dict[str, str],
) -> None:
    config = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))
    [factory] = config["graphs"].values()
    value = uuid.uuid4().hex
    async with OPENAI.serve(Script(Turn(Say(f"I am {value}.")))) as server:
        env = {**guarded_environment, "LANGGRAPH_DEV": "true", **OPENAI.settings(server)}
        env |= {name: os.environ[name] for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL")}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            STUDIO,
            factory,
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode == 0, err.decode()
        assert out.decode().strip() == f"I am {value}."
        assert server.refusals == []
