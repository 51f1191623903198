"""Repositories, branches, commits, files and releases: what each request reads or changes."""

import base64
import binascii
import re
from datetime import datetime

from ai_platform_engineering.demo.github import history
from ai_platform_engineering.demo.github.responses import Call, Created, Json, Listed, Refused, invalid, not_found
from ai_platform_engineering.demo.github.state import Commit, Repository, now
from ai_platform_engineering.demo.github.views import Render


def me(call: Call) -> Json:
    return _render(call).me(call.actor)


def account(call: Call) -> Json:
    found = call.state.account(call.path["login"])
    if found is None:
        raise not_found()
    return _render(call).me(found)


def of_me(call: Call) -> Listed:
    """My own repositories and those of my organisations."""
    mine = {call.actor.login, *(one.login for one in call.state.accounts.values() if call.actor.login in one.members)}
    return _listed(call, mine)


def of_organisation(call: Call) -> Listed:
    found = call.state.account(call.path["login"])
    if found is None or found.type != "Organization":
        raise not_found()
    return _listed(call, {found.login})


def of_user(call: Call) -> Listed:
    found = call.state.account(call.path["login"])
    if found is None:
        raise not_found()
    return _listed(call, {found.login})


def create_mine(call: Call) -> Created:
    return _create(call, call.actor.login)


def create_in_organisation(call: Call) -> Created:
    found = call.state.account(call.path["login"])
    if found is None or found.type != "Organization":
        raise not_found()
    if call.actor.login not in found.members:
        raise Refused(403, "You need admin access to the organization before adding a repository to it.")
    return _create(call, found.login)


def show(call: Call) -> Json:
    return _render(call).repository(call.repository)


def branches(call: Call) -> Listed:
    found = call.repository
    return Listed([_render(call).branch(found, name) for name in sorted(found.branches)])


def branch(call: Call) -> Json:
    found = call.repository
    if call.path["branch"] not in found.branches:
        raise Refused(404, "Branch not found")
    return _render(call).branch(found, call.path["branch"])


def commits(call: Call) -> Listed:
    found = call.repository
    if not found.commits:
        raise Refused(409, "Git Repository is empty.")
    last = history.resolve(found, call.query.get("sha", ""))
    if last is None:
        raise not_found()
    chosen = [one for one in history.ancestors(found, last.sha) if _is_wanted(call, found, one)]
    return Listed([_render(call).commit(found, one) for one in chosen])


def commit(call: Call) -> Json:
    found = call.repository
    one = history.resolve(found, call.path["ref"])
    if one is None:
        raise Refused(422, f"No commit found for SHA: {call.path['ref']}")
    changed = _changes(found, one)
    added, removed = sum(change.additions for change in changed), sum(change.deletions for change in changed)
    render = _render(call)
    return render.commit(found, one) | {
        "stats": {"total": added + removed, "additions": added, "deletions": removed},
        "files": [render.change(found, change, one.sha) for change in changed],
    }


def contents(call: Call) -> Json | list[Json]:
    found, path = call.repository, call.path.get("path", "").strip("/")
    ref = call.query.get("ref", "") or found.default_branch
    one = history.resolve(found, ref)
    if one is None:
        raise Refused(404, "This repository is empty." if not found.commits else f"No commit found for the ref {ref}")
    render = _render(call)
    if path in one.tree:
        return render.file(found, path, one.tree[path], ref)
    inner = sorted(file for file in one.tree if not path or file.startswith(f"{path}/"))
    if not inner and path:
        raise not_found()
    names = dict.fromkeys("/".join(file.split("/")[: path.count("/") + 1 + bool(path)]) for file in inner)
    return [render.entry(found, name, one.tree.get(name), ref) for name in names]


def write_file(call: Call) -> Created | Json:
    found, path = call.repository, call.path["path"].strip("/")
    message, data = _supplied(call, "message"), _decoded(_supplied(call, "content"))
    target = str(call.body.get("branch") or found.default_branch)
    if found.branches and target not in found.branches:
        raise Refused(404, f"Branch {target} not found")
    last = history.resolve(found, target) if found.branches else None
    old, given = (last.tree.get(path) if last else None), call.body.get("sha")
    if old and not given:
        raise Refused(422, 'Invalid request.\n\n"sha" wasn\'t supplied.')
    if given and given != old:
        raise Refused(409, f"{path} does not match {given}")
    made = history.commit(found, target, message, call.actor.login, now(), {path: data})
    render = _render(call)
    body = {"content": render.entry(found, path, made.tree[path], target), "commit": _flat(render.commit(found, made))}
    return body if old else Created(body)


def reference(call: Call) -> Json:
    found = call.repository
    if not found.commits:
        raise Refused(409, "Git Repository is empty.")
    if call.path["branch"] not in found.branches:
        raise not_found()
    return _render(call).reference(found, call.path["branch"])


def create_reference(call: Call) -> Created:
    found, ref, sha = call.repository, call.text("ref", "Reference"), call.text("sha", "Reference")
    name = ref.removeprefix("refs/heads/")
    if name == ref or not name or ".." in name or re.search(r"[\s~^:?*\[\\]", name):
        raise Refused(422, f"{ref} is not a valid ref name.")
    if name in found.branches:
        raise Refused(422, "Reference already exists")
    if sha not in found.commits:
        raise Refused(422, "Object does not exist")
    found.branches[name] = sha
    return Created(_render(call).reference(found, name))


def releases(call: Call) -> Listed:
    found = call.repository
    newest = sorted(found.releases, key=lambda one: one.published_at, reverse=True)
    return Listed([_render(call).release(found, one) for one in newest])


def _render(call: Call) -> Render:
    return Render(call.state, call.links)


def _listed(call: Call, owners: set[str]) -> Listed:
    found = [one for one in call.state.repositories.values() if one.owner in owners]
    by_name = call.query.get("sort", "full_name") == "full_name"
    found.sort(key=(lambda one: one.full_name) if by_name else (lambda one: _times(call, one)), reverse=not by_name)
    return Listed([_render(call).repository(one) for one in found])


def _times(call: Call, found: Repository) -> str:
    return (found.created_at if call.query["sort"] == "created" else found.pushed_at).isoformat()


def _create(call: Call, owner: str) -> Created:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", call.text("name", "Repository").strip())[:100]
    if call.state.repository(owner, name):
        error = {"resource": "Repository", "code": "custom", "field": "name", "message": "name already exists on this account"}
        raise Refused(422, "Repository creation failed.", error)
    made = Repository(
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
        history.commit(made, made.default_branch, "Initial commit", call.actor.login, now(), {"README.md": text.encode()})
    call.state.repositories[made.full_name] = made
    return Created(_render(call).repository(made))


def _is_wanted(call: Call, found: Repository, one: Commit) -> bool:
    path, author = call.query.get("path", "").strip("/"), call.query.get("author", "")
    since, until = _moment(call, "since"), _moment(call, "until")
    return (
        (not author or one.author == author)
        and (since is None or one.date >= since)
        and (until is None or one.date <= until)
        and (not path or any(change.path == path or change.path.startswith(f"{path}/") for change in _changes(found, one)))
    )


def _moment(call: Call, name: str) -> datetime | None:
    given = call.query.get(name)
    try:
        return datetime.fromisoformat(given) if given else None
    except ValueError:
        raise invalid("Commit", name) from None


def _changes(found: Repository, one: Commit) -> list[history.Change]:
    before = found.commits[one.parents[0]].tree if one.parents else {}
    return history.changes(found, before, one.tree)


def _supplied(call: Call, name: str) -> str:
    if not isinstance(value := call.body.get(name), str):
        raise Refused(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
    return value


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise Refused(422, "content is not valid Base64") from None


def _flat(commit: Json) -> Json:
    return {"sha": commit["sha"], "url": commit["url"], "html_url": commit["html_url"], **commit["commit"]}
