"""Skills in the database: those that people stored, and the files of hubs as they were fetched."""

from collections.abc import Mapping

from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.skill_store import SkillKey, SkillStore
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill


class StoredSource:
    """The skills of one origin in the store. The fingerprint of a skill is its version."""

    watched = True

    def __init__(self, store: SkillStore, *, origin: Origin = "stored", origin_id: str = "") -> None:
        self._store = store
        self.origin = origin
        self.origin_id = origin_id

    def read_skills(self, known: Mapping[str, RawSkill]) -> dict[str, RawSkill]:
        skills: dict[str, RawSkill] = {}
        for location, fingerprint in self._store.fingerprints(self.origin, self.origin_id).items():
            raw = self._read_skill(location, fingerprint, known.get(location))
            if raw is not None:
                skills[location] = raw
        return skills

    def _read_skill(self, location: str, fingerprint: str, known: RawSkill | None) -> RawSkill | None:
        """None when it was removed after it was listed."""
        if known is not None and known.fingerprint == fingerprint:
            return known
        return self._store.read_skill(SkillKey(self.origin, self.origin_id, location))
