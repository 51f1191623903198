"""Who may see documents, in every storage: before ranking and its limits, and in counts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ai_platform_engineering.knowledge_bases.access import ANYBODY, OPERATOR, Viewer, VisibleTo
from ai_platform_engineering.knowledge_bases.documents import Document
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Datasource,
    KnowledgeStore,
    RefreshSchedule,
    SearchMode,
)
from tests.knowledge_bases.stores.test_store import MODEL, SEARCH_MODES, a_document, embedded, filled

ALICE = Viewer(("alice",))
BOB = Viewer(("bob", "group:sre"))
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def restricted(name: str, text: str, *names: str, datasource: str = "docs") -> Document:
    return replace(a_document(name, text, datasource=datasource), visible_to=names)


async def seen(
    store: KnowledgeStore,
    viewer: Viewer,
    mode: SearchMode = "lexical",
    query: str = "certificates",
    limit: int = 10,
) -> set[str]:
    near = [1.0, 0.0, 0.0]
    hits = await store.search(query, near, model=MODEL, limit=limit, mode=mode, viewer=viewer)
    return {hit.document_id for hit in hits}


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", SEARCH_MODES)
async def test_each_viewer_finds_their_own_documents_and_those_for_everybody(
    store: KnowledgeStore, mode: SearchMode
) -> None:
    await filled(
        store,
        a_document("open", "certificates of everybody"),
        restricted("alices", "certificates of the finance cluster", "alice"),
        restricted("sres", "certificates of the edge", "group:sre", "carol"),
        restricted("nobodys", "certificates in the vault"),
    )
    await embedded(store, lambda _: [1.0, 0.0, 0.0])
    assert await seen(store, ANYBODY, mode) == {"open"}
    assert await seen(store, ALICE, mode) == {"open", "alices"}
    assert await seen(store, BOB, mode) == {"open", "sres"}
    assert await seen(store, Viewer(("everybody", "*", "name:alice")), mode) == {"open"}
    assert await seen(store, OPERATOR, mode) == {"open", "alices", "sres", "nobodys"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", SEARCH_MODES)
async def test_hidden_documents_take_no_place_in_the_ranking(store: KnowledgeStore, mode: SearchMode) -> None:
    """Far more hidden ones than candidates, all of them better: the visible ones are still found."""
    hidden = [
        restricted(f"hidden{number:04}", "certificates certificates renewal", "bob") for number in range(450)
    ]
    visible = [restricted(f"mine{number}", f"certificates, part {number}", "alice") for number in range(3)]
    await filled(store, *hidden, *visible)

    def turn(ref: ChunkRef) -> list[float]:
        if ref.document_id.startswith("hidden"):
            return [1.0, 0.0, 0.0]
        return [0.6, 0.8, 0.0]

    await embedded(store, turn)
    assert await seen(store, ALICE, mode, "certificates renewal", limit=3) == {"mine0", "mine1", "mine2"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", SEARCH_MODES)
async def test_a_search_sees_what_changed_since_the_viewers_last_one(
    store: KnowledgeStore, mode: SearchMode
) -> None:
    hidden = [restricted(f"hidden{number:04}", "certificates", "bob") for number in range(450)]
    mine = [restricted(f"mine{number}", "certificates", "alice") for number in range(3)]
    await filled(store, *hidden, *mine)
    await embedded(store, lambda _: [1.0, 0.0, 0.0])
    assert await seen(store, ALICE, mode) == {"mine0", "mine1", "mine2"}
    await store.delete_documents(["mine1"])
    now_bobs = restricted("mine2", "certificates", "bob")
    now_mine = restricted("hidden0007", "certificates", "alice")
    await filled(store, now_bobs, now_mine)
    await embedded(store, lambda _: [1.0, 0.0, 0.0])
    assert await seen(store, ALICE, mode) == {"mine0", "hidden0007"}


async def test_a_rare_word_of_hidden_documents_hides_no_visible_ones(store: KnowledgeStore) -> None:
    """A frequent word adds no candidates in PostgreSQL, once rarer words gave some."""
    hidden = [restricted(f"hidden{number}", "the quokka certificate", "bob") for number in range(30)]
    long = a_document("long", *(f"certificate {number}" for number in range(2_100)))
    await filled(store, *hidden, long)
    assert await seen(store, ALICE, query="quokka certificate") == {"long"}


async def test_an_id_of_a_hidden_document_is_like_an_unknown_one(store: KnowledgeStore) -> None:
    await filled(store, restricted("secret", "the plan", "alice"))
    assert await store.find_document("secret", BOB) is None
    assert await store.find_document("secret") is None
    document = await store.find_document("secret", ALICE)
    assert document is not None
    assert document.visible_to == ("alice",)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", SEARCH_MODES)
async def test_a_datasource_can_be_for_some_people_only(store: KnowledgeStore, mode: SearchMode) -> None:
    for name, visible_to in (("docs", None), ("hr", ("alice",))):
        await store.put_datasource(Datasource(name, f"/{name}", "folder", visible_to=visible_to))
    await filled(
        store,
        a_document("open", "certificates of everybody"),
        a_document("salaries", "certificates of employment", datasource="hr"),
    )
    await embedded(store, lambda _: [1.0, 0.0, 0.0])
    assert await seen(store, BOB, mode) == {"open"}
    assert await store.find_document("salaries", BOB) is None
    assert await seen(store, ALICE, mode) == {"open", "salaries"}
    await store.set_visible_to("hr", ("group:sre",))
    assert await seen(store, ALICE, mode) == {"open"}
    assert await seen(store, BOB, mode) == {"open", "salaries"}
    # Reading it again keeps who may see it.
    await store.put_datasource(Datasource("hr", "/hr", "folder", refreshed=NOON))
    assert await seen(store, ALICE, mode) == {"open"}
    await store.set_visible_to("hr", None)
    assert await seen(store, ANYBODY, mode) == {"open", "salaries"}


async def test_datasources_and_their_counts_are_those_of_the_viewer(store: KnowledgeStore) -> None:
    visible: list[tuple[str, VisibleTo]] = [("docs", None), ("hr", ("alice",))]
    for name, visible_to in visible:
        await store.put_datasource(Datasource(name, f"/{name}", "folder", visible_to=visible_to))
    await filled(store, a_document("one", "text"), restricted("two", "text", "alice"))

    async def counts(viewer: Viewer) -> list[tuple[str, int, int]]:
        datasources = await store.list_datasources(viewer)
        return [(source.name, source.documents, source.chunks) for source in datasources]

    assert await counts(ANYBODY) == [("docs", 1, 1)]
    assert await counts(ALICE) == [("docs", 2, 2), ("hr", 0, 0)]
    assert await counts(OPERATOR) == [("docs", 2, 2), ("hr", 0, 0)]


async def test_other_viewers_replace_the_former_ones(store: KnowledgeStore) -> None:
    await filled(store, restricted("plan", "certificates", "alice"))
    await filled(store, restricted("plan", "certificates", "bob"))
    assert await seen(store, ALICE) == set()
    assert await seen(store, BOB) == {"plan"}
    await filled(store, a_document("plan", "certificates"))
    assert await seen(store, ANYBODY) == {"plan"}


async def test_groups_have_members(store: KnowledgeStore) -> None:
    await store.put_group("sre", ["bob", "carol"])
    await store.put_group("dev", ["bob"])
    assert await store.list_groups_of("bob") == ["dev", "sre"]
    await store.put_group("sre", ["dave"])
    assert await store.list_groups() == {"dev": ["bob"], "sre": ["dave"]}
    assert await store.remove_group("dev")
    assert not await store.remove_group("dev")
    assert await store.list_groups_of("bob") == []


async def test_metadata_and_versions_come_back(store: KnowledgeStore) -> None:
    await filled(store, replace(a_document("one", "text"), metadata={"team": "sre"}))
    document = await store.find_document("one")
    assert document is not None
    assert document.metadata == {"team": "sre"}
    versions = await store.find_versions(["one", "two"])
    assert {version.document_id for version in versions.values()} == {"one"}


async def test_a_due_refresh_is_claimed_once(store: KnowledgeStore) -> None:
    await store.put_datasource(Datasource("docs", "/docs", "folder"))
    assert await store.list_schedules() == []
    await store.set_schedule("docs", 3600, NOON, failures=2)
    assert await store.list_schedules() == [RefreshSchedule("docs", 3600, NOON, 2)]
    later = NOON + timedelta(hours=1)
    job = await store.jobs.claim_refresh("docs", NOON, later)
    assert job is not None
    assert await store.jobs.claim_refresh("docs", NOON, later) is None
    assert await store.jobs.list() == [job]
    await store.put_datasource(Datasource("docs", "/docs", "folder", refreshed=NOON))
    (datasource,) = await store.list_datasources()
    assert (datasource.refresh_every, datasource.refresh_due, datasource.refresh_failures) == (3600, later, 2)
    await store.set_schedule("docs", None, None)
    assert await store.list_schedules() == []
