"""Where skills come from: folders with all that can be in them, a database, and git repositories over
HTTP."""

import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, Refused, SourceUnavailable
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.skills_middleware.file_rules import MAX_FILE_BYTES, MAX_FILES
from ai_platform_engineering.skills_middleware.skill_database import SqliteSkillDatabase
from ai_platform_engineering.skills_middleware.skill_resolution import load_skill
from ai_platform_engineering.skills_middleware.skill_store import Hub, SkillKey, SkillStore
from ai_platform_engineering.skills_middleware.sources.folder_source import SkillFolder
from ai_platform_engineering.skills_middleware.sources.hub_reader import HubReader, create_hub, parse_hubs
from ai_platform_engineering.skills_middleware.sources.shipped_source import shipped_source
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill
from ai_platform_engineering.skills_middleware.sources.stored_source import StoredSource
from tests.support.fakes.git_server import commit, git, git_server, repository
from tests.support.fakes.site import FakeNetwork
from tests.support.skill_files import skill_files, skill_md, write_skill

# --- folders --------------------------------------------------------------------------------------------


def read_folder(folder: Path, known_skills: dict[str, RawSkill] | None = None) -> dict[str, RawSkill]:
    return SkillFolder(folder).read_skills(known_skills or {})


def problem_text(raw: RawSkill) -> str:
    assert raw.files == {}
    return " ".join(map(str, raw.problems))


def test_the_shipped_skills_are_whole_and_clean() -> None:
    skills = shipped_source().read_skills({})
    assert sorted(skills) == [
        "argocd-sync-failure",
        "cost-check",
        "incident-triage",
        "on-call-handover",
        "post-incident-review",
    ]
    for raw in skills.values():
        checked = load_skill(raw, "shipped", "").check
        assert (checked.problems, checked.findings) == ((), ())
        assert checked.skill is not None
        assert (checked.skill.name, checked.skill.origin) == (raw.folder, "shipped")


def test_folders_and_the_flat_form(tmp_path: Path) -> None:
    write_skill(tmp_path / "deep", skill_files("deep", references__guide="Guide."))
    (tmp_path / "flat--SKILL.md").write_text(skill_md("flat"))
    write_skill(tmp_path, {"README.md": b"", ".git/config": b"", ".hidden--SKILL.md": b""})
    write_skill(tmp_path / "deep", {".DS_Store": b"", "scripts/__pycache__/x.pyc": b"", "scripts/.x": b""})
    skills = read_folder(tmp_path)
    assert {location: (raw.folder, sorted(raw.files), raw.problems) for location, raw in skills.items()} == {
        "deep": ("deep", ["SKILL.md", "references/guide.md"], ()),
        "flat--SKILL.md": ("flat", ["SKILL.md"], ()),
    }
    assert all(load_skill(raw, "folder", "").check.skill for raw in skills.values())


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_skill(tmp_path / name, skill_files(name, references__guide="Guide."))
    first = read_folder(tmp_path)
    second = read_folder(tmp_path, first)
    assert all(second[name] is first[name] for name in ("one", "two"))
    (tmp_path / "two" / "references" / "guide.md").write_text("Other")
    third = read_folder(tmp_path, second)
    assert third["one"] is first["one"]
    assert third["two"].files["references/guide.md"] == b"Other"
    same_size = (tmp_path / "one" / "SKILL.md").read_bytes().replace(b"Look.", b"Stop.")
    before = (tmp_path / "one" / "SKILL.md").stat()
    (tmp_path / "one" / "SKILL.md").write_bytes(same_size)
    os.utime(
        tmp_path / "one" / "SKILL.md", ns=(before.st_atime_ns, before.st_mtime_ns)
    )  # as copying with times does
    (tmp_path / "two" / "assets").mkdir()
    (tmp_path / "two" / "assets" / "new").write_text("x")
    fourth = read_folder(tmp_path, third)
    assert b"Stop." in fourth["one"].files["SKILL.md"]
    assert "assets/new" in fourth["two"].files
    (tmp_path / "two" / "SKILL.md").unlink()
    assert "SKILL.md" not in read_folder(tmp_path, fourth)["two"].files


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    root, outside = tmp_path / "skills", write_skill(tmp_path / "outside", skill_files("outside"))
    write_skill(root / "linked", skill_files("linked"))
    (root / "linked" / "references").mkdir()
    (root / "linked" / "references" / "passwd").symlink_to("/etc/passwd")
    (root / "outside").symlink_to(outside)
    (root / "flat--SKILL.md").symlink_to(outside / "SKILL.md")
    write_skill(root / "loop", skill_files("loop"))
    (root / "loop" / "assets").symlink_to(root / "loop")
    (root / "self").mkdir()
    (root / "self" / "SKILL.md").symlink_to(root / "self" / "SKILL.md")
    skills = read_folder(root)
    assert "references/passwd: The file is a link to a place outside" in problem_text(skills["linked"])
    assert "link to a folder" in problem_text(skills["outside"])
    assert "link to a place outside" in problem_text(skills["flat--SKILL.md"])
    assert "assets: This is not a file" in problem_text(skills["loop"])
    assert "cannot be read" in problem_text(skills["self"])


def test_a_config_map_of_kubernetes_is_read(tmp_path: Path) -> None:
    """It is mounted as links into a hidden folder, which is replaced as a whole."""
    for number, body in enumerate(("First.", "Second.")):
        write_skill(tmp_path / f"..{number}", {"triage--SKILL.md": skill_md("triage", body).encode()})
    (tmp_path / "..data").symlink_to("..0")
    (tmp_path / "triage--SKILL.md").symlink_to("..data/triage--SKILL.md")
    first = read_folder(tmp_path)
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to("..1")
    second = read_folder(tmp_path, first)
    assert list(first) == list(second) == ["triage--SKILL.md"]
    assert b"First." in first["triage--SKILL.md"].files["SKILL.md"]
    assert b"Second." in second["triage--SKILL.md"].files["SKILL.md"]


def test_what_is_too_much_or_no_file_is_a_problem_of_its_skill(tmp_path: Path) -> None:
    write_skill(tmp_path / "good", skill_files("good"))
    write_skill(tmp_path / "big", {**skill_files("big"), "assets/x": b"x" * (MAX_FILE_BYTES + 1)})
    write_skill(
        tmp_path / "many",
        {**skill_files("many"), **{f"assets/{number}/x": b"" for number in range(MAX_FILES + 50)}},
    )
    write_skill(tmp_path / "deep", {**skill_files("deep"), "assets/a/b/c/d/e/f": b""})
    write_skill(tmp_path / "pipe", skill_files("pipe"))
    os.mkfifo(tmp_path / "pipe" / "fifo")
    write_skill(tmp_path / "empty", {"x": b""})
    skills = read_folder(tmp_path)
    assert "256 KB" in problem_text(skills["big"])
    assert "may have 100" in problem_text(skills["many"])
    assert "too deep" in problem_text(skills["deep"])
    assert "not a file" in problem_text(skills["pipe"])
    assert skills["good"].problems == ()
    (problem,) = load_skill(skills["empty"], "folder", "").check.problems
    assert "Add a SKILL.md" in problem.message


def test_a_source_has_a_size(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_skill(tmp_path / name, {**skill_files(name), "assets/x": b"x" * 1000})
    source = SkillFolder(tmp_path, max_bytes=2500)
    skills = source.read_skills({})
    assert (skills["a"].problems, skills["b"].problems) == ((), ())
    assert "so this one was left out" in problem_text(skills["c"])
    assert source.read_skills(skills)["c"] is skills["c"]
    (tmp_path / "a" / "assets" / "x").write_bytes(b"")
    assert len(source.read_skills(skills)["c"].files) == 2


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for wrong in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(SourceUnavailable, match="Check SKILLS_DIR"):
            read_folder(wrong)


# --- the database ---------------------------------------------------------------------------------------


def a_held(name: str, mark: str = "1", body: str = "Look.") -> RawSkill:
    return RawSkill(name, name, mark, skill_files(name, body))


def test_what_is_stored_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "home" / "skills.db"
    store = SkillStore(SqliteSkillDatabase(path))
    assert store.add("stored", a_held("one"))
    assert not store.add("stored", a_held("one", body="Other."))
    assert not store.update("stored", a_held("one", "2"), "0")
    assert store.update("stored", a_held("one", "2", "New."), "1")
    assert not store.update("stored", a_held("two"), None)
    store.set_switch("shipped", "", "cost-check", enabled=False)
    store.put_hub(Hub("h", "https://git.test/x", commit="c"), [a_held("three")])
    assert path.stat().st_mode & 0o077 == 0
    store.close()
    again = SkillStore(SqliteSkillDatabase(path))
    skills = StoredSource(again).read_skills({})
    assert skills["one"].fingerprint == "2"
    assert b"New." in skills["one"].files["SKILL.md"]
    assert again.switches() == {("shipped", "", "cost-check"): False}
    assert again.hubs() == [Hub("h", "https://git.test/x", commit="c")]
    assert list(StoredSource(again, origin="hub", origin_id="h").read_skills({})) == ["three"]
    assert StoredSource(again).read_skills(skills)["one"] is skills["one"]
    assert again.remove(SkillKey("stored", "", "one"))
    assert not again.remove(SkillKey("stored", "", "one"))
    assert again.remove_hub("h")
    assert StoredSource(again, origin="hub", origin_id="h").read_skills({}) == {}
    again.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM files").fetchone() == (0,)
    db.close()


def test_a_database_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "skills.db").write_text("This is no database, whatever its name is. " * 50)
    with pytest.raises(SourceUnavailable, match=r"skills\.db in CAIPE_HOME\) cannot be used: "):
        SkillStore(SqliteSkillDatabase(tmp_path / "skills.db")).switches()
    (tmp_path / "file").write_text("x")
    with pytest.raises(SourceUnavailable, match=r"skills\.db in CAIPE_HOME\) cannot be used: "):
        SkillStore(SqliteSkillDatabase(tmp_path / "file" / "skills.db")).switches()


# --- hubs -----------------------------------------------------------------------------------------------


def reader(tmp_path: Path, world: FakeNetwork | None = None, *, private: bool = True) -> HubReader:
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    return HubReader(
        tmp_path / "hubs",
        variables,
        UrlChecker(allow_private=private, connector=world),
        configured_url_checker=UrlChecker(allow_private=True, connector=world),
    )


def as_texts(**skills: dict[str, bytes]) -> dict[str, str | bytes]:
    return {
        f"{folder.replace('__', '/')}/{path}": content
        for folder, files in skills.items()
        for path, content in files.items()
    }


async def test_the_skills_of_a_repository_over_http(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        **as_texts(
            skills__one=skill_files("one", references__guide="Guide.", references__SKILL="Not a skill.")
        ),
        **as_texts(**{".claude__skills__two": skill_files("two")}),
        "README.md": "x" * 100_000,
        "skills/one/.hidden": "x",
        "src/main.py": "print()",
    }
    origin = repository(tmp_path / "origin", files)
    async with git_server(origin) as served:
        world = FakeNetwork({"code.test": ("127.0.0.1",)})
        hub = create_hub(f"http://code.test:{served.port}/team/skills.git")
        fetched, skills = await reader(tmp_path, world).fetch(hub)
        assert fetched == replace(hub, commit=git(origin, "rev-parse", "HEAD"))
        assert {raw.location: (raw.folder, sorted(raw.files)) for raw in skills} == {
            ".claude/skills/two": ("two", ["SKILL.md"]),
            "skills/one": ("one", ["SKILL.md", "references/SKILL.md", "references/guide.md"]),
        }
        assert list((tmp_path / "hubs").iterdir()) == []
        assert world.lookups == ["code.test"]
        request_count = len(served.requests)
        with pytest.raises(SourceUnavailable, match="private, local or reserved"):
            await reader(tmp_path, world, private=False).fetch(hub)
        assert len(served.requests) == request_count
        own, _ = await reader(tmp_path, world, private=False).fetch(replace(hub, configured=True))
        assert own.commit == fetched.commit


async def test_a_commit_is_a_pin(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", as_texts(one=skill_files("one", "First.")))
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    async with git_server(origin) as served:
        url = f"http://127.0.0.1:{served.port}/team/skills"
        first, _ = await reader(tmp_path).fetch(create_hub(url))
        commit(origin, as_texts(one=skill_files("one", "Second.")))
        for hub, pinned in ((first, True), (create_hub(url, first.commit), False)):
            again, (raw,) = await reader(tmp_path).fetch(hub, pinned=pinned)
            assert again.commit == first.commit
            assert b"First." in raw.files["SKILL.md"]
        newest, (raw,) = await reader(tmp_path).fetch(first)
        assert newest.commit != first.commit
        assert b"Second." in raw.files["SKILL.md"]
        git(origin, "config", "uploadpack.allowAnySHA1InWant", "false")
        with pytest.raises(SourceUnavailable, match="no such branch, tag or commit"):
            await reader(tmp_path).fetch(first, pinned=True)
        with pytest.raises(SourceUnavailable, match="no such branch, tag or commit"):
            await reader(tmp_path).fetch(create_hub(url, "missing"))


async def test_branches_folders_and_a_repository_that_is_one_skill(tmp_path: Path) -> None:
    origin = repository(
        tmp_path / "my-skill", {"SKILL.md": skill_md("my-skill"), "team/a/SKILL.md": skill_md("a")}
    )
    git(origin, "checkout", "--quiet", "-b", "next")
    commit(origin, {"SKILL.md": None, "team/b/SKILL.md": skill_md("b")})
    hubs = reader(tmp_path)
    place = str(origin)
    _, all_skills = await hubs.fetch(create_hub(place, "main", configured=True))
    assert [(raw.location, raw.folder, sorted(raw.files)) for raw in all_skills] == [
        (".", "my-skill", ["SKILL.md", "team/a/SKILL.md"])
    ]
    _, below = await hubs.fetch(create_hub(place, "next", "team", configured=True))
    assert [(raw.location, raw.folder) for raw in below] == [("team/a", "a"), ("team/b", "b")]
    _, single = await hubs.fetch(create_hub(place, "next", "team/b", configured=True))
    assert [(raw.location, raw.folder) for raw in single] == [("team/b", "b")]
    with pytest.raises(SourceUnavailable, match=r"no SKILL\.md below nowhere"):
        await hubs.fetch(create_hub(place, "next", "nowhere", configured=True))


async def test_links_submodules_and_large_files_are_problems_of_their_skill(tmp_path: Path) -> None:
    origin = repository(
        tmp_path / "origin",
        as_texts(
            good=skill_files("good"),
            linked=skill_files("linked"),
            big=skill_files("big"),
            sub=skill_files("sub"),
        ),
    )
    (origin / "linked" / "assets").symlink_to("/etc")
    git(
        origin,
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{git(origin, 'rev-parse', 'HEAD')},sub/module",
    )
    commit(origin, {"big/assets/x": b"x" * (MAX_FILE_BYTES + 1)})
    git(
        origin,
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{git(origin, 'rev-parse', 'HEAD')},sub/module",
    )
    git(origin, "commit", "--quiet", "--message", "A module.")
    _, skills = await reader(tmp_path).fetch(create_hub(str(origin), configured=True))
    by_location = {raw.location: raw for raw in skills}
    assert by_location["good"].problems == ()
    assert "assets: This is a link" in problem_text(by_location["linked"])
    assert "module: This is a submodule" in problem_text(by_location["sub"])
    assert "256 KB" in problem_text(by_location["big"])


@pytest.mark.parametrize(
    "url",
    [
        "/srv/git/x",
        "file:///srv/git/x",
        "ext::sh -c 'touch sprung'",
        "--upload-pack=touch sprung",
        "git://h.test/x",
        "skills",
        "",
        "https://user:secret@h.test/x",
        "ssh://-oProxyCommand=x/y",
        "ftp://h.test/x",
    ],
)
def test_addresses_that_are_no_hub(url: str) -> None:
    with pytest.raises(CaipeError) as caught:
        create_hub(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("ref", "path"),
    [("-x", ""), ("a b", ""), ("a:b", ""), ("", "../x"), ("", "-x"), ("", ":(top)x"), ("", "a\nb")],
)
def test_refs_and_folders_that_are_none(ref: str, path: str) -> None:
    with pytest.raises(Refused):
        create_hub("https://git.test/team/skills", ref, path)


def test_the_hubs_of_the_settings() -> None:
    texts = (
        "https://github.com/team/skills@v1.2",
        "git@git.test:team/skills.git@main",
        "ssh://git@git.test/team/other.git",
        "https://git.test/a/b#skills/x",
        "/srv/git/own@abc/def#x",
    )
    assert [(hub.id, hub.url, hub.ref, hub.path, hub.configured) for hub in parse_hubs(texts)] == [
        ("team-skills", "https://github.com/team/skills", "v1.2", "", True),
        ("team-skills-2", "git@git.test:team/skills.git", "main", "", True),
        ("team-other", "ssh://git@git.test/team/other.git", "", "", True),
        ("a-b", "https://git.test/a/b", "", "skills/x", True),
        ("git-own", "/srv/git/own", "abc/def", "x", True),
    ]
    for wrong in ("nonsense", "https://user:secret@git.test/x", "https://git.test/x@a@b"):
        with pytest.raises(ConfigurationError, match="SKILL_HUBS: entry 2") as caught:
            parse_hubs(["https://git.test/x", wrong])
        assert "secret" not in str(caught.value)


async def test_what_a_killed_fetch_left_is_removed(tmp_path: Path) -> None:
    for name, age in (("old-x.git", 7200), ("new-x.git", 60)):
        (tmp_path / "hubs" / name / "objects").mkdir(parents=True)
        then = (tmp_path / "hubs" / name).stat().st_mtime - age
        os.utime(tmp_path / "hubs" / name, (then, then))
    reader(tmp_path).remove_leftovers()
    assert [path.name for path in (tmp_path / "hubs").iterdir()] == ["new-x.git"]
