"""What people think of a run: each one's last word, kept with the run, shown to whom the run belongs, and
theirs to take back."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.a2a.client import A2AClient, RequestRefused
from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.errors import RunNotFound
from ai_platform_engineering.core.events import Answered
from ai_platform_engineering.runtime.log.log_rows import Feedback
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.sqlite_database import Database
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from ai_platform_engineering.runtime.log.sqlite_schema import MIGRATIONS
from tests.runtime.log.test_sqlite_log import LATER, created, store_run_of_first_version
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import Client, supervisor
from tests.support.storages import in_folder, problem, supervisor_on

YES = Script(Turn(Say("Yes.")))
THREAD = "thread"


def person(client: Client, name: str, owner: str | None = THREAD) -> Client:
    return Client(client.url, client.http, on_behalf_of_headers(name, owner))


async def feedback(client: Client, task_id: str, method: str = "GET", body: Any = None) -> httpx.Response:
    sent = {"json": body} if body is not None else {}
    return await client.http.request(
        method, f"{client.url}v1/tasks/{task_id}/feedback", headers=client.headers, **sent
    )


async def found(client: Client, task_id: str) -> list[dict[str, Any]]:
    response = await feedback(client, task_id)
    assert response.status_code == 200, response.text
    return list(response.json()["feedback"])


def words(given: list[dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    return [(one["by"], one["score"], one["reason"]) for one in given]


# --- over HTTP ----------------------------------------------------------------------------------------------


async def test_each_persons_last_word_is_kept_with_the_trace_of_the_run() -> None:
    async with supervisor(YES) as client:
        ann, bob = person(client, "ann"), person(client, "bob")
        stream = await ann.ask("Well?")
        assert await found(bob, stream.task_id) == []
        before = datetime.now(UTC)
        stored = await feedback(ann, stream.task_id, "PUT", {"score": "up"})
        await feedback(bob, stream.task_id, "PUT", {"score": "up", "reason": None})
        await feedback(ann, stream.task_id, "PUT", {"score": "down", "reason": "Wrong cluster — 日本."})
        entry = (await feedback(bob, stream.task_id)).json()
        assert (await feedback(ann, stream.task_id, "DELETE")).status_code == 204
        assert words(await found(ann, stream.task_id)) == [("bob", "up", None)]
        assert (
            problem(await feedback(ann, stream.task_id, "DELETE"), 404)
            == f"You have given no feedback on the task {stream.task_id}."
        )
    assert stored.status_code == 200
    assert words([stored.json()]) == [("ann", "up", None)]
    assert words(entry["feedback"]) == [("ann", "down", "Wrong cluster — 日本."), ("bob", "up", None)]
    assert all(before <= datetime.fromisoformat(one["at"]) <= datetime.now(UTC) for one in entry["feedback"])
    ended = stream.events[-1]
    assert isinstance(ended, Answered)
    assert entry["trace_id"] == ended.trace_id


async def test_the_runs_of_another_owner_are_not_there() -> None:
    async with supervisor(YES) as client:
        ann, elsewhere = person(client, "ann"), person(client, "ann", owner="elsewhere")
        stream = await ann.ask("Well?")
        for method, body in (("GET", None), ("PUT", {"score": "up"}), ("DELETE", None)):
            for task_id, who in ((stream.task_id, elsewhere), (stream.task_id, client), ("nothing", ann)):
                assert (
                    problem(await feedback(who, task_id, method, body), 404) == f"There is no task {task_id}."
                )
        assert await found(ann, stream.task_id) == []


async def test_where_nobody_is_known_there_is_one_word() -> None:
    async with supervisor(YES) as client:
        stream = await client.ask("Well?")
        for score in ("up", "down"):
            await feedback(client, stream.task_id, "PUT", {"score": score})
        assert words(await found(client, stream.task_id)) == [("", "down", None)]


BAD = [
    {},
    {"score": "meh"},
    {"score": None},
    {"reason": "x"},
    {"score": "up", "reason": "x" * 2001},
    {"score": "up", "by": "bob"},
    [],
    "up",
]


@pytest.mark.parametrize("body", BAD, ids=lambda body: json.dumps(body)[:30])
async def test_what_is_no_feedback_is_refused_in_a_sentence(body: Any) -> None:
    async with supervisor(YES) as client:
        stream = await client.ask("Well?")
        sentence = problem(await feedback(client, stream.task_id, "PUT", body), 400)
        assert await found(client, stream.task_id) == []
    assert sentence.startswith('Send JSON: {"score": "up" or "down"')


async def test_a_reason_of_full_length_is_kept_and_an_empty_one_is_none() -> None:
    async with supervisor(YES) as client:
        stream = await client.ask("Well?")
        for reason, stored_reason in (("ü" * 2000, "ü" * 2000), ("", None)):
            assert (
                await feedback(client, stream.task_id, "PUT", {"score": "down", "reason": reason})
            ).status_code == 200
            assert words(await found(client, stream.task_id)) == [("", "down", stored_reason)]


async def test_the_log_has_the_score_and_the_trace_and_never_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with supervisor(YES) as client:
        stream = await person(client, "ann").ask("Well?")
        caplog.clear()
        await feedback(
            person(client, "ann"), stream.task_id, "PUT", {"score": "down", "reason": "my-secret-reason"}
        )
        trace = (await feedback(person(client, "ann"), stream.task_id)).json()["trace_id"]
    lines = [
        record.getMessage() for record in caplog.records if record.name.startswith("ai_platform_engineering")
    ]
    assert lines == [f"run {stream.task_id}, trace {trace}: feedback down"]
    assert "my-secret-reason" not in caplog.text


async def test_feedback_outlives_the_server_and_goes_with_its_run(tmp_path: Path) -> None:
    async with supervisor_on(in_folder(tmp_path), ScriptedChatModel(script=YES)) as client:
        stream = await client.ask("Well?")
        await feedback(client, stream.task_id, "PUT", {"score": "down", "reason": "Too long."})
    storage = in_folder(tmp_path)
    async with supervisor_on(storage, ScriptedChatModel(script=YES)) as client:
        assert words(await found(client, stream.task_id)) == [("", "down", "Too long.")]
        assert await storage.log.delete_runs(LATER) == 1
        problem(await feedback(client, stream.task_id), 404)


async def test_a_client_that_acts_for_people_gives_their_feedback() -> None:
    async with supervisor(YES) as client:
        stream = await person(client, "ann").ask("Well?")
        api, path = (
            rest_api_for_client(A2AClient(client.url, client.http).on_behalf_of("bob", THREAD)),
            f"/v1/tasks/{stream.task_id}/feedback",
        )
        assert (await api("PUT", path, {"score": "up"}))["by"] == "bob"
        assert words((await api("GET", path))["feedback"]) == [("bob", "up", None)]
        assert await api("DELETE", path) is None
        with pytest.raises(RequestRefused, match="You have given no feedback"):
            await api("DELETE", path)


# --- in the run log -----------------------------------------------------------------------------------------

LOGS: dict[str, Callable[[Path], RunLog]] = {
    "memory": lambda _: MemoryLog(),
    "sqlite": lambda folder: SqliteLog.open(folder / "caipe.db", tick=0),
}


@pytest.fixture(params=LOGS.values(), ids=LOGS.keys())
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunLog]:
    opened = request.param(tmp_path)
    yield opened
    await opened.close()


async def test_a_log_keeps_one_word_of_each_in_the_order_of_the_first(log: RunLog) -> None:
    await created(log, "one")
    await created(log, "other")
    first = await log.rate("one", "ann", "up")
    second = await log.rate("one", "bob", "down", "Slow.")
    again = await log.rate("one", "ann", "down", "On second thought.")
    assert await log.feedback("one") == [again, second]
    assert (again.by, again.score, again.reason) == ("ann", "down", "On second thought.")
    assert first.at <= second.at <= again.at
    assert datetime.now(UTC) - again.at < timedelta(minutes=5)
    assert await log.feedback("other") == []
    assert not await log.unrate("other", "ann")
    assert (await log.unrate("one", "ann"), await log.unrate("one", "ann")) == (True, False)
    assert await log.feedback("one") == [second]


async def test_a_log_takes_feedback_on_an_ended_run_and_on_none_that_is_not_there(log: RunLog) -> None:
    row = await created(log)
    await log.append("run", row.epoch, [Answered(text="Done.", trace_id="t")])
    ratings = await asyncio.gather(*(log.rate("run", name, "up") for name in ("ann", "bob", "ann")))
    assert {one.by for one in await log.feedback("run")} == {one.by for one in ratings} == {"ann", "bob"}
    for attempt in (log.rate("nothing", "ann", "up"), log.feedback("nothing"), log.unrate("nothing", "ann")):
        with pytest.raises(RunNotFound):
            await attempt


async def test_a_log_forgets_feedback_with_its_run(log: RunLog) -> None:
    row = await created(log)
    await log.rate("run", "ann", "up")
    await log.append("run", row.epoch, [Answered(text="Done.", trace_id="t")])
    assert await log.delete_runs(LATER) == 1
    await created(log)  # the same id again
    assert await log.feedback("run") == []


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_from_before_there_was_feedback_takes_it(tmp_path: Path, version: int) -> None:
    path = tmp_path / "caipe.db"
    older = Database(path, migrations=MIGRATIONS[:version])
    await older.submit(lambda db, now: store_run_of_first_version(db))
    assert older.rows("SELECT name FROM sqlite_master WHERE name = 'feedback'") == []
    older.close()
    log = SqliteLog.open(path)
    assert await log.get("run") is not None
    assert await log.feedback("run") == []
    rating = await log.rate("run", "ann", "down", "Why?")
    await log.close()
    again = SqliteLog.open(path)
    assert await again.feedback("run") == [rating] == [Feedback("ann", "down", "Why?", rating.at)]
    await again.close()
