"""How well a search finds: judged questions, nDCG, recall and latency, for lexical, vector and hybrid search side by side."""

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.indexing.embeddings import Embedder
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore, SearchMode

Grades = Mapping[str, int]  # by document, as the judgements name it; above 0 is relevant
Ranker = Callable[[str, SearchMode], Awaitable[Sequence[str]]]

DEPTH = 10
_WIDER = 5  # chunks for each document that is looked at


@dataclass(frozen=True, slots=True)
class SearchMetrics:
    """Means over the questions that have a relevant document; latencies in seconds."""

    mode: SearchMode
    questions: int
    ndcg: float
    recall: float
    p50: float
    p95: float


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """TREC judgements: question, an unused column, document, grade; by question."""
    found: dict[str, dict[str, int]] = {}
    for number, line in enumerate(_lines(path), 1):
        columns = line.split()
        if not columns:
            continue
        try:
            question, _, document, grade = columns
            found.setdefault(question, {})[document] = int(grade)
        except ValueError:
            raise Refused(f"{path.name}, line {number}: expected `question 0 document grade`.") from None
    return found


def read_queries(path: Path) -> dict[str, str]:
    """A question for each line: its id, a tab, its text."""
    found: dict[str, str] = {}
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        question, tab, text = line.partition("\t")
        if not tab or not text.strip():
            raise Refused(f"{path.name}, line {number}: expected an id, a tab and the question.")
        found[question.strip()] = text.strip()
    return found


def ndcg(ranked: Sequence[str], grades: Grades, depth: int = DEPTH) -> float:
    """Normalised discounted cumulative gain; the gain of a grade is the grade itself, as trec_eval has it."""
    ideal = _gain(sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:depth])
    if ideal:
        return _gain([max(0, grades.get(document, 0)) for document in ranked[:depth]]) / ideal
    return 0.0


def recall(ranked: Sequence[str], grades: Grades, depth: int = DEPTH) -> float:
    relevant = {document for document, grade in grades.items() if grade > 0}
    if relevant:
        return len(relevant.intersection(ranked[:depth])) / len(relevant)
    return 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not pass."""
    if values:
        return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    return 0.0


async def evaluate_mode(
    mode: SearchMode, queries: Mapping[str, str], qrels: Mapping[str, Grades], ranked: Ranker
) -> SearchMetrics:
    """One pass over the questions that were judged."""
    judged = [
        question
        for question in sorted(queries)
        if any(grade > 0 for grade in qrels.get(question, {}).values())
    ]
    gains = list[float]()
    recalls = list[float]()
    times = list[float]()
    for question in judged:
        began = time.perf_counter()
        found = await ranked(queries[question], mode)
        times.append(time.perf_counter() - began)
        gains.append(ndcg(found, qrels[question]))
        recalls.append(recall(found, qrels[question]))
    if not judged:
        raise Refused(
            "No question has a relevant document: the ids of the questions and of the judgements differ."
        )
    return SearchMetrics(
        mode, len(judged), fmean(gains), fmean(recalls), percentile(times, 0.5), percentile(times, 0.95)
    )


def create_ranker(
    store: KnowledgeStore,
    embedder: Embedder | None,
    names: Mapping[str, str],
    datasources: Sequence[str] = (),
) -> Ranker:
    """Documents in the order of their best chunk. `names`: how the judgements call a document id. With the time of embedding."""

    async def ranked(query: str, mode: SearchMode) -> Sequence[str]:
        vector = (await embedder.embed([query]))[0] if embedder is not None and mode != "lexical" else None
        model = embedder.name if embedder is not None else ""
        hits = await store.search(
            query, vector, model=model, datasources=datasources, limit=_WIDER * DEPTH, mode=mode
        )
        return list(dict.fromkeys(names.get(hit.document_id, hit.document_id) for hit in hits))

    return ranked


async def compare_modes(
    queries: Mapping[str, str], qrels: Mapping[str, Grades], ranked: Ranker, *, vectors: bool
) -> list[SearchMetrics]:
    """One line for each way of searching."""
    modes: tuple[SearchMode, ...] = ("lexical", "vectors", "hybrid") if vectors else ("lexical",)
    return [await evaluate_mode(mode, queries, qrels, ranked) for mode in modes]


def _gain(grades: Sequence[int]) -> float:
    return math.fsum(grade / math.log2(place + 1) for place, grade in enumerate(grades, 1))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise Refused(f"{path} is not a text file in UTF-8.") from None
