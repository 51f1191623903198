"""Skills in the database: those that people stored, and the files of hubs as they were fetched."""

from collections.abc import Mapping

from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.skill_store import Key, SkillStore
from ai_platform_engineering.skills_middleware.sources.source import Held


class StoredSource:
    """The mark of a skill is its version."""

    watched = True

    def __init__(self, store: SkillStore, *, origin: Origin = "stored", origin_id: str = "") -> None:
        self._store, self.origin, self.origin_id = store, origin, origin_id

    def held(self, known: Mapping[str, Held]) -> dict[str, Held]:
        marks = self._store.marks(self.origin, self.origin_id)
        found = (self._one(place, mark, known.get(place)) for place, mark in marks.items())
        return {held.place: held for held in found if held is not None}

    def _one(self, place: str, mark: str, known: Held | None) -> Held | None:
        """None when it was removed since it was listed."""
        if known is not None and known.mark == mark:
            return known
        return self._store.held(Key(self.origin, self.origin_id, place))
