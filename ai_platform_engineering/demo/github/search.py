"""Searching repositories and issues: words and the qualifiers that people use."""

import re
from collections.abc import Callable

from ai_platform_engineering.demo.github.responses import GitHubRequest, ListResponse, validation_error
from ai_platform_engineering.demo.github.state import GitHubRepository, Issue
from ai_platform_engineering.demo.github.views import JsonRenderer

_TERM = re.compile(r'(?P<no>-)?(?:(?P<key>[a-z-]+):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))')
_COUNTED = (("incomplete_results", False),)

Test = Callable[[str], bool]


def repositories(call: GitHubRequest) -> ListResponse:
    found = [one for one in call.state.repositories.values() if _matches(call, *_of_repository(one))]
    found.sort(key=lambda one: one.pushed_at, reverse=True)
    return ListResponse(
        [JsonRenderer(call.state, call.links).repository(one) for one in found], "items", _COUNTED
    )


def issues(call: GitHubRequest) -> ListResponse:
    found = [
        (repository, one)
        for repository in call.state.repositories.values()
        for one in repository.issues.values()
        if _matches(call, *_of_issue(repository, one))
    ]
    found.sort(key=lambda pair: pair[1].created_at, reverse=True)
    return ListResponse(
        [JsonRenderer(call.state, call.links).issue(repository, one) for repository, one in found],
        "items",
        _COUNTED,
    )


def _matches(call: GitHubRequest, text: str, tests: dict[str, Test]) -> bool:
    """Whether every term holds; a qualifier that nobody knows is no term, as at GitHub."""
    query = call.query.get("q", "").strip()
    if not query:
        raise validation_error("Search", "q", "missing")
    for term in _TERM.finditer(query):
        key, value = term["key"], (term["quoted"] if term["quoted"] is not None else term["plain"]).lower()
        value = call.actor.login if value == "@me" else value
        if key is None:
            holds = value in text.lower()
        elif key in tests:
            holds = tests[key](value)
        else:
            continue
        if holds == bool(term["no"]):
            return False
    return True


def _of_repository(found: GitHubRepository) -> tuple[str, dict[str, Test]]:
    def owner(value: str) -> bool:
        return found.owner == value

    def kind(value: str) -> bool:
        return value == ("private" if found.private else "public")

    tests: dict[str, Test] = {
        "org": owner,
        "user": owner,
        "repo": lambda value: found.full_name.lower() == value,
        "is": kind,
        "language": lambda value: (found.language or "").lower() == value,
        "topic": lambda value: value in found.topics,
        "archived": lambda value: found.archived == (value == "true"),
    }
    return f"{found.name} {found.description or ''}", tests


def _of_issue(repository: GitHubRepository, found: Issue) -> tuple[str, dict[str, Test]]:
    pull = found.pull
    kinds = {"pr" if pull else "issue", found.state, "private" if repository.private else "public"}
    kinds |= {
        word for word, holds in (("merged", pull and pull.merged_at), ("draft", pull and pull.draft)) if holds
    }
    lacking = {
        word for word, values in (("assignee", found.assignees), ("label", found.labels)) if not values
    }
    tests: dict[str, Test] = {
        "is": lambda value: value in kinds,
        "type": lambda value: value in kinds,
        "state": lambda value: value == found.state,
        "no": lambda value: value in lacking,
        "repo": lambda value: repository.full_name.lower() == value,
        "org": lambda value: repository.owner == value,
        "user": lambda value: repository.owner == value,
        "label": lambda value: value in [label.lower() for label in found.labels],
        "author": lambda value: found.author == value,
        "assignee": lambda value: value in found.assignees,
        "review-requested": lambda value: value in (pull.reviewers if pull else ()),
        "base": lambda value: pull is not None and pull.base == value,
        "head": lambda value: pull is not None and pull.head == value,
    }
    return f"{found.title} {found.body or ''}", tests
