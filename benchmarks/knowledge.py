"""Indexing and search of the embedded knowledge base: speed, memory, and recall of the vector index.

    .venv/bin/python -m benchmarks.knowledge [--chunks 100000] [--documents 1000] [--compare]

Words follow Zipf's law, vectors lie in clusters; nothing is embedded and nothing leaves this machine.
`--compare` puts the same chunks into SQLite's FTS5 and a numpy matrix.
"""

import argparse
import asyncio
import os
import random
import resource
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ai_platform_engineering.knowledge_bases.datasources import DatasourceResolver
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.search.evaluation import percentile
from ai_platform_engineering.knowledge_bases.search.rank_fusion import fuse_rankings
from ai_platform_engineering.knowledge_bases.search.tokens import parse_query
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.knowledge_bases.sources.source_factory import SourceContext
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import SearchMode

DIMENSIONS, CLUSTERS, QUERIES, TOP = 384, 500, 200, 10
OF_A_DOCUMENT, WORDS = 5, 150
VOCABULARY = 50_000
MODEL = "benchmark"
TARGET_P95, TARGET_MEMORY, TARGET_DOCUMENTS = 25.0, 1000.0, 100.0


class SyntheticData:
    """Texts and vectors, the same every time."""

    def __init__(self, seed: int = 7) -> None:
        self.numbers = np.random.default_rng(seed)
        letters = random.Random(seed)
        self.words = np.array(
            [
                "".join(letters.choices("abcdefghijklmnoprstuvwy", k=letters.randint(3, 11)))
                for _ in range(VOCABULARY)
            ]
        )
        shares = 1 / np.arange(1, VOCABULARY + 1)
        self.shares = np.cumsum(shares / shares.sum())
        self.centres = self.numbers.standard_normal((CLUSTERS, DIMENSIONS), dtype=np.float32)

    def text(self, count: int) -> str:
        places = np.searchsorted(self.shares, self.numbers.random(count)).clip(max=VOCABULARY - 1)
        return " ".join(self.words[places].tolist())

    def vectors(self, count: int) -> np.ndarray:
        vectors = self.centres[self.numbers.integers(CLUSTERS, size=count)]
        vectors = vectors + 0.7 * self.numbers.standard_normal((count, DIMENSIONS), dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def query(self) -> str:
        """Two to five words, of which the most frequent hundred are none: they would be stop words."""
        return " ".join(
            self.numbers.choice(self.words[100:10_000], int(self.numbers.integers(2, 6))).tolist()
        )

    def document(self, number: int) -> Document:
        texts = [self.text(WORDS) for _ in range(OF_A_DOCUMENT)]
        chunks = tuple(
            Chunk(at, text, (), start, start + len(text))
            for at, (start, text) in enumerate(_chunk_offsets(texts))
        )
        return Document(
            f"d{number}",
            "made",
            self.text(4),
            f"d{number}.md",
            "\n\n".join(texts),
            str(number),
            chunks=chunks,
        )

    def _section(self) -> str:
        bullets = f"- {self.text(8)}\n- {self.text(8)}"
        return f"## {self.text(3)}\n\n{self.text(60)}.\n\n{bullets}\n\n{self.text(55)}.\n"

    def markdown(self) -> bytes:
        """About 6 KB."""
        sections = (self._section() for _ in range(7))
        return f"# {self.text(4)}\n\n{''.join(sections)}".encode()


def _chunk_offsets(texts: list[str]) -> Iterator[tuple[int, str]]:
    start = 0
    for text in texts:
        yield start, text
        start += len(text) + 2


async def index_chunks(store: EmbeddedStore, data: SyntheticData, chunks: int) -> np.ndarray:
    """All chunks with their vectors."""
    began = time.perf_counter()
    for number in range(chunks // OF_A_DOCUMENT):
        await store.put_document(data.document(number))
        if number % 500 == 499:
            await store.commit()
    await store.commit()
    print(
        f"{chunks} chunks, words: {time.perf_counter() - began:.0f} s"
        f" (the making of the texts included), {memory()}"
    )
    vectors, at, began = data.vectors(chunks), 0, time.perf_counter()
    while waiting := await store.list_chunks_without_vector(MODEL, 2_000):
        await store.put_vectors(MODEL, list(zip(waiting, vectors[at : at + len(waiting)], strict=True)))
        at += len(waiting)
    print(f"{at} vectors: {time.perf_counter() - began:.0f} s, {memory()}")
    return vectors


async def measure_search(store: EmbeddedStore, data: SyntheticData, vectors: np.ndarray) -> None:
    questions = [
        (data.query(), vectors[at] + 0.03 * data.vectors(1)[0])
        for at in data.numbers.integers(len(vectors), size=QUERIES)
    ]
    modes: tuple[SearchMode, ...] = ("lexical", "vectors", "hybrid")
    for mode in modes:

        async def search(question: tuple[str, Any], mode: SearchMode = mode) -> None:
            await store.search(question[0], question[1].tolist(), model=MODEL, mode=mode, limit=TOP)

        await print_latency(mode, search, questions)
    print(f"memory: {memory()} (asked: less than {TARGET_MEMORY:g} MB)")
    hits = 0
    for _, vector in questions:
        order = np.argsort(-(vectors @ vector))
        exact = set(list(dict.fromkeys((order // OF_A_DOCUMENT).tolist()))[:TOP])
        results = await store.search("", vector.tolist(), model=MODEL, mode="vectors", limit=TOP)
        hits += len(exact & {int(hit.document_id[1:]) for hit in results})
    print(f"recall@{TOP} of the vectors, by document, against looking at each: {hits / TOP / QUERIES:.3f}")


async def print_latency(name: str, search: Callable[[Any], Awaitable[None]], questions: list[Any]) -> None:
    times: list[float] = []
    for question in questions:
        began = time.perf_counter()
        await search(question)
        times.append(1e3 * (time.perf_counter() - began))
    aim = f"   (asked: p95 less than {TARGET_P95:g} ms)" if name == "hybrid" else ""
    print(f"{name:8} p50 {percentile(times, 0.5):6.2f} ms, p95 {percentile(times, 0.95):6.2f} ms{aim}")


async def measure_ingest(home: Path, data: SyntheticData, documents: int) -> None:
    """An ingest job over a folder, as `caipe kb add` starts it, without embeddings."""
    folder = home / "folder"
    folder.mkdir()
    for number in range(documents):
        (folder / f"d{number}.md").write_bytes(data.markdown())
    kb = create_knowledge_base(home)
    await kb.open()
    began, used = time.perf_counter(), time.process_time()
    _, job = await kb.add_datasource(str(folder))
    async for progress in kb.follow_job(job.job_id):
        job = progress
    seconds, own_work = time.perf_counter() - began, time.process_time() - used
    await kb.aclose()
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    worker_work = workers.ru_utime + workers.ru_stime
    size = sum(path.stat().st_size for path in folder.iterdir()) / documents / 1e3
    print(
        f"{job.done} Markdown documents of {size:.1f} KB, read, cut, put and committed:"
        f" {documents / seconds:.0f} a second (asked: {TARGET_DOCUMENTS:g})"
    )
    print(
        f"  processor time of each: {1e3 * own_work / documents:.1f} ms here,"
        f" {1e3 * worker_work / documents:.1f} ms in workers"
    )


def create_knowledge_base(home: Path) -> KnowledgeBase:
    readers = DocumentReaders()
    context = SourceContext(Fetcher(), home / "cache", {}, read_links=readers.read_links)
    return KnowledgeBase(EmbeddedStore(home / "knowledge"), None, DatasourceResolver(context), readers)


async def measure_fts5(folder: Path, chunks: int) -> None:
    """FTS5 and a matrix, with the same texts and questions."""
    data = SyntheticData()
    db = sqlite3.connect(folder / "fts.db")
    db.execute("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize = 'porter unicode61')")
    began = time.perf_counter()
    for number in range(chunks // OF_A_DOCUMENT):
        document = data.document(number)
        db.executemany(
            "INSERT INTO texts VALUES (?)",
            ((f"{document.title}\n{chunk.text}",) for chunk in document.chunks),
        )
    db.commit()
    print(f"FTS5 + numpy: {chunks} chunks in {time.perf_counter() - began:.0f} s")
    vectors = data.vectors(chunks)
    questions = [
        (data.query(), vectors[at] + 0.03 * data.vectors(1)[0])
        for at in data.numbers.integers(chunks, size=QUERIES)
    ]

    async def search(question: tuple[str, Any]) -> None:
        words = " OR ".join(f'"{word}"' for word in parse_query(question[0])[0])
        lexical = [
            row[0]
            for row in db.execute(
                "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT 100", (words,)
            )
        ]
        near = vectors @ question[1]
        top = np.argpartition(-near, 100)[:100]
        fuse_rankings([lexical, top[np.argsort(-near[top])].tolist()], 100)

    await print_latency("hybrid", search, questions)
    db.close()


def memory() -> str:
    """Resident, of this process and of its workers."""
    own = resident_megabytes(os.getpid())
    workers = sum(map(resident_megabytes, list_children()))
    return f"{own:.0f} MB here, {workers:.0f} MB in workers"


def resident_megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def list_children() -> list[int]:
    return list(map(int, Path("/proc/thread-self/children").read_text().split()))


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as home:
        await measure_ingest(Path(home), SyntheticData(), options.documents)
        if options.compare:
            await measure_fts5(Path(home), options.chunks)
            return
        data, store = SyntheticData(), EmbeddedStore(Path(home) / "chunks")
        print(f"memory before: {memory()}")
        await store.open()
        vectors = await index_chunks(store, data, options.chunks)
        await measure_search(store, data, vectors)
        await store.close()
        began = time.perf_counter()
        await store.open()
        await store.search(data.query(), vectors[0].tolist(), model=MODEL)
        print(f"opened again, worker started and first answer: {time.perf_counter() - began:.1f} s")
        await store.close()
        size = sum(path.stat().st_size for path in (Path(home) / "chunks").rglob("*") if path.is_file()) / 1e6
        print(f"on disk: {size:.0f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--compare", action="store_true")
    asyncio.run(main(parser.parse_args()))
