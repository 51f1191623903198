"""Following a run again: from every cursor exactly the rest, in the same bytes, however many read and whoever
comes late."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.dialects import V03, V10, Dialect, both_versions
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import PLAIN, Client, Frame, ReceivedStream, read_frames, serve_app, supervisor

ONE_BY_ONE = {"STREAM_COALESCE_SECONDS": "0"}
INVALID_CURSORS = ["abc", "-1", "999", "1.x", "1.", ".1", "1e3", "²", "0x1", "1 2", "99999999999999999999999"]


class Reader:
    """A reader in the background whose request was accepted; its frames are complete at the end."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.frames: list[Frame] = []


@contextlib.asynccontextmanager
async def reading(
    client: Client, dialect: Dialect, task_id: str, *cursors: str | None
) -> AsyncIterator[list[Reader]]:
    """A reader per cursor, all of them connected; leaving waits until all have read to the end."""

    async def read(reader: Reader, cursor: str | None) -> None:
        body = {"jsonrpc": "2.0", "id": "1", "method": dialect.subscribe, "params": {"id": task_id}}
        headers = {
            **({} if dialect.old else {"A2A-Version": "1.0", "A2A-Extensions": "urn:caipe:events:1"}),
            **({} if cursor is None else {"Last-Event-ID": cursor}),
        }
        async with client.http.stream(
            "POST",
            client.url,
            content=json.dumps(body),
            headers=[
                ("Content-Type", "application/json"),
                *((key, value.encode()) for key, value in headers.items()),
            ],
        ) as response:
            reader.opened.set()
            reader.frames.extend([frame async for frame in read_frames(response)])

    readers = [Reader() for _ in cursors]
    async with asyncio.TaskGroup() as group:
        for reader, cursor in zip(readers, cursors, strict=True):
            group.create_task(read(reader, cursor))
        for reader in readers:
            await reader.opened.wait()
        yield readers


async def so_far(client: Client, dialect: Dialect, task_id: str, name: str) -> list[Frame]:
    """The frames of a task from its beginning to the first artifact of this name; then the reader leaves."""
    frames: list[Frame] = []
    async with contextlib.aclosing(
        client.open(dialect.subscribe, {"id": task_id}, Last_Event_ID="0")
    ) as stream:
        async for frame in stream:
            frames.append(frame)
            if frame.name == name:
                break
    return frames


def raw(frames: list[Frame]) -> list[bytes]:
    return [frame.raw for frame in frames]


# --- from a cursor ------------------------------------------------------------------------------------------


@both_versions
async def test_a_finished_run_is_read_again_from_every_cut(dialect: Dialect) -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool], env=ONE_BY_ONE) as client:
        stream = await client.ask("Which?", version=dialect.version)
        rests = [
            [
                frame
                async for frame in client.open(
                    dialect.subscribe, {"id": stream.task_id}, Last_Event_ID=frame.id or ""
                )
            ]
            for frame in stream.frames[:-1]
        ]
        event_ids = [
            frame async for frame in client.open(dialect.subscribe, {"id": stream.task_id}, Last_Event_ID="0")
        ]
    assert stream.answer == version.answer
    assert {"1.1", "1"} <= {frame.id for frame in stream.frames}
    assert raw(event_ids) == raw(stream.frames)
    for cut, rest in enumerate(rests, 1):
        assert raw(rest) == raw(stream.frames[cut:]), f"after {stream.frames[cut - 1].id}"


@both_versions
async def test_a_live_run_is_followed_from_every_cut(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool], env=ONE_BY_ONE) as client:
        task = dialect.sent(await client.call(dialect.send, {**dialect.message("Wait."), **dialect.at_once}))
        await waiting.started.wait()
        before = await so_far(client, dialect, task["id"], "tool_notification_start")
        async with reading(client, dialect, task["id"], "0", *(frame.id for frame in before)) as (
            first,
            *readers,
        ):
            waiting.released.set()
    assert ReceivedStream(first.frames).answer == waiting.answer
    assert raw(first.frames[: len(before)]) == raw(before)
    for cut, reader in enumerate(readers, 1):
        assert raw(reader.frames) == raw(first.frames[cut:]), f"after {before[cut - 1].id}"


@both_versions
async def test_a_dropped_stream_and_its_rest_are_the_whole_stream(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool], env=ONE_BY_ONE) as client:
        received: list[Frame] = []
        params = dialect.message("Wait.", messageId="m", contextId="c")
        async with contextlib.aclosing(client.open(dialect.stream, params)) as stream:
            async for frame in stream:
                received.append(frame)
                if frame.name == "tool_notification_start":
                    break  # the line drops
        waiting.released.set()
        task_id = ReceivedStream(received).task_id
        rest = [
            frame
            async for frame in client.open(
                dialect.subscribe, {"id": task_id}, Last_Event_ID=received[-1].id or ""
            )
        ]
        frames = [frame async for frame in client.open(dialect.stream, params)]
    assert raw(received + rest) == raw(frames)
    assert ReceivedStream(frames).answer == waiting.answer


# --- without a cursor ---------------------------------------------------------------------------------------


@both_versions
async def test_without_a_cursor_of_ours_a_reader_gets_a_snapshot_and_what_follows(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool], env=ONE_BY_ONE) as client:
        task = dialect.sent(await client.call(dialect.send, {**dialect.message("Wait."), **dialect.at_once}))
        await waiting.started.wait()
        before = await so_far(client, dialect, task["id"], "tool_notification_start")
        async with reading(client, dialect, task["id"], "0", None, *INVALID_CURSORS) as (
            full_reader,
            *readers,
        ):
            waiting.released.set()
    last = before[-1].id
    for reader in readers:
        snapshot, *rest = reader.frames
        assert (snapshot.id, snapshot.metadata["caipe.seq"], snapshot.state) == (last, last, "working")
        assert [part["text"] for one in snapshot.update["artifacts"] for part in one["parts"]] == [
            "Please wait. ",
            "🔧 Supervisor: Calling tool: Wait\n",
        ]
        assert raw(rest) == raw(full_reader.frames[len(before) :])
        assert fold(ReceivedStream(reader.frames).events) == fold(ReceivedStream(full_reader.frames).events)


@both_versions
async def test_a_finished_task_with_nothing_left_is_refused(dialect: Dialect) -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        stream = await client.ask("Well?", version=dialect.version)
        for cursor in (None, stream.last.id, *INVALID_CURSORS):
            body = {
                "jsonrpc": "2.0",
                "id": "1",
                "method": dialect.subscribe,
                "params": {"id": stream.task_id},
            }
            headers = [("Last-Event-ID", cursor.encode())] if cursor else []
            if not dialect.old:
                headers.append(("A2A-Version", b"1.0"))
                headers.append(("A2A-Extensions", b"urn:caipe:events:1"))
            response = await client.http.post(client.url, json=body, headers=headers)
            answer = json.loads(response.text.removeprefix("data: "))
            assert answer["error"]["code"] == -32004, cursor


async def test_versions_share_their_cursors() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool], env=ONE_BY_ONE) as client:
        stream = await client.ask("Which?", version="0.3")
        middle = len(stream.frames) // 2
        rest = [
            frame
            async for frame in client.open(
                V10.subscribe, {"id": stream.task_id}, Last_Event_ID=stream.frames[middle].id or ""
            )
        ]
    assert [frame.id for frame in rest] == [frame.id for frame in stream.frames[middle + 1 :]]
    assert [event for frame in rest for event in frame.events] == [
        event for frame in stream.frames[middle + 1 :] for event in frame.events
    ]


# --- many readers -------------------------------------------------------------------------------------------


async def test_a_reader_that_does_not_read_holds_nobody_and_gets_everything_later() -> None:
    pieces = [f"{number:04d}" + "x" * 20_000 for number in range(100)]  # more than sockets buffer
    async with supervisor(Script(Turn(Say(*pieces))), env=ONE_BY_ONE) as client:
        task = V03.message("Much.", messageId="m", contextId="c")
        body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": V03.stream, "params": task}).encode()
        host, port = client.url.removeprefix("http://").rstrip("/").split(":")
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect((host, int(port)))
        reader, writer = await asyncio.open_connection(sock=narrow, limit=1024)
        head = (
            f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        stream = ReceivedStream([frame async for frame in client.open(V03.stream, task)])
        assert stream.answer == "".join(pieces)
        slow = _unchunked(await reader.read())
        writer.close()
    assert slow == b"".join(frame.raw + b"\n\n" for frame in stream.frames)


def _unchunked(response: bytes) -> bytes:
    """The body of a chunked response."""
    _, _, rest = response.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


# --- leaving ------------------------------------------------------------------------------------------------


@both_versions
@pytest.mark.parametrize("how", ["closed", "aborted"])
async def test_a_client_that_leaves_stops_nothing_and_logs_no_error(
    dialect: Dialect, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool], env=ONE_BY_ONE) as client:
        host, port = client.url.removeprefix("http://").rstrip("/").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(
            {"jsonrpc": "2.0", "id": "1", "method": dialect.stream, "params": dialect.message("Wait.")}
        ).encode()
        version = "" if dialect.old else "A2A-Version: 1.0\r\nA2A-Extensions: urn:caipe:events:1\r\n"
        head = (
            f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{version}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await reader.readuntil(b"tool_notification_start")
        (task,) = (await client.call("ListTasks", {}))["result"]["tasks"]
        if how == "closed":
            writer.close()
        else:
            writer.transport.abort()
        waiting.released.set()
        rest = [
            frame async for frame in client.open(dialect.subscribe, {"id": task["id"]}, Last_Event_ID="0")
        ]
        stored = (await client.call(dialect.get, {"id": task["id"]}))["result"]
    assert ReceivedStream(rest).answer == waiting.answer
    assert dialect.state(stored) == "completed"
    assert not waiting.cancelled.is_set()
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


async def test_a_blocking_message_whose_client_leaves_is_worked_on_to_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        asking = asyncio.create_task(client.call(V10.send, V10.message("Wait.")))
        await waiting.started.wait()
        asking.cancel()
        (task,) = (await client.call("ListTasks", {}))["result"]["tasks"]
        async with reading(client, V10, task["id"], "0") as (reader,):
            waiting.released.set()
    assert ReceivedStream(reader.frames).answer == waiting.answer
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


@both_versions
async def test_a_server_that_stops_ends_its_streams_and_its_runs(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    app = create_app(
        Settings.from_variables({**ONE_BY_ONE, "SHUTDOWN_SECONDS": "0"}),
        tools=[waiting.tool],
        model=ScriptedChatModel(script=waiting.script),
    )
    frames: list[Frame] = []
    disconnected = asyncio.Event()

    async def read(client: Client) -> None:
        async for frame in client.open(dialect.stream, dialect.message("Wait.")):
            frames.append(frame)
            if frame.name == "tool_notification_start":
                disconnected.set()

    async with httpx.AsyncClient(verify=PLAIN) as http, asyncio.TaskGroup() as group, serve_app(app) as url:
        group.create_task(read(Client(url, http)))
        await disconnected.wait()
    assert waiting.cancelled.is_set()
    assert frames[-1].name == "tool_notification_start"  # no end was sent: come back with the number
