"""A document on its way into the knowledge base: raw bytes, parsed sections, chunks, and as it is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ai_platform_engineering.knowledge_bases.access import VisibleTo


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as its source has it. `address`: the path or URL it came from, unique in its datasource.

    `title` and `headings` are known to the source, not to the content: a title, and what the document stands
    below, outermost first."""

    address: str
    content: bytes
    media_type: str = ""  # as the source says, may be empty or wrong
    link: str | None = None  # what a person opens
    changed: datetime | None = None
    title: str = ""
    headings: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    visible_to: VisibleTo = None


@dataclass(frozen=True, slots=True)
class Section:
    """Text under its headings, outermost first. `kind` decides where chunking may cut it."""

    text: str
    headings: tuple[str, ...] = ()
    kind: str = "prose"  # prose, code, table, list


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A document as sections of text, in order. `missing_*`: what was left out because of a limit."""

    title: str
    sections: tuple[Section, ...]
    language: str = ""  # of source code
    missing_chars: int = 0  # at the end
    missing_parts: tuple[str, ...] = ()  # as people say it: the last 200 of 5,200 pages


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document that search finds. `start` and `end` are offsets in the document's text."""

    ordinal: int
    text: str
    headings: tuple[str, ...] = ()
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it is stored: its text, and its chunks."""

    document_id: str
    datasource: str
    title: str
    address: str
    text: str
    digest: str  # of the content it was read from
    link: str | None = None
    kind: str = ""  # markdown, html, pdf, docx and so on
    changed: datetime | None = None
    chunks: Sequence[Chunk] = field(default_factory=tuple)
    missing: str = ""  # what a limit cut off, for a person
    metadata: Mapping[str, str] = field(default_factory=dict)  # what its source says about it
    visible_to: VisibleTo = None


class UnreadableDocument(Exception):
    """A document cannot be read; the message says why, for a person."""
