"""Repositories that are too large: they are fetched up to a limit, and nothing of them is kept."""

import asyncio
import os
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.net.git import GitRepository
from ai_platform_engineering.net.git_process import GitLimits, GitTooLarge, measure_folder
from ai_platform_engineering.skills_middleware.catalog_factory import build_skill_catalog
from ai_platform_engineering.skills_middleware.sources.hub_reader import HubReader, create_hub
from tests.support.fakes.git_server import commit, git, git_server, repository

MEGABYTE = 1024 * 1024
VARIABLES = {"PATH": os.environ["PATH"]}


def list_git_processes(folder: Path) -> list[str]:
    """The commands of living git processes that work in the folder."""
    commands: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = path.with_name("stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if "git" in command and str(folder) in command and state != "Z":
            commands.append(command)
    return commands


async def fetch(folder: Path, url: str, limits: GitLimits) -> str:
    protocol = "http" if url.startswith("http:") else "file"
    return await GitRepository(folder, VARIABLES, limits=limits).fetch(
        url, "HEAD", protocol=protocol, settings={}
    )


async def test_a_transfer_ends_at_the_limit_and_nothing_is_left(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"large.bin": os.urandom(4 * MEGABYTE)})
    clone = tmp_path / "clone"
    async with git_server(origin) as served:
        url = f"http://127.0.0.1:{served.port}/repo.git"
        with pytest.raises(GitTooLarge, match=r"larger than 1 MB.*GIT_MAX_BYTES"):
            await fetch(clone, url, GitLimits(max_bytes=MEGABYTE))
        assert not clone.exists()
        assert list_git_processes(clone) == []
        assert await fetch(clone, url, GitLimits(max_bytes=8 * MEGABYTE))
    assert measure_folder(clone) > 4 * MEGABYTE


async def test_many_small_files_count_together(tmp_path: Path) -> None:
    """Each file is below the limit, and so would be each loose object."""
    origin = repository(tmp_path / "origin", {f"{n}.bin": os.urandom(100_000) for n in range(30)})
    with pytest.raises(GitTooLarge):
        await fetch(tmp_path / "clone", str(origin), GitLimits(max_bytes=MEGABYTE))
    assert not (tmp_path / "clone").exists()


async def test_old_commits_do_not_use_up_the_limit(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"a.bin": os.urandom(MEGABYTE)})
    clone = tmp_path / "clone"
    limits = GitLimits(max_bytes=5 * MEGABYTE // 2)
    for _ in range(4):
        newest = commit(origin, {"a.bin": os.urandom(MEGABYTE)})
        assert await fetch(clone, str(origin), limits) == newest
        assert measure_folder(clone) <= limits.max_bytes


def make_tree_bomb(origin: Path) -> None:
    """Ten folders in each of nine levels: a hundred objects that unfold to ten billion files."""
    tree = git(origin, "rev-parse", "HEAD^{tree}")
    for _ in range(9):
        lines = "".join(f"040000 tree {tree}\td{number}\n" for number in range(10))
        tree = git(origin, "mktree", text=lines)
    git(origin, "update-ref", "refs/heads/main", git(origin, "commit-tree", "-m", "A bomb.", tree))


async def test_a_tree_that_unfolds_to_billions_of_files_is_refused(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {f"f{number}": "x" for number in range(10)})
    make_tree_bomb(origin)
    clone = tmp_path / "clone"
    source = GitRepository(clone, VARIABLES, limits=GitLimits(max_files=5000))
    newest = await source.fetch(str(origin), "HEAD", protocol="file", settings={})
    with pytest.raises(GitTooLarge, match=r"more than 5000 files.*GIT_MAX_FILES"):
        await source.entries(newest, "")
    assert list_git_processes(clone) == []


async def test_a_reader_ends_though_nobody_fetches_what_git_has_written(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"large.bin": os.urandom(4 * MEGABYTE)})
    clone = tmp_path / "clone"
    source = GitRepository(clone, VARIABLES, limits=GitLimits())
    newest = await source.fetch(str(origin), "HEAD", protocol="file", settings={})
    (entry,) = await source.entries(newest, "")
    async with asyncio.timeout(120):
        async with source.reader() as reader:
            reading = asyncio.create_task(reader.read(entry.object_id))
            await asyncio.sleep(0.01)
            reading.cancel()
            await asyncio.sleep(0.2)  # asyncio's buffer becomes full
    assert list_git_processes(clone) == []


async def test_a_hub_is_bounded_by_the_settings(tmp_path: Path) -> None:
    skill = "---\nname: x\ndescription: y\n---\n"
    origin = repository(tmp_path / "origin", {"SKILL.md": skill, "large.bin": os.urandom(3 * MEGABYTE)})
    variables = {**VARIABLES, "HOME": str(tmp_path)}
    settings = Settings.from_variables(
        {"GIT_MAX_BYTES": str(MEGABYTE), "CAIPE_HOME": str(tmp_path / "home"), "SKILL_HUBS": str(origin)}
    )
    catalog = build_skill_catalog(settings, variables)
    await catalog.open()
    try:
        await catalog.wait_for_fetch()
        reasons = [source.reason for source in catalog.unavailable_sources]
    finally:
        await catalog.close()
    assert len(reasons) == 1
    assert "larger than 1 MB" in reasons[0]


async def test_a_clone_of_a_hub_that_is_too_large_is_removed(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"large.bin": os.urandom(3 * MEGABYTE)})
    checker = UrlChecker(allow_private=True)
    reader = HubReader(tmp_path / "hubs", VARIABLES, checker, limits=GitLimits(max_bytes=MEGABYTE))
    with pytest.raises(SourceUnavailable, match="larger than 1 MB"):
        await reader.fetch(create_hub(str(origin), configured=True))
    assert list((tmp_path / "hubs").iterdir()) == []
