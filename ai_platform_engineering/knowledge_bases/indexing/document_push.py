"""Documents that other programs push: in batches, each document idempotent by its id.

A generation replaces everything: what is not sent between its begin and its finish is removed.
"""

import asyncio
import base64
import binascii
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ai_platform_engineering.core.errors import Refused, WrongState
from ai_platform_engineering.knowledge_bases.access import OPERATOR, parse_visible_to
from ai_platform_engineering.knowledge_bases.datasources import PUSH
from ai_platform_engineering.knowledge_bases.documents import Document, RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import build_document, compute_digest
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    Datasource,
    DocumentVersion,
    KnowledgeStore,
)

_GENERATION = "generation"  # an option of the datasource: the one that is open
_DEFAULT_MEDIA_TYPE = "text/markdown"
_READ_AT_ONCE = 4
_MAX_WAITING = 8  # batches; one is stored at a time
_MAX_METADATA = 50
_REMOVED_AT_ONCE = 500

PushStatus = Literal["stored", "unchanged", "failed", "deleted", "unknown"]
_Text = Annotated[str, Field(max_length=2000)]


class PushedDocument(BaseModel):
    """A document as a program sends it: with a text, or with base64 content and its media type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, max_length=1000)
    title: _Text = ""
    text: str | None = None
    content: str | None = None
    media_type: str = Field("", max_length=200)
    url: str | None = Field(None, max_length=4096)
    metadata: dict[str, _Text] = Field(default_factory=dict, max_length=_MAX_METADATA)
    updated_at: datetime | None = None
    visible_to: list[str] | None = None

    def to_raw(self) -> RawDocument:
        """Raises Refused."""
        self._check_texts()
        return RawDocument(
            address=self.id,
            content=self._read_content(),
            media_type=self.media_type or _DEFAULT_MEDIA_TYPE,
            link=self.url,
            changed=_with_zone(self.updated_at),
            title=" ".join(self.title.split()),
            metadata=self.metadata,
            visible_to=parse_visible_to(self.visible_to),
        )

    def _read_content(self) -> bytes:
        if (self.text is None) == (self.content is None):
            raise Refused("Send either text, or content in base64 with its media_type.")
        if self.text is not None:
            return self.text.encode(errors="replace")
        try:
            return base64.b64decode(self.content or "", validate=True)
        except (binascii.Error, ValueError):
            raise Refused("content is not base64.") from None

    def _check_texts(self) -> None:
        texts = [self.id, self.title, self.media_type, self.url or ""]
        texts += [*self.metadata, *self.metadata.values()]
        if any("\0" in text for text in texts):
            raise Refused("A field holds a NUL character.")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise Refused("url is not an http or https address.")


@dataclass(frozen=True, slots=True)
class PushResult:
    """What became of a document of a batch. `reason`: why it failed, for a person."""

    id: str
    status: PushStatus
    document_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A document of a batch, and why it cannot be stored if it cannot."""

    id: str
    raw: RawDocument | None = None
    digest: str = ""
    reason: str = ""


class DocumentPush:
    """Stores what programs push, one batch at a time. `on_commit` is called after every commit."""

    def __init__(
        self, store: KnowledgeStore, readers: DocumentReaders, *, on_commit: Callable[[], None]
    ) -> None:
        self._store = store
        self._readers = readers
        self._on_commit = on_commit
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def push(
        self,
        name: str,
        documents: Sequence[Any],
        delete: Sequence[str] = (),
        generation: str | None = None,
    ) -> list[PushResult]:
        """Stores documents and deletes others, by their ids; the results are in the same order.

        Raises Refused for what is no pushed datasource, and WrongState for a generation that is not open."""
        async with self.turn():
            datasource = await self._find(name)
            open_generation = datasource.options.get(_GENERATION, "")
            if generation is not None and generation != open_generation:
                raise WrongState("This generation is not open: it is finished, or another one has begun.")
            try:
                results = await self._store_documents(name, documents, open_generation)
                results += await self._delete(name, delete)
            finally:
                await self._commit()
            await self._store.put_datasource(replace(datasource, refreshed=datetime.now(UTC)))
            return results

    async def begin(self, name: str) -> str:
        """Begins a generation, in the place of one that is open; returns its id. Raises Refused."""
        async with self.turn():
            datasource = await self._find(name)
            generation = uuid.uuid4().hex
            await self._put_generation(datasource, generation)
            return generation

    async def finish(self, name: str, generation: str) -> int:
        """Removes what was not sent since the generation began; returns how many documents.

        Raises Refused, and WrongState for one that is not open, or in which nothing was sent."""
        async with self.turn():
            datasource = await self._find(name)
            if datasource.options.get(_GENERATION) != generation:
                raise WrongState("This generation is not open: it is finished, or another one has begun.")
            versions = await self._store.list_versions(name)
            old_ids = [version.document_id for version in versions.values() if version.mark != generation]
            if versions and len(old_ids) == len(versions):
                raise WrongState(
                    "Nothing was sent in this generation, so that everything would be removed. "
                    "Send documents, or remove the datasource."
                )
            for start in range(0, len(old_ids), _REMOVED_AT_ONCE):
                await self._store.delete_documents(old_ids[start : start + _REMOVED_AT_ONCE])
            await self._commit()
            await self._put_generation(datasource, None)
            return len(old_ids)

    async def _find(self, name: str) -> Datasource:
        for datasource in await self._store.list_datasources(OPERATOR):
            if datasource.name == name:
                if datasource.kind == PUSH:
                    return datasource
                raise Refused(
                    f"{name} is read from {datasource.kind}. Push to a datasource of its own: "
                    f"add one with the location {PUSH}:NAME."
                )
        raise Refused(f"There is no datasource {name}.")

    async def _put_generation(self, datasource: Datasource, generation: str | None) -> None:
        options = {name: value for name, value in datasource.options.items() if name != _GENERATION}
        if generation is not None:
            options[_GENERATION] = generation
        await self._store.put_datasource(replace(datasource, options=options))

    async def _store_documents(
        self, name: str, documents: Sequence[Any], generation: str
    ) -> list[PushResult]:
        candidates = await asyncio.to_thread(lambda: list(map(_prepare, documents)))
        ids = {compute_document_id(name, candidate.id) for candidate in candidates}
        versions = await self._store.find_versions(ids)
        room = asyncio.Semaphore(_READ_AT_ONCE)
        readings = [
            asyncio.create_task(self._read(name, candidate, versions, room)) for candidate in candidates
        ]
        try:
            results: list[PushResult] = []
            for candidate, reading in zip(candidates, readings, strict=True):
                results.append(await self._store_document(name, candidate, await reading, generation))
            return results
        finally:
            for reading in readings:
                reading.cancel()
            await asyncio.gather(*readings, return_exceptions=True)

    async def _read(
        self,
        name: str,
        candidate: _Candidate,
        versions: Mapping[str, DocumentVersion],
        room: asyncio.Semaphore,
    ) -> Document | str | None:
        """The document to store, or why it cannot be read; None for one that is stored as it is."""
        if candidate.raw is None:
            return candidate.reason
        version = versions.get(compute_document_id(name, candidate.id))
        if version is not None and version.digest == candidate.digest:
            return None
        async with room:
            try:
                content = await self._readers.read(candidate.raw)
            except UnreadableDocument as error:
                return str(error)
        return build_document(candidate.raw, name, candidate.digest, content)

    async def _store_document(
        self, name: str, candidate: _Candidate, outcome: Document | str | None, generation: str
    ) -> PushResult:
        document_id = compute_document_id(name, candidate.id)
        if isinstance(outcome, Document):
            await self._store.put_document(outcome, generation)
            return PushResult(candidate.id, "stored", document_id, outcome.missing)
        # What was sent counts as sent, also when it cannot be read: the version before it stays.
        if generation:
            await self._store.update_mark(document_id, generation)
        if outcome is None:
            return PushResult(candidate.id, "unchanged", document_id)
        return PushResult(candidate.id, "failed", reason=outcome)

    async def _delete(self, name: str, ids: Sequence[str]) -> list[PushResult]:
        document_ids = {address: compute_document_id(name, address) for address in ids}
        stored = await self._store.find_versions(document_ids.values())
        await self._store.delete_documents(list(stored))
        results: list[PushResult] = []
        for address, document_id in document_ids.items():
            status: PushStatus = "deleted" if document_id in stored else "unknown"
            results.append(PushResult(address, status))
        return results

    async def _commit(self) -> None:
        await self._store.commit()
        self._on_commit()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The time in which one batch is stored."""
        if self._waiting >= _MAX_WAITING:
            raise WrongState("Too many batches wait to be stored. Send the next one when this one is done.")
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._lock.release()


def _prepare(values: Any) -> _Candidate:
    """Checks a document; blocks for a large one."""
    document_id = ""
    if isinstance(values, dict) and isinstance(values.get("id"), str):
        document_id = values["id"][:1000]
    try:
        raw = PushedDocument.model_validate(values).to_raw()
    except ValidationError as error:
        return _Candidate(document_id, reason=_describe(error.errors(include_input=False)))
    except Refused as error:
        return _Candidate(document_id, reason=str(error))
    digest = compute_digest(raw, raw.link or "", raw.media_type)
    return _Candidate(document_id, raw, digest)


def _describe(problems: Iterable[Any]) -> str:
    texts = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems]
    return "; ".join(texts)[:500]


def _with_zone(time: datetime | None) -> datetime | None:
    """A time without a zone is in UTC."""
    if time is None or time.tzinfo is not None:
        return time
    return time.replace(tzinfo=UTC)
