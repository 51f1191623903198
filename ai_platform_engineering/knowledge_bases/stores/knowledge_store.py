"""Where documents, their chunks, vectors and datasources are kept and found: the interface that every storage implements."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from ai_platform_engineering.knowledge_bases.documents import Document

SearchMode = Literal["hybrid", "lexical", "vectors"]
JobState = Literal["waiting", "running", "done", "failed", "stopped"]
Vector = Sequence[float]


@dataclass(frozen=True, slots=True)
class Datasource:
    """Where documents come from. `location` is a path, a URL or a git repository; `options` are those of its source."""

    name: str
    location: str
    kind: str  # folder, web, git
    title: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    documents: int = 0
    chunks: int = 0
    embedded: int = 0  # chunks that have a vector
    refreshed: datetime | None = None


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """What is known of a document without its text: enough to see that it has not changed."""

    document_id: str
    address: str
    digest: str
    mark: str = ""  # of the source: a digest, an ETag, a time; the document is not read again while it stays


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk that waits for its vector, with the text to embed: title and headings, then the chunk."""

    document_id: str
    ordinal: int
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found. Scores compare only within one search."""

    document_id: str
    ordinal: int
    score: float


@dataclass(frozen=True, slots=True)
class IngestJob:
    """An ingest. It goes on where it was when its process dies."""

    job_id: str
    datasource: str
    state: JobState
    total: int | None = None
    done: int = 0
    skipped: int = 0  # unchanged
    removed: int = 0
    failed: Sequence[tuple[str, str]] = ()  # address and why; the first hundred
    problem: str = ""
    created: datetime | None = None
    ended: datetime | None = None


def build_embedding_text(title: str, headings: Sequence[str], text: str) -> str:
    """What is embedded for a chunk: its text alone does not say what it is about."""
    above = " > ".join(one for one in dict.fromkeys((title, *headings)) if one)
    if above:
        return f"{above}\n{text}"
    return text


class KnowledgeStore(Protocol):
    """Everything that is written is found after `commit`; search works while more is written."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def is_writable(self) -> bool:
        """Whether this process may write, known once it is open: an embedded one belongs to one process at a time."""
        ...

    # --- datasources and jobs

    async def put_datasource(self, datasource: Datasource) -> None: ...

    async def list_datasources(self) -> list[Datasource]:
        """With their counts, by name."""
        ...

    async def is_empty(self) -> bool:
        """Whether there is no document at all; asked at every question, so nothing is counted."""
        ...

    async def remove_datasource(self, name: str) -> bool:
        """With all that came from it."""
        ...

    async def put_job(self, job: IngestJob) -> None: ...

    async def list_jobs(self, *, unfinished: bool = False) -> list[IngestJob]:
        """Newest first."""
        ...

    # --- documents

    async def list_versions(self, datasource: str) -> dict[str, DocumentVersion]:
        """By address."""
        ...

    async def put_document(self, document: Document, mark: str = "") -> None:
        """A new document, or one that takes the place of what had its id; its vectors go when its chunks change."""
        ...

    async def update_mark(self, document_id: str, mark: str) -> None:
        """It has not changed; only the source's mark has."""
        ...

    async def delete_documents(self, document_ids: Collection[str]) -> None: ...

    async def commit(self) -> None: ...

    async def find_document(self, document_id: str) -> Document | None: ...

    async def list_documents(self, datasource: str, *, after: str = "", limit: int = 100) -> list[Document]:
        """By address, without their chunks and texts."""
        ...

    # --- vectors and search

    async def list_chunks_without_vector(self, model: str, limit: int) -> list[ChunkRef]:
        """Chunks that have no vector of this model, in the order in which they came."""
        ...

    async def put_vectors(self, model: str, vectors: Sequence[tuple[ChunkRef, Vector]]) -> None: ...

    async def search(
        self,
        query: str,
        vector: Vector | None = None,
        *,
        model: str = "",
        datasources: Collection[str] = (),
        filters: Mapping[str, str] | None = None,
        limit: int = 10,
        mode: SearchMode = "hybrid",
    ) -> list[Hit]:
        """The best chunks, best first, at most a few of one document. `filters`: kind, title, path prefix."""
        ...
