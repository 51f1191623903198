"""Hubs: skills from git repositories. A commit is fetched into a folder of its own, its skills are taken out, the rest is thrown away."""

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
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.net.git import GitBlobReader, GitRepository, GitTreeEntry
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
_LEFT_OVER = 3600.0  # seconds; no fetch takes that long
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"\w[\w./+-]{0,199}")
_CONFIGURED = re.compile(
    r"(?P<url>(?:[\w+]+://[^/\s]+/|[\w.-]+@[\w.-]+:|/)[^\s@#]*)(?:@(?P<ref>[^\s@#]+))?(?:#(?P<path>\S+))?"
)


class HubReader:
    """Fetches hubs. Those of SKILL_HUBS are the operator's word and may be on this machine or in a private network; for the others
    `gate` decides."""

    def __init__(
        self,
        folder: Path,
        variables: Mapping[str, str],
        gate: UrlChecker,
        *,
        own: UrlChecker | None = None,
        seconds: float = 120.0,
    ) -> None:
        self._folder = folder
        self._variables = variables
        self._seconds = seconds
        self._gate, self._own = gate, own or UrlChecker(allow_private=True)

    async def fetch(self, hub: Hub, *, pinned: bool = False) -> tuple[Hub, list[RawSkill]]:
        """The hub at the newest commit of its ref, or again at its own, and the skills there. Raises CaipeError."""
        remote = resolve_remote(hub)
        settings = await check_remote(remote, (self._own if hub.configured else self._gate).check)
        wanted = hub.commit if pinned and hub.commit else hub.ref or remote.ref
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        clone = Path(
            await asyncio.to_thread(tempfile.mkdtemp, prefix=f"{hub.id}-", suffix=".git", dir=self._folder)
        )
        try:
            git = GitRepository(clone, self._variables, seconds=self._seconds)
            commit = await git.fetch(remote.url, wanted, protocol=remote.protocol, settings=settings)
            if _COMMIT.fullmatch(wanted) and commit != wanted:
                raise SourceUnavailable("The repository gave another commit than the one that was asked for.")
            below = (hub.path or remote.folder).strip("/")
            return replace(hub, commit=commit), await _taken(git, commit, below, _name_of(remote, below))
        finally:
            await asyncio.to_thread(shutil.rmtree, clone, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Removes what a process that was killed left behind."""
        for clone in self._folder.glob("*.git"):
            with contextlib.suppress(OSError):
                if time.time() - clone.stat().st_mtime > _LEFT_OVER:
                    shutil.rmtree(clone, ignore_errors=True)


def resolve_remote(hub: Hub) -> GitRemote:
    """Where a hub is. Raises CaipeError."""
    url = hub.url.strip()
    if hub.configured and url.startswith("/"):
        return GitRemote(url, "file")
    # It is said to be a repository, so any web address is taken for one.
    remote = parse_remote(f"git+{url}" if url.lower().startswith(("http:", "https:")) else url)
    if remote is None or (remote.protocol == "file" and not hub.configured):
        raise Refused(
            "This is not the address of a git repository. Write one like https://github.com/team/skills."
        )
    if hub.ref and not _REF.fullmatch(hub.ref):
        raise Refused("The ref must be the name of a branch or tag, or a commit of 40 digits.")
    if hub.path and (
        hub.path.startswith(("/", "-", ":")) or ".." in hub.path.split("/") or not hub.path.isprintable()
    ):
        raise Refused("The path must be a folder of the repository, for example skills/team.")
    return remote


def create_hub(
    url: str, ref: str = "", path: str = "", *, taken: Iterable[str] = (), configured: bool = False
) -> Hub:
    """A hub with an id made of its address. Raises CaipeError."""
    hub = Hub("", url.strip(), ref.strip(), path.strip().strip("/"), configured=configured)
    remote = resolve_remote(hub)
    parts = [
        part
        for part in re.split(
            r"[^a-z0-9]+", "/".join(PurePosixPath(remote.url.removesuffix(".git")).parts[-2:]).lower()
        )
        if part
    ]
    stem = "-".join(parts)[:48] or "hub"
    known = set(taken)
    name = next(
        one for one in (stem, *(f"{stem}-{number}" for number in range(2, 10_000))) if one not in known
    )
    return replace(hub, id=name)


def parse_hubs(texts: Iterable[str]) -> list[Hub]:
    """The hubs of SKILL_HUBS: `url@ref#folder`, the last two as wished. Raises ConfigurationError."""
    hubs: list[Hub] = []
    for text in texts:
        match = _CONFIGURED.fullmatch(text)
        try:
            if match is None:
                raise Refused("This is not the address of a git repository.")
            hubs.append(
                create_hub(
                    match["url"],
                    match["ref"] or "",
                    match["path"] or "",
                    taken=[hub.id for hub in hubs],
                    configured=True,
                )
            )
        except CaipeError as error:
            # Without the text itself: people put credentials into addresses.
            raise ConfigurationError(
                f"SKILL_HUBS: entry {len(hubs) + 1} cannot be used. {error} Write url@ref or url@ref#folder."
            ) from None
    return hubs


def _name_of(remote: GitRemote, below: str) -> str:
    return PurePosixPath(below or remote.url.removesuffix(".git")).name


async def _taken(git: GitRepository, commit: str, below: str, name: str) -> list[RawSkill]:
    entries = await git.entries(commit, below)
    folders = _outermost(
        str(PurePosixPath(entry.path).parent)
        for entry in entries
        if PurePosixPath(entry.path).name == SKILL_MD
    )
    if not folders:
        raise SourceUnavailable(
            f"The repository has no {SKILL_MD}{f' below {to_printable(below)}' if below else ''}."
        )
    if len(folders) > MAX_SKILLS:
        raise SourceUnavailable(
            f"The repository has {len(folders)} skills and may have {MAX_SKILLS}. Name a folder of it."
        )
    grouped = _grouped(entries, folders)
    if sum(entry.size for files in grouped.values() for entry in files.values()) > MAX_SOURCE_BYTES:
        raise SourceUnavailable(
            f"The skills of the repository are larger than {MAX_SOURCE_BYTES // 1024 // 1024} MB. Name a folder of it."
        )
    async with git.reader() as blobs:
        return [
            await _held(place, name if place in (".", below) else PurePosixPath(place).name, files, blobs)
            for place, files in grouped.items()
        ]


def _outermost(folders: Iterable[str]) -> list[str]:
    found: list[str] = []
    for folder in sorted(set(folders), key=lambda one: (one.count("/"), one)):
        if not any(outer == "." or folder.startswith(f"{outer}/") for outer in found):
            found.append(folder)
    return sorted(found)


def _grouped(entries: list[GitTreeEntry], folders: list[str]) -> dict[str, dict[str, GitTreeEntry]]:
    """The files of each skill, by their path below its folder."""
    grouped: dict[str, dict[str, GitTreeEntry]] = {folder: {} for folder in folders}
    for entry in entries:
        folder = next((one for one in _around(entry.path) if one in grouped), None)
        path = entry.path if folder == "." else entry.path.removeprefix(f"{folder}/")
        if folder is not None and not is_hidden(path):
            grouped[folder][path] = entry
    return grouped


def _around(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents]


async def _held(
    place: str, folder: str, entries: Mapping[str, GitTreeEntry], blobs: GitBlobReader
) -> RawSkill:
    problems = [
        SkillProblem(
            to_printable(path),
            "",
            f"This is a {entry.kind}, which is not followed. Put the file itself here.",
        )
        for path, entry in entries.items()
        if entry.kind != "blob"
    ]
    problems += find_size_problems({path: entry.size for path, entry in entries.items()})
    if problems:
        mark = compute_version({path: entry.object_id.encode() for path, entry in entries.items()})
        return RawSkill(place, folder, mark, problems=tuple(problems))
    files = {path: await blobs.read(entry.object_id) for path, entry in entries.items()}
    return RawSkill(place, folder, compute_version(files), files)
