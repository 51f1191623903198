"""Which documents a query of the embedded store is about, and which of them the viewer may see, as SQL."""

import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ai_platform_engineering.knowledge_bases.access import Viewer, VisibleTo
from ai_platform_engineering.knowledge_bases.stores.search_hits import check_filters


@dataclass(frozen=True, slots=True)
class Condition:
    """SQL on the documents `d`, and its values. `number_only`: it reads no column of theirs but `number`, so
    that it can be asked without their rows, which hold the texts."""

    where: str
    values: tuple[str, ...] = ()
    number_only: bool = False


_FILTERS = {
    "kind": "d.kind = ?",
    "title": "instr(lower(d.title), lower(?)) > 0",
    "path": "instr(d.address, ?) = 1",
}
NO_CONDITION = Condition("1", number_only=True)
_VISIBLE = (
    "(NOT EXISTS (SELECT 1 FROM document_viewers r WHERE r.name = '' AND r.document = d.number) "
    "OR EXISTS (SELECT 1 FROM document_viewers w WHERE w.document = d.number "
    "AND w.name IN (SELECT value FROM json_each(?))))"
)


def build_viewer_condition(db: sqlite3.Connection, viewer: Viewer) -> Condition | None:
    """SQL for the documents that the viewer may see; None is all of them."""
    if viewer.sees_all:
        return None
    clauses: list[str] = []
    values: list[str] = []
    if has_restricted_documents(db):
        clauses.append(_VISIBLE)
        values.append(json.dumps(viewer.names))
    hidden = select_hidden_datasources(db, viewer)
    if hidden:
        clauses.append("d.datasource NOT IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(hidden))
    if not clauses:
        return None
    return Condition(" AND ".join(clauses), tuple(values), number_only=not hidden)


def has_restricted_documents(db: sqlite3.Connection) -> bool:
    query = "SELECT EXISTS (SELECT 1 FROM document_viewers WHERE name = '')"
    return bool(db.execute(query).fetchone()[0])


def select_hidden_datasources(db: sqlite3.Connection, viewer: Viewer) -> list[str]:
    """The names of the datasources that the viewer may not see."""
    rows = db.execute("SELECT name, visible_to FROM datasources WHERE visible_to IS NOT NULL")
    return [name for name, names in rows if not viewer.may_see(read_names(names))]


def join_conditions(*conditions: Condition | None) -> Condition | None:
    """The documents that meet all of them."""
    needed = [condition for condition in conditions if condition is not None]
    if not needed:
        return None
    if len(needed) == 1:
        return needed[0]
    values: list[str] = []
    for condition in needed:
        values += condition.values
    where = " AND ".join(condition.where for condition in needed)
    return Condition(where, tuple(values), all(condition.number_only for condition in needed))


def build_condition(datasources: Collection[str], filters: Mapping[str, str]) -> Condition | None:
    """SQL for the documents that a search is about; None is all of them. Raises Refused."""
    check_filters(filters)
    clauses: list[str] = []
    values: list[str] = []
    for name, value in filters.items():
        clauses.append(_FILTERS[name])
        values.append(value)
    if datasources:
        clauses.append("d.datasource IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(sorted(datasources)))
    if not clauses:
        return None
    return Condition(" AND ".join(clauses), tuple(values))


def read_names(text: str | None) -> VisibleTo:
    if text is None:
        return None
    return tuple(json.loads(text))
