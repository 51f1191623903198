"""The SQL of the run log on PostgreSQL: placeholders, rows, and text that PostgreSQL would refuse."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.types.string import StrDumperUnknown

from ai_platform_engineering.databases.sql_connections import ResultCursor

# What differs from SQLite: a literal (left alone), `?` and `?1`, `:name`, `%`, and the hint for its planner.
_TOKENS = re.compile(r"'[^']*'|\?(?P<number>\d*)|(?<!:):(?P<name>[a-z_]+)|%| INDEXED BY \w+")

# PostgreSQL's text has no NUL, and UTF-8 no lone surrogates: they are stored as U+0001 and four digits.
_UNSTORABLE = re.compile("[\x00\x01\ud800-\udfff]")
_ESCAPED = re.compile("\x01([0-9a-f]{4})")


@lru_cache(maxsize=512)
def translate(statement: str) -> tuple[bytes, bool]:
    """A statement with SQLite's placeholders as psycopg takes it, and whether they are numbered."""
    numbered = False

    def replace(token: re.Match[str]) -> str:
        nonlocal numbered
        text = token[0]
        if text.startswith("'"):
            return text.replace("%", "%%")
        if text == "%":
            return "%%"
        if text.startswith(" INDEXED"):
            return ""
        if token["name"]:
            return f"%({token['name']})s"
        if token["number"]:
            numbered = True
            return f"%(p{token['number']})s"
        return "%s"

    return _TOKENS.sub(replace, statement).encode(), numbered


class PostgresRow(tuple[Any, ...]):
    """A row whose columns are found by name and by position."""

    __slots__ = ()
    positions: ClassVar[Mapping[str, int]] = {}

    def __getitem__(self, column: Any) -> Any:
        if isinstance(column, str):
            column = self.positions[column]
        return tuple.__getitem__(self, column)


@lru_cache(maxsize=512)
def _row_class(names: tuple[str, ...]) -> type[PostgresRow]:
    positions = {name: position for position, name in reversed(list(enumerate(names)))}
    return type("PostgresRow", (PostgresRow,), {"__slots__": (), "positions": positions})


def make_row(cursor: Any) -> Callable[[Sequence[Any]], PostgresRow]:
    """The row factory of psycopg's cursors."""
    return _row_class(tuple(column.name for column in cursor.description or ()))


def escape_text(text: str) -> str:
    return _UNSTORABLE.sub(lambda match: f"\x01{ord(match[0]):04x}", text)


def unescape_text(text: str) -> str:
    if "\x01" not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


class EscapingDumper(StrDumperUnknown):
    """Text as it is stored."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escape_text(obj))


class UnescapingLoader(Loader):
    """Text as it was before it was stored."""

    def load(self, data: Buffer) -> str:
        return unescape_text(bytes(data).decode())


class PostgresConnection:
    """A connection that takes the statements of the run log.

    `notes` are what other processes are told by the next commit, each with a kind.
    """

    def __init__(self, connection: psycopg.Connection[PostgresRow]) -> None:
        self.raw = connection
        self.notes: list[list[str | int]] = []

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> ResultCursor:
        query, is_numbered = translate(statement)
        if is_numbered:
            values = {f"p{position}": value for position, value in enumerate(values, 1)}
        return self.raw.execute(query, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        query, _ = translate(statement)
        with self.raw.cursor() as cursor:
            cursor.executemany(query, rows)
        return None

    def note(self, kind: str, *details: str | int) -> None:
        """Tells the other processes something, if this is committed."""
        self.notes.append([kind, *details])
