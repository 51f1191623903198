"""Remote agents that do not behave, from the supervisor's model to the bytes that leave it: the run ends,
the step is shown failed in
words, what the others found is kept. And our own services behind a line that breaks: nothing is lost,
nothing is done twice.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import SecretStr

from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.events import AnyEvent, TextDelta, ToolFinished
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service import (
    create_service,
)
from ai_platform_engineering.multi_agents.platform_engineer.remote_agents import RemoteAgent
from ai_platform_engineering.runtime import storage
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import (
    A2ARemoteAgentConnectTool,
    HttpClients,
)
from tests.support.clocks import advance_clock
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.a2a_misbehaving import FIXTURES, HALF, HUGE, WHOLE, Fake, misbehaving
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, Frame, ReceivedStream, agent, serve_app, supervisor

TOKEN = "token-4f7ac19b02"
FOUND = "Three tickets are open."
ANSWER = "Here is what I have."
ONE_BY_ONE = {"STREAM_COALESCE_SECONDS": "0"}
KINDS = ("ours", "third-party")


# --- the agent in another process -----------------------------------------------------------------


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    async with misbehaving() as started:
        yield started


@dataclass(frozen=True, slots=True)
class Team:
    """The supervisor's client, and its model, which was told what the agents found."""

    client: Client
    model: ScriptedChatModel

    async def ask(self) -> ReceivedStream:
        return await self.client.ask("How is it?", version="1.0")

    def result(self, name: str) -> str:
        [text] = self.model.requests[-1].tool_results[name]
        return text


@contextlib.asynccontextmanager
async def team(
    url: str,
    *others: LocalAgent,
    name: str = "argocd",
    seconds: float = 60,
    idle: float = 30,
    connect: float = 30,
    token: str | None = TOKEN,
    clock: pytest.MonkeyPatch | None = None,
) -> AsyncIterator[Team]:
    """A supervisor whose model asks the remote agent and all others at once, and then answers.

    With `clock` the seconds pass at once in which an agent that was given up may still answer.
    """
    env = {
        "AGENT_TIMEOUT_SECONDS": str(seconds),
        "AGENT_IDLE_TIMEOUT_SECONDS": str(idle),
        "AGENT_CONNECT_TIMEOUT_SECONDS": str(connect),
        **ONE_BY_ONE,
    }
    limits, http = Settings.from_variables(env).placement, HttpClients()
    connection = A2ARemoteAgentConnectTool(
        name=name,
        description="Knows.",
        url=url,
        token=SecretStr(token) if token else None,
        connect_timeout=limits.connect_timeout,
        idle_timeout=limits.idle_timeout,
        http=http,
    )
    remote = RemoteAgent(AgentDefinition(name=name, description="Knows."), connection)
    calls = [
        Call("task", {"description": "Look.", "subagent_type": agent_name})
        for agent_name in (name, *(other.definition.name for other in others))
    ]
    model = ScriptedChatModel(script=Script(Turn(*calls), Turn(Say(ANSWER))))
    async with supervisor(model, agents=[remote, *others], env=env) as client:
        yield Team(client, model)
    if clock is not None:
        advance_clock(clock, 10)
    await connection.aclose()
    await http.aclose()


def jira() -> LocalAgent:
    return agent("jira", Script(Turn(Say(FOUND))))


async def assert_it_fails(
    url: str, reason: str, caplog: pytest.LogCaptureFixture, **limits: Any
) -> ReceivedStream:
    """The whole of what must hold whatever the agent does."""
    caplog.set_level(logging.DEBUG)
    async with team(url, jira(), **limits) as crew:
        stream = await crew.ask()
    assert (stream.states[-1], stream.answer) == ("completed", ANSWER)
    assert set(stream.notifications[-2:]) == {
        "❌ Supervisor: Argocd failed\n",
        "✅ Supervisor: Jira completed\n",
    }
    result = crew.result("argocd")
    assert re.fullmatch(f"Agent argocd failed: {reason}", result), result
    assert crew.result("jira") == FOUND
    [ended] = [
        event for event in stream.events if isinstance(event, ToolFinished) and event.outcome == "error"
    ]
    assert (ended.error, fold(stream.events).running) == (result, ())
    for secret in (TOKEN, "Traceback", "boom"):
        assert secret not in stream.raw.decode()
        assert secret not in caplog.text
    return stream


# --- the fixtures ---------------------------------------------------------------------------------


async def test_the_canned_agent_is_shown_and_returned_once(fake: Fake) -> None:
    rows = json.loads((FIXTURES / "a2a_task_sse_stream.json").read_text(encoding="utf-8"))
    artifacts = [row["data"]["artifact"] for row in rows if row["event"] == "TaskArtifactUpdateEvent"]
    [answer] = [artifact["parts"][0]["text"] for artifact in artifacts if artifact["name"] == "final_result"]
    async with team(fake.url, name="mock-agent") as crew:
        stream = await crew.ask()
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Mock-Agent...\n",
        "🔧 Mock-Agent: Calling tool: Version_Service__Version\n",
        "✅ Mock-Agent: Tool Version_Service__Version completed\n",
        "✅ Supervisor: Mock-Agent completed\n",
    ]
    assert stream.texts("subagent_result") == ["Here is ", "the answer: version 2.9.1."]
    assert "".join(stream.texts("subagent_result")) == answer
    assert stream.raw.decode().count("version 2.9.1") == 1
    assert crew.result("mock-agent") == answer
    assert (stream.streamed_texts, stream.answer, stream.states[-1]) == ([ANSWER], ANSWER, "completed")
    assert [frame.metadata["source_agent"] for frame in stream.named("subagent_result")] == ["mock-agent"] * 2
    view = fold(stream.events)
    assert [(call.tool, call.agent, call.outcome) for call in view.calls][-1:] == [
        ("Version_Service__Version", "mock-agent", "ok")
    ]
    # The card names another host, which must never be spoken to.
    assert [call["method"] for call in await fake.arrived(fake.url)] == ["card", "message/stream"]


# --- an agent that does not behave ----------------------------------------------------------------

AT = r"http://127\.0\.0\.1:\d+/\S+/"
NOT_A2A = r"The server's answer is not A2A( \(HTTP \d+\))?\."
NOT_A2A_STRANGER = r"The agent argocd did not answer in A2A( \(HTTP \d+\))?\."
NO_AGENT = rf"{AT} is no A2A agent: its card cannot be read\."
SILENT = r"The agent argocd fell silent\."
# The behaviour, and what is said of one that claims to be ours and of a third-party one.
REASONS = {
    "hang": (rf"{AT} cannot be reached: it did not answer in time\.", SILENT),
    "page": (NOT_A2A, NOT_A2A_STRANGER),
    "truncated": (rf"{AT} sent something that is not A2A\.", NOT_A2A_STRANGER),
    "wrong-rpc": (NOT_A2A, NOT_A2A_STRANGER),
    "wrong-frames": (NOT_A2A, NOT_A2A_STRANGER),
    "wrong-type": (NOT_A2A, NOT_A2A_STRANGER),
    "broken": (NOT_A2A, r"The agent argocd cannot answer now \(HTTP 500\)\."),
    "unauthorized": (rf"{AT} refused our credentials\. Check <NAME>_AGENT_TOKEN or AGENT_TOKEN\.",) * 2,
    "refusing": (
        "I do not like Bearer … today.",
        r"The agent argocd refused the request \(-32050\): I do not like Bearer … today\.",
    ),
    "odd-error": (r"The server refused the request: no", NOT_A2A_STRANGER),
    "error-midway": (
        r"I gave up on Bearer …\.",
        r"The agent argocd refused the request \(-32050\): I gave up on Bearer …\.",
    ),
    "empty": (r"It ended without an answer\.", r"The agent argocd finished without a result\."),
    "redirect": (NOT_A2A, NOT_A2A_STRANGER),
    "no-card": (rf"{AT} is no A2A agent: it has no card \(HTTP 404\)\.",) * 2,
    "page-card": (NO_AGENT,) * 2,
    "list-card": (NO_AGENT,) * 2,
    "endless-card": (rf"{AT} is no A2A agent: its card is not read\. It is larger than .*",) * 2,
    "hanging-card": (rf"{AT} cannot be reached: it did not answer in time\.",) * 2,
    "dripping-card": (rf"{AT} cannot be reached: it did not answer in time\.",) * 2,
    "broken-card": (rf"{AT} cannot be reached \(HTTP 500\)\.",) * 2,
    "unauthorized-card": (
        rf"{AT} refused our credentials \(401\)\. Check <NAME>_AGENT_TOKEN or AGENT_TOKEN\.",
    )
    * 2,
    "redirected-card": (rf"{AT} is no A2A agent: it has no card \(HTTP 302\)\.",) * 2,
    "other-binding-card": (rf"{AT} does not offer JSON-RPC, which is what we speak\.",) * 2,
}


# The others fail by what they do: their limits are generous, so that a slow machine changes nothing.
ENDED_BY_A_LIMIT = ("hang", "hanging-card", "dripping-card")


@pytest.mark.sample(23)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behaviour", REASONS)
async def test_whatever_it_does_the_step_fails_in_words_and_the_run_goes_on(
    fake: Fake, kind: str, behaviour: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, Any] = {}
    if behaviour in ENDED_BY_A_LIMIT:
        limits = {"idle": 0.5, "connect": 1.0, "clock": monkeypatch}
    await assert_it_fails(fake.at(kind, behaviour), REASONS[behaviour][KINDS.index(kind)], caplog, **limits)
    arrived = await fake.arrived(fake.at(kind, behaviour))
    assert {call["authorization"] for call in arrived} == {f"Bearer {TOKEN}"}
    assert len(arrived) == len(await fake.arrived("/")), "somebody was sent elsewhere, and our token with him"


# These would be borne with for as long as a delegation may take: only its limit ends them.
@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        ("silent", "ours"),
        ("no-end", "third-party"),
        *itertools.product(["comments", "drip", "reset"], KINDS),
        pytest.param("silent", "third-party", marks=pytest.mark.full),
        pytest.param("no-end", "ours", marks=pytest.mark.full),
    ],
)
async def test_an_agent_that_never_comes_to_an_end_is_given_up(
    fake: Fake, kind: str, behaviour: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = {
        "comments": SILENT,
        "drip": SILENT,
        "reset": r"The agent argocd cannot be reached: it closed the connection\.",
    }
    reason = at_once.get(behaviour) if kind == "third-party" else None
    begun = behaviour in ("silent", "no-end")
    seconds, idle = (5, 2.0) if begun else (2, 0.5)  # the first words must come before either limit
    if reason:
        seconds = 60  # another limit ends it, however slow the machine is
    stream = await assert_it_fails(
        fake.at(kind, behaviour),
        reason or rf"It did not finish within {seconds} seconds\.",
        caplog,
        seconds=seconds,
        idle=idle,
        clock=None if begun else monkeypatch,  # the task of one that has begun is cancelled
    )
    texts = [
        frame.text for frame in stream.named("subagent_result") if frame.metadata["source_agent"] == "argocd"
    ]
    assert texts == ([HALF] if begun else [])
    sent = await fake.arrived(fake.at(kind, behaviour), "SendStreamingMessage", 1)
    assert len({call["message_id"] for call in sent}) == 1
    assert kind == "ours" or len(sent) == 1  # a third-party agent does not know a message that it has seen
    if begun:
        [cancel, *_] = await fake.arrived(fake.at(kind, behaviour), "CancelTask", 1)
        assert cancel["task_id"] == "task-77"


@pytest.mark.parametrize(("kind", "seconds", "reason"), [
    ("ours", 60, rf"{AT} cannot be reached: nothing listens at its address\."),
    ("third-party", 2, r"It did not finish within 2 seconds\."),
])  # fmt: skip
async def test_an_agent_whose_process_dies_midway(fake: Fake, kind: str, seconds: float, reason: str) -> None:
    frames: list[Frame] = []
    async with team(fake.at(kind, "silent"), jira(), seconds=seconds, idle=30) as crew:
        async for frame in crew.client.stream("How is it?"):
            frames.append(frame)
            if frame.text == HALF:
                fake.process.kill()
    stream = ReceivedStream(frames)
    assert (stream.states[-1], stream.answer) == ("completed", ANSWER)
    assert stream.notifications[-1] == "❌ Supervisor: Argocd failed\n"
    assert re.fullmatch(f"Agent argocd failed: {reason}", crew.result("argocd")), crew.result("argocd")
    assert crew.result("jira") == FOUND


async def test_an_agent_that_nobody_serves(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as bound:  # and not listening: whoever connects is refused
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/"
        await assert_it_fails(
            url, rf"{re.escape(url)} cannot be reached: nothing listens at its address\.", caplog
        )


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behaviour", ["good", "twice", "other-host-card"])
async def test_what_can_be_borne_is_shown_and_returned_once(fake: Fake, kind: str, behaviour: str) -> None:
    async with team(fake.at(kind, behaviour)) as crew:
        stream = await crew.ask()
    assert stream.notifications[-1] == "✅ Supervisor: Argocd completed\n"
    assert crew.result("argocd") == WHOLE
    assert "".join(stream.texts("subagent_result")) in (
        (WHOLE,) if kind == "third-party" or behaviour != "twice" else (HALF,)
    )
    assert len(await fake.arrived(fake.at(kind, behaviour), "SendStreamingMessage")) == 1


async def test_a_service_of_ours_that_is_away_for_a_moment_is_asked_again(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    async with team(fake.at("ours", "away")) as crew:
        await crew.ask()
    assert crew.result("argocd") == WHOLE
    sent = await fake.arrived(fake.at("ours", "away"), "SendStreamingMessage")
    assert (len(sent), len({call["message_id"] for call in sent})) == (2, 1)
    await assert_it_fails(
        fake.at("third-party", "away"), r"The agent argocd cannot answer now \(HTTP 503\)\.", caplog
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("many-values", r"It has too many values: \d+ are the most, with keys counted\."),
        ("endless-frame", r"It is larger than 16777216 bytes\."),
        ("compressed", r"It is encoded as gzip, so that its size is unknown\."),
    ],
)
async def test_an_answer_that_would_cost_too_much_is_not_read(
    fake: Fake, kind: str, behaviour: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = (
        r"An answer of \S+ is not read\. "
        if kind == "ours"
        else r"An answer of the agent argocd is not read\. "
    )
    await assert_it_fails(fake.at(kind, behaviour), start + reason, caplog)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_huge_text_is_shown_and_cut_for_the_model(fake: Fake, kind: str) -> None:
    async with team(fake.at(kind, "huge"), jira(), idle=20) as crew:
        stream = await crew.ask()
    assert (stream.states[-1], stream.answer) == ("completed", ANSWER)
    length = sum(map(len, stream.texts("subagent_result")))
    assert 100_000 < length <= HUGE + len(FOUND)
    assert len(crew.result("argocd")) < 101_000
    assert crew.result("jira") == FOUND


# --- a service of ours behind a line that breaks --------------------------------------------------


@dataclass(slots=True)
class Line:
    """The way to a service. An answer to a message breaks off after `cut` bytes, the first one or each;
    `held` keeps the first back.
    """

    target: int
    cut: int | None = None
    always: bool = False
    held: bool = False
    sent: list[dict[str, Any]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)  # how many bytes of each passed
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.tasks.add(asyncio.ensure_future(self._carry(reader, writer)))

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        finally:
            server.close()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer."""
        async with contextlib.AsyncExitStack() as opened:
            opened.callback(writer.close)
            opened.enter_context(contextlib.suppress(asyncio.IncompleteReadError, OSError))
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1])) if length else b""
            far, out = await asyncio.open_connection("127.0.0.1", self.target)
            opened.callback(out.close)
            out.write(re.sub(rb"(?i)connection: [^\r]*", b"connection: close", head) + body)
            if body:
                await self._answer(json.loads(body), far, writer)
            else:
                writer.write(await far.read())

    async def _answer(
        self, body: dict[str, Any], far: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        breaks = self.cut if self.always or not self.sent else None
        self.sent.append(body)
        if self.held and len(self.sent) == 1:
            await asyncio.Event().wait()
        self.answers.append(0)
        mine = len(self.answers) - 1
        while piece := await far.read(65536):
            forwarded = piece if breaks is None else piece[: breaks - self.answers[mine]]
            writer.write(forwarded)
            await writer.drain()
            self.answers[mine] += len(forwarded)
            if forwarded != piece or self.answers[mine] == breaks:
                writer.transport.abort() if self.answers[mine] == 0 else writer.close()
                return

    @property
    def methods(self) -> list[str]:
        return [body["method"] for body in self.sent]


@contextlib.asynccontextmanager
async def service(local_agent: LocalAgent) -> AsyncIterator[Client]:
    """An agent of ours as a service on a port of its own."""
    app = create_service(Settings.from_variables({**FAST, **ONE_BY_ONE}), placed=PlacedAgents([local_agent]))
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        yield Client(url, http)


def told(events: list[AnyEvent]) -> list[dict[str, Any]]:
    """The events without what differs from run to run: ids, and where a text was cut into pieces."""
    out: list[dict[str, Any]] = []
    for event in events:
        ids = {"message_id", "call_id", "parent_call", "slot", "trace_id", "offset", "usage"}
        row = event.model_dump(mode="json", exclude=ids)
        if isinstance(event, TextDelta) and out and {**out[-1], "text": ""} == {**row, "text": ""}:
            out[-1]["text"] += row["text"]
        else:
            out.append(row)
    return out


async def through(
    versions: VersionScenario, cut: int | None, *, always: bool = False
) -> tuple[ReceivedStream, Line, int, str]:
    """What leaves a supervisor whose agent is behind the line, and how many tasks the service had."""
    model = ScriptedChatModel(script=versions.script)
    async with service(agent("argocd", model, versions.tool)) as far:
        line = Line(urlsplit(far.url).port or 0, cut, always)
        async with line.open() as url, team(url, token=None, idle=20) as crew:
            stream = await crew.ask()
        listed = await far.call("ListTasks", {})
    return stream, line, listed["result"]["totalSize"], crew.result("argocd")


CUTS: dict[str, Callable[[int], int]] = {
    "before the first byte": lambda whole: 0,
    "in the head": lambda whole: 20,
    "in the first frame": lambda whole: 400,
    "early": lambda whole: whole // 5,
    "in the middle": lambda whole: whole // 2,
    "late": lambda whole: whole * 4 // 5,
    "after the answer": lambda whole: whole - 60,
}


async def test_a_stream_that_breaks_anywhere_is_followed_without_loss_and_without_a_second_task() -> None:
    versions = VersionScenario()
    unbroken, line, tasks, result = await through(versions, None)
    assert (line.methods, tasks, result) == (["SendStreamingMessage"], 1, versions.answer)
    assert unbroken.texts("subagent_result")
    for name, cut_of in CUTS.items():
        cut = cut_of(line.answers[0])
        stream, broken, tasks, result = await through(versions, cut)
        assert (name, broken.answers[0]) == (name, cut)
        assert len(broken.methods) == (1 if name == "after the answer" else 2), name
        assert (name, tasks, result) == (name, 1, versions.answer)
        assert (name, told(stream.events)) == (name, told(unbroken.events))
        assert (name, stream.notifications, stream.answer) == (name, unbroken.notifications, unbroken.answer)


async def test_a_line_that_breaks_again_and_again_only_takes_longer() -> None:
    versions = VersionScenario()
    unbroken, line, *_ = await through(versions, None)
    stream, broken, tasks, result = await through(versions, line.answers[0] // 2, always=True)
    assert broken.methods[:2] == ["SendStreamingMessage", "SubscribeToTask"]
    assert (tasks, result, told(stream.events)) == (1, versions.answer, told(unbroken.events))


async def test_a_message_whose_answer_is_lost_is_sent_again_under_its_id() -> None:
    versions = VersionScenario()
    stream, line, tasks, result = await through(versions, 0)
    assert line.methods == ["SendStreamingMessage"] * 2
    assert len({body["params"]["message"]["messageId"] for body in line.sent}) == 1
    assert (tasks, result, stream.answer) == (1, versions.answer, ANSWER)


# --- cancel, and what is written down -------------------------------------------------------------


async def test_a_cancel_of_the_run_stops_the_work_of_our_service() -> None:
    waiting = BlockingScenario()
    async with (
        service(agent("argocd", Script(Turn(Call("wait"))), waiting.tool)) as far,
        team(far.url, token=None) as crew,
    ):
        run = asyncio.create_task(crew.ask())
        await waiting.started.wait()
        [task] = (await crew.client.call("ListTasks", {}))["result"]["tasks"]
        await crew.client.call("CancelTask", {"id": task["id"]})
        stream = await run
        await waiting.cancelled.wait()
        [theirs] = (await far.call("ListTasks", {}))["result"]["tasks"]
    assert stream.states[-1] == "canceled"
    assert theirs["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_cancel_reaches_work_that_has_begun_and_not_been_heard_of() -> None:
    waiting = BlockingScenario()
    async with service(agent("argocd", Script(Turn(Call("wait"))), waiting.tool)) as far:
        line = Line(urlsplit(far.url).port or 0, held=True)
        async with line.open() as url, team(url, token=None, idle=60) as crew:
            run = asyncio.create_task(crew.ask())
            await waiting.started.wait()
            [task] = (await crew.client.call("ListTasks", {}))["result"]["tasks"]
            await crew.client.call("CancelTask", {"id": task["id"]})
            await waiting.cancelled.wait()
            stream = await run
        listed = (await far.call("ListTasks", {}))["result"]["tasks"]
    assert [listed_task["status"]["state"] for listed_task in listed] == ["TASK_STATE_CANCELED"]
    assert (stream.states[-1], stream.named("subagent_result")) == ("canceled", [])
    assert (
        len({body["params"]["message"]["messageId"] for body in line.sent if "message" in body["params"]})
        == 1
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancel_of_the_run_is_passed_on(fake: Fake, kind: str) -> None:
    frames: list[Frame] = []
    async with team(fake.at(kind, "silent"), idle=60) as crew:
        async for frame in crew.client.stream("How is it?"):
            frames.append(frame)
            if frame.text == HALF:
                await crew.client.call("tasks/cancel", {"id": ReceivedStream(frames).task_id})
        [cancel] = await fake.arrived(fake.at(kind, "silent"), "CancelTask", 1)
    assert frames[-1].state == "canceled"
    assert (cancel["task_id"], cancel["authorization"]) == ("task-77", f"Bearer {TOKEN}")


class Watched(MemoryLog):
    """The log of runs, looked at from outside."""

    kept: ClassVar[list[tuple[str, str, str]]] = []
    noted: ClassVar[asyncio.Event]

    async def store_remote_task(self, run_id: str, epoch: int, key: str, agent: str, task_id: str) -> None:
        await super().store_remote_task(run_id, epoch, key, agent, task_id)
        assert await self.find_remote_task(run_id, key) == task_id
        self.kept.append((run_id, key, task_id))
        self.noted.set()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    monkeypatch.setattr(Watched, "kept", [])
    monkeypatch.setattr(Watched, "noted", asyncio.Event(), raising=False)
    monkeypatch.setattr(storage, "MemoryLog", Watched)
    return Watched


@pytest.mark.parametrize("kind", KINDS)
async def test_the_remote_task_is_written_down_as_soon_as_it_has_a_name(
    fake: Fake, kind: str, watched: type[Watched]
) -> None:
    async with team(fake.at(kind, "named"), idle=60) as crew:
        question = asyncio.create_task(crew.ask())
        await watched.noted.wait()  # the agent says nothing but the name
        [task] = (await crew.client.call("ListTasks", {}))["result"]["tasks"]
        await crew.client.call("CancelTask", {"id": task["id"]})
        stream = await question
    assert [(run, task_id) for run, _, task_id in watched.kept] == [(stream.task_id, "task-77")]
    assert stream.states[-1] == "canceled"


@pytest.mark.parametrize("kind", KINDS)
async def test_the_remote_task_is_written_down_before_it_is_followed(
    fake: Fake, kind: str, watched: type[Watched]
) -> None:
    """The agent says one thing and then nothing: what comes after its first word cannot have brought the
    record about.
    """
    frames: list[Frame] = []
    async with team(fake.at(kind, "silent"), idle=60) as crew:
        async for frame in crew.client.stream("How is it?"):
            frames.append(frame)
            if frame.text == HALF:
                assert [(run, task) for run, _, task in watched.kept] == [
                    (ReceivedStream(frames).task_id, "task-77")
                ]
                await crew.client.call("tasks/cancel", {"id": ReceivedStream(frames).task_id})
    assert frames[-1].state == "canceled"
    assert len(watched.kept) == 1
