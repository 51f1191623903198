"""What a person sees of a third-party agent behind the supervisor: one check for each column of the table in
`docs/placement.md`. Each returns what is wrong."""

import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.core.events import ToolFinished
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.multi_agents.platform_engineer.remote_agents import RemoteAgent
from tests.support.agent_services import connect_remote_agent, eventually
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn, tokens
from tests.support.harness import Client, Frame, ReceivedStream, agent, joined, supervisor
from tests.support.peers import NARRATION, Peer, RunningPeer, write_question

CANCEL_METHODS = {"CancelTask", "tasks/cancel"}
_BEGUN = ["🔧 Supervisor: Calling Agent Peer...\n"]
_COMPLETED = ["✅ Supervisor: Peer completed\n"]
_FAILED = ["❌ Supervisor: Peer failed\n"]


@dataclass(slots=True)
class Supervised:
    """A supervisor whose model gives one question to the peer, and what came of it."""

    running: RunningPeer
    question: str
    model: ScriptedChatModel
    far: RemoteAgent
    client: Client
    frames: list[Frame] = field(default_factory=list)

    @property
    def peer(self) -> Peer:
        return self.running.peer

    @property
    def stream(self) -> ReceivedStream:
        return ReceivedStream(self.frames)

    @property
    def texts(self) -> list[str]:
        """The peer's texts, as a client of the wire joins them."""
        return joined(self.stream.named("subagent_result"))

    @property
    def spans(self) -> list[str]:
        """The peer's texts, as a reader of the run sees them."""
        return [span.text for span in fold(self.stream.events).spans if span.agent == "peer"]

    @property
    def result(self) -> str:
        """What the supervisor's model was given."""
        results = [message.text for message in self.model.requests[-1].since_user if message.role == "tool"]
        return results[-1] if results else ""

    async def ask(self) -> AsyncIterator[Frame]:
        async for frame in self.client.stream("Well?"):
            self.frames.append(frame)
            yield frame

    async def ask_to_end(self) -> None:
        async for _ in self.ask():
            pass


@contextlib.asynccontextmanager
async def supervise(
    running: RunningPeer, *turns: dict[str, Any], env: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[Supervised]:
    """`options` are those of the connection to the peer."""
    question = write_question(*turns)
    model = ScriptedChatModel(
        script=Script(
            Turn(Call("task", {"description": question, "subagent_type": "peer"})), Turn(Say("Done."))
        )
    )
    async with (
        connect_remote_agent(agent("peer", None), running.url, **options) as far,
        supervisor(model, agents=[far], env=env) as client,
    ):
        yield Supervised(running, question, model, far, client)


def _make_answer() -> str:
    """An answer that no other question has: a sentence, a paragraph, a number with a point."""
    return f"Version 2.9 of {uuid.uuid4().hex[:8]} runs.\n\nIt is fine."


def _compare(what: str, seen: Any, expected: Any) -> list[str]:
    if seen == expected:
        return []
    return [f"{what}: {seen!r}, expected {expected!r}"]


async def check_long_answer(running: RunningPeer) -> list[str]:
    """An answer of many tokens; some servers keep each of them as a message of the task's history."""
    answer = "".join(f"Pod {number} of {uuid.uuid4().hex[:8]} is fine.\n" for number in range(100))
    async with supervise(running, {"say": tokens(answer)}) as supervised:
        await supervised.ask_to_end()
    return [
        *_compare("texts on the wire", [text.strip() for text in supervised.texts], [answer.strip()]),
        *_compare("the step's result", supervised.result.strip(), answer.strip()),
    ]


async def check_delegation(running: RunningPeer) -> tuple[list[str], list[str]]:
    """What is wrong with the delegation as it is shown, and with its texts."""
    answer = _make_answer()
    turns = (
        {"say": tokens(NARRATION), "call": {"app": "shop"}},
        {"say": tokens(answer)},
    )
    async with supervise(running, *turns) as supervised:
        await supervised.ask_to_end()
    return _find_delegation_problems(supervised), _find_text_problems(supervised, answer)


def _find_delegation_problems(supervised: Supervised) -> list[str]:
    tools: list[str] = []
    if supervised.peer.tells_tools:
        tools = ["🔧 Peer: Calling tool: Lookup\n", "✅ Peer: Tool Lookup completed\n"]
    stream = supervised.stream
    sources = {
        frame.metadata["source_agent"]
        for frame in stream.named("tool_notification_start", "tool_notification_end")
    }
    return [
        *_compare("notifications", stream.notifications, [*_BEGUN, *tools, *_COMPLETED]),
        *_compare("source agents", sources, {"peer"}),
        *_compare("the supervisor's answer", stream.answer, "Done."),
    ]


def _find_text_problems(supervised: Supervised, answer: str) -> list[str]:
    expected = supervised.peer.expected_texts(answer)
    return [
        *_compare("texts on the wire", supervised.texts, expected),
        *_compare("texts of the transcript", supervised.spans, expected),
        *_compare("the step's result", supervised.result, expected[-1]),
    ]


async def check_error(running: RunningPeer) -> list[str]:
    """A model that breaks in the middle of a text."""
    reason = f"Quota {uuid.uuid4().hex[:8]} is used up."
    async with supervise(running, {"say": ["Let", " me", {"raise": reason}]}) as supervised:
        await supervised.ask_to_end()
    stream = supervised.stream
    problems = [
        *_compare("notifications", stream.notifications, _BEGUN + _FAILED),
        *_compare("the supervisor's answer", stream.answer, "Done."),
    ]
    if any(reason in text for text in supervised.texts):
        problems.append(f"the reason is shown as text, too: {supervised.texts}")
    if not supervised.result.startswith("Agent peer failed: "):
        problems.append(f"the model does not know of it: {supervised.result!r}")
    if running.peer.tells_errors == ("did not say why" in supervised.result):
        problems.append(f"the reason: {supervised.result!r}")
    return problems


async def check_failed_tool(running: RunningPeer) -> list[str]:
    """A tool of the peer that fails, while the peer goes on."""
    answer = _make_answer()
    turns = ({"call": {"app": "broken"}}, {"say": [answer]})
    async with supervise(running, *turns) as supervised:
        await supervised.ask_to_end()
    tools = ["🔧 Peer: Calling tool: Lookup\n", "❌ Peer: Tool Lookup failed\n"]
    finished = [event for event in supervised.stream.events if isinstance(event, ToolFinished)]
    return [
        *_compare("notifications", supervised.stream.notifications, [*_BEGUN, *tools, *_COMPLETED]),
        *_compare("the tool's error", finished[0].error, "The registry is away."),
        *_compare("the step's result", supervised.result, answer),
    ]


async def check_cancel(running: RunningPeer) -> list[str]:
    """A person stops the run while the peer's model works."""
    gate = uuid.uuid4().hex
    async with supervise(running, {"say": ["Let", " me", {"gate": gate}, " look."]}) as supervised:
        async for frame in supervised.ask():
            if await _works(supervised, frame):
                await supervised.client.call("tasks/cancel", {"id": supervised.stream.task_id})
        await supervised.far.connection.aclose()  # the cancellation is on its way
    problems = _compare("state", supervised.stream.last.state, "canceled")
    if not CANCEL_METHODS & set(await running.methods()):
        problems.append("the peer was not told")
    if not running.peer.stops_when_cancelled:
        await running.open(gate)
    outcome = await eventually(
        lambda: running.outcome(supervised.question), lambda outcome: outcome != "working"
    )
    expected = "stopped" if running.peer.stops_when_cancelled else "answered"
    return problems + _compare("the work on the question", outcome, expected)


async def check_time_out(running: RunningPeer) -> list[str]:
    """A delegation that takes longer than it may."""
    gate = uuid.uuid4().hex
    turn = {"say": ["Let", " me", {"gate": gate}]}
    calls_before = len(await running.methods())
    async with supervise(running, turn, env={"AGENT_TIMEOUT_SECONDS": "3"}) as supervised:
        await supervised.ask_to_end()
        await supervised.far.connection.aclose()
    await running.open(gate)
    problems = _compare("notifications", supervised.stream.notifications, _BEGUN + _FAILED)
    if not CANCEL_METHODS & set((await running.methods())[calls_before:]):
        problems.append("the peer was not told")
    return problems


async def check_kill(running: RunningPeer, **options: Any) -> tuple[list[str], float]:
    """A peer that is killed while its model works; the second value is how many seconds it took to notice."""
    killed_at = 0.0
    async with supervise(running, {"say": ["Let", " me", {"gate": "never"}]}, **options) as supervised:
        async for frame in supervised.ask():
            if not killed_at and await _works(supervised, frame):
                running.process.kill()
                killed_at = time.monotonic()
            if frame.name == "tool_notification_end":
                noticed_after = time.monotonic() - killed_at
    stream = supervised.stream
    problems = [
        *_compare("notifications", stream.notifications, _BEGUN + _FAILED),
        *_compare("the supervisor's answer", stream.answer, "Done."),
    ]
    if "cannot be reached" not in supervised.result:
        problems.append(f"the model does not know of it: {supervised.result!r}")
    return problems, noticed_after


async def _works(supervised: Supervised, frame: Frame) -> bool:
    """Whether the frame shows that the peer's model has begun; without tokens its own records say so."""
    if supervised.peer.streams_tokens:
        return frame.name == "subagent_result"
    if frame.name != "tool_notification_start":
        return False
    await eventually(lambda: supervised.running.outcome(supervised.question), bool)
    return True
