"""What a handler is given and what it gives back: plain values, which `app.py` turns into HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.demo.github.state import Account, Repository, State

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Links:
    """Where people and programs find things."""

    web: str
    api: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A list that is given page by page; with a key it is wrapped and counted."""

    items: Sequence[Json]
    key: str | None = None
    extra: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Created:
    body: Json


class Refused(Exception):
    """An answer that is an error: GitHub's message, and its errors by field."""

    def __init__(self, status: int, message: str, *errors: Json) -> None:
        super().__init__(message)
        self.status, self.message, self.errors = status, message, errors


class Moved(Exception):
    """The repository has another name now."""

    def __init__(self, repository: Repository) -> None:
        super().__init__(repository.full_name)
        self.repository = repository


def not_found() -> Refused:
    return Refused(404, "Not Found")


def invalid(resource: str, field: str, code: str = "invalid", message: str | None = None) -> Refused:
    """GitHub's answer to a value that it does not accept."""
    error = {"resource": resource, "field": field, "code": code} | ({"message": message} if message else {})
    return Refused(422, "Validation Failed", error)


@dataclass(frozen=True, slots=True)
class Call:
    """A request after the token was checked."""

    state: State
    actor: Account
    links: Links
    path: Mapping[str, Any]
    query: Mapping[str, str]
    body: Json

    @property
    def repository(self) -> Repository:
        owner, name = self.path["owner"], self.path["repo"]
        if found := self.state.repository(owner, name):
            return found
        if found := self.state.moved(owner, name):
            raise Moved(found)
        raise not_found()

    def text(self, name: str, resource: str) -> str:
        """A value of the body that must be there."""
        value = self.body.get(name)
        if not isinstance(value, str) or not value.strip():
            raise invalid(resource, name, "missing_field")
        return value

    def names(self, name: str, resource: str) -> list[str]:
        """A list of texts in the body; labels may also come as objects."""
        value = self.body.get(name) or []
        found = [entry.get("name") if isinstance(entry, dict) else entry for entry in value] if isinstance(value, list) else [None]
        if not all(isinstance(entry, str) and entry for entry in found):
            raise invalid(resource, name)
        return [str(entry) for entry in found]
