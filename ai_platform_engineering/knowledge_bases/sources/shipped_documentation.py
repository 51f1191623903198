"""The documentation of this product as a datasource: a fresh installation answers questions about itself."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    RemovedItem,
    SourceItem,
    UnchangedItem,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource

SHIPPED_DOCS = Datasource("caipe-docs", "built-in", "built-in", "The documentation of this product")

_PACKAGED = Path(__file__).parents[1] / "documentation"  # in a wheel
_CHECKOUT = Path(__file__).parents[3]


class ShippedDocsSource:
    """README.md and docs/: of the wheel, or of the checkout."""

    kind = SHIPPED_DOCS.kind
    location = SHIPPED_DOCS.location
    revision = None

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or (_PACKAGED if _PACKAGED.is_dir() else _CHECKOUT)

    def compute_revision(self) -> str:
        """Another one when a document differs; reads them all."""
        told = hashlib.sha256()
        for path in self._files():
            told.update(f"{self._address(path)}\0{_digest(path.read_bytes())}\0".encode())
        return told.hexdigest()[:16]

    async def count(self) -> int:
        return len(list(self._files()))

    async def items(self, known: Mapping[str, str]) -> AsyncGenerator[SourceItem, None]:
        there = {self._address(path): path for path in self._files()}
        if not there:
            raise SourceUnavailable("This installation has no documentation.")
        for address, path in there.items():
            content = await asyncio.to_thread(path.read_bytes)
            mark = _digest(content)
            if known.get(address) == mark:
                yield UnchangedItem(address, mark)
            else:
                yield ChangedItem(RawDocument(address, content, "text/markdown"), mark)
        for address in known.keys() - there.keys():
            yield RemovedItem(address)

    def _files(self) -> Iterator[Path]:
        yield from (path for path in (self._root / "README.md",) if path.is_file())
        yield from sorted((self._root / "docs").rglob("*.md"))

    def _address(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
