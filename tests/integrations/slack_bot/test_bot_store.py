"""The bot's SQLite file: files of other versions, and rows that cannot be read."""

import contextlib
import json
import logging
import sqlite3
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.integrations.slack_bot.bot_database import SqliteBotDatabase
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.incoming_messages import SlackMessage
from ai_platform_engineering.integrations.slack_bot.stream_progress import OpenMessage, StreamProgress
from ai_platform_engineering.integrations.slack_bot.thread_holders import ThreadHolders
from ai_platform_engineering.integrations.slack_bot.thread_view import TaskCard
from ai_platform_engineering.integrations.slack_bot.turn_rows import TurnRow

PROGRESS = StreamProgress(
    part=OpenMessage(ts="3.0", start=7, streams=True, born=1.5),
    posted=("2.0", "3.0"),
    starts=(0, 7),
    known=(TaskCard("step-1", "Look around", "complete"),),
)
TURN = TurnRow(
    "C1:1.0", "T1", "C1", "1.0", "U1", "first@example.com", {"message_id": "m1", "text": "?"}, drawn=PROGRESS
)
MESSAGE = SlackMessage(
    "T1", "C1", "U1", "5.0", "1.0", "Hi", "", mentions=True, direct=False, files=({"id": "F1"},)
)

# The tables of the files that bots wrote before files had a schema version.
UNVERSIONED_TABLES = """
CREATE TABLE seen (key TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE heard (turn_id TEXT PRIMARY KEY, said TEXT NOT NULL);
CREATE TABLE turns (turn_id TEXT PRIMARY KEY, channel TEXT NOT NULL, thread_ts TEXT NOT NULL,
  state TEXT NOT NULL, task_id TEXT, row TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE posted (channel TEXT NOT NULL, ts TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (channel, ts));
"""
UNVERSIONED_TURN = """{"turn_id": "C1:1.0", "team": "T1", "channel": "C1", "thread_ts": "1.0", "user": "U1",
  "principal": "first@example.com", "order": {"message_id": "m1", "text": "?"}, "task_id": null,
  "state": "open", "drawn": {"part": {"ts": "3.0", "start": 7, "streams": true, "born": 1.5}, "start": 0,
  "digest": 0, "opening": false, "ended": false, "posted": ["2.0", "3.0"], "starts": [0, 7],
  "known": [{"card_id": "step-1", "title": "Look around", "status": "complete", "details": "",
  "output": ""}]}}"""


def now() -> float:
    return 10.0


def open_store(path: Path) -> BotStore:
    return BotStore(SqliteBotDatabase(path), now)


def change(path: Path, *statements: str) -> None:
    """Changes the file of a bot that is not running."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


async def test_turns_and_messages_are_read_as_they_were_stored(tmp_path: Path) -> None:
    path = tmp_path / "home" / "bot.db"
    store = open_store(path)
    await store.add_turn(TURN)
    await store.receive(MESSAGE, "event-1", follow_up=False)
    await store.close()
    store = open_store(path)
    assert await store.list_open_turns() == [TURN]
    assert await store.list_unhandled() == [MESSAGE]
    await store.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_file_without_a_schema_version_is_opened_and_its_open_turns_are_there(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(UNVERSIONED_TABLES)
        values = ("C1:1.0", "C1", "1.0", "open", None, UNVERSIONED_TURN, 10.0)
        db.execute("INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        db.execute("INSERT INTO heard VALUES (?, ?)", (MESSAGE.turn_id, json.dumps(asdict(MESSAGE))))
        db.commit()
    store = open_store(path)
    assert await store.list_open_turns() == [TURN]
    assert await store.list_unhandled() == [MESSAGE]
    holders = ThreadHolders(store.database)
    assert await holders.claim_unheld(9) == [("C1", "1.0")], "they are in one thread, which nobody holds"
    assert await store.record_request("r1", TURN.turn_id) is None  # a table that this file did not have
    await store.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)


async def test_fields_of_another_version_are_ignored_and_missing_ones_have_their_defaults(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bot.db"
    store = open_store(path)
    await store.add_turn(TURN)
    await store.receive(MESSAGE, "event-1", follow_up=False)
    await store.close()
    change(
        path,
        "UPDATE turns SET row = json_remove(row, '$.drawn.known', '$.task_id')",
        "UPDATE turns SET row = json_set(row, '$.mood', 'good', '$.drawn.part.colour', 'red')",
        "UPDATE messages SET message = json_set(json_remove(message, '$.files'), '$.mood', 'good')",
    )
    store = open_store(path)
    assert await store.list_open_turns() == [replace(TURN, drawn=replace(PROGRESS, known=()))]
    assert await store.list_unhandled() == [replace(MESSAGE, files=())]
    await store.close()


async def test_a_row_that_cannot_be_read_does_not_keep_the_bot_from_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bot.db"
    store = open_store(path)
    await store.add_turn(TURN)
    await store.add_turn(replace(TURN, turn_id="C1:0.5"))
    await store.close()
    change(path, "UPDATE turns SET row = json_remove(row, '$.order') WHERE turn_id = 'C1:0.5'")
    store = open_store(path)
    with caplog.at_level(logging.ERROR):
        assert await store.list_open_turns() == [TURN]
        assert await store.find_turn("C1:0.5") is None
    assert "cannot be read and is skipped: order" in caplog.text
    await store.close()


async def test_the_file_of_a_newer_bot_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    await open_store(path).close()
    change(path, "PRAGMA user_version = 9")
    with pytest.raises(
        ConfigurationError, match=r"bot\.db was written by a newer version .*Start the newer version"
    ):
        open_store(path)


async def test_a_file_that_another_bot_uses_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    store = open_store(path)
    with pytest.raises(ConfigurationError, match="Only one bot may use it"):
        open_store(path)
    await store.close()
