"""The catalogue of skills: all sources together, what people changed, and the versions that runs have begun with."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ai_platform_engineering.core.errors import CaipeError, Refused
from ai_platform_engineering.core.skills import Origin, Skill
from ai_platform_engineering.skills_middleware.file_rules import (
    SKILL_MD,
    SkillErrors,
    is_expected,
    to_printable,
)
from ai_platform_engineering.skills_middleware.skill_resolution import (
    ResolvedSkills,
    SkillCheck,
    SkillEntry,
    SkillSnapshot,
    check_new_skill,
    resolve,
)
from ai_platform_engineering.skills_middleware.skill_store import Hub, SkillKey, SkillStore
from ai_platform_engineering.skills_middleware.source_refresh import CatalogState, read_sources
from ai_platform_engineering.skills_middleware.sources.hub_reader import HubReader, create_hub
from ai_platform_engineering.skills_middleware.sources.skill_source import (
    MAX_SOURCE_BYTES,
    RawSkill,
    SkillSource,
)

REREAD_SECONDS = 1.0  # seconds
MAX_SNAPSHOTS = 200  # versions that runs have begun with


class SkillNotFound(CaipeError):
    code = "skill_not_found"


class SkillConflict(Refused):
    """It is there already, or it was changed since it was read."""

    code = "skill_conflict"


class SkillChanged(SkillConflict):
    code = "skill_changed"

    def __init__(self, name: str) -> None:
        super().__init__(f"The skill {name} was changed meanwhile. Read it again, and repeat the change.")


@dataclass(frozen=True, slots=True)
class UnavailableSource:
    """A source that cannot be read, and why, for a person."""

    origin: Origin
    origin_id: str
    reason: str


class SkillCatalog:
    """Implements SkillShelf. Folders are looked at again at most once a second, when somebody asks; what goes through here counts at
    once. Whatever cannot be read is in `unavailable_sources` and takes nothing else down."""

    def __init__(
        self,
        store: SkillStore,
        reader: HubReader,
        sources: Sequence[SkillSource] = (),
        *,
        configured: Sequence[Hub] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sources` in the order in which they win; what is stored and the hubs follow them."""
        self._store = store
        self._reader = reader
        self._sources = tuple(sources)
        self._configured = tuple(configured)
        self._clock = clock
        self._state, self._shelf = CatalogState(), ResolvedSkills()
        self._looking = asyncio.Lock()
        self._looked = float("-inf")
        self._changes, self._seen = 1, 0
        self._failed: dict[str, str] = {}
        self._kept: OrderedDict[tuple[str, str], SkillSnapshot] = OrderedDict()
        self._fetching: asyncio.Task[None] | None = None
        self.generation = 0  # grows whenever a skill comes, goes or changes
        self.changed_at: datetime | None = None

    async def open(self) -> None:
        """Reads everything once, and begins to fetch the hubs of SKILL_HUBS that were never fetched; `fetched` waits for them."""
        await asyncio.to_thread(self._reader.remove_leftovers)
        try:
            missing = await asyncio.to_thread(self._reconciled)
        except CaipeError:  # the look that follows tells
            missing = []
        self._changes += 1
        await self._look()
        if missing:
            self._fetching = asyncio.create_task(self._fetch_all(missing))

    async def wait_for_fetch(self) -> None:
        if self._fetching is not None:
            await asyncio.wait([self._fetching])

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
        await asyncio.to_thread(self._store.close)

    # --- what the supervisor uses -------------------------------------------------------------------------------------

    async def list_usable(self) -> Sequence[Skill]:
        return (await self._look()).usable

    async def get(self, name: str, version: str | None = None) -> Skill | None:
        kept = await self._find(name, version)
        if kept:
            return kept.skill
        return None

    async def read(self, name: str, version: str, path: str) -> str:
        kept = await self._find(name, version)
        if kept is None:
            raise SkillNotFound(
                f"There is no skill {to_printable(name)} in version {to_printable(version)}. Load the skill again."
            )
        if path not in kept.files or not (path == SKILL_MD or is_expected(path)):
            there = ", ".join(file.path for file in kept.skill.files[:20]) or "no files"
            raise SkillNotFound(f"The skill {name} has no file {to_printable(path)}. It has: {there}.")
        content = kept.files[path]
        try:
            if b"\0" not in content:  # such a file was not scanned as text
                return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
        raise Refused(f"The file {path} of the skill {name} is not text.")

    # --- what people see ----------------------------------------------------------------------------------------------

    async def entries(self) -> Sequence[SkillEntry]:
        """Every skill of every source, in the order in which they win."""
        return (await self._look()).entries

    async def hubs(self) -> Sequence[Hub]:
        await self._look()
        return self._state.hubs

    async def get_hub(self, hub_id: str) -> Hub:
        """Raises SkillNotFound."""
        for hub in await self.hubs():
            if hub.id == hub_id:
                return hub
        raise SkillNotFound(f"There is no hub {to_printable(hub_id)}.")

    @property
    def unavailable_sources(self) -> tuple[UnavailableSource, ...]:
        """As of the last look."""
        seen = [
            (one.source, self._failed.get(one.source.origin_id) or one.reason) for one in self._state.sources
        ]
        return tuple(
            UnavailableSource(source.origin, source.origin_id, reason) for source, reason in seen if reason
        )

    async def validate(self, files: Mapping[str, bytes], folder: str | None = None) -> SkillCheck:
        return await asyncio.to_thread(check_new_skill, files, folder)

    # --- what people change -------------------------------------------------------------------------------------------

    async def create(self, files: Mapping[str, bytes], folder: str | None = None) -> SkillEntry:
        """Stores a skill, which must be named like `folder` if that is given; one with a blocking finding is stored, but not used.
        Raises SkillErrors and SkillConflict."""
        held = await self._checked(files, folder)
        if not await asyncio.to_thread(self._store.add, "stored", held):
            raise SkillConflict(
                f"A skill {held.folder} is stored already. Update it, or give the new one another name."
            )
        return await self._changed(held.folder, "stored")

    async def update(
        self, name: str, files: Mapping[str, bytes], *, version: str | None = None
    ) -> SkillEntry:
        """Replaces a stored skill, which must still be in `version` if that is given. Raises SkillErrors and SkillChanged."""
        await self.check_stored(name)
        held = await self._checked(files, name)
        if not await asyncio.to_thread(self._store.update, "stored", held, version):
            raise SkillChanged(name)
        return await self._changed(name, "stored")

    async def delete(self, name: str, *, version: str | None = None) -> None:
        """Raises SkillNotFound, Refused for one that is not stored, and SkillChanged when it is in another version."""
        await self.check_stored(name)
        if (
            not await asyncio.to_thread(self._store.remove, SkillKey("stored", "", name), version)
            and version is not None
        ):
            raise SkillChanged(name)
        self._changes += 1
        await self._look()

    async def set_enabled(
        self, name: str, origin: Origin, enabled: bool, *, origin_id: str = ""
    ) -> SkillEntry:
        """Switches a skill of any origin. Raises SkillNotFound, and Refused for one with a blocking finding."""
        entry = self._named(await self._look(), name, origin, origin_id)
        if enabled and entry.skill is None:
            raise Refused(f"The skill {name} cannot be enabled: {entry.problems[0]}")
        blocking = [
            finding
            for finding in (entry.skill.findings if entry.skill else ())
            if finding.severity == "block"
        ]
        if enabled and blocking:
            where = blocking[0].file if blocking[0].line is None else f"{blocking[0].file}:{blocking[0].line}"
            raise Refused(
                f"The skill {name} cannot be enabled before this is changed: {where}: {blocking[0].message}"
            )
        await asyncio.to_thread(self._store.set_switch, origin, entry.origin_id, name, enabled=enabled)
        return await self._changed(name, origin, entry.origin_id)

    async def refresh(self, *, hubs: bool = False) -> None:
        """Looks at every source again; with `hubs` their newest commits are fetched. What fails is in `unavailable_sources`."""
        if hubs:
            await self._fetch_all(await self.hubs())
        self._changes += 1
        await self._look(every=True)

    async def add_hub(self, url: str, ref: str = "", path: str = "") -> Hub:
        """Fetches a hub and keeps it. Raises CaipeError."""
        known = await self.hubs()
        hub = create_hub(url, ref, path, taken=[one.id for one in known])
        if any((one.url, one.path) == (hub.url, hub.path) for one in known):
            raise SkillConflict("This hub is known already. Refresh it, or remove it first.")
        fetched, skills = await self._reader.fetch(hub)
        await asyncio.to_thread(self._store.put_hub, fetched, skills)
        self._changes += 1
        await self._look()
        return fetched

    async def refresh_hub(self, hub_id: str) -> Hub:
        """Fetches the newest commit of one hub. What fails is in `unavailable_sources`."""
        await self._fetch_all([await self.get_hub(hub_id)])
        await self._look()
        return await self.get_hub(hub_id)

    async def remove_hub(self, hub_id: str) -> None:
        hub = await self.get_hub(hub_id)
        if hub.configured:
            raise Refused(f"The hub {hub_id} stands in SKILL_HUBS. Remove it there, and start again.")
        await asyncio.to_thread(self._store.remove_hub, hub_id)
        self._failed.pop(hub_id, None)
        self._changes += 1
        await self._look()

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _look(self, *, every: bool = False) -> ResolvedSkills:
        async with self._looking:
            changes = self._changes  # what is changed from here on counts with the next look
            if every or changes != self._seen or self._clock() - self._looked >= REREAD_SECONDS:
                before = self._state
                self._state = await asyncio.to_thread(
                    read_sources, self._store, self._sources, before, every=every
                )
                if not self._state.has_same_skills(before):
                    self._shelf = await asyncio.to_thread(resolve, self._state.skills(), self._state.switches)
                    self.generation, self.changed_at = self.generation + 1, datetime.now(UTC)
                self._looked, self._seen = self._clock(), changes
            return self._shelf

    async def _find(self, name: str, version: str | None) -> SkillSnapshot | None:
        current = (await self._look()).snapshots.get(name)
        wanted = current.skill.version if version is None and current else version or ""
        found = current if current and current.skill.version == wanted else self._kept.get((name, wanted))
        if found is not None:
            self._kept[name, wanted] = found
            self._kept.move_to_end((name, wanted))
            while len(self._kept) > MAX_SNAPSHOTS:
                self._kept.popitem(last=False)
        return found

    async def _changed(self, name: str, origin: Origin, origin_id: str = "") -> SkillEntry:
        self._changes += 1
        return self._named(await self._look(), name, origin, origin_id)

    def _named(self, shelf: ResolvedSkills, name: str, origin: Origin, origin_id: str) -> SkillEntry:
        for entry in shelf.entries:
            if (entry.name, entry.origin) == (name, origin) and origin_id in ("", entry.origin_id):
                return entry
        raise SkillNotFound(f"There is no skill {to_printable(name)} of this origin ({origin}).")

    async def check_stored(self, name: str) -> None:
        """Raises SkillNotFound, and Refused for a skill that comes from elsewhere."""
        if name in await asyncio.to_thread(self._store.fingerprints, "stored", ""):
            return
        if other := next((entry for entry in await self.entries() if entry.name == name), None):
            said = "It can be disabled, and one of the same name can be stored."
            raise Refused(
                f"The skill {name} is not stored here ({other.origin}), so it cannot be changed. {said}"
            )
        raise SkillNotFound(f"There is no skill {to_printable(name)}.")

    async def _checked(self, files: Mapping[str, bytes], folder: str | None) -> RawSkill:
        given = dict(files)
        checked = await self.validate(given, folder)
        if checked.skill is None:
            raise SkillErrors(checked.problems)
        held = RawSkill(checked.skill.name, checked.skill.name, checked.skill.version, given)
        if await asyncio.to_thread(self._store.total_size, "stored") + held.size > MAX_SOURCE_BYTES:
            raise Refused(
                f"The stored skills would be larger than {MAX_SOURCE_BYTES // 1024 // 1024} MB together. Delete some first."
            )
        return held

    # --- hubs ---------------------------------------------------------------------------------------------------------

    async def _fetch_all(self, hubs: Sequence[Hub]) -> None:
        await asyncio.gather(*(self._fetch(hub) for hub in hubs if not hub.commit or hub.commit != hub.ref))

    async def _fetch(self, hub: Hub) -> None:
        try:
            fetched, skills = await self._reader.fetch(hub)
            await asyncio.to_thread(self._store.put_hub, fetched, skills)
            self._failed.pop(hub.id, None)
        except CaipeError as error:
            used = f" The skills of commit {hub.commit[:12]} are used." if hub.commit else ""
            self._failed[hub.id] = f"{error}{used}"
        self._changes += 1

    def _reconciled(self) -> list[Hub]:
        """Makes the store agree with SKILL_HUBS; gives the hubs that are to be fetched. Blocks."""
        known = {hub.id: hub for hub in self._store.hubs()}
        wanted: dict[str, Hub] = {}
        for hub in self._configured:
            old = known.get(hub.id)
            own = old is not None and not old.configured and old.url != hub.url
            wanted[hub.id] = replace(hub, id=f"{hub.id}-configured") if own else hub
        for hub in known.values():
            if hub.configured and hub.id not in {one.id for one in wanted.values()}:
                self._store.remove_hub(hub.id)
        missing = [
            hub
            for hub in wanted.values()
            if known.get(hub.id) is None or replace(known[hub.id], commit="") != hub
        ]
        for hub in missing:
            self._store.put_hub(hub, [])
        return [hub for hub in self._store.hubs() if hub.configured and not hub.commit]
