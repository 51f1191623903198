"""Handlers for accounts, repositories, branches, commits, files and releases."""

import base64
import binascii
import re
from datetime import datetime

from ai_platform_engineering.demo.github import history
from ai_platform_engineering.demo.github.api_types import (
    CreatedResponse,
    GitHubApiError,
    GitHubRequest,
    ListResponse,
    not_found,
    validation_error,
)
from ai_platform_engineering.demo.github.json_renderer import Json
from ai_platform_engineering.demo.github.state import Account, Commit, GitHubRepository, now

_INVALID_IN_REF = re.compile(r"[\s~^:?*\[\\]")


def show_me(request: GitHubRequest) -> Json:
    return request.renderer.account(request.actor)


def show_account(request: GitHubRequest) -> Json:
    return request.renderer.account(request.find_account())


def list_my_repositories(request: GitHubRequest) -> ListResponse:
    """Lists the actor's own repositories and those of the actor's organisations."""
    login = request.actor.login
    owners = {login}
    for account in request.state.accounts.values():
        if login in account.members:
            owners.add(account.login)
    return _list_repositories(request, owners)


def list_organisation_repositories(request: GitHubRequest) -> ListResponse:
    return _list_repositories(request, {_find_organisation(request).login})


def list_user_repositories(request: GitHubRequest) -> ListResponse:
    return _list_repositories(request, {request.find_account().login})


def create_my_repository(request: GitHubRequest) -> CreatedResponse:
    return _create_repository(request, request.actor.login)


def create_organisation_repository(request: GitHubRequest) -> CreatedResponse:
    organisation = _find_organisation(request)
    if request.actor.login not in organisation.members:
        raise GitHubApiError(
            403, "You need admin access to the organization before adding a repository to it."
        )
    return _create_repository(request, organisation.login)


def show_repository(request: GitHubRequest) -> Json:
    return request.renderer.repository(request.repository)


def list_branches(request: GitHubRequest) -> ListResponse:
    repository = request.repository
    return ListResponse([request.renderer.branch(repository, name) for name in sorted(repository.branches)])


def show_branch(request: GitHubRequest) -> Json:
    repository = request.repository
    branch = request.path["branch"]
    if branch not in repository.branches:
        raise GitHubApiError(404, "Branch not found")
    return request.renderer.branch(repository, branch)


def list_commits(request: GitHubRequest) -> ListResponse:
    repository = request.repository
    if not repository.commits:
        raise GitHubApiError(409, "Git Repository is empty.")
    last_commit = history.resolve_ref(repository, request.query.get("sha", ""))
    if last_commit is None:
        raise not_found()
    items: list[Json] = []
    for commit in history.iterate_ancestors(repository, last_commit.sha):
        if _matches_query(request, repository, commit):
            items.append(request.renderer.commit(repository, commit))
    return ListResponse(items)


def show_commit(request: GitHubRequest) -> Json:
    repository = request.repository
    commit = history.resolve_ref(repository, request.path["ref"])
    if commit is None:
        raise GitHubApiError(422, f"No commit found for SHA: {request.path['ref']}")
    changes = _diff_commit(repository, commit)
    additions = sum(change.additions for change in changes)
    deletions = sum(change.deletions for change in changes)
    renderer = request.renderer
    return renderer.commit(repository, commit) | {
        "stats": {"total": additions + deletions, "additions": additions, "deletions": deletions},
        "files": [renderer.change(repository, change, commit.sha) for change in changes],
    }


def show_contents(request: GitHubRequest) -> Json | list[Json]:
    """Shows a file, or lists a folder."""
    repository = request.repository
    path = request.path.get("path", "").strip("/")
    ref = request.query.get("ref", "") or repository.default_branch
    commit = history.resolve_ref(repository, ref)
    if commit is None:
        if not repository.commits:
            raise GitHubApiError(404, "This repository is empty.")
        raise GitHubApiError(404, f"No commit found for the ref {ref}")
    if path in commit.tree:
        return request.renderer.file(repository, path, commit.tree[path], ref)
    entries = _list_folder(commit, path)
    if not entries and path:
        raise not_found()
    return [request.renderer.entry(repository, entry, commit.tree.get(entry), ref) for entry in entries]


def _list_folder(commit: Commit, folder: str) -> list[str]:
    """The paths of the files and folders directly in a folder; "" is the root."""
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, None] = {}
    for file in sorted(commit.tree):
        if file.startswith(prefix):
            name = file.removeprefix(prefix).partition("/")[0]
            entries[prefix + name] = None
    return list(entries)


def write_file(request: GitHubRequest) -> CreatedResponse | Json:
    repository = request.repository
    path = request.path["path"].strip("/")
    message = _require_value(request, "message")
    content = _decode_base64(_require_value(request, "content"))
    branch = str(request.body.get("branch") or repository.default_branch)
    if repository.branches and branch not in repository.branches:
        raise GitHubApiError(404, f"Branch {branch} not found")
    last_commit = history.resolve_ref(repository, branch) if repository.branches else None
    current_sha = last_commit.tree.get(path) if last_commit else None
    expected_sha = request.body.get("sha")
    if current_sha and not expected_sha:
        raise GitHubApiError(422, 'Invalid request.\n\n"sha" wasn\'t supplied.')
    if expected_sha and expected_sha != current_sha:
        raise GitHubApiError(409, f"{path} does not match {expected_sha}")
    author = request.actor.login
    commit = history.commit_files(repository, branch, message, author, now(), {path: content})
    renderer = request.renderer
    body = {
        "content": renderer.entry(repository, path, commit.tree[path], branch),
        "commit": _flatten_commit(renderer.commit(repository, commit)),
    }
    if current_sha:
        return body
    return CreatedResponse(body)


def show_reference(request: GitHubRequest) -> Json:
    repository = request.repository
    if not repository.commits:
        raise GitHubApiError(409, "Git Repository is empty.")
    if request.path["branch"] not in repository.branches:
        raise not_found()
    return request.renderer.reference(repository, request.path["branch"])


def create_reference(request: GitHubRequest) -> CreatedResponse:
    repository = request.repository
    ref = request.require_text("ref", "Reference")
    sha = request.require_text("sha", "Reference")
    branch = ref.removeprefix("refs/heads/")
    if branch == ref or not branch or ".." in branch or _INVALID_IN_REF.search(branch):
        raise GitHubApiError(422, f"{ref} is not a valid ref name.")
    if branch in repository.branches:
        raise GitHubApiError(422, "Reference already exists")
    if sha not in repository.commits:
        raise GitHubApiError(422, "Object does not exist")
    repository.branches[branch] = sha
    return CreatedResponse(request.renderer.reference(repository, branch))


def list_releases(request: GitHubRequest) -> ListResponse:
    repository = request.repository
    newest_first = sorted(repository.releases, key=lambda release: release.published_at, reverse=True)
    return ListResponse([request.renderer.release(repository, release) for release in newest_first])


def _find_organisation(request: GitHubRequest) -> Account:
    account = request.find_account()
    if account.type != "Organization":
        raise not_found()
    return account


def _list_repositories(request: GitHubRequest, owners: set[str]) -> ListResponse:
    repositories = [
        repository for repository in request.state.repositories.values() if repository.owner in owners
    ]
    match request.query.get("sort", "full_name"):
        case "full_name":
            repositories.sort(key=lambda repository: repository.full_name)
        case "created":
            repositories.sort(key=lambda repository: repository.created_at.isoformat(), reverse=True)
        case _:
            repositories.sort(key=lambda repository: repository.pushed_at.isoformat(), reverse=True)
    return ListResponse([request.renderer.repository(repository) for repository in repositories])


def _create_repository(request: GitHubRequest, owner: str) -> CreatedResponse:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.require_text("name", "Repository").strip())[:100]
    if request.state.find_repository(owner, name):
        error = {
            "resource": "Repository",
            "code": "custom",
            "field": "name",
            "message": "name already exists on this account",
        }
        raise GitHubApiError(422, "Repository creation failed.", error)
    repository = GitHubRepository(
        id=request.state.next_id(),
        owner=owner,
        name=name,
        description=str(request.body.get("description") or "") or None,
        private=bool(request.body.get("private", False)),
        created_at=now(),
        pushed_at=now(),
    )
    if request.body.get("auto_init"):
        _commit_readme(repository, request.actor.login)
    request.state.repositories[repository.full_name] = repository
    return CreatedResponse(request.renderer.repository(repository))


def _commit_readme(repository: GitHubRepository, author: str) -> None:
    text = f"# {repository.name}\n"
    if repository.description:
        text += f"{repository.description}\n"
    files = {"README.md": text.encode()}
    history.commit_files(repository, repository.default_branch, "Initial commit", author, now(), files)


def _matches_query(request: GitHubRequest, repository: GitHubRepository, commit: Commit) -> bool:
    author = request.query.get("author", "")
    since = _read_time(request, "since")
    until = _read_time(request, "until")
    if author and commit.author != author:
        return False
    if since is not None and commit.date < since:
        return False
    if until is not None and commit.date > until:
        return False
    return _touches_path(repository, commit, request.query.get("path", "").strip("/"))


def _touches_path(repository: GitHubRepository, commit: Commit, path: str) -> bool:
    """Whether the commit changes a file at the path or below it; "" is every path."""
    if not path:
        return True
    for change in _diff_commit(repository, commit):
        if change.path == path or change.path.startswith(f"{path}/"):
            return True
    return False


def _read_time(request: GitHubRequest, name: str) -> datetime | None:
    text = request.query.get(name)
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise validation_error("Commit", name) from None


def _diff_commit(repository: GitHubRepository, commit: Commit) -> list[history.FileChange]:
    """The changes of a commit against its first parent."""
    parent_tree = repository.commits[commit.parents[0]].tree if commit.parents else {}
    return history.diff_trees(repository, parent_tree, commit.tree)


def _require_value(request: GitHubRequest, name: str) -> str:
    value = request.body.get(name)
    if not isinstance(value, str):
        raise GitHubApiError(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
    return value


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise GitHubApiError(422, "content is not valid Base64") from None


def _flatten_commit(commit: Json) -> Json:
    return {"sha": commit["sha"], "url": commit["url"], "html_url": commit["html_url"], **commit["commit"]}
