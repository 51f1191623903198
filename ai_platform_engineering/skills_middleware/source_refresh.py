"""One look at all sources: what did not change since the last one is neither read nor scanned again."""

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
    """A source as it was; with a reason it could not be read."""

    source: SkillSource
    loaded: Mapping[str, LoadedSkill] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CatalogState:
    """Everything as it was at one look, in the order in which skills win. Without switches the store cannot be read."""

    sources: tuple[SourceState, ...] = ()
    switches: EnabledSwitches | None = None
    hubs: tuple[Hub, ...] = ()

    def skills(self) -> Iterator[tuple[Origin, str, LoadedSkill]]:
        for one in self.sources:
            for loaded in one.loaded.values():
                yield one.source.origin, one.source.origin_id, loaded

    def has_same_skills(self, other: "CatalogState") -> bool:
        """Whether no skill came, went or changed. By identity: a skill that did not change is the same object."""
        mine, theirs = list(self.skills()), list(other.skills())
        return (
            self.switches == other.switches
            and len(mine) == len(theirs)
            and all(a[2] is b[2] for a, b in zip(mine, theirs, strict=True))
        )


def read_sources(
    store: SkillStore, fixed: Sequence[SkillSource], before: CatalogState, *, every: bool
) -> CatalogState:
    """`every`: also at sources that do not change by themselves. Blocks: it is called in a thread."""
    try:
        switches, hubs = store.switches(), tuple(store.hubs())
    except CaipeError:
        switches, hubs = None, ()
    sources = [
        *fixed,
        StoredSource(store),
        *(StoredSource(store, origin="hub", origin_id=hub.id) for hub in hubs),
    ]
    known = {(one.source.origin, one.source.origin_id): one for one in before.sources}
    unfetched = {hub.id for hub in hubs if not hub.commit}
    seen = []
    for source in sources:
        one = known.get((source.origin, source.origin_id))
        if one is None or one.reason or source.watched or every:
            one = _looked(
                source, one or SourceState(source), NOT_FETCHED if source.origin_id in unfetched else ""
            )
        seen.append(one)
    return CatalogState(tuple(seen), switches, hubs)


def _looked(source: SkillSource, before: SourceState, reason: str) -> SourceState:
    try:
        held = source.read_skills({place: loaded.raw for place, loaded in before.loaded.items()})
    except CaipeError as error:
        return SourceState(source, reason=str(error))
    loaded = {}
    for place, one in held.items():
        old = before.loaded.get(place)
        loaded[place] = (
            old if old is not None and old.raw is one else load_skill(one, source.origin, source.origin_id)
        )
    return SourceState(source, loaded, reason)
