"""Builds repositories with commits, issues, pull requests, releases and workflow runs."""

from datetime import datetime, timedelta

from ai_platform_engineering.demo.github import history
from ai_platform_engineering.demo.github.state import (
    Annotation,
    Comment,
    Commit,
    GitHubRepository,
    GitHubState,
    Issue,
    JobStep,
    PullRequest,
    Release,
    Review,
    WorkflowJob,
    WorkflowRun,
)


class RepositoryBuilder:
    """Builds a repository of one owner and what it holds; times are hours before the start."""

    def __init__(self, state: GitHubState, owner: str, start: datetime) -> None:
        self._state = state
        self._owner = owner
        self._start = start

    def ago(self, hours: float) -> datetime:
        return self._start - timedelta(hours=hours)

    def repository(
        self, name: str, description: str, *, private: bool, language: str, topics: list[str]
    ) -> GitHubRepository:
        created_at = self.ago(4000)
        return GitHubRepository(
            id=self._state.next_id(),
            owner=self._owner,
            name=name,
            description=description,
            private=private,
            language=language,
            topics=topics,
            created_at=created_at,
            pushed_at=created_at,
        )

    def commit(
        self,
        repository: GitHubRepository,
        branch: str,
        author: str,
        hours: float,
        message: str,
        files: dict[str, bytes],
    ) -> Commit:
        return history.commit_files(repository, branch, message, author, self.ago(hours), files)

    def issue(
        self,
        repository: GitHubRepository,
        title: str,
        author: str,
        hours: float,
        body: str,
        *labels: str,
        assignees: tuple[str, ...] = (),
    ) -> Issue:
        issue = Issue(
            id=self._state.next_id(),
            number=len(repository.issues) + 1,
            title=title,
            body=body,
            author=author,
            created_at=self.ago(hours),
            updated_at=self.ago(hours),
            labels=list(labels),
            assignees=list(assignees),
        )
        repository.issues[issue.number] = issue
        return issue

    def comment(self, issue: Issue, author: str, hours: float, body: str) -> None:
        issue.comments.append(
            Comment(id=self._state.next_id(), author=author, body=body, created_at=self.ago(hours))
        )
        issue.updated_at = self.ago(hours)

    def close(self, issue: Issue, hours: float) -> None:
        issue.state = "closed"
        issue.state_reason = "completed"
        issue.closed_at = self.ago(hours)
        issue.updated_at = self.ago(hours)

    def pull(
        self,
        repository: GitHubRepository,
        title: str,
        author: str,
        hours: float,
        head: str,
        body: str,
        *reviewers: str,
    ) -> tuple[Issue, PullRequest]:
        issue = self.issue(repository, title, author, hours, body)
        issue.pull = PullRequest(
            head=head,
            base=repository.default_branch,
            head_sha=repository.branches[head],
            reviewers=list(reviewers),
        )
        return issue, issue.pull

    def review(self, author: str, hours: float, body: str, *, approves: bool) -> Review:
        state = "APPROVED" if approves else "CHANGES_REQUESTED"
        return Review.model_validate(
            {
                "id": self._state.next_id(),
                "author": author,
                "state": state,
                "body": body,
                "submitted_at": self.ago(hours),
            }
        )

    def release(
        self, repository: GitHubRepository, tag: str, commit: Commit, hours: float, body: str
    ) -> None:
        repository.releases.append(
            Release(
                id=self._state.next_id(),
                tag=tag,
                sha=commit.sha,
                name=tag,
                body=body,
                author=commit.author,
                published_at=self.ago(hours),
            )
        )

    def job(
        self, name: str, *steps: str, failed: str | None = None, annotations: tuple[Annotation, ...] = ()
    ) -> WorkflowJob:
        """Builds a job that passed, or failed at a step: the steps after it are skipped."""
        conclusion = "success"
        job_steps: list[JobStep] = []
        for step in steps:
            if step == failed:
                job_steps.append(JobStep(name=step, conclusion="failure"))
                conclusion = "failure"
            elif conclusion == "failure":
                job_steps.append(JobStep(name=step, conclusion="skipped"))
            else:
                job_steps.append(JobStep(name=step, conclusion="success"))
        return WorkflowJob(
            id=self._state.next_id(),
            name=name,
            conclusion=conclusion,
            steps=job_steps,
            annotations=list(annotations),
        )

    def run(
        self,
        repository: GitHubRepository,
        name: str,
        commit: Commit,
        branch: str,
        hours: float,
        *jobs: WorkflowJob,
        event: str = "push",
    ) -> None:
        failed = any(job.conclusion == "failure" for job in jobs)
        repository.runs.append(
            WorkflowRun(
                id=self._state.next_id(),
                number=len(repository.runs) + 1,
                name=name,
                title=commit.message.splitlines()[0],
                event=event,
                branch=branch,
                sha=commit.sha,
                actor=commit.author,
                created_at=self.ago(hours),
                updated_at=self.ago(hours - 0.1),
                conclusion="failure" if failed else "success",
                jobs=list(jobs),
            )
        )
