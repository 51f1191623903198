"""A supervisor that is killed and started again, the agent service beside it, and readers that hold on."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import psycopg

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, OutgoingMessage, Unreachable
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import EVENT_ADAPTER, AnyEvent, InputRequested, Paused, RunStarted
from tests.support.command_process import CAIPE, CommandProcess, Entry, fork_command
from tests.support.crash.ledger import Ledger, Points
from tests.support.crash.script import book, question, tag_of
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.ports import free_port
from tests.support.processes import INHERITED_VARIABLES, process_environment

HERE = Path(__file__).resolve().parent
PATIENCE = 120.0
ASKING = ("tests.support.crash.asking", "main")
CALL = "from {module} import {function}; {function}()"
RunningProcess = asyncio.subprocess.Process | CommandProcess
FAST = {"LLM_RETRY_SECONDS": "0", "SHUTDOWN_SECONDS": "0", "ASK_ON_UNTRUSTED_CONTENT": "false"}


@dataclass(frozen=True, slots=True)
class Stored:
    """An event as it is in the database."""

    seq: int
    at: float
    event: AnyEvent


@dataclass(frozen=True, slots=True)
class Launch:
    """When a process was started, and how long it took until it said that it lives."""

    at: float
    healthy: float


@dataclass(slots=True)
class Reader:
    """Somebody who asks and holds on until the answer is there, whatever becomes of the server."""

    tag: str
    asks: bool
    name: str = field(default_factory=lambda: f"n{secrets.token_hex(4)}")
    order: OutgoingMessage = field(init=False)
    talk: ClientConversation = field(default_factory=ClientConversation)
    events: list[tuple[int, AnyEvent]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.order = OutgoingMessage(
            secrets.token_hex(8), question(self.tag, asks=self.asks), context_id=self.talk.context_id
        )

    problem: str = ""  # why it gave up

    @property
    def paused(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1][1], Paused)

    def answer(self) -> None:
        """The next thing to send is the answer to what was asked."""
        asked = next(event for _, event in self.events if isinstance(event, InputRequested))
        data = {"resume": {asked.request_id: {"repo": self.name}}}
        self.order = OutgoingMessage(
            secrets.token_hex(8), data=data, context_id=self.talk.context_id, task_id=self.talk.task_id
        )


@dataclass(slots=True)
class Stage:
    """`serve` and `kill` are the supervisor's; everything else outlives it."""

    folder: Path
    points: Points
    ledger: Ledger
    model: OpenAIServer
    http: httpx.AsyncClient
    name: str = "supervisor"
    variables: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    process: RunningProcess | None = None
    asking: bool = False
    forked: bool = False  # by the command server; a benchmark pays for whole starts
    since: float = 0.0  # runs that began before are not looked at

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def is_up(self) -> bool:
        """Whether the supervisor's process is there."""
        return self.process is not None and self.process.returncode is None

    async def serve(self, *, asking: bool = False) -> Launch:
        """Starts the supervisor: `caipe serve`, or the one that can ask people."""
        self.asking = asking
        began = time.time()
        if asking:
            self.process = await self.launch(self.name, ASKING, str(self.port))
        else:
            self.process = await self.launch(self.name, CAIPE, "serve", "--port", str(self.port))
        await self.healthy(self.url, self.process)
        self.up.set()
        return Launch(began, time.time() - began)

    async def launch(self, name: str, entry: Entry, *arguments: str) -> RunningProcess:
        """A process with a home of its own; what it says is in `NAME.log`."""
        env = process_environment(self.environment(name))
        with open(self.folder / f"{name}.log", "ab") as log:
            if self.forked:
                command = [name, *arguments]
                return await fork_command(entry, command, env=env, folder=self.folder, output=log.fileno())
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CALL.format(module=entry[0], function=entry[1]), *arguments),
                env=env,
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def environment(self, name: str) -> dict[str, str]:
        places = {
            "AGENTS_CONFIG": str(self.folder / "agents"),
            "CAIPE_HOME": str(self.folder / name),
            "HOME": str(self.folder),
        }
        model = {
            "LLM_MODEL": "openai:scripted",
            "OPENAI_BASE_URL": self.model.url,
            "OPENAI_API_KEY": "scripted",
        }
        return {**FAST, **places, **model, "DISTRIBUTED_AGENTS": "scout", **self.variables}

    async def healthy(self, url: str, process: RunningProcess) -> None:
        async with asyncio.timeout(PATIENCE):
            while process.returncode is None:
                with contextlib.suppress(httpx.HTTPError):
                    if (await self.http.get(f"{url}health")).status_code == 200:
                        return
                await asyncio.sleep(0.05)
        raise RuntimeError(f"the server ended: {self.said()[-2000:]}")

    def said(self) -> str:
        return (self.folder / f"{self.name}.log").read_text(errors="replace")

    @contextlib.asynccontextmanager
    async def beside(self, name: str, **variables: str) -> AsyncIterator["Stage"]:
        """The same surroundings for another supervisor, which has a home of its own."""
        other = replace(
            self, name=name, variables=variables, port=free_port(), up=asyncio.Event(), process=None
        )
        try:
            yield other
        finally:
            await other.stop()

    async def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.up.clear()
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)
            await self.process.wait()

    def reader(self, *, asks: bool = False) -> Reader:
        return Reader(f"t{secrets.token_hex(5)}", asks)

    async def follow(self, reader: Reader) -> None:
        """Sends the reader's order and takes down what happens until the turn ends; a server that is away is
        waited for."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self._followed(reader):  # noqa: ASYNC110 - nobody says that a process has just died
                    await asyncio.sleep(0.05)
        except (TimeoutError, CaipeError) as error:
            reader.problem = f"{type(error).__name__}: {error}"

    async def _followed(self, reader: Reader) -> bool:
        await self.up.wait()
        client, talk = A2AClient(self.url, self.http), reader.talk
        known = talk.task_id if reader.order.task_id is None else None
        try:
            async for event in client.follow(known, talk) if known else client.send(reader.order, talk):
                reader.events.append((talk.seq, event))
        except Unreachable:
            return False
        return True

    def stored(self, name: str | None = None) -> dict[str, list[list[Stored]]]:
        """The runs of a server by the tag of their question, as they are in its database."""
        rows = self._stored_rows(name or self.name)
        runs: dict[str, list[Stored]] = {}
        for run_id, seq, at, body in rows:
            runs.setdefault(run_id, []).append(Stored(seq, at / 1e6, EVENT_ADAPTER.validate_json(body)))
        found: dict[str, list[list[Stored]]] = {}
        for events in runs.values():
            first = events[0].event
            assert isinstance(first, RunStarted), first
            found.setdefault(tag_of(str(first.parts)), []).append(events)
        return found

    def _stored_rows(self, name: str) -> list[Any]:
        query = (
            "SELECT run_id, seq, at, body FROM {0}events WHERE run_id IN"
            f" (SELECT run_id FROM {{0}}events WHERE seq = 1 AND at >= {round(self.since * 1e6)})"
            " ORDER BY run_id, seq"
        )
        url = self.variables.get("DATABASE_URL")
        if name == self.name and url:
            with psycopg.connect(url) as shared:
                return shared.execute(query.format("caipe_supervisor.").encode()).fetchall()
        [path] = (self.folder / name).glob("*/runs.db")
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            return db.execute(query.format("")).fetchall()


@contextlib.asynccontextmanager
async def staged(folder: Path, *, forked: bool = False) -> AsyncIterator[Stage]:
    """Everything but the supervisor: the model, the ledger, and the agent `scout` as a service."""
    points = Points()
    ledger = Ledger(points)
    client = httpx.AsyncClient(timeout=PATIENCE, trust_env=False, limits=httpx.Limits(max_connections=None))
    async with ledger.running(), serve_openai(book(points)) as model, client as http:
        stage = Stage(folder, points, ledger, model, http, forked=forked)
        port = free_port()
        define_agents(folder / "agents", ledger.port, port)
        service = await stage.launch("scout", CAIPE, "agent", "scout", "--port", str(port))
        try:
            await stage.healthy(f"http://127.0.0.1:{port}/", service)
            yield stage
        finally:
            points.release()
            await stage.stop()
            if service.returncode is None:
                service.kill()
            await service.wait()


def define_agents(folder: Path, ledger: int, service: int) -> None:
    """The keeper has its tools in the supervisor's process, the scout is a service."""
    folder.mkdir()
    env = {
        name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ and name != "CAIPE_HOME"
    }
    servers = {
        "ledger": {"command": sys.executable, "args": [str(HERE / "tools.py"), str(ledger)], "env": env}
    }
    for name, more in {"keeper": {}, "scout": {"url": f"http://127.0.0.1:{service}/"}}.items():
        definition = {"name": name, "description": f"A {name}.", "mcpServers": servers, **more}
        (folder / f"{name}.json").write_text(json.dumps(definition))


def spread(values: Sequence[float], part: float) -> float:
    """The value below which the part of them is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
