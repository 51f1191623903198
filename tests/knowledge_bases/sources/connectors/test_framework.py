"""What connectors have in common: a pass reads what changed since its cursor, keeps documents that it did not
list, follows deletions, honours rate limits, and gives credentials to nobody else."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, Refused, SourceUnavailable
from ai_platform_engineering.knowledge_bases.indexing import ingest_pass
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import (
    ApiAccess,
    ApiEndpoint,
    ApiLimits,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.api_source import ListingRules
from ai_platform_engineering.knowledge_bases.sources.connectors.connector import Connectors
from ai_platform_engineering.knowledge_bases.sources.connectors.retries import RetryLimits
from ai_platform_engineering.net.connections import UrlChecker
from tests.support.connectors import LIST_RARELY, RecordedWaits
from tests.support.fakes.api_stand_in import Failure, serve_api
from tests.support.fakes.notes_api import SECRET, NotesApi, NotesConnector
from tests.support.fakes.site import FakeNetwork
from tests.support.knowledge import (
    add_datasource,
    job_counts,
    open_knowledge_base,
    refresh_datasource,
    search_titles,
)


def notes_connectors(
    notes: NotesApi, waits: RecordedWaits | None = None, rules: ListingRules | None = None, **limits: object
) -> Connectors:
    access = ApiAccess(ApiLimits(**limits), sleep=(waits or RecordedWaits()).sleep)  # type: ignore[arg-type]
    return {"notes": NotesConnector(notes.url, access, rules)}


def filled_notes() -> NotesApi:
    notes = NotesApi()
    notes.write(
        alpha="# Alpha\n\nAbout aardvarks.",
        beta="# Beta\n\nAbout badgers.",
        gamma="# Gamma\n\nAbout gnus.",
    )
    notes.now += timedelta(hours=1)
    return notes


def paths(notes: NotesApi) -> list[str]:
    return [request.path.removeprefix("/v1/") for request in notes.take_requests()]


async def test_a_pass_lists_what_changed_since_the_last_and_keeps_the_rest(tmp_path: Path) -> None:
    async with serve_api(filled_notes()) as notes:
        connectors = notes_connectors(notes, rules=LIST_RARELY)
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            assert job_counts(await add_datasource(kb, "notes:book")) == ("done", 3, 0, 0, 0)
            assert "notes/alpha" in paths(notes)
            notes.now += timedelta(hours=1)
            notes.write(beta="# Beta\n\nAbout beavers.")
            del notes.notes["gamma"]
            assert job_counts(await refresh_datasource(kb, "notes-book")) == ("done", 1, 0, 0, 0)
            seen = notes.requests[1:]
            assert [request.path for request in seen] == ["/v1/notes", "/v1/notes/beta"]
            assert seen[0].query["since"] == "2026-03-01T00:59:00+00:00"
            # Deletions are found when everything is listed again.
            assert await search_titles(kb, "gnus") == ["Gamma"]
            notes.now += timedelta(hours=23)
            assert job_counts(await refresh_datasource(kb, "notes-book")) == ("done", 0, 2, 1, 0)
            assert await search_titles(kb, "gnus") == []
            assert await search_titles(kb, "beavers") == ["Beta"]


async def test_where_that_is_cheap_each_pass_lists_everything(tmp_path: Path) -> None:
    async with (
        serve_api(filled_notes()) as notes,
        open_knowledge_base(tmp_path, connectors=notes_connectors(notes)) as kb,
    ):
        await add_datasource(kb, "notes:book")
        notes.take_requests()
        del notes.notes["gamma"]
        assert job_counts(await refresh_datasource(kb, "notes-book")) == ("done", 0, 2, 1, 0)
        assert set(paths(notes)) == {"notes"}


async def test_the_cursor_moves_only_when_a_pass_ended_well(tmp_path: Path) -> None:
    async with serve_api(filled_notes()) as notes:
        connectors = notes_connectors(notes, rules=LIST_RARELY)
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            await add_datasource(kb, "notes:book")
            (stored,) = await kb.list_datasources()
            notes.now += timedelta(hours=1)
            notes.write(beta="# Beta\n\nAbout beavers.")
            notes.fail(Failure(403, path="/notes/beta"))
            job = await refresh_datasource(kb, "notes-book")
            assert job.state == "failed"
            assert "does not let this account read it" in job.problem
            assert [datasource.cursor for datasource in await kb.list_datasources()] == [stored.cursor]
            notes.now += timedelta(hours=1)
            assert job_counts(await refresh_datasource(kb, "notes-book")) == ("done", 1, 0, 0, 0)
            assert [datasource.cursor for datasource in await kb.list_datasources()] != [stored.cursor]


async def test_a_pass_that_is_killed_fetches_nothing_twice_that_was_stored(tmp_path: Path) -> None:
    pace = CommitInterval(documents=1)
    async with serve_api(filled_notes()) as notes:
        notes.gate = asyncio.Event()
        notes.gated_text = "/notes/gamma"
        connectors = notes_connectors(notes, rules=LIST_RARELY)
        async with open_knowledge_base(tmp_path, connectors=connectors, pace=pace) as kb:
            _, job = await kb.add_datasource("notes:book")
            await asyncio.wait_for(notes.arrived.wait(), 60)
            async for progress in kb.follow_job(job.job_id):
                if progress.done == 2:
                    break
        notes.gate = None
        notes.take_requests()
        async with open_knowledge_base(tmp_path, connectors=connectors, pace=pace) as kb:
            async for progress in kb.follow_job(job.job_id):
                job = progress
            assert job_counts(job) == ("done", 1, 2, 0, 0)
            assert [path for path in paths(notes) if path != "notes"] == ["notes/gamma"]


async def test_adding_a_location_again_lists_everything(tmp_path: Path) -> None:
    async with serve_api(filled_notes()) as notes:
        connectors = notes_connectors(notes, rules=LIST_RARELY)
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            await add_datasource(kb, "notes:book")
            del notes.notes["alpha"]
            job = await add_datasource(kb, "notes:book", options={"colour": "red"})
            assert job_counts(job) == ("done", 0, 2, 1, 0)


async def test_a_changed_address_of_the_api_makes_the_cursor_useless(tmp_path: Path) -> None:
    async with serve_api(filled_notes()) as notes, serve_api(NotesApi()) as other:
        other.write(alpha="# Alpha\n\nFrom elsewhere.")
        async with open_knowledge_base(tmp_path, connectors=notes_connectors(notes, rules=LIST_RARELY)) as kb:
            await add_datasource(kb, "notes:book")
        async with open_knowledge_base(tmp_path, connectors=notes_connectors(other, rules=LIST_RARELY)) as kb:
            job = await refresh_datasource(kb, "notes-book")
            assert (job.done + job.skipped, job.removed) == (1, 2)


async def test_documents_that_are_read_in_another_way_are_all_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_api(filled_notes()) as notes:
        connectors = notes_connectors(notes, rules=LIST_RARELY)
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            await add_datasource(kb, "notes:book")
            assert job_counts(await refresh_datasource(kb, "notes-book")) == ("done", 0, 0, 0, 0)
            monkeypatch.setattr(ingest_pass, "READER_VERSION", "of a later release")
            assert job_counts(await refresh_datasource(kb, "notes-book")) == ("done", 3, 0, 0, 0)


# --- rate limits, and failures that pass


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "failure",
    [
        Failure(429, {"Retry-After": "7"}),
        Failure(503, {"Retry-After": "7"}),
        Failure(403, {"Retry-After": "7"}, {"message": "You have exceeded a secondary rate limit"}),
    ],
)
async def test_a_rate_limit_is_waited_for(tmp_path: Path, failure: Failure) -> None:
    waits = RecordedWaits()
    async with (
        serve_api(filled_notes()) as notes,
        open_knowledge_base(tmp_path, connectors=notes_connectors(notes, waits)) as kb,
    ):
        notes.fail(failure)
        assert job_counts(await add_datasource(kb, "notes:book")) == ("done", 3, 0, 0, 0)
    (seconds,) = waits.seconds
    assert 7 <= seconds < 8


@pytest.mark.parametrize("form", ["seconds", "time"])
async def test_the_time_of_a_reset_is_waited_for(tmp_path: Path, form: str) -> None:
    waits = RecordedWaits()
    reset = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=40)
    value = str(int(reset.timestamp())) if form == "seconds" else reset.isoformat()
    async with (
        serve_api(filled_notes()) as notes,
        open_knowledge_base(tmp_path, connectors=notes_connectors(notes, waits)) as kb,
    ):
        notes.fail(Failure(403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": value}))
        assert (await add_datasource(kb, "notes:book")).state == "done"
    assert len(waits.seconds) == 1
    assert 0 < waits.seconds[0] <= 41


async def test_a_rate_limit_that_takes_too_long_ends_the_pass_and_says_until_when(tmp_path: Path) -> None:
    waits = RecordedWaits()
    async with serve_api(filled_notes()) as notes:
        connectors = notes_connectors(notes, waits, retries=RetryLimits(wait_seconds=60))
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            await add_datasource(kb, "notes:book")
            notes.fail(Failure(429, {"Retry-After": "3600"}))
            job = await refresh_datasource(kb, "notes-book")
            assert job.state == "failed"
            assert "Notes allows no more requests until" in job.problem
            assert [datasource.documents for datasource in await kb.list_datasources()] == [3]
    assert waits.seconds == []


async def test_a_server_that_fails_is_tried_again_a_few_times(tmp_path: Path) -> None:
    waits = RecordedWaits()
    async with serve_api(filled_notes()) as notes:
        connectors = notes_connectors(notes, waits, retries=RetryLimits(attempts=3))
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            notes.fail(Failure(502, times=2))
            assert (await add_datasource(kb, "notes:book")).state == "done"
            assert len(waits.seconds) == 2
            assert waits.seconds[0] <= 1 <= waits.seconds[1] <= 2
            notes.fail(Failure(502, body={"message": f"upstream said {SECRET}"}, times=3))
            job = await refresh_datasource(kb, "notes-book")
            assert job.state == "failed"
            assert job.problem == "Notes answered 502. It says: upstream said ***"
            assert notes.failures == []


async def test_a_server_that_nobody_reaches_is_named(tmp_path: Path) -> None:
    waits = RecordedWaits()
    async with serve_api(NotesApi()) as notes:
        connectors = notes_connectors(notes, waits, retries=RetryLimits(attempts=3))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        job = await add_datasource(kb, "notes:book")
    assert job.problem == ("Notes cannot be reached. 127.0.0.1 does not take connections. Check NOTES_URL.")
    assert len(waits.seconds) == 2


# --- what is refused


async def test_credentials_go_to_no_other_host(tmp_path: Path) -> None:
    async with serve_api(NotesApi()) as notes, serve_api(NotesApi()) as other:
        notes.redirect_to = f"{other.url}/v1/notes"
        endpoint = ApiEndpoint("Notes", f"{notes.url}/v1", "NOTES_URL", "", {"Authorization": SECRET})
        assert SECRET not in repr(endpoint)
        async with ApiAccess().open(endpoint) as api:
            with pytest.raises(SourceUnavailable, match="redirects to another host"):
                await api.get_json("/moved")
            notes.redirect_to = f"{notes.url}/v1/notes"
            assert (await api.get_json("/moved"))["notes"] == []
        assert other.requests == []


async def test_only_queries_are_posted() -> None:
    async with serve_api(NotesApi()) as notes:
        async with ApiAccess().open(ApiEndpoint("Notes", notes.url, "NOTES_URL", "")) as api:
            with pytest.raises(ValueError, match="only queries"):
                await api.query_graphql("/graphql", "mutation { deleteAll }", {})
        assert notes.requests == []


@pytest.mark.parametrize(
    ("base_url", "words"),
    [
        ("http://metadata.google.internal", "NOTES_URL cannot be used"),
        ("http://link.local", "private, local"),
    ],
)
async def test_an_address_of_the_machine_itself_is_refused(base_url: str, words: str) -> None:
    network = FakeNetwork({"link.local": ("169.254.1.1",)})
    access = ApiAccess(url_checker=UrlChecker(allow_private=True, connector=network), network=network)
    async with access.open(ApiEndpoint("Notes", base_url, "NOTES_URL", "")) as api:
        with pytest.raises(SourceUnavailable, match=words):
            await api.get_json("/")
    assert network.attempts == []


async def test_a_listing_has_a_last_page(tmp_path: Path) -> None:
    async with serve_api(filled_notes()) as notes:
        connectors = notes_connectors(notes, max_pages=1)
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            job = await add_datasource(kb, "notes:book")
            assert job.state == "failed"
            assert "too much to list: the limit is 1 pages" in job.problem


async def test_a_response_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with serve_api(filled_notes()) as notes:
        connectors = notes_connectors(notes, max_bytes=50)
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            job = await add_datasource(kb, "notes:book")
            assert "Notes sent more than" in job.problem


# --- locations


@pytest.mark.parametrize(
    ("location", "options", "error", "words"),
    [
        ("notes:", {}, Refused, "Name the book"),
        ("notes:book", {"depth": "2"}, Refused, "no option depth for notes. The options are: colour"),
        ("", {}, SourceUnavailable, "Give a folder, .*, notes:BOOK"),
        ("ftp://example.org", {}, CaipeError, "can be read, notes:BOOK"),
        ("nots:book", {}, SourceUnavailable, "begins with one of: notes:"),
    ],
)
async def test_what_is_no_location_is_refused_with_a_hint(
    tmp_path: Path, location: str, options: dict[str, str], error: type[CaipeError], words: str
) -> None:
    connectors: Connectors = {"notes": NotesConnector("http://127.0.0.1:1", ApiAccess())}
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        with pytest.raises(error, match=words):
            await kb.add_datasource(location, options=options)
        assert await kb.list_datasources() == []


async def test_a_wrong_address_of_an_api_names_its_variable(tmp_path: Path) -> None:
    connectors: Connectors = {"notes": NotesConnector("nonsense", ApiAccess())}
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        with pytest.raises(ConfigurationError, match="NOTES_URL is invalid"):
            await kb.add_datasource("notes:book")


async def test_rest_requests_may_name_a_connector_without_a_folder(tmp_path: Path) -> None:
    async with (
        serve_api(filled_notes()) as notes,
        open_knowledge_base(tmp_path, connectors=notes_connectors(notes)) as kb,
    ):
        job = await add_datasource(kb, "notes:book", folders=[])
        assert job.state == "done"
