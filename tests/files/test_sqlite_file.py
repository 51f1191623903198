"""SQLite files: who may read them, their settings, and their migrations."""

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.files.sqlite_file import Migration, acquire_lock, connect, open_database

FIRST: Migration = ("CREATE TABLE letters(letter TEXT)", "INSERT INTO letters VALUES ('a')")
SECOND: Migration = ("ALTER TABLE letters ADD COLUMN size INTEGER NOT NULL DEFAULT 1",)


def read_letters(path: Path | None, *migrations: Migration) -> list[tuple[str | int, ...]]:
    with contextlib.closing(open_database(path, migrations, busy_seconds=5)) as db:
        return [tuple(row) for row in db.execute("SELECT * FROM letters")]


def test_a_new_file_and_its_folder_are_private_and_have_all_tables(tmp_path: Path) -> None:
    path = tmp_path / "home" / "letters.db"
    assert read_letters(path, FIRST, SECOND) == [("a", 1)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_older_file_gets_the_migrations_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    assert read_letters(path, FIRST) == [("a",)]
    assert read_letters(path, FIRST, SECOND) == [("a", 1)]
    assert read_letters(path, FIRST, SECOND) == [("a", 1)]


def test_a_newer_file_is_refused_by_its_name_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    read_letters(path, FIRST, SECOND)
    with pytest.raises(ConfigurationError, match=r"letters\.db was written by a newer version .*schema 2"):
        read_letters(path, FIRST)
    assert read_letters(path, FIRST, SECOND) == [("a", 1)]


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    with pytest.raises(sqlite3.OperationalError):
        read_letters(path, FIRST, ("INSERT INTO letters VALUES ('b')", "INSERT INTO numbers VALUES (1)"))
    assert read_letters(path, FIRST, SECOND) == [("a", 1)]


def test_files_that_are_opened_at_once_are_migrated_once(tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    problems: list[Exception] = []
    start = threading.Barrier(8)

    def open_at_once() -> None:
        start.wait()
        try:
            open_database(path, (FIRST, SECOND), busy_seconds=30).close()
        except Exception as error:  # noqa: BLE001 - the test asserts that there is none
            problems.append(error)

    threads = [threading.Thread(target=open_at_once) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert read_letters(path, FIRST, SECOND) == [("a", 1)]


def test_settings_hold_for_the_connection_and_a_wrong_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    read_letters(path, FIRST)
    with (
        contextlib.closing(connect(path, busy_seconds=1, pragmas=["query_only = ON"])) as db,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        db.execute("DELETE FROM letters")
    path.write_bytes(b"no database " * 100)
    with pytest.raises(sqlite3.DatabaseError):
        read_letters(path, FIRST)


def test_without_a_path_it_is_in_memory() -> None:
    assert read_letters(None, FIRST, SECOND) == [("a", 1)]


def test_one_holder_has_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "home" / "lock"
    descriptor = acquire_lock(path)
    assert descriptor is not None
    assert acquire_lock(path) is None
    with open(descriptor, "rb"):  # closes it
        pass
    again = acquire_lock(path)
    assert again is not None
    with open(again, "rb"):
        pass
