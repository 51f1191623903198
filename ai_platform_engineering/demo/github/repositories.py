"""Repositories, branches, commits, files and releases: what each request reads or changes."""

import base64
import binascii
import re
from datetime import datetime

from ai_platform_engineering.demo.github import history
from ai_platform_engineering.demo.github.responses import (
    CreatedResponse,
    GitHubApiError,
    GitHubRequest,
    Json,
    ListResponse,
    not_found,
    validation_error,
)
from ai_platform_engineering.demo.github.state import Commit, GitHubRepository, now
from ai_platform_engineering.demo.github.views import JsonRenderer


def me(call: GitHubRequest) -> Json:
    return _render(call).me(call.actor)


def account(call: GitHubRequest) -> Json:
    found = call.state.find_account(call.path["login"])
    if found is None:
        raise not_found()
    return _render(call).me(found)


def of_me(call: GitHubRequest) -> ListResponse:
    """My own repositories and those of my organisations."""
    mine = {
        call.actor.login,
        *(one.login for one in call.state.accounts.values() if call.actor.login in one.members),
    }
    return _listed(call, mine)


def of_organisation(call: GitHubRequest) -> ListResponse:
    found = call.state.find_account(call.path["login"])
    if found is None or found.type != "Organization":
        raise not_found()
    return _listed(call, {found.login})


def of_user(call: GitHubRequest) -> ListResponse:
    found = call.state.find_account(call.path["login"])
    if found is None:
        raise not_found()
    return _listed(call, {found.login})


def create_mine(call: GitHubRequest) -> CreatedResponse:
    return _create(call, call.actor.login)


def create_in_organisation(call: GitHubRequest) -> CreatedResponse:
    found = call.state.find_account(call.path["login"])
    if found is None or found.type != "Organization":
        raise not_found()
    if call.actor.login not in found.members:
        raise GitHubApiError(
            403, "You need admin access to the organization before adding a repository to it."
        )
    return _create(call, found.login)


def show(call: GitHubRequest) -> Json:
    return _render(call).repository(call.repository)


def branches(call: GitHubRequest) -> ListResponse:
    found = call.repository
    return ListResponse([_render(call).branch(found, name) for name in sorted(found.branches)])


def branch(call: GitHubRequest) -> Json:
    found = call.repository
    if call.path["branch"] not in found.branches:
        raise GitHubApiError(404, "Branch not found")
    return _render(call).branch(found, call.path["branch"])


def commits(call: GitHubRequest) -> ListResponse:
    found = call.repository
    if not found.commits:
        raise GitHubApiError(409, "Git Repository is empty.")
    last = history.resolve_ref(found, call.query.get("sha", ""))
    if last is None:
        raise not_found()
    chosen = [one for one in history.iterate_ancestors(found, last.sha) if _is_wanted(call, found, one)]
    return ListResponse([_render(call).commit(found, one) for one in chosen])


def commit(call: GitHubRequest) -> Json:
    found = call.repository
    one = history.resolve_ref(found, call.path["ref"])
    if one is None:
        raise GitHubApiError(422, f"No commit found for SHA: {call.path['ref']}")
    changed = _changes(found, one)
    added, removed = sum(change.additions for change in changed), sum(change.deletions for change in changed)
    render = _render(call)
    return render.commit(found, one) | {
        "stats": {"total": added + removed, "additions": added, "deletions": removed},
        "files": [render.change(found, change, one.sha) for change in changed],
    }


def contents(call: GitHubRequest) -> Json | list[Json]:
    found, path = call.repository, call.path.get("path", "").strip("/")
    ref = call.query.get("ref", "") or found.default_branch
    one = history.resolve_ref(found, ref)
    if one is None:
        raise GitHubApiError(
            404, "This repository is empty." if not found.commits else f"No commit found for the ref {ref}"
        )
    render = _render(call)
    if path in one.tree:
        return render.file(found, path, one.tree[path], ref)
    inner = sorted(file for file in one.tree if not path or file.startswith(f"{path}/"))
    if not inner and path:
        raise not_found()
    names = dict.fromkeys("/".join(file.split("/")[: path.count("/") + 1 + bool(path)]) for file in inner)
    return [render.entry(found, name, one.tree.get(name), ref) for name in names]


def write_file(call: GitHubRequest) -> CreatedResponse | Json:
    found, path = call.repository, call.path["path"].strip("/")
    message, data = _supplied(call, "message"), _decoded(_supplied(call, "content"))
    target = str(call.body.get("branch") or found.default_branch)
    if found.branches and target not in found.branches:
        raise GitHubApiError(404, f"Branch {target} not found")
    last = history.resolve_ref(found, target) if found.branches else None
    old, given = (last.tree.get(path) if last else None), call.body.get("sha")
    if old and not given:
        raise GitHubApiError(422, 'Invalid request.\n\n"sha" wasn\'t supplied.')
    if given and given != old:
        raise GitHubApiError(409, f"{path} does not match {given}")
    made = history.commit_files(found, target, message, call.actor.login, now(), {path: data})
    render = _render(call)
    body = {
        "content": render.entry(found, path, made.tree[path], target),
        "commit": _flat(render.commit(found, made)),
    }
    if old:
        return body
    return CreatedResponse(body)


def reference(call: GitHubRequest) -> Json:
    found = call.repository
    if not found.commits:
        raise GitHubApiError(409, "Git Repository is empty.")
    if call.path["branch"] not in found.branches:
        raise not_found()
    return _render(call).reference(found, call.path["branch"])


def create_reference(call: GitHubRequest) -> CreatedResponse:
    found = call.repository
    ref = call.require_text("ref", "Reference")
    sha = call.require_text("sha", "Reference")
    name = ref.removeprefix("refs/heads/")
    if name == ref or not name or ".." in name or re.search(r"[\s~^:?*\[\\]", name):
        raise GitHubApiError(422, f"{ref} is not a valid ref name.")
    if name in found.branches:
        raise GitHubApiError(422, "Reference already exists")
    if sha not in found.commits:
        raise GitHubApiError(422, "Object does not exist")
    found.branches[name] = sha
    return CreatedResponse(_render(call).reference(found, name))


def releases(call: GitHubRequest) -> ListResponse:
    found = call.repository
    newest = sorted(found.releases, key=lambda one: one.published_at, reverse=True)
    return ListResponse([_render(call).release(found, one) for one in newest])


def _render(call: GitHubRequest) -> JsonRenderer:
    return JsonRenderer(call.state, call.links)


def _listed(call: GitHubRequest, owners: set[str]) -> ListResponse:
    found = [one for one in call.state.repositories.values() if one.owner in owners]
    by_name = call.query.get("sort", "full_name") == "full_name"
    found.sort(
        key=(lambda one: one.full_name) if by_name else (lambda one: _times(call, one)), reverse=not by_name
    )
    return ListResponse([_render(call).repository(one) for one in found])


def _times(call: GitHubRequest, found: GitHubRepository) -> str:
    return (found.created_at if call.query["sort"] == "created" else found.pushed_at).isoformat()


def _create(call: GitHubRequest, owner: str) -> CreatedResponse:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", call.require_text("name", "Repository").strip())[:100]
    if call.state.find_repository(owner, name):
        error = {
            "resource": "Repository",
            "code": "custom",
            "field": "name",
            "message": "name already exists on this account",
        }
        raise GitHubApiError(422, "Repository creation failed.", error)
    made = GitHubRepository(
        id=call.state.next_id(),
        owner=owner,
        name=name,
        description=str(call.body.get("description") or "") or None,
        private=bool(call.body.get("private", False)),
        created_at=now(),
        pushed_at=now(),
    )
    if call.body.get("auto_init"):
        text = f"# {name}\n" + (f"{made.description}\n" if made.description else "")
        history.commit_files(
            made, made.default_branch, "Initial commit", call.actor.login, now(), {"README.md": text.encode()}
        )
    call.state.repositories[made.full_name] = made
    return CreatedResponse(_render(call).repository(made))


def _is_wanted(call: GitHubRequest, found: GitHubRepository, one: Commit) -> bool:
    path, author = call.query.get("path", "").strip("/"), call.query.get("author", "")
    since, until = _moment(call, "since"), _moment(call, "until")
    return (
        (not author or one.author == author)
        and (since is None or one.date >= since)
        and (until is None or one.date <= until)
        and (
            not path
            or any(
                change.path == path or change.path.startswith(f"{path}/") for change in _changes(found, one)
            )
        )
    )


def _moment(call: GitHubRequest, name: str) -> datetime | None:
    given = call.query.get(name)
    try:
        if given:
            return datetime.fromisoformat(given)
        return None
    except ValueError:
        raise validation_error("Commit", name) from None


def _changes(found: GitHubRepository, one: Commit) -> list[history.FileChange]:
    before = found.commits[one.parents[0]].tree if one.parents else {}
    return history.diff_trees(found, before, one.tree)


def _supplied(call: GitHubRequest, name: str) -> str:
    if not isinstance(value := call.body.get(name), str):
        raise GitHubApiError(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
    return value


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise GitHubApiError(422, "content is not valid Base64") from None


def _flat(commit: Json) -> Json:
    return {"sha": commit["sha"], "url": commit["url"], "html_url": commit["html_url"], **commit["commit"]}
