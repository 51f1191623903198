"""State of the stand-in for GitHub: accounts and repositories with all they hold, in memory and as JSON."""

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _GitHubModel(BaseModel):
    """A part of the state that is stored as JSON; bytes are Base64 there."""

    model_config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class Account(_GitHubModel):
    id: int
    login: str
    type: Literal["User", "Organization"] = "User"
    name: str | None = None
    members: list[str] = Field(default_factory=list)


class Commit(_GitHubModel):
    """A commit; its tree maps the path of each file to a blob."""

    sha: str
    message: str
    author: str
    date: datetime
    parents: list[str]
    tree: dict[str, str]


class Comment(_GitHubModel):
    id: int
    author: str
    body: str
    created_at: datetime


class Review(_GitHubModel):
    id: int
    author: str
    state: Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED"]
    body: str
    submitted_at: datetime


class PullRequest(_GitHubModel):
    """The part of a pull request that an issue does not have."""

    head: str
    base: str
    head_sha: str
    draft: bool = False
    merged_at: datetime | None = None
    merged_by: str | None = None
    merge_sha: str | None = None
    reviews: list[Review] = Field(default_factory=list)
    reviewers: list[str] = Field(default_factory=list)


class Issue(_GitHubModel):
    id: int
    number: int
    title: str
    body: str | None
    author: str
    created_at: datetime
    updated_at: datetime
    state: Literal["open", "closed"] = "open"
    state_reason: str | None = None
    closed_at: datetime | None = None
    labels: list[str] = Field(default_factory=list)
    assignees: list[str] = Field(default_factory=list)
    comments: list[Comment] = Field(default_factory=list)
    pull: PullRequest | None = None


class JobStep(_GitHubModel):
    name: str
    conclusion: str | None = "success"


class Annotation(_GitHubModel):
    path: str
    line: int
    message: str
    level: Literal["notice", "warning", "failure"] = "failure"


class WorkflowJob(_GitHubModel):
    id: int
    name: str
    conclusion: str | None
    steps: list[JobStep]
    annotations: list[Annotation] = Field(default_factory=list)


class WorkflowRun(_GitHubModel):
    id: int
    number: int
    name: str
    title: str
    event: str
    branch: str
    sha: str
    actor: str
    created_at: datetime
    updated_at: datetime
    conclusion: str | None
    jobs: list[WorkflowJob]

    @property
    def status(self) -> str:
        if self.conclusion:
            return "completed"
        return "in_progress"


class Release(_GitHubModel):
    id: int
    tag: str
    sha: str
    name: str
    body: str
    author: str
    published_at: datetime
    prerelease: bool = False


class GitHubRepository(_GitHubModel):
    id: int
    owner: str
    name: str
    description: str | None
    private: bool
    created_at: datetime
    pushed_at: datetime
    language: str | None = None
    topics: list[str] = Field(default_factory=list)
    archived: bool = False
    default_branch: str = "main"
    former_names: list[str] = Field(default_factory=list)
    blobs: dict[str, bytes] = Field(default_factory=dict)
    commits: dict[str, Commit] = Field(default_factory=dict)
    branches: dict[str, str] = Field(default_factory=dict)
    issues: dict[int, Issue] = Field(default_factory=dict)
    runs: list[WorkflowRun] = Field(default_factory=list)
    releases: list[Release] = Field(default_factory=list)

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"


class GitHubState(_GitHubModel):
    """The whole state; `repositories` is keyed by owner/name."""

    accounts: dict[str, Account] = Field(default_factory=dict)
    repositories: dict[str, GitHubRepository] = Field(default_factory=dict)
    last_id: int = 1000

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def find_account(self, login: str) -> Account | None:
        for account in self.accounts.values():
            if account.login.lower() == login.lower():
                return account
        return None

    def find_repository(self, owner: str, name: str) -> GitHubRepository | None:
        full_name = f"{owner}/{name}".lower()
        for key, repository in self.repositories.items():
            if key.lower() == full_name:
                return repository
        return None

    def find_renamed_repository(self, owner: str, name: str) -> GitHubRepository | None:
        """The repository that had this name before."""
        for repository in self.repositories.values():
            if f"{owner}/{name}" in repository.former_names:
                return repository
        return None

    def save(self, path: Path) -> None:
        """Replaces the file as a whole: a reader sees the old state or the new one."""
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(self.model_dump_json())
        os.replace(file.name, path)


def load_state(path: Path) -> GitHubState:
    return GitHubState.model_validate_json(path.read_bytes())


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
