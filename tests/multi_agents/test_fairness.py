"""Nobody's tokens wait for others' work: an endless answer, a reader that does not read, a busy agent.

The disturbance goes on until the others are served, so a test in which they starve does not end.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from tests.support.dialects import V10
from tests.support.harness import Client, agent, supervisor

WORDS = [f"word{number} " for number in range(20)]
PIECE = "x" * 500 + " "
LIMIT_SECONDS = 100  # only a test in which somebody starves takes so long


@dataclass
class Stage:
    """What the model does for each kind of question."""

    served: asyncio.Event = field(default_factory=asyncio.Event)  # ends what is endless
    pieces: int = 0  # of endless answers so far


class StageModel(BaseChatModel):
    """Answers "endless" until the others are served, "delegate" with such a delegation, all else in words."""

    stage: Any

    @property
    def _llm_type(self) -> str:
        return "stage"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        question = next(message.text for message in reversed(messages) if isinstance(message, HumanMessage))
        if question == "endless":
            while not self.stage.served.is_set():
                self.stage.pieces += 1
                yield text_chunk(PIECE)
                await asyncio.sleep(0)
        elif question == "delegate" and isinstance(messages[-1], HumanMessage):
            call = {"subagent_type": "desk", "description": "endless"}
            yield ChatGenerationChunk(
                message=AIMessageChunk(
                    content="",
                    tool_call_chunks=[{"name": "task", "args": json.dumps(call), "id": "c1", "index": 0}],
                )
            )
        else:
            for word in WORDS:
                yield text_chunk(word)
                await asyncio.sleep(0)


def text_chunk(text: str) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=text))


@contextlib.asynccontextmanager
async def open_stage(*agents: LocalAgent) -> AsyncIterator[tuple[Stage, Client]]:
    stage = Stage()
    env = {"RUNS_MAX_WORKING_PER_PERSON": "60"}
    async with (
        supervisor(StageModel(stage=stage), agents=agents, env=env) as client,
        asyncio.timeout(LIMIT_SECONDS),
    ):
        try:
            yield stage, client
        finally:
            stage.served.set()


async def until_busy(stage: Stage) -> None:
    while stage.pieces < 5:  # noqa: ASYNC110 - the model has no event for it
        await asyncio.sleep(0.01)


async def check_others_are_served(client: Client) -> None:
    for _ in range(3):
        answers = await asyncio.gather(*(client.ask(f"Question {number}") for number in range(4)))
        assert {answer.answer for answer in answers} == {"".join(WORDS)}


async def test_an_endless_answer_delays_nobody() -> None:
    async with open_stage() as (stage, client):
        endless = asyncio.create_task(client.ask("endless"))
        await until_busy(stage)
        await check_others_are_served(client)
        assert not endless.done()
        stage.served.set()
        assert (await endless).answer == PIECE * stage.pieces


async def test_a_reader_that_does_not_read_delays_nobody() -> None:
    async with open_stage() as (stage, client):
        with ask_without_reading(client, "endless"):
            await until_busy(stage)
            await check_others_are_served(client)
            assert not stage.served.is_set()


async def test_a_busy_agent_delays_nobody() -> None:
    async with open_stage(agent("desk", None)) as (stage, client):
        endless = asyncio.create_task(client.ask("delegate"))
        await until_busy(stage)
        await check_others_are_served(client)
        assert not endless.done()
        stage.served.set()
        assert (await endless).last.state == "completed"


@pytest.mark.full
async def test_many_answers_at_once_advance_together() -> None:
    """When the first has come to its end, all others have come a good part of their way."""
    count = 20
    received = [0] * count
    at_first_end: list[int] = []
    async with open_stage() as (stage, client):

        async def follow(number: int) -> None:
            async for frame in client.stream("endless"):
                if frame.name == "streaming_result":
                    received[number] += len(frame.text)
                # Ended by the fastest: how far are the others?
                if received[number] > 200_000 and not at_first_end:
                    at_first_end.extend(received)
                    stage.served.set()

        await asyncio.gather(*(follow(number) for number in range(count)))
    assert min(at_first_end) > 20_000


@contextlib.contextmanager
def ask_without_reading(client: Client, text: str) -> Any:
    """A connection that asks and reads nothing."""
    host, port = client.url.removeprefix("http://").rstrip("/").split(":")
    params = V10.message(V10.text(text))
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": V10.stream, "params": params}).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect((host, int(port)))
        reader.sendall(head.encode() + body)
        yield
