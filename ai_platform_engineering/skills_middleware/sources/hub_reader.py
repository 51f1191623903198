"""Hubs: skills from git repositories. A commit is fetched into a temporary clone, from which the skills
are read."""

import asyncio
import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, Refused, SourceUnavailable
from ai_platform_engineering.core.private_files import create_private_folder
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.net.git import GitBlobReader, GitRepository, GitTreeEntry
from ai_platform_engineering.net.git_process import GitLimits
from ai_platform_engineering.net.git_remotes import GitRemote, check_remote, parse_remote
from ai_platform_engineering.skills_middleware.file_rules import (
    SKILL_MD,
    SkillProblem,
    find_size_problems,
    is_hidden,
    to_printable,
)
from ai_platform_engineering.skills_middleware.skill_md import compute_version
from ai_platform_engineering.skills_middleware.skill_store import Hub
from ai_platform_engineering.skills_middleware.sources.skill_source import MAX_SOURCE_BYTES, RawSkill

MAX_SKILLS = 1000  # of one hub
_MAX_CLONE_SECONDS = 3600.0  # no fetch takes that long
_MAX_ID_LENGTH = 48
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"\w[\w./+-]{0,199}")
_CONFIGURED = re.compile(
    r"(?P<url>(?:[\w+]+://[^/\s]+/|[\w.-]+@[\w.-]+:|/)[^\s@#]*)(?:@(?P<ref>[^\s@#]+))?(?:#(?P<path>\S+))?"
)


class HubReader:
    """Fetches hubs. Those of SKILL_HUBS are the operator's choice and may be on this machine or in a
    private network; for the others `url_checker` decides."""

    def __init__(
        self,
        folder: Path,
        variables: Mapping[str, str],
        url_checker: UrlChecker,
        *,
        configured_url_checker: UrlChecker | None = None,
        limits: GitLimits | None = None,
        seconds: float = 120.0,
    ) -> None:
        self._folder = folder
        self._variables = variables
        self._limits = replace(limits or GitLimits(), seconds=seconds)
        self._url_checker = url_checker
        self._configured_url_checker = configured_url_checker or UrlChecker(allow_private=True)

    async def fetch(self, hub: Hub, *, pinned: bool = False) -> tuple[Hub, list[RawSkill]]:
        """The hub at the newest commit of its ref, or `pinned` to its own commit, and its skills. Raises
        CaipeError."""
        remote = resolve_remote(hub)
        url_checker = self._configured_url_checker if hub.configured else self._url_checker
        settings = await check_remote(remote, url_checker.check)
        ref = hub.ref or remote.ref
        if pinned and hub.commit:
            ref = hub.commit
        clone = await asyncio.to_thread(self._create_clone_folder, hub.id)
        try:
            git = GitRepository(clone, self._variables, limits=self._limits)
            commit = await git.fetch(remote.url, ref, protocol=remote.protocol, settings=settings)
            if _COMMIT.fullmatch(ref) and commit != ref:
                raise SourceUnavailable("The repository gave another commit than the one that was asked for.")
            base_folder = (hub.path or remote.folder).strip("/")
            skills = await _read_skills(git, commit, base_folder, _base_name(remote, base_folder))
            return replace(hub, commit=commit), skills
        finally:
            await asyncio.to_thread(shutil.rmtree, clone, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Removes the clones of a process that was killed."""
        for clone in self._folder.glob("*.git"):
            with contextlib.suppress(OSError):
                if time.time() - clone.stat().st_mtime > _MAX_CLONE_SECONDS:
                    shutil.rmtree(clone, ignore_errors=True)

    def _create_clone_folder(self, hub_id: str) -> Path:
        create_private_folder(self._folder)
        return Path(tempfile.mkdtemp(prefix=f"{hub_id}-", suffix=".git", dir=self._folder))


def resolve_remote(hub: Hub) -> GitRemote:
    """The git remote of a hub. Raises CaipeError."""
    url = hub.url.strip()
    if hub.configured and url.startswith("/"):
        return GitRemote(url, "file")
    if url.lower().startswith(
        ("http:", "https:")
    ):  # a hub is a repository, so any web address is taken for one
        url = f"git+{url}"
    remote = parse_remote(url)
    if remote is None or (remote.protocol == "file" and not hub.configured):
        raise Refused(
            "This is not the address of a git repository. Write one like https://github.com/team/skills."
        )
    if hub.ref and not _REF.fullmatch(hub.ref):
        raise Refused("The ref must be the name of a branch or tag, or a commit of 40 digits.")
    if hub.path and not _is_repository_path(hub.path):
        raise Refused("The path must be a folder of the repository, for example skills/team.")
    return remote


def create_hub(
    url: str, ref: str = "", path: str = "", *, used_ids: Iterable[str] = (), configured: bool = False
) -> Hub:
    """A hub with an id made of its address. Raises CaipeError."""
    hub = Hub("", url.strip(), ref.strip(), path.strip().strip("/"), configured=configured)
    remote = resolve_remote(hub)
    owner_and_name = PurePosixPath(remote.url.removesuffix(".git")).parts[-2:]
    words = re.split(r"[^a-z0-9]+", "/".join(owner_and_name).lower())
    stem = "-".join(filter(None, words))[:_MAX_ID_LENGTH] or "hub"
    return replace(hub, id=_unused_id(stem, set(used_ids)))


def parse_hubs(texts: Iterable[str]) -> list[Hub]:
    """The hubs of SKILL_HUBS: `url@ref#folder`, ref and folder are optional. Raises ConfigurationError."""
    hubs: list[Hub] = []
    for text in texts:
        try:
            hubs.append(_parse_hub(text, used_ids=[hub.id for hub in hubs]))
        except CaipeError as error:
            # Without the text itself: people put credentials into addresses.
            raise ConfigurationError(
                f"SKILL_HUBS: entry {len(hubs) + 1} cannot be used. {error} Write url@ref or url@ref#folder."
            ) from None
    return hubs


def _parse_hub(text: str, used_ids: Iterable[str]) -> Hub:
    match = _CONFIGURED.fullmatch(text)
    if match is None:
        raise Refused("This is not the address of a git repository.")
    ref = match["ref"] or ""
    path = match["path"] or ""
    return create_hub(match["url"], ref, path, used_ids=used_ids, configured=True)


def _is_repository_path(path: str) -> bool:
    if path.startswith(("/", "-", ":")) or ".." in path.split("/"):
        return False
    return path.isprintable()


def _unused_id(stem: str, used_ids: set[str]) -> str:
    hub_id = stem
    number = 2
    while hub_id in used_ids:
        hub_id = f"{stem}-{number}"
        number += 1
    return hub_id


def _base_name(remote: GitRemote, base_folder: str) -> str:
    """The name of a skill that is the whole repository or base folder."""
    return PurePosixPath(base_folder or remote.url.removesuffix(".git")).name


async def _read_skills(git: GitRepository, commit: str, base_folder: str, base_name: str) -> list[RawSkill]:
    entries = await git.entries(commit, base_folder)
    folders = _find_skill_folders(entries)
    if not folders:
        where = f" below {to_printable(base_folder)}" if base_folder else ""
        raise SourceUnavailable(f"The repository has no {SKILL_MD}{where}.")
    if len(folders) > MAX_SKILLS:
        raise SourceUnavailable(
            f"The repository has {len(folders)} skills and may have {MAX_SKILLS}. Name a folder of it."
        )
    entries_by_folder = _group_by_folder(entries, folders)
    _check_total_size(entries_by_folder)
    skills: list[RawSkill] = []
    async with git.reader() as blobs:
        for folder, skill_entries in entries_by_folder.items():
            name = PurePosixPath(folder).name
            if folder in (".", base_folder):
                name = base_name
            skills.append(await _read_skill(folder, name, skill_entries, blobs))
    return skills


def _find_skill_folders(entries: Iterable[GitTreeEntry]) -> list[str]:
    """The outermost folders with a SKILL.md: what is below one belongs to its skill."""
    candidates: set[str] = set()
    for entry in entries:
        path = PurePosixPath(entry.path)
        if path.name == SKILL_MD:
            candidates.add(str(path.parent))
    outermost: list[str] = []
    for folder in sorted(candidates, key=lambda candidate: (candidate.count("/"), candidate)):
        if not any(outer == "." or folder.startswith(f"{outer}/") for outer in outermost):
            outermost.append(folder)
    return sorted(outermost)


def _group_by_folder(
    entries: Iterable[GitTreeEntry], folders: Iterable[str]
) -> dict[str, dict[str, GitTreeEntry]]:
    """The files of each skill, by their path below its folder."""
    by_folder: dict[str, dict[str, GitTreeEntry]] = {folder: {} for folder in folders}
    for entry in entries:
        parents = map(str, PurePosixPath(entry.path).parents)
        folder = next((parent for parent in parents if parent in by_folder), None)
        if folder is None:
            continue
        path = entry.path
        if folder != ".":
            path = path.removeprefix(f"{folder}/")
        if not is_hidden(path):
            by_folder[folder][path] = entry
    return by_folder


def _check_total_size(entries_by_folder: Mapping[str, Mapping[str, GitTreeEntry]]) -> None:
    size = 0
    for entries in entries_by_folder.values():
        size += sum(entry.size for entry in entries.values())
    if size > MAX_SOURCE_BYTES:
        limit = MAX_SOURCE_BYTES // 1024 // 1024
        raise SourceUnavailable(
            f"The skills of the repository are larger than {limit} MB. Name a folder of it."
        )


async def _read_skill(
    location: str, name: str, entries: Mapping[str, GitTreeEntry], blobs: GitBlobReader
) -> RawSkill:
    problems: list[SkillProblem] = []
    for path, entry in entries.items():
        if entry.kind != "blob":
            message = f"This is a {entry.kind}, which is not followed. Put the file itself here."
            problems.append(SkillProblem(to_printable(path), "", message))
    problems += find_size_problems({path: entry.size for path, entry in entries.items()})
    if problems:
        fingerprint = compute_version({path: entry.object_id.encode() for path, entry in entries.items()})
        return RawSkill(location, name, fingerprint, problems=tuple(problems))
    files: dict[str, bytes] = {}
    for path, entry in entries.items():
        files[path] = await blobs.read(entry.object_id)
    return RawSkill(location, name, compute_version(files), files)
