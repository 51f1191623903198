"""The skill catalogue: all sources together, changes by people, and the skill versions that runs began
with."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

REREAD_SECONDS = 1.0
FETCH_LEASE_SECONDS = 300.0  # longer than a fetch takes
MAX_SNAPSHOTS = 200  # versions that runs have begun with


class SkillNotFound(CaipeError):
    code = "skill_not_found"


class SkillConflict(Refused):
    """A skill or hub that exists already, or was changed since it was read."""

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
    """Implements SkillRegistry. Folders are read again at most once a second, when somebody asks; changes
    through these methods count at once. A source that cannot be read is in `unavailable_sources` and
    affects no other."""

    def __init__(
        self,
        store: SkillStore,
        reader: HubReader,
        sources: Sequence[SkillSource] = (),
        *,
        configured: Sequence[Hub] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sources` in order of precedence; stored skills and hubs come after them."""
        self._store = store
        self._reader = reader
        self._sources = tuple(sources)
        self._configured_hubs = tuple(configured)
        self._clock = clock
        self._state = CatalogState()
        self._resolved = ResolvedSkills()
        self._refresh_lock = asyncio.Lock()
        self._refreshed_at = float("-inf")
        self._change_count = 1
        self._refreshed_count = 0  # the count of changes that the last refresh has seen
        self._fetch_errors: dict[str, str] = {}  # by hub id
        self._snapshots: OrderedDict[tuple[str, str], SkillSnapshot] = OrderedDict()  # by name and version
        self._fetching: asyncio.Task[None] | None = None
        self.generation = 0  # grows whenever a skill is added, removed or changed
        self.changed_at: datetime | None = None

    async def open(self) -> None:
        """Reads everything once, and begins to fetch the hubs of SKILL_HUBS that were never fetched;
        `wait_for_fetch` waits for them."""
        await asyncio.to_thread(self._reader.remove_leftovers)
        try:
            hubs = await asyncio.to_thread(self._store.configure_hubs, self._configured_hubs)
            unfetched_hubs = [hub for hub in hubs if hub.configured and not hub.commit]
        except CaipeError:  # the refresh that follows reports it
            unfetched_hubs = []
        await self._refresh_after_change()
        if unfetched_hubs:
            self._fetching = asyncio.create_task(self._fetch_hubs(unfetched_hubs))

    async def wait_for_fetch(self) -> None:
        if self._fetching is not None:
            await asyncio.wait([self._fetching])

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
        await asyncio.to_thread(self._store.close)

    # --- for the supervisor ---------------------------------------------------------------------------------

    async def list_usable(self) -> Sequence[Skill]:
        return (await self._refresh()).usable

    async def get(self, name: str, version: str | None = None) -> Skill | None:
        snapshot = await self._find_snapshot(name, version)
        if snapshot is None:
            return None
        return snapshot.skill

    async def read(self, name: str, version: str, path: str) -> str:
        snapshot = await self._find_snapshot(name, version)
        if snapshot is None:
            raise SkillNotFound(
                f"There is no skill {to_printable(name)} in version {to_printable(version)}."
                " Load the skill again."
            )
        if path not in snapshot.files or not (path == SKILL_MD or is_expected(path)):
            file_names = ", ".join(file.path for file in snapshot.skill.files[:20]) or "no files"
            raise SkillNotFound(f"The skill {name} has no file {to_printable(path)}. It has: {file_names}.")
        content = snapshot.files[path]
        try:
            if b"\0" not in content:  # such a file was not scanned as text
                return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
        raise Refused(f"The file {path} of the skill {name} is not text.")

    # --- reading, for people --------------------------------------------------------------------------------

    async def entries(self) -> Sequence[SkillEntry]:
        """Every skill of every source, in order of precedence."""
        return (await self._refresh()).entries

    async def hubs(self) -> Sequence[Hub]:
        await self._refresh()
        return self._state.hubs

    async def get_hub(self, hub_id: str) -> Hub:
        """Raises SkillNotFound."""
        for hub in await self.hubs():
            if hub.id == hub_id:
                return hub
        raise SkillNotFound(f"There is no hub {to_printable(hub_id)}.")

    @property
    def unavailable_sources(self) -> tuple[UnavailableSource, ...]:
        """As of the last refresh."""
        unavailable: list[UnavailableSource] = []
        for state in self._state.sources:
            source = state.source
            reason = self._fetch_errors.get(source.origin_id) or state.reason
            if reason:
                unavailable.append(UnavailableSource(source.origin, source.origin_id, reason))
        return tuple(unavailable)

    async def validate(self, files: Mapping[str, bytes], folder: str | None = None) -> SkillCheck:
        return await asyncio.to_thread(check_new_skill, files, folder)

    # --- changes by people ----------------------------------------------------------------------------------

    async def create(self, files: Mapping[str, bytes], folder: str | None = None) -> SkillEntry:
        """Stores a skill, which must be named like `folder` if that is given; one with a blocking finding
        is stored, but not used. Raises SkillErrors and SkillConflict."""
        raw = await self._check_upload(files, folder)
        if not await asyncio.to_thread(self._store.add, "stored", raw):
            raise SkillConflict(
                f"A skill {raw.folder} is stored already. Update it, or give the new one another name."
            )
        return _find_entry(await self._refresh_after_change(), raw.folder, "stored")

    async def update(
        self, name: str, files: Mapping[str, bytes], *, version: str | None = None
    ) -> SkillEntry:
        """Replaces a stored skill, which must still be in `version` if that is given. Raises SkillErrors and
        SkillChanged."""
        await self.check_stored(name)
        raw = await self._check_upload(files, name)
        if not await asyncio.to_thread(self._store.update, "stored", raw, version):
            raise SkillChanged(name)
        return _find_entry(await self._refresh_after_change(), name, "stored")

    async def delete(self, name: str, *, version: str | None = None) -> None:
        """Raises SkillNotFound, Refused for one that is not stored, and SkillChanged when it is in another
        version."""
        await self.check_stored(name)
        removed = await asyncio.to_thread(self._store.remove, SkillKey("stored", "", name), version)
        if not removed and version is not None:
            raise SkillChanged(name)
        await self._refresh_after_change()

    async def set_enabled(
        self, name: str, origin: Origin, enabled: bool, *, origin_id: str = ""
    ) -> SkillEntry:
        """Enables or disables a skill of any origin. Raises SkillNotFound, and Refused for one with a
        blocking finding."""
        entry = _find_entry(await self._refresh(), name, origin, origin_id)
        if enabled:
            _check_can_enable(entry)
        await asyncio.to_thread(self._store.set_switch, origin, entry.origin_id, name, enabled=enabled)
        return _find_entry(await self._refresh_after_change(), name, origin, entry.origin_id)

    async def refresh(self, *, hubs: bool = False) -> None:
        """Reads every source again; with `hubs` their newest commits are fetched. Failures are in
        `unavailable_sources`."""
        if hubs:
            await self._fetch_hubs(await self.hubs())
        await self._refresh_after_change(every=True)

    async def add_hub(self, url: str, ref: str = "", path: str = "") -> Hub:
        """Fetches a hub and stores it. Raises CaipeError."""
        known_hubs = await self.hubs()
        new_hub = create_hub(url, ref, path, used_ids=[hub.id for hub in known_hubs])
        if any((hub.url, hub.path) == (new_hub.url, new_hub.path) for hub in known_hubs):
            raise SkillConflict("This hub is known already. Refresh it, or remove it first.")
        fetched_hub, skills = await self._reader.fetch(new_hub)
        await asyncio.to_thread(self._store.put_hub, fetched_hub, skills)
        await self._refresh_after_change()
        return fetched_hub

    async def refresh_hub(self, hub_id: str) -> Hub:
        """Fetches the newest commit of one hub. A failure is in `unavailable_sources`."""
        await self._fetch_hubs([await self.get_hub(hub_id)])
        await self._refresh()
        return await self.get_hub(hub_id)

    async def remove_hub(self, hub_id: str) -> None:
        hub = await self.get_hub(hub_id)
        if hub.configured:
            raise Refused(f"The hub {hub_id} stands in SKILL_HUBS. Remove it there, and start again.")
        await asyncio.to_thread(self._store.remove_hub, hub_id)
        self._fetch_errors.pop(hub_id, None)
        await self._refresh_after_change()

    async def check_stored(self, name: str) -> None:
        """Raises SkillNotFound, and Refused for a skill that comes from elsewhere."""
        if name in await asyncio.to_thread(self._store.fingerprints, "stored", ""):
            return
        for entry in await self.entries():
            if entry.name == name:
                raise Refused(
                    f"The skill {name} is not stored here ({entry.origin}), so it cannot be changed."
                    " It can be disabled, and one of the same name can be stored."
                )
        raise SkillNotFound(f"There is no skill {to_printable(name)}.")

    # --- refreshing -----------------------------------------------------------------------------------------

    async def _refresh(self, *, every: bool = False) -> ResolvedSkills:
        """Reads the sources again when it is time or something was changed here, and resolves their
        skills."""
        async with self._refresh_lock:
            change_count = self._change_count  # what is changed from here on counts with the next refresh
            is_due = self._clock() - self._refreshed_at >= REREAD_SECONDS
            if every or change_count != self._refreshed_count or is_due:
                await self._read_sources(every=every)
                self._refreshed_at = self._clock()
                self._refreshed_count = change_count
            return self._resolved

    async def _read_sources(self, *, every: bool) -> None:
        previous = self._state
        self._state = await asyncio.to_thread(read_sources, self._store, self._sources, previous, every=every)
        if not self._state.has_same_skills(previous):
            self._resolved = await asyncio.to_thread(resolve, self._state.skills(), self._state.switches)
            self.generation += 1
            self.changed_at = datetime.now(UTC)

    async def _refresh_after_change(self, *, every: bool = False) -> ResolvedSkills:
        self._change_count += 1
        return await self._refresh(every=every)

    async def _find_snapshot(self, name: str, version: str | None) -> SkillSnapshot | None:
        """The skill in a version that is or was used; without one the version that is used now."""
        snapshot = (await self._refresh()).snapshots.get(name)
        if version is None:
            version = snapshot.skill.version if snapshot else ""
        if snapshot is None or snapshot.skill.version != version:
            snapshot = self._snapshots.get((name, version))
        if snapshot is not None:
            self._remember_snapshot(name, version, snapshot)
        return snapshot

    def _remember_snapshot(self, name: str, version: str, snapshot: SkillSnapshot) -> None:
        self._snapshots[name, version] = snapshot
        self._snapshots.move_to_end((name, version))
        while len(self._snapshots) > MAX_SNAPSHOTS:
            self._snapshots.popitem(last=False)

    async def _check_upload(self, files: Mapping[str, bytes], folder: str | None) -> RawSkill:
        """The files as a skill that can be stored. Raises SkillErrors and Refused."""
        contents = dict(files)
        check = await self.validate(contents, folder)
        if check.skill is None:
            raise SkillErrors(check.problems)
        raw = RawSkill(check.skill.name, check.skill.name, check.skill.version, contents)
        stored_size = await asyncio.to_thread(self._store.total_size, "stored")
        if stored_size + raw.size > MAX_SOURCE_BYTES:
            limit = MAX_SOURCE_BYTES // 1024 // 1024
            raise Refused(f"The stored skills would be larger than {limit} MB together. Delete some first.")
        return raw

    # --- hubs -----------------------------------------------------------------------------------------------

    async def _fetch_hubs(self, hubs: Sequence[Hub]) -> None:
        """All but those whose ref is the commit that they have."""
        outdated_hubs = [hub for hub in hubs if not hub.commit or hub.commit != hub.ref]
        await asyncio.gather(*map(self._fetch_hub, outdated_hubs))

    async def _fetch_hub(self, hub: Hub) -> None:
        """Fetches a hub, or waits for the process that does so just now."""
        try:
            problem = await self._fetch_once(hub)
        except CaipeError as error:
            problem = str(error)
        self._fetch_errors.pop(hub.id, None)
        if problem:
            consequence = f" The skills of commit {hub.commit[:12]} are used." if hub.commit else ""
            self._fetch_errors[hub.id] = f"{problem}{consequence}"
        self._change_count += 1

    async def _fetch_once(self, hub: Hub) -> str:
        """Returns why the hub could not be fetched, here or elsewhere."""
        while True:
            epoch = await asyncio.to_thread(self._store.claim_fetch, hub.id, FETCH_LEASE_SECONDS)
            if epoch is not None:
                return await self._fetch_claimed(hub, epoch)
            await asyncio.sleep(REREAD_SECONDS)
            problem = await asyncio.to_thread(self._store.read_fetch_outcome, hub.id)
            if problem is not None:
                return problem

    async def _fetch_claimed(self, hub: Hub, epoch: int) -> str:
        fetched_hub = hub
        skills: list[RawSkill] | None = None
        problem = ""
        try:
            fetched_hub, skills = await self._reader.fetch(hub)
        except CaipeError as error:
            problem = str(error)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self._store.release_fetch, hub.id, epoch))
            raise
        await asyncio.to_thread(self._store.end_fetch, fetched_hub, epoch, skills, problem)
        return problem


def _find_entry(resolved: ResolvedSkills, name: str, origin: Origin, origin_id: str = "") -> SkillEntry:
    """Raises SkillNotFound."""
    for entry in resolved.entries:
        if (entry.name, entry.origin) == (name, origin) and origin_id in ("", entry.origin_id):
            return entry
    raise SkillNotFound(f"There is no skill {to_printable(name)} of this origin ({origin}).")


def _check_can_enable(entry: SkillEntry) -> None:
    """Raises Refused."""
    if entry.skill is None:
        raise Refused(f"The skill {entry.name} cannot be enabled: {entry.problems[0]}")
    for finding in entry.skill.findings:
        if finding.severity == "block":
            where = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
            raise Refused(
                f"The skill {entry.name} cannot be enabled before this is changed: {where}: {finding.message}"
            )
