"""Groups of people that documents may be visible to, and the viewer that a principal is."""

from collections.abc import Collection

from ai_platform_engineering.knowledge_bases.access import ANYBODY, Viewer, create_viewer
from ai_platform_engineering.knowledge_bases.results import KnowledgeNotFound
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore


class PeopleGroups:
    """The groups in a store."""

    def __init__(self, store: KnowledgeStore) -> None:
        self._store = store

    async def identify(self, principal: str | None) -> Viewer:
        """The viewer with this name and their groups; without a name one who sees what everybody may see."""
        if not principal:
            return ANYBODY
        return create_viewer(principal, await self._store.list_groups_of(principal))

    async def put(self, name: str, members: Collection[str]) -> None:
        """Adds a group, or replaces its members."""
        await self._store.put_group(name, members)

    async def remove(self, name: str) -> None:
        """Raises KnowledgeNotFound."""
        if not await self._store.remove_group(name):
            raise KnowledgeNotFound(f"There is no group {name[:80]}.")

    async def list(self) -> dict[str, list[str]]:
        """Members by group."""
        return await self._store.list_groups()
