"""The interface of a store: documents, chunks, vectors and datasources, and the search for them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from ai_platform_engineering.knowledge_bases.access import ANYBODY, Viewer, VisibleTo
from ai_platform_engineering.knowledge_bases.documents import Document
from ai_platform_engineering.knowledge_bases.stores.job_store import JobStore
from ai_platform_engineering.knowledge_bases.stores.upload_store import UploadStore

SearchMode = Literal["hybrid", "lexical", "vectors"]
Vector = Sequence[float]


@dataclass(frozen=True, slots=True)
class Datasource:
    """A configured origin of documents. `location`: a path, a URL, a git repository or that of a connector;
    `options`: those of its source; `cursor`: where its source goes on at the next pass. The fields from
    `visible_to` on have methods of their own that change them."""

    name: str
    location: str
    kind: str  # folder, web, git, push, or that of a connector
    title: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    documents: int = 0
    chunks: int = 0
    embedded: int = 0  # chunks that have a vector
    refreshed: datetime | None = None
    document_kinds: Mapping[str, int] = field(default_factory=dict)  # how many documents of each kind
    cursor: str = ""  # empty: the next pass lists everything
    visible_to: VisibleTo = None
    refresh_every: int | None = None  # seconds; None: only when somebody asks for it
    refresh_due: datetime | None = None
    refresh_failures: int = 0  # in a row


@dataclass(frozen=True, slots=True)
class RefreshSchedule:
    """When a datasource is refreshed. `failures`: of the last refreshes, in a row."""

    datasource: str
    every: int  # seconds
    due: datetime
    failures: int = 0


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """A stored document without its text: enough to see whether its source has another version."""

    document_id: str
    address: str
    digest: str
    mark: str = (
        ""  # the source's change mark: a digest, an ETag, a time; while it stays, the document is not read
    )


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk without a vector, with the text to embed: title and headings, then the chunk."""

    document_id: str
    ordinal: int
    text: str


@dataclass(frozen=True, slots=True)
class VectorModel:
    """An embedding model whose vectors a store has. `complete`: every chunk had one at some time, so that it
    answers questions."""

    name: str
    complete: bool


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that a search found, and its best chunk. Scores compare only within one search.

    `other_ordinals`: more chunks of it that were found, best first. `word_score` and `meaning_score`: how
    well it did in each ranking, beside the best; None where there was none."""

    document_id: str
    ordinal: int
    score: float
    other_ordinals: tuple[int, ...] = ()
    word_score: float | None = None
    meaning_score: float | None = None


def find_by_name(datasources: Iterable[Datasource], name: str) -> Datasource | None:
    """None when there is no datasource of this name."""
    return next((datasource for datasource in datasources if datasource.name == name), None)


def build_embedding_text(title: str, headings: Sequence[str], text: str) -> str:
    """The text to embed for a chunk, with title and headings: its text alone does not say what it is
    about."""
    heading_path = " > ".join(filter(None, dict.fromkeys((title, *headings))))
    if heading_path:
        return f"{heading_path}\n{text}"
    return text


class KnowledgeStore(Protocol):
    """Stores and finds documents. What is written is found after `commit`; search works while more is
    written."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def is_writable(self) -> bool:
        """Whether this process may write, known once it is open: an embedded store belongs to one process at
        a time."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write as well."""
        ...

    @property
    def jobs(self) -> JobStore:
        """Its ingest jobs."""
        ...

    @property
    def uploads(self) -> UploadStore | None:
        """Uploaded files, where several processes share them."""
        ...

    # --- datasources

    async def put_datasource(self, datasource: Datasource) -> None:
        """Adds a datasource, or updates it: who sees it and its schedule stay as they are then."""
        ...

    async def list_datasources(self, viewer: Viewer = ANYBODY) -> list[Datasource]:
        """The datasources that the viewer may see, by name, with the counts of what they may see."""
        ...

    async def set_visible_to(self, name: str, visible_to: VisibleTo) -> None:
        """Changes who sees a datasource."""
        ...

    async def list_schedules(self) -> list[RefreshSchedule]:
        """When the datasources with a schedule are refreshed next, soonest first; nothing is counted."""
        ...

    async def set_schedule(
        self, name: str, every: int | None, due: datetime | None, failures: int = 0
    ) -> None:
        """Changes when a datasource is refreshed."""
        ...

    async def is_empty(self) -> bool:
        """Whether there is no document at all; called for every question, so nothing is counted."""
        ...

    async def remove_datasource(self, name: str) -> bool:
        """Stops the jobs of a datasource, and deletes it with its documents; False when there was nothing."""
        ...

    # --- groups of people

    async def put_group(self, name: str, members: Collection[str]) -> None:
        """Adds a group, or replaces its members."""
        ...

    async def remove_group(self, name: str) -> bool: ...

    async def list_groups(self) -> dict[str, list[str]]:
        """Members by group."""
        ...

    async def list_groups_of(self, member: str) -> list[str]: ...

    # --- documents

    async def list_versions(self, datasource: str) -> dict[str, DocumentVersion]:
        """The stored documents of a datasource, by address."""
        ...

    async def find_versions(self, document_ids: Collection[str]) -> dict[str, DocumentVersion]:
        """Those of the documents that are stored, by id."""
        ...

    async def put_document(self, document: Document, mark: str = "") -> None:
        """Adds a document, or replaces the one with its id; chunks that stay the same keep their vectors."""
        ...

    async def update_mark(self, document_id: str, mark: str) -> None:
        """Replaces the source's change mark of a document that has not changed."""
        ...

    async def delete_documents(self, document_ids: Collection[str]) -> None: ...

    async def commit(self) -> None: ...

    async def find_document(self, document_id: str, viewer: Viewer = ANYBODY) -> Document | None:
        """None for one that the viewer may not see, as for one that there is not."""
        ...

    async def list_documents(self, datasource: str, *, after: str = "", limit: int = 100) -> list[Document]:
        """Documents by address, without their chunks and texts."""
        ...

    # --- vectors and search

    async def list_chunks_without_vector(
        self, model: str, limit: int, *, except_of: str = ""
    ) -> list[ChunkRef]:
        """Chunks that have no vector of this model, in the order in which they were stored. `except_of`: a
        datasource whose chunks are left out."""
        ...

    async def claim_embedding(self, model: str, seconds: float) -> bool:
        """Whether this process makes the missing vectors of a model for so long, and nobody else; asked again
        before it ends."""
        ...

    async def release_embedding(self, model: str) -> None:
        """Lets another process make vectors of a model."""
        ...

    async def put_vectors(self, model: str, vectors: Sequence[tuple[ChunkRef, Vector]]) -> None: ...

    async def list_models(self) -> list[VectorModel]:
        """The models that have vectors, the oldest first."""
        ...

    async def mark_complete(self, model: str) -> None:
        """Notes that every chunk has a vector of this model."""
        ...

    async def keep_model(self, model: str) -> None:
        """Says that this process uses the model, from time to time: another one does not purge it then."""
        ...

    async def purge_models(self, keep: str) -> bool:
        """Deletes the vectors of all models but one; False when some are left, since another process uses
        them."""
        ...

    async def prepare_search(self) -> None:
        """Starts what a search needs and does not run yet, so that it starts beside something else."""
        ...

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
        viewer: Viewer = ANYBODY,
    ) -> list[Hit]:
        """The best documents that the viewer may see, best first. `filters`: kind, title, path prefix."""
        ...
