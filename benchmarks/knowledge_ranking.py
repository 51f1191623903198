"""What a search over many chunks costs: words, meaning, both, and the ranking that both had before.

    .venv/bin/python -m benchmarks.knowledge_ranking [--chunks 100000] [--rounds 5]

"before" is reciprocal rank fusion without feedback: one search by words, one by meaning, and the ranks added.
All rankings take turns with the same questions in one process and one run, so that the ratio does not depend
on what else the machine does. A question counts with its fastest round.
"""

import argparse
import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.search.evaluation import percentile
from ai_platform_engineering.knowledge_bases.search.rank_fusion import choose_depth, fuse_rankings
from ai_platform_engineering.knowledge_bases.search.score_fusion import count_candidates
from ai_platform_engineering.knowledge_bases.stores.embedded import lexical_index, sqlite_reads, sqlite_tables
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_search import SearchRequest, search
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.embedded.vector_indexes import VectorIndexes
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import SearchMode
from benchmarks.knowledge import MODEL, TOP, SyntheticData, index_chunks

QUERIES = 200
TARGET = 1.3  # times the p95 of "before"
MODES: dict[str, SearchMode] = {"words": "lexical", "meaning": "vectors", "both": "hybrid"}

Question = tuple[str, list[float]]
Ranker = Callable[[sqlite3.Connection, Question], int]  # returns how many results there are


async def create_store(folder: Path, chunks: int) -> list[Question]:
    """Fills the folder; returns the questions."""
    data = SyntheticData()
    store = EmbeddedStore(folder)
    await store.open()
    try:
        vectors = await index_chunks(store, data, chunks)
    finally:
        await store.close()
    questions: list[Question] = []
    for at in data.numbers.integers(len(vectors), size=QUERIES):
        questions.append((data.query(), (vectors[at] + 0.03 * data.vectors(1)[0]).tolist()))
    return questions


def create_rankers(folder: Path, chunks: int) -> dict[str, Ranker]:
    lexical = lexical_index.open_index(folder / "lexical", writes=False)
    vector_indexes = VectorIndexes(folder, writes=False)

    def fuse_ranks(db: sqlite3.Connection, question: Question) -> int:
        """The ranking of words and meaning before scores were fused."""
        model_row = sqlite_reads.find_model(db, MODEL)
        assert model_row is not None
        candidates = count_candidates(TOP)
        words = [chunk for chunk, _ in lexical.search(question[0], candidates)]
        neighbours = vector_indexes.get_index(db, *model_row).search(question[1], candidates)
        chunk_of_vector = sqlite_reads.select_chunks_of_vectors(db, [number for number, _ in neighbours])
        meaning = [chunk_of_vector[number][0] for number, _ in neighbours if number in chunk_of_vector]
        scores = fuse_rankings([words, meaning], choose_depth(chunks))
        best = sorted(scores, key=lambda chunk: (-scores[chunk], chunk))[:TOP]
        return len(sqlite_reads.select_chunk_locations(db, best))

    def create_ranker(mode: SearchMode) -> Ranker:
        def rank(db: sqlite3.Connection, question: Question) -> int:
            request = SearchRequest(question[0], question[1], MODEL, (), {}, TOP, mode, OPERATOR)
            return len(search(db, lexical, vector_indexes, request))

        return rank

    rankers: dict[str, Ranker] = {"before": fuse_ranks}
    for name, mode in MODES.items():
        rankers[name] = create_ranker(mode)
    return rankers


def measure(folder: Path, questions: list[Question], chunks: int, rounds: int) -> dict[str, list[float]]:
    """The milliseconds of each question's fastest round, by ranking."""
    rankers = create_rankers(folder, chunks)
    readers = sqlite_tables.ReaderPool(folder / sqlite_tables.DATABASE_NAME, 1)
    fastest: dict[str, list[float]] = {name: [float("inf")] * len(questions) for name in rankers}
    for _ in range(rounds):
        for number, question in enumerate(questions):
            for name, rank in rankers.items():
                with readers.connection() as db:
                    began = time.perf_counter()
                    assert rank(db, question) > 0
                    milliseconds = 1e3 * (time.perf_counter() - began)
                fastest[name][number] = min(fastest[name][number], milliseconds)
    readers.close()
    return fastest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "knowledge"
        questions = asyncio.run(create_store(folder, arguments.chunks))
        times = measure(folder, questions, arguments.chunks, arguments.rounds)
    for name, values in times.items():
        print(f"{name:8} p50 {percentile(values, 0.5):5.2f} ms, p95 {percentile(values, 0.95):5.2f} ms")
    for share in (0.5, 0.95):
        ratio = percentile(times["both"], share) / percentile(times["before"], share)
        print(f"both / before, p{100 * share:.0f}: {ratio:.2f} times (to reach at p95: {TARGET})")


if __name__ == "__main__":
    main()
