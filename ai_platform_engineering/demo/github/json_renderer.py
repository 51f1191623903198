"""Renders the state as JSON objects with the keys of GitHub's REST API."""

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ai_platform_engineering.demo.github.history import FileChange
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

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BaseUrls:
    """Where links to pages and to the API begin."""

    web: str
    api: str


class JsonRenderer:
    """Renders objects of a state; links begin with the base URLs."""

    def __init__(self, state: GitHubState, base_urls: BaseUrls) -> None:
        self._state = state
        self._base_urls = base_urls

    def web_url(self, repository: GitHubRepository, *parts: object) -> str:
        return "/".join([self._base_urls.web, repository.full_name, *map(str, parts)])

    def api_url(self, repository: GitHubRepository, *parts: object) -> str:
        return "/".join([self._base_urls.api, "repos", repository.full_name, *map(str, parts)])

    def user(self, login: str) -> Json:
        account = self._state.find_account(login) or Account(id=0, login=login)
        return {
            "login": account.login,
            "id": account.id,
            "type": account.type,
            "html_url": f"{self._base_urls.web}/{account.login}",
        }

    def account(self, account: Account) -> Json:
        return self.user(account.login) | {"name": account.name, "email": None, "company": None}

    def repository(self, repository: GitHubRepository) -> Json:
        open_issues = sum(issue.state == "open" for issue in repository.issues.values())
        return {
            "id": repository.id,
            "name": repository.name,
            "full_name": repository.full_name,
            "private": repository.private,
            "visibility": "private" if repository.private else "public",
            "owner": self.user(repository.owner),
            "html_url": self.web_url(repository),
            "url": self.api_url(repository),
            "clone_url": self.web_url(repository) + ".git",
            "description": repository.description,
            "fork": False,
            "archived": repository.archived,
            "language": repository.language,
            "topics": repository.topics,
            "license": None,
            "default_branch": repository.default_branch,
            "open_issues_count": open_issues,
            "stargazers_count": 0,
            "forks_count": 0,
            "created_at": format_time(repository.created_at),
            "updated_at": format_time(repository.pushed_at),
            "pushed_at": format_time(repository.pushed_at),
        }

    def branch(self, repository: GitHubRepository, name: str) -> Json:
        sha = repository.branches[name]
        return {
            "name": name,
            "commit": {"sha": sha, "url": self.api_url(repository, "commits", sha)},
            "protected": name == repository.default_branch,
        }

    def reference(self, repository: GitHubRepository, branch: str) -> Json:
        sha = repository.branches[branch]
        target = {"sha": sha, "type": "commit", "url": self.api_url(repository, "git/commits", sha)}
        return {
            "ref": f"refs/heads/{branch}",
            "url": self.api_url(repository, "git/refs/heads", branch),
            "object": target,
        }

    def commit(self, repository: GitHubRepository, commit: Commit) -> Json:
        signature = {
            "name": commit.author,
            "email": f"{commit.author}@users.noreply.example",
            "date": format_time(commit.date),
        }
        return {
            "sha": commit.sha,
            "url": self.api_url(repository, "commits", commit.sha),
            "html_url": self.web_url(repository, "commit", commit.sha),
            "commit": {"message": commit.message, "author": signature, "committer": signature},
            "author": self.user(commit.author),
            "committer": self.user(commit.author),
            "parents": [
                {"sha": sha, "url": self.api_url(repository, "commits", sha)} for sha in commit.parents
            ],
        }

    def change(self, repository: GitHubRepository, change: FileChange, ref: str) -> Json:
        body = {
            "sha": change.blob,
            "filename": change.path,
            "status": change.status,
            "additions": change.additions,
            "deletions": change.deletions,
            "changes": change.additions + change.deletions,
            "blob_url": self.web_url(repository, "blob", ref, change.path),
        }
        if change.patch is None:
            return body
        return body | {"patch": change.patch}

    def entry(self, repository: GitHubRepository, path: str, sha: str | None, ref: str) -> Json:
        """A file of a listing with the sha of its blob, or a folder without one."""
        entry = {
            "name": path.rpartition("/")[2],
            "path": path,
            "sha": "",
            "size": 0,
            "type": "dir",
            "url": f"{self.api_url(repository, 'contents', path)}?ref={ref}",
            "html_url": self.web_url(repository, "tree", ref, path),
        }
        if sha:
            entry |= {
                "sha": sha,
                "size": len(repository.blobs[sha]),
                "type": "file",
                "html_url": self.web_url(repository, "blob", ref, path),
            }
        return entry

    def file(self, repository: GitHubRepository, path: str, sha: str, ref: str) -> Json:
        text = base64.encodebytes(repository.blobs[sha]).decode()
        return self.entry(repository, path, sha, ref) | {"encoding": "base64", "content": text}

    def issue(self, repository: GitHubRepository, issue: Issue) -> Json:
        kind = "pull" if issue.pull else "issues"
        body: Json = {
            "id": issue.id,
            "number": issue.number,
            "title": issue.title,
            "body": issue.body,
            "state": issue.state,
            "state_reason": issue.state_reason,
            "user": self.user(issue.author),
            "labels": [{"name": label, "color": "ededed"} for label in issue.labels],
            "assignees": [self.user(login) for login in issue.assignees],
            "comments": len(issue.comments),
            "created_at": format_time(issue.created_at),
            "updated_at": format_time(issue.updated_at),
            "closed_at": format_time(issue.closed_at),
            "url": self.api_url(repository, "issues", issue.number),
            "repository_url": self.api_url(repository),
            "html_url": self.web_url(repository, kind, issue.number),
        }
        if issue.pull:
            body |= {
                "pull_request": {
                    "url": self.api_url(repository, "pulls", issue.number),
                    "merged_at": format_time(issue.pull.merged_at),
                }
            }
        return body

    def comment(self, repository: GitHubRepository, issue: Issue, comment: Comment) -> Json:
        return {
            "id": comment.id,
            "user": self.user(comment.author),
            "body": comment.body,
            "created_at": format_time(comment.created_at),
            "updated_at": format_time(comment.created_at),
            "html_url": f"{self.web_url(repository, 'issues', issue.number)}#issuecomment-{comment.id}",
        }

    def review(self, repository: GitHubRepository, issue: Issue, review: Review) -> Json:
        return {
            "id": review.id,
            "user": self.user(review.author),
            "state": review.state,
            "body": review.body,
            "submitted_at": format_time(review.submitted_at),
            "html_url": f"{self.web_url(repository, 'pull', issue.number)}#pullrequestreview-{review.id}",
        }

    def release(self, repository: GitHubRepository, release: Release) -> Json:
        return {
            "id": release.id,
            "tag_name": release.tag,
            "target_commitish": release.sha,
            "name": release.name,
            "body": release.body,
            "draft": False,
            "prerelease": release.prerelease,
            "author": self.user(release.author),
            "created_at": format_time(release.published_at),
            "published_at": format_time(release.published_at),
            "html_url": self.web_url(repository, "releases/tag", release.tag),
        }

    def run(self, repository: GitHubRepository, run: WorkflowRun) -> Json:
        return {
            "id": run.id,
            "name": run.name,
            "display_title": run.title,
            "run_number": run.number,
            "run_attempt": 1,
            "event": run.event,
            "status": run.status,
            "conclusion": run.conclusion,
            "head_branch": run.branch,
            "head_sha": run.sha,
            "actor": self.user(run.actor),
            "created_at": format_time(run.created_at),
            "updated_at": format_time(run.updated_at),
            "html_url": self.web_url(repository, "actions/runs", run.id),
        }

    def job(self, repository: GitHubRepository, run: WorkflowRun, job: WorkflowJob) -> Json:
        return self.check(repository, run, job) | {
            "run_id": run.id,
            "steps": [
                {
                    "number": number,
                    "name": step.name,
                    "status": _run_status(step.conclusion),
                    "conclusion": step.conclusion,
                }
                for number, step in enumerate(job.steps, 1)
            ],
        }

    def check(self, repository: GitHubRepository, run: WorkflowRun, job: WorkflowJob) -> Json:
        """A job as a check of its commit; both have the same id."""
        return {
            "id": job.id,
            "name": job.name,
            "head_sha": run.sha,
            "status": _run_status(job.conclusion),
            "conclusion": job.conclusion,
            "started_at": format_time(run.created_at),
            "completed_at": format_time(run.updated_at) if job.conclusion else None,
            "html_url": self.web_url(repository, "actions/runs", run.id, "job", job.id),
        }


def format_time(value: datetime | None) -> Any:
    if value:
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return None


def _run_status(conclusion: str | None) -> str:
    if conclusion:
        return "completed"
    return "in_progress"
