"""Connections that keep the server waiting are closed, and never keep others out."""

import array
import asyncio
import contextlib
import fcntl
import json
import re
import socket
import termios
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.net.http_connections import LimitedHttpProtocol
from tests.support.clocks import advance_clock
from tests.support.dialects import V10
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import Client, supervisor
from tests.support.health_witness import health_witness

KEY = "k" * 40
ANSWER = Script(Turn(Say("Hello.")))
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def connections(client: Client, count: int, first_bytes: bytes) -> AsyncIterator[list[Streams]]:
    """Connections that have sent this much."""
    host, port = client.url.removeprefix("http://").rstrip("/").split(":")
    opened: list[Streams] = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(first_bytes)
            await writer.drain()
            opened.append((reader, writer))
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def is_closed(streams: Streams) -> bool:
    """Waits for the end of the connection."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(20):
            await streams[0].read()
    return True


@pytest.mark.parametrize(
    "first_bytes",
    [
        b"",
        POST + b"X-A: ",
        POST + b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
    ],
    ids=["nothing", "half of the headers", "half of the body"],
)
async def test_a_request_that_does_not_arrive_ends_its_connection(first_bytes: bytes) -> None:
    env = {"A2A_HEADER_TIMEOUT_SECONDS": "0.2", "A2A_BODY_TIMEOUT_SECONDS": "0.2"}
    async with supervisor(ANSWER, env=env) as client, connections(client, 50, first_bytes) as slow:
        assert all(await asyncio.gather(*map(is_closed, slow)))
        assert (await client.ask("Hello?")).answer == "Hello."


async def test_slow_connections_keep_nobody_out() -> None:
    blocking = BlockingScenario()
    env = {"A2A_MAX_CONNECTIONS": "10", "A2A_AUTH_SHARED_KEY": KEY, "A2A_HEADER_TIMEOUT_SECONDS": "600"}
    async with supervisor(blocking.script, tools=[blocking.tool], env=env) as client:
        client.headers["Authorization"] = f"Bearer {KEY}"
        stream = client.stream("Wait.")
        task_id = (await anext(stream)).update["id"]
        async with health_witness(client.url), connections(client, 50, b"POST / HTTP/1.1\r\nX: ") as slow:
            assert all(await asyncio.gather(*map(is_closed, slow[:40])))
            assert "result" in await client.call(V10.get, {"id": task_id})
            blocking.released.set()
            frames = [frame async for frame in stream]
    assert frames[-1].state == "completed"


async def test_connections_at_work_are_not_closed_for_new_ones() -> None:
    blocking = BlockingScenario()
    env = {"A2A_MAX_CONNECTIONS": "3"}
    async with supervisor(blocking.script, tools=[blocking.tool], env=env) as client:
        streams = [client.stream("Wait.") for _ in range(3)]
        for stream in streams:
            await anext(stream)
        response = await client.http.get(client.url + "health")
        assert (response.status_code, "A2A_MAX_CONNECTIONS" in response.text) == (503, True)
        blocking.released.set()
        for stream in streams:
            assert [frame async for frame in stream][-1].state == "completed"


async def test_headers_without_end_are_refused() -> None:
    async with supervisor(ANSWER) as client, connections(client, 1, POST) as [(reader, writer)]:
        # One byte too many: what is sent after the refusal would reset the connection.
        writer.write(b"X-A: " + b"x" * (64 * 1024 + 1 - len(POST) - 5))
        async with asyncio.timeout(20):
            response = await reader.read()
        assert (await client.ask("Hello?")).answer == "Hello."
    assert response.startswith(b"HTTP/1.1 431 ")


async def test_an_idle_connection_is_closed() -> None:
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    env = {"A2A_IDLE_TIMEOUT_SECONDS": "0.2"}
    async with supervisor(ANSWER, env=env) as client, connections(client, 1, request) as [streams]:
        async with asyncio.timeout(20):
            response = await streams[0].read()
    assert json.loads(response.rpartition(b"\r\n")[2]) == {"status": "ok"}


# --- readers that do not read -------------------------------------------------------------------------------


def ask_without_reading(
    client: Client, method: str, params: dict[str, Any], window: int = 4096
) -> socket.socket:
    """A connection that asks and reads nothing."""
    host, port = client.url.removeprefix("http://").rstrip("/").split(":")
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    reader.connect((host, int(port)))
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": params}).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
        f"Content-Length: {len(body)}\r\nLast-Event-ID: 0\r\n\r\n"
    )
    reader.sendall(head.encode() + body)
    return reader


def stalled_transports() -> list[asyncio.Transport]:
    """The connections with a slow reader."""
    # Each server has a class of its own. Cheap: the loop that looks here is the one that has to answer.
    servers = LimitedHttpProtocol.__subclasses__()
    return [connection.transport for server in servers for connection in server.stalled]


def unsent_bytes() -> list[int]:
    """What waits in this process for each slow reader."""
    return [transport.get_write_buffer_size() for transport in stalled_transports()]


def kernel_bytes() -> list[int]:
    """What waits in the kernel for each slow reader."""
    counts = []
    for transport in stalled_transports():
        count = array.array("i", [0])
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, count)
        counts.append(count[0])
    return counts


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the kernel has no event for it
            await asyncio.sleep(0.02)


LONG = Script(Turn(*(Say(f"{number} " + "x" * 20_000) for number in range(150))))


async def test_little_is_held_for_a_reader_that_does_not_read() -> None:
    async with supervisor(LONG) as client:
        answered = await client.ask("Talk.")
        assert len(answered.raw) > 3_000_000
        params = {"id": answered.task_id}
        readers = [ask_without_reading(client, V10.subscribe, params) for _ in range(20)]
        try:
            async with health_witness(client.url):
                await until(lambda: len(unsent_bytes()) == 20)
                assert max(unsent_bytes()) < 200_000
                assert max(kernel_bytes()) < 600_000
        finally:
            for reader in readers:
                reader.close()


async def test_a_reader_that_takes_nothing_is_disconnected_and_goes_on_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with supervisor(LONG, env={"A2A_STALLED_READER_SECONDS": "3600"}) as client:
        answered = await client.ask("Talk.")
        reader = ask_without_reading(client, V10.subscribe, {"id": answered.task_id})
        await until(lambda: len(unsent_bytes()) == 1)
        advance_clock(monkeypatch, 3601)
        await until(lambda: not unsent_bytes())
        received = await asyncio.to_thread(read_all, reader)
        event_ids = re.findall(rb"\nid: (\d+)\n", received)
        cursor = event_ids[-2].decode()  # the last one may be cut
        more = [
            frame
            async for frame in client.open(
                V10.subscribe, params={"id": answered.task_id}, Last_Event_ID=cursor
            )
        ]
    assert more[0].id == str(int(cursor) + 1)
    assert more[-1].state == "completed"


def read_all(reader: socket.socket) -> bytes:
    received = b""
    with reader, contextlib.suppress(ConnectionError):
        while chunk := reader.recv(65536):
            received += chunk
    return received


@pytest.mark.full
async def test_a_reader_that_is_slow_is_not_disconnected() -> None:
    async with supervisor(LONG, env={"A2A_STALLED_READER_SECONDS": "3"}) as client:
        answered = await client.ask("Talk.")
        reader = ask_without_reading(client, V10.subscribe, {"id": answered.task_id}, window=65536)
        await until(lambda: len(unsent_bytes()) == 1)
        received = b""
        with reader:
            while not received.endswith(b"0\r\n\r\n"):
                await asyncio.sleep(0.1)  # in all longer than a reader may take nothing
                chunk = await asyncio.to_thread(reader.recv, 65536)
                assert chunk, "disconnected"
                received += chunk


async def test_all_that_waits_for_slow_readers_is_limited() -> None:
    async with supervisor(LONG, env={"A2A_MAX_UNSENT_BYTES": str(16 * 1024 * 1024)}) as client:
        answered = await client.ask("Talk.")
        params = {"id": answered.task_id}
        readers = []
        try:
            for count in range(1, 6):
                readers.append(ask_without_reading(client, V10.get, params))
                await until(lambda count=count: len(unsent_bytes()) >= min(count, 2))
            await asyncio.sleep(0.2)
            assert sum(unsent_bytes()) <= 16 * 1024 * 1024
            assert (await client.call(V10.get, params))["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
        finally:
            for reader in readers:
                reader.close()


async def test_streams_are_limited_for_each_person_and_in_all() -> None:
    blocking = BlockingScenario()
    env = {"A2A_MAX_STREAMS": "3", "A2A_MAX_STREAMS_PER_USER": "2", "A2A_AUTH_DELEGATE_KEY": KEY}
    async with supervisor(blocking.script, tools=[blocking.tool], env=env) as client:
        ann, bob = (
            Client(client.url, client.http, {"Authorization": f"Bearer {KEY}", **on_behalf_of_headers(name)})
            for name in ("ann", "bob")
        )
        streams = [ann.stream("Wait."), ann.stream("Wait.")]
        for stream in streams:
            await anext(stream)
        refused = await post_question(ann)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
        assert "A2A_MAX_STREAMS_PER_USER" in refused.json()["error"]["message"]
        streams.append(bob.stream("Wait."))
        await anext(streams[-1])
        refused = await post_question(bob)
        assert refused.status_code == 503
        assert "A2A_MAX_STREAMS" in refused.json()["error"]["message"]
        blocking.released.set()
        for stream in streams:
            assert [frame async for frame in stream][-1].state == "completed"
        assert (await ann.ask("Wait.")).last.state == "completed"


async def post_question(client: Client) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": "1", "method": V10.stream, "params": V10.message("Wait.")}
    return await client.http.post(client.url, json=body, headers={**client.headers, "A2A-Version": "1.0"})
