"""The storage of a server on PostgreSQL: everything there, never in a local file."""

from pathlib import Path

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.types import INTERRUPT

from ai_platform_engineering.core.errors import ConfigurationError, Fenced
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.log.postgres_log import PostgresLog
from ai_platform_engineering.runtime.storage import Storage, check_storage
from tests.runtime.log.test_run_log import created
from tests.support.checkpoint_databases import storage as storage_settings
from tests.support.database_servers import PASSWORD, DatabaseServers
from tests.support.ports import free_port
from tests.support.storages import in_folder


async def test_one_variable_puts_everything_into_postgresql(servers: DatabaseServers, tmp_path: Path) -> None:
    storage = in_folder(tmp_path, DATABASE_URL=servers.postgres)
    assert isinstance(storage.log, PostgresLog)
    await storage.open()
    assert storage.durable
    assert await storage.report() == {"status": "ok", "backend": "postgres", "message": ""}
    await storage.aclose()
    assert list(tmp_path.rglob("*.db*")) == []
    settings = storage_settings(DATABASE_URL=servers.postgres)
    assert "PostgreSQL" in await check_storage(settings, tmp_path, "supervisor")


async def test_a_checkpoint_of_a_run_that_was_taken_over_is_refused_in_its_transaction(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    first = in_folder(tmp_path / "a", DATABASE_URL=servers.postgres)
    second = in_folder(tmp_path / "b", DATABASE_URL=servers.postgres)
    await first.open()
    await second.open()
    row = await created(first.log)
    context = RunContext(run_id=row.run_id, epoch=row.epoch)
    config = {
        "configurable": {"thread_id": row.run_id, "checkpoint_ns": ""},
        "metadata": context.to_metadata(),
    }
    stored = await first.saver.aput(config, empty_checkpoint(), {}, {})
    stored = {**stored, "metadata": context.to_metadata()}
    await first.saver.aput_writes(stored, [("channel", "value")], "task")
    await second.log.take_over(row.run_id)
    with pytest.raises(Fenced):
        await first.saver.aput(stored, empty_checkpoint(), {}, {})
    with pytest.raises(Fenced):
        await first.saver.aput_writes(stored, [("channel", "late")], "other task")
    loaded = await second.saver.aget_tuple({"configurable": {"thread_id": row.run_id}})
    assert loaded is not None
    assert [value for _, _, value in loaded.pending_writes or []] == ["value"]
    await first.aclose()
    await second.aclose()


@pytest.mark.parametrize("is_fenced", [True, False], ids=["of a run", "of no run"])
async def test_a_checkpoint_is_stored_alike_with_and_without_a_check_of_its_run(
    servers: DatabaseServers, tmp_path: Path, is_fenced: bool
) -> None:
    storage = in_folder(tmp_path, DATABASE_URL=servers.postgres)
    await storage.open()
    row = await created(storage.log)
    metadata = RunContext(run_id=row.run_id, epoch=row.epoch).to_metadata() if is_fenced else {}
    config: RunnableConfig = {
        "configurable": {"thread_id": row.run_id, "checkpoint_ns": ""},
        "metadata": metadata,
    }
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": ["a", {"b": b"c"}], "flag": True, "nothing": None}
    versions = dict.fromkeys(checkpoint["channel_values"], "1")
    checkpoint["channel_versions"] = dict(versions)
    stored: RunnableConfig = config
    for _ in range(2):  # again, as after a connection that broke while it was stored
        stored = await storage.saver.aput(config, checkpoint, {"source": "loop", "step": 1}, versions)
    stored = {**stored, "metadata": metadata}
    await storage.saver.aput_writes(stored, [], "no writes")
    for value in ("first", "second"):
        await storage.saver.aput_writes(stored, [("messages", value), ("messages", b"same")], "task")
        await storage.saver.aput_writes(stored, [(INTERRUPT, "replaced"), (INTERRUPT, value)], "task")
    loaded = await storage.saver.aget_tuple(config)
    await storage.aclose()
    assert loaded is not None
    assert loaded.checkpoint == checkpoint
    assert loaded.metadata["step"] == 1
    assert sorted(loaded.pending_writes or [], key=repr) == [
        ("task", INTERRUPT, "second"),
        ("task", "messages", "first"),
        ("task", "messages", b"same"),
    ]


async def test_connections_that_the_database_has_ended_are_not_used(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    storage = in_folder(tmp_path, DATABASE_URL=servers.postgres)
    await storage.open()
    row = await created(storage.log)
    config: RunnableConfig = {"configurable": {"thread_id": row.run_id, "checkpoint_ns": ""}}
    await storage.saver.aput(config, empty_checkpoint(), {}, {})
    with psycopg.connect(servers.postgres, autocommit=True) as db:
        ended = db.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND query ~ 'checkpoint'"
        )
        assert ended.rowcount > 0
    await storage.saver.adelete_thread(row.run_id)  # nothing repeats it
    assert await storage.saver.aget_tuple(config) is None
    await storage.aclose()


@pytest.mark.parametrize("case", ["away", "password"])
async def test_a_database_that_cannot_be_used_is_replaced_by_memory_alone(
    servers: DatabaseServers, tmp_path: Path, case: str
) -> None:
    url = f"postgresql://caipe:{PASSWORD}@127.0.0.1:{free_port()}/x"
    if case == "password":
        url = servers.postgres.replace(PASSWORD, "wrong-secret")
    storage = in_folder(tmp_path, DATABASE_URL=url)
    assert isinstance(storage.log, MemoryLog)
    await storage.open()
    report = await storage.report()
    assert (report["status"], report["backend"], storage.durable) == ("degraded", "memory", False)
    assert "PostgreSQL at 127.0.0.1" in report["message"]
    assert "lost when the server stops" in report["message"]
    assert PASSWORD not in report["message"]
    await storage.aclose()
    assert list(tmp_path.rglob("*.db*")) == []
    with pytest.raises(ConfigurationError, match="STORAGE_REQUIRED"):
        in_folder(tmp_path, DATABASE_URL=url, STORAGE_REQUIRED="true")


async def test_agent_services_share_a_database_and_no_runs(servers: DatabaseServers, tmp_path: Path) -> None:
    settings = storage_settings(DATABASE_URL=servers.postgres)
    supervisor = in_folder(tmp_path, DATABASE_URL=servers.postgres)
    service = Storage.from_settings(settings, tmp_path, "agent-argocd")
    row = await created(supervisor.log, owner="of the supervisor")
    assert await service.log.get(row.run_id) is None
    await supervisor.aclose()
    await service.aclose()
