"""Two replicas as processes on one PostgreSQL: whichever is asked, answered or killed, a run ends once."""

import asyncio
import contextlib
import secrets
import signal
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest
import pytest_asyncio

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, OutgoingMessage
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import Answered, Cancelled, InputRequested
from tests.support.crash.checks import judged
from tests.support.crash.stage import Reader, Stage, staged
from tests.support.database_servers import DatabaseServers

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400), pytest.mark.full]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(
    tmp_path_factory: pytest.TempPathFactory, servers: DatabaseServers
) -> AsyncIterator[tuple[Stage, Stage]]:
    url = servers.postgres.replace("/postgres", f"/r{secrets.token_hex(6)}")
    with psycopg.connect(servers.postgres, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {url.rpartition('/')[2]}".encode())
    async with (
        staged(tmp_path_factory.mktemp("replicas"), forked=True) as stage,
        stage.beside("first", DATABASE_URL=url) as first,
        stage.beside("second", DATABASE_URL=url) as second,
    ):
        yield first, second


async def up(*replicas: Stage) -> None:
    for replica in replicas:
        if replica.process is None or replica.process.returncode is not None:
            await replica.serve(asking=True)


async def asked(replica: Stage, reader: Reader) -> None:
    """Asks and leaves as soon as the run has an id."""
    async for event in A2AClient(replica.url, replica.http).send(reader.order, reader.talk):
        reader.events.append((reader.talk.seq, event))
        if reader.talk.task_id:
            return


def another_reader(reader: Reader) -> Reader:
    """Somebody else who follows the same run from its beginning."""
    talk = ClientConversation(context_id=reader.talk.context_id, task_id=reader.talk.task_id)
    return replace(reader, talk=talk, events=[])


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
async def test_the_run_of_a_replica_that_ends_goes_on_in_the_other(
    replicas: tuple[Stage, Stage], by: signal.Signals
) -> None:
    first, second = replicas
    await up(first, second)
    reader = first.reader()
    first.points.hold("keeper:0:2", [reader.tag])
    await asked(first, reader)
    other = another_reader(reader)
    following = asyncio.create_task(second.follow(other))
    await first.points.reached()
    await first.stop(by)
    first.points.release()
    await second.follow(reader)
    await following
    assert judged(second, reader).wrong == ()
    assert judged(second, other).wrong == ()


async def test_a_replica_that_was_paused_until_its_lease_ended_writes_nothing_more(
    replicas: tuple[Stage, Stage],
) -> None:
    first, second = replicas
    await up(first, second)
    reader = first.reader()
    first.points.hold("keeper:0:2", [reader.tag])
    await asked(first, reader)
    await first.points.reached()
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)
    try:
        first.points.release()
        await second.follow(reader)
    finally:
        first.process.send_signal(signal.SIGCONT)
    later = first.reader()
    await first.follow(later)  # it goes on, and has nothing to add to the run that it lost
    assert judged(second, reader).wrong == ()
    assert judged(first, later).wrong == ()


async def test_runs_go_on_when_all_connections_to_the_database_are_cut(
    replicas: tuple[Stage, Stage],
) -> None:
    await up(*replicas)
    readers = [replica.reader() for replica in (*replicas, *replicas)]
    work = [
        asyncio.create_task(replica.follow(reader))
        for replica, reader in zip((*replicas, *replicas), readers, strict=True)
    ]
    for _ in range(4):
        await asyncio.wait(work, timeout=3.0)
        await asyncio.to_thread(cut_connections, replicas[0].variables["DATABASE_URL"])
    await asyncio.gather(*work)
    for replica, reader in zip((*replicas, *replicas), readers, strict=True):
        assert judged(replica, reader).wrong == ()


def cut_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_a_run_is_listed_and_cancelled_through_another_replica(replicas: tuple[Stage, Stage]) -> None:
    first, second = replicas
    await up(first, second)
    reader = first.reader()
    first.points.hold("supervisor:0:2", [reader.tag])
    following = asyncio.create_task(first.follow(reader))
    await first.points.reached()
    assert reader.talk.task_id is not None
    await A2AClient(second.url, second.http).cancel(reader.talk.task_id)
    await following
    first.points.release()
    assert isinstance(reader.events[-1][1], Cancelled)


async def test_of_two_answers_through_two_replicas_one_counts_and_the_other_is_told(
    replicas: tuple[Stage, Stage],
) -> None:
    first, second = replicas
    await up(first, second)
    reader = first.reader(asks=True)
    await first.follow(reader)
    assert reader.paused, (reader.problem, reader.events[-1:])
    [request_id] = {event.request_id for _, event in reader.events if isinstance(event, InputRequested)}
    answers = [_answer(reader, request_id, name) for name in ("n1", "n2")]
    results = await asyncio.gather(
        *(_send(replica, message) for replica, message in zip(replicas, answers, strict=True))
    )
    problems = [result for result in results if isinstance(result, str)]
    assert len(problems) == 1, results
    assert "already answered by" in problems[0]
    winner = 0 if isinstance(results[1], str) else 1
    reader.name = f"n{winner + 1}"
    await second.follow(reader)
    last = reader.events[-1][1]
    assert isinstance(last, Answered)
    assert f"It is called {reader.name}." in last.text
    assert judged(second, reader).wrong == ()


async def test_questions_of_a_conversation_work_one_after_the_other_whichever_replica_takes_them(
    replicas: tuple[Stage, Stage],
) -> None:
    first, second = replicas
    await up(first, second)
    reader = first.reader()
    first.points.hold("supervisor:0:2", [reader.tag])
    following = asyncio.create_task(first.follow(reader))
    await first.points.reached()
    next_reader = second.reader()
    next_reader.talk = ClientConversation(context_id=reader.talk.context_id)
    next_reader.order = replace(next_reader.order, context_id=reader.talk.context_id)
    waiting = asyncio.create_task(second.follow(next_reader))
    while not any("Queued" in str(event) for _, event in next_reader.events):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    first.points.release()
    await asyncio.gather(following, waiting)
    assert judged(first, reader).wrong == ()
    [earlier] = first.stored()[reader.tag]
    [later] = first.stored()[next_reader.tag]
    texts = [item for item in later if item.event.kind == "text_delta"]
    assert earlier[-1].at <= texts[0].at


def _answer(reader: Reader, request_id: str, name: str) -> OutgoingMessage:
    data = {"resume": {request_id: {"repo": name}}}
    return OutgoingMessage(
        secrets.token_hex(8), data=data, context_id=reader.talk.context_id, task_id=reader.talk.task_id
    )


async def _send(replica: Stage, message: OutgoingMessage) -> str | None:
    """Sends an answer and follows the turn; why it was refused."""
    talk = ClientConversation(context_id=message.context_id)
    try:
        async with contextlib.aclosing(A2AClient(replica.url, replica.http).send(message, talk)) as events:
            async for _ in events:
                pass
    except CaipeError as error:
        return str(error)
    return None
