"""Commits, trees and branches of a repository: the part of git that the API shows."""

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ai_platform_engineering.demo.github.state import Commit, GitHubRepository


@dataclass(frozen=True, slots=True)
class FileChange:
    """What happened to one file between two trees."""

    path: str
    status: Literal["added", "modified", "removed"]
    blob: str
    additions: int = 0
    deletions: int = 0
    patch: str | None = None


def blob_sha(data: bytes) -> str:
    """The name git gives to these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def store_blob(repository: GitHubRepository, data: bytes) -> str:
    sha = blob_sha(data)
    repository.blobs[sha] = data
    return sha


def commit_files(
    repository: GitHubRepository,
    branch: str,
    message: str,
    author: str,
    date: datetime,
    files: Mapping[str, bytes],
    parents: list[str] | None = None,
) -> Commit:
    """A commit on a branch that adds or replaces files; other parents than the branch's last commit can be given."""
    last = repository.branches.get(branch)
    tree = dict(repository.commits[last].tree) if last else {}
    tree |= {path: store_blob(repository, data) for path, data in files.items()}
    return record_commit(
        repository,
        branch,
        message,
        author,
        date,
        tree,
        parents if parents is not None else [last] if last else [],
    )


def record_commit(
    repository: GitHubRepository,
    branch: str,
    message: str,
    author: str,
    date: datetime,
    tree: dict[str, str],
    parents: list[str],
) -> Commit:
    told = repr((sorted(tree.items()), parents, message, author, date.isoformat(), len(repository.commits)))
    sha = hashlib.sha1(told.encode(), usedforsecurity=False).hexdigest()
    made = Commit(sha=sha, message=message, author=author, date=date, parents=parents, tree=tree)
    repository.commits[sha] = made
    repository.branches[branch] = sha
    repository.pushed_at = date
    return made


def resolve_ref(repository: GitHubRepository, ref: str) -> Commit | None:
    """The commit that a branch, a tag or (the beginning of) a sha names; empty: the default branch."""
    name = ref.removeprefix("refs/heads/").removeprefix("heads/") or repository.default_branch
    if name in repository.branches:
        return repository.commits[repository.branches[name]]
    if tagged := [release.sha for release in repository.releases if release.tag == name]:
        return repository.commits[tagged[0]]
    found = [one for sha, one in repository.commits.items() if len(name) >= 7 and sha.startswith(name)]
    if len(found) == 1:
        return found[0]
    return None


def iterate_ancestors(repository: GitHubRepository, sha: str) -> Iterator[Commit]:
    """A commit and all before it, the newest first."""
    waiting, seen = [sha], set()
    while waiting:
        waiting.sort(key=lambda one: repository.commits[one].date)
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        yield repository.commits[current]
        waiting += repository.commits[current].parents


def find_merge_base(repository: GitHubRepository, one: str, other: str) -> Commit | None:
    known = {found.sha for found in iterate_ancestors(repository, one)}
    return next((found for found in iterate_ancestors(repository, other) if found.sha in known), None)


def diff_trees(
    repository: GitHubRepository, before: Mapping[str, str], after: Mapping[str, str]
) -> list[FileChange]:
    """The files that differ between two trees."""
    return [
        _change(repository, path, before.get(path), after.get(path))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]


def _change(repository: GitHubRepository, path: str, old: str | None, new: str | None) -> FileChange:
    status: Literal["added", "modified", "removed"] = (
        "added" if old is None else "removed" if new is None else "modified"
    )
    try:
        before, after = (repository.blobs[sha].decode().splitlines() if sha else [] for sha in (old, new))
    except UnicodeDecodeError:
        return FileChange(path, status, new or old or "")
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return FileChange(path, status, new or old or "", added, removed, "\n".join(lines))
