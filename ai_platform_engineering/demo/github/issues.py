"""Issues and their comments: what each request reads or changes."""

from ai_platform_engineering.demo.github.responses import (
    CreatedResponse,
    GitHubRequest,
    Json,
    ListResponse,
    not_found,
    validation_error,
)
from ai_platform_engineering.demo.github.state import Comment, Issue, now
from ai_platform_engineering.demo.github.views import JsonRenderer

RESOURCE = "Issue"


def find(call: GitHubRequest) -> Issue:
    found = call.repository.issues.get(call.path["number"])
    if found is None:
        raise not_found()
    return found


def issues(call: GitHubRequest) -> ListResponse:
    """Pull requests are issues too; clients tell them by their key."""
    repository = call.repository
    chosen = [one for one in repository.issues.values() if _is_wanted(call, one)]
    chosen.sort(key=lambda one: (one.created_at, one.number), reverse=True)
    return ListResponse([_render(call).issue(repository, one) for one in chosen])


def show(call: GitHubRequest) -> Json:
    return _render(call).issue(call.repository, find(call))


def create(call: GitHubRequest) -> CreatedResponse:
    repository = call.repository
    made = Issue(
        id=call.state.next_id(),
        number=max(repository.issues, default=0) + 1,
        title=call.require_text("title", RESOURCE),
        body=call.body.get("body"),
        author=call.actor.login,
        created_at=now(),
        updated_at=now(),
        labels=call.require_names("labels", RESOURCE),
        assignees=_assignees(call),
    )
    repository.issues[made.number] = made
    return CreatedResponse(_render(call).issue(repository, made))


def update(call: GitHubRequest) -> Json:
    found, body = find(call), call.body
    title = call.require_text("title", RESOURCE) if "title" in body else found.title
    labels = call.require_names("labels", RESOURCE) if "labels" in body else found.labels
    assignees = _assignees(call) if "assignees" in body else found.assignees
    state = body.get("state", found.state)
    if state not in ("open", "closed"):
        raise validation_error(RESOURCE, "state")
    if state != found.state:
        found.state_reason = (body.get("state_reason") or "completed") if state == "closed" else "reopened"
        found.closed_at = now() if state == "closed" else None
    found.title = title
    found.labels = labels
    found.assignees = assignees
    found.state = state
    found.body = body.get("body", found.body)
    found.updated_at = now()
    return _render(call).issue(call.repository, found)


def comments(call: GitHubRequest) -> ListResponse:
    found = find(call)
    return ListResponse([_render(call).comment(call.repository, found, one) for one in found.comments])


def add_comment(call: GitHubRequest) -> CreatedResponse:
    found = find(call)
    made = Comment(
        id=call.state.next_id(),
        author=call.actor.login,
        body=call.require_text("body", "IssueComment"),
        created_at=now(),
    )
    found.comments.append(made)
    found.updated_at = now()
    return CreatedResponse(_render(call).comment(call.repository, found, made))


def _is_wanted(call: GitHubRequest, one: Issue) -> bool:
    state, assignee = call.query.get("state", "open"), call.query.get("assignee", "")
    labels = {label for label in call.query.get("labels", "").split(",") if label}
    assigned = {"": True, "none": not one.assignees, "*": bool(one.assignees)}.get(
        assignee, assignee in one.assignees
    )
    return state in ("all", one.state) and assigned and labels <= set(one.labels)


def _assignees(call: GitHubRequest) -> list[str]:
    named = call.require_names("assignees", RESOURCE)
    if strangers := [login for login in named if call.state.find_account(login) is None]:
        raise validation_error(RESOURCE, "assignees", message=f"{', '.join(strangers)} cannot be assigned")
    return named


def _render(call: GitHubRequest) -> JsonRenderer:
    return JsonRenderer(call.state, call.links)
