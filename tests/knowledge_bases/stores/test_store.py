"""What every storage of the knowledge base does: one set of tests on each of them."""

import asyncio
import contextlib
import math
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import ConfigurationError, Refused
from ai_platform_engineering.databases.sql_connections import StorageFailed, StorageInUse
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Datasource,
    Hit,
    KnowledgeStore,
    SearchMode,
    VectorModel,
)
from tests.conftest import ROOT
from tests.knowledge_bases.stores.conftest import OpenStore

MODEL = "three"
SEARCH_MODES: tuple[SearchMode, ...] = ("lexical", "hybrid", "vectors")
NOON = datetime(2026, 3, 4, 12, 0, 0, 250, tzinfo=UTC)


def a_document(
    name: str,
    *texts: str,
    datasource: str = "docs",
    title: str = "",
    kind: str = "markdown",
    digest: str = "",
) -> Document:
    """Its chunks are the texts, one after the other."""
    document_text = "\n\n".join(texts)
    chunks: list[Chunk] = []
    start = 0
    for ordinal, text in enumerate(texts):
        chunks.append(Chunk(ordinal, text, (title or name.title(),), start, start + len(text)))
        start += len(text) + 2
    return Document(
        name,
        datasource,
        title or name.title(),
        f"guides/{name}.md",
        document_text,
        digest or name,
        kind=kind,
        chunks=tuple(chunks),
    )


async def filled(store: KnowledgeStore, *documents: Document) -> None:
    for document in documents:
        await store.put_document(document, f"mark of {document.document_id}")
    await store.commit()


async def found(store: KnowledgeStore, query: str, mode: SearchMode = "lexical") -> list[str]:
    return [hit.document_id for hit in await store.search(query, mode=mode)]


async def embedded(store: KnowledgeStore, of: Callable[[ChunkRef], Sequence[float]]) -> int:
    """Every chunk that waits gets its vector."""
    waiting = await store.list_chunks_without_vector(MODEL, 1000)
    await store.put_vectors(MODEL, [(ref, of(ref)) for ref in waiting])
    return len(waiting)


# --- documents


async def test_a_document_comes_back_as_it_was_put(store: KnowledgeStore) -> None:
    text = "Größe 🚀 of pods.\n\n| a | b |\n| 1 | 2 |"
    chunks = (
        Chunk(0, "Größe 🚀 of pods.", ("Guide", "Sizes"), 0, 16),
        Chunk(1, "| a | b |\n| 1 | 2 |\n(repeated)", ("Guide",), 18, len(text)),
    )
    document = Document(
        "d1",
        "docs",
        "Guide",
        "a/b.md",
        text,
        "digest",
        "https://example.org/b",
        "markdown",
        NOON,
        chunks,
        "2 pages",
    )
    await filled(store, document)
    assert await store.find_document("d1") == document
    assert await store.find_document("d2") is None


async def test_putting_again_replaces_text_and_chunks(store: KnowledgeStore) -> None:
    await filled(store, a_document("one", "about volumes", "about quotas"))
    await filled(store, a_document("one", "about ingress"))
    assert await found(store, "volumes") == []
    assert await found(store, "quotas") == []
    assert await found(store, "ingress") == ["one"]
    again = await store.find_document("one")
    assert again is not None
    assert [chunk.text for chunk in again.chunks] == ["about ingress"]


async def test_what_is_deleted_is_not_found(store: KnowledgeStore) -> None:
    await filled(store, a_document("one", "about volumes"), a_document("two", "volumes as well"))
    await store.delete_documents(["one", "unknown"])
    await store.commit()
    assert await found(store, "volumes") == ["two"]
    assert await store.find_document("one") is None
    assert list(await store.list_versions("docs")) == ["guides/two.md"]


async def test_what_cannot_be_stored_leaves_everything_as_it_was(store: KnowledgeStore) -> None:
    await filled(store, a_document("one", "about volumes"))
    await store.put_document(a_document("two", "about quotas"))
    for name in ("one", "new"):
        with pytest.raises(UnicodeEncodeError):
            await store.put_document(a_document(name, "fine", "half a \ud83d sign"))
    await store.commit()
    assert await store.find_document("new") is None
    assert await found(store, "volumes") == ["one"]
    assert await found(store, "quotas") == ["two"]
    assert await found(store, "fine") == []


async def test_marks_tell_what_is_there(store: KnowledgeStore) -> None:
    await filled(store, a_document("one", "x", digest="d1"), a_document("two", "y", datasource="other"))
    await store.update_mark("one", "newer")
    await store.commit()
    marks = await store.list_versions("docs")
    assert {address: (mark.document_id, mark.digest, mark.mark) for address, mark in marks.items()} == {
        "guides/one.md": ("one", "d1", "newer")
    }
    assert (await store.list_versions("other"))["guides/two.md"].mark == "mark of two"
    assert await found(store, "x") == ["one"]


async def test_documents_are_listed_by_address_in_pages(store: KnowledgeStore) -> None:
    await filled(
        store,
        *(a_document(name, "text") for name in ("b", "a", "B", "c")),
        a_document("z", "text", datasource="other"),
    )
    first = await store.list_documents("docs", limit=2)
    assert [document.address for document in first] == ["guides/B.md", "guides/a.md"]
    assert (first[0].text, tuple(first[0].chunks)) == ("", ())
    rest = await store.list_documents("docs", after=first[-1].address)
    assert [document.document_id for document in rest] == ["b", "c"]


# --- datasources and jobs


async def test_datasources_have_their_counts(store: KnowledgeStore) -> None:
    new = Datasource(
        "docs", "/srv/docs", "folder", "Handbook", {"depth": "2"}, refreshed=NOON, cursor="page 7"
    )
    await store.put_datasource(Datasource("docs", "/old", "folder"))
    await store.put_datasource(new)
    await store.put_datasource(Datasource("aws", "https://example.org", "web"))
    await filled(store, a_document("one", "a", "b"), a_document("two", "c", kind="pdf"))
    waiting = await store.list_chunks_without_vector(MODEL, 2)
    await store.put_vectors(MODEL, [(ref, [1.0, 0.0, 0.0]) for ref in waiting])
    assert await store.list_datasources() == [
        Datasource("aws", "https://example.org", "web"),
        Datasource(
            "docs",
            "/srv/docs",
            "folder",
            "Handbook",
            {"depth": "2"},
            documents=2,
            chunks=3,
            embedded=2,
            refreshed=NOON,
            document_kinds={"markdown": 1, "pdf": 1},
            cursor="page 7",
        ),
    ]


async def test_a_datasource_leaves_with_its_documents(store: KnowledgeStore) -> None:
    for name in ("docs", "other"):
        await store.put_datasource(Datasource(name, "/x", "folder"))
    await filled(store, a_document("one", "about volumes"), a_document("two", "volumes", datasource="other"))
    await embedded(store, lambda ref: [1.0, 0.0, 0.0])
    assert await store.remove_datasource("docs") is True
    assert await store.remove_datasource("docs") is False
    assert await found(store, "volumes") == ["two"]
    assert [
        hit.document_id for hit in await store.search("", [1.0, 0.0, 0.0], model=MODEL, mode="vectors")
    ] == ["two"]
    assert [datasource.name for datasource in await store.list_datasources()] == ["other"]


# --- search by words


@pytest.mark.sample(14)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kube-apiserver", "upgrade"),
        ("apiserver", "upgrade"),
        ("CrashLoopBackOff", "crash"),
        ("crashloopbackoff", "crash"),
        ("crash loop", "crash"),
        ("v1.27.3", "upgrade"),
        ("FETCH_DOCUMENT_MAX_CALLS", "limits"),
        ("document max calls", "limits"),
        ("restarting", "crash"),  # by its stem
        ("registry.example.org/team/app:v2", "image"),
        ("how do I do the upgrades of it?", "upgrade"),
        ("Naïve", "limits"),
        ("数据库", "chinese"),
        ('title:"x" AND (upgrading OR +-~^*', "upgrade"),  # nothing of it is syntax
    ],
)
async def test_words_identifiers_and_their_parts_are_found(
    store: KnowledgeStore, query: str, expected: str
) -> None:
    await filled(
        store,
        a_document("upgrade", "Upgrading the kube-apiserver to v1.27.3 comes first.", title="Guide"),
        a_document("crash", "A pod in CrashLoopBackOff restarts.", title="Guide"),
        a_document("limits", "Set FETCH_DOCUMENT_MAX_CALLS to ten, which is naïve.", title="Guide"),
        a_document("image", "Pull registry.example.org/team/app:v2 from there.", title="Guide"),
        a_document("chinese", "连接数据库失败", title="Guide"),
        a_document("other", "Nothing of interest, and no word of the others.", title="Guide"),
    )
    assert (await found(store, query))[:1] == [expected]


@pytest.mark.sample(7)
@pytest.mark.parametrize("query", ["", "   ", "'", "\\", "zebra", "&|!()", "\x00"])
async def test_a_query_that_says_nothing_finds_nothing(store: KnowledgeStore, query: str) -> None:
    await filled(store, a_document("one", "about volumes"))
    assert await store.search(query) == []


async def test_a_rare_word_counts_more_than_a_frequent_one(store: KnowledgeStore) -> None:
    """Frequent is what the documents say now, not what some have said."""
    earlier = [a_document(f"e{number:02}", "cordoning here, cordoning there") for number in range(30)]
    await filled(store, *earlier)
    await store.delete_documents([document.document_id for document in earlier[:20]])
    await filled(store, *(a_document(document.document_id, "nothing of it") for document in earlier[20:]))
    common = [a_document(f"d{number:02}", "the cluster and the cluster") for number in range(30)]
    await filled(
        store,
        *common,
        a_document(
            "rare", "a long text that says little of many things and one word on cordoning among the others"
        ),
    )
    assert (await found(store, "cluster cordoning"))[0] == "rare"


async def test_titles_and_headings_are_searched(store: KnowledgeStore) -> None:
    await filled(
        store,
        a_document("one", "Nothing here.", title="Rotating certificates"),
        a_document("two", "Nothing there."),
    )
    assert await found(store, "certificate rotation") == ["one"]


async def test_a_heading_finds_its_chunk(store: KnowledgeStore) -> None:
    chunks = (
        Chunk(0, "First.", ("Guide", "Installing"), 0, 6),
        Chunk(1, "Second.", ("Guide", "Uninstalling", "On macOS"), 8, 15),
    )
    await filled(store, Document("one", "docs", "Guide", "one.md", "First.\n\nSecond.", "d", chunks=chunks))
    hits = await store.search("macos")
    assert [(hit.document_id, hit.ordinal) for hit in hits] == [("one", 1)]


async def test_a_document_is_one_hit_with_its_best_chunk(store: KnowledgeStore) -> None:
    await filled(
        store,
        a_document("long", *(f"volumes part {n}" for n in range(5)), "volumes volumes"),
        a_document("short", "one word on volumes among several other words here"),
        a_document("other", "nothing of it"),
    )
    await embedded(store, lambda ref: turned(10 if ref.document_id == "long" else 60))
    for mode in SEARCH_MODES[:2]:
        long, short, *others = await store.search("volumes", turned(0), model=MODEL, mode=mode)
        assert (long.document_id, short.document_id) == ("long", "short")
        assert [hit.document_id for hit in others] == [[], ["other"]][mode == "hybrid"]
        assert long.ordinal == 5
        assert len(long.other_ordinals) == 3
        assert set(long.other_ordinals) < set(range(5))
        assert short.other_ordinals == ()
        assert 1 >= long.score > short.score


async def test_as_many_documents_as_are_asked_for_although_some_have_many_chunks(
    store: KnowledgeStore,
) -> None:
    longs = (a_document(f"long{n}", *["volumes volumes"] * 20) for n in range(5))
    shorts = (a_document(f"short{n}", "one word on volumes among others") for n in range(5))
    await filled(store, *longs, *shorts)
    assert sorted(await found(store, "volumes")) == sorted(
        [*(f"long{n}" for n in range(5)), *(f"short{n}" for n in range(5))]
    )


NEAR_MISSES = {
    "CrashLoopBackOff": (
        "The pod is in CrashLoopBackOff.",
        "ImagePullBackOff: the pod cannot back off from the loop of a crash, crash, crash.",
        "A crash loop: the kubelet will back off.",
        "CrashLoopBackOffice is the name of a team.",
    ),
    "ERR-1042": (
        "ERR-1042 means that the lease was lost.",
        "ERR-1043 means that ERR was lost, ERR.",
        "ERR-10421 means that the lease was lost.",
        "XERR-1042 means that the lease was lost.",
        "An ERR of 1042 kinds: ERR, ERR.",
    ),
    "E1042": ("E1042 is a lost lease.", "E1043 is a lost lease.", "E10421 is a lost lease."),
    "values.yaml": (
        "The chart reads charts/app/values.yaml first.",
        "The values of yaml, yaml values, and values in yaml.",
        "values.yml and values-prod.yaml and my-values.yaml",
        "values.yaml.bak is a copy of values",
    ),
    "kube-system": (
        "These pods run in kube-system.",
        "The kube system, a system of kube systems.",
        "kube-public and the system namespace of kube",
        "kube-system-2 is a copy of the kube system",
    ),
    "v1.27.3": ("Use v1.27.3 here.", "Use v1.27.30 here.", "Use v1.27.4 here.", "v1 27 3 v1 27 3"),
}


@pytest.mark.sample(16)
@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
@pytest.mark.parametrize("words", ["{}", "what does {} mean in this lease?"])
@pytest.mark.parametrize("identifier", NEAR_MISSES)
async def test_an_identifier_matches_exactly(
    store: KnowledgeStore, identifier: str, words: str, mode: SearchMode
) -> None:
    """What is only like it comes later, although it is nearer by its vector."""
    exact, *near_misses = NEAR_MISSES[identifier]
    documents = [a_document(f"near{n}", text, title="Guide") for n, text in enumerate(near_misses)]
    await filled(store, *documents, a_document("exact", exact, title="Guide"), a_document("other", "Else."))
    await embedded(store, lambda ref: turned(80 if ref.document_id == "exact" else 5))
    hits = await store.search(words.format(identifier), turned(0), model=MODEL, mode=mode)
    assert hits[0].document_id == "exact"
    assert all(1 >= hits[0].score > hit.score for hit in hits[1:])


async def test_an_identifier_in_a_title_matches_exactly(store: KnowledgeStore) -> None:
    await filled(
        store,
        a_document("near", "ERR-1043, ERR-1043 and ERR-1043", title="ERR-1043"),
        a_document("exact", "The lease was lost.", title="ERR-1042"),
    )
    assert (await found(store, "ERR-1042"))[0] == "exact"


async def test_equal_hits_come_in_the_same_order_every_time(store: KnowledgeStore) -> None:
    await filled(store, *(a_document(name, "the same words") for name in ("c", "a", "b")))
    orders = {tuple(await found(store, "same words")) for _ in range(3)}
    assert len(orders) == 1


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"kind": "pdf"}, ["two"]),
        ({"title": "NETWORK"}, ["one"]),
        ({"path": "guides/t"}, ["three", "two"]),
        ({"path": "guides/t", "kind": "markdown"}, ["three"]),
        ({"kind": "none"}, []),
        ({"title": "100%"}, []),
    ],
)
async def test_filters(store: KnowledgeStore, filters: dict[str, str], expected: list[str]) -> None:
    await filled(
        store,
        a_document("one", "volumes", title="Networks"),
        a_document("two", "volumes", kind="pdf"),
        a_document("three", "volumes"),
    )
    await embedded(store, lambda ref: [1.0, float(ref.ordinal), 0.5])
    for mode in ("lexical", "vectors", "hybrid"):
        hits = await store.search("volumes", [1.0, 0.0, 0.0], model=MODEL, filters=filters, mode=mode)  # type: ignore[arg-type]
        assert sorted(hit.document_id for hit in hits) == expected


async def test_an_unknown_filter_is_refused(store: KnowledgeStore) -> None:
    with pytest.raises(Refused, match="no filter 'colour'"):
        await store.search("x", filters={"colour": "red"})


async def test_only_the_datasources_that_are_asked_for(store: KnowledgeStore) -> None:
    await filled(store, *(a_document(name, "volumes", datasource=name) for name in ("aws", "k8s", "git")))
    await embedded(store, lambda ref: [1.0, 0.0, 0.0])
    for mode in ("lexical", "vectors", "hybrid"):
        hits = await store.search(
            "volumes", [1.0, 0.0, 0.0], model=MODEL, datasources=["aws", "git"], mode=mode
        )  # type: ignore[arg-type]
        assert sorted(hit.document_id for hit in hits) == ["aws", "git"]


# --- vectors


def turned(degrees: float) -> list[float]:
    return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0]


async def test_chunks_wait_for_vectors_in_the_order_in_which_they_came(store: KnowledgeStore) -> None:
    await filled(store, a_document("two", "a", "b", title="Title"), a_document("one", "c"))
    waiting = await store.list_chunks_without_vector(MODEL, 2)
    assert waiting == [ChunkRef("two", 0, "Title\na"), ChunkRef("two", 1, "Title\nb")]
    await store.put_vectors(MODEL, [(waiting[1], turned(0))])
    assert [(ref.document_id, ref.ordinal) for ref in await store.list_chunks_without_vector(MODEL, 9)] == [
        ("two", 0),
        ("one", 0),
    ]
    assert len(await store.list_chunks_without_vector("another model", 9)) == 3


async def test_the_nearest_vectors_come_first(store: KnowledgeStore) -> None:
    await filled(store, *(a_document(f"d{n}", f"text {n}") for n in range(8)))
    await embedded(store, lambda ref: turned(10.0 * int(ref.document_id[1:])))
    hits = await store.search("", turned(31), model=MODEL, mode="vectors", limit=3)
    assert [hit.document_id for hit in hits] == ["d3", "d4", "d2"]
    assert await store.search("", turned(31), model="another", mode="vectors") == []
    assert await store.search("", None, model=MODEL, mode="vectors") == []


async def test_hybrid_prefers_what_both_find(store: KnowledgeStore) -> None:
    others = [a_document(name, "disks") for name in ("near", "nearer", "far")]
    await filled(store, a_document("words", "volumes volumes"), a_document("both", "volumes of it"), *others)
    angles = {"words": 90, "far": 60, "near": 20, "both": 10, "nearer": 1}
    await embedded(store, lambda ref: turned(angles[ref.document_id]))
    hits = await store.search("volumes", turned(0), model=MODEL)
    assert hits[0].document_id == "both"
    assert {hit.document_id for hit in hits} == set(angles)
    without = await store.search("volumes", None, model=MODEL)
    assert {hit.document_id for hit in without} == {"words", "both"}


async def test_hybrid_search_takes_feedback_from_the_best_documents(store: KnowledgeStore) -> None:
    """Near to the query are two documents, of which one is like those that both find."""
    angles = {"both1": 40, "both2": 42, "both3": 44, "like": 12, "unlike": -10, "far": -120}
    documents = [
        a_document(name, "volumes" if name.startswith("both") else "disks", title="Guide") for name in angles
    ]
    await filled(store, *documents)
    await embedded(store, lambda ref: turned(angles[ref.document_id]))
    nearest = await store.search("", turned(0), model=MODEL, mode="vectors")
    assert [hit.document_id for hit in nearest[:2]] == ["unlike", "like"]
    hits = await store.search("volumes", turned(0), model=MODEL)
    order = [hit.document_id for hit in hits]
    assert set(order[:3]) == {"both1", "both2", "both3"}
    assert order[3:] == ["like", "unlike", "far"]


async def test_a_vector_of_zeros_disturbs_no_ranking(store: KnowledgeStore) -> None:
    await filled(store, *(a_document(name, "volumes") for name in ("zero", "near", "far")))
    angles = {"near": turned(5), "far": turned(50), "zero": [0.0, 0.0, 0.0]}
    await embedded(store, lambda ref: angles[ref.document_id])
    hits = await store.search("volumes", turned(0), model=MODEL)
    assert hits[0].document_id == "near"
    assert all(0 <= hit.score <= 1 for hit in hits)


async def test_each_model_has_its_own_vectors(store: KnowledgeStore) -> None:
    await filled(store, a_document("one", "a"), a_document("two", "b"))
    await embedded(store, lambda ref: turned(0 if ref.document_id == "one" else 90))
    await store.put_vectors(
        "wide",
        [
            (ref, [1.0] * 8 if ref.document_id == "two" else [-1.0] * 8)
            for ref in await store.list_chunks_without_vector("wide", 9)
        ],
    )
    assert (await store.search("", turned(0), model=MODEL, mode="vectors"))[0].document_id == "one"
    assert (await store.search("", [1.0] * 8, model="wide", mode="vectors"))[0].document_id == "two"


async def test_vectors_of_another_length_are_refused(store: KnowledgeStore) -> None:
    await filled(store, a_document("one", "a"))
    waiting = await store.list_chunks_without_vector(MODEL, 1)
    await store.put_vectors(MODEL, [(waiting[0], turned(0))])
    with pytest.raises(ConfigurationError, match="used to return 3 dimensions and now returns 2"):
        await store.put_vectors(MODEL, [(waiting[0], [1.0, 0.0])])
    with pytest.raises(ConfigurationError, match="have 3 dimensions, but the query vector has 2"):
        await store.search("", [1.0, 0.0], model=MODEL, mode="vectors")
    assert (await store.search("", turned(0), model=MODEL, mode="vectors"))[0].document_id == "one"


async def test_a_chunk_that_stays_as_it_is_keeps_its_vector(store: KnowledgeStore) -> None:
    await filled(store, a_document("one", "first", "second", "third", title="T"))
    await embedded(store, lambda ref: turned(10.0 * ref.ordinal))
    await filled(store, a_document("one", "new", "first", "changed", "third", title="T"))
    assert [ref.text for ref in await store.list_chunks_without_vector(MODEL, 9)] == ["T\nnew", "T\nchanged"]
    assert (await store.search("", turned(20), model=MODEL, mode="vectors"))[0].ordinal == 3
    await filled(store, a_document("one", "new", "first", "changed", "third", title="Another title"))
    assert len(await store.list_chunks_without_vector(MODEL, 9)) == 4
    assert await store.search("", turned(20), model=MODEL, mode="vectors") == []


async def test_a_vector_for_a_text_that_changed_meanwhile_is_dropped(store: KnowledgeStore) -> None:
    await filled(store, a_document("one", "old text"), a_document("two", "gone soon"))
    waiting = await store.list_chunks_without_vector(MODEL, 9)
    await filled(store, a_document("one", "new text"))
    await store.delete_documents(["two"])
    await store.put_vectors(MODEL, [(ref, turned(0)) for ref in waiting])
    assert await store.search("", turned(0), model=MODEL, mode="vectors") == []
    assert [ref.text for ref in await store.list_chunks_without_vector(MODEL, 9)] == ["One\nnew text"]


async def test_a_vector_is_replaced_by_a_newer_one(store: KnowledgeStore) -> None:
    await filled(store, a_document("one", "a"), a_document("two", "b"))
    waiting = await store.list_chunks_without_vector(MODEL, 9)
    await store.put_vectors(MODEL, [(waiting[0], turned(0)), (waiting[1], turned(40))])
    await store.put_vectors(MODEL, [(waiting[0], turned(90))])
    hits = await store.search("", turned(0), model=MODEL, mode="vectors")
    assert [hit.document_id for hit in hits] == ["two", "one"]


# --- opening again, and at the same time


async def test_everything_is_there_when_it_is_opened_again(open_store: OpenStore) -> None:
    store = await open_store()
    await store.put_datasource(Datasource("docs", "/x", "folder"))
    await filled(store, *(a_document(f"d{n}", f"about topic{n}") for n in range(5)))
    await embedded(store, lambda ref: turned(20.0 * int(ref.document_id[1:])))
    await store.delete_documents(["d4"])
    await store.commit()
    before = await store.search("topic3", turned(21), model=MODEL)
    await store.close()
    store = await open_store()
    assert await store.search("topic3", turned(21), model=MODEL) == before
    assert {hit.document_id for hit in before} == {"d0", "d1", "d2", "d3"}
    assert await store.list_chunks_without_vector(MODEL, 9) == []
    assert (await store.list_datasources())[0].embedded == 4


async def test_a_closed_storage_says_so(store: KnowledgeStore) -> None:
    await store.close()
    with pytest.raises(StorageFailed, match="closed"):
        await store.search("x")
    await store.close()


async def test_searching_while_more_is_written(store: KnowledgeStore) -> None:
    await filled(store, *(a_document(f"d{n}", "steady text", "more of it") for n in range(20)))
    await embedded(store, lambda ref: turned(float(ref.ordinal)))
    stop = asyncio.Event()
    results: list[list[Hit]] = []

    async def searched() -> None:
        while not stop.is_set():
            results.append(await store.search("steady", turned(0), model=MODEL, limit=5))

    searching = [asyncio.create_task(searched()) for _ in range(3)]
    for number in range(60):
        await store.put_document(a_document(f"new{number % 30}", f"other words {number}"))
        if number % 20 == 19:
            await store.commit()
            await embedded(store, lambda ref: turned(80.0))
            await store.delete_documents([f"new{number % 30}"])
    stop.set()
    await asyncio.gather(*searching)
    assert len(results) >= 3
    assert all(hits[0].document_id.startswith("d") and len(hits) == 5 for hits in results)


async def test_two_who_have_it_open_see_the_same(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await filled(first, a_document("one", "about volumes"))
    await embedded(first, lambda ref: turned(0))
    for mode in ("lexical", "vectors"):
        assert (await second.search("volumes", turned(0), model=MODEL, mode=mode))[0].document_id == "one"  # type: ignore[arg-type]
    await filled(first, a_document("two", "volumes and quotas"))
    await embedded(first, lambda ref: turned(10))
    assert await found(second, "quotas") == ["two"]
    assert (await second.search("", turned(10), model=MODEL, mode="vectors"))[0].document_id == "two"
    await first.delete_documents(["two"])
    await first.commit()
    assert await found(second, "quotas") == []
    assert [hit.document_id for hit in await second.search("", turned(10), model=MODEL, mode="vectors")] == [
        "one"
    ]


# --- the embedded one alone

KILLED = """
import asyncio, os, sys
from pathlib import Path
from tests.knowledge_bases.stores.test_store import MODEL, a_document, embedded, filled, turned
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob

async def main():
    store = EmbeddedStore(Path(sys.argv[1]))
    await store.open()
    await filled(
        store,
        a_document("kept", "about volumes"),
        a_document("replaced", "older words"),
        a_document("removed", "about quotas"),
    )
    await embedded(store, lambda ref: turned(10))
    await store.put_document(a_document("late", "about ingress"))
    await store.put_document(a_document("replaced", "newer words"))
    await store.delete_documents(["removed"])
    await store.jobs.add("docs")
    await embedded(store, lambda ref: turned(70))
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def embedded_store(folder: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(folder)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_a_store_of_an_earlier_version_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    folder = tmp_path / "kb"
    async with embedded_store(folder) as store:
        await filled(store, a_document("one", "about volumes"))
        await store.put_datasource(Datasource("docs", "/srv/docs", "folder", cursor="page 7"))
        await store.jobs.stop((await store.jobs.add("docs")).job_id)
        await store.commit()
        waiting = await store.list_chunks_without_vector(MODEL, 10)
        await store.put_vectors(MODEL, [(waiting[0], [1.0, 0.0, 0.0])])
        assert await store.list_models() == [VectorModel(MODEL, complete=False)]
    with contextlib.closing(sqlite3.connect(folder / "knowledge.db", isolation_level=None)) as db:
        db.execute("ALTER TABLE documents DROP COLUMN missing")
        db.execute("ALTER TABLE jobs DROP COLUMN cut")
        db.execute("ALTER TABLE models DROP COLUMN state")
        db.execute("DROP TABLE document_viewers")
        for column in ("visible_to", "metadata"):
            db.execute(f"ALTER TABLE documents DROP COLUMN {column}")
        for column in ("visible_to", "refresh_every", "refresh_due", "refresh_failures"):
            db.execute(f"ALTER TABLE datasources DROP COLUMN {column}")
        db.execute("DROP TABLE group_members")
        db.execute("DROP INDEX jobs_unfinished")
        for column in ("holder", "lease_until", "epoch", "attempts"):
            db.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
        db.execute("ALTER TABLE datasources DROP COLUMN cursor")
        db.execute("PRAGMA user_version = 1")
    async with embedded_store(folder) as store:
        document = await store.find_document("one")
        assert document is not None
        assert document.missing == ""
        assert document.visible_to is None
        assert [job.cut for job in await store.jobs.list()] == [()]
        assert await store.list_models() == [VectorModel(MODEL, complete=True)]  # it answered before
        assert [datasource.cursor for datasource in await store.list_datasources()] == [""]
        assert await found(store, "volumes") == ["one"]


async def test_after_a_kill_the_indexes_are_mended_from_the_rows(tmp_path: Path) -> None:
    """The rows were stored by the job's note; neither the words nor the vectors were."""
    process = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "kb")], cwd=ROOT, check=False)
    assert process.returncode == -9
    async with embedded_store(tmp_path / "kb") as store:
        assert await found(store, "volumes") == ["kept"]
        assert await found(store, "ingress") == ["late"]
        assert await found(store, "newer") == ["replaced"]
        assert await found(store, "older") == []
        assert await found(store, "quotas") == []
        near = await store.search("", turned(70), model=MODEL, mode="vectors")
        assert [hit.document_id for hit in near] == ["late", "replaced", "kept"]
        assert [job.datasource for job in await store.jobs.list(unfinished=True)] == ["docs"]


@pytest.mark.parametrize("lost", ["lexical", "meta", "vectors", "broken vectors"])
async def test_a_lost_or_broken_index_is_built_again(tmp_path: Path, lost: str) -> None:
    folder = tmp_path / "kb"
    async with embedded_store(folder) as store:
        await filled(store, *(a_document(f"d{n}", f"about topic{n}") for n in range(5)))
        await embedded(store, lambda ref: turned(20.0 * int(ref.document_id[1:])))
    lexical, vectors = next((folder / "lexical").glob("v*")), next(folder.glob("vectors-*"))
    match lost:
        case "lexical":
            for path in lexical.iterdir():
                path.unlink()
        case "meta":
            (lexical / "meta.json").write_text("{}")
        case "vectors":
            vectors.unlink()
        case _:
            vectors.write_bytes(b"no graph")
    async with embedded_store(folder) as store:
        assert await found(store, "topic3") == ["d3"]
        assert (await store.search("", turned(40), model=MODEL, mode="vectors"))[0].document_id == "d2"


async def test_an_older_index_than_the_rows_is_built_again(tmp_path: Path) -> None:
    """As when files are copied back one by one."""
    folder = tmp_path / "kb"
    async with embedded_store(folder) as store:
        await filled(store, a_document("one", "about volumes"))
    shutil.copytree(folder / "lexical", tmp_path / "older")
    async with embedded_store(folder) as store:
        await filled(store, a_document("two", "about quotas"))
    shutil.rmtree(folder / "lexical")
    (tmp_path / "older").rename(folder / "lexical")
    async with embedded_store(folder) as store:
        assert await found(store, "quotas") == ["two"]
        assert await found(store, "volumes") == ["one"]


async def test_indexes_that_fit_are_not_built_again_and_nothing_is_left_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="ai_platform_engineering.knowledge_bases")
    async with embedded_store(tmp_path / "kb") as store:
        await filled(store, a_document("one", "a", "b"), a_document("two", "c"))
        await embedded(store, lambda ref: turned(10))
        await filled(store, a_document("one", "a", "changed"))
        await store.delete_documents(["two"])
    async with embedded_store(tmp_path / "kb") as store:
        assert len(await store.search("", turned(10), model=MODEL, mode="vectors")) == 1
    assert caplog.messages == []
    with contextlib.closing(sqlite3.connect(tmp_path / "kb" / "knowledge.db")) as db:
        counts = [
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("documents", "chunks", "vectors", "gone")
        ]
    assert counts == [1, 2, 1, 0]


async def test_a_second_process_only_reads(tmp_path: Path) -> None:
    async with embedded_store(tmp_path / "kb") as first, embedded_store(tmp_path / "kb") as second:
        assert (first.is_writable, second.is_writable) == (True, False)
        with pytest.raises(StorageInUse, match="only read"):
            await second.put_document(a_document("one", "x"))
    async with embedded_store(tmp_path / "kb") as third:
        assert third.is_writable


async def test_many_vectors_are_searched_in_the_graph_and_filtered_exactly(tmp_path: Path) -> None:
    """More than are looked at one by one, of which few are asked for."""
    async with embedded_store(tmp_path / "kb") as store:
        for number in range(600):
            await store.put_document(
                a_document(
                    f"d{number:03}",
                    *(f"text {part}" for part in range(10)),
                    datasource="few" if number % 100 == 7 else "many",
                )
            )
        await store.commit()
        while waiting := await store.list_chunks_without_vector(MODEL, 2000):
            await store.put_vectors(
                MODEL,
                [(ref, turned(0.05 * int(ref.document_id[1:]) + 0.001 * ref.ordinal)) for ref in waiting],
            )
        hits = await store.search("", turned(0.05 * 300), model=MODEL, mode="vectors", limit=3)
        assert {hit.document_id for hit in hits} <= {"d299", "d300", "d301"}
        few = await store.search("", turned(0), model=MODEL, mode="vectors", datasources=["few"], limit=4)
        assert [(hit.document_id, hit.ordinal) for hit in few] == [
            ("d007", 0),
            ("d107", 0),
            ("d207", 0),
            ("d307", 0),
        ]
        assert few[0].other_ordinals == (1, 2, 3)
