"""Skills in the database: those that people stored, and the files of hubs as they were fetched."""

from collections.abc import Mapping

from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.skill_store import SkillKey, SkillStore
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill


class StoredSource:
    """The mark of a skill is its version."""

    watched = True

    def __init__(self, store: SkillStore, *, origin: Origin = "stored", origin_id: str = "") -> None:
        self._store = store
        self.origin = origin
        self.origin_id = origin_id

    def read_skills(self, known: Mapping[str, RawSkill]) -> dict[str, RawSkill]:
        marks = self._store.fingerprints(self.origin, self.origin_id)
        found = (self._one(place, mark, known.get(place)) for place, mark in marks.items())
        return {held.location: held for held in found if held is not None}

    def _one(self, place: str, mark: str, known: RawSkill | None) -> RawSkill | None:
        """None when it was removed since it was listed."""
        if known is not None and known.fingerprint == mark:
            return known
        return self._store.read_skill(SkillKey(self.origin, self.origin_id, place))
