"""Git history of a repository: blobs, commits, refs and diffs, as far as the API shows them."""

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ai_platform_engineering.demo.github.state import Commit, GitHubRepository

_MIN_SHA_CHARS = 7  # of an abbreviated sha

ChangeStatus = Literal["added", "modified", "removed"]


@dataclass(frozen=True, slots=True)
class FileChange:
    """The difference of one file between two trees."""

    path: str
    status: ChangeStatus
    blob: str
    additions: int = 0
    deletions: int = 0
    patch: str | None = None


def blob_sha(data: bytes) -> str:
    """The sha that git gives to a blob of these bytes."""
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
) -> Commit:
    """Commits files to a branch: new ones are added, others replaced."""
    tree: dict[str, str] = {}
    parents: list[str] = []
    last_sha = repository.branches.get(branch)
    if last_sha:
        tree.update(repository.commits[last_sha].tree)
        parents.append(last_sha)
    for path, data in files.items():
        tree[path] = store_blob(repository, data)
    return record_commit(repository, branch, message, author, date, tree, parents)


def record_commit(
    repository: GitHubRepository,
    branch: str,
    message: str,
    author: str,
    date: datetime,
    tree: dict[str, str],
    parents: list[str],
) -> Commit:
    """Adds a commit with this tree, and moves the branch to it."""
    content = (sorted(tree.items()), parents, message, author, date.isoformat(), len(repository.commits))
    sha = hashlib.sha1(repr(content).encode(), usedforsecurity=False).hexdigest()
    commit = Commit(sha=sha, message=message, author=author, date=date, parents=parents, tree=tree)
    repository.commits[sha] = commit
    repository.branches[branch] = sha
    repository.pushed_at = date
    return commit


def resolve_ref(repository: GitHubRepository, ref: str) -> Commit | None:
    """The commit of a branch, a tag, or a sha of at least seven characters; "" is the default branch."""
    name = ref.removeprefix("refs/heads/").removeprefix("heads/") or repository.default_branch
    if name in repository.branches:
        return repository.commits[repository.branches[name]]
    for release in repository.releases:
        if release.tag == name:
            return repository.commits[release.sha]
    if len(name) < _MIN_SHA_CHARS:
        return None
    matches = [commit for sha, commit in repository.commits.items() if sha.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    return None


def iterate_ancestors(repository: GitHubRepository, sha: str) -> Iterator[Commit]:
    """A commit and all before it, the newest first."""
    pending = [sha]
    visited = set[str]()
    while pending:
        pending.sort(key=lambda sha: repository.commits[sha].date)
        newest = pending.pop()
        if newest in visited:
            continue
        visited.add(newest)
        yield repository.commits[newest]
        pending += repository.commits[newest].parents


def find_merge_base(repository: GitHubRepository, left_sha: str, right_sha: str) -> Commit | None:
    """The newest commit that is an ancestor of both."""
    left_shas = {commit.sha for commit in iterate_ancestors(repository, left_sha)}
    for commit in iterate_ancestors(repository, right_sha):
        if commit.sha in left_shas:
            return commit
    return None


def diff_trees(
    repository: GitHubRepository, before: Mapping[str, str], after: Mapping[str, str]
) -> list[FileChange]:
    """The files that differ between two trees."""
    changes: list[FileChange] = []
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path):
            changes.append(_diff_file(repository, path, before.get(path), after.get(path)))
    return changes


def _diff_file(
    repository: GitHubRepository, path: str, old_sha: str | None, new_sha: str | None
) -> FileChange:
    """The change of a file between two blobs; without a patch where one of them is not text."""
    blob = new_sha or old_sha or ""
    status = _change_status(old_sha, new_sha)
    try:
        old_lines = _read_lines(repository, old_sha)
        new_lines = _read_lines(repository, new_sha)
    except UnicodeDecodeError:
        return FileChange(path, status, blob)
    diff = list(difflib.unified_diff(old_lines, new_lines, lineterm="", n=3))[2:]
    additions = sum(line.startswith("+") for line in diff)
    deletions = sum(line.startswith("-") for line in diff)
    return FileChange(path, status, blob, additions, deletions, "\n".join(diff))


def _change_status(old_sha: str | None, new_sha: str | None) -> ChangeStatus:
    if old_sha is None:
        return "added"
    if new_sha is None:
        return "removed"
    return "modified"


def _read_lines(repository: GitHubRepository, sha: str | None) -> list[str]:
    if not sha:
        return []
    return repository.blobs[sha].decode().splitlines()
