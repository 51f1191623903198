"""Fusion by scores, feedback and exact terms, against values computed by hand."""

import math
from dataclasses import replace

import pytest

from ai_platform_engineering.knowledge_bases.search.exact_terms import (
    MAX_HOLDERS,
    ExactTerm,
    find_exact_terms,
    find_held_terms,
    weigh_holders,
)
from ai_platform_engineering.knowledge_bases.search.feedback import add_feedback
from ai_platform_engineering.knowledge_bases.search.score_fusion import (
    FusedDocument,
    Ranking,
    ScoredChunk,
    create_lexical_ranking,
    fuse_scores,
    is_too_shallow,
)


def ranking(*scores: tuple[int, float], floor: float | None = None) -> Ranking:
    """Chunks with their scores; the chunks 10 to 19 are those of document 1, and so on."""
    return Ranking([ScoredChunk(chunk, chunk // 10, score) for chunk, score in scores], floor)


def fused(*rankings: Ranking, limit: int = 10, exact: dict[int, float] | None = None) -> dict[int, float]:
    return {item.document: item.score for item in fuse_scores(rankings, limit, exact)}


def test_scores_are_scaled_and_both_rankings_count_the_same() -> None:
    lexical = ranking((10, 8.0), (20, 6.0), (30, 4.0))
    vectors = ranking((30, 0.9), (20, 0.8), (40, 0.5))
    scores = fused(lexical, vectors)
    assert scores == pytest.approx({1: 0.5, 2: 0.25 + 0.375, 3: 0.5, 4: 0.0})
    assert list(scores) == [2, 1, 3, 4]


def test_a_document_has_its_score_in_each_ranking() -> None:
    lexical = replace(ranking((10, 8.0), (20, 6.0), (30, 4.0)), kind="words")
    vectors = ranking((30, 0.9), (20, 0.8), (40, 0.5))
    shares = {item.document: item.shares for item in fuse_scores([lexical, vectors], 10)}
    assert shares[2] == pytest.approx({"words": 0.5, "meaning": 0.75})
    assert shares[1] == pytest.approx({"words": 1.0, "meaning": 0.0})
    assert [item.shares for item in fuse_scores([vectors], 1)] == [{"meaning": 1.0}]


def test_a_document_counts_with_its_best_chunk_in_each_ranking() -> None:
    lexical = ranking((10, 8.0), (11, 7.0), (20, 4.0))
    vectors = ranking((12, 0.9), (11, 0.8), (20, 0.5))
    first, second = fuse_scores([lexical, vectors], 10)
    # The chunk 11 is good in both, although the first of neither.
    assert first == FusedDocument(1, 11, 1.0, (10, 12))
    assert second == FusedDocument(2, 20, 0.0)


def test_what_is_not_in_a_whole_ranking_is_the_floor() -> None:
    whole = create_lexical_ranking(ranking((10, 8.0), (20, 6.0)).chunks, 3)
    assert fused(whole) == pytest.approx({1: 1.0, 2: 0.75})
    cut = create_lexical_ranking(ranking((10, 8.0), (20, 6.0)).chunks, 2)
    assert fused(cut) == pytest.approx({1: 1.0, 2: 0.0})


def test_equal_and_missing_scores() -> None:
    assert fused(ranking((20, 3.0), (10, 3.0))) == {1: 1.0, 2: 1.0}
    assert fused(ranking((10, 3.0)), ranking()) == {1: 0.5}
    assert fused(ranking()) == {}
    assert fused() == {}
    assert fused(ranking((10, 0.5), (20, math.nan), (30, 0.1))) == {1: 1.0, 3: 0.0}


def test_a_document_with_the_identifier_comes_before_all_without() -> None:
    lexical = ranking((10, 8.0), (20, 1.0))
    vectors = ranking((10, 0.9), (20, 0.1))
    assert fused(lexical, vectors, exact={20: 1.0}) == {1: 0.5, 2: 0.5}
    assert list(fused(lexical, vectors, ranking((20, 1.0)), exact={20: 1.0})) == [2, 1]


def test_a_few_long_documents_do_not_fill_a_ranking() -> None:
    long = ranking(*((number, 1.0) for number in range(10, 20)))
    assert is_too_shallow([long], candidates=10, limit=2)
    assert not is_too_shallow([long], candidates=11, limit=2)
    assert not is_too_shallow([long], candidates=10, limit=1)


def test_feedback_moves_the_query_towards_the_mean_of_the_documents() -> None:
    assert add_feedback([2.0, 0.0], []) == [1.0, 0.0]
    assert add_feedback([2.0, 0.0], [[0.0, 5.0]]) == pytest.approx([1.0, 0.3])
    assert add_feedback([1.0, 0.0], [[0.0, 1.0], [1.0, 0.0]]) == pytest.approx([1.15, 0.15])
    assert add_feedback([0.0, 0.0], [[0.0, 0.0]]) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("CrashLoopBackOff", ["crashloopbackoff"]),
        ("what is ERR-1042?", ["err-1042"]),
        ("ORA00942 in charts/app/values.yaml", ["charts/app/values.yaml", "values.yaml", "ora00942"]),
        ("pods of kube-system", ["kube-system"]),
        ("how do GitHub and k8s work, e.g. with S3", []),
        ("\u6570\u636e\u5e93", []),
        ("a-b-c d_e_f g.h.i j-k-l m-n-o", ["a-b-c", "d_e_f", "g.h.i", "j-k-l"]),
    ],
)
def test_exact_terms_of_a_query(query: str, terms: list[str]) -> None:
    assert [term.text for term in find_exact_terms(query)] == terms


def test_a_term_is_held_as_a_whole() -> None:
    terms = find_exact_terms("ERR-1042 CrashLoopBackOff")
    assert find_held_terms(terms, "(err-1042), or crashLoopBackoff.") == terms
    assert find_held_terms(terms, "ERR-10421 CrashLoopBackOffs err 1042") == []


def test_terms_that_many_chunks_hold_do_not_count() -> None:
    rare, common = ExactTerm("kube-system", True), ExactTerm("read-only", True)
    assert weigh_holders({rare: [1], common: range(1, 4)}) == {1: 1.0, 2: 0.5, 3: 0.5}
    assert weigh_holders({rare: [1], common: range(1, MAX_HOLDERS + 2)}) == {1: 0.5}
    assert weigh_holders({}) == {}
