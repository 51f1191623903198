"""One look at all sources: what did not change since the last one is neither read nor scanned again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.resolution import Loaded, Switches, load
from ai_platform_engineering.skills_middleware.skill_store import Hub, SkillStore
from ai_platform_engineering.skills_middleware.sources.source import Source
from ai_platform_engineering.skills_middleware.sources.stored_source import StoredSource

NOT_FETCHED = "It was not fetched yet. Refresh the hubs."


@dataclass(frozen=True, slots=True)
class Seen:
    """A source as it was; with a reason it could not be read."""

    source: Source
    loaded: Mapping[str, Loaded] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """Everything as it was at one look, in the order in which skills win. Without switches the store cannot be read."""

    seen: tuple[Seen, ...] = ()
    switches: Switches | None = None
    hubs: tuple[Hub, ...] = ()

    def skills(self) -> Iterator[tuple[Origin, str, Loaded]]:
        for one in self.seen:
            for loaded in one.loaded.values():
                yield one.source.origin, one.source.origin_id, loaded

    def same(self, other: "State") -> bool:
        """Whether no skill came, went or changed. By identity: a skill that did not change is the same object."""
        mine, theirs = list(self.skills()), list(other.skills())
        return self.switches == other.switches and len(mine) == len(theirs) and all(a[2] is b[2] for a, b in zip(mine, theirs, strict=True))


def look(store: SkillStore, fixed: Sequence[Source], before: State, *, every: bool) -> State:
    """`every`: also at sources that do not change by themselves. Blocks: it is called in a thread."""
    try:
        switches, hubs = store.switches(), tuple(store.hubs())
    except CaipeError:
        switches, hubs = None, ()
    sources = [*fixed, StoredSource(store), *(StoredSource(store, origin="hub", origin_id=hub.id) for hub in hubs)]
    known = {(one.source.origin, one.source.origin_id): one for one in before.seen}
    unfetched = {hub.id for hub in hubs if not hub.commit}
    seen = []
    for source in sources:
        one = known.get((source.origin, source.origin_id))
        if one is None or one.reason or source.watched or every:
            one = _looked(source, one or Seen(source), NOT_FETCHED if source.origin_id in unfetched else "")
        seen.append(one)
    return State(tuple(seen), switches, hubs)


def _looked(source: Source, before: Seen, reason: str) -> Seen:
    try:
        held = source.held({place: loaded.held for place, loaded in before.loaded.items()})
    except CaipeError as error:
        return Seen(source, reason=str(error))
    loaded = {}
    for place, one in held.items():
        old = before.loaded.get(place)
        loaded[place] = old if old is not None and old.held is one else load(one, source.origin, source.origin_id)
    return Seen(source, loaded, reason)
