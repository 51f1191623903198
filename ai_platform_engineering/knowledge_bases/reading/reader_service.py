"""The worker that reads documents: their text in chunks, and the links of pages."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from ai_platform_engineering.knowledge_bases.documents import RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.indexing.chunking import chunk_document
from ai_platform_engineering.knowledge_bases.reading.document_reader import read_document
from ai_platform_engineering.knowledge_bases.reading.read_documents import ReadDocument, encode_read_document
from ai_platform_engineering.knowledge_bases.reading.reading_limits import limit_memory
from ai_platform_engineering.knowledge_bases.sources.page_links import PageLinks, read_page_links
from ai_platform_engineering.knowledge_bases.workers import priority
from ai_platform_engineering.knowledge_bases.workers.frames import Reply
from ai_platform_engineering.knowledge_bases.workers.worker_server import Arguments, Handler


class ReaderService:
    """Reads one document at a time; whatever one does to its reader, it is said to be unreadable."""

    def __init__(self) -> None:
        limit_memory()
        reader = ThreadPoolExecutor(1, "reader")
        self.handlers: Mapping[str, Handler] = {
            "open": Handler(self._open, reader),
            "read": Handler(self._read, reader),
            "links": Handler(self._read_links, reader),
        }

    def close(self) -> None:
        """Nothing is open."""

    def _open(self, arguments: Arguments, _: bytes) -> Reply:
        if arguments["in_background"]:
            priority.lower_priority(priority.READING)
        return Reply()

    def _read(self, arguments: Arguments, body: bytes) -> Reply:
        raw = RawDocument(
            arguments["address"],
            body,
            media_type=arguments["media_type"],
            link=arguments["link"],
            title=arguments["title"],
            headings=tuple(arguments["headings"]),
        )
        try:
            kind, parsed = read_document(raw)
            text, chunks = chunk_document(parsed)
            return encode_read_document(
                ReadDocument(kind, parsed.title, text, chunks, "; ".join(parsed.missing_parts))
            )
        except UnreadableDocument as error:
            return Reply({"unreadable": str(error)})
        # On hostile input anything, also RecursionError and MemoryError.
        except Exception as error:  # noqa: BLE001
            return Reply({"unreadable": f"The document cannot be read ({type(error).__name__})."})

    def _read_links(self, arguments: Arguments, body: bytes) -> Reply:
        try:
            links = read_page_links(arguments["url"], body, arguments["media_type"], arguments["robots"])
        # As above.
        except Exception:  # noqa: BLE001
            links = PageLinks()
        return Reply(body=json.dumps(asdict(links)).encode())


def create_service() -> ReaderService:
    return ReaderService()
