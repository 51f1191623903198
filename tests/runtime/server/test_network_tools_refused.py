"""The platform's own servers and its network tools: a port check is answered, and nothing else is."""

import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from ai_platform_engineering.core.call_targets import NETWORK_TOOL_USER_AGENT
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.storage import Storage
from tests.support.approving_agent import requests
from tests.support.fakes.mcp_servers import open_sessions
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, serve_app, supervisor
from tests.support.network_agent import NetworkAgent

FACT = "The door code of the data centre is 4711."
REMEMBERING = Script(Turn(Call("remember_fact", {"fact": FACT})), Turn(Say("I remember it.")))
ATTACKING = Script(
    Turn(Call("task", {"description": "{{user}}", "subagent_type": "desk"}, id="c0")),
    Turn(Say("So: {{tool:desk}}")),
)


@contextlib.asynccontextmanager
async def shared_server(desk: NetworkAgent, *, knows_port: bool) -> AsyncIterator[Client]:
    """A supervisor on loopback without keys; `knows_port`: its settings hold the port it listens on."""
    listener = socket.create_server(("127.0.0.1", 0))
    if knows_port:
        desk.env = {**desk.env, "A2A_PORT": str(listener.getsockname()[1])}
    model = ScriptedChatModel(script=Book({"^Remember": REMEMBERING, "": ATTACKING}))
    async with open_sessions(desk.folder) as sessions, desk.placed(sessions) as agent:
        settings = Settings.from_variables({**FAST, **desk.env})
        app = create_app(settings, agents=[agent], model=model, storage=Storage.in_memory())
        async with serve_app(app, listener) as url, httpx.AsyncClient(timeout=30, verify=PLAIN) as http:
            yield Client(url, http)


@pytest.mark.parametrize("knows_port", [True, False])
async def test_nobody_reads_anothers_facts_through_the_servers_own_port(
    tmp_path: Path, knows_port: bool
) -> None:
    """A request of a tool comes from this machine, and would be the person's who sits there."""
    calls = (
        Call("http_check", {"url": "{{user}}v1/facts"}, id="c1"),
        Call("http_check", {"url": "{{user}}tools"}, id="c2"),
        Call("http_check", {"url": "{{user}}health"}, id="c3"),
    )
    script = Script(Turn(*calls), Turn(Say("{{tool:http_check}}")))
    desk = NetworkAgent(tmp_path, script)
    async with shared_server(desk, knows_port=knows_port) as client:
        await client.ask("Remember the door code.")
        stored = (await client.http.get(f"{client.url}v1/facts")).json()["facts"]
        assert [fact["fact"] for fact in stored] == [FACT]
        frames = client.stream(client.url, version="1.0", headers={"X-CAIPE-User": "mallory"})
        raw = b"".join([frame.raw async for frame in frames])
    results = desk.tool_results()
    assert len(results) == 3
    assert b"4711" not in raw
    assert "4711" not in "".join(results)
    if knows_port:
        assert all("belongs to this platform itself" in result for result in results)
    else:
        assert all("403 Forbidden" in result for result in results)


async def test_the_first_question_of_the_readme_is_answered_without_asking(tmp_path: Path) -> None:
    call = Call("check_port", {"host": "localhost", "port": "{{user}}"}, id="c1")
    desk = NetworkAgent(tmp_path, Script(Turn(call), Turn(Say("Checked."))))
    async with shared_server(desk, knows_port=True) as client:
        port = httpx.URL(client.url).port
        first = await client.ask("is port 8000 open on localhost, and what does 10.0.0.0/22 contain?")
        stream = await client.ask(str(port), contextId=first.context_id)
    assert (stream.last.state, requests(stream)) == ("completed", [])
    assert f"Port {port} on localhost (127.0.0.1) is open" in desk.tool_results()[0]


@pytest.mark.parametrize("path", ["", "health", "ready", ".well-known/agent-card.json", "v1/facts", "tools"])
async def test_every_route_refuses_our_network_tools(path: str) -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        headers = {"User-Agent": NETWORK_TOOL_USER_AGENT}
        response = await client.http.get(f"{client.url}{path}", headers=headers)
        assert response.status_code == 403
        assert (await client.http.get(f"{client.url}health")).status_code == 200
