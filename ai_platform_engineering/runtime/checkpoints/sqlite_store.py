"""SqliteStore: a LangGraph store in an SQLite file, in the table of LangGraph's own.

LangGraph's imports numpy for its vector search, which costs every start a quarter of a second and 25 MB.
"""

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import aiosqlite
from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result, SearchOp

from ai_platform_engineering.runtime.checkpoints.store_search import Namespace, execute_in_memory

# As LangGraph's first migration creates them: its own store can still open the file, and adds the rest.
_TABLE = """CREATE TABLE IF NOT EXISTS store (
    prefix text NOT NULL, key text NOT NULL, value text NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (prefix, key))"""
_INDEX = "CREATE INDEX IF NOT EXISTS store_prefix_idx ON store (prefix)"
_COLUMNS = "prefix, key, value, created_at, updated_at"
_GET = f"SELECT {_COLUMNS} FROM store WHERE prefix = ? AND key = ?"  # noqa: S608 - columns of ours
# A range and not LIKE: its pattern would take `%` and `_` of a label, and ignore case. `/` follows `.`.
_SEARCH = (
    f"SELECT {_COLUMNS} FROM store "  # noqa: S608 - columns of ours
    "WHERE ? = '' OR prefix = ? OR (prefix >= ? || '.' AND prefix < ? || '/') ORDER BY updated_at DESC, key"
)
_PUT = (
    "INSERT INTO store(prefix, key, value, created_at, updated_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT(prefix, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"
)
_DELETE = "DELETE FROM store WHERE prefix = ? AND key = ?"
_TIME = "%Y-%m-%d %H:%M:%S.%f"  # in UTC, as SQLite writes it


class SqliteStore(BaseStore):
    """A store on a connection that begins no transactions by itself. Searches give the newest first."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self.conn = connection
        self.lock = asyncio.Lock()  # of the connection

    async def setup(self) -> None:
        """Creates the table, if it is not there."""
        async with self.lock:
            await self.conn.execute(_TABLE)
            await self.conn.execute(_INDEX)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        raise NotImplementedError("This store is asynchronous: use abatch and the methods that begin with a.")

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        batch = list(ops)
        async with self.lock:
            if len(batch) == 1 and not isinstance(batch[0], PutOp):
                return [await self._execute(batch[0])]  # one statement sees one state: no transaction
            await self.conn.execute("BEGIN")
            try:
                results = [await self._execute(op) for op in batch]
            except BaseException:
                await asyncio.shield(self.conn.execute("ROLLBACK"))
                raise
            await self.conn.execute("COMMIT")
            return results

    async def _execute(self, op: Op) -> Result:
        match op:
            case GetOp():
                rows = await self._select(_GET, _format_namespace(op.namespace), op.key)
                return next(map(_read_item, rows), None)
            case PutOp(value=None):
                await self.conn.execute(_DELETE, (_format_namespace(op.namespace), op.key))
                return None
            case PutOp():
                now = datetime.now(UTC).strftime(_TIME)
                value = json.dumps(op.value)
                row = (_format_namespace(op.namespace), op.key, value, now, now)
                await self.conn.execute(_PUT, row)
                return None
            case SearchOp():
                return await self._search(op)
            case ListNamespacesOp():
                rows = await self._select("SELECT DISTINCT prefix FROM store ORDER BY prefix")
                return await execute_in_memory({_parse_namespace(row[0]): {} for row in rows}, op)

    async def _search(self, op: SearchOp) -> Result:
        prefix = _format_namespace(op.namespace_prefix)
        rows = await self._select(_SEARCH, prefix, prefix, prefix, prefix)
        if not rows:
            return []
        items: dict[Namespace, dict[str, Item]] = {}
        for item in map(_read_item, rows):
            items.setdefault(item.namespace, {})[item.key] = item
        results: Any = await execute_in_memory(items, op._replace(offset=0, limit=max(1, len(list(rows)))))
        newest_first = sorted(results, key=lambda item: item.updated_at, reverse=True)
        return newest_first[op.offset : op.offset + op.limit]

    async def _select(self, query: str, *values: str) -> list[Any]:
        return list(await self.conn.execute_fetchall(query, values))


def _format_namespace(namespace: Namespace) -> str:
    return ".".join(namespace)  # a label has no period: LangGraph checks that


def _parse_namespace(text: str) -> Namespace:
    return tuple(text.split("."))


def _read_item(row: Any) -> Item:
    prefix, key, value, created, updated = row
    return Item(
        namespace=_parse_namespace(prefix),
        key=key,
        value=json.loads(value),
        created_at=_read_time(created),
        updated_at=_read_time(updated),
    )


def _read_time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
