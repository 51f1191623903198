"""The source of this product's own documentation: a fresh installation answers questions about itself."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping
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

_WHEEL_FOLDER = Path(__file__).parents[1] / "documentation"  # in a wheel
_CHECKOUT_FOLDER = Path(__file__).parents[3]


class ShippedDocsSource:
    """README.md and the pages of docs/, of the wheel, or of the checkout."""

    kind = SHIPPED_DOCS.kind
    location = SHIPPED_DOCS.location
    revision = None
    next_cursor = ""

    def __init__(self, root: Path | None = None) -> None:
        if root is None:
            root = _CHECKOUT_FOLDER
            if _WHEEL_FOLDER.is_dir():
                root = _WHEEL_FOLDER
        self._root = root

    def compute_revision(self) -> str:
        """A digest of all documents; blocks, since it reads them."""
        digest = hashlib.sha256()
        for path in self._list_files():
            digest.update(f"{self._address(path)}\0{_digest(path.read_bytes())}\0".encode())
        return digest.hexdigest()[:16]

    async def count(self) -> int:
        return len(await asyncio.to_thread(self._list_files))

    async def items(
        self, known_marks: Mapping[str, str], cursor: str = ""
    ) -> AsyncGenerator[SourceItem, None]:
        paths = {self._address(path): path for path in await asyncio.to_thread(self._list_files)}
        if not paths:
            raise SourceUnavailable("This installation has no documentation.")
        for address, path in paths.items():
            content = await asyncio.to_thread(path.read_bytes)
            mark = _digest(content)
            if known_marks.get(address) == mark:
                yield UnchangedItem(address, mark)
            else:
                yield ChangedItem(RawDocument(address, content, "text/markdown"), mark)
        for address in known_marks.keys() - paths.keys():
            yield RemovedItem(address)

    def _list_files(self) -> list[Path]:
        """The documents; blocks, since it reads folders.

        Not those in `docs/adr`: they say why the code is as it is, not how the product is used.
        """
        documents = sorted((self._root / "docs").glob("*.md"))
        readme = self._root / "README.md"
        if readme.is_file():
            return [readme, *documents]
        return documents

    def _address(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
