"""Reads all skill sources; a skill that did not change since the last time is neither parsed nor scanned
again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.skill_resolution import (
    EnabledSwitches,
    LoadedSkill,
    load_skill,
)
from ai_platform_engineering.skills_middleware.skill_store import Hub, SkillStore
from ai_platform_engineering.skills_middleware.sources.skill_source import SkillSource
from ai_platform_engineering.skills_middleware.sources.stored_source import StoredSource

NOT_FETCHED = "It was not fetched yet. Refresh the hubs."


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source and its skills by location; `reason` says why it could not be read."""

    source: SkillSource
    loaded: Mapping[str, LoadedSkill] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CatalogState:
    """All sources in order of precedence. Without switches the store cannot be read."""

    sources: tuple[SourceState, ...] = ()
    switches: EnabledSwitches | None = None
    hubs: tuple[Hub, ...] = ()

    def skills(self) -> Iterator[tuple[Origin, str, LoadedSkill]]:
        for state in self.sources:
            for loaded in state.loaded.values():
                yield state.source.origin, state.source.origin_id, loaded

    def has_same_skills(self, other: "CatalogState") -> bool:
        """Whether no skill was added, removed or changed. By identity: a skill that did not change is the
        same object."""
        own_skills = list(self.skills())
        other_skills = list(other.skills())
        if self.switches != other.switches or len(own_skills) != len(other_skills):
            return False
        return all(own[2] is other[2] for own, other in zip(own_skills, other_skills, strict=True))


def read_sources(
    store: SkillStore, fixed: Sequence[SkillSource], previous: CatalogState, *, every: bool
) -> CatalogState:
    """The new state. `every`: also of sources that do not change by themselves. Blocks: it is called in a
    thread."""
    switches: EnabledSwitches | None = None
    hubs: tuple[Hub, ...] = ()
    try:
        switches = store.switches()
        hubs = tuple(store.hubs())
    except CaipeError:
        switches = None  # the state of the stored source says why
    hub_sources = [StoredSource(store, origin="hub", origin_id=hub.id) for hub in hubs]
    previous_states = {(state.source.origin, state.source.origin_id): state for state in previous.sources}
    unfetched_ids = {hub.id for hub in hubs if not hub.commit}
    states: list[SourceState] = []
    for source in (*fixed, StoredSource(store), *hub_sources):
        state = previous_states.get((source.origin, source.origin_id))
        if state is None or state.reason or source.watched or every:
            reason = NOT_FETCHED if source.origin_id in unfetched_ids else ""
            state = _read_source(source, state or SourceState(source), reason)
        states.append(state)
    return CatalogState(tuple(states), switches, hubs)


def _read_source(source: SkillSource, previous: SourceState, reason: str) -> SourceState:
    known_skills = {location: loaded.raw for location, loaded in previous.loaded.items()}
    try:
        raw_skills = source.read_skills(known_skills)
    except CaipeError as error:
        return SourceState(source, reason=str(error))
    loaded_skills: dict[str, LoadedSkill] = {}
    for location, raw in raw_skills.items():
        loaded = previous.loaded.get(location)
        if loaded is None or loaded.raw is not raw:
            loaded = load_skill(raw, source.origin, source.origin_id)
        loaded_skills[location] = loaded
    return SourceState(source, loaded_skills, reason)
