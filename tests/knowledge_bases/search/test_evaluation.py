"""The figures of a search, against values computed by hand; and the judged questions of this repository."""

import math
from pathlib import Path
from statistics import fmean

import pytest

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.documents import Document, RawDocument
from ai_platform_engineering.knowledge_bases.indexing.chunking import chunk_document
from ai_platform_engineering.knowledge_bases.indexing.embedded_models import (
    EMBEDDED_MODELS,
    MINILM,
    EmbeddedModel,
)
from ai_platform_engineering.knowledge_bases.indexing.embedding_process import EmbeddingProcess
from ai_platform_engineering.knowledge_bases.reading.document_reader import read_document
from ai_platform_engineering.knowledge_bases.search.evaluation import (
    EvaluatedMode,
    compare_modes,
    create_ranker,
    evaluate_mode,
    ndcg,
    percentile,
    read_qrels,
    read_queries,
    recall,
)
from ai_platform_engineering.knowledge_bases.search.rank_fusion import choose_depth, fuse_rankings
from ai_platform_engineering.knowledge_bases.search.significance import compute_p_value
from ai_platform_engineering.knowledge_bases.search.tokens import (
    extract_identifiers,
    parse_query,
    split_camel_case,
)
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from tests.conftest import ROOT, need

JUDGED = ROOT / "tests" / "fixtures" / "kb" / "platform"


# --- figures


def test_gain_is_discounted_by_place() -> None:
    grades = {"a": 2, "b": 1, "c": 0}
    assert ndcg(["a", "b"], grades) == 1.0
    # 1 at the first place and 2 at the third, against 2 at the first and 1 at the second.
    assert ndcg(["b", "x", "a"], grades) == pytest.approx((1 + 2 / math.log2(4)) / (2 + 1 / math.log2(3)))
    assert ndcg(["x", "y"], grades) == 0.0
    assert ndcg(["c"], grades) == 0.0
    assert ndcg(["a"], {}) == 0.0
    assert ndcg(["x"] * 10 + ["a"], grades) == 0.0


def test_the_ideal_is_cut_at_the_same_depth() -> None:
    grades = {f"d{number}": 1 for number in range(20)}
    assert ndcg([f"d{number}" for number in range(10)], grades) == pytest.approx(1.0)


def test_recall_counts_relevant_documents() -> None:
    grades = {"a": 2, "b": 1, "c": 1, "d": 0}
    assert recall(["a", "x", "b", "d"], grades) == pytest.approx(2 / 3)
    assert recall(["x"] * 10 + ["a"], grades) == 0.0
    assert recall(["a"], {"d": 0}) == 0.0


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.95)) == (50.0, 95.0)
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([], 0.5) == 0.0


async def test_means_are_over_questions_that_have_an_answer() -> None:
    ranking = {"first": ["a", "x"], "second": ["x", "b"], "unjudged": ["a"]}

    async def ranked(query: str, mode: EvaluatedMode) -> list[str]:
        return ranking[query]

    queries = {"q1": "first", "q2": "second", "q3": "unjudged", "q4": "irrelevant"}
    figures = await evaluate_mode(
        "lexical", queries, {"q1": {"a": 1}, "q2": {"b": 1}, "q4": {"z": 0}}, ranked
    )
    assert (figures.mode, figures.questions, figures.recall) == ("lexical", 2, 1.0)
    assert figures.ndcg == pytest.approx((1 + 1 / math.log2(3)) / 2)
    assert 0 <= figures.p50 <= figures.p95
    with pytest.raises(Refused, match="No question"):
        await evaluate_mode("lexical", queries, {"other": {"a": 1}}, ranked)


# --- files


def test_judgements_and_questions_are_read(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q1 0 a.md 2\nq1\t0\tb.md\t0\n\nq2 0 c.md 1\n")
    (tmp_path / "queries").write_text("\ufeffq1\thow do I?\n\nq2\twith a\ttab\n", encoding="utf-8")
    assert read_qrels(tmp_path / "qrels") == {"q1": {"a.md": 2, "b.md": 0}, "q2": {"c.md": 1}}
    assert read_queries(tmp_path / "queries") == {"q1": "how do I?", "q2": "with a\ttab"}


@pytest.mark.parametrize(("text", "words"), [("q1 0 a.md\n", "line 1"), ("q1 0 a 1\nq1 0 b x\n", "line 2")])
def test_a_broken_line_of_judgements_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "qrels").write_text(text)
    with pytest.raises(Refused, match=words):
        read_qrels(tmp_path / "qrels")


def test_broken_questions_are_named(tmp_path: Path) -> None:
    (tmp_path / "queries").write_text("q1\tfine\nq2 without a tab\n")
    with pytest.raises(Refused, match="line 2"):
        read_queries(tmp_path / "queries")
    with pytest.raises(Refused, match="cannot be read"):
        read_queries(tmp_path / "nothing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(Refused, match="UTF-8"):
        read_queries(tmp_path / "binary")


# --- fusion and words


def test_ranks_are_fused() -> None:
    scores = fuse_rankings([["a", "b"], ["b", "c"]], 10)
    assert scores == pytest.approx({"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 62})


def test_places_below_the_depth_fill_up_and_overtake_nobody() -> None:
    scores = fuse_rankings([["a", "b", "c"], ["d", "e", "c"]], 2)
    assert sorted(scores, key=lambda item: -scores[item]) == ["a", "d", "b", "e", "c"]


def test_the_depth_is_a_tenth_of_what_is_searched() -> None:
    assert [choose_depth(count) for count in (0, 64, 500, 1_000, 100_000)] == [10, 10, 50, 100, 100]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the kube-apiserver v1.2.3.", "kube-apiserver v1.2.3"),
        ("set MAX_CALLS=5 in _private", "max_calls"),
        ("pull reg.io/team/app:v2.1", "reg.io/team/app:v2.1 reg.io v2.1"),
        ("plain words only", ""),
        ("数据库", "数据 据库"),
    ],
)
def test_identifiers_are_kept_whole(text: str, expected: str) -> None:
    assert extract_identifiers(text) == expected


def test_joined_words_are_taken_apart() -> None:
    assert (
        split_camel_case("CrashLoopBackOff and HTTPServer, not ec2 or AWS")
        == "Crash Loop Back Off HTTP Server"
    )


def test_words_that_say_nothing_are_dropped_unless_there_are_no_others() -> None:
    assert parse_query("How do I restart the Pods?") == (["restart", "pods"], [])
    assert parse_query("what is it") == (["what", "is", "it"], [])
    assert len(parse_query(" ".join(f"word{number}" for number in range(500)))[0]) == 64


# --- the judged set of this repository


@pytest.mark.full
@pytest.mark.parametrize("embedded_model", EMBEDDED_MODELS, ids=lambda model: model.name)
async def test_hybrid_search_on_our_judged_set(embedded_model: EmbeddedModel, tmp_path: Path) -> None:
    need("the embedding model", embedded_model.is_installed(), "its packages are not installed")
    queries, qrels = read_queries(JUDGED / "queries.tsv"), read_qrels(JUDGED / "qrels.txt")
    store, model = EmbeddedStore(tmp_path / "kb"), EmbeddingProcess(embedded_model, tmp_path / "cache")
    await store.open()
    try:
        for path in sorted((JUDGED / "docs").iterdir()):
            kind, parsed = read_document(RawDocument(path.name, path.read_bytes()))
            text, chunks = chunk_document(parsed)
            await store.put_document(
                Document(
                    path.name, "platform", parsed.title, path.name, text, path.name, kind=kind, chunks=chunks
                )
            )
        await store.commit()
        waiting = await store.list_chunks_without_vector(model.name, 1000)
        await store.put_vectors(
            model.name, list(zip(waiting, await model.embed([ref.text for ref in waiting]), strict=True))
        )
        ranker = create_ranker(store, model, {}, chunk_count=len(waiting))
        lexical, vectors, baseline, hybrid = await compare_modes(queries, qrels, ranker, vectors=True)
    finally:
        await store.close()
        await model.close()
    assert {document for grades in qrels.values() for document in grades} <= {
        path.name for path in (JUDGED / "docs").iterdir()
    }
    assert (set(queries), hybrid.questions) == (set(qrels), len(queries))
    if embedded_model is MINILM:
        assert hybrid.ndcg > max(lexical.ndcg, vectors.ndcg, baseline.ndcg)
    else:  # fifty questions do not tell the three apart that know meanings
        assert hybrid.ndcg > lexical.ndcg + 0.03
        assert compute_p_value(baseline.gains, hybrid.gains) > 0.2
        assert vectors.ndcg > 0.83  # MiniLM has .819
    assert hybrid.ndcg - baseline.ndcg == pytest.approx(fmean(hybrid.gains) - fmean(baseline.gains))
    assert hybrid.recall > lexical.recall
    assert lexical.ndcg > 0.75
    assert hybrid.ndcg > 0.8
