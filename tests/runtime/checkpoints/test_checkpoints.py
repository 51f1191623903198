"""One suite over every checkpointer and store, on real servers: what is put stays, and pruning keeps what is
needed."""

import asyncio
import logging
import operator
import os
import stat
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import aiosqlite
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.sqlite.aio import AsyncSqliteStore
from langgraph.types import Command, interrupt

from ai_platform_engineering.core.errors import ConfigurationError, DatabaseUnavailable
from ai_platform_engineering.runtime.checkpoints.checkpointer import (
    Checkpoints,
    check_databases,
    open_checkpoints,
)
from ai_platform_engineering.runtime.checkpoints.sqlite_saver import SqliteCheckpointer
from ai_platform_engineering.runtime.checkpoints.sqlite_store import SqliteStore
from tests.support.checkpoint_databases import EVERY, LASTING, Database, opened, over, storage
from tests.support.database_servers import PASSWORD, DatabaseServers


class Looked(TypedDict):
    found: str


class Talk(Looked):
    said: Annotated[list[str], operator.add]


def graph(saver: BaseCheckpointSaver[Any], *, ask: bool = False) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A turn: an answer, then a sub-graph, which asks a person when `ask` is set, then what it found."""

    def answer(state: Talk) -> dict[str, list[str]]:
        return {"said": [f"answer to {state['said'][-1][:20]}"]}

    def inner(state: Looked) -> dict[str, str]:
        return {"found": f"got {interrupt('which one?')}" if ask else "looked"}

    def close(state: Talk) -> dict[str, list[str]]:
        return {"said": [state["found"]]}

    below = StateGraph(Looked).add_node("before", lambda _: {"found": ""}).add_node("inner", inner)
    below.add_edge(START, "before").add_edge("before", "inner").add_edge("inner", END)
    whole = (
        StateGraph(Talk)
        .add_node("answer", answer)
        .add_node("helper", below.compile())
        .add_node("close", close)
    )
    whole.add_edge(START, "answer").add_edge("answer", "helper").add_edge("helper", "close").add_edge(
        "close", END
    )
    return whole.compile(checkpointer=saver)


def at(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


def said(*words: str) -> Any:
    return {"said": list(words)}


@pytest.fixture
def thread() -> str:
    # Clients choose these ids, and servers give some of the characters a meaning.
    return f"a:b*{{c}} d|e-{uuid4()}"


async def history(checkpoints: Checkpoints, thread: str) -> list[list[str]]:
    return [
        state.values.get("said", [])
        async for state in graph(checkpoints.saver).aget_state_history(at(thread))
    ]


async def namespaces(checkpoints: Checkpoints, thread: str) -> set[str]:
    """The sub-graph namespaces that still have a checkpoint, of those the test saw being written."""
    tables = set()
    for namespace in SEEN.get(thread, ()):
        where = {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
        if await checkpoints.saver.aget_tuple(where):
            tables.add(namespace)
    return tables


SEEN: dict[str, set[str]] = {}


async def turn(checkpoints: Checkpoints, thread: str, given: Any, *, ask: bool = False) -> list[str]:
    """Runs a turn as the server does and notes the namespaces of its sub-graphs."""
    compiled = graph(checkpoints.saver, ask=ask)
    async for namespace, _ in compiled.astream(
        given, at(thread), stream_mode="checkpoints", subgraphs=True, durability="sync"
    ):
        if namespace:
            SEEN.setdefault(thread, set()).add("|".join(namespace))
    return list((await compiled.aget_state(at(thread))).values["said"])


@over(*EVERY)
async def test_a_turn_is_stored_with_its_history(database: Database, thread: str) -> None:
    async with database.open() as checkpoints:
        assert await turn(checkpoints, thread, said("hello")) == ["hello", "answer to hello", "looked"]
        assert (await turn(checkpoints, thread, said("again")))[3:] == ["again", "answer to again", "looked"]
        checkpoints_left = await history(checkpoints, thread)
        assert [len(words) for words in checkpoints_left] == [6, 5, 5, 4, 3, 3, 2, 2, 1, 0]
        assert await history(checkpoints, f"{thread} of somebody else") == []


@over(*LASTING)
async def test_another_process_goes_on_where_the_first_one_stopped(database: Database, thread: str) -> None:
    async with database.open() as first:
        await turn(first, thread, said("hello"))
    async with database.open() as second:
        assert await turn(second, thread, said("again")) == [
            "hello",
            "answer to hello",
            "looked",
            "again",
            "answer to again",
            "looked",
        ]


@pytest.mark.sample(3)
@over(*EVERY)
async def test_a_question_from_a_sub_graph_is_answered_after_a_prune(database: Database, thread: str) -> None:
    async with database.open() as first:
        await turn(first, thread, said("hello"))
        await first.prune(thread, idle=True)
        await turn(first, thread, said("deploy"), ask=True)
        await first.prune(thread, idle=False)
        if database.name == "memory":
            await answer_the_question(first, thread)
    if database.name != "memory":
        async with database.open() as second:
            await answer_the_question(second, thread)


async def answer_the_question(checkpoints: Checkpoints, thread: str) -> None:
    waiting = await graph(checkpoints.saver, ask=True).aget_state(at(thread), subgraphs=True)
    assert [interrupt.value for interrupt in waiting.interrupts] == ["which one?"]
    assert waiting.tasks[0].state.next == ("inner",)  # type: ignore[union-attr]
    words = await turn(checkpoints, thread, Command(resume="the blue one"), ask=True)
    assert words[3:] == ["deploy", "answer to deploy", "got the blue one"]


@pytest.mark.sample(3)
@over(*EVERY)
async def test_pruning_keeps_the_newest_checkpoint_alone(database: Database, thread: str) -> None:
    other = f"{thread}-2"
    async with database.open() as checkpoints:
        await turn(checkpoints, other, said("mine"))
        before = await history(checkpoints, other)
        await turn(checkpoints, thread, said("hello"))
        await turn(checkpoints, thread, said("again"))
        await checkpoints.prune(thread, idle=False)
        assert [len(words) for words in await history(checkpoints, thread)] == [6]
        await checkpoints.prune(thread, idle=True)
        assert [len(words) for words in await history(checkpoints, thread)] == [6]
        assert await namespaces(checkpoints, thread) == set()
        assert len(await turn(checkpoints, thread, said("third"))) == 9
        assert await history(checkpoints, other) == before
        assert await namespaces(checkpoints, other) == SEEN[other]


@over(*EVERY)
async def test_a_thread_that_is_not_there_is_pruned_without_complaint(
    database: Database, thread: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with database.open() as checkpoints:
        await checkpoints.prune(thread, idle=True)
        await checkpoints.prune(thread, idle=False)
        assert await history(checkpoints, thread) == []
    assert "not removed" not in caplog.text


@over(*EVERY)
async def test_a_deleted_thread_is_gone_and_the_others_stay(database: Database, thread: str) -> None:
    everything = "*"
    async with database.open() as checkpoints:
        for name in (thread, everything):
            await turn(checkpoints, name, said("hello"))
        await checkpoints.saver.adelete_thread(everything)
        assert await history(checkpoints, everything) == []
        assert await namespaces(checkpoints, everything) == set()
        assert len(await history(checkpoints, thread)) == 5
        assert len(await turn(checkpoints, everything, said("new"))) == 3
        await checkpoints.saver.adelete_thread(everything)


@over(*EVERY)
async def test_a_checkpoint_that_was_put_twice_survives_pruning(database: Database, thread: str) -> None:
    async with database.open() as checkpoints:
        await turn(checkpoints, thread, said("hello"))
        newest = await checkpoints.saver.aget_tuple(at(thread))
        assert newest
        assert newest.parent_config
        config: Any = {"configurable": {"checkpoint_ns": "", **newest.parent_config["configurable"]}}
        await checkpoints.saver.aput(
            config, newest.checkpoint, newest.metadata, newest.checkpoint["channel_versions"]
        )
        await checkpoints.prune(thread, idle=True)
        assert (await graph(checkpoints.saver).aget_state(at(thread))).values["said"] == [
            "hello",
            "answer to hello",
            "looked",
        ]


@over(*EVERY)
async def test_the_store_keeps_values_by_namespace(database: Database) -> None:
    user, other = ("memories", f"ann-{uuid4()}"), ("memories", f"bob-{uuid4()}")
    async with database.open() as checkpoints:
        store = checkpoints.store
        await store.aput(user, "team", {"name": "platform", "size": 3})
        await store.aput(user, "city", {"name": "Zürich 城"})
        await store.aput((*user, "城"), "pet", {"name": "cat"})
        await store.aput(other, "team", {"name": "data"})
        first = await store.aget(user, "team")
        await store.aput(user, "team", {"name": "platform", "size": 4})
        kept = await store.aget(user, "team")
        assert kept
        assert (kept.value, kept.key, kept.namespace) == ({"name": "platform", "size": 4}, "team", user)
        assert kept.created_at.replace(tzinfo=None) <= kept.updated_at.replace(tzinfo=None)
        if database.name == "sqlite" or database.name.startswith("redis"):  # the stores that are ours
            assert first
            assert first.created_at == kept.created_at < kept.updated_at
        assert {(item.namespace, item.key) for item in await store.asearch(user)} == {
            (user, "team"),
            (user, "city"),
            ((*user, "城"), "pet"),
        }
        assert [item.key for item in await store.asearch(user, filter={"name": "Zürich 城"})] == ["city"]
        assert len(await store.asearch(user, limit=1)) == 1
        assert await store.asearch(("memories", user[1][:-1])) == []
        assert set(await store.alist_namespaces(prefix=user)) == {user, (*user, "城")}
        await store.adelete(user, "team")
        await store.adelete((*user, "城"), "pet")
        assert await store.aget(user, "team") is None
        if database.name != "memory":  # which remembers the names of empty namespaces
            assert await store.alist_namespaces(prefix=user) == [user]
        assert [item.value for item in await store.asearch(other)] == [{"name": "data"}]


@over(*LASTING)
async def test_the_store_outlives_the_process(database: Database) -> None:
    user = ("memories", str(uuid4()))
    async with database.open() as first:
        await first.store.aput(user, "team", {"name": "platform"})
    async with database.open() as second:
        item = await second.store.aget(user, "team")
        assert item
        assert item.value == {"name": "platform"}


async def test_the_store_of_langgraph_and_ours_read_each_others_files(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for first in ("theirs", "ours"):
        namespace = ("memories", first)
        async with aiosqlite.connect(path, isolation_level=None) as connection:
            ours = SqliteStore(connection)
            if first == "ours":
                await ours.setup()
                await ours.aput(namespace, "a", {"n": 1})
            async with AsyncSqliteStore.from_conn_string(str(path)) as theirs:
                await theirs.setup()
                await theirs.aput(namespace, "b", {"n": 2})
                stored = {item.key for item in await theirs.asearch(namespace)}
            await ours.setup()
            assert {item.key for item in await ours.asearch(namespace)} == stored
            assert stored == ({"a", "b"} if first == "ours" else {"b"})
            await ours.aput(namespace, "b", {"n": 3})
            assert [item.value["n"] for item in await ours.asearch(namespace, limit=1)] == [3]
        path.unlink()


@pytest.mark.sample(2)
@over("memory", "sqlite", "postgres", "redis-modules", "redis-plain")
@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.full)])
async def test_many_conversations_at_once(database: Database, count: int) -> None:
    names = [str(uuid4()) for _ in range(count)]
    async with database.open() as checkpoints:
        compiled = graph(checkpoints.saver)

        async def converse(name: str) -> list[str]:
            await compiled.ainvoke(said(f"one {name}"), at(name), durability="sync")
            await checkpoints.prune(name, idle=True)
            await checkpoints.store.aput(("memories", name), "last", {"name": name})
            return list((await compiled.ainvoke(said("two"), at(name), durability="sync"))["said"])

        for name, words in zip(names, await asyncio.gather(*map(converse, names)), strict=True):
            assert [words[0], *words[3:]] == [f"one {name}", "two", "answer to two", "looked"]
            item = await checkpoints.store.aget(("memories", name), "last")
            assert item
            assert item.value == {"name": name}


@over("mongodb")
async def test_conversations_one_after_the_other(database: Database) -> None:
    async with database.open() as checkpoints:
        for name in [str(uuid4()) for _ in range(3)]:
            assert len(await turn(checkpoints, name, said("one"))) == 3
            await checkpoints.prune(name, idle=True)


@pytest.mark.sample(2)
@over("postgres", "redis-modules", "redis-plain", "mongodb")
async def test_replicas_that_start_together_share_one_database(database: Database, thread: str) -> None:
    async with database.open() as one, database.open() as two:
        await turn(one, thread, said("hello"))
        assert len(await turn(two, thread, said("again"))) == 6
    many = await asyncio.gather(*(open_checkpoints(database.settings, database.home) for _ in range(3)))
    for checkpoints in many:
        assert checkpoints.problem is None
        await checkpoints.aclose()


async def test_replicas_make_the_tables_of_an_empty_database_together(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    import psycopg

    name = f"empty_{uuid4().hex}"
    async with await psycopg.AsyncConnection.connect(servers.postgres, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    settings = storage(
        LANGGRAPH_CHECKPOINT_TYPE="postgres",
        LANGGRAPH_CHECKPOINT_POSTGRES_DSN=servers.postgres + "?dbname=" + name,
    )
    many = await asyncio.gather(*(open_checkpoints(settings, tmp_path) for _ in range(4)))
    assert [checkpoints.problem for checkpoints in many] == [None] * 4
    for checkpoints in many:
        await checkpoints.aclose()


@pytest.mark.full
async def test_a_long_thread_stays_small_in_a_private_file(tmp_path: Path) -> None:
    thread, home = "long", tmp_path / "new" / "home"
    async with opened(storage(), home) as checkpoints:
        for number in range(60):
            await turn(checkpoints, thread, said(f"{number} {os.urandom(3000).hex()}"))
            await checkpoints.prune(thread, idle=True)
        assert checkpoints.backend == "sqlite"
        assert isinstance(checkpoints.saver, SqliteCheckpointer)
        query = "SELECT * FROM pragma_synchronous, pragma_journal_mode"
        row = await checkpoints.saver.write(thread, lambda db, _: tuple(db.execute(query).fetchone()))
        assert row == (1, "wal")
        assert len((await graph(checkpoints.saver).aget_state(at(thread))).values["said"]) == 180
    files = list(home.iterdir())
    assert [file.name for file in files] == ["checkpoints.db"]
    assert files[0].stat().st_size < 5_000_000
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600


async def test_a_long_thread_stays_small_in_memory(tmp_path: Path) -> None:
    async with opened(storage(DATABASE_URL="memory://"), tmp_path) as checkpoints:
        saver = checkpoints.saver
        assert isinstance(saver, InMemorySaver)
        sizes = set()
        for _ in range(5):
            await turn(checkpoints, "long", said("hello"))
            await checkpoints.prune("long", idle=True)
            sizes.add((len(saver.storage["long"]), len(saver.writes), len(saver.blobs)))
    assert len(sizes) == 1


async def test_conversations_expire_where_the_database_can(
    servers: DatabaseServers, tmp_path: Path, thread: str
) -> None:
    import pymongo
    import redis.asyncio

    for address in (servers.redis, servers.redis_with_modules):
        async with opened(
            storage(REDIS_URL=address, LANGGRAPH_CHECKPOINT_TTL_MINUTES="7"), tmp_path
        ) as checkpoints:
            await turn(checkpoints, thread, said("hello"))
        async with redis.asyncio.Redis.from_url(address) as client:
            keys = [key async for key in client.scan_iter() if thread.encode() in key]
            lives = [await client.ttl(key) for key in keys]
            assert len(lives) > 4
            assert all(0 < ttl <= 420 for ttl in lives)

    mongodb = servers.mongodb + "/expiring"
    lives_in_mongodb = []
    for minutes in ("7", "8", ""):
        async with opened(
            storage(MONGODB_URI=mongodb, LANGGRAPH_CHECKPOINT_TTL_MINUTES=minutes), tmp_path
        ) as checkpoints:
            assert checkpoints.problem is None
        with pymongo.MongoClient(mongodb) as mongo:
            ttl_seconds = [
                index.get("expireAfterSeconds") for index in mongo.expiring.checkpoints.list_indexes()
            ]
            lives_in_mongodb.append([life for life in ttl_seconds if life])
    assert lives_in_mongodb == [[420], [480], []]


async def test_a_lost_connection_is_an_error_and_not_an_empty_conversation(
    tmp_path: Path, thread: str, caplog: pytest.LogCaptureFixture
) -> None:
    import valkey

    with DatabaseServers() as short_lived:
        address = short_lived.redis
        checkpoints = await open_checkpoints(storage(REDIS_URL=address), tmp_path)
        await turn(checkpoints, thread, said("hello"))
    with pytest.raises(valkey.exceptions.ConnectionError):
        await checkpoints.saver.aget_tuple(at(thread))
    with pytest.raises(valkey.exceptions.ConnectionError):
        await checkpoints.store.aget(("memories", "ann"), "team")
    await checkpoints.prune(thread, idle=True)
    assert "not removed: ConnectionError" in caplog.text
    await checkpoints.aclose()


async def test_the_store_can_be_somewhere_else(servers: DatabaseServers, tmp_path: Path, thread: str) -> None:
    settings = storage(
        LANGGRAPH_STORE_TYPE="redis", REDIS_URL=servers.redis, DATABASE_URL=f"sqlite:///{tmp_path}/own.db"
    )
    user = ("memories", str(uuid4()))
    async with opened(settings, tmp_path) as checkpoints:
        assert checkpoints.backend == "sqlite"
        await turn(checkpoints, thread, said("hello"))
        await checkpoints.store.aput(user, "team", {"name": "platform"})
    async with opened(storage(REDIS_URL=servers.redis), tmp_path) as elsewhere:
        assert (await elsewhere.store.aget(user, "team")) is not None
        assert await elsewhere.saver.aget_tuple(at(thread)) is None
    assert (tmp_path / "own.db").exists()


async def test_a_wrong_password_is_told_without_it(
    servers: DatabaseServers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for address in (servers.postgres, servers.redis, servers.redis_with_modules):
        async with opened(
            storage(DATABASE_URL=address.replace(PASSWORD, "wrong-secret")), tmp_path
        ) as checkpoints:
            assert checkpoints.problem
            assert "it refuses this user or password" in checkpoints.problem
            assert "wrong-secret" not in caplog.text + checkpoints.problem


async def test_a_database_that_is_not_on_the_server_is_told_so(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    with pytest.raises(DatabaseUnavailable, match="it has no such database"):
        await check_databases(storage(DATABASE_URL=f"{servers.postgres}-of-nobody"), tmp_path)


async def test_a_check_creates_nothing(servers: DatabaseServers, tmp_path: Path) -> None:
    import psycopg

    name = f"unchanged_{uuid4().hex}"
    async with await psycopg.AsyncConnection.connect(servers.postgres, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    address = f"{servers.postgres}?dbname={name}"
    label = await check_databases(storage(DATABASE_URL=address), tmp_path)
    async with await psycopg.AsyncConnection.connect(address) as connection:
        rows = await connection.execute("SELECT relname FROM pg_stat_user_tables")
        assert await rows.fetchall() == []
    assert label.startswith("PostgreSQL at 127.0.0.1:")
    assert await check_databases(storage(), tmp_path / "new") == "SQLite"
    assert await check_databases(storage(MONGODB_URI=servers.mongodb + "/unchanged"), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "module", "extra"),
    [
        ({"DATABASE_URL": "postgresql://db/x"}, "langgraph.checkpoint.postgres.aio", "postgres"),
        ({"DATABASE_URL": "mongodb://docs/x"}, "langgraph.checkpoint.mongodb", "mongodb"),
        ({"REDIS_URL": "with modules"}, "langgraph.checkpoint.redis.aio", "redis"),
        ({"REDIS_URL": "plain"}, "langgraph_checkpoint_aws.checkpoint.valkey", "valkey"),
    ],
)
async def test_a_missing_package_is_answered_with_the_command(
    variables: dict[str, str],
    module: str,
    extra: str,
    servers: DatabaseServers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "REDIS_URL" in variables:
        variables = {
            "REDIS_URL": servers.redis if variables["REDIS_URL"] == "plain" else servers.redis_with_modules
        }
    monkeypatch.setitem(sys.modules, module, None)
    command = f"Run: caipe extras install {extra.replace(',', ' ')}"
    async with opened(storage(**variables), tmp_path) as checkpoints:
        assert checkpoints.backend == "memory"
        assert checkpoints.problem
        assert "its client is not installed. Conversations are kept in memory" in checkpoints.problem
        assert checkpoints.problem.endswith(command)
    with pytest.raises(DatabaseUnavailable) as raised:
        await check_databases(storage(**variables), tmp_path)
    assert raised.value.remedy == command
    with pytest.raises(ConfigurationError, match="STORAGE_REQUIRED forbids"):
        await open_checkpoints(storage(**variables, STORAGE_REQUIRED="true"), tmp_path)


async def test_without_any_client_for_redis_both_are_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("redis.asyncio", "valkey.asyncio"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DatabaseUnavailable, match="caipe extras install redis valkey"):
        await check_databases(storage(REDIS_URL="redis://cache"), tmp_path)
