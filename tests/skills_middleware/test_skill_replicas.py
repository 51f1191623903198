"""The store of skills on SQLite and on PostgreSQL, and two catalogues on one PostgreSQL."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.skills_middleware.catalog_factory import build_skill_catalog
from ai_platform_engineering.skills_middleware.postgres_skills import PostgresSkillDatabase
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog, SkillChanged, SkillConflict
from ai_platform_engineering.skills_middleware.skill_database import SkillDatabase, SqliteSkillDatabase
from ai_platform_engineering.skills_middleware.skill_store import Hub, SkillKey, SkillStore
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill
from ai_platform_engineering.skills_middleware.sources.stored_source import StoredSource
from tests.support.database_servers import DatabaseServers
from tests.support.fakes.git_server import GitServer, commit, git_server, repository
from tests.support.ports import free_port
from tests.support.skill_files import skill_files, skill_md

HUB = Hub("h", "https://git.test/x", "main", "skills", "c" * 40)
CONFIGURED = Hub("team", "https://git.test/team", configured=True)


@pytest.fixture(scope="module")
def servers() -> Iterator[DatabaseServers]:
    with DatabaseServers() as running:
        yield running


@pytest.fixture
async def address(servers: DatabaseServers) -> str:
    """An empty database."""

    def empty() -> None:
        with psycopg.connect(servers.postgres, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS caipe_skills CASCADE")

    await asyncio.to_thread(empty)
    return servers.postgres


OpenStore = Callable[[], SkillStore]


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens the same storage as often as it is called."""
    stores: list[SkillStore] = []
    if request.param == "postgres":
        address = request.getfixturevalue("address")

    def open_new() -> SkillStore:
        database: SkillDatabase = SqliteSkillDatabase(tmp_path / "skills.db")
        if request.param == "postgres":
            database = PostgresSkillDatabase(address, "PostgreSQL", 5.0)
        store = SkillStore(database)
        stores.append(store)
        return store

    yield open_new
    for store in stores:
        store.close()


def a_skill(name: str, mark: str = "1", body: str = "Look.") -> RawSkill:
    return RawSkill(name, name, mark, skill_files(name, body))


# --- the store on both databases


def test_skills_switches_and_hubs_come_back(open_store: OpenStore) -> None:
    store = open_store()
    odd = RawSkill("odd", "odd", "1", {"SKILL.md": b"\0\xff", "a\u00e9/b.md": "é\n".encode()})
    assert store.add("stored", a_skill("one"))
    assert not store.add("stored", a_skill("one", body="Other."))
    assert store.add("stored", odd)
    assert not store.update("stored", a_skill("one", "2"), "0")
    assert store.update("stored", a_skill("one", "2", "New."), "1")
    assert not store.update("stored", a_skill("two"), None)
    store.set_switch("shipped", "", "cost-check", enabled=False)
    store.set_switch("stored", "", "one", enabled=False)
    store.set_switch("stored", "", "one", enabled=True)
    store.put_hub(HUB, [a_skill("three")])
    store.put_hub(Hub("g", "https://git.test/y"))
    again = open_store()
    skills = StoredSource(again).read_skills({})
    assert skills["odd"] == odd
    assert b"New." in skills["one"].files["SKILL.md"]
    assert again.fingerprints("stored", "") == {"odd": "1", "one": "2"}
    assert again.total_size("stored") == skills["one"].size + odd.size
    assert again.switches() == {("shipped", "", "cost-check"): False, ("stored", "", "one"): True}
    assert again.hubs() == [HUB, Hub("g", "https://git.test/y")]
    assert list(StoredSource(again, origin="hub", origin_id="h").read_skills({})) == ["three"]
    assert StoredSource(again).read_skills(skills)["one"] is skills["one"]
    assert not again.remove(SkillKey("stored", "", "one"), "1")
    assert again.remove(SkillKey("stored", "", "one"))
    assert not store.remove(SkillKey("stored", "", "one"))
    assert again.read_skill(SkillKey("stored", "", "one")) is None
    assert again.remove_hub("h")
    assert not store.remove_hub("h")
    assert StoredSource(store, origin="hub", origin_id="h").read_skills({}) == {}
    assert store.switches() == {("shipped", "", "cost-check"): False}


async def test_of_two_who_store_the_same_name_one_wins(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(4)]
    for number in range(5):
        name = f"skill-{number}"
        added = await asyncio.gather(
            *(
                asyncio.to_thread(store.add, "stored", a_skill(name, str(mark)))
                for mark, store in enumerate(stores)
            )
        )
        assert sorted(added) == [False, False, False, True]
        raw = stores[0].read_skill(SkillKey("stored", "", name))
        assert raw is not None
        assert raw.fingerprint == str(added.index(True))


def test_hubs_of_the_settings_replace_those_of_before(open_store: OpenStore) -> None:
    store, other = open_store(), open_store()
    store.put_hub(HUB, [a_skill("three")])
    added_later = Hub("team", "https://git.test/else")
    store.put_hub(added_later)
    renamed = Hub("team-configured", CONFIGURED.url, configured=True)
    assert store.configure_hubs([CONFIGURED]) == [HUB, added_later, renamed]
    epoch = store.claim_fetch(renamed.id, 60)
    assert epoch is not None
    fetched = Hub(renamed.id, renamed.url, commit="d" * 40, configured=True)
    assert store.end_fetch(fetched, epoch, [a_skill("four")])
    assert other.configure_hubs([CONFIGURED]) == [HUB, added_later, fetched]  # what was fetched stays
    assert list(other.fingerprints("hub", renamed.id)) == ["four"]
    assert other.configure_hubs([]) == [HUB, added_later]
    assert other.fingerprints("hub", renamed.id) == {}


def test_a_hub_is_fetched_by_one_and_stored_under_its_claim(open_store: OpenStore) -> None:
    store, other = open_store(), open_store()
    store.put_hub(HUB, [a_skill("old")])
    first = store.claim_fetch("h", 60)
    assert first is not None
    assert other.claim_fetch("h", 60) is None
    assert other.read_fetch_outcome("h") is None
    store.release_fetch("h", first)
    assert other.read_fetch_outcome("h") is None  # nobody knows: whoever waits may try
    paused = other.claim_fetch("h", -1)  # its lease has ended
    assert paused is not None
    second = store.claim_fetch("h", 60)
    assert second is not None
    assert not other.end_fetch(HUB, paused, [a_skill("late")])
    other.release_fetch("h", paused)
    assert list(store.fingerprints("hub", "h")) == ["old"]
    assert store.end_fetch(HUB, second, [a_skill("new")])
    assert list(other.fingerprints("hub", "h")) == ["new"]
    assert other.read_fetch_outcome("h") == ""
    third = other.claim_fetch("h", 60)
    assert third is not None
    assert other.end_fetch(HUB, third, None, "It is away.")
    assert store.read_fetch_outcome("h") == "It is away."
    assert list(store.fingerprints("hub", "h")) == ["new"]
    fourth = store.claim_fetch("h", 60)
    assert fourth is not None
    other.remove_hub("h")
    assert not store.end_fetch(HUB, fourth, [a_skill("late")])  # it does not come back
    assert store.hubs() == []
    assert store.read_fetch_outcome("h") == ""


# --- two catalogues on one database

OpenCatalog = Callable[..., AbstractAsyncContextManager[SkillCatalog]]


@pytest.fixture
def open_catalog(tmp_path: Path, address: str) -> OpenCatalog:
    """The catalogue of one more server, with a home of its own."""
    count = 0

    @contextlib.asynccontextmanager
    async def open_new(**variables: str) -> AsyncIterator[SkillCatalog]:
        nonlocal count
        count += 1
        env = {
            "CAIPE_HOME": str(tmp_path / f"home-{count}"),
            "DATABASE_URL": address,
            "SKILL_HUBS_ALLOW_PRIVATE_ADDRESSES": "true",
            **variables,
        }
        catalog = build_skill_catalog(Settings.from_variables(env), env)
        await catalog.open()
        try:
            yield catalog
        finally:
            await catalog.close()

    return open_new


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[tuple[GitServer, Path]]:
    """A repository with one skill, and the server that has it."""
    origin = repository(tmp_path / "origin", {"triage/SKILL.md": skill_md("triage", "First.")})
    async with git_server(origin) as served:
        yield served, origin


def hub_url(served: GitServer) -> str:
    return f"http://127.0.0.1:{served.port}/team/skills"


async def body(catalog: SkillCatalog, name: str) -> str | None:
    skill = await catalog.get(name)
    return skill.body.strip() if skill is not None else None


async def wait_for_body(catalog: SkillCatalog, name: str, expected: str | None) -> None:
    """Without saying that something has changed: within the second in which sources are read again."""
    async with asyncio.timeout(10):
        while await body(catalog, name) != expected:  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.05)


async def test_what_one_stores_the_other_has_within_a_second(open_catalog: OpenCatalog) -> None:
    async with open_catalog() as first, open_catalog() as second:
        entry = await first.create(skill_files("okapi", "One."))
        assert entry.skill is not None
        await wait_for_body(second, "okapi", "One.")
        with pytest.raises(SkillConflict):
            await second.create(skill_files("okapi", "Other."))
        await second.update("okapi", skill_files("okapi", "Two."), version=entry.skill.version)
        with pytest.raises(SkillChanged):
            await first.update("okapi", skill_files("okapi", "Three."), version=entry.skill.version)
        await wait_for_body(first, "okapi", "Two.")
        await first.set_enabled("okapi", "stored", False)
        await wait_for_body(second, "okapi", None)
        await second.delete("okapi")
        async with asyncio.timeout(10):
            while any(entry.name == "okapi" for entry in await first.entries()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_hubs_are_fetched_once_for_all(open_catalog: OpenCatalog, hub: tuple[GitServer, Path]) -> None:
    served, origin = hub
    async with (
        open_catalog(SKILL_HUBS=hub_url(served)) as first,
        open_catalog(SKILL_HUBS=hub_url(served)) as second,
    ):
        for catalog in (first, second):
            await catalog.wait_for_fetch()
            await wait_for_body(catalog, "triage", "First.")
        assert count_fetches(served) == 1
        commit(origin, {"triage/SKILL.md": skill_md("triage", "Second.")})
        served.released = asyncio.Event()
        fetching = asyncio.create_task(first.refresh(hubs=True))
        async with asyncio.timeout(60):
            while count_fetches(served) < 2:  # noqa: ASYNC110 - git asks
                await asyncio.sleep(0.02)
        waiting = asyncio.create_task(second.refresh(hubs=True))
        await asyncio.sleep(0.5)
        served.released.set()
        await asyncio.gather(fetching, waiting)
        assert [await body(first, "triage"), await body(second, "triage")] == ["Second.", "Second."]
        assert count_fetches(served) == 2
        assert (await first.hubs())[0].commit == (await second.hubs())[0].commit
        await first.refresh(hubs=True)
        assert count_fetches(served) == 3


def count_fetches(served: GitServer) -> int:
    return sum("info/refs" in head for head in served.requests)


async def test_a_fetch_that_fails_is_reported_by_who_waited_for_it(
    open_catalog: OpenCatalog, hub: tuple[GitServer, Path]
) -> None:
    url = f"http://127.0.0.1:{free_port()}/team/skills"
    async with open_catalog(SKILL_HUBS=url) as first, open_catalog(SKILL_HUBS=url) as second:
        reasons: list[str] = []
        for catalog in (first, second):
            await catalog.wait_for_fetch()
            await catalog.list_usable()
            reasons += [source.reason for source in catalog.unavailable_sources]
        assert len(reasons) == 2
        assert reasons[0] == reasons[1]


async def test_a_fetch_whose_process_leaves_is_done_by_the_other(
    open_catalog: OpenCatalog, hub: tuple[GitServer, Path]
) -> None:
    served, _ = hub
    served.released = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        async with open_catalog(SKILL_HUBS=hub_url(served)):
            async with asyncio.timeout(60):
                while not served.requests:  # noqa: ASYNC110 - git asks
                    await asyncio.sleep(0.02)
            other = await stack.enter_async_context(open_catalog(SKILL_HUBS=hub_url(served)))
        served.released.set()
        await other.wait_for_fetch()
        assert await body(other, "triage") == "First."


async def test_a_database_that_is_away_is_reported_without_its_password(
    open_catalog: OpenCatalog, tmp_path: Path
) -> None:
    address = f"postgresql://caipe:secret-word@127.0.0.1:{free_port()}/x"
    async with open_catalog(DATABASE_URL=address) as catalog:
        [source] = [source for source in catalog.unavailable_sources if source.origin == "stored"]
        assert "PostgreSQL at 127.0.0.1" in source.reason
        assert "secret-word" not in source.reason
        with pytest.raises(SourceUnavailable):
            await catalog.create(skill_files("okapi"))


async def test_a_connection_that_broke_is_replaced(open_catalog: OpenCatalog, address: str) -> None:
    async with open_catalog() as catalog:
        await catalog.create(skill_files("okapi", "One."))
        await asyncio.to_thread(cut_connections, address)
        await catalog.update("okapi", skill_files("okapi", "Two."))
        await asyncio.to_thread(cut_connections, address)
        await catalog.refresh()
        assert await body(catalog, "okapi") == "Two."
        assert not any(source.reason for source in catalog.unavailable_sources)


def cut_connections(address: str) -> None:
    query: Any = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(address, autocommit=True) as connection:
        assert connection.execute(query).fetchall()
