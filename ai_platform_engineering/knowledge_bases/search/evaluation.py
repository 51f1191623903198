"""Evaluation of search on judged questions: nDCG, recall and latency of lexical, vector and hybrid search,
and of the baseline, reciprocal rank fusion."""

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.indexing.embeddings import Embedder
from ai_platform_engineering.knowledge_bases.search.rank_fusion import choose_depth, fuse_rankings
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore, SearchMode, Vector

Grades = Mapping[str, int]  # by document, as the judgements name it; above 0 is relevant
EvaluatedMode = SearchMode | Literal["rrf"]  # reciprocal rank fusion: the baseline of the hybrid search
Ranker = Callable[[str, EvaluatedMode], Awaitable[Sequence[str]]]

DEPTH = 10
_FUSED_DOCUMENTS = 100  # of each ranking that reciprocal rank fusion takes in


@dataclass(frozen=True, slots=True)
class SearchMetrics:
    """Means over the questions that have a relevant document; latencies in seconds. `gains`: the nDCG of each
    question, in their order."""

    mode: EvaluatedMode
    questions: int
    ndcg: float
    recall: float
    p50: float
    p95: float
    gains: tuple[float, ...] = ()


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """TREC judgements by question; on each line a question, an unused column, a document and a grade."""
    grades_by_question: dict[str, dict[str, int]] = {}
    for number, line in enumerate(_read_lines(path), 1):
        columns = line.split()
        if not columns:
            continue
        try:
            question, _, document, grade = columns
            grades_by_question.setdefault(question, {})[document] = int(grade)
        except ValueError:
            raise Refused(f"{path.name}, line {number}: expected `question 0 document grade`.") from None
    return grades_by_question


def read_queries(path: Path) -> dict[str, str]:
    """Questions by id; on each line an id, a tab and the text."""
    queries: dict[str, str] = {}
    for number, line in enumerate(_read_lines(path), 1):
        if not line.strip():
            continue
        question, tab, text = line.partition("\t")
        if not tab or not text.strip():
            raise Refused(f"{path.name}, line {number}: expected an id, a tab and the question.")
        queries[question.strip()] = text.strip()
    return queries


def ndcg(ranked: Sequence[str], grades: Grades, depth: int = DEPTH) -> float:
    """Normalised discounted cumulative gain; the gain of a grade is the grade itself, as trec_eval has it."""
    relevant_grades = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    ideal_gain = _discounted_gain(relevant_grades[:depth])
    if not ideal_gain:
        return 0.0
    return _discounted_gain([max(0, grades.get(document, 0)) for document in ranked[:depth]]) / ideal_gain


def recall(ranked: Sequence[str], grades: Grades, depth: int = DEPTH) -> float:
    """The share of the relevant documents that the first places hold."""
    relevant = {document for document, grade in grades.items() if grade > 0}
    if not relevant:
        return 0.0
    return len(relevant.intersection(ranked[:depth])) / len(relevant)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not pass."""
    if not values:
        return 0.0
    index = max(0, math.ceil(share * len(values)) - 1)
    return sorted(values)[index]


async def evaluate_mode(
    mode: EvaluatedMode, queries: Mapping[str, str], qrels: Mapping[str, Grades], ranker: Ranker
) -> SearchMetrics:
    """Searches for every question that has a relevant document."""
    gains: list[float] = []
    recalls: list[float] = []
    latencies: list[float] = []
    for question in sorted(queries):
        grades = qrels.get(question, {})
        if max(grades.values(), default=0) <= 0:
            continue
        start = time.perf_counter()
        documents = await ranker(queries[question], mode)
        latencies.append(time.perf_counter() - start)
        gains.append(ndcg(documents, grades))
        recalls.append(recall(documents, grades))
    if not gains:
        raise Refused(
            "No question has a relevant document: the ids of the questions and of the judgements differ."
        )
    return SearchMetrics(
        mode=mode,
        questions=len(gains),
        ndcg=fmean(gains),
        recall=fmean(recalls),
        p50=percentile(latencies, 0.5),
        p95=percentile(latencies, 0.95),
        gains=tuple(gains),
    )


def create_ranker(
    store: KnowledgeStore,
    embedder: Embedder | None,
    names: Mapping[str, str],
    datasources: Sequence[str] = (),
    *,
    chunk_count: int,
) -> Ranker:
    """Ranks documents; the query is embedded each time, as in a real search.

    `names`: what the judgements call a document id. `chunk_count`: how many are searched."""
    model = "" if embedder is None else embedder.name

    async def search(query: str, vector: Vector | None, limit: int, mode: SearchMode) -> list[str]:
        hits = await store.search(
            query, vector, model=model, datasources=datasources, limit=limit, mode=mode, viewer=OPERATOR
        )
        return [names.get(hit.document_id, hit.document_id) for hit in hits]

    async def rank(query: str, mode: EvaluatedMode) -> Sequence[str]:
        vector = None
        if embedder is not None and mode != "lexical":
            (vector,) = await embedder.embed([query])
        if mode != "rrf":
            return await search(query, vector, DEPTH, mode)
        lexical = await search(query, None, _FUSED_DOCUMENTS, "lexical")
        nearest = await search(query, vector, _FUSED_DOCUMENTS, "vectors")
        scores = fuse_rankings([lexical, nearest], choose_depth(chunk_count))
        return sorted(scores, key=lambda name: (-scores[name], name))[:DEPTH]

    return rank


async def compare_modes(
    queries: Mapping[str, str], qrels: Mapping[str, Grades], ranker: Ranker, *, vectors: bool
) -> list[SearchMetrics]:
    """The metrics of each search mode and of the baseline; only of the lexical one without vectors."""
    modes: tuple[EvaluatedMode, ...] = ("lexical",)
    if vectors:
        modes = ("lexical", "vectors", "rrf", "hybrid")
    return [await evaluate_mode(mode, queries, qrels, ranker) for mode in modes]


def _discounted_gain(grades: Sequence[int]) -> float:
    return math.fsum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise Refused(f"{path} is not a text file in UTF-8.") from None
