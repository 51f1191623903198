"""The search of a run log for ids by their beginning."""

from typing import Protocol

from ai_platform_engineering.a2a.codec import TaskRef


class IdSearch(Protocol):
    """Finds what people name by a part of its id."""

    async def find_runs_by_prefix(self, owner: str, prefix: str, limit: int) -> list[TaskRef]:
        """The runs of an owner whose id begins so, ordered by id, at most as many as the limit."""
        ...

    async def find_contexts_by_prefix(self, owner: str, prefix: str, limit: int) -> list[str]:
        """The context ids of an owner that begin so, ordered, at most as many as the limit."""
        ...
