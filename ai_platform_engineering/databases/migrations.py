"""The tables of a database that processes of two versions may share, as migrations."""

from collections.abc import Sequence
from dataclasses import dataclass

Migration = Sequence[str]  # statements; a released migration is never changed: a new one follows it


@dataclass(frozen=True, slots=True)
class SharedTables:
    """The migrations of a schema in order; `oldest_reader` is how many of them a program must know at least
    to go on with the newest tables."""

    migrations: Sequence[Migration]
    oldest_reader: int = 1
