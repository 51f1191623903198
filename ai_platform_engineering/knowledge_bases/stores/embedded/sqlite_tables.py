"""The SQLite file of the embedded store: its tables, the lock of its writer, and its connections."""

import queue
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.files import sqlite_file
from ai_platform_engineering.files.sqlite_file import Migration

# Times are microseconds since 1970. The numbers of documents, chunks and vectors are never used twice, so
# that an index beside this file that is older or newer never takes one thing for another. A chunk's text is
# empty (NULL) where it is what the document has from `start` to `stop`.
_FIRST: Migration = (
    """CREATE TABLE datasources(
        name TEXT PRIMARY KEY, location TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL,
        options TEXT NOT NULL,
        refreshed INTEGER) WITHOUT ROWID""",
    """CREATE TABLE jobs(
        number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL UNIQUE, datasource TEXT NOT NULL,
        state TEXT NOT NULL,
        total INTEGER, done INTEGER NOT NULL, skipped INTEGER NOT NULL, removed INTEGER NOT NULL,
        failed TEXT NOT NULL,
        problem TEXT NOT NULL, created INTEGER, ended INTEGER)""",
    """CREATE TABLE documents(
        number INTEGER PRIMARY KEY AUTOINCREMENT, document_id TEXT NOT NULL UNIQUE,
        datasource TEXT NOT NULL, address TEXT NOT NULL,
        title TEXT NOT NULL, kind TEXT NOT NULL, digest TEXT NOT NULL, mark TEXT NOT NULL, link TEXT,
        changed INTEGER,
        generation INTEGER NOT NULL, text TEXT NOT NULL)""",
    "CREATE INDEX documents_of_datasource ON documents(datasource, address)",
    "CREATE INDEX documents_of_generation ON documents(generation)",
    """CREATE TABLE chunks(
        number INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL, ordinal INTEGER NOT NULL,
        headings TEXT NOT NULL,
        start INTEGER NOT NULL, stop INTEGER NOT NULL, text TEXT)""",
    "CREATE UNIQUE INDEX chunks_of_document ON chunks(document, ordinal)",
    "CREATE TABLE models(model INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL)",
    """CREATE TABLE vectors(
        number INTEGER PRIMARY KEY AUTOINCREMENT, model INTEGER NOT NULL, chunk INTEGER NOT NULL,
        vector BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX vectors_of_chunk ON vectors(chunk, model)",
    # Documents that are gone from here and may still be in the lexical index.
    "CREATE TABLE gone(document INTEGER PRIMARY KEY)",
    # `writing`: the generation of what is put now. `indexed`: up to where the lexical index is known to have
    # everything.
    "CREATE TABLE state(writing INTEGER NOT NULL, indexed INTEGER NOT NULL)",
    "INSERT INTO state VALUES (1, 0)",
)
_MISSING_PARTS: Migration = (
    "ALTER TABLE documents ADD COLUMN missing TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN cut TEXT NOT NULL DEFAULT '[]'",
)
_CURSORS: Migration = ("ALTER TABLE datasources ADD COLUMN cursor TEXT NOT NULL DEFAULT ''",)
# `visible_to` is a JSON list of names; NULL is everybody.
_ACCESS_AND_SCHEDULES: Migration = (
    "ALTER TABLE documents ADD COLUMN visible_to TEXT",
    "ALTER TABLE documents ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}'",
    # Each name that a document is visible to, and the empty name for every document that is not for all: the
    # column lies behind the text, which may be long.
    """CREATE TABLE document_viewers(
        name TEXT NOT NULL, document INTEGER NOT NULL, PRIMARY KEY (name, document)) WITHOUT ROWID""",
    "CREATE INDEX viewers_of_document ON document_viewers(document)",
    "ALTER TABLE datasources ADD COLUMN visible_to TEXT",
    "ALTER TABLE datasources ADD COLUMN refresh_every INTEGER",
    "ALTER TABLE datasources ADD COLUMN refresh_due INTEGER",
    "ALTER TABLE datasources ADD COLUMN refresh_failures INTEGER NOT NULL DEFAULT 0",
    """CREATE TABLE group_members(
        member TEXT NOT NULL, group_name TEXT NOT NULL, PRIMARY KEY (member, group_name)) WITHOUT ROWID""",
)
# `state` of a model's vectors: `partial`, `complete` (every chunk had one at some time), `purging`, `purged`.
# The row stays when they are purged, so that no other model gets its number. What was there before answers.
_MODEL_STATES: Migration = (
    "ALTER TABLE models ADD COLUMN state TEXT NOT NULL DEFAULT 'partial'",
    "UPDATE models SET state = 'complete'",
)
# Who works on a job, and until when; `epoch` counts who had it, `attempts` since it stored something.
_CLAIMS: Migration = (
    "ALTER TABLE jobs ADD COLUMN holder TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN lease_until INTEGER",
    "ALTER TABLE jobs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE jobs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX jobs_unfinished ON jobs(datasource, number) WHERE ended IS NULL",
)
MIGRATIONS = (_FIRST, _MISSING_PARTS, _CURSORS, _ACCESS_AND_SCHEDULES, _MODEL_STATES, _CLAIMS)

DATABASE_NAME = "knowledge.db"
_BUSY_SECONDS = 30.0
_WRITER_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL")


def acquire_lock(folder: Path) -> int | None:
    """The lock of the one process that writes, held until its end; None when another process has it."""
    try:
        return sqlite_file.acquire_lock(folder / "lock")
    except OSError as error:
        raise ConfigurationError(
            f"The folder of the knowledge base {folder} cannot be used: {error.strerror}."
        ) from None


def open_writer(path: Path) -> sqlite3.Connection:
    """The connection that writes, with the newest tables; a transaction is open from its first write to the
    next commit."""
    try:
        return sqlite_file.open_database(
            path, MIGRATIONS, busy_seconds=_BUSY_SECONDS, pragmas=_WRITER_PRAGMAS
        )
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError(
            f"The knowledge base {path} cannot be opened: {error}. Move the file away, and add the sources "
            "again."
        ) from None


def is_set_up(path: Path) -> bool:
    """Whether the file has its tables; another process may be creating them."""
    if not path.exists():
        return False
    db = sqlite_file.connect(path, busy_seconds=_BUSY_SECONDS, pragmas=["query_only = ON"])
    try:
        return sqlite_file.read_version(db) >= len(MIGRATIONS)
    finally:
        db.close()


class ReaderPool:
    """Connections that only read; each is used by one thread at a time."""

    def __init__(self, path: Path, count: int) -> None:
        self._free: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._all: list[sqlite3.Connection] = []
        for _ in range(count):
            db = sqlite_file.connect(path, busy_seconds=_BUSY_SECONDS, pragmas=["query_only = ON"])
            self._all.append(db)
            self._free.put(db)

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection with a transaction: all its queries see the same state."""
        db = self._free.get()
        try:
            db.execute("BEGIN")
            yield db
        finally:
            db.execute("ROLLBACK")
            self._free.put(db)

    def close(self) -> None:
        """Closes all connections, after their last use."""
        for db in self._all:
            db.close()
