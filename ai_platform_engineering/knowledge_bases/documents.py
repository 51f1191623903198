"""What the knowledge base knows of a document."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as its source has it. `address` is where it came from, unique in its datasource: a path, or a URL."""

    address: str
    content: bytes
    media_type: str = ""  # as the source says, may be empty or wrong
    link: str | None = None  # what a person opens
    changed: datetime | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of text under its headings, outermost first. `kind` says what it may be cut by."""

    text: str
    headings: tuple[str, ...] = ()
    kind: str = "prose"  # prose, code, table, list


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A document as text, in order."""

    title: str
    sections: tuple[Section, ...]
    language: str = ""  # of source code


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document that is found as one. `start` and `end` are places in the document's text."""

    ordinal: int
    text: str
    headings: tuple[str, ...] = ()
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it is kept: its text, and the chunks that are found."""

    document_id: str
    datasource: str
    title: str
    address: str
    text: str
    digest: str  # of the content it was read from
    link: str | None = None
    kind: str = ""  # markdown, html, pdf, text, rst, openapi, code
    changed: datetime | None = None
    chunks: Sequence[Chunk] = field(default_factory=tuple)


class UnreadableDocument(Exception):
    """The document cannot be read; the text says why, for a person."""
