"""What the knowledge base answers: results, pages of documents, pages of the web."""

import hashlib
from dataclasses import dataclass

from ai_platform_engineering.core.errors import CaipeError

_MARK = 8  # hex digits


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A chunk that was found, with its document. `offset` is where the chunk begins in the document's text."""

    document_id: str
    title: str
    link: str | None
    datasource: str
    score: float
    snippet: str
    headings: tuple[str, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class DocumentExcerpt:
    """A document from a place on, to its end."""

    document_id: str
    title: str
    link: str | None
    datasource: str
    offset: int
    text: str
    total_chars: int


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page of the web as text."""

    url: str
    title: str
    kind: str
    text: str

    @property
    def document_id(self) -> str:
        return compute_document_id("fetch_url", self.url)


class KnowledgeNotFound(CaipeError):
    """There is no such document, datasource or job."""

    code = "not_found"


def compute_document_id(datasource: str, address: str) -> str:
    """Stable: the same document of the same datasource keeps its id."""
    return hashlib.sha256(f"{datasource}\0{address}".encode()).hexdigest()[:32]


def format_citation(document_id: str) -> str:
    """The mark that an answer names a document by."""
    return f"[kb:{document_id[:_MARK]}]"
