"""Lines that drop anywhere, five hundred times: with the last number or with none, a reader has what an
uninterrupted one has."""

import asyncio
import contextlib
import json
import math
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.a2a.codec import decode
from ai_platform_engineering.core.events import AnyEvent
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.storage import Storage
from tests.support.dialects import V03, V10, Dialect
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Attempts, Call, Die, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, Frame, ReceivedStream, agent, joined, serve_app
from tests.support.raw_reader import PartialResponse, read_partial, unchunked
from tests.support.scenarios import delegate, tool

ONE_BY_ONE = {**FAST, "STREAM_COALESCE_SECONDS": "0"}
ODD = (
    "Grüße\u2028",
    "zweite Zeile\u2029 ",
    "日本語 ",
    "🧑🏽‍💻 ",
    "a\u0301",
    "\x85",
    "\t\r\n",
    'and "quotes\\" ',
    "𝔘nicode ",
    "\n\ndata: x\n\nid: 7\n\n",
    "end. ",
)


class Conversation:
    """A supervisor with a plan, parallel agents, texts that begin anew, odd characters, and a tool that holds
    the run in its middle."""

    def __init__(self) -> None:
        self.waiting = BlockingScenario()
        todos = [
            {"agent": "argocd", "title": "Versions"},
            {"agent": "github", "title": "Grüße\u2028"},
            {"title": "Sum up"},
        ]
        self.model = ScriptedChatModel(
            script=Script(
                Turn(
                    Say("I make a plan.\u2028 "), Call("write_todos", {"title": "Ünicode 🎯", "todos": todos})
                ),
                Attempts(
                    Turn(Say("This text ", "is lost "), Die()),
                    Turn(Say("Now both. "), delegate("argocd", id="one"), delegate("github", id="two")),
                ),
                Turn(Say("One moment. "), Call("wait", {}, id="three")),
                Attempts(
                    Turn(Say("The answer ", "that broke off "), Die()),
                    Turn(Say("It is {{tool:wait.waited}}. ", *ODD)),
                ),
            )
        )

    @property
    def answer(self) -> str:
        return f"It is {self.waiting.value}. {''.join(ODD)}"

    def agents(self) -> list[Any]:
        lost = Attempts(Turn(Say("Void ", "void "), Die()), Turn(Say("I look\u2028. "), Call("look", {})))
        return [
            agent("argocd", Script(lost, Turn(Say(*ODD))), tool("look", "value=\u2028")),
            agent(
                "github",
                Script(Turn(Say("Here too. "), Call("look", {})), Turn(Say("That is it."))),
                tool("look", "value=1"),
            ),
        ]


@dataclass(slots=True)
class Stage:
    """A run that is held in its middle, on a server; what was stored until then ends with the number
    `held`."""

    url: str
    client: Client
    conversation: Conversation
    params: dict[str, Any]
    task_id: str
    held: str
    size: int  # bytes, of what was there when the run was held


@contextlib.asynccontextmanager
async def held_run(home: Path | None, dialect: Dialect) -> AsyncIterator[Stage]:
    conversation = Conversation()
    settings = Settings.from_variables(ONE_BY_ONE)
    storage = Storage.from_settings(settings.storage, home, "supervisor") if home else Storage.in_memory()
    tools = [conversation.waiting.tool]
    app = create_app(
        settings, agents=conversation.agents(), tools=tools, model=conversation.model, storage=storage
    )
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        client, params = Client(url, http), dialect.message("Go.", messageId="m", contextId="c")
        frames: list[Frame] = []
        async with contextlib.aclosing(client.open(dialect.stream, params)) as stream:
            async for frame in stream:
                frames.append(frame)
                if frame.name == "tool_notification_start" and frame.metadata["tool_call_id"] == "three":
                    break
        size = sum(len(frame.raw) + 2 for frame in frames)
        yield Stage(
            url, client, conversation, params, ReceivedStream(frames).task_id, frames[-1].id or "", size
        )


async def whole(stage: Stage, dialect: Dialect) -> list[Frame]:
    """The uninterrupted stream."""
    return (await read_partial(stage.url, dialect.subscribe, {"id": stage.task_id}, "0")).frames


def is_over(frames: list[Frame]) -> bool:
    return (
        bool(frames)
        and frames[-1].state == "completed"
        and not frames[-1].artifact
        and "task" not in frames[-1].result
    )


def by_number(task_id: str, frames: list[Frame]) -> dict[tuple[str, int], AnyEvent]:
    """The decoded events; each of them came once."""
    numbered = [((task_id, seq), event) for frame in frames for seq, event in frame.events]
    assert len(dict(numbered)) == len(numbered)
    return dict(numbered)


class Drops:
    """Where the lines of one reader drop: as often in the first bytes as late. Counts those that did."""

    def __init__(self, *seed: object) -> None:
        self._random, self.count = random.Random(repr(seed)), 0

    def somewhere(self, size: int) -> int:
        return int(math.exp(self._random.uniform(0, math.log(size))))


# --- with a cursor ------------------------------------------------------------------------------------------


Open = Callable[..., Awaitable[PartialResponse]]


def opener(stage: Stage, dialect: Dialect, how: str) -> Open:
    """The request of a reader that comes back: the same message again, or a subscription."""
    method, params = (
        (dialect.stream, stage.params) if how == "message" else (dialect.subscribe, {"id": stage.task_id})
    )
    return lambda cursor, **more: read_partial(stage.url, method, params, cursor, **more)


async def read_with_drops(
    open_stream: Open,
    drops: Drops,
    times: int,
    size: int,
    held: str = "",
    arrived: asyncio.Event | None = None,
) -> list[Frame]:
    """Everything that a reader has in the end whose line drops so many times."""
    frames: list[Frame] = []
    for remaining in range(times, -1, -1):
        most = drops.somewhere(size) if remaining else None
        cursor = frames[-1].id if frames else "0"
        if arrived is not None and cursor == held:
            arrived.set()
        piece = await open_stream(cursor, most=most, mark=f"id: {held}\n".encode(), seen=arrived)
        frames += piece.frames
        if is_over(frames):
            return frames
        assert piece.dropped
        drops.count += 1
    raise AssertionError("the stream ended without the end of its task")


@pytest.mark.sample(2)
@pytest.mark.parametrize("dialect", [V10, V03], ids=str)
@pytest.mark.parametrize(
    ("how", "kept", "readers", "least"),
    [
        ("message", True, 6, 20),
        ("subscription", True, 6, 20),
        ("subscription", False, 3, 10),
        pytest.param("message", True, 18, 100, marks=pytest.mark.full),
        pytest.param("subscription", True, 18, 100, marks=pytest.mark.full),
    ],
)
async def test_with_its_number_a_reader_misses_nothing_and_sees_nothing_twice(
    dialect: Dialect, how: str, kept: bool, readers: int, least: int, tmp_path: Path
) -> None:
    drops = [Drops(str(dialect), how, number) for number in range(2 * readers)]
    async with held_run(tmp_path if kept else None, dialect) as stage:
        open_stream = opener(stage, dialect, how)
        arrivals = [asyncio.Event() for _ in range(readers)]
        async with asyncio.TaskGroup() as group:
            steady = group.create_task(read_partial(stage.url, dialect.subscribe, {"id": stage.task_id}, "0"))
            live = [
                group.create_task(read_with_drops(open_stream, mine, 4, 2 * stage.size, stage.held, arrived))
                for mine, arrived in zip(drops[:readers], arrivals, strict=True)
            ]
            for arrived in arrivals:
                await arrived.wait()
            stage.conversation.waiting.released.set()
        reference = steady.result().frames
        late = [await read_with_drops(open_stream, mine, 3, 2 * stage.size) for mine in drops[readers:]]
        assert await whole(stage, dialect) == reference
    assert ReceivedStream(reference).answer == stage.conversation.answer
    assert {"text_discarded", "plan_updated", "tool_finished"} <= {
        event.kind for event in ReceivedStream(reference).events
    }
    assert sum(mine.count for mine in drops) >= least
    for frames in [*(task.result() for task in live), *late]:
        assert [frame.raw for frame in frames] == [frame.raw for frame in reference]
        assert by_number(stage.task_id, frames) == by_number(stage.task_id, reference)
        assert joined(frames_of_text(frames)) == joined(frames_of_text(reference))


def frames_of_text(frames: list[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame.name in ("streaming_result", "subagent_result")]


@pytest.mark.parametrize("dialect", [V10, V03], ids=str)
async def test_a_message_sent_again_by_who_has_everything_is_an_empty_stream(
    dialect: Dialect, tmp_path: Path
) -> None:
    async with held_run(tmp_path, dialect) as stage:
        stage.conversation.waiting.released.set()
        frames = (await read_partial(stage.url, dialect.stream, stage.params, "0")).frames
        again = await read_partial(stage.url, dialect.stream, stage.params, frames[-1].id)
    assert is_over(frames)
    assert (again.frames, again.plain, again.dropped) == ([], b"", False)


# --- without one --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Restored:
    """What a reader without a cursor has: the last snapshot and what came after it."""

    frames: list[Frame] = field(default_factory=list)
    task: dict[str, Any] = field(
        default_factory=dict
    )  # from `tasks/get`, when the run ended while the reader was away

    @property
    def events(self) -> list[tuple[int, AnyEvent]]:
        return decode(self.task) if self.task else [item for frame in self.frames for item in frame.events]


async def read_without_cursor(
    stage: Stage, dialect: Dialect, drops: Drops, arrived: asyncio.Event
) -> Restored:
    for remaining in range(5, -1, -1):
        most = drops.somewhere(2 * stage.size) if remaining else None
        mark = f"id: {stage.held}\n".encode()
        piece = await read_partial(
            stage.url, dialect.subscribe, {"id": stage.task_id}, most=most, mark=mark, seen=arrived
        )
        if is_over(piece.frames):
            return Restored(piece.frames)
        if not piece.dropped:  # refused: it has ended
            assert "tasks/get" in piece.plain.decode()
            return Restored(task=(await stage.client.call(dialect.get, {"id": stage.task_id}))["result"])
        drops.count += 1
    raise AssertionError("the stream ended without the end of its task")


@pytest.mark.sample(2)
@pytest.mark.parametrize("dialect", [V10, V03], ids=str)
@pytest.mark.parametrize(
    ("kept", "readers", "least"),
    [
        pytest.param(True, 6, 15, id="sqlite"),
        pytest.param(False, 3, 6, id="memory"),
        pytest.param(True, 18, 50, id="sqlite, many readers", marks=pytest.mark.full),
    ],
)
async def test_without_a_number_a_reader_gets_a_snapshot_that_names_one_and_what_follows(
    dialect: Dialect, kept: bool, readers: int, least: int, tmp_path: Path
) -> None:
    drops = [Drops(str(dialect), number) for number in range(readers)]
    async with held_run(tmp_path if kept else None, dialect) as stage:
        arrivals = [asyncio.Event() for _ in range(readers)]
        async with asyncio.TaskGroup() as group:
            live = [
                group.create_task(read_without_cursor(stage, dialect, mine, arrived))
                for mine, arrived in zip(drops, arrivals, strict=True)
            ]
            for arrived in arrivals:
                await arrived.wait()
            stage.conversation.waiting.released.set()
        reference = await whole(stage, dialect)
    assert sum(mine.count for mine in drops) >= least
    every = by_number(stage.task_id, reference)
    for task in live:
        has = task.result()
        assert fold(event for _, event in has.events) == fold(every.values())
        if has.frames:
            snapshot, *rest = has.frames
            number = int(snapshot.id or "")
            assert snapshot.metadata["caipe.seq"] == snapshot.id
            assert by_number(stage.task_id, rest) == {
                key: event for key, event in every.items() if key[1] > number
            }
    assert any(task.result().frames for task in live)


# --- slow readers -------------------------------------------------------------------------------------------


class Counted:
    """The application, with what it gave to each connection to send."""

    def __init__(self, app: Any) -> None:
        self.app, self.streams, self.given = app, app.streams, dict[int, list[int]]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            if body := message.get("body"):
                self.given.setdefault(scope["client"][1], []).append(len(body))
            await send(message)

        await self.app(scope, receive, counted)


@pytest.mark.parametrize(
    "kept", [pytest.param(True, id="sqlite"), pytest.param(False, id="memory", marks=pytest.mark.full)]
)
async def test_who_does_not_read_holds_nobody_and_costs_little(kept: bool, tmp_path: Path) -> None:
    pieces = [f"{number:04d}" + "x" * 20_000 for number in range(150)]
    settings = Settings.from_variables(ONE_BY_ONE)
    storage = Storage.from_settings(settings.storage, tmp_path, "supervisor") if kept else Storage.in_memory()
    app = Counted(
        create_app(settings, model=ScriptedChatModel(script=Script(Turn(Say(*pieces)))), storage=storage)
    )
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024
    )  # what the system itself holds is not ours to bound
    async with (
        serve_app(app, listener) as url,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
        contextlib.AsyncExitStack() as stack,
    ):
        params = V10.message("Much.", messageId="m", contextId="c")
        slow, port, begun = await unread(stack, url, params)
        stream = ReceivedStream([frame async for frame in Client(url, http).open(V10.stream, params)])
        assert stream.answer == "".join(pieces)  # the run is over, and this reader has everything
        waiting = sum(app.given[port])
        later = unchunked((begun + await slow.read()).partition(b"\r\n\r\n")[2])
        again = await read_partial(
            url, V10.subscribe, {"id": stream.task_id}, "0"
        )  # has all of it before it at once
    assert later == b"".join(frame.raw + b"\n\n" for frame in stream.frames)
    assert [frame.raw for frame in again.frames] == [frame.raw for frame in stream.frames]
    assert len(later) > 6_000_000
    assert waiting < 500_000
    *_, sent = app.given.values()
    assert len(sent) > 15
    assert len([size for size in sent if size > 200_000]) == 1  # the answer itself; all else goes in pieces


async def unread(
    stack: contextlib.AsyncExitStack, url: str, params: Any
) -> tuple[asyncio.StreamReader, int, bytes]:
    """A connection that asks and then reads next to nothing, its port, and what it did read."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.connect((host, int(port)))
    reader, writer = await asyncio.open_connection(sock=narrow, limit=1024)
    stack.callback(writer.close)
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": V10.stream, "params": params})
    head = (
        f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
        "A2A-Extensions: urn:caipe:events:1\r\n"
        f"Content-Length: {len(body)}\r\n"
    )
    writer.write(f"{head}Connection: close\r\n\r\n{body}".encode())
    begun = await reader.readuntil(b"id: 1\n")
    return reader, narrow.getsockname()[1], begun
