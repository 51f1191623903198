"""The supervisor and two agents as processes, with the model scripted over HTTP.

Checks health, agent names, order of events, narration and the final result.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.agent_services import (
    CastingByTools,
    model_of,
    read_readiness,
    run_server_process,
    write_agent_definition,
)
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.fakes.script import Book, Call, Gate, Say, Script, Turn, unique_pieces
from tests.support.harness import Client, Frame, ReceivedStream, joined

NUMBER = random.randint(10**6, 10**9)
SUMS = f"Twice is {2 * NUMBER}."
NETWORK = "10.0.0.0/22"
NARRATION = {"netutils": "I look at the network. ", "sums": "I calculate. "}


@dataclass(frozen=True)
class NarratedQuestion:
    """A question whose narration is streamed piece by piece.

    The next piece, and the calls after it, come only when the last one was received.
    """

    version: str
    pieces: tuple[str, ...]
    gate: Gate

    @property
    def question(self) -> str:
        return f"Check it over protocol {self.version}."

    @property
    def script(self) -> Script:
        network = Call(
            "task",
            arg_pieces=('{"subagent_type": "netutils", ', f'"description": "What does {NETWORK} contain?"}}'),
            gated=(self.pieces[-1],),
        )
        sums = Call("task", {"subagent_type": "sums", "description": f"Double {NUMBER}."})
        narration = Turn(Say(*(f"{piece} " for piece in self.pieces)), network, sums, gate=self.gate)
        return Script(narration, Turn(Say("In short: {{tool:netutils}} {{tool:sums}}")))


QUESTIONS = [
    NarratedQuestion(version, unique_pieces("narration", 3, random.Random()), Gate())
    for version in ("0.3", "1.0")
]
MODEL = CastingByTools(
    Book({narrated.question: narrated.script for narrated in QUESTIONS}),
    Book(
        {
            "^What does": Script(
                Turn(Say("I look at the network. "), Call("cidr_info", {"cidr": NETWORK})),
                Turn(Say("It has addresses.")),
            ),
            "^Double": Script(
                Turn(Say("I calculate. "), Call("double", {"number": NUMBER})),
                Turn(Say("Twice is {{tool:double}}.")),
            ),
        }
    ),
)
OF_AGENT = {
    "netutils": ["🔧 Netutils: Calling tool: Cidr_Info\n", "✅ Netutils: Tool Cidr_Info completed\n"],
    "sums": ["🔧 Sums: Calling tool: Double\n", "✅ Sums: Tool Double completed\n"],
}
OF_SUPERVISOR = {
    "netutils": ["🔧 Supervisor: Calling Agent Netutils...\n", "✅ Supervisor: Netutils completed\n"],
    "sums": ["🔧 Supervisor: Calling Agent Sums...\n", "✅ Supervisor: Sums completed\n"],
}


@contextlib.asynccontextmanager
async def system(folder: Path) -> AsyncIterator[tuple[OpenAIServer, list[Client]]]:
    """The model, and clients of the supervisor and of its two agents."""
    write_agent_definition(folder / "agents", "sums")
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(serve_openai(MODEL))
        env = {"AGENTS_CONFIG": "agents", **model_of(model)}
        starting = [
            stack.enter_async_context(run_server_process("caipe", "agent", name, **env))
            for name in ("netutils", "sums")
        ]
        agents = [client for _, client in await asyncio.gather(*starting)]
        places = {
            "DISTRIBUTED_AGENTS": "netutils, sums",
            "NETUTILS_AGENT_HOST": "127.0.0.1",
            "NETUTILS_AGENT_PORT": str(httpx.URL(agents[0].url).port),
            "SUMS_AGENT_URL": agents[1].url,
        }
        _, supervisor = await stack.enter_async_context(run_server_process("caipe", "serve", **env, **places))
        yield model, [supervisor, *agents]


async def test_the_system_as_processes(tmp_path: Path) -> None:
    async with system(tmp_path) as (model, clients):
        for client in clients:
            assert (await client.http.get(f"{client.url}health")).json() == {"status": "ok"}
        state = await read_readiness(clients[0])
        assert {
            name: state["components"][f"agent {name}"]["reachable"] for name in OF_AGENT
        } == dict.fromkeys(OF_AGENT, "reachable")
        streams = [(narrated, await _ask(clients[0], narrated)) for narrated in QUESTIONS]
        listed = [(await client.http.get(f"{client.url}tools")).json()["tools"] for client in clients[1:]]
    assert [set(tools) for tools in listed] == [{"netutils"}, {"sums"}]
    assert model.refusals == []
    for narrated, stream in streams:
        _check_agent_names(stream)
        _check_order(stream)
        _check_narration(narrated, stream)
        _check_result(stream)


async def _ask(client: Client, narrated: NarratedQuestion) -> ReceivedStream:
    frames: list[Frame] = []
    async for frame in client.stream(narrated.question, version=narrated.version):
        narrated.gate.seen(frame.text)
        frames.append(frame)
    assert narrated.gate.failure is None
    return ReceivedStream(frames)


def _check_agent_names(stream: ReceivedStream) -> None:
    notified = stream.named("tool_notification_start", "tool_notification_end")
    assert {frame.metadata["source_agent"] for frame in notified} == set(OF_AGENT)
    assert {frame.metadata["sourceAgent"] for frame in notified} == set(OF_AGENT)
    assert all(frame.metadata["tool_name"] != "task" for frame in notified)
    assert all("Task" not in frame.text for frame in notified)
    assert {frame.metadata["source_agent"] for frame in stream.named("subagent_result")} == set(OF_AGENT)


def _check_order(stream: ReceivedStream) -> None:
    assert (stream.states[0], stream.states[-1]) == ("submitted", "completed")
    assert set(stream.states[1:-1]) == {"working"}
    numbers = [tuple(int(part) for part in (frame.id or "").split(".")) for frame in stream.frames]
    assert [number[0] for number in numbers] == sorted(number[0] for number in numbers)
    for name, inner in OF_AGENT.items():
        begin, end = OF_SUPERVISOR[name]
        assert [word for word in stream.notifications if word in (begin, *inner, end)] == [begin, *inner, end]
    assert len(stream.notifications) == 8


def _check_narration(narrated: NarratedQuestion, stream: ReceivedStream) -> None:
    place = {
        frame.text: number
        for number, frame in enumerate(stream.frames)
        if frame.name == "tool_notification_start"
    }
    first_call = min(place[begin] for begin, _ in OF_SUPERVISOR.values())
    for piece in narrated.pieces:
        positions = [
            number
            for number, frame in enumerate(stream.frames)
            if frame.name == "streaming_result" and piece in frame.text
        ]
        assert len(positions) == 1, "each text is delivered once"
        assert positions[0] < first_call
    for name, (begin, _) in OF_AGENT.items():
        before = [frame for frame in stream.frames[: place[begin]] if frame.name == "subagent_result"]
        assert joined(frame for frame in before if frame.metadata["source_agent"] == name) == [
            NARRATION[name]
        ]


def _check_result(stream: ReceivedStream) -> None:
    assert stream.answer == f"In short: It has addresses. {SUMS}"
    assert stream.streamed_texts[-1] == stream.answer
    (final,) = stream.named("final_result")
    assert stream.frames.index(final) == len(stream.frames) - 2
    assert final.metadata["trace_id"]
    assert stream.last.metadata["trace_id"] == final.metadata["trace_id"]
