"""Opens SQLite files: private to their owner, with their settings, and with the newest tables."""

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.private_files import create_private_folder, open_private_file

Migration = Sequence[str]  # statements; a released migration is never changed: a new one follows it

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    """A time as it is stored: microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(stored: int) -> datetime:
    """The time of a stored value."""
    return _EPOCH + timedelta(microseconds=stored)


def open_database(
    path: Path | None, migrations: Sequence[Migration], *, busy_seconds: float, pragmas: Sequence[str] = ()
) -> sqlite3.Connection:
    """A connection to the file with all migrations applied; the file and its folder are created.

    Without a path it is in memory. `pragmas` (`name = value`) are set before the migrations. Raises OSError
    and sqlite3.Error; ConfigurationError when the file was written by a newer version of this program.
    """
    if path is not None:
        _create_private_file(path)
    db = connect(path, busy_seconds=busy_seconds, pragmas=pragmas)
    try:
        _migrate(db, migrations, path)
    except BaseException:
        db.close()
        raise
    return db


def connect(path: Path | None, *, busy_seconds: float, pragmas: Sequence[str] = ()) -> sqlite3.Connection:
    """One more connection to the file, for any thread; transactions begin with BEGIN and never by themselves.

    `busy_seconds`: how long a statement waits for the lock of another connection.
    """
    db = sqlite3.connect(
        path or ":memory:", timeout=busy_seconds, isolation_level=None, check_same_thread=False
    )
    try:
        for pragma in pragmas:
            db.execute(f"PRAGMA {pragma}")
    except BaseException:
        db.close()
        raise
    db.row_factory = sqlite3.Row
    return db


def release_pages(db: sqlite3.Connection, most: int, *, spare: int = 0) -> bool:
    """Shortens the file by at most so many free pages, but for the `spare` ones; whether there are more.

    The file has `auto_vacuum = INCREMENTAL`.
    """
    free: int = db.execute("PRAGMA freelist_count").fetchone()[0] - spare
    for _ in range(min(free, most)):
        # One by one: the driver ends the statement after its first page.
        db.execute("PRAGMA incremental_vacuum(1)")
    return free > most


def acquire_lock(lock_path: Path) -> int | None:
    """Locks a file and returns its descriptor; None when another process has the lock. Raises OSError.

    The lock ends with the descriptor or with the process, however that ends.
    """
    create_private_folder(lock_path.parent)
    descriptor = open_private_file(lock_path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _create_private_file(path: Path) -> None:
    """Creates the file with permissions for its owner only: nobody else may read what people wrote."""
    create_private_folder(path.parent)
    os.close(open_private_file(path))


def _migrate(db: sqlite3.Connection, migrations: Sequence[Migration], path: Path | None) -> None:
    """Applies the migrations that the file lacks, each in one transaction."""
    version = read_version(db)
    if version > len(migrations):
        raise ConfigurationError(
            f"The database {path} was written by a newer version of this program "
            f"(schema {version}, this one knows {len(migrations)}). "
            "Start the newer version, or set CAIPE_HOME to another folder."
        )
    for number, migration in enumerate(migrations[version:], version + 1):
        db.execute("BEGIN IMMEDIATE")
        try:
            if read_version(db) < number:  # otherwise another process has just applied it
                for statement in migration:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {number}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def read_version(db: sqlite3.Connection) -> int:
    """The number of migrations that the file has."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])
