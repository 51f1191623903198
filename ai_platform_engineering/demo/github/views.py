"""The state in the words of the API: the keys that clients read, with GitHub's names."""

import base64
from datetime import datetime
from typing import Any

from ai_platform_engineering.demo.github.history import FileChange
from ai_platform_engineering.demo.github.responses import BaseUrls, Json
from ai_platform_engineering.demo.github.state import (
    Account,
    Comment,
    Commit,
    GitHubRepository,
    GitHubState,
    Issue,
    Release,
    Review,
    WorkflowJob,
    WorkflowRun,
)


class JsonRenderer:
    """Bound to a state and to the addresses that links begin with."""

    def __init__(self, state: GitHubState, links: BaseUrls) -> None:
        self._state, self._links = state, links

    def web(self, repository: GitHubRepository, *parts: object) -> str:
        return "/".join([self._links.web, repository.full_name, *map(str, parts)])

    def api(self, repository: GitHubRepository, *parts: object) -> str:
        return "/".join([self._links.api, "repos", repository.full_name, *map(str, parts)])

    def user(self, login: str) -> Json:
        found = self._state.find_account(login) or Account(id=0, login=login)
        return {
            "login": found.login,
            "id": found.id,
            "type": found.type,
            "html_url": f"{self._links.web}/{found.login}",
        }

    def me(self, account: Account) -> Json:
        return self.user(account.login) | {"name": account.name, "email": None, "company": None}

    def repository(self, found: GitHubRepository) -> Json:
        still_open = sum(issue.state == "open" for issue in found.issues.values())
        return {
            "id": found.id,
            "name": found.name,
            "full_name": found.full_name,
            "private": found.private,
            "visibility": "private" if found.private else "public",
            "owner": self.user(found.owner),
            "html_url": self.web(found),
            "url": self.api(found),
            "clone_url": self.web(found) + ".git",
            "description": found.description,
            "fork": False,
            "archived": found.archived,
            "language": found.language,
            "topics": found.topics,
            "license": None,
            "default_branch": found.default_branch,
            "open_issues_count": still_open,
            "stargazers_count": 0,
            "forks_count": 0,
            "created_at": format_time(found.created_at),
            "updated_at": format_time(found.pushed_at),
            "pushed_at": format_time(found.pushed_at),
        }

    def branch(self, repository: GitHubRepository, name: str) -> Json:
        sha = repository.branches[name]
        return {
            "name": name,
            "commit": {"sha": sha, "url": self.api(repository, "commits", sha)},
            "protected": name == repository.default_branch,
        }

    def reference(self, repository: GitHubRepository, branch: str) -> Json:
        sha = repository.branches[branch]
        place = {"sha": sha, "type": "commit", "url": self.api(repository, "git/commits", sha)}
        return {
            "ref": f"refs/heads/{branch}",
            "url": self.api(repository, "git/refs/heads", branch),
            "object": place,
        }

    def commit(self, repository: GitHubRepository, found: Commit) -> Json:
        signature = {
            "name": found.author,
            "email": f"{found.author}@users.noreply.example",
            "date": format_time(found.date),
        }
        return {
            "sha": found.sha,
            "url": self.api(repository, "commits", found.sha),
            "html_url": self.web(repository, "commit", found.sha),
            "commit": {"message": found.message, "author": signature, "committer": signature},
            "author": self.user(found.author),
            "committer": self.user(found.author),
            "parents": [{"sha": sha, "url": self.api(repository, "commits", sha)} for sha in found.parents],
        }

    def change(self, repository: GitHubRepository, found: FileChange, ref: str) -> Json:
        body = {
            "sha": found.blob,
            "filename": found.path,
            "status": found.status,
            "additions": found.additions,
            "deletions": found.deletions,
            "changes": found.additions + found.deletions,
            "blob_url": self.web(repository, "blob", ref, found.path),
        }
        if found.patch is None:
            return body
        return body | {"patch": found.patch}

    def entry(self, repository: GitHubRepository, path: str, sha: str | None, ref: str) -> Json:
        """A file (with its blob) or a folder of a listing."""
        kind = "file" if sha else "dir"
        return {
            "name": path.rpartition("/")[2],
            "path": path,
            "sha": sha or "",
            "size": len(repository.blobs[sha]) if sha else 0,
            "type": kind,
            "url": f"{self.api(repository, 'contents', path)}?ref={ref}",
            "html_url": self.web(repository, "blob" if sha else "tree", ref, path),
        }

    def file(self, repository: GitHubRepository, path: str, sha: str, ref: str) -> Json:
        text = base64.encodebytes(repository.blobs[sha]).decode()
        return self.entry(repository, path, sha, ref) | {"encoding": "base64", "content": text}

    def issue(self, repository: GitHubRepository, found: Issue) -> Json:
        kind = "pull" if found.pull else "issues"
        body: Json = {
            "id": found.id,
            "number": found.number,
            "title": found.title,
            "body": found.body,
            "state": found.state,
            "state_reason": found.state_reason,
            "user": self.user(found.author),
            "labels": [{"name": label, "color": "ededed"} for label in found.labels],
            "assignees": [self.user(login) for login in found.assignees],
            "comments": len(found.comments),
            "created_at": format_time(found.created_at),
            "updated_at": format_time(found.updated_at),
            "closed_at": format_time(found.closed_at),
            "url": self.api(repository, "issues", found.number),
            "repository_url": self.api(repository),
            "html_url": self.web(repository, kind, found.number),
        }
        if found.pull:
            body |= {
                "pull_request": {
                    "url": self.api(repository, "pulls", found.number),
                    "merged_at": format_time(found.pull.merged_at),
                }
            }
        return body

    def comment(self, repository: GitHubRepository, issue: Issue, found: Comment) -> Json:
        return {
            "id": found.id,
            "user": self.user(found.author),
            "body": found.body,
            "created_at": format_time(found.created_at),
            "updated_at": format_time(found.created_at),
            "html_url": f"{self.web(repository, 'issues', issue.number)}#issuecomment-{found.id}",
        }

    def review(self, repository: GitHubRepository, issue: Issue, found: Review) -> Json:
        return {
            "id": found.id,
            "user": self.user(found.author),
            "state": found.state,
            "body": found.body,
            "submitted_at": format_time(found.submitted_at),
            "html_url": f"{self.web(repository, 'pull', issue.number)}#pullrequestreview-{found.id}",
        }

    def release(self, repository: GitHubRepository, found: Release) -> Json:
        return {
            "id": found.id,
            "tag_name": found.tag,
            "target_commitish": found.sha,
            "name": found.name,
            "body": found.body,
            "draft": False,
            "prerelease": found.prerelease,
            "author": self.user(found.author),
            "created_at": format_time(found.published_at),
            "published_at": format_time(found.published_at),
            "html_url": self.web(repository, "releases/tag", found.tag),
        }

    def run(self, repository: GitHubRepository, found: WorkflowRun) -> Json:
        return {
            "id": found.id,
            "name": found.name,
            "display_title": found.title,
            "run_number": found.number,
            "run_attempt": 1,
            "event": found.event,
            "status": found.status,
            "conclusion": found.conclusion,
            "head_branch": found.branch,
            "head_sha": found.sha,
            "actor": self.user(found.actor),
            "created_at": format_time(found.created_at),
            "updated_at": format_time(found.updated_at),
            "html_url": self.web(repository, "actions/runs", found.id),
        }

    def job(self, repository: GitHubRepository, run: WorkflowRun, found: WorkflowJob) -> Json:
        return self.check(repository, run, found) | {
            "run_id": run.id,
            "steps": [
                {
                    "number": number,
                    "name": step.name,
                    "status": _status(step.conclusion),
                    "conclusion": step.conclusion,
                }
                for number, step in enumerate(found.steps, 1)
            ],
        }

    def check(self, repository: GitHubRepository, run: WorkflowRun, found: WorkflowJob) -> Json:
        """A job as a check of its commit; both have the same id."""
        return {
            "id": found.id,
            "name": found.name,
            "head_sha": run.sha,
            "status": _status(found.conclusion),
            "conclusion": found.conclusion,
            "started_at": format_time(run.created_at),
            "completed_at": format_time(run.updated_at) if found.conclusion else None,
            "html_url": self.web(repository, "actions/runs", run.id, "job", found.id),
        }


def format_time(value: datetime | None) -> Any:
    if value:
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return None


def _status(conclusion: str | None) -> str:
    if conclusion:
        return "completed"
    return "in_progress"
