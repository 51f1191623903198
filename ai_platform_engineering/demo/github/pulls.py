"""Pull requests: reading, opening and merging them."""

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
from ai_platform_engineering.demo.github.state import GitHubRepository, Issue, PullRequest, now
from ai_platform_engineering.demo.github.views import JsonRenderer, format_time

RESOURCE = "PullRequest"


def find(call: GitHubRequest) -> tuple[Issue, PullRequest]:
    found = call.repository.issues.get(call.path["number"])
    if found is None or found.pull is None:
        raise not_found()
    return found, found.pull


def pulls(call: GitHubRequest) -> ListResponse:
    repository, state = call.repository, call.query.get("state", "open")
    base, head = call.query.get("base"), call.query.get("head")
    chosen = [
        (one, one.pull)
        for one in sorted(
            repository.issues.values(), key=lambda one: (one.created_at, one.number), reverse=True
        )
        if one.pull
        and state in ("all", one.state)
        and base in (None, one.pull.base)
        and head in (None, f"{repository.owner}:{one.pull.head}")
    ]
    return ListResponse([_body(call, one, pull) for one, pull in chosen])


def show(call: GitHubRequest) -> Json:
    issue, pull = find(call)
    changed = changes(call.repository, pull)
    return _body(call, issue, pull) | {
        "merged": pull.merged_at is not None,
        "mergeable": None if pull.merged_at else is_mergeable(call.repository, pull),
        "mergeable_state": "unknown"
        if pull.merged_at
        else "clean"
        if is_mergeable(call.repository, pull)
        else "dirty",
        "merged_by": JsonRenderer(call.state, call.links).user(pull.merged_by) if pull.merged_by else None,
        "comments": len(issue.comments),
        "commits": len(_own(call.repository, pull)),
        "additions": sum(change.additions for change in changed),
        "deletions": sum(change.deletions for change in changed),
        "changed_files": len(changed),
    }


def files(call: GitHubRequest) -> ListResponse:
    _, pull = find(call)
    render = JsonRenderer(call.state, call.links)
    return ListResponse(
        [render.change(call.repository, change, pull.head_sha) for change in changes(call.repository, pull)]
    )


def reviews(call: GitHubRequest) -> ListResponse:
    issue, pull = find(call)
    render = JsonRenderer(call.state, call.links)
    return ListResponse([render.review(call.repository, issue, review) for review in pull.reviews])


def create(call: GitHubRequest) -> CreatedResponse:
    repository, title = call.repository, call.require_text("title", RESOURCE)
    head, base = (
        call.require_text("head", RESOURCE).removeprefix(f"{repository.owner}:"),
        call.require_text("base", RESOURCE),
    )
    for field, name in (("head", head), ("base", base)):
        if name not in repository.branches:
            raise validation_error(RESOURCE, field)
    if any(
        one.pull and one.state == "open" and (one.pull.head, one.pull.base) == (head, base)
        for one in repository.issues.values()
    ):
        raise GitHubApiError(
            422, "Validation Failed", _custom(f"A pull request already exists for {repository.owner}:{head}.")
        )
    pull = PullRequest(
        head=head, base=base, head_sha=repository.branches[head], draft=bool(call.body.get("draft"))
    )
    if not _own(repository, pull):
        raise GitHubApiError(422, "Validation Failed", _custom(f"No commits between {base} and {head}"))
    made = Issue(
        id=call.state.next_id(),
        number=max(repository.issues, default=0) + 1,
        title=title,
        body=call.body.get("body"),
        author=call.actor.login,
        created_at=now(),
        updated_at=now(),
        pull=pull,
    )
    repository.issues[made.number] = made
    return CreatedResponse(_body(call, made, pull))


def merge(call: GitHubRequest) -> Json:
    issue, pull = find(call)
    repository, expected = call.repository, call.body.get("sha")
    if pull.draft:
        raise GitHubApiError(405, "Pull Request is still a draft")
    if issue.state == "closed" or not is_mergeable(repository, pull):
        raise GitHubApiError(405, "Pull Request is not mergeable")
    head = _head(repository, pull)
    if expected and expected != head:
        raise GitHubApiError(409, "Head branch was modified. Review and try the merge again.")
    sha = _merged(call, repository, issue, pull, head)
    pull.head_sha = head
    pull.merge_sha = sha
    pull.merged_at = now()
    pull.merged_by = call.actor.login
    issue.state = "closed"
    issue.closed_at = now()
    issue.updated_at = now()
    return {"sha": sha, "merged": True, "message": "Pull Request successfully merged"}


def changes(repository: GitHubRepository, pull: PullRequest) -> list[history.FileChange]:
    """What a pull request brings: from where its branch left the base to its last commit."""
    head = _head(repository, pull)
    start = _start(repository, pull)
    return history.diff_trees(
        repository, repository.commits[start].tree if start else {}, repository.commits[head].tree
    )


def is_mergeable(repository: GitHubRepository, pull: PullRequest) -> bool:
    """Whether the base left alone every file that the pull request changes."""
    start = _start(repository, pull)
    before = repository.commits[start].tree if start else {}
    theirs = {
        change.path
        for change in history.diff_trees(
            repository, before, repository.commits[repository.branches[pull.base]].tree
        )
    }
    return not theirs & {change.path for change in changes(repository, pull)}


def _merged(
    call: GitHubRequest, repository: GitHubRepository, issue: Issue, pull: PullRequest, head: str
) -> str:
    method = call.body.get("merge_method", "merge")
    base = repository.branches[pull.base]
    tree = dict(repository.commits[base].tree)
    for change in changes(repository, pull):
        if change.status == "removed":
            tree.pop(change.path, None)
        else:
            tree[change.path] = change.blob
    default = (
        f"Merge pull request #{issue.number} from {pull.head}"
        if method == "merge"
        else f"{issue.title} (#{issue.number})"
    )
    message = str(call.body.get("commit_title") or default)
    parents = [base, head] if method == "merge" else [base]
    return history.record_commit(repository, pull.base, message, call.actor.login, now(), tree, parents).sha


def _head(repository: GitHubRepository, pull: PullRequest) -> str:
    if pull.merged_at:
        return pull.head_sha
    return repository.branches.get(pull.head, pull.head_sha)


def _start(repository: GitHubRepository, pull: PullRequest) -> str | None:
    """Where the branch left the base; after the merge, the base as it was before."""
    base = repository.commits[pull.merge_sha].parents[0] if pull.merge_sha else repository.branches[pull.base]
    found = history.find_merge_base(repository, base, _head(repository, pull))
    if found:
        return found.sha
    return None


def _own(repository: GitHubRepository, pull: PullRequest) -> list[str]:
    base = repository.commits[pull.merge_sha].parents[0] if pull.merge_sha else repository.branches[pull.base]
    known = {one.sha for one in history.iterate_ancestors(repository, base)}
    return [
        one.sha
        for one in history.iterate_ancestors(repository, _head(repository, pull))
        if one.sha not in known
    ]


def _custom(message: str) -> Json:
    return {"resource": RESOURCE, "code": "custom", "message": message}


def _body(call: GitHubRequest, issue: Issue, pull: PullRequest) -> Json:
    render, repository = JsonRenderer(call.state, call.links), call.repository
    body = render.issue(repository, issue)
    for key in ("pull_request", "comments", "state_reason", "repository_url"):
        del body[key]
    return body | {
        "url": render.api(repository, "pulls", issue.number),
        "draft": pull.draft,
        "merged_at": format_time(pull.merged_at),
        "merge_commit_sha": pull.merge_sha,
        "requested_reviewers": [render.user(login) for login in pull.reviewers],
        "head": {
            "ref": pull.head,
            "label": f"{repository.owner}:{pull.head}",
            "sha": _head(repository, pull),
        },
        "base": {
            "ref": pull.base,
            "label": f"{repository.owner}:{pull.base}",
            "sha": repository.branches[pull.base],
        },
    }
