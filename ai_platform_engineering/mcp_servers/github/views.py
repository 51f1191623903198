"""The parts of GitHub's objects that a model needs: the API gives a hundred keys where ten are read."""

from typing import Any

from ai_platform_engineering.mcp_servers.github.api import GitHubPage, Json

MAX_TEXT = 4000
MAX_PATCH = 3000

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


def pick(item: Json, *keys: str) -> Json:
    """These keys of an object, without those that have no value."""
    return {key: item[key] for key in keys if item.get(key) not in (None, "", [])}


def drop_empty(**values: Any) -> Json:
    """The arguments as an object, without those that have no value."""
    return pick(values, *values)


def truncate(text: str | None, limit: int = MAX_TEXT) -> str | None:
    """A text of at most `limit` characters, and a note of how many are missing."""
    if text is None or len(text) <= limit:
        return text
    return f"{text[:limit]}\n[{len(text) - limit} more characters]"


def login(item: Json | None) -> str | None:
    return (item or {}).get("login")


def list_result(name: str, page: GitHubPage, items: list[Json], number: int) -> Json:
    """The result of a tool that lists: the items of this page, and the number of the next one."""
    result: Json = {name: items, "page": number, "more": page.more}
    if page.total is not None:
        result["total"] = page.total
    if page.more:
        result["next_page"] = number + 1
    return result


def repository(item: Json, *, full: bool = False) -> Json:
    if not full:
        return pick(item, *_REPOSITORY, "pushed_at")
    result = pick(item, *_REPOSITORY, *_REPOSITORY_MORE)
    if isinstance(result.get("license"), dict):
        result["license"] = result["license"].get("spdx_id")
    return result


def issue(item: Json, *, full: bool = False) -> Json:
    assignees = [login(user) for user in item.get("assignees") or ()]
    result = pick(item, *_ISSUE)
    result |= drop_empty(author=login(item.get("user")), labels=_label_names(item), assignees=assignees)
    if "pull_request" in item:
        result["is_pull_request"] = True
    if full:
        result |= drop_empty(body=truncate(item.get("body")))
    return result


def _label_names(item: Json) -> list[str]:
    """The API gives a label as an object or as its name."""
    names = []
    for label in item.get("labels") or ():
        if isinstance(label, dict):
            names.append(label["name"])
        else:
            names.append(label)
    return names


def comment(item: Json) -> Json:
    texts = drop_empty(author=login(item.get("user")), body=truncate(item.get("body")))
    return texts | pick(item, "created_at", "html_url")


def pull(item: Json, *, full: bool = False) -> Json:
    head = item.get("head") or {}
    base = item.get("base") or {}
    result = pick(item, *_PULL) | drop_empty(
        author=login(item.get("user")),
        head=head.get("ref"),
        base=base.get("ref"),
        labels=[label.get("name") for label in item.get("labels") or ()],
        requested_reviewers=[login(user) for user in item.get("requested_reviewers") or ()],
    )
    if not full:
        return result
    merged_by = login(item.get("merged_by"))
    details = drop_empty(head_sha=head.get("sha"), merged_by=merged_by, body=truncate(item.get("body")))
    return result | pick(item, *_PULL_MORE) | details


def review(item: Json) -> Json:
    texts = drop_empty(reviewer=login(item.get("user")), body=truncate(item.get("body")))
    return texts | pick(item, "state", "submitted_at", "html_url")


def changed_file(item: Json, *, patch: bool) -> Json:
    result = pick(item, "filename", "previous_filename", "status", "additions", "deletions")
    if patch:
        result |= drop_empty(patch=truncate(item.get("patch"), MAX_PATCH))
    return result


def commit(item: Json) -> Json:
    details = item.get("commit") or {}
    author = details.get("author") or {}
    return pick(item, "sha", "html_url") | drop_empty(
        message=truncate(details.get("message"), 1000),
        author=login(item.get("author")) or author.get("name"),
        date=author.get("date"),
    )


def release(item: Json) -> Json:
    texts = drop_empty(author=login(item.get("author")), body=truncate(item.get("body")))
    return pick(item, *_RELEASE) | texts


def run(item: Json) -> Json:
    return pick(item, *_RUN) | drop_empty(actor=login(item.get("actor"))) | pick(item, *_RUN_TIMES)
