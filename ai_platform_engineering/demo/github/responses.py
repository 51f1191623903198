"""What a handler is given and what it gives back: plain values, which `app.py` turns into HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.demo.github.state import Account, GitHubRepository, GitHubState

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BaseUrls:
    """Where people and programs find things."""

    web: str
    api: str


@dataclass(frozen=True, slots=True)
class ListResponse:
    """A list that is given page by page; with a key it is wrapped and counted."""

    items: Sequence[Json]
    key: str | None = None
    extra: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatedResponse:
    body: Json


class GitHubApiError(Exception):
    """An answer that is an error: GitHub's message, and its errors by field."""

    def __init__(self, status: int, message: str, *errors: Json) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors


class RepositoryMoved(Exception):
    """The repository has another name now."""

    def __init__(self, repository: GitHubRepository) -> None:
        super().__init__(repository.full_name)
        self.repository = repository


def not_found() -> GitHubApiError:
    return GitHubApiError(404, "Not Found")


def validation_error(
    resource: str, field: str, code: str = "invalid", message: str | None = None
) -> GitHubApiError:
    """GitHub's answer to a value that it does not accept."""
    error = {"resource": resource, "field": field, "code": code} | ({"message": message} if message else {})
    return GitHubApiError(422, "Validation Failed", error)


@dataclass(frozen=True, slots=True)
class GitHubRequest:
    """A request after the token was checked."""

    state: GitHubState
    actor: Account
    links: BaseUrls
    path: Mapping[str, Any]
    query: Mapping[str, str]
    body: Json

    @property
    def repository(self) -> GitHubRepository:
        owner, name = self.path["owner"], self.path["repo"]
        if found := self.state.find_repository(owner, name):
            return found
        if found := self.state.find_renamed_repository(owner, name):
            raise RepositoryMoved(found)
        raise not_found()

    def require_text(self, name: str, resource: str) -> str:
        """A value of the body that must be there."""
        value = self.body.get(name)
        if not isinstance(value, str) or not value.strip():
            raise validation_error(resource, name, "missing_field")
        return value

    def require_names(self, name: str, resource: str) -> list[str]:
        """A list of texts in the body; labels may also come as objects."""
        value = self.body.get(name) or []
        found = (
            [entry.get("name") if isinstance(entry, dict) else entry for entry in value]
            if isinstance(value, list)
            else [None]
        )
        if not all(isinstance(entry, str) and entry for entry in found):
            raise validation_error(resource, name)
        return [str(entry) for entry in found]
