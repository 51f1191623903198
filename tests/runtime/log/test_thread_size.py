"""What is stored stays small: room that is free is given back to the disk, many pages at a time."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx

from ai_platform_engineering.core.events import Answered, Notice
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.log.sqlite_database import Database
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from ai_platform_engineering.runtime.storage import Storage
from tests.runtime.log.test_sqlite_log import new_run
from tests.support.echo_supervisor import VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, serve_app

LATER = datetime(9000, 1, 1, tzinfo=UTC)
SPARE = 256 * 4096


async def test_a_conversation_keeps_its_last_state_and_little_more(tmp_path: Path) -> None:
    version, long = VersionScenario(), "A long answer. " * 6000
    script = Script(Turn(Call("version")), Turn(Call("version")), Turn(Say(long, "{{user}}")))
    settings = Settings.from_variables(
        {**FAST, "SHUTDOWN_SECONDS": "30"}
    )  # the last turn, too, puts its things away
    storage = Storage.from_settings(settings.storage, tmp_path, "supervisor")
    app = create_app(settings, tools=[version.tool], model=ScriptedChatModel(script=script), storage=storage)
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        for turn in range(6):
            assert (
                await Client(url, http).ask(f"Question {turn}", contextId="talk")
            ).answer == f"{long}Question {turn}"
    file = tmp_path / "supervisor" / "checkpoints.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        ((stored_bytes,),) = db.execute("SELECT sum(length(checkpoint)) FROM checkpoints").fetchall()
        assert db.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)
    assert stored_bytes > 6 * len(long)
    assert file.stat().st_size < stored_bytes + SPARE + 100_000


async def test_forgetting_gives_many_pages_back_in_a_commit(tmp_path: Path) -> None:
    database = Database(tmp_path / "runs.db")
    log = SqliteLog(database)
    row, _ = await log.create(new_run())
    await log.append(row.run_id, row.epoch, [Notice(code="info", text="x" * 4000)] * 2000)
    await log.append(row.run_id, row.epoch, [Answered(text="Yes.", trace_id="0" * 32)])
    before, pages = database.commits, database.rows("PRAGMA page_count")[0][0]
    assert await log.delete_runs(LATER) == 1
    assert pages > 2000
    assert database.rows("PRAGMA freelist_count")[0][0] == 0
    assert database.commits - before < 20
    await log.close()
