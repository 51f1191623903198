"""Handlers for issues and their comments."""

from ai_platform_engineering.demo.github.api_types import (
    CreatedResponse,
    GitHubRequest,
    ListResponse,
    not_found,
    validation_error,
)
from ai_platform_engineering.demo.github.json_renderer import Json
from ai_platform_engineering.demo.github.state import Comment, Issue, now

RESOURCE = "Issue"


def list_issues(request: GitHubRequest) -> ListResponse:
    """Lists issues; pull requests are issues too, and clients tell them by their key."""
    repository = request.repository
    issues = [issue for issue in repository.issues.values() if _matches_query(request, issue)]
    issues.sort(key=lambda issue: (issue.created_at, issue.number), reverse=True)
    return ListResponse([request.renderer.issue(repository, issue) for issue in issues])


def show_issue(request: GitHubRequest) -> Json:
    return request.renderer.issue(request.repository, _find_issue(request))


def create_issue(request: GitHubRequest) -> CreatedResponse:
    repository = request.repository
    issue = Issue(
        id=request.state.next_id(),
        number=max(repository.issues, default=0) + 1,
        title=request.require_text("title", RESOURCE),
        body=request.body.get("body"),
        author=request.actor.login,
        created_at=now(),
        updated_at=now(),
        labels=request.read_names("labels", RESOURCE),
        assignees=_read_assignees(request),
    )
    repository.issues[issue.number] = issue
    return CreatedResponse(request.renderer.issue(repository, issue))


def update_issue(request: GitHubRequest) -> Json:
    """Changes what the body names; nothing is changed unless all of it is valid."""
    issue = _find_issue(request)
    changes: Json = {}
    if "title" in request.body:
        changes["title"] = request.require_text("title", RESOURCE)
    if "labels" in request.body:
        changes["labels"] = request.read_names("labels", RESOURCE)
    if "assignees" in request.body:
        changes["assignees"] = _read_assignees(request)
    if "body" in request.body:
        changes["body"] = request.body["body"]
    state = request.body.get("state", issue.state)
    if state not in ("open", "closed"):
        raise validation_error(RESOURCE, "state")
    if state != issue.state:
        _set_state(issue, state, request.body.get("state_reason"))
    for name, value in changes.items():
        setattr(issue, name, value)
    issue.updated_at = now()
    return request.renderer.issue(request.repository, issue)


def _set_state(issue: Issue, state: str, reason: str | None) -> None:
    if state == "closed":
        issue.state = "closed"
        issue.state_reason = reason or "completed"
        issue.closed_at = now()
    else:
        issue.state = "open"
        issue.state_reason = "reopened"
        issue.closed_at = None


def list_comments(request: GitHubRequest) -> ListResponse:
    issue = _find_issue(request)
    renderer = request.renderer
    return ListResponse([renderer.comment(request.repository, issue, comment) for comment in issue.comments])


def add_comment(request: GitHubRequest) -> CreatedResponse:
    issue = _find_issue(request)
    comment = Comment(
        id=request.state.next_id(),
        author=request.actor.login,
        body=request.require_text("body", "IssueComment"),
        created_at=now(),
    )
    issue.comments.append(comment)
    issue.updated_at = now()
    return CreatedResponse(request.renderer.comment(request.repository, issue, comment))


def _find_issue(request: GitHubRequest) -> Issue:
    issue = request.repository.issues.get(request.path["number"])
    if issue is None:
        raise not_found()
    return issue


def _matches_query(request: GitHubRequest, issue: Issue) -> bool:
    if request.query.get("state", "open") not in ("all", issue.state):
        return False
    if not _matches_assignee(issue, request.query.get("assignee", "")):
        return False
    labels = request.query.get("labels", "").split(",")
    return set(filter(None, labels)) <= set(issue.labels)


def _matches_assignee(issue: Issue, assignee: str) -> bool:
    match assignee:
        case "":
            return True
        case "none":
            return not issue.assignees
        case "*":
            return bool(issue.assignees)
        case _:
            return assignee in issue.assignees


def _read_assignees(request: GitHubRequest) -> list[str]:
    logins = request.read_names("assignees", RESOURCE)
    unknown_logins = [login for login in logins if request.state.find_account(login) is None]
    if unknown_logins:
        message = f"{', '.join(unknown_logins)} cannot be assigned"
        raise validation_error(RESOURCE, "assignees", message=message)
    return logins
