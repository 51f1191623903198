"""GitHub's answers cut down to what people ask about: the API gives a hundred keys where ten are read."""

from typing import Any

from ai_platform_engineering.mcp_servers.github.api import GitHubPage, Json

TEXT = 4000
PATCH = 3000

_REPOSITORY = (
    "full_name",
    "description",
    "private",
    "archived",
    "fork",
    "language",
    "default_branch",
    "html_url",
)
_REPOSITORY_MORE = (
    "visibility",
    "open_issues_count",
    "stargazers_count",
    "forks_count",
    "topics",
    "license",
    "created_at",
    "pushed_at",
)
_ISSUE = (
    "number",
    "title",
    "state",
    "state_reason",
    "comments",
    "created_at",
    "updated_at",
    "closed_at",
    "html_url",
)
_PULL = (
    "number",
    "title",
    "state",
    "draft",
    "created_at",
    "updated_at",
    "merged_at",
    "closed_at",
    "html_url",
)
_PULL_MORE = (
    "merged",
    "mergeable",
    "mergeable_state",
    "commits",
    "additions",
    "deletions",
    "changed_files",
    "comments",
)
_RUN = (
    "id",
    "name",
    "display_title",
    "run_number",
    "run_attempt",
    "event",
    "status",
    "conclusion",
    "head_branch",
    "head_sha",
)
_RUN_TIMES = ("created_at", "updated_at", "html_url")
_RELEASE = ("tag_name", "name", "draft", "prerelease", "published_at", "html_url")


def chosen(item: Json, *keys: str) -> Json:
    """The keys that say something."""
    return {key: item[key] for key in keys if item.get(key) not in (None, "", [])}


def said(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value not in (None, "", [])}


def cut(text: str | None, limit: int = TEXT) -> str | None:
    if text is None or len(text) <= limit:
        return text
    return f"{text[:limit]}\n[{len(text) - limit} more characters]"


def login(item: Json | None) -> str | None:
    return (item or {}).get("login")


def listed(name: str, page: GitHubPage, items: list[Json], number: int) -> Json:
    """A list as a result: what it holds, and where it goes on."""
    found: Json = {name: items, "page": number, "more": page.more}
    if page.total is not None:
        found["total"] = page.total
    if page.more:
        found["next_page"] = number + 1
    return found


def repository(item: Json, *, whole: bool = False) -> Json:
    found = chosen(item, *_REPOSITORY, *(_REPOSITORY_MORE if whole else ("pushed_at",)))
    if isinstance(found.get("license"), dict):
        found["license"] = found["license"].get("spdx_id")
    return found


def issue(item: Json, *, whole: bool = False) -> Json:
    labels = [label["name"] if isinstance(label, dict) else label for label in item.get("labels") or ()]
    assignees = [login(user) for user in item.get("assignees") or ()]
    found = chosen(item, *_ISSUE) | said(author=login(item.get("user")), labels=labels, assignees=assignees)
    if "pull_request" in item:
        found["is_pull_request"] = True
    if whole:
        return found | said(body=cut(item.get("body")))
    return found


def comment(item: Json) -> Json:
    return said(author=login(item.get("user")), body=cut(item.get("body"))) | chosen(
        item, "created_at", "html_url"
    )


def pull(item: Json, *, whole: bool = False) -> Json:
    head, base = item.get("head") or {}, item.get("base") or {}
    reviewers = [login(user) for user in item.get("requested_reviewers") or ()]
    labels = [label.get("name") for label in item.get("labels") or ()]
    found = chosen(item, *_PULL) | said(
        author=login(item.get("user")),
        head=head.get("ref"),
        base=base.get("ref"),
        labels=labels,
        requested_reviewers=reviewers,
    )
    if not whole:
        return found
    more = said(head_sha=head.get("sha"), merged_by=login(item.get("merged_by")), body=cut(item.get("body")))
    return found | chosen(item, *_PULL_MORE) | more


def review(item: Json) -> Json:
    return said(reviewer=login(item.get("user")), body=cut(item.get("body"))) | chosen(
        item, "state", "submitted_at", "html_url"
    )


def changed_file(item: Json, *, patch: bool) -> Json:
    found = chosen(item, "filename", "previous_filename", "status", "additions", "deletions")
    if patch:
        return found | said(patch=cut(item.get("patch"), PATCH))
    return found


def commit(item: Json) -> Json:
    inner = item.get("commit") or {}
    author = inner.get("author") or {}
    return chosen(item, "sha", "html_url") | said(
        message=cut(inner.get("message"), 1000),
        author=login(item.get("author")) or author.get("name"),
        date=author.get("date"),
    )


def release(item: Json) -> Json:
    return chosen(item, *_RELEASE) | said(author=login(item.get("author")), body=cut(item.get("body")))


def run(item: Json) -> Json:
    return chosen(item, *_RUN) | said(actor=login(item.get("actor"))) | chosen(item, *_RUN_TIMES)
