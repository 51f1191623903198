"""Handlers for pull requests: reading, opening and merging them."""

from ai_platform_engineering.demo.github import history
from ai_platform_engineering.demo.github.api_types import (
    CreatedResponse,
    GitHubApiError,
    GitHubRequest,
    ListResponse,
    not_found,
    validation_error,
)
from ai_platform_engineering.demo.github.json_renderer import Json, format_time
from ai_platform_engineering.demo.github.state import GitHubRepository, Issue, PullRequest, now

RESOURCE = "PullRequest"


def list_pulls(request: GitHubRequest) -> ListResponse:
    repository = request.repository
    issues = sorted(
        repository.issues.values(), key=lambda issue: (issue.created_at, issue.number), reverse=True
    )
    items: list[Json] = []
    for issue in issues:
        if issue.pull and _matches_query(request, issue, issue.pull):
            items.append(_render_pull(request, issue, issue.pull))
    return ListResponse(items)


def _matches_query(request: GitHubRequest, issue: Issue, pull: PullRequest) -> bool:
    query = request.query
    head = f"{request.repository.owner}:{pull.head}"
    return (
        query.get("state", "open") in ("all", issue.state)
        and query.get("base") in (None, pull.base)
        and query.get("head") in (None, head)
    )


def show_pull(request: GitHubRequest) -> Json:
    issue, pull = _find_pull(request)
    repository = request.repository
    changes = _diff_pull(repository, pull)
    if pull.merged_at:
        mergeable = None
        mergeable_state = "unknown"
    else:
        mergeable = is_mergeable(repository, pull)
        mergeable_state = "clean" if mergeable else "dirty"
    return _render_pull(request, issue, pull) | {
        "merged": pull.merged_at is not None,
        "mergeable": mergeable,
        "mergeable_state": mergeable_state,
        "merged_by": request.renderer.user(pull.merged_by) if pull.merged_by else None,
        "comments": len(issue.comments),
        "commits": len(_list_own_commits(repository, pull)),
        "additions": sum(change.additions for change in changes),
        "deletions": sum(change.deletions for change in changes),
        "changed_files": len(changes),
    }


def list_files(request: GitHubRequest) -> ListResponse:
    _, pull = _find_pull(request)
    repository = request.repository
    changes = _diff_pull(repository, pull)
    return ListResponse([request.renderer.change(repository, change, pull.head_sha) for change in changes])


def list_reviews(request: GitHubRequest) -> ListResponse:
    issue, pull = _find_pull(request)
    repository = request.repository
    return ListResponse([request.renderer.review(repository, issue, review) for review in pull.reviews])


def create_pull(request: GitHubRequest) -> CreatedResponse:
    repository = request.repository
    title = request.require_text("title", RESOURCE)
    head = request.require_text("head", RESOURCE).removeprefix(f"{repository.owner}:")
    base = request.require_text("base", RESOURCE)
    for field, branch in (("head", head), ("base", base)):
        if branch not in repository.branches:
            raise validation_error(RESOURCE, field)
    if _has_open_pull(repository, head, base):
        raise _custom_error(f"A pull request already exists for {repository.owner}:{head}.")
    draft = bool(request.body.get("draft"))
    pull = PullRequest(head=head, base=base, head_sha=repository.branches[head], draft=draft)
    if not _list_own_commits(repository, pull):
        raise _custom_error(f"No commits between {base} and {head}")
    issue = Issue(
        id=request.state.next_id(),
        number=max(repository.issues, default=0) + 1,
        title=title,
        body=request.body.get("body"),
        author=request.actor.login,
        created_at=now(),
        updated_at=now(),
        pull=pull,
    )
    repository.issues[issue.number] = issue
    return CreatedResponse(_render_pull(request, issue, pull))


def _has_open_pull(repository: GitHubRepository, head: str, base: str) -> bool:
    for issue in repository.issues.values():
        pull = issue.pull
        if pull and issue.state == "open" and (pull.head, pull.base) == (head, base):
            return True
    return False


def merge_pull(request: GitHubRequest) -> Json:
    issue, pull = _find_pull(request)
    repository = request.repository
    expected_sha = request.body.get("sha")
    if pull.draft:
        raise GitHubApiError(405, "Pull Request is still a draft")
    if issue.state == "closed" or not is_mergeable(repository, pull):
        raise GitHubApiError(405, "Pull Request is not mergeable")
    head_sha = _find_head(repository, pull)
    if expected_sha and expected_sha != head_sha:
        raise GitHubApiError(409, "Head branch was modified. Review and try the merge again.")
    merge_sha = _commit_merge(request, issue, pull, head_sha)
    pull.head_sha = head_sha
    pull.merge_sha = merge_sha
    pull.merged_at = now()
    pull.merged_by = request.actor.login
    issue.state = "closed"
    issue.closed_at = now()
    issue.updated_at = now()
    return {"sha": merge_sha, "merged": True, "message": "Pull Request successfully merged"}


def is_mergeable(repository: GitHubRepository, pull: PullRequest) -> bool:
    """Whether the base changed no file that the pull request changes."""
    base_sha = repository.branches[pull.base]
    base_changes = history.diff_trees(
        repository, _start_tree(repository, pull), repository.commits[base_sha].tree
    )
    base_paths = {change.path for change in base_changes}
    pull_paths = {change.path for change in _diff_pull(repository, pull)}
    return not base_paths & pull_paths


def _find_pull(request: GitHubRequest) -> tuple[Issue, PullRequest]:
    issue = request.repository.issues.get(request.path["number"])
    if issue is None or issue.pull is None:
        raise not_found()
    return issue, issue.pull


def _commit_merge(request: GitHubRequest, issue: Issue, pull: PullRequest, head_sha: str) -> str:
    repository = request.repository
    base_sha = repository.branches[pull.base]
    tree = dict(repository.commits[base_sha].tree)
    for change in _diff_pull(repository, pull):
        if change.status == "removed":
            tree.pop(change.path, None)
        else:
            tree[change.path] = change.blob
    if request.body.get("merge_method", "merge") == "merge":
        default_title = f"Merge pull request #{issue.number} from {pull.head}"
        parents = [base_sha, head_sha]
    else:
        default_title = f"{issue.title} (#{issue.number})"
        parents = [base_sha]
    message = str(request.body.get("commit_title") or default_title)
    author = request.actor.login
    return history.record_commit(repository, pull.base, message, author, now(), tree, parents).sha


def _diff_pull(repository: GitHubRepository, pull: PullRequest) -> list[history.FileChange]:
    """The changes of a pull request: from the merge base to its last commit."""
    head_sha = _find_head(repository, pull)
    return history.diff_trees(repository, _start_tree(repository, pull), repository.commits[head_sha].tree)


def _start_tree(repository: GitHubRepository, pull: PullRequest) -> dict[str, str]:
    """The files at the merge base of head and base."""
    base_sha = _find_base(repository, pull)
    merge_base = history.find_merge_base(repository, base_sha, _find_head(repository, pull))
    if merge_base is None:
        return {}
    return merge_base.tree


def _find_head(repository: GitHubRepository, pull: PullRequest) -> str:
    if pull.merged_at:
        return pull.head_sha
    return repository.branches.get(pull.head, pull.head_sha)


def _find_base(repository: GitHubRepository, pull: PullRequest) -> str:
    """The last commit of the base; after the merge, the one before it."""
    if pull.merge_sha:
        return repository.commits[pull.merge_sha].parents[0]
    return repository.branches[pull.base]


def _list_own_commits(repository: GitHubRepository, pull: PullRequest) -> list[str]:
    """The commits of the head that the base does not have."""
    base_commits = history.iterate_ancestors(repository, _find_base(repository, pull))
    base_shas = {commit.sha for commit in base_commits}
    head_commits = history.iterate_ancestors(repository, _find_head(repository, pull))
    return [commit.sha for commit in head_commits if commit.sha not in base_shas]


def _custom_error(message: str) -> GitHubApiError:
    error = {"resource": RESOURCE, "code": "custom", "message": message}
    return GitHubApiError(422, "Validation Failed", error)


def _render_pull(request: GitHubRequest, issue: Issue, pull: PullRequest) -> Json:
    renderer = request.renderer
    repository = request.repository
    body = renderer.issue(repository, issue)
    for key in ("pull_request", "comments", "state_reason", "repository_url"):
        del body[key]
    return body | {
        "url": renderer.api_url(repository, "pulls", issue.number),
        "draft": pull.draft,
        "merged_at": format_time(pull.merged_at),
        "merge_commit_sha": pull.merge_sha,
        "requested_reviewers": [renderer.user(login) for login in pull.reviewers],
        "head": {
            "ref": pull.head,
            "label": f"{repository.owner}:{pull.head}",
            "sha": _find_head(repository, pull),
        },
        "base": {
            "ref": pull.base,
            "label": f"{repository.owner}:{pull.base}",
            "sha": repository.branches[pull.base],
        },
    }
