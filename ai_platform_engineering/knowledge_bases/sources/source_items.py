"""Sources of documents, and the items that they list: a document that changed or not, was skipped or
removed."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Protocol

from ai_platform_engineering.knowledge_bases.documents import RawDocument


@dataclass(frozen=True, slots=True)
class ChangedItem:
    """A document that is new or has changed. `mark`: the source's change mark, like an ETag; given back at
    the next pass, it tells whether the document changed again."""

    raw: RawDocument
    mark: str

    @property
    def address(self) -> str:
        return self.raw.address


@dataclass(frozen=True, slots=True)
class UnchangedItem:
    """A document that has not changed since its mark; the new mark replaces that one."""

    address: str
    mark: str


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Something that gives no document, and why, for a person. A stored document with this address stays."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class RemovedItem:
    """A stored document that the source no longer has. One that merely cannot be read is not removed."""

    address: str


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """Who is in a group of the source now: the documents that are visible to the group are for them."""

    name: str
    members: tuple[str, ...]


SourceItem = ChangedItem | UnchangedItem | SkippedItem | RemovedItem | GroupMembers


class DocumentSource(Protocol):
    """Lists and fetches the documents of a location."""

    @property
    def kind(self) -> str:
        """folder, web, git, or the prefix of a connector's locations."""

    @property
    def location(self) -> str:
        """The location from which the same source can be created again."""

    @property
    def revision(self) -> str | None:
        """The version that was read, where the source has one: a commit."""

    @property
    def next_cursor(self) -> str:
        """Where the next pass goes on, once all items were listed; empty if it lists everything again."""

    async def count(self) -> int | None:
        """About how many documents there are, if that is cheap to know. Raises SourceUnavailable."""

    def items(self, known_marks: Mapping[str, str], cursor: str = "") -> AsyncGenerator[SourceItem, None]:
        """Each document once, fetched when the iterator reaches it. `known_marks`: the change marks of stored
        documents, by address. `cursor`: the `next_cursor` of the last pass that ended well; a source that has
        one may leave out what has not changed since. A stored document that is not listed stays.

        Raises SourceUnavailable."""
