"""What people did to the catalogue, in a SQLite file: skills stored, skills switched off, hubs and what was fetched from them."""

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.runtime.log.sqlite_schema import Migration, migrate
from ai_platform_engineering.skills_middleware.file_rules import SkillProblem
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill

_STEPS: tuple[Migration, ...] = (
    (
        """CREATE TABLE skills(
            id INTEGER PRIMARY KEY, origin TEXT NOT NULL, origin_id TEXT NOT NULL, place TEXT NOT NULL, folder TEXT NOT NULL,
            mark TEXT NOT NULL, problems TEXT NOT NULL, UNIQUE(origin, origin_id, place))""",
        """CREATE TABLE files(
            skill INTEGER NOT NULL REFERENCES skills(id) ON DELETE CASCADE, path TEXT NOT NULL, content BLOB NOT NULL,
            PRIMARY KEY(skill, path))""",
        """CREATE TABLE switches(
            origin TEXT NOT NULL, origin_id TEXT NOT NULL, name TEXT NOT NULL, enabled INTEGER NOT NULL,
            PRIMARY KEY(origin, origin_id, name)) WITHOUT ROWID""",
        """CREATE TABLE hubs(
            id TEXT PRIMARY KEY, url TEXT NOT NULL, ref TEXT NOT NULL, path TEXT NOT NULL, pin TEXT NOT NULL,
            configured INTEGER NOT NULL)""",
    ),
)


@dataclass(frozen=True, slots=True)
class Hub:
    """A git repository with skills. What is used is `commit`, until somebody refreshes; one that is `configured` stands in SKILL_HUBS."""

    id: str
    url: str
    ref: str = ""  # a branch, a tag or a commit; empty: what the repository calls its head
    path: str = ""  # the folder in it
    commit: str = ""  # empty: not fetched yet
    configured: bool = False


class SkillKey(NamedTuple):
    origin: Origin
    origin_id: str
    location: str


class SkillStore:
    """Opened when it is first used. Methods block, and may be called from any thread; all raise SourceUnavailable."""

    def __init__(self, path: Path | None = None) -> None:
        """Without a path: in memory."""
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    # --- skills -------------------------------------------------------------------------------------------------------

    def fingerprints(self, origin: Origin, origin_id: str) -> dict[str, str]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT place, mark FROM skills WHERE origin = ? AND origin_id = ? ORDER BY place",
                (origin, origin_id),
            )
            return {row[0]: row[1] for row in rows}

    def read_skill(self, key: SkillKey) -> RawSkill | None:
        with self._reading() as db:
            query = (
                "SELECT id, folder, mark, problems FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)"
            )
            row = db.execute(query, key).fetchone()
            if row is None:
                return None
            files = {
                path: bytes(content)
                for path, content in db.execute("SELECT path, content FROM files WHERE skill = ?", (row[0],))
            }
        return RawSkill(
            key.location, row[1], row[2], files, tuple(SkillProblem(*fields) for fields in json.loads(row[3]))
        )

    def add(self, origin: Origin, held: RawSkill) -> bool:
        """Whether it is new; otherwise nothing was stored."""
        with self._writing() as db:
            if db.execute(
                "SELECT 1 FROM skills WHERE (origin, origin_id, place) = (?, '', ?)", (origin, held.location)
            ).fetchone():
                return False
            _put(db, origin, "", held)
            return True

    def update(self, origin: Origin, held: RawSkill, before: str | None) -> bool:
        """Whether it was there, in the version `before` if one is given; otherwise nothing was stored."""
        with self._writing() as db:
            mark = db.execute(
                "SELECT mark FROM skills WHERE (origin, origin_id, place) = (?, '', ?)",
                (origin, held.location),
            ).fetchone()
            if mark is None or (before is not None and mark[0] != before):
                return False
            _put(db, origin, "", held)
            return True

    def remove(self, key: SkillKey, before: str | None = None) -> bool:
        """Whether it was there, in the version `before` if one is given. What people switched on it is forgotten with it."""
        with self._writing() as db:
            mark = db.execute(
                "SELECT mark FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)", key
            ).fetchone()
            if before is not None and (mark is None or mark[0] != before):
                return False
            db.execute("DELETE FROM switches WHERE (origin, origin_id, name) = (?, ?, ?)", key)
            return (
                db.execute("DELETE FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)", key).rowcount
                > 0
            )

    def total_size(self, origin: Origin) -> int:
        with self._reading() as db:
            query = "SELECT coalesce(sum(length(content)), 0) FROM files JOIN skills ON skill = id WHERE origin = ?"
            return int(db.execute(query, (origin,)).fetchone()[0])

    # --- switches -----------------------------------------------------------------------------------------------------

    def switches(self) -> dict[tuple[str, str, str], bool]:
        with self._reading() as db:
            return {
                (row[0], row[1], row[2]): bool(row[3])
                for row in db.execute("SELECT origin, origin_id, name, enabled FROM switches")
            }

    def set_switch(self, origin: Origin, origin_id: str, name: str, *, enabled: bool) -> None:
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO switches VALUES (?, ?, ?, ?)", (origin, origin_id, name, enabled)
            )

    # --- hubs ---------------------------------------------------------------------------------------------------------

    def hubs(self) -> list[Hub]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT id, url, ref, path, pin, configured FROM hubs ORDER BY rowid"
            ).fetchall()
        return [Hub(row[0], row[1], row[2], row[3], row[4], bool(row[5])) for row in rows]

    def put_hub(self, hub: Hub, skills: Iterable[RawSkill] | None = None) -> None:
        """With what was fetched from it, all at once; without, its skills stay."""
        with self._writing() as db:
            _write_hub(db, hub)
            if skills is not None:
                db.execute("DELETE FROM skills WHERE origin = 'hub' AND origin_id = ?", (hub.id,))
                for held in skills:
                    _put(db, "hub", hub.id, held)

    def remove_hub(self, hub_id: str) -> bool:
        """Whether it was there; its skills go with it."""
        with self._writing() as db:
            for table in ("skills", "switches"):
                db.execute(f"DELETE FROM {table} WHERE origin = 'hub' AND origin_id = ?", (hub_id,))  # noqa: S608 - two names of ours
            return db.execute("DELETE FROM hubs WHERE id = ?", (hub_id,)).rowcount > 0

    # --- the file -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _explained():
            yield self._opened()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _explained():
            db = self._opened()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connected(self._path)
        return self._connection


def _connected(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path or ":memory:", timeout=10.0, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")  # the terminal's commands may have it open beside a server
        db.execute("PRAGMA foreign_keys = ON")
        migrate(db, _STEPS)
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise SourceUnavailable(
            f"The database of skills cannot be used ({error}). Look at skills.db in CAIPE_HOME."
        ) from None


def _put(db: sqlite3.Connection, origin: Origin, origin_id: str, held: RawSkill) -> None:
    db.execute(
        "DELETE FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)", (origin, origin_id, held.location)
    )
    problems = json.dumps([(one.file, one.field, one.message, one.line) for one in held.problems])
    row = (origin, origin_id, held.location, held.folder, held.fingerprint, problems)
    skill = db.execute(
        "INSERT INTO skills(origin, origin_id, place, folder, mark, problems) VALUES (?, ?, ?, ?, ?, ?)", row
    ).lastrowid
    db.executemany(
        "INSERT INTO files VALUES (?, ?, ?)", [(skill, path, content) for path, content in held.files.items()]
    )


def _write_hub(db: sqlite3.Connection, hub: Hub) -> None:
    query = "INSERT INTO hubs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET url = excluded.url, ref = excluded.ref,"
    query += " path = excluded.path, pin = excluded.pin, configured = excluded.configured"
    db.execute(query, (hub.id, hub.url, hub.ref, hub.path, hub.commit, hub.configured))
