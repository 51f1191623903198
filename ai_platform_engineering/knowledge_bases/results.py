"""What the knowledge base returns: search results, texts of documents, pages of the web, and its error for
unknown ids."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from ai_platform_engineering.core.errors import CaipeError

_CITATION_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a search found a document: the words of the query that its passage has in some form, the
    identifiers that it holds exactly, and its scores in each ranking, beside the best; None where there was
    no such ranking."""

    words: tuple[str, ...]
    exact: tuple[str, ...]
    word_score: float | None
    meaning_score: float | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A document that a search found, with its best chunk. `offset`: where the chunk begins in the document's
    text; `more_offsets`: where other chunks do that were found."""

    document_id: str
    title: str
    link: str | None
    datasource: str
    score: float
    snippet: str
    headings: tuple[str, ...]
    offset: int
    kind: str = ""  # of the document: markdown, html, pdf, ...
    more_offsets: tuple[int, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    explanation: Explanation | None = None  # where it was asked for


@dataclass(frozen=True, slots=True)
class DocumentExcerpt:
    """A document's text from an offset to its end."""

    document_id: str
    title: str
    link: str | None
    datasource: str
    offset: int
    text: str
    total_chars: int
    missing: str = ""  # what a limit cut off when the document was read
    metadata: Mapping[str, str] = field(default_factory=dict)

    def next_offset(self, chars: int) -> int | None:
        """The offset of the page after the first characters, or None at the document's end."""
        end = self.offset + chars
        if end >= self.total_chars:
            return None
        return end


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page of the web as text; it is in no datasource."""

    url: str
    title: str
    kind: str
    text: str

    @property
    def document_id(self) -> str:
        return compute_document_id("fetch_url", self.url)


class KnowledgeNotFound(CaipeError):
    """There is no document, datasource or job with this id or name."""

    code = "not_found"


def compute_document_id(datasource: str, address: str) -> str:
    """The id of a document, stable: the same address in the same datasource has the same id."""
    return hashlib.sha256(f"{datasource}\0{address}".encode()).hexdigest()[:32]


def format_citation(document_id: str) -> str:
    """The citation mark by which an answer names a document."""
    return f"[kb:{document_id[:_CITATION_DIGITS]}]"
