"""The catalogue: which skill wins, what people can change, what a run keeps, and that nothing takes it
down."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, Refused, SourceUnavailable
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.skills import Origin, SkillRegistry
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.skills_middleware.api.pagination import find_page
from ai_platform_engineering.skills_middleware.catalog_factory import build_skill_catalog
from ai_platform_engineering.skills_middleware.file_rules import SkillErrors
from ai_platform_engineering.skills_middleware.skill_catalog import (
    MAX_SNAPSHOTS,
    REREAD_SECONDS,
    SkillCatalog,
    SkillConflict,
    SkillNotFound,
    UnavailableSource,
)
from ai_platform_engineering.skills_middleware.skill_database import SqliteSkillDatabase
from ai_platform_engineering.skills_middleware.skill_store import SkillStore
from ai_platform_engineering.skills_middleware.sources.folder_source import SkillFolder
from ai_platform_engineering.skills_middleware.sources.hub_reader import HubReader, parse_hubs
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill, SkillSource
from tests.support.fakes.git_server import GitServer, commit, git, git_server, repository
from tests.support.skill_files import BLOCKED, skill_files, skill_md, write_skill


@dataclass(slots=True)
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Case:
    """A folder that ships, a folder of the operator, a database, and a clock that does not move by itself."""

    home: Path
    clock: Clock = field(default_factory=Clock)
    extra: tuple[SkillSource, ...] = ()
    configured: tuple[str, ...] = ()

    @property
    def shipped(self) -> Path:
        return self.home / "shipped"

    @property
    def folder(self) -> Path:
        return self.home / "folder"

    def catalog(self, *, private: bool = True) -> SkillCatalog:
        for folder in (self.shipped, self.folder):
            folder.mkdir(exist_ok=True, parents=True)
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        reader = HubReader(self.home / "hubs", variables, UrlChecker(allow_private=private))
        sources = (
            SkillFolder(self.shipped, origin="shipped", watched=False),
            *self.extra,
            SkillFolder(self.folder),
        )
        hubs = parse_hubs(self.configured)
        return SkillCatalog(
            SkillStore(SqliteSkillDatabase(self.home / "skills.db")),
            reader,
            sources,
            configured=hubs,
            clock=self.clock,
        )

    @asynccontextmanager
    async def opened(self, *, private: bool = True) -> AsyncIterator[SkillCatalog]:
        catalog = self.catalog(private=private)
        await catalog.open()
        try:
            yield catalog
        finally:
            await catalog.close()

    def write(self, folder: Path, name: str, body: str = "Look.", **more: str) -> None:
        write_skill(folder / name, skill_files(name, body, **more))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path / "case")


async def names(catalog: SkillCatalog) -> list[str]:
    return [skill.name for skill in await catalog.list_usable()]


async def body(catalog: SkillRegistry, name: str) -> str:
    skill = await catalog.get(name)
    assert skill is not None
    return skill.body


async def entry_states(catalog: SkillCatalog) -> dict[tuple[str, str], tuple[bool, str | None]]:
    return {
        (entry.name, entry.origin): (entry.enabled, entry.shadowed_by) for entry in await catalog.entries()
    }


# --- which one is used ----------------------------------------------------------------------------------


async def test_the_first_of_a_name_is_used_and_the_next_when_it_is_disabled(
    case: Case, tmp_path: Path
) -> None:
    case.write(case.shipped, "triage", "Shipped.")
    case.write(case.folder, "triage", "Folder.")
    origin = repository(
        tmp_path / "origin",
        {"triage/SKILL.md": skill_md("triage", "Hub."), "only/SKILL.md": skill_md("only")},
    )
    async with git_server(origin) as served, case.opened() as catalog:
        await catalog.create(skill_files("triage", "Stored."))
        hub = await catalog.add_hub(f"http://127.0.0.1:{served.port}/team/skills")
        assert await names(catalog) == ["only", "triage"]
        order: list[tuple[Origin, str]] = [
            ("shipped", "Shipped."),
            ("folder", "Folder."),
            ("stored", "Stored."),
            ("hub", "Hub."),
        ]
        for number, (first, text) in enumerate(order):
            assert await body(catalog, "triage") == text
            shadowed = {
                kind: by
                for (name, kind), (_, by) in (await entry_states(catalog)).items()
                if name == "triage"
            }
            assert shadowed == {kind: first if at > number else None for at, (kind, _) in enumerate(order)}
            entry = await catalog.set_enabled("triage", first, False)
            assert (entry.enabled, entry.origin, entry.origin_id) == (
                False,
                first,
                hub.id if first == "hub" else "",
            )
        assert await catalog.get("triage") is None
        assert await names(catalog) == ["only"]
        await catalog.set_enabled("triage", "stored", True)
        assert await body(catalog, "triage") == "Stored."
    async with case.opened() as again:
        assert await body(again, "triage") == "Stored."
        assert (await entry_states(again))["triage", "shipped"] == (False, None)


async def test_every_skill_is_scanned_and_a_blocking_finding_keeps_it_off(case: Case) -> None:
    case.write(case.folder, "bad", BLOCKED)
    case.write(case.shipped, "odd", top="colour: red\n")
    async with case.opened() as catalog:
        entry = await catalog.create(skill_files("worse", references__guide=BLOCKED))
        assert (
            entry.enabled,
            entry.skill is not None and [(finding.file, finding.line) for finding in entry.skill.findings],
        ) == (
            False,
            [("references/guide.md", 1)],
        )
        assert await names(catalog) == ["odd"]
        for name, kind in (("bad", "folder"), ("worse", "stored")):
            with pytest.raises(
                Refused, match=r"cannot be enabled before this is changed: .*turn from the instructions"
            ):
                await catalog.set_enabled(name, kind, True)  # type: ignore[arg-type]
            assert await catalog.get(name) is None
        assert (await catalog.update("worse", skill_files("worse"))).enabled
        assert await names(catalog) == ["odd", "worse"]
        # Switched on while it was harmless does not help it later.
        await catalog.set_enabled("worse", "stored", True)
        assert not (await catalog.update("worse", skill_files("worse", BLOCKED))).enabled


async def test_a_blocked_skill_does_not_stand_in_the_way(case: Case) -> None:
    case.write(case.shipped, "triage", BLOCKED)
    case.write(case.folder, "triage", "Folder.")
    async with case.opened() as catalog:
        assert await body(catalog, "triage") == "Folder."


async def test_a_broken_skill_is_listed_with_its_problems(case: Case) -> None:
    write_skill(case.folder / "broken", {"SKILL.md": b"---\nname: other\n---\n"})
    case.write(case.folder, "good")
    async with case.opened() as catalog:
        (broken,) = [entry for entry in await catalog.entries() if entry.name == "broken"]
        assert (broken.enabled, broken.skill, [problem.field for problem in broken.problems]) == (
            False,
            None,
            ["name", "description"],
        )
        assert await names(catalog) == ["good"]
        with pytest.raises(Refused, match="cannot be enabled"):
            await catalog.set_enabled("broken", "folder", True)


# --- what changes ---------------------------------------------------------------------------------------


async def test_a_folder_is_looked_at_once_a_second(case: Case) -> None:
    case.write(case.folder, "one", "First.")
    async with case.opened() as catalog:
        generation = catalog.generation
        case.write(case.folder, "one", "Second.")
        case.write(case.folder, "two")
        assert await body(catalog, "one") == "First."
        case.clock.now += REREAD_SECONDS
        assert await body(catalog, "one") == "Second."
        assert await names(catalog) == ["one", "two"]
        assert catalog.generation == generation + 1
        case.clock.now += REREAD_SECONDS
        await catalog.list_usable()
        assert catalog.generation == generation + 1
        (case.folder / "one" / "SKILL.md").unlink()
        case.write(case.shipped, "three")
        await catalog.refresh()
        assert await names(catalog) == ["three", "two"]


async def test_what_is_changed_here_counts_at_once(case: Case) -> None:
    async with case.opened() as catalog:
        created = await catalog.create(skill_files("one", "First."))
        assert created.skill is not None
        assert (created.used, created.origin, created.skill.origin) == (True, "stored", "stored")
        with pytest.raises(SkillConflict, match="stored already"):
            await catalog.create(skill_files("one"))
        with pytest.raises(SkillConflict, match="changed meanwhile"):
            await catalog.update("one", skill_files("one", "Second."), version="0" * 12)
        await catalog.update("one", skill_files("one", "Second."), version=created.skill.version)
        assert await body(catalog, "one") == "Second."
        with pytest.raises(SkillErrors, match="must be that of the skill's folder"):
            await catalog.update("one", skill_files("two"))
        with pytest.raises(SkillErrors, match="missing or empty"):
            await catalog.create({"SKILL.md": b"---\nname: x\n---\n"})
        await catalog.delete("one")
        assert await names(catalog) == []
        for call in (
            catalog.delete("one"),
            catalog.update("one", skill_files("one")),
            catalog.set_enabled("one", "stored", True),
        ):
            with pytest.raises(SkillNotFound):
                await call


async def test_only_stored_skills_can_be_changed(case: Case) -> None:
    case.write(case.shipped, "triage")
    async with case.opened() as catalog:
        for change in (catalog.delete("triage"), catalog.update("triage", skill_files("triage"))):
            with pytest.raises(Refused, match=r"not stored here \(shipped\)"):
                await change
        assert await names(catalog) == ["triage"]


async def test_two_who_create_the_same_skill(case: Case) -> None:
    async with case.opened() as catalog:
        creations = (catalog.create(skill_files("one", f"{number}.")) for number in range(8))
        results = await asyncio.gather(*creations, return_exceptions=True)
        assert sum(isinstance(result, SkillConflict) for result in results) == 7
        assert len(await catalog.entries()) == 1


async def test_another_process_changes_the_store(case: Case) -> None:
    async with case.opened() as catalog, case.opened() as other:
        await other.create(skill_files("one"))
        case.clock.now += REREAD_SECONDS
        assert await names(catalog) == ["one"]
        await other.set_enabled("one", "stored", False)
        case.clock.now += REREAD_SECONDS
        assert await names(catalog) == []


async def test_a_check_stores_nothing(case: Case) -> None:
    async with case.opened() as catalog:
        good = await catalog.validate(skill_files("one", BLOCKED), "one")
        bad = await catalog.validate({"x": b""})
        assert (good.is_blocked, [finding.code for finding in good.findings], good.problems) == (
            True,
            ["instruction-override"],
            (),
        )
        assert (bad.skill, len(bad.problems), bad.is_blocked) == (None, 1, False)
        assert await catalog.entries() == ()


# --- what a run keeps -----------------------------------------------------------------------------------


async def test_a_run_keeps_the_version_it_began_with(case: Case) -> None:
    async with case.opened() as catalog:
        await catalog.create(skill_files("one", "First.", references__guide="Old."))
        first = await catalog.get("one")
        assert first is not None
        await catalog.update("one", skill_files("one", "Second.", references__guide="New."))
        second = await catalog.get("one")
        assert second is not None
        assert await catalog.get("one", first.version) == first
        assert await catalog.read("one", first.version, "references/guide.md") == "Old."
        assert await catalog.read("one", second.version, "references/guide.md") == "New."
        await catalog.delete("one")
        assert await catalog.get("one") is None
        assert await catalog.get("one", second.version) == second
        assert await catalog.read("one", first.version, "SKILL.md") == skill_md("one", "First.")


async def test_an_unknown_version_is_not_replaced_by_another(case: Case) -> None:
    async with case.opened() as catalog:
        await catalog.create(skill_files("one", "First."))
        created = await catalog.entries()
        await catalog.update("one", skill_files("one", "Second."))
        assert created[0].skill is not None
        for version in (
            "0" * 12,
            "",
            created[0].skill.version,
        ):  # the last one was shown, but no run began with it
            assert await catalog.get("one", version) is None
            with pytest.raises(SkillNotFound, match="Load the skill again"):
                await catalog.read("one", version, "SKILL.md")
        assert await catalog.get("other", None) is None


async def test_the_versions_that_are_kept_are_bounded(case: Case) -> None:
    async with case.opened() as catalog:
        await catalog.create(skill_files("one", "0"))
        versions = []
        for number in range(MAX_SNAPSHOTS + 2):
            await catalog.update("one", skill_files("one", str(number)))
            skill = await catalog.get("one")
            assert skill is not None
            versions.append(skill.version)
            assert await catalog.get("one", versions[0])  # what is used stays
        is_kept = [await catalog.get("one", version) is not None for version in versions]
        assert is_kept == [True, False, False, *[True] * (MAX_SNAPSHOTS - 1)]


async def test_only_files_with_a_place_are_read(case: Case) -> None:
    others = {"notes.md": b"x", "assets/x.png": b"\x89PNG\xff", "assets/y": b"a\0b"}
    write_skill(case.folder / "one", {**skill_files("one", references__guide="\ufeffGuide."), **others})
    async with case.opened() as catalog:
        skill = await catalog.get("one")
        assert skill is not None
        assert await catalog.read("one", skill.version, "references/guide.md") == "Guide."
        for path in ("notes.md", "references/none.md", "../one/SKILL.md", "/etc/passwd", ""):
            with pytest.raises(SkillNotFound, match=r"It has: assets/x\.png, assets/y, references/guide\.md"):
                await catalog.read("one", skill.version, path)
        for path in ("assets/x.png", "assets/y"):
            with pytest.raises(Refused, match="not text"):
                await catalog.read("one", skill.version, path)


# --- what fails -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Failing:
    """A source that fails, or waits, as it is told."""

    origin: Origin = "folder"
    origin_id: str = ""
    watched: bool = True
    error: CaipeError | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    def read_skills(self, known: Mapping[str, RawSkill]) -> dict[str, RawSkill]:
        self.entered.set()
        self.gate.wait(60)
        if self.error:
            raise self.error
        return {"slow": RawSkill("slow", "slow", "1", skill_files("slow"))}


@pytest.mark.parametrize("watched", [True, False])
async def test_a_source_that_fails_is_told_and_takes_no_other_down(case: Case, watched: bool) -> None:
    failing = Failing(origin_id="x", watched=watched, error=SourceUnavailable("The disk is gone."))
    failing.gate.set()
    case.extra = (failing,)
    case.write(case.folder, "one")
    async with case.opened() as catalog:
        assert await names(catalog) == ["one"]
        assert catalog.unavailable_sources == (UnavailableSource("folder", "x", "The disk is gone."),)
        failing.error = None
        case.clock.now += REREAD_SECONDS
        assert await names(catalog) == ["one", "slow"]
        assert catalog.unavailable_sources == ()


async def test_a_slow_source_does_not_stop_the_loop(case: Case) -> None:
    slow = Failing()
    case.extra = (slow,)
    catalog = case.catalog()
    tasks = [asyncio.create_task(catalog.list_usable()) for _ in range(3)]
    await asyncio.to_thread(slow.entered.wait, 60)
    assert not any(task.done() for task in tasks)  # and we are here
    slow.gate.set()
    assert [[skill.name for skill in await task] for task in tasks] == [["slow"]] * 3
    await catalog.close()


async def test_a_change_made_during_a_look_is_in_the_next(case: Case) -> None:
    slow = Failing()
    case.extra = (slow,)
    catalog = case.catalog()
    looking = asyncio.create_task(catalog.list_usable())
    await asyncio.to_thread(slow.entered.wait, 60)
    created = asyncio.create_task(catalog.create(skill_files("one")))
    slow.gate.set()
    await looking
    assert (await created).used
    assert await names(catalog) == ["one", "slow"]
    await catalog.close()


async def test_without_its_database_nothing_is_used(case: Case) -> None:
    """Nobody knows what people have switched off."""
    case.write(case.shipped, "one")
    case.home.joinpath("skills.db").write_text("This is no database. " * 100)
    async with case.opened() as catalog:
        assert await names(catalog) == []
        assert await entry_states(catalog) == {("one", "shipped"): (False, None)}
        assert [(source.origin, "skills.db" in source.reason) for source in catalog.unavailable_sources] == [
            ("stored", True)
        ]
        with pytest.raises(SourceUnavailable):
            await catalog.create(skill_files("two"))


async def test_the_folder_of_the_settings_is_missing(case: Case, tmp_path: Path) -> None:
    settings = Settings.from_variables(
        {"SKILLS_DIR": str(tmp_path / "missing"), "CAIPE_HOME": str(tmp_path / "home")}
    )
    catalog = build_skill_catalog(settings, {"PATH": os.environ["PATH"]})
    await catalog.open()
    assert await names(catalog) == [
        "argocd-sync-failure",
        "cost-check",
        "incident-triage",
        "on-call-handover",
        "post-incident-review",
    ]
    (missing,) = catalog.unavailable_sources
    assert (missing.origin, "Check SKILLS_DIR" in missing.reason) == ("folder", True)
    assert all(
        not entry.problems and entry.skill and not entry.skill.findings for entry in await catalog.entries()
    )
    await catalog.close()
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["skills.db"]


def test_settings_of_skills() -> None:
    assert Settings.from_variables({}).skills.enabled
    assert not Settings.from_variables({"ENABLE_SKILLS": "false"}).skills.enabled
    assert Settings.from_variables({"SKILL_HUBS": "https://a.test/x@main, https://b.test/y"}).skills.hubs == (
        "https://a.test/x@main",
        "https://b.test/y",
    )
    with pytest.raises(ConfigurationError, match="SKILL_HUBS"):
        build_skill_catalog(Settings.from_variables({"SKILL_HUBS": "nonsense"}), {})


# --- hubs -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_hub(tmp_path: Path) -> AsyncIterator[tuple[Path, GitServer, str]]:
    origin = repository(
        tmp_path / "origin",
        {"one/SKILL.md": skill_md("one", "First."), "two/SKILL.md": skill_md("two", BLOCKED)},
    )
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    async with git_server(origin) as served:
        yield origin, served, f"http://127.0.0.1:{served.port}/team/skills"


async def test_a_hub_changes_when_it_is_refreshed_and_not_before(case: Case, tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (origin, served, url):
        async with case.opened() as catalog:
            hub = await catalog.add_hub(url)
            assert (hub.id, hub.commit) == ("team-skills", git(origin, "rev-parse", "HEAD"))
            assert await entry_states(catalog) == {
                ("one", "hub"): (True, None),
                ("two", "hub"): (False, None),
            }
            with pytest.raises(SkillConflict, match="known already"):
                await catalog.add_hub(url)
            newest = commit(origin, {"one/SKILL.md": skill_md("one", "Second."), "two/SKILL.md": None})
            case.clock.now += REREAD_SECONDS
            await catalog.refresh()
            assert await body(catalog, "one") == "First."
        request_count = len(served.requests)
        async with case.opened() as catalog:  # after a restart, without the network
            assert await body(catalog, "one") == "First."
            assert len(served.requests) == request_count
            await catalog.refresh(hubs=True)
            assert await body(catalog, "one") == "Second."
            assert [entry.name for entry in await catalog.entries()] == ["one"]
            assert [hub.commit for hub in await catalog.hubs()] == [newest]
            served.refuse = "404 Not Found"
            await catalog.refresh(hubs=True)
            assert await body(catalog, "one") == "Second."
            (failed,) = catalog.unavailable_sources
            assert (failed.origin, failed.origin_id) == ("hub", "team-skills")
            assert f"commit {newest[:12]} are used" in failed.reason
            await catalog.remove_hub("team-skills")
            assert (await catalog.entries(), await catalog.hubs(), catalog.unavailable_sources) == (
                (),
                (),
                (),
            )
            with pytest.raises(SkillNotFound):
                await catalog.remove_hub("team-skills")
    assert list((case.home / "hubs").iterdir()) == []


async def test_a_hub_that_cannot_be_fetched_is_not_added(case: Case, tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (_, served, url), case.opened(private=False) as catalog:
        for wrong in (url, "https://169.254.169.254/x"):
            with pytest.raises(SourceUnavailable, match="private, local or reserved"):
                await catalog.add_hub(wrong)
        assert (served.requests, await catalog.hubs()) == ([], ())


async def test_the_hubs_of_the_settings_are_fetched_once_and_pinned(case: Case, tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (origin, served, url):
        first = git(origin, "rev-parse", "HEAD")
        commit(origin, {"one/SKILL.md": skill_md("one", "Second.")})
        case.configured = (f"{url}@{first}",)
        async with case.opened(private=False) as catalog:
            await catalog.wait_for_fetch()
            assert await body(catalog, "one") == "First."
            request_count = len(served.requests)
            await catalog.refresh(hubs=True)  # a commit cannot have become another
            assert len(served.requests) == request_count
            with pytest.raises(Refused, match="SKILL_HUBS"):
                await catalog.remove_hub("team-skills")
        async with case.opened(private=False) as catalog:
            await catalog.wait_for_fetch()
            assert (await body(catalog, "one"), len(served.requests)) == ("First.", request_count)
        case.configured = (f"{url}@main",)
        async with case.opened(private=False) as catalog:
            await catalog.wait_for_fetch()
            assert await body(catalog, "one") == "Second."
        case.configured = ()
        async with case.opened() as catalog:
            assert (await catalog.entries(), await catalog.hubs()) == ((), ())


async def test_a_hub_of_the_settings_that_is_away_delays_nothing(case: Case, tmp_path: Path) -> None:
    case.write(case.shipped, "own")
    async with a_hub(tmp_path) as (_, served, url):
        served.refuse = "404 Not Found"
        case.configured = (url,)
        async with case.opened() as catalog:
            assert await names(catalog) == ["own"]
            assert [source.origin_id for source in catalog.unavailable_sources] == ["team-skills"]
            await catalog.wait_for_fetch()
            assert "no repository at this address" in catalog.unavailable_sources[0].reason
            served.refuse = ""
            await catalog.refresh(hubs=True)
            assert await names(catalog) == ["one", "own"]


# --- lists ----------------------------------------------------------------------------------------------


async def test_pages_and_words(case: Case) -> None:
    for number in range(7):
        case.write(
            case.folder,
            f"skill-{number}",
            description=f"Looks at {'Argo CD' if number % 2 else 'AWS costs'}.",
            top="metadata: {team: sre}\n",
        )
    write_skill(case.folder / "broken", {"SKILL.md": b""})
    async with case.opened() as catalog:
        entries = await catalog.entries()
        first, last = find_page(entries, size=5), find_page(entries, page=2, size=5)
        assert ([entry.name for entry in first.entries], first.total, first.has_more) == (
            ["broken", "skill-0", "skill-1", "skill-2", "skill-3"],
            8,
            True,
        )
        assert ([entry.name for entry in last.entries], last.total, last.has_more) == (
            ["skill-4", "skill-5", "skill-6"],
            8,
            False,
        )
        assert (find_page(entries, page=1, size=4).has_more, find_page(entries, page=2, size=4).has_more) == (
            True,
            False,
        )
        assert (len(find_page(entries, page=0).entries), find_page(entries, page=0).has_more) == (8, False)
        assert [entry.name for entry in find_page(entries, words="ARGO looks").entries] == [
            "skill-1",
            "skill-3",
            "skill-5",
        ]
        assert find_page(entries, words="sre costs").total == 4
        assert find_page(entries, words="broken").total == 1
        assert find_page(entries, words="argo aws").total == 0
        assert (find_page(entries, origin="folder").total, find_page(entries, origin="hub").total) == (8, 0)
        assert find_page(entries, page=9).entries == []
