"""The store of the skill catalogue: skills that people stored, enabled switches, hubs and their fetched
skills."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.databases.sql_connections import SqlConnection
from ai_platform_engineering.skills_middleware.file_rules import SkillProblem
from ai_platform_engineering.skills_middleware.skill_database import SkillDatabase
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill

# Of a fetch, in the place of the end of its lease.
_ENDED = 0
_RELEASED = 1


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
    """Methods block, and may be called from any thread; all raise SourceUnavailable."""

    def __init__(self, database: SkillDatabase) -> None:
        self._database = database

    def close(self) -> None:
        self._database.close()

    # --- skills ---------------------------------------------------------------------------------------------

    def fingerprints(self, origin: Origin, origin_id: str) -> dict[str, str]:
        """The fingerprint of each skill by its location."""
        query = "SELECT place, mark FROM skills WHERE origin = ? AND origin_id = ? ORDER BY place"
        with self._database.reading() as db:
            return dict(db.execute(query, (origin, origin_id)).fetchall())

    def read_skill(self, key: SkillKey) -> RawSkill | None:
        # One statement: somebody else may be replacing it.
        query = (
            "SELECT folder, mark, problems, path, content FROM skills LEFT JOIN files ON skill = id "
            "WHERE (origin, origin_id, place) = (?, ?, ?)"
        )
        with self._database.reading() as db:
            rows = db.execute(query, key).fetchall()
        if not rows:
            return None
        folder, fingerprint, problems_json, _, _ = rows[0]
        files = {row["path"]: bytes(row["content"]) for row in rows if row["path"] is not None}
        problems = tuple(SkillProblem(*fields) for fields in json.loads(problems_json))
        return RawSkill(key.location, folder, fingerprint, files, problems)

    def add(self, origin: Origin, raw: RawSkill) -> bool:
        """Whether it is new; otherwise nothing was stored."""
        with self._database.writing() as db:
            if _read_fingerprint(db, SkillKey(origin, "", raw.location)) is not None:
                return False
            _write_skill(db, origin, "", raw)
            return True

    def update(self, origin: Origin, raw: RawSkill, version: str | None) -> bool:
        """Whether it was stored, in `version` if one is given; otherwise nothing was changed."""
        with self._database.writing() as db:
            fingerprint = _read_fingerprint(db, SkillKey(origin, "", raw.location))
            if fingerprint is None or version not in (None, fingerprint):
                return False
            _write_skill(db, origin, "", raw)
            return True

    def remove(self, key: SkillKey, version: str | None = None) -> bool:
        """Whether it was stored, in `version` if one is given. Its enabled switch is removed with it."""
        with self._database.writing() as db:
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
        with self._database.reading() as db:
            return int(db.execute(query, (origin,)).fetchone()[0])

    # --- enabled switches -----------------------------------------------------------------------------------

    def switches(self) -> dict[tuple[str, str, str], bool]:
        """Whether a skill is enabled, by origin, origin id and name; one without a switch is."""
        switches: dict[tuple[str, str, str], bool] = {}
        with self._database.reading() as db:
            for origin, origin_id, name, enabled in db.execute(
                "SELECT origin, origin_id, name, enabled FROM switches"
            ):
                switches[origin, origin_id, name] = bool(enabled)
        return switches

    def set_switch(self, origin: Origin, origin_id: str, name: str, *, enabled: bool) -> None:
        with self._database.writing() as db:
            db.execute(
                "INSERT INTO switches(origin, origin_id, name, enabled) VALUES (?, ?, ?, ?) "
                "ON CONFLICT(origin, origin_id, name) DO UPDATE SET enabled = excluded.enabled",
                (origin, origin_id, name, enabled),
            )

    # --- hubs -----------------------------------------------------------------------------------------------

    def hubs(self) -> list[Hub]:
        with self._database.reading() as db:
            return _read_hubs(db)

    def configure_hubs(self, configured: Sequence[Hub]) -> list[Hub]:
        """Makes the configured hubs those of SKILL_HUBS; returns all hubs."""
        with self._database.writing() as db:
            stored = {hub.id: hub for hub in _read_hubs(db)}
            hubs = [_avoid_stored_id(hub, stored) for hub in configured]
            configured_ids = {hub.id for hub in hubs}
            for hub in stored.values():
                if hub.configured and hub.id not in configured_ids:
                    _delete_hub(db, hub.id)
            for hub in hubs:
                if hub.id not in stored or replace(stored[hub.id], commit="") != hub:
                    _write_hub(db, hub)
                    _replace_skills(db, hub.id, ())
            return _read_hubs(db)

    def put_hub(self, hub: Hub, skills: Iterable[RawSkill] | None = None) -> None:
        """Stores a hub and replaces its skills in one transaction; without `skills` its skills stay."""
        with self._database.writing() as db:
            _write_hub(db, hub)
            if skills is not None:
                _replace_skills(db, hub.id, skills)

    def remove_hub(self, hub_id: str) -> bool:
        """Whether it was stored; its skills and switches are removed with it."""
        with self._database.writing() as db:
            return _delete_hub(db, hub_id)

    # --- fetches of hubs ------------------------------------------------------------------------------------

    def claim_fetch(self, hub_id: str, seconds: float) -> int | None:
        """The right to fetch a hub, as a number that `end_fetch` takes; None while another process has it."""
        with self._database.writing() as db:
            now = self._database.read_clock(db)
            row = db.execute(
                "INSERT INTO fetches(hub, epoch, lease_until) VALUES (?1, 1, ?2) ON CONFLICT(hub) DO UPDATE "
                "SET epoch = fetches.epoch + 1, lease_until = excluded.lease_until "
                "WHERE fetches.lease_until <= ?3 RETURNING epoch",
                (hub_id, now + round(seconds * 1_000_000), now),
            ).fetchone()
        if row is None:
            return None
        return int(row[0])

    def end_fetch(
        self, hub: Hub, epoch: int, skills: Iterable[RawSkill] | None = None, problem: str = ""
    ) -> bool:
        """Stores what was fetched, or why it was not. False when another process has claimed the fetch since,
        or the hub was removed: nothing is stored then."""
        with self._database.writing() as db:
            ended = db.execute(
                "UPDATE fetches SET lease_until = ?, problem = ? WHERE hub = ? AND epoch = ?",
                (_ENDED, problem, hub.id, epoch),
            )
            if not ended.rowcount or all(stored.id != hub.id for stored in _read_hubs(db)):
                return False
            if skills is not None:
                _write_hub(db, hub)
                _replace_skills(db, hub.id, skills)
            return True

    def release_fetch(self, hub_id: str, epoch: int) -> None:
        """Gives up a fetch that was interrupted: whoever waits for it may claim it."""
        with self._database.writing() as db:
            db.execute(
                "UPDATE fetches SET lease_until = ? WHERE hub = ? AND epoch = ?", (_RELEASED, hub_id, epoch)
            )

    def read_fetch_outcome(self, hub_id: str) -> str | None:
        """Why the last fetch of a hub failed, empty if it did not; None while it goes on, or when it was
        interrupted."""
        with self._database.reading() as db:
            row = db.execute("SELECT lease_until, problem FROM fetches WHERE hub = ?", (hub_id,)).fetchone()
        if row is None:  # the hub was removed
            return ""
        if row["lease_until"] != _ENDED:
            return None
        return str(row["problem"])


def _read_hubs(db: SqlConnection) -> list[Hub]:
    hubs: list[Hub] = []
    for row in db.execute("SELECT id, url, ref, path, pin, configured FROM hubs ORDER BY rowid"):
        hub_id, url, ref, path, commit, configured = row
        hubs.append(Hub(hub_id, url, ref, path, commit, bool(configured)))
    return hubs


def _avoid_stored_id(hub: Hub, stored_hubs: Mapping[str, Hub]) -> Hub:
    """The configured hub, with another id where a hub that people added has its id."""
    stored_hub = stored_hubs.get(hub.id)
    if stored_hub is None or stored_hub.configured or stored_hub.url == hub.url:
        return hub
    return replace(hub, id=f"{hub.id}-configured")


def _delete_hub(db: SqlConnection, hub_id: str) -> bool:
    db.execute("DELETE FROM skills WHERE origin = 'hub' AND origin_id = ?", (hub_id,))
    db.execute("DELETE FROM switches WHERE origin = 'hub' AND origin_id = ?", (hub_id,))
    db.execute("DELETE FROM fetches WHERE hub = ?", (hub_id,))
    return db.execute("DELETE FROM hubs WHERE id = ?", (hub_id,)).rowcount > 0


def _replace_skills(db: SqlConnection, hub_id: str, skills: Iterable[RawSkill]) -> None:
    db.execute("DELETE FROM skills WHERE origin = 'hub' AND origin_id = ?", (hub_id,))
    for raw in skills:
        _write_skill(db, "hub", hub_id, raw)


def _read_fingerprint(db: SqlConnection, key: SkillKey) -> str | None:
    """None when the skill is not stored."""
    query = "SELECT mark FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)"
    row = db.execute(query, key).fetchone()
    if row is None:
        return None
    return str(row[0])


def _write_skill(db: SqlConnection, origin: Origin, origin_id: str, raw: RawSkill) -> None:
    key = SkillKey(origin, origin_id, raw.location)
    db.execute("DELETE FROM skills WHERE (origin, origin_id, place) = (?, ?, ?)", key)
    problems: list[tuple[str, str, str, int | None]] = []
    for problem in raw.problems:
        problems.append((problem.file, problem.field, problem.message, problem.line))
    query = (
        "INSERT INTO skills(origin, origin_id, place, folder, mark, problems) VALUES (?, ?, ?, ?, ?, ?) "
        "RETURNING id"
    )
    [row] = db.execute(query, (*key, raw.folder, raw.fingerprint, json.dumps(problems))).fetchall()
    file_rows = [(row["id"], path, content) for path, content in raw.files.items()]
    db.executemany("INSERT INTO files(skill, path, content) VALUES (?, ?, ?)", file_rows)


def _write_hub(db: SqlConnection, hub: Hub) -> None:
    db.execute(
        "INSERT INTO hubs(id, url, ref, path, pin, configured) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT(id) DO UPDATE SET url = excluded.url, ref = excluded.ref, path = excluded.path, "
        "pin = excluded.pin, configured = excluded.configured",
        (hub.id, hub.url, hub.ref, hub.path, hub.commit, hub.configured),
    )
