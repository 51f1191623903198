"""Long conversations against a provider with a small window: every answer is right, every history whole,
and no summary is seen.
"""

import json
import random
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool

from tests.support.fakes.request import Request
from tests.support.fakes.script import Book, Call, Die, Fail, Item, Say, Script, Turn
from tests.support.fakes.serving import ModelServer
from tests.support.harness import Client, ReceivedStream, agent
from tests.support.providers import (
    ANTHROPIC,
    OPENAI,
    PROVIDERS,
    Provider,
    overflow_refusals,
    run_behind_provider,
)

SUMMARISING = "^Summarise the conversation"
SUMMARY = "Summary of the conversation so far:"


class Archive:
    """Tools with large results; each begins with a value that is new in every call."""

    def __init__(self, *names: str, sizes: range = range(1500, 6000)) -> None:
        self.values: dict[str, str] = {}
        self._sizes = sizes
        self.tools: list[BaseTool] = [self._tool(name) for name in names]

    def _tool(self, name: str) -> BaseTool:
        async def run() -> str:
            self.values[name] = uuid.uuid4().hex
            size = random.choice(self._sizes)
            return f"value={self.values[name]} " + random.randbytes(size // 2 + 1).hex()[:size]

        return StructuredTool.from_function(coroutine=run, name=name, description="Reads.")


class Summaries:
    """A script for summarising requests that says something else each time, and remembers what it said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.script = Script(self._turn)

    def _turn(self, request: Request) -> Turn:
        assert request.tools == ()
        self.said.append(f"zq{uuid.uuid4().hex}")
        return Turn(Say(f"They talked about {self.said[-1]} ."))


def reporting(*names: str) -> Turn:
    return Turn(Say("Report: " + " ".join(f"{{{{tool:{name}.value}}}}" for name in names)))


# How a question is worked on, by its last word.
WAYS: dict[str, tuple[tuple[str, ...], ...]] = {
    "single": (("read",),),
    "sequence": (("read",), ("inspect",)),
    "parallel": (("read", "inspect", "measure"),),
    "mixed": (("read", "inspect"), ("measure",)),
}


def book(summarising: Script, ways: Mapping[str, tuple[tuple[str, ...], ...]] = WAYS) -> Book:
    scripts = {
        f"{word}\\.$": Script(
            *(Turn(Say("I look. "), *map(Call, names)) for names in steps),
            reporting(*(name for names in steps for name in names)),
        )
        for word, steps in ways.items()
    }
    return Book({SUMMARISING: summarising, **scripts})


def expected(archive: Archive, word: str, ways: Mapping[str, tuple[tuple[str, ...], ...]] = WAYS) -> str:
    return "Report: " + " ".join(archive.values[name] for names in ways[word] for name in names)


async def converse(client: Client, archive: Archive, turns: int) -> list[ReceivedStream]:
    """Asks one question after another on one context; each answer holds the values of its own turn."""
    streams: list[ReceivedStream] = []
    for number in range(turns):
        word = list(WAYS)[number % len(WAYS)]
        more = {"contextId": streams[0].context_id} if streams else {}
        streams.append(await client.ask(f"Question {number}: {word}.", **more))
        assert streams[-1].last.state == "completed", streams[-1].last.status_text
        assert streams[-1].answer == expected(archive, word)
        assert streams[-1].streamed_texts[-1] == streams[-1].answer
    return streams


def assert_whole(server: ModelServer, most_overflows: int) -> None:
    """Every history was accepted: calls with their results, nothing else; and too long a one was rare."""
    assert [refusal for refusal in server.refusals if refusal not in overflow_refusals(server)] == []
    assert len(overflow_refusals(server)) <= most_overflows


async def assert_unseen(client: Client, streams: list[ReceivedStream], words: list[str]) -> None:
    """None of the words is in any byte of a stream or in any task."""
    for received in streams:
        task = json.dumps(await client.call("tasks/get", {"id": received.task_id}))
        for word in (*words, SUMMARY):
            assert word.encode() not in received.raw
            assert word not in task


def summaries_of(request: Request) -> list[str]:
    return [
        message.text for message in request.messages if message.role == "user" and SUMMARY in message.text
    ]


# --- many turns -----------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("provider", "turns", "window"),
    [(OPENAI, 12, 4000), (ANTHROPIC, 10, 3000), pytest.param(OPENAI, 40, 4000, marks=pytest.mark.full)],
    ids=str,
)
async def test_many_turns_with_large_results_are_all_answered(
    provider: Provider, turns: int, window: int
) -> None:
    archive, summaries = Archive("read", "inspect", "measure"), Summaries()
    async with run_behind_provider(
        provider, book(summaries.script), tools=archive.tools, max_context_tokens=window
    ) as (server, client):
        stream = await converse(client, archive, turns)
        assert_whole(server, most_overflows=6)
        assert overflow_refusals(server), "the window was small enough to matter"
        assert len(summaries.said) >= turns // 10
        await assert_unseen(client, stream, summaries.said)
        for summary in summaries.said:
            assert any(summary in text for request in server.requests for text in summaries_of(request)), (
                "each summary was used"
            )
        assert summaries.said[-1] in "".join(summaries_of(server.requests[-1])), (
            "the model still knows of what was before"
        )


async def test_a_summary_is_kept_and_used_until_there_is_a_newer_one() -> None:
    archive, summaries = Archive("read", "inspect", "measure"), Summaries()
    async with run_behind_provider(
        OPENAI, book(summaries.script), tools=archive.tools, max_context_tokens=4000
    ) as (server, client):
        await converse(client, archive, 10)
        used = [
            next(summary for summary in summaries.said if summary in text)
            for request in server.requests
            for text in summaries_of(request)
        ]
        order = [summaries.said.index(summary) for summary in used]
        assert order == sorted(order)
        assert len(used) > len(summaries.said), "a summary serves several requests"


@pytest.mark.sample(1)
@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
async def test_with_a_known_window_old_turns_are_summarised_before_anything_is_refused(
    provider: Provider,
) -> None:
    archive, summaries = Archive("read", "inspect", "measure", sizes=range(800, 1500)), Summaries()
    casting = book(summaries.script)
    async with run_behind_provider(
        provider, casting, tools=archive.tools, max_context_tokens=3000, LLM_CONTEXT_TOKENS="2000"
    ) as (
        server,
        client,
    ):
        stream = await converse(client, archive, 7)
        assert server.refusals == []
        assert summaries.said
        await assert_unseen(client, stream, summaries.said)


async def test_a_conversation_within_the_window_is_never_summarised() -> None:
    archive, summaries = Archive("read", "inspect", "measure"), Summaries()
    async with run_behind_provider(OPENAI, book(summaries.script), tools=archive.tools) as (server, client):
        await converse(client, archive, 6)
        assert summaries.said == []
        assert sum(message.role == "user" for message in server.requests[-1].messages) == 6


async def test_conversations_have_summaries_of_their_own() -> None:
    archive, summaries = Archive("read", "inspect", "measure"), Summaries()
    async with run_behind_provider(
        OPENAI, book(summaries.script), tools=archive.tools, max_context_tokens=4000
    ) as (server, client):
        await converse(client, archive, 5)
        first = list(summaries.said)
        assert first
        start = len(server.requests)
        await converse(client, archive, 5)
        assert len(summaries.said) > len(first)
        assert not any(
            summary in str(request.raw) for request in server.requests[start:] for summary in first
        )


# --- summarising that fails -----------------------------------------------------------------------

TROUBLES: dict[str, tuple[Item, ...]] = {
    "down": (Fail(500),),
    "too long": (Fail(400, "context_length_exceeded", "This model's maximum context length is 10 tokens."),),
    "refused": (Fail(401),),
    "broken": (Say("Half a sum", "mary"), Die()),
    "empty": (),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("items", TROUBLES.values(), ids=TROUBLES.keys())
async def test_when_summarising_fails_the_outline_is_kept_and_the_question_answered(
    items: tuple[Item, ...],
) -> None:
    archive = Archive("read", "inspect", "measure")
    async with run_behind_provider(
        OPENAI, book(Script(Turn(*items))), tools=archive.tools, max_context_tokens=4000
    ) as (server, client):
        streams = await converse(client, archive, 6)
        assert_whole(server, most_overflows=6)
        [outline] = summaries_of(server.requests[-1])
        assert "Question 0: single." in outline
        assert streams[0].answer in outline
        await assert_unseen(client, streams, ["Half a sum"])


# --- one turn that is too much --------------------------------------------------------------------

MANY = tuple(f"read_{number}" for number in range(14))
HEAPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "at once": (MANY,),
    "one by one": tuple((name,) for name in MANY),
    "in two heaps": (MANY[:7], MANY[7:]),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
@pytest.mark.parametrize("heap", HEAPS)
async def test_a_turn_whose_own_results_exceed_the_window_is_answered(provider: Provider, heap: str) -> None:
    archive, ways = Archive(*MANY, sizes=range(3000, 5000)), {"heap": HEAPS[heap]}
    async with run_behind_provider(
        provider, book(Summaries().script, ways), tools=archive.tools, max_context_tokens=3000
    ) as (
        server,
        client,
    ):
        stream = await client.ask("One heap.")
        assert stream.last.state == "completed", stream.last.status_text
        assert stream.answer == expected(archive, "heap", ways)
        assert_whole(server, most_overflows=4)
        again = await client.ask("Another heap.", contextId=stream.context_id)
        assert again.answer == expected(archive, "heap", ways)


async def test_a_turn_with_very_many_results_is_answered() -> None:
    names = tuple(f"read_{number}" for number in range(60))
    archive = Archive(*names, sizes=range(1000, 2000))
    casting = Book({"heap": Script(Turn(*map(Call, names)), reporting(names[-1]))})
    async with run_behind_provider(
        OPENAI, casting, tools=archive.tools, max_context_tokens=4000, TOOL_CALLS_AT_ONCE="60"
    ) as (server, client):
        stream = await client.ask("One heap.")
        assert stream.last.state == "completed", stream.last.status_text
        assert stream.answer == f"Report: {archive.values[names[-1]]}"
        assert_whole(server, most_overflows=6)


async def test_a_refusal_that_nothing_helps_against_is_told_and_teaches_nothing() -> None:
    archive, refused = (
        Archive("read", sizes=range(6000, 6001)),
        Fail(400, "context_length_exceeded", "The context window is too small."),
    )
    casting = Book({"^Never": Script(Turn(refused)), "": Script(Turn(Call("read")), reporting("read"))})
    async with run_behind_provider(OPENAI, casting, tools=archive.tools) as (server, client):
        stream = await client.ask("Never")
        assert (stream.last.state, stream.last.status_text) == (
            "failed",
            "The conversation is too long for the model. Start a new one, or ask for less at once.",
        )
        assert len(server.requests) <= 6
        assert (await client.ask("Read")).answer == f"Report: {archive.values['read']}"
        [result] = server.requests[-1].tool_results["read"]
        assert len(result) > 6000, "other conversations are not cut"


@pytest.mark.sample(1)
@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
async def test_an_agent_whose_results_exceed_the_window_answers(provider: Provider) -> None:
    archive = Archive(*MANY, sizes=range(3000, 5000))
    casting = Book(
        {
            SUMMARISING: Summaries().script,
            "^Ask": Script(
                Turn(Call("task", {"description": "Read them all", "subagent_type": "archive"})),
                Turn(Say("It says: {{tool:archive}}")),
            ),
            "Read them all$": Script(
                Turn(*map(Call, MANY[:7])), *(Turn(Call(name)) for name in MANY[7:]), reporting(*MANY)
            ),
        }
    )
    async with run_behind_provider(
        provider, casting, agents=[agent("archive", None, *archive.tools)], max_context_tokens=3000
    ) as (
        server,
        client,
    ):
        context: dict[str, Any] = {}
        for _ in range(3):
            stream = await client.ask("Ask", **context)
            assert stream.last.state == "completed", stream.last.status_text
            assert stream.answer == "It says: Report: " + " ".join(archive.values[name] for name in MANY)
            context = {"contextId": stream.context_id}
        assert_whole(server, most_overflows=6)


@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
async def test_a_question_that_is_longer_than_the_window_is_answered(provider: Provider) -> None:
    archive = Archive("read")
    casting = Script(Turn(Call("read")), reporting("read"))
    async with run_behind_provider(provider, casting, tools=archive.tools, max_context_tokens=3000) as (
        server,
        client,
    ):
        stream = await client.ask("Look at this. " + random.randbytes(20_000).hex())
        assert stream.answer == f"Report: {archive.values['read']}"
        assert_whole(server, most_overflows=6)
        again = await client.ask("And again.", contextId=stream.context_id)
        assert again.answer == f"Report: {archive.values['read']}"
        assert_whole(server, most_overflows=6)


# --- a conversation of words ----------------------------------------------------------------------


async def test_long_answers_are_summarised_too() -> None:
    summaries, answers = Summaries(), list[str]()

    def talk(request: Request) -> Turn:
        answers.append(uuid.uuid4().hex)
        return Turn(Say(f"{answers[-1]} ", random.randbytes(1000).hex()))

    casting = Book({SUMMARISING: summaries.script}, default=Script(talk))
    async with run_behind_provider(OPENAI, casting, max_context_tokens=3000) as (server, client):
        streams = [await client.ask("Talk")]
        for _ in range(11):
            streams.append(await client.ask("Go on", contextId=streams[0].context_id))
            assert streams[-1].answer.startswith(answers[-1])
        assert_whole(server, most_overflows=6)
        assert summaries.said
        await assert_unseen(client, streams, summaries.said)
