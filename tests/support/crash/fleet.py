"""Three replicas of a supervisor behind a load balancer, on one PostgreSQL, and what happens to them."""

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg

from ai_platform_engineering.a2a.client import ClientConversation
from ai_platform_engineering.core.events import is_terminal
from tests.support.crash.checks import Verdict, judged
from tests.support.crash.stage import PATIENCE, Reader, Stage, staged
from tests.support.crash.strata import Stratum, bring_to_point, finish_runs
from tests.support.tcp_relay import TcpRelay, relay_to

REPLICAS = 3
PAUSED_SECONDS = 8.0  # longer than the lease of a replica
UNREACHABLE_SECONDS = 20.0
_CUTS = 5  # of connections, one second apart


class LoadBalancer:
    """Passes each connection on to the next replica that accepts one.

    Its readers open a connection for each request: so it goes round by request."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self._next = 0
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Every reader loses its connection."""
        for writer in self._open:
            writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = await self._connect()
        if connection is None:
            writer.transport.abort()
            return
        far_reader, far_writer = connection
        self._open |= {writer, far_writer}
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            self._open -= {writer, far_writer}

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.ports:
            self._next = (self._next + 1) % len(self.ports)
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self.ports[self._next])
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@dataclass(slots=True)
class Fleet:
    """`front` is the stage of the readers: they speak to the load balancer."""

    front: Stage
    replicas: list[Stage]
    relays: list[TcpRelay]  # between a replica and the database
    balancer: LoadBalancer
    database_url: str
    restart_database: Callable[[], Awaitable[None]] | None = None

    async def serve_all(self) -> None:
        """Starts the replicas that are down."""
        down = [stage for stage in self.replicas if not stage.is_up()]
        await asyncio.gather(*(stage.serve(asking=True) for stage in down))

    async def execute(self, statement: str) -> None:
        """Executes a statement in the database, past the relays."""
        connection = await psycopg.AsyncConnection.connect(self.database_url, autocommit=True)
        async with connection:
            await connection.execute(statement.encode())


Trouble = Callable[[Fleet, random.Random], Awaitable[None]]


async def kill_one(fleet: Fleet, rng: random.Random) -> None:
    await _end(fleet, [rng.choice(fleet.replicas)], signal.SIGKILL)


async def kill_two(fleet: Fleet, rng: random.Random) -> None:
    await _end(fleet, rng.sample(fleet.replicas, 2), signal.SIGKILL)


async def stop_one(fleet: Fleet, rng: random.Random) -> None:
    await _end(fleet, [rng.choice(fleet.replicas)], signal.SIGTERM)


async def _end(fleet: Fleet, replicas: Sequence[Stage], by: signal.Signals) -> None:
    """Ends replicas; they are started again when the runs are over."""
    await asyncio.gather(*(stage.stop(by) for stage in replicas))


async def restart_one(fleet: Fleet, rng: random.Random) -> None:
    stage = rng.choice(fleet.replicas)
    await stage.stop(signal.SIGKILL)
    await stage.serve(asking=True)


async def pause_one(fleet: Fleet, rng: random.Random) -> None:
    """A replica does nothing until its lease is gone, and then goes on where it was."""
    process = rng.choice(fleet.replicas).process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    fleet.front.points.release()
    await asyncio.sleep(PAUSED_SECONDS)
    process.send_signal(signal.SIGCONT)


async def cut_readers(fleet: Fleet, rng: random.Random) -> None:
    fleet.front.points.release()
    for _ in range(_CUTS):
        fleet.balancer.cut()
        await asyncio.sleep(rng.uniform(0.05, 0.3))


async def restart_database(fleet: Fleet, rng: random.Random) -> None:
    assert fleet.restart_database is not None
    await fleet.restart_database()


async def cut_listeners(fleet: Fleet, rng: random.Random) -> None:
    """The connections that bring notes are lost, again and again."""
    fleet.front.points.release()
    for _ in range(_CUTS):
        await fleet.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            " AND pid <> pg_backend_pid()"
        )
        await asyncio.sleep(1.0)


async def lose_database(fleet: Fleet, rng: random.Random) -> None:
    """No replica reaches the database: connections hang or are refused."""
    await _lose(fleet, fleet.relays, rng)


async def isolate_one(fleet: Fleet, rng: random.Random) -> None:
    """One replica does not reach the database; the others take its runs."""
    await _lose(fleet, [rng.choice(fleet.relays)], rng)


async def _lose(fleet: Fleet, relays: Sequence[TcpRelay], rng: random.Random) -> None:
    hangs = rng.random() < 0.5
    for relay in relays:
        if hangs:
            relay.freeze()
        else:
            relay.cut()
    fleet.front.points.release()
    await asyncio.sleep(UNREACHABLE_SECONDS)
    for relay in relays:
        relay.mend()


TROUBLES: dict[str, Trouble] = {
    "one killed": kill_one,
    "two killed": kill_two,
    "killed and started again": restart_one,
    "one stopped": stop_one,
    "paused past its lease": pause_one,
    "readers cut off": cut_readers,
    "database restarted": restart_database,
    "database unreachable": lose_database,
    "unreachable for one": isolate_one,
    "listening connections cut": cut_listeners,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of runs in trouble, and of each of two readers of theirs."""

    point: str
    verdicts: list[tuple[Reader, Verdict]]


async def one_trouble(
    fleet: Fleet, stratum: Stratum, trouble: Trouble, together: int, rng: random.Random
) -> Outcome:
    """Brings runs to a point of the stratum, makes trouble there, and follows all of them to their end."""
    await fleet.serve_all()
    front = fleet.front
    front.since = time.time()
    point = rng.choice([*stratum.held, *stratum.loose])
    readers = [front.reader(asks=stratum.asks) for _ in range(together)]
    if ":" in point:
        front.points.hold(point, [reader.tag for reader in readers])
    watching = [asyncio.create_task(watch(front, reader)) for reader in readers]
    following = await bring_to_point(front, readers, point)
    if point in stratum.loose:
        front.points.release()
    await asyncio.sleep(rng.uniform(0, 0.05))
    began = time.time()
    await trouble(fleet, rng)
    front.points.release()
    await finish_runs(front, readers, following)
    watchers = await asyncio.gather(*watching)
    verdicts = [(reader, judged(front, reader, began)) for reader in readers]
    verdicts += [(watcher, judged(front, watcher)) for watcher in watchers]
    return Outcome(point, verdicts)


async def watch(front: Stage, reader: Reader) -> Reader:
    """Another reader of the same run, from its beginning to its end; it is never asked anything."""
    async with asyncio.timeout(PATIENCE):
        while reader.talk.task_id is None:  # noqa: ASYNC110 - the reader tells nobody
            await asyncio.sleep(0.02)
    talk = ClientConversation(context_id=reader.talk.context_id, task_id=reader.talk.task_id)
    watcher = replace(reader, talk=talk, events=[], problem="")
    while not (watcher.problem or (watcher.events and is_terminal(watcher.events[-1][1]))):
        await front.follow(watcher)
        if watcher.problem and not watcher.events and talk.last_event_id is None:
            watcher.problem = ""  # the run has ended: that is read from a cursor, not subscribed to
            talk.last_event_id = "0"
        await asyncio.sleep(0.1)  # it waits for a person
    return watcher


@contextlib.asynccontextmanager
async def fleet_of_replicas(
    folder: Path, database_url: str, *, forked: bool, variables: Sequence[dict[str, str]] = ({},) * REPLICAS
) -> AsyncIterator[Fleet]:
    """The fleet, with everything it needs but the database; its replicas are not started."""
    address = urlsplit(database_url)
    assert address.port is not None
    no_reuse = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with contextlib.AsyncExitStack() as stack:
        stage = await stack.enter_async_context(staged(folder, forked=forked))
        http = httpx.AsyncClient(timeout=PATIENCE, trust_env=False, limits=no_reuse)
        await stack.enter_async_context(http)
        relays: list[TcpRelay] = []
        replicas: list[Stage] = []
        for number, more in enumerate(variables, 1):
            relay, relay_url = await stack.enter_async_context(relay_to(address.port))
            relays.append(relay)
            port = urlsplit(relay_url).port
            host = address.netloc.rpartition(":")[0]
            url = urlunsplit(address._replace(netloc=f"{host}:{port}"))
            beside = stage.beside(f"replica-{number}", DATABASE_URL=url, STORAGE_REQUIRED="true", **more)
            replicas.append(await stack.enter_async_context(beside))
        balancer = LoadBalancer([replica.port for replica in replicas])
        server = await asyncio.start_server(balancer.handle, "127.0.0.1", 0)
        stack.callback(server.close)
        front = replace(
            stage,
            name="front",
            variables={"DATABASE_URL": database_url},
            port=server.sockets[0].getsockname()[1],
            http=http,
            up=asyncio.Event(),
            process=None,
        )
        front.up.set()
        yield Fleet(front, replicas, relays, balancer, database_url)
