"""The SQLite store of the skill catalogue: skills that people stored, enabled switches, hubs and their
fetched skills."""

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.core.failure_text import describe_storage_failure
from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.files.sqlite_file import Migration, open_database
from ai_platform_engineering.skills_middleware.file_rules import SkillProblem
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill

_MIGRATIONS: tuple[Migration, ...] = (
    (
        """CREATE TABLE skills(
            id INTEGER PRIMARY KEY, origin TEXT NOT NULL, origin_id TEXT NOT NULL, place TEXT NOT NULL,
            folder TEXT NOT NULL, mark TEXT NOT NULL, problems TEXT NOT NULL,
            UNIQUE(origin, origin_id, place))""",
        """CREATE TABLE files(
            skill INTEGER NOT NULL REFERENCES skills(id) ON DELETE CASCADE, path TEXT NOT NULL,
            content BLOB NOT NULL, PRIMARY KEY(skill, path))""",
        """CREATE TABLE switches(
            origin TEXT NOT NULL, origin_id TEXT NOT NULL, name TEXT NOT NULL, enabled INTEGER NOT NULL,
            PRIMARY KEY(origin, origin_id, name)) WITHOUT ROWID""",
        """CREATE TABLE hubs(
            id TEXT PRIMARY KEY, url TEXT NOT NULL, ref TEXT NOT NULL, path TEXT NOT NULL, pin TEXT NOT NULL,
            configured INTEGER NOT NULL)""",
    ),
)

_BUSY_SECONDS = 10.0
_PRAGMAS = (
    "journal_mode = WAL",  # the terminal's commands may have it open beside a server
    "foreign_keys = ON",
)


@dataclass(frozen=True, slots=True)
class Hub:
    """A git repository with skills. `commit` is used until somebody refreshes; a `configured` hub is named
    in SKILL_HUBS."""

    id: str
    url: str
    ref: str = ""  # a branch, a tag or a commit; empty: what the repository calls its head
    path: str = ""  # the folder in it
    commit: str = ""  # empty: not fetched yet
    configured: bool = False


class SkillKey(NamedTuple):
    """The primary key of a stored skill."""

    origin: Origin
    origin_id: str
    location: str


class SkillStore:
    """Opened at its first use. Methods block, and may be called from any thread; all raise
    SourceUnavailable."""

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

    # --- skills ---------------------------------------------------------------------------------------------

    def fingerprints(self, origin: Origin, origin_id: str) -> dict[str, str]:
        """The fingerprint of each skill by its location."""
        query = "SELECT place, mark FROM skills WHERE origin = ? AND origin_id = ? ORDER BY place"
        with self._reading() as db:
            return dict(db.execute(query, (origin, origin_id)).fetchall())

    def read_skill(self, key: SkillKey) -> RawSkill | None:
        query = "SELECT id, folder, mark, problems FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)"
        with self._reading() as db:
            row = db.execute(query, key).fetchone()
            if row is None:
                return None
            skill_id, folder, fingerprint, problems_json = row
            rows = db.execute("SELECT path, content FROM files WHERE skill = ?", (skill_id,))
            files = {path: bytes(content) for path, content in rows}
        problems = tuple(SkillProblem(*fields) for fields in json.loads(problems_json))
        return RawSkill(key.location, folder, fingerprint, files, problems)

    def add(self, origin: Origin, raw: RawSkill) -> bool:
        """Whether it is new; otherwise nothing was stored."""
        with self._writing() as db:
            if _read_fingerprint(db, SkillKey(origin, "", raw.location)) is not None:
                return False
            _write_skill(db, origin, "", raw)
            return True

    def update(self, origin: Origin, raw: RawSkill, version: str | None) -> bool:
        """Whether it was stored, in `version` if one is given; otherwise nothing was changed."""
        with self._writing() as db:
            fingerprint = _read_fingerprint(db, SkillKey(origin, "", raw.location))
            if fingerprint is None or version not in (None, fingerprint):
                return False
            _write_skill(db, origin, "", raw)
            return True

    def remove(self, key: SkillKey, version: str | None = None) -> bool:
        """Whether it was stored, in `version` if one is given. Its enabled switch is removed with it."""
        with self._writing() as db:
            if version is not None and _read_fingerprint(db, key) != version:
                return False
            db.execute("DELETE FROM switches WHERE (origin, origin_id, name) = (?, ?, ?)", key)
            removed = db.execute("DELETE FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)", key)
            return removed.rowcount > 0

    def total_size(self, origin: Origin) -> int:
        """Bytes of all files of an origin."""
        query = (
            "SELECT coalesce(sum(length(content)), 0) FROM files JOIN skills ON skill = id WHERE origin = ?"
        )
        with self._reading() as db:
            return int(db.execute(query, (origin,)).fetchone()[0])

    # --- enabled switches -----------------------------------------------------------------------------------

    def switches(self) -> dict[tuple[str, str, str], bool]:
        """Whether a skill is enabled, by origin, origin id and name; one without a switch is."""
        switches: dict[tuple[str, str, str], bool] = {}
        with self._reading() as db:
            for origin, origin_id, name, enabled in db.execute(
                "SELECT origin, origin_id, name, enabled FROM switches"
            ):
                switches[origin, origin_id, name] = bool(enabled)
        return switches

    def set_switch(self, origin: Origin, origin_id: str, name: str, *, enabled: bool) -> None:
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO switches VALUES (?, ?, ?, ?)", (origin, origin_id, name, enabled)
            )

    # --- hubs -----------------------------------------------------------------------------------------------

    def hubs(self) -> list[Hub]:
        with self._reading() as db:
            rows = db.execute(
                "SELECT id, url, ref, path, pin, configured FROM hubs ORDER BY rowid"
            ).fetchall()
        hubs: list[Hub] = []
        for hub_id, url, ref, path, commit, configured in rows:
            hubs.append(Hub(hub_id, url, ref, path, commit, bool(configured)))
        return hubs

    def put_hub(self, hub: Hub, skills: Iterable[RawSkill] | None = None) -> None:
        """Stores a hub and replaces its skills in one transaction; without `skills` its skills stay."""
        with self._writing() as db:
            _write_hub(db, hub)
            if skills is not None:
                db.execute("DELETE FROM skills WHERE origin = 'hub' AND origin_id = ?", (hub.id,))
                for raw in skills:
                    _write_skill(db, "hub", hub.id, raw)

    def remove_hub(self, hub_id: str) -> bool:
        """Whether it was stored; its skills and switches are removed with it."""
        with self._writing() as db:
            db.execute("DELETE FROM skills WHERE origin = 'hub' AND origin_id = ?", (hub_id,))
            db.execute("DELETE FROM switches WHERE origin = 'hub' AND origin_id = ?", (hub_id,))
            return db.execute("DELETE FROM hubs WHERE id = ?", (hub_id,)).rowcount > 0

    # --- the connection -------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _explain_errors():
            yield self._connect()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _explain_errors():
            db = self._connect()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_database(
                self._path, _MIGRATIONS, busy_seconds=_BUSY_SECONDS, pragmas=_PRAGMAS
            )
        return self._connection


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = describe_storage_failure(error)
        raise SourceUnavailable(
            f"The database of skills (skills.db in CAIPE_HOME) cannot be used: {reason}."
        ) from None


def _read_fingerprint(db: sqlite3.Connection, key: SkillKey) -> str | None:
    """None when the skill is not stored."""
    query = "SELECT mark FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)"
    row = db.execute(query, key).fetchone()
    if row is None:
        return None
    return str(row[0])


def _write_skill(db: sqlite3.Connection, origin: Origin, origin_id: str, raw: RawSkill) -> None:
    key = SkillKey(origin, origin_id, raw.location)
    db.execute("DELETE FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)", key)
    problems: list[tuple[str, str, str, int | None]] = []
    for problem in raw.problems:
        problems.append((problem.file, problem.field, problem.message, problem.line))
    query = "INSERT INTO skills(origin, origin_id, place, folder, mark, problems) VALUES (?, ?, ?, ?, ?, ?)"
    skill_id = db.execute(query, (*key, raw.folder, raw.fingerprint, json.dumps(problems))).lastrowid
    file_rows = [(skill_id, path, content) for path, content in raw.files.items()]
    db.executemany("INSERT INTO files VALUES (?, ?, ?)", file_rows)


def _write_hub(db: sqlite3.Connection, hub: Hub) -> None:
    query = """INSERT INTO hubs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET url = excluded.url,
        ref = excluded.ref, path = excluded.path, pin = excluded.pin, configured = excluded.configured"""
    db.execute(query, (hub.id, hub.url, hub.ref, hub.path, hub.commit, hub.configured))
