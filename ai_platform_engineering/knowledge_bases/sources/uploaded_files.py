"""The source of uploaded files that are stored in the database."""

from collections.abc import AsyncGenerator, Mapping

from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    RemovedItem,
    SourceItem,
    UnchangedItem,
)
from ai_platform_engineering.knowledge_bases.stores.upload_store import UPLOAD, UploadStore


class UploadedFiles:
    """The uploaded files of one datasource. Addresses are their names."""

    kind = UPLOAD
    revision = None
    next_cursor = ""

    def __init__(self, store: UploadStore, datasource: str) -> None:
        self.location = f"{UPLOAD}:{datasource}"
        self._store = store
        self._datasource = datasource

    async def count(self) -> int | None:
        return len(await self._store.list_marks(self._datasource))

    async def items(
        self, known_marks: Mapping[str, str], cursor: str = ""
    ) -> AsyncGenerator[SourceItem, None]:
        marks = await self._store.list_marks(self._datasource)
        for name, mark in marks.items():
            if known_marks.get(name) == mark:
                yield UnchangedItem(name, mark)
                continue
            file = await self._store.read(self._datasource, name)
            if file is not None:  # else it was removed just now, and a job that removes its document waits
                yield ChangedItem(RawDocument(name, file.content, changed=file.changed), mark)
        for name in known_marks.keys() - marks.keys():
            yield RemovedItem(name)
