"""The database of a run log: what its rows need of SQLite and of PostgreSQL."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ai_platform_engineering.databases.sql_connections import SqlConnection, Work

T = TypeVar("T")


class LogDatabase(Protocol):
    """An open database: writes share commits, reads see what is committed."""

    def submit(
        self, work: Work[T], stored: Callable[[], None] | None = None, *, within: float = 0
    ) -> asyncio.Future[T]:
        """The result of the work, once it is committed (`GroupCommitWriter.submit`)."""
        ...

    async def query(self, query: str, *values: Any) -> list[Any]:
        """The rows of a short query on committed data."""
        ...

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        """The result of a query that may take long: it runs in a thread."""
        ...

    async def check_writable(self) -> str | None:
        """Why nothing can be stored; None if it can."""
        ...

    async def release_space(self) -> None:
        """Gives the room of deleted rows back, where the database does not do so by itself."""
        ...

    def close(self) -> None:
        """Commits what was submitted, and refuses anything new."""
        ...
