"""What a source tells about its documents, one by one."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Protocol

from ai_platform_engineering.knowledge_bases.documents import RawDocument


@dataclass(frozen=True, slots=True)
class ChangedItem:
    """A document that is new or has changed. `mark` is the source's own: given back, it tells whether the document changed."""

    raw: RawDocument
    mark: str

    @property
    def address(self) -> str:
        return self.raw.address


@dataclass(frozen=True, slots=True)
class UnchangedItem:
    """A document as it was when its mark was made; the new mark replaces that."""

    address: str
    mark: str


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Something that gives no document, and why, for a person. What is known of it stays."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class RemovedItem:
    """A known document that the source no longer has. What merely failed is not gone."""

    address: str


SourceItem = ChangedItem | UnchangedItem | SkippedItem | RemovedItem


class DocumentSource(Protocol):
    """Where documents come from."""

    @property
    def kind(self) -> str:
        """folder, web or git."""

    @property
    def location(self) -> str:
        """As it can be given again."""

    @property
    def revision(self) -> str | None:
        """Which state was read, where the source has a name for it: a commit."""

    async def count(self) -> int | None:
        """About how many documents there are, when that is cheap to know. Raises SourceUnavailable."""

    def items(self, known: Mapping[str, str]) -> AsyncGenerator[SourceItem, None]:
        """Each document once, read when it is asked for; `known` has the mark of each address. Raises SourceUnavailable."""
