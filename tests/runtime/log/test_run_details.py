"""What lists show of runs, on every storage of the run log: questions, agents and tokens, page by page."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    RunStarted,
    TextPart,
    ToolStarted,
    Usage,
)
from ai_platform_engineering.runtime.log.log_rows import NewRun
from ai_platform_engineering.runtime.log.run_details import (
    MAX_AGENTS,
    DetailsFilter,
    RunDetails,
    list_details,
)
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from tests.support.run_logs import NAMES, log_opener

ANSWERED = Answered(text="Yes.", trace_id="t", usage=Usage(input_tokens=7, output_tokens=2))


@pytest_asyncio.fixture(params=NAMES)
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunLog]:
    opened = log_opener(request.param, request)(tmp_path)
    yield opened
    await opened.close()


def delegation(agent: str) -> ToolStarted:
    return ToolStarted(call_id=f"call-{agent}", tool=agent, delegates=True)


async def add_run(
    log: RunLog, run_id: str, events: Sequence[AnyEvent] = (), *, owner: str = "ann", text: str = "Why?"
) -> None:
    started = RunStarted(message_id=f"m-{run_id}", parts=(TextPart(text=text),), principal=owner)
    new = NewRun(run_id, f"talk-{run_id}", owner, f"m-{run_id}", "d", started, lasting_id=True)
    row, _ = await log.create(new)
    for event in events:
        await log.append(run_id, row.epoch, [event])


async def list_all(log: RunLog, details_filter: DetailsFilter, limit: int = 2) -> list[RunDetails]:
    items: list[RunDetails] = []
    after: int | None = None
    while True:
        page = await log.list_details(details_filter, after=after, limit=limit)
        items += page.items
        if not page.has_more:
            return items
        after = page.items[-1].number


async def names(log: RunLog, details_filter: DetailsFilter) -> list[str]:
    return [details.row.run_id for details in await list_all(log, details_filter)]


async def test_runs_are_listed_by_owner_state_agent_and_words(log: RunLog) -> None:
    own_tool = ToolStarted(call_id="c", tool="search", agent="argocd")
    await add_run(log, "a", [delegation("jira"), delegation("argocd"), own_tool, ANSWERED], text="100% OK?")
    await add_run(log, "b", [delegation("argocd"), delegation("argocd")], text="1000 pods?")
    await add_run(log, "c", [delegation("unknown"), ANSWERED], text="NOTHING?")
    await add_run(log, "d", [delegation("argocd")], owner="bob")
    assert await names(log, DetailsFilter("ann")) == ["c", "b", "a"]
    assert await names(log, DetailsFilter("ann", agent="argocd")) == ["b", "a"]
    assert await names(log, DetailsFilter("ann", state="completed")) == ["c", "a"]
    assert await names(log, DetailsFilter("ann", state="completed", agent="argocd")) == ["a"]
    assert await names(log, DetailsFilter("ann", agent="search")) == []
    assert await names(log, DetailsFilter("ann", agent="unknown")) == []
    assert await names(log, DetailsFilter("ann", query="100%")) == ["a"]
    assert await names(log, DetailsFilter("ann", query=" nothing ")) == ["c"]
    [first, second, third] = await list_all(log, DetailsFilter("ann"))
    assert (third.question, third.agents, third.usage) == ("100% OK?", ("argocd", "jira"), ANSWERED.usage)
    assert (second.agents, second.usage) == (("argocd",), None)
    assert first.agents == ()


async def test_a_run_has_no_end_of_agents(log: RunLog) -> None:
    await add_run(log, "a", [delegation(f"agent-{number}") for number in range(MAX_AGENTS + 3)])
    [details] = await list_all(log, DetailsFilter("ann"))
    assert len(details.agents) == MAX_AGENTS


async def test_a_deleted_run_is_not_listed_and_leaves_nothing(log: RunLog, tmp_path: Path) -> None:
    await add_run(log, "a", [delegation("argocd"), ANSWERED])
    await log.delete_conversation("ann", "talk-a")
    await add_run(log, "b", owner="bob")  # SQLite gives it the number of the deleted one
    assert await list_all(log, DetailsFilter("ann", agent="argocd")) == []
    assert await list_all(log, DetailsFilter("bob", agent="argocd")) == []
    if isinstance(log, SqliteLog):
        with sqlite3.connect(tmp_path / "caipe.db") as db:
            assert db.execute("SELECT count(*) FROM run_agents").fetchone() == (0,)
            assert db.execute("SELECT run_id FROM run_details").fetchall() == [("b",)]


async def test_details_of_runs_of_an_older_version_are_added(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    log = SqliteLog.open(path, tick=0)
    for number in range(12):
        await add_run(log, f"run-{number}", [delegation("argocd"), ANSWERED], text=f"Question {number}?")
    before = await list_all(log, DetailsFilter("ann"))
    await log.close()
    with sqlite3.connect(path) as db:  # as the version before has stored them
        db.execute("DELETE FROM run_details")
        db.execute("DELETE FROM run_agents")
    log = SqliteLog.open(path, tick=0)
    assert [details.question for details in await list_all(log, DetailsFilter("ann"))] == [""] * 12
    await log.add_missing_details()
    assert await list_all(log, DetailsFilter("ann")) == before
    assert len(await list_all(log, DetailsFilter("ann", agent="argocd"))) == 12
    await log.add_missing_details()
    assert await list_all(log, DetailsFilter("ann")) == before
    await log.close()


@pytest.mark.parametrize(
    ("details_filter", "index"),
    [
        (DetailsFilter("ann"), "runs_by_number"),
        (DetailsFilter("ann", state="failed"), "runs_by_state_and_number"),
        (DetailsFilter("ann", agent="argocd"), "runs_of_agent"),
        (DetailsFilter("ann", state="failed", agent="argocd"), "runs_of_agent"),
    ],
)
async def test_a_page_is_read_from_an_index_without_sorting(
    tmp_path: Path, details_filter: DetailsFilter, index: str
) -> None:
    path = tmp_path / "runs.db"
    await SqliteLog.open(path).close()
    statements: list[str] = []
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    db.set_trace_callback(statements.append)
    list_details(db, details_filter, 5, 10)
    db.set_trace_callback(None)
    [statement] = statements
    plan = " ".join(row["detail"] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}"))
    db.close()
    assert f"INDEX {index} " in plan
    assert "TEMP B-TREE" not in plan
