"""Requests and responses of the handlers: plain values, which `app.py` reads from and turns into HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.demo.github.json_renderer import BaseUrls, Json, JsonRenderer
from ai_platform_engineering.demo.github.state import Account, GitHubRepository, GitHubState


@dataclass(frozen=True, slots=True)
class ListResponse:
    """A list that is sent page by page; with a key it is wrapped in an object that counts the items."""

    items: Sequence[Json]
    key: str | None = None
    extra: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatedResponse:
    """A response with status 201."""

    body: Json


class GitHubApiError(Exception):
    """A response that is an error: GitHub's message, and its errors by field."""

    def __init__(self, status: int, message: str, *errors: Json) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors


class RepositoryMoved(Exception):
    """The repository was renamed: the client is redirected."""

    def __init__(self, repository: GitHubRepository) -> None:
        super().__init__(repository.full_name)
        self.repository = repository


def not_found() -> GitHubApiError:
    return GitHubApiError(404, "Not Found")


def validation_error(
    resource: str, field: str, code: str = "invalid", message: str | None = None
) -> GitHubApiError:
    """GitHub's error for a value that it does not accept."""
    error = {"resource": resource, "field": field, "code": code}
    if message:
        error["message"] = message
    return GitHubApiError(422, "Validation Failed", error)


@dataclass(frozen=True, slots=True)
class GitHubRequest:
    """A request after the token was checked."""

    state: GitHubState
    actor: Account
    base_urls: BaseUrls
    path: Mapping[str, Any]
    query: Mapping[str, str]
    body: Json

    @property
    def renderer(self) -> JsonRenderer:
        return JsonRenderer(self.state, self.base_urls)

    @property
    def repository(self) -> GitHubRepository:
        """The repository that the path names. Raises RepositoryMoved or GitHubApiError."""
        owner = self.path["owner"]
        name = self.path["repo"]
        repository = self.state.find_repository(owner, name)
        if repository is not None:
            return repository
        repository = self.state.find_renamed_repository(owner, name)
        if repository is not None:
            raise RepositoryMoved(repository)
        raise not_found()

    def find_account(self) -> Account:
        """The account that the path names. Raises GitHubApiError."""
        account = self.state.find_account(self.path["login"])
        if account is None:
            raise not_found()
        return account

    def require_text(self, name: str, resource: str) -> str:
        """A value of the body that must be there. Raises GitHubApiError."""
        value = self.body.get(name)
        if not isinstance(value, str) or not value.strip():
            raise validation_error(resource, name, "missing_field")
        return value

    def read_names(self, name: str, resource: str) -> list[str]:
        """A list of texts in the body; labels may also come as objects. Raises GitHubApiError."""
        value = self.body.get(name) or []
        if not isinstance(value, list):
            raise validation_error(resource, name)
        names: list[str] = []
        for item in value:
            text = item.get("name") if isinstance(item, dict) else item
            if not isinstance(text, str) or not text:
                raise validation_error(resource, name)
            names.append(text)
        return names
