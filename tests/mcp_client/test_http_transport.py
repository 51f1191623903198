"""MCP servers over HTTP: real ones that are killed and come back, and ones that answer in every wrong way."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.mcp_errors import McpCallLost, McpToolFailed, McpUnavailable
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from tests.support.clocks import advance_clock
from tests.support.fakes.mcp_http import Behaviour, Exchange, HttpServer, http_server, proper
from tests.support.fakes.mcp_servers import (
    FAKES,
    LONG,
    by_name,
    network_guard_environment,
    open_sessions,
    until,
)


class RealServer:
    """The server of the MCP library on a fixed loopback port, as a process that can be killed."""

    def __init__(self, folder: Path) -> None:
        self._file, self.port = folder / "port", 0
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._file.unlink(missing_ok=True)
        command = [
            sys.executable,
            str(FAKES / "mcp_real.py"),
            "--port-file",
            str(self._file),
            "--port",
            str(self.port),
        ]
        self.process = subprocess.Popen(
            command,
            env={"PATH": os.environ["PATH"], **network_guard_environment()},
            stderr=subprocess.DEVNULL,
        )
        await until(self._file.exists, "the start of the server")
        self.port = int(self._file.read_text())

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    @property
    def definition(self) -> McpServer:
        return McpServer(url=f"http://127.0.0.1:{self.port}/mcp")


@contextlib.asynccontextmanager
async def real_server(folder: Path) -> AsyncIterator[RealServer]:
    server = RealServer(folder)
    try:
        await server.start()
        yield server
    finally:
        server.kill()


# --- real servers ---------------------------------------------------------------------------------


async def test_a_real_server(tmp_path: Path) -> None:
    values = [uuid.uuid4().hex for _ in range(100)]
    async with real_server(tmp_path) as server, open_sessions(tmp_path) as sessions:
        servers = {"real": server.definition}
        tools = by_name((await sessions.agent_tools(servers)).tools)
        assert await asyncio.gather(*(tools["echo"].ainvoke({"value": value}) for value in values)) == values
        assert await tools["count"].ainvoke({"to": 5}) == "counted to 5"
        with pytest.raises(McpToolFailed, match="not today"):
            await tools["fail"].ainvoke({"text": "not today"})
        # A caller that goes: the server is told, and stops.
        mark = tmp_path / "mark"
        hanging = asyncio.create_task(tools["hang"].ainvoke({"mark": str(mark)}))
        await until(lambda: mark.exists() and mark.read_text() == "started")
        hanging.cancel()
        await until(lambda: mark.read_text() == "cancelled", "the end of the work")
        # The server's own messages arrive beside the answers.
        revision = sessions.revision(servers)
        await tools["learn"].ainvoke({"name": "brand_new"})
        await until(lambda: sessions.revision(servers) != revision, "notice of the change")
        assert "brand_new" in by_name((await sessions.agent_tools(servers)).tools)


async def test_a_server_that_dies_is_noticed_and_used_again_when_it_is_back(tmp_path: Path) -> None:
    async with real_server(tmp_path) as server, open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("real", server.definition))
        first = json.loads(await tools["who"].ainvoke({}))
        mark = tmp_path / "mark"
        under_way = asyncio.create_task(tools["hang"].ainvoke({"mark": str(mark)}))
        await until(mark.exists)
        server.kill()
        with pytest.raises(
            McpCallLost, match="Whether it took effect is unknown"
        ):  # long before it would time out
            await under_way
        with pytest.raises(McpUnavailable, match=f"nothing answers at http://127.0.0.1:{server.port}/mcp"):
            await tools["who"].ainvoke({})
        assert sessions.state("real", server.definition).status == "failed"
        await server.start()
        second = json.loads(await tools["who"].ainvoke({}))
        # Restarted once more, unnoticed: the new server does not know our session, so the call is made in a
        # new one.
        server.kill()
        await server.start()
        third = json.loads(await tools["who"].ainvoke({}))
        assert len({identity["token"] for identity in (first, second, third)}) == 3


# --- byte by byte ---------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def opened(
    tmp_path: Path, *, headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[HttpServer, McpSessionPool, dict[str, BaseTool]]]:
    async with http_server() as server, open_sessions(tmp_path, **options) as sessions:
        yield (
            server,
            sessions,
            by_name(await sessions.tools("bytes", McpServer(url=server.url, headers=headers or {}))),
        )


async def unauthorized(exchange: Exchange) -> None:
    await exchange.respond(401, b'{"error": "who are you?"}')


async def overloaded(exchange: Exchange) -> None:
    await exchange.respond(503, b"<h1>sorry</h1>", "text/html")


async def complaining(exchange: Exchange) -> None:
    await exchange.respond(422, b'{"error": {"message": "the moon is full"}}')


async def page(exchange: Exchange) -> None:
    await exchange.respond(200, b"<html>Welcome</html>", "text/html")


async def not_ours(exchange: Exchange) -> None:
    await exchange.respond(200, b'{"jsonrpc": "2.0", "id": 99999, "result": {}}')


async def half_json(exchange: Exchange) -> None:
    await exchange.respond(200, b'{"jsonrpc": ')


async def accepted(exchange: Exchange) -> None:
    await exchange.respond(202)


REFUSALS: list[tuple[Behaviour, str]] = [
    (unauthorized, "it refused our credentials (HTTP 401 from {url})"),
    (overloaded, "it has a problem (HTTP 503 from {url})"),
    (complaining, "the moon is full (HTTP 422 from {url})"),
    (page, "{url} answers something that is not MCP"),
    (not_ours, "{url} answers something that is not MCP"),
    (half_json, "{url} answers something that is not MCP"),
    (accepted, "{url} answers something that is not MCP"),
]


@pytest.mark.parametrize(("behaviour", "reason"), REFUSALS)
async def test_a_start_that_is_refused_says_why(tmp_path: Path, behaviour: Behaviour, reason: str) -> None:
    async with http_server(initialize=behaviour) as server, open_sessions(tmp_path) as sessions:
        with pytest.raises(McpUnavailable) as error:
            await sessions.tools("bytes", McpServer(url=server.url))
        assert error.value.reason == reason.format(url=server.url)


async def test_an_answer_that_would_cost_too_much_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many_values = json.dumps({"jsonrpc": "2.0", "id": 0, "result": {"x": [[]] * 200_000}}).encode()

    async def as_body(exchange: Exchange) -> None:
        await exchange.respond(200, many_values)

    async def as_event(exchange: Exchange) -> None:
        await exchange.stream(f"event: message\ndata: {many_values.decode()}\n\n")

    async def long_body(exchange: Exchange) -> None:
        await exchange.respond(200, b" " * 17 * 1024 * 1024)

    async def compressed(exchange: Exchange) -> None:
        await exchange.respond(200, b"", content_encoding="gzip")

    answers = [
        (as_body, "It has too many values"),
        (as_event, "It has too many values"),
        (long_body, "It is larger than"),
        (compressed, "It is encoded as gzip"),
    ]
    async with opened(tmp_path) as (server, _, tools):
        for behaviour, reason in answers:
            server.behaviours["tools/call"] = behaviour
            with pytest.raises(McpCallLost, match="was lost while say was running"):
                await tools["say"].ainvoke({"value": "x"})
            assert f"the answer of {server.url} is not read. {reason}" in caplog.text
        server.behaviours["tools/call"] = proper
        assert await tools["say"].ainvoke({"value": "still here"}) == "still here"


async def test_a_refused_call_disturbs_no_other(tmp_path: Path) -> None:
    free = asyncio.Event()

    async def patient(exchange: Exchange) -> None:
        if exchange.message["params"]["arguments"]["value"] == "slow":
            await free.wait()
            await proper(exchange)
        else:
            await next(refusing)(exchange)

    refusing = iter([behaviour for behaviour, _ in REFUSALS])
    async with opened(tmp_path) as (server, _, tools):
        server.behaviours["tools/call"] = patient
        slow = asyncio.create_task(tools["say"].ainvoke({"value": "slow"}))
        for _, reason in REFUSALS:
            with pytest.raises(McpToolFailed) as error:
                await tools["say"].ainvoke({"value": "quick"})
            assert str(error.value) == reason.format(url=server.url)
        free.set()
        assert await slow == "slow"
        assert server.methods().count("initialize") == 1


@pytest.mark.parametrize("status", [400, 404])
async def test_a_forgotten_session_is_opened_again(tmp_path: Path, status: int) -> None:
    async def forgetful(exchange: Exchange) -> None:
        server.behaviours.clear()
        await exchange.respond(status)

    async with opened(tmp_path) as (server, _, tools):
        server.behaviours["tools/call"] = forgetful
        value = uuid.uuid4().hex
        assert await tools["say"].ainvoke({"value": value}) == value
        assert server.methods().count("initialize") == 2

        async def stubborn(exchange: Exchange) -> None:
            await exchange.respond(status)

        server.behaviours["tools/call"] = stubborn
        with pytest.raises(McpUnavailable, match=f"HTTP {status}"):
            await tools["say"].ainvoke({"value": value})


async def test_a_stream_that_breaks_off_is_the_end_of_its_call_alone(tmp_path: Path) -> None:
    async def breaking(exchange: Exchange) -> None:
        note = exchange.event(
            {"method": "notifications/message", "params": {"level": "info", "data": "begun"}}
        )
        await exchange.stream(note, 'event: message\ndata: {"jso')
        exchange.close()

    async with opened(tmp_path) as (server, _, tools):
        server.behaviours["tools/call"] = breaking
        with pytest.raises(McpCallLost, match="while say was running"):
            await tools["say"].ainvoke({"value": "x"})
        calls = server.methods().count("tools/call")
        assert calls == 1  # not repeated: it may have taken effect
        with pytest.raises(McpCallLost):
            await tools["read"].ainvoke({"value": "x"})
        assert server.methods().count("tools/call") == calls + 2  # harmless: repeated once
        server.behaviours.clear()
        assert await tools["say"].ainvoke({"value": "back"}) == "back"
        assert server.methods().count("initialize") == 1  # the server still answers: the session is kept


async def test_a_stream_with_numbered_events_is_resumed(tmp_path: Path) -> None:
    value = uuid.uuid4().hex
    request_ids: list[Any] = []

    async def pausing(exchange: Exchange) -> None:
        request_ids.append(exchange.message["id"])
        await exchange.stream("id: e-7\nretry: 10\ndata:\n\n")
        exchange.close()

    async def resuming(exchange: Exchange) -> None:
        assert exchange.headers["last-event-id"] == "e-7"
        result = {"content": [{"type": "text", "text": value}]}
        await exchange.stream(exchange.event({"id": request_ids[-1], "result": result}))
        exchange.close()

    async def gone(exchange: Exchange) -> None:
        await exchange.respond(404)

    async with opened(tmp_path) as (server, _, tools):
        server.behaviours.update({"tools/call": pausing, "GET": resuming})
        assert await tools["say"].ainvoke({"value": "x"}) == value
        server.behaviours["GET"] = gone
        with pytest.raises(McpCallLost):
            await tools["say"].ainvoke({"value": "x"})


async def test_a_server_that_says_nothing_is_given_up_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    async with opened(tmp_path) as (server, _, tools):
        server.behaviours.update({"tools/call": silent, "ping": silent, "DELETE": silent})
        call = asyncio.create_task(tools["say"].ainvoke({"value": "x"}))
        await until(lambda: "tools/call" in server.methods(), "the call")
        advance_clock(monkeypatch, LONG)
        with pytest.raises(McpCallLost, match=f"gave no answer in {LONG:g} seconds"):
            await call
        await until(lambda: "ping" in server.methods(), "the question whether anybody is there")
        server.behaviours = {"DELETE": silent}
        advance_clock(monkeypatch, LONG)
        assert await tools["say"].ainvoke({"value": "back"}) == "back"
        assert server.methods().count("initialize") == 2
        assert "notifications/cancelled" in server.methods()


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_server_that_wants_no_notices_is_served_all_the_same(tmp_path: Path, status: int) -> None:
    async def refusing(exchange: Exchange) -> None:
        await exchange.respond(status)

    async def silent(exchange: Exchange) -> None:
        await asyncio.sleep(60)

    notices = {"notifications__initialized": refusing, "notifications__cancelled": refusing}
    async with http_server(**notices) as server, open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("deaf", McpServer(url=server.url)))
        server.behaviours["tools/call"] = silent
        call = asyncio.create_task(tools["say"].ainvoke({"value": "x"}))
        await until(lambda: "tools/call" in server.methods())
        call.cancel()
        await until(lambda: "notifications/cancelled" in server.methods())
        del server.behaviours["tools/call"]
        assert await tools["say"].ainvoke({"value": "still here"}) == "still here"
        assert server.methods().count("initialize") == 1


async def test_credentials_are_sent_and_told_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    token = uuid.uuid4().hex

    async def telling(exchange: Exchange) -> None:
        await exchange.respond(422, json.dumps({"error": f"{token} is expired"}).encode())

    async with opened(tmp_path, headers={"Authorization": f"Bearer {token}"}) as (server, sessions, tools):
        assert await tools["say"].ainvoke({"value": f"it is {token}"}) == "it is ***"
        server.behaviours["tools/call"] = telling
        with pytest.raises(McpToolFailed, match=r"\*\*\* is expired"):
            await tools["say"].ainvoke({"value": "x"})
        assert {exchange.headers.get("authorization") for exchange in server.seen} == {f"Bearer {token}"}
        states = repr(sessions.states())
    assert token not in states
    ours = "\n".join(
        record.getMessage()
        for record in caplog.records
        if record.name.partition(".")[0] in ("ai_platform_engineering", "mcp", "httpx", "httpcore", "root")
    )
    assert token not in ours
    assert "s-1" not in ours  # the session's id is a credential too


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://me:{secret}@127.0.0.1:1/mcp?api_key={secret}", "nothing answers at http://127.0.0.1:1/mcp"),
        ("ftp://127.0.0.1/mcp", "ftp://127.0.0.1/mcp is not an http or https address"),
    ],
)
async def test_an_address_where_nothing_is(tmp_path: Path, url: str, reason: str) -> None:
    secret = uuid.uuid4().hex
    async with open_sessions(tmp_path) as sessions:
        with pytest.raises(McpUnavailable) as error:
            await sessions.tools("nowhere", McpServer(url=url.format(secret=secret)))
    assert error.value.reason == reason


async def test_a_redirect_to_somewhere_else_is_not_followed(tmp_path: Path) -> None:
    async def moved(exchange: Exchange) -> None:
        await exchange.respond(307, location="http://localhost:1/other?key=secret")

    async with http_server(initialize=moved) as server, open_sessions(tmp_path) as sessions:
        with pytest.raises(
            McpUnavailable, match=r"it redirects to http://localhost:1/other, which is not followed"
        ):
            await sessions.tools("moved", McpServer(url=server.url, headers={"Authorization": "Bearer x"}))
