"""What the servers of other frameworks really sent (`tests/support/record_peers.py`), read by our client:
each text once, their tools, their errors."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ai_platform_engineering.a2a.client import ClientConversation, OutgoingMessage
from ai_platform_engineering.core.events import AnyEvent, Failed
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import A2ARemoteAgentConnectTool
from tests.support.harness import serve_app
from tests.support.peers import PEERS, RECORDINGS, Peer
from tests.support.record_peers import ANSWER, REASON, URL

every_peer = pytest.mark.parametrize("peer", PEERS, ids=str)


def read_recording(peer: Peer) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads((RECORDINGS / f"{peer}.json").read_text(encoding="utf-8"))
    return recording


@contextlib.asynccontextmanager
async def replay(recording: dict[str, Any], question: str) -> AsyncIterator[str]:
    """A server that answers as the recorded one did; its address."""
    bodies = list(recording[question])

    async def answer(request: Request) -> Response:
        if (await request.json())["method"] in ("SendStreamingMessage", "message/stream"):
            lines = "".join(f"data: {json.dumps(body)}\n\n" for body in bodies)
            return Response(lines, media_type="text/event-stream")
        return JSONResponse(bodies.pop(0))

    async def card(request: Request) -> Response:
        text = json.dumps(recording["card"]).replace(URL, str(request.base_url))
        return Response(text, media_type="application/json")

    routes = [Route("/", answer, methods=["POST"]), Route("/.well-known/agent-card.json", card)]
    async with serve_app(Starlette(routes=routes)) as url:
        yield url


async def read_events(recording: dict[str, Any], question: str) -> list[AnyEvent]:
    async with replay(recording, question) as url:
        connection = A2ARemoteAgentConnectTool(name="peer", description="", url=url)
        message = OutgoingMessage("m", "Well?")
        events = [event async for event in connection.send(message, ClientConversation())]
        await connection.http.aclose()
    return events


@every_peer
async def test_each_text_is_seen_once_and_the_tools_are_shown(peer: Peer) -> None:
    transcript = fold(await read_events(read_recording(peer), "delegation"))
    texts = peer.expected_texts(ANSWER)
    roles = ["narration"] * (len(texts) - 1) + ["answer"]
    assert [(span.text, span.role) for span in transcript.spans] == list(zip(texts, roles, strict=True))
    assert transcript.answer == texts[-1]
    calls = [(call.tool, call.outcome, dict(call.arguments)) for call in transcript.calls]
    assert calls == ([("lookup", "ok", {"app": "shop"})] if peer.tells_tools else [])


@every_peer
async def test_an_error_is_shown_once(peer: Peer) -> None:
    *events, last = await read_events(read_recording(peer), "error")
    assert isinstance(last, Failed)
    assert last.message
    assert REASON not in [span.text for span in fold(events).spans]


@every_peer
def test_the_recordings_are_of_the_version_that_is_installed(peer: Peer) -> None:
    assert read_recording(peer)["version"] == peer.version
