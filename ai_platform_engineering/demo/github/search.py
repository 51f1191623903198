"""Handlers that search repositories and issues by words and qualifiers."""

import re
from collections.abc import Callable, Mapping

from ai_platform_engineering.demo.github.api_types import GitHubRequest, ListResponse, validation_error
from ai_platform_engineering.demo.github.state import GitHubRepository, Issue

_TERM = re.compile(r'(?P<no>-)?(?:(?P<key>[a-z-]+):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))')
_EXTRA_KEYS = (("incomplete_results", False),)

Qualifier = Callable[[str], bool]  # whether a value, in lower case, holds for the object


def search_repositories(request: GitHubRequest) -> ListResponse:
    repositories: list[GitHubRepository] = []
    for repository in request.state.repositories.values():
        text = f"{repository.name} {repository.description or ''}"
        if _matches_query(request, text, _repository_qualifiers(repository)):
            repositories.append(repository)
    repositories.sort(key=lambda repository: repository.pushed_at, reverse=True)
    items = [request.renderer.repository(repository) for repository in repositories]
    return ListResponse(items, "items", _EXTRA_KEYS)


def search_issues(request: GitHubRequest) -> ListResponse:
    matches: list[tuple[GitHubRepository, Issue]] = []
    for repository in request.state.repositories.values():
        for issue in repository.issues.values():
            text = f"{issue.title} {issue.body or ''}"
            if _matches_query(request, text, _issue_qualifiers(repository, issue)):
                matches.append((repository, issue))
    matches.sort(key=lambda match: match[1].created_at, reverse=True)
    items = [request.renderer.issue(repository, issue) for repository, issue in matches]
    return ListResponse(items, "items", _EXTRA_KEYS)


def _matches_query(request: GitHubRequest, text: str, qualifiers: Mapping[str, Qualifier]) -> bool:
    """Whether every term holds; an unknown qualifier is ignored, as at GitHub."""
    query = request.query.get("q", "").strip()
    if not query:
        raise validation_error("Search", "q", "missing")
    for term in _TERM.finditer(query):
        value = term["plain"] if term["quoted"] is None else term["quoted"]
        value = value.lower()
        if value == "@me":
            value = request.actor.login
        key = term["key"]
        if key is None:
            holds = value in text.lower()
        elif key in qualifiers:
            holds = qualifiers[key](value)
        else:
            continue
        is_negated = term["no"] is not None
        if holds == is_negated:
            return False
    return True


def _repository_qualifiers(repository: GitHubRepository) -> dict[str, Qualifier]:
    visibility = "private" if repository.private else "public"
    return {
        "org": lambda value: repository.owner == value,
        "user": lambda value: repository.owner == value,
        "repo": lambda value: repository.full_name.lower() == value,
        "is": lambda value: value == visibility,
        "language": lambda value: (repository.language or "").lower() == value,
        "topic": lambda value: value in repository.topics,
        "archived": lambda value: repository.archived == (value == "true"),
    }


def _issue_qualifiers(repository: GitHubRepository, issue: Issue) -> dict[str, Qualifier]:
    pull = issue.pull
    kinds = _issue_kinds(repository, issue)
    missing = set[str]()
    if not issue.assignees:
        missing.add("assignee")
    if not issue.labels:
        missing.add("label")
    reviewers = pull.reviewers if pull else []
    return {
        "is": lambda value: value in kinds,
        "type": lambda value: value in kinds,
        "state": lambda value: value == issue.state,
        "no": lambda value: value in missing,
        "repo": lambda value: repository.full_name.lower() == value,
        "org": lambda value: repository.owner == value,
        "user": lambda value: repository.owner == value,
        "label": lambda value: value in map(str.lower, issue.labels),
        "author": lambda value: issue.author == value,
        "assignee": lambda value: value in issue.assignees,
        "review-requested": lambda value: value in reviewers,
        "base": lambda value: pull is not None and pull.base == value,
        "head": lambda value: pull is not None and pull.head == value,
    }


def _issue_kinds(repository: GitHubRepository, issue: Issue) -> set[str]:
    """The values of `is:` that hold for an issue or a pull request."""
    kinds: set[str] = {issue.state, "private" if repository.private else "public"}
    if issue.pull is None:
        kinds.add("issue")
        return kinds
    kinds.add("pr")
    if issue.pull.merged_at:
        kinds.add("merged")
    if issue.pull.draft:
        kinds.add("draft")
    return kinds
