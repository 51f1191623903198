"""Readers of documents in workers: a document that crashes, hangs or eats memory costs its worker alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ai_platform_engineering.knowledge_bases.documents import RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.read_documents import ReadDocument, decode_read_document
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DOCUMENT_BYTES, WALL_SECONDS
from ai_platform_engineering.knowledge_bases.sources.page_links import (
    MAX_LINKS,
    PageLinks,
    normalise_url,
    read_page_links,
)
from ai_platform_engineering.knowledge_bases.workers.frames import Reply
from ai_platform_engineering.knowledge_bases.workers.running_worker import RunningWorker
from ai_platform_engineering.knowledge_bases.workers.worker_errors import (
    WorkerDied,
    WorkerNotStarted,
    WorkerTimeout,
    WorkerUnavailable,
)
from ai_platform_engineering.knowledge_bases.workers.worker_process import Call, WorkerOptions, WorkerProcess

_READERS = 2
_READ_SECONDS = WALL_SECONDS + 30.0  # the worker itself stops a document before that
_SMALL_BYTES = 64 * 1024  # of a document that is decoded at once


class DocumentReaders:
    """Reads documents and the links of pages in workers, one at a time in each, so that it is clear which one
    made a worker fail. Documents of an ingest have a low priority; a page for a question has a worker of its
    own."""

    def __init__(self, options: WorkerOptions | None = None, *, count: int = _READERS) -> None:
        options = options or WorkerOptions()
        self._background = _ReaderPool(options, count, in_background=True)
        self._foreground = _ReaderPool(options, 1, in_background=False)

    async def read(self, raw: RawDocument, *, for_question: bool = False) -> ReadDocument:
        """Raises UnreadableDocument, and WorkerFailed when there is no worker."""
        if len(raw.content) > MAX_DOCUMENT_BYTES:
            raise UnreadableDocument(f"The document is larger than {MAX_DOCUMENT_BYTES // 1_000_000} MB.")
        arguments = {
            "address": raw.address,
            "media_type": raw.media_type,
            "link": raw.link,
            "title": raw.title,
            "headings": raw.headings,
        }
        pool = self._foreground if for_question else self._background
        try:
            reply = await pool.call(
                Call("read", arguments, raw.content, _READ_SECONDS, attempts=2, patient=True)
            )
        except WorkerTimeout:
            raise UnreadableDocument("The document takes too long to read.") from None
        except WorkerNotStarted:
            raise
        except WorkerDied:
            raise UnreadableDocument(
                "The document cannot be read: it is corrupt, or reading it takes too much time or memory."
            ) from None
        if len(reply.body) <= _SMALL_BYTES:
            return decode_read_document(reply)
        return await asyncio.to_thread(decode_read_document, reply)

    async def read_links(self, url: str, content: bytes, media_type: str, robots: str) -> PageLinks:
        """The links of a page; none if it cannot be read. Raises WorkerFailed when there is no worker."""
        arguments = {"url": url, "media_type": media_type, "robots": robots}
        try:
            reply = await self._background.call(
                Call("links", arguments, content, _READ_SECONDS, attempts=2, patient=True)
            )
        except WorkerNotStarted:
            raise
        except (WorkerTimeout, WorkerDied):
            return read_page_links(url, b"", "", robots)
        return await asyncio.to_thread(_decode_links, reply)

    async def aclose(self) -> None:
        await asyncio.gather(self._background.aclose(), self._foreground.aclose())


class _ReaderPool:
    """Workers of which each has one call at a time; the one that was used last is taken first."""

    def __init__(self, options: WorkerOptions, count: int, *, in_background: bool) -> None:
        self._max_waiting = 2 * options.max_calls
        self._waiting = 0
        self._in_background = in_background
        self._workers = [
            WorkerProcess("reader", replace(options, max_calls=1), prepare=self._open) for _ in range(count)
        ]
        self._free: asyncio.LifoQueue[WorkerProcess] = asyncio.LifoQueue()
        for worker in self._workers:
            self._free.put_nowait(worker)

    async def call(self, call: Call) -> Reply:
        async with self._take_worker() as worker:
            return await worker.call(call)

    async def aclose(self) -> None:
        await asyncio.gather(*(worker.aclose() for worker in self._workers))

    @asynccontextmanager
    async def _take_worker(self) -> AsyncIterator[WorkerProcess]:
        if self._waiting >= self._max_waiting:
            raise WorkerUnavailable("Too many documents wait to be read. Try again in a moment.")
        self._waiting += 1
        try:
            worker = await self._free.get()
        finally:
            self._waiting -= 1
        try:
            yield worker
        finally:
            self._free.put_nowait(worker)

    async def _open(self, running: RunningWorker) -> None:
        await running.call("open", {"in_background": self._in_background})


def _decode_links(reply: Reply) -> PageLinks:
    """Brings what should be URLs into the one form that a crawl compares."""
    try:
        values: Any = json.loads(reply.body)
    except (ValueError, RecursionError):
        return PageLinks()
    match values:
        case {"links": list(links), "canonical": None | str() as canonical, "may_index": bool(may_index)}:
            urls = [normalise_url(link) for link in links[:MAX_LINKS] if isinstance(link, str)]
            if canonical is not None:
                canonical = normalise_url(canonical)
            return PageLinks(tuple(filter(None, urls)), canonical, may_index)
        case _:
            return PageLinks()
