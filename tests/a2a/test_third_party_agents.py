"""Agents that this project did not write, of protocol 1.0 and 0.3, as processes with the SDKs' stock servers;
and broken ones."""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ai_platform_engineering.a2a.client import (
    ClientConversation,
    OutgoingMessage,
    RequestRefused,
    Unreachable,
)
from ai_platform_engineering.a2a.third_party_client import ThirdPartyClient
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    InputRequested,
    Paused,
    TextDelta,
    TextEnded,
    ToolFinished,
    ToolStarted,
)
from ai_platform_engineering.core.transcript import Transcript, fold
from tests.conftest import ROOT, need
from tests.support.agent_services import connect_remote_agent
from tests.support.clocks import advance_clock
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import PLAIN, agent, serve_app
from tests.support.storages import in_folder, supervisor_on

TOKEN = "token-918273645"
REQUIREMENTS = ROOT / "tests" / "fixtures" / "a2a_03_requirements.txt"

Steps = list[dict[str, Any]]


def older_python() -> Path:
    """The interpreter of the environment with the older SDK, which `make backends` installs."""
    folder = Path(sys.prefix) / "third-party-a2a"
    installed = [mark.read_bytes() for mark in folder.glob(".installed-*")]
    need("a2a-sdk 0.3", REQUIREMENTS.read_bytes() in installed, "`make backends` installs it")
    return folder / "bin" / "python"


@dataclass(frozen=True)
class Server:
    """A server process; its gates open and its records are read over HTTP."""

    process: subprocess.Popen[bytes]
    url: str

    async def open(self, gate: str) -> None:
        async with httpx.AsyncClient(verify=PLAIN) as http:
            (await http.post(f"{self.url}gates/{gate}")).raise_for_status()

    async def methods(self, authorization: str) -> list[str]:
        """The methods that were called with the credentials."""
        async with httpx.AsyncClient(verify=PLAIN) as http:
            calls = (await http.get(f"{self.url}requests")).json()
        return [call["method"] for call in calls if call["authorization"] == f"Bearer {authorization}"]

    async def called(self, authorization: str, times: int) -> None:
        """Waits until so many calls have come; the far end is another process, which has no event to wait
        for."""
        while len(await self.methods(authorization)) < times:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@contextlib.contextmanager
def running(version: str, *arguments: str) -> Iterator[Server]:
    if version == "1.0":
        command, folder = [sys.executable, "-m", "tests.support.fakes.a2a_10_server"], ROOT
    else:
        command, folder = (
            [str(older_python()), str(ROOT / "tests" / "support" / "fakes" / "a2a_03_server.py")],
            ROOT,
        )
    process = subprocess.Popen([*command, *arguments], cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().strip()
        assert url, "the server did not start"
        yield Server(process, url)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module", params=["1.0", "0.3"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(version: str) -> Iterator[Server]:
    with running(version) as started:
        yield started


@pytest.fixture(scope="module")
def unstreamed(version: str) -> Iterator[Server]:
    with running(version, "--no-streaming") as started:
        yield started


@contextlib.asynccontextmanager
async def asking(url: str, card: AgentCard | None = None, **options: Any) -> AsyncIterator[ThirdPartyClient]:
    async with httpx.AsyncClient(verify=PLAIN) as http:
        agent_card = card or await A2ACardResolver(http, url).get_agent_card()
        yield ThirdPartyClient(
            agent_card,
            http,
            agent="argocd",
            **{"poll": 0.05, "connect_timeout": 5.0, "token": TOKEN, **options},
        )


def outgoing_message(steps: Steps | str, **ids: str | None) -> OutgoingMessage:
    return OutgoingMessage(str(uuid.uuid4()), steps if isinstance(steps, str) else json.dumps(steps), **ids)


async def collect_events(events: AsyncIterator[AnyEvent]) -> list[AnyEvent]:
    return [event async for event in events]


async def play(server: Server, steps: Steps, **options: Any) -> tuple[list[AnyEvent], Transcript]:
    async with asking(server.url, **options) as client:
        events = await collect_events(client.send(outgoing_message(steps), ClientConversation()))
    return events, fold(events)


def shown(transcript: Transcript) -> list[str]:
    return [span.text for span in transcript.spans]


def fact() -> str:
    """A text that no other run of a test has."""
    return f"Version {uuid.uuid4().hex[:8]} is deployed."


# --- what agents say ----------------------------------------------------------------------------------------


async def test_an_answer_in_artifacts_is_streamed_and_is_the_answer(server: Server) -> None:
    answer, gate = fact(), uuid.uuid4().hex
    half = len(answer) // 2
    steps = [
        {"status": "working", "text": "Let me look."},
        {"artifact": "a", "text": answer[:half]},
        {"gate": gate},
        {"artifact": "a", "text": answer[half:], "append": True, "last": True},
        {"status": "completed"},
    ]
    conversation, events = ClientConversation(), []
    async with asking(server.url) as client:
        async for event in client.send(outgoing_message(steps), conversation):
            events.append(event)
            if isinstance(event, TextDelta) and event.text == answer[:half]:
                assert conversation.task_id
                await server.open(gate)  # only who has seen the first half lets the second go
    assert [event.text for event in events if isinstance(event, TextDelta)] == [
        "Let me look.",
        answer[:half],
        answer[half:],
    ]
    assert events[-1] == Answered(agent="argocd", text=answer, trace_id="")
    assert [(span.text, span.role) for span in fold(events).spans] == [
        ("Let me look.", "narration"),
        (answer, "answer"),
    ]


async def test_the_older_form_is_shown_once_and_is_the_answer(server: Server) -> None:
    answer = fact()
    steps = [
        {"status": "working", "text": "🔧 Calling tool: **version_service__version**\n"},
        {"status": "working", "text": "✅ Tool **version_service__version** completed\n"},
        {"status": "working", "text": answer},
        {"artifact": "r", "name": "current_result", "text": "", "last": True},
        {"status": "completed"},
    ]
    events, transcript = await play(server, steps)
    assert [type(event) for event in events] == [ToolStarted, ToolFinished, TextDelta, TextEnded, Answered]
    assert [(call.tool, call.outcome) for call in transcript.calls] == [("version_service__version", "ok")]
    assert (shown(transcript), transcript.answer) == ([answer], answer)


async def test_the_older_form_without_a_stream(unstreamed: Server) -> None:
    answer = fact()
    steps = [
        {"status": "working", "text": "Let me look."},
        {"status": "working", "text": answer},
        {"status": "completed"},
    ]
    _, transcript = await play(unstreamed, steps)
    assert (shown(transcript), transcript.answer) == (["Let me look.", answer], answer)


async def test_an_answer_in_the_last_status(server: Server) -> None:
    answer = fact()
    _, transcript = await play(server, [{"status": "completed", "text": answer}])
    assert (shown(transcript), transcript.answer) == ([answer], answer)


async def test_data_and_files_are_an_answer(server: Server) -> None:
    file = {"raw": "aGVsbG8=", "filename": "report.pdf", "mediaType": "application/pdf"}
    steps = [
        {"artifact": "d", "parts": [{"data": {"pods": 3}}]},
        {"artifact": "f", "parts": [file]},
        {"status": "completed"},
    ]
    _, transcript = await play(server, steps)
    assert transcript.answer == '{"pods": 3}\n\n(file report.pdf, application/pdf)\n'
    assert shown(transcript) == ["(file report.pdf, application/pdf)\n", '{"pods": 3}']


async def test_a_lone_message(server: Server) -> None:
    answer = fact()
    events, transcript = await play(server, [{"message": answer}])
    assert [type(event) for event in events] == [TextDelta, TextEnded, Answered]
    assert (shown(transcript), transcript.answer) == ([answer], answer)


async def test_a_lone_message_without_a_stream(unstreamed: Server) -> None:
    answer = fact()
    _, transcript = await play(unstreamed, [{"message": answer}])
    assert (shown(transcript), transcript.answer) == ([answer], answer)


@pytest.mark.parametrize(("state", "retryable"), [("failed", True), ("rejected", False)])
async def test_a_failure_in_the_agents_words(server: Server, state: str, retryable: bool) -> None:
    events, transcript = await play(
        server, [{"status": "working", "text": "Let me look."}, {"status": state, "text": "No such cluster."}]
    )
    assert isinstance(events[-1], Failed)
    assert (events[-1].message, events[-1].code, events[-1].retryable) == (
        "No such cluster.",
        "agent_failed",
        retryable,
    )
    assert transcript.state == "failed"


async def test_an_end_without_a_result_is_a_failure(server: Server) -> None:
    events, _ = await play(server, [{"status": "completed"}])
    assert isinstance(events[-1], Failed)
    assert "finished without a result" in events[-1].message


async def test_credentials_that_the_agent_wants(server: Server) -> None:
    events, _ = await play(server, [{"status": "auth-required", "text": "Sign in at the portal."}])
    assert isinstance(events[-1], Failed)
    assert (
        events[-1].message
        == "The agent argocd wants credentials that it was not given. Sign in at the portal."
    )


async def test_a_question_of_the_agent_is_answered_by_text(server: Server, unstreamed: Server) -> None:
    await question_and_reply(server)
    await question_and_reply(unstreamed)


async def question_and_reply(server: Server) -> None:
    reply = uuid.uuid4().hex
    steps = [
        {"status": "working", "text": "Let me look."},
        {"status": "input-required", "text": "Which cluster?"},
        {"artifact": "a", "text": "It runs on {reply}."},
        {"status": "completed"},
    ]
    conversation = ClientConversation()
    async with asking(server.url) as client:
        first = await collect_events(client.send(outgoing_message(steps), conversation))
        assert isinstance(first[-2], InputRequested)
        assert isinstance(first[-1], Paused)
        assert first[-1].requests == (first[-2].request_id,)
        assert (first[-2].asked.response, [field.field_name for field in first[-2].asked.fields]) == (
            "Which cluster?",
            ["answer"],
        )
        task_id = conversation.task_id
        second = await collect_events(
            client.send(
                outgoing_message(reply, task_id=task_id, context_id=conversation.context_id), conversation
            )
        )
    assert conversation.task_id == task_id
    assert second[-1] == Answered(agent="argocd", text=f"It runs on {reply}.", trace_id="")
    assert shown(fold(second)) == [f"It runs on {reply}."]


async def test_a_question_of_the_agent_is_answered_after_a_restart_of_the_supervisor(
    server: Server, tmp_path: Path
) -> None:
    reply = uuid.uuid4().hex
    steps = [
        {"status": "input-required", "text": "Which cluster?"},
        {"artifact": "a", "text": "It runs on {reply}."},
        {"status": "completed"},
    ]
    turns = (
        Turn(Call("task", {"description": json.dumps(steps), "subagent_type": "argocd"})),
        Turn(Say("Done.")),
    )
    model = ScriptedChatModel(script=Script(*turns))
    async with (
        connect_remote_agent(agent("argocd", None), server.url) as far,
        supervisor_on(in_folder(tmp_path), model, agents=[far]) as client,
    ):
        paused = await client.ask("Where does it run?")
    assert fold(paused.events).state == "input-required"
    async with (
        connect_remote_agent(agent("argocd", None), server.url) as far,
        supervisor_on(in_folder(tmp_path), model, agents=[far]) as client,
    ):
        stream = await client.ask(reply, contextId=paused.context_id)
    assert stream.answer == "Done."
    assert [message.text for message in model.requests[-1].since_user if message.role == "tool"] == [
        f"It runs on {reply}."
    ]


# --- what goes wrong ----------------------------------------------------------------------------------------


async def test_a_dropped_stream_is_polled_to_the_right_text(server: Server) -> None:
    answer, gate, token = fact(), uuid.uuid4().hex, uuid.uuid4().hex
    pieces = [answer[at : at + 5] for at in range(0, len(answer), 5)]
    steps = [
        {"status": "working", "text": "Let me look."},
        *({"artifact": "a", "text": piece, "append": number > 0} for number, piece in enumerate(pieces[:2])),
        {"gate": gate},
        {"drop": True},
        *({"artifact": "a", "text": piece, "append": True} for piece in pieces[2:]),
        {"status": "completed"},
    ]
    events: list[AnyEvent] = []
    async with asking(server.url, token=token) as client:
        async for event in client.send(outgoing_message(steps), ClientConversation()):
            events.append(event)
            if isinstance(event, TextDelta) and event.text == pieces[1]:
                await server.open(gate)
    transcript = fold(events)
    assert (shown(transcript), transcript.answer) == (["Let me look.", answer], answer)
    assert not transcript.discarded
    sent, *polls = await server.methods(token)
    assert sent in ("SendStreamingMessage", "message/stream")
    assert set(polls) <= {"GetTask", "tasks/get"}
    assert polls


async def test_a_silent_stream_is_polled(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, gate = fact(), uuid.uuid4().hex
    steps = [
        {"status": "working", "text": "Let me look."},
        {"gate": gate},
        {"artifact": "a", "text": answer},
        {"status": "completed"},
    ]
    token = uuid.uuid4().hex
    idle_timeout = 1000.0
    async with asking(server.url, token=token, idle_timeout=idle_timeout) as client:
        stream = client.send(outgoing_message(steps), ClientConversation())
        first = await anext(stream)
        listening = asyncio.create_task(collect_events(stream))
        await asyncio.sleep(0)  # the client waits for the next frame now
        advance_clock(monkeypatch, idle_timeout)
        await server.called(token, 2)
        await server.open(gate)
        events = [first, *await listening]
    transcript = fold(events)
    assert (shown(transcript), transcript.answer) == (["Let me look.", answer], answer)


async def test_a_server_that_dies_is_unreachable(version: str) -> None:
    gate = uuid.uuid4().hex
    with running(version) as own:
        async with asking(own.url, poll=0.01, lost_timeout=0.1) as client:
            events = client.send(
                outgoing_message([{"status": "working", "text": "One moment."}, {"gate": gate}]),
                ClientConversation(),
            )
            assert isinstance(await anext(events), TextDelta)
            own.process.kill()
            with pytest.raises(Unreachable) as raised:
                await collect_events(events)
            with pytest.raises(Unreachable) as refused:
                await collect_events(client.send(outgoing_message("Again?"), ClientConversation()))
    assert raised.value.accepted is True
    assert refused.value.accepted is False


async def test_a_task_is_followed_to_its_end(server: Server) -> None:
    answer, gate = fact(), uuid.uuid4().hex
    steps = [
        {"status": "working", "text": "One moment."},
        {"gate": gate},
        {"artifact": "a", "text": answer},
        {"status": "completed"},
    ]
    conversation = ClientConversation()
    async with asking(server.url) as client:
        event_stream = client.send(outgoing_message(steps), conversation)
        await anext(event_stream)
        await event_stream.aclose()
        assert conversation.task_id
        events: list[AnyEvent] = []
        async for event in client.follow(conversation.task_id, ClientConversation()):
            events.append(event)
            await server.open(gate)
    transcript = fold(events)
    assert (shown(transcript), transcript.answer) == (["One moment.", answer], answer)


async def test_a_cancelled_task_ends_the_stream(server: Server) -> None:
    """The older server leaves the stream open and silent: its end is found by polling."""
    conversation, events = ClientConversation(), []
    async with asking(server.url, idle_timeout=1.0) as client:
        async for event in client.send(
            outgoing_message([{"status": "working", "text": "One moment."}, {"gate": "never"}]), conversation
        ):
            events.append(event)
            if isinstance(event, TextDelta):
                assert conversation.task_id
                await client.cancel(conversation.task_id)
    assert isinstance(events[-1], Cancelled)


async def test_an_agent_that_breaks_is_no_success(server: Server, version: str) -> None:
    """The newer server says that the task failed; the older one leaves it as it was, and whoever asked waits
    as long as he likes."""
    token, events = uuid.uuid4().hex, []

    async def listen(client: ThirdPartyClient) -> None:
        async for event in client.send(
            outgoing_message([{"status": "working", "text": "One moment."}, {"raise": "boom"}]),
            ClientConversation(),
        ):
            events.append(event)

    async with asking(server.url, token=token) as client:
        listening = asyncio.create_task(listen(client))
        polled = asyncio.create_task(server.called(token, 4))
        await asyncio.wait({listening, polled}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        polled.cancel()
        await asyncio.wait({listening, polled})
    ends = [event for event in events if isinstance(event, Answered | Failed | Cancelled | Paused)]
    assert [type(event) for event in ends] == ([Failed] if version == "1.0" else [])
    assert "boom" not in str(events)


async def test_errors_of_the_protocol_are_refusals(server: Server) -> None:
    async with asking(server.url, lost_timeout=3.0, poll=0.01) as client:
        with pytest.raises(RequestRefused, match=r"refused the request \(-32001\)"):
            await client.cancel("no-such-task")
        with pytest.raises(RequestRefused, match=r"refused the request \(-32001\)"):
            await collect_events(client.follow("no-such-task", ClientConversation()))
        with pytest.raises(RequestRefused, match=r"refused the request \(-32001\)"):
            await collect_events(
                client.send(outgoing_message("Well?", task_id="no-such-task"), ClientConversation())
            )


# --- servers that are none ----------------------------------------------------------------------------------


def card_of(url: str, protocol: str, streaming: bool) -> AgentCard:
    interface = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=protocol)
    return AgentCard(
        name="odd", supported_interfaces=[interface], capabilities=AgentCapabilities(streaming=streaming)
    )


def events_of(*bodies: Any) -> bytes:
    return "".join(
        f"data: {body if isinstance(body, str) else json.dumps(body)}\n\n" for body in bodies
    ).encode()


def sse(*bodies: Any) -> Response:
    return Response(events_of(*bodies), media_type="text/event-stream")


def result(value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "1", "result": value}


@contextlib.asynccontextmanager
async def odd(
    answer: Any, protocol: str, *, streaming: bool = True, **options: Any
) -> AsyncIterator[ThirdPartyClient]:
    """A client of a server that gives this response to everything."""

    async def respond(_: Request) -> Response:
        return answer() if callable(answer) else answer

    app, limits = (
        Starlette(routes=[Route("/", respond, methods=["POST"])]),
        {"poll": 0.01, "lost_timeout": 0.1, **options},
    )
    async with serve_app(app) as url, asking(url, card_of(url, protocol, streaming), **limits) as client:
        yield client


protocols = pytest.mark.parametrize("protocol", ["1.0", "0.3"])
both_ways = pytest.mark.parametrize("streaming", [True, False])

NOT_A2A: dict[str, Any] = {
    "a page": lambda: Response("<html>hello</html>", media_type="text/html"),
    "a list": lambda: JSONResponse([1, 2]),
    "a number": lambda: JSONResponse(7),
    "nothing": lambda: JSONResponse({}),
    "other words": lambda: JSONResponse(result("hello")),
    "an error without form": lambda: JSONResponse({"jsonrpc": "2.0", "id": "1", "error": "no"}),
    "bad bytes": lambda: Response(b"\xff\xfe\x00", media_type="application/json"),
    "deep": lambda: Response("[" * 5000 + "]" * 5000, media_type="application/json"),
    "not found": lambda: Response("nobody", status_code=404),
    "moved": lambda: Response(status_code=302, headers={"location": "http://127.0.0.1:1/"}),
}


@pytest.mark.pairwise
@protocols
@both_ways
@pytest.mark.parametrize("what", NOT_A2A)
async def test_what_is_not_a2a_is_refused_in_words(protocol: str, streaming: bool, what: str) -> None:
    async with odd(NOT_A2A[what], protocol, streaming=streaming) as client:
        with pytest.raises((RequestRefused, Unreachable)) as raised:
            await collect_events(client.send(outgoing_message("Well?"), ClientConversation()))
    assert "did not answer in A2A" in str(raised.value)
    assert str(raised.value).startswith("The agent argocd ")


@protocols
@both_ways
async def test_an_error_answer_is_short_and_holds_no_token(protocol: str, streaming: bool) -> None:
    error = {
        "jsonrpc": "2.0",
        "id": "1",
        "error": {"code": -32603, "message": f"{'x' * 290} {TOKEN} {'y' * 500}"},
    }
    async with odd(lambda: JSONResponse(error), protocol, streaming=streaming) as client:
        with pytest.raises(RequestRefused) as raised:
            await collect_events(client.send(outgoing_message("Well?"), ClientConversation()))
    message = str(raised.value)
    assert message.startswith("The agent argocd refused the request (-32603): xxx")
    assert len(message) < 360
    assert TOKEN[:6] not in message


@protocols
@pytest.mark.parametrize(
    ("status", "kind"), [(401, RequestRefused), (403, RequestRefused), (500, Unreachable), (503, Unreachable)]
)
async def test_a_status_of_http(protocol: str, status: int, kind: type[Exception]) -> None:
    async with odd(lambda: Response("no", status_code=status), protocol) as client:
        with pytest.raises(kind, match=str(status)):
            await collect_events(client.send(outgoing_message("Well?"), ClientConversation()))


@protocols
async def test_an_error_in_the_body_of_an_http_error_is_read(protocol: str) -> None:
    error = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32099, "message": "The quota is used up."}}
    async with odd(lambda: JSONResponse(error, status_code=400), protocol) as client:
        with pytest.raises(RequestRefused, match=r"\(-32099\): The quota is used up\."):
            await collect_events(client.send(outgoing_message("Well?"), ClientConversation()))


@protocols
async def test_a_stream_without_a_word_is_not_sent_again(protocol: str) -> None:
    requests: list[int] = []

    def nothing() -> Response:
        requests.append(1)
        return sse()

    async with odd(nothing, protocol) as client:
        with pytest.raises(Unreachable) as raised:
            await collect_events(client.send(outgoing_message("Well?"), ClientConversation()))
    assert raised.value.accepted is None
    assert len(requests) == 1


@protocols
async def test_a_server_that_hangs_is_unreachable(protocol: str) -> None:
    """Keep-alive comments are no events: they do not stand for an agent that works."""
    released = asyncio.Event()

    async def pings() -> AsyncIterator[bytes]:
        while not released.is_set():
            yield b": ping\n\n"
            await asyncio.sleep(0.02)

    async with odd(
        lambda: StreamingResponse(pings(), media_type="text/event-stream"), protocol, idle_timeout=0.3
    ) as client:
        with pytest.raises(Unreachable, match="fell silent") as raised:
            await collect_events(client.send(outgoing_message("Well?"), ClientConversation()))
        released.set()
    assert raised.value.accepted is None


async def test_an_old_pause_in_the_first_frame_is_not_taken_for_a_new_one() -> None:
    status = {
        "state": "input-required",
        "message": {"kind": "message", "messageId": "m", "role": "agent", "parts": []},
    }
    task = {"kind": "task", "id": "t", "contextId": "c", "status": status}
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": "Done."}]}
    update = {"kind": "artifact-update", "taskId": "t", "contextId": "c", "artifact": artifact}
    end = {
        "kind": "status-update",
        "taskId": "t",
        "contextId": "c",
        "final": True,
        "status": {"state": "completed"},
    }
    async with odd(lambda: sse(*map(result, (task, update, end))), "0.3") as client:
        events = await collect_events(
            client.send(outgoing_message("prod", task_id="t", context_id="c"), ClientConversation())
        )
        paused = await collect_events(client.send(outgoing_message("New."), ClientConversation()))
    assert events[-1] == Answered(agent="argocd", text="Done.", trace_id="")
    assert isinstance(paused[-1], Paused)


WORKING = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}}
COMPLETED = {
    "kind": "task",
    "id": "t",
    "contextId": "c",
    "artifacts": [{"artifactId": "a", "parts": [{"kind": "text", "text": "Done."}]}],
}
COMPLETED["status"] = {"state": "completed"}


async def test_an_error_in_a_stream_counts_unless_the_task_has_ended() -> None:
    error = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32603, "message": "Lost."}}
    answers = [
        sse(result(WORKING), error),
        JSONResponse(result(WORKING)),
        sse(result(WORKING), error),
        JSONResponse(result(COMPLETED)),
    ]
    async with odd(lambda: answers.pop(0), "0.3", lost_timeout=60.0) as client:
        with pytest.raises(RequestRefused, match=r"\(-32603\): Lost\."):
            await collect_events(client.send(outgoing_message("Well?"), ClientConversation()))
        events = await collect_events(client.send(outgoing_message("Well?"), ClientConversation()))
    assert events[-1] == Answered(agent="argocd", text="Done.", trace_id="")


async def test_a_stream_that_stays_open_after_the_end_is_left() -> None:
    disconnected = asyncio.Event()

    async def held_open() -> AsyncIterator[bytes]:
        yield events_of(result(COMPLETED))
        try:
            await asyncio.Event().wait()
        finally:
            disconnected.set()

    async with odd(
        lambda: StreamingResponse(held_open(), media_type="text/event-stream"), "0.3", idle_timeout=600.0
    ) as client:
        async with asyncio.timeout(120):
            events = await collect_events(client.send(outgoing_message("Well?"), ClientConversation()))
            await disconnected.wait()
    assert events[-1] == Answered(agent="argocd", text="Done.", trace_id="")


async def test_nothing_secret_is_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await play(server, [{"status": "completed", "text": "Yes."}])
    async with asking(server.url) as client:
        with pytest.raises(RequestRefused):
            await client.cancel("no-such-task")
    assert TOKEN not in caplog.text
    assert not [
        record
        for record in caplog.records
        if record.name.startswith("a2a") and record.levelno < logging.WARNING
    ]
