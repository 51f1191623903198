"""What RETENTION_DAYS removes: ended runs, and the graph's state of conversations of which no run is left."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from ai_platform_engineering.core.events import Answered, Paused, RunStarted, TextPart
from ai_platform_engineering.runtime.checkpoints.fenced_saver import FencedSaver
from ai_platform_engineering.runtime.facts import Facts
from ai_platform_engineering.runtime.log.log_rows import NewRun, RunRow, make_thread_id
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.storage import Storage
from tests.runtime.server.test_a2a_input_required import form_tool
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.run_lists import list_all_runs
from tests.support.run_logs import NAMES, log_opener
from tests.support.storages import in_folder, supervisor_on

BACKENDS = ["memory", "sqlite"]
AT_ONCE = "0.00000000001"  # days: what has ended is old by the next look
LATER = datetime(9000, 1, 1, tzinfo=UTC)

MODEL = Book(
    {
        "^Create": Script(
            Turn(Say("One moment. "), Call("ask_form")), Turn(Say("Made {{tool:ask_form.repo}}."))
        ),
        "": Script(Turn(Say("Yes."))),
    }
)


async def threads(storage: Storage) -> set[str]:
    return {checkpoint.config["configurable"]["thread_id"] async for checkpoint in storage.saver.alist(None)}


async def is_kept(storage: Storage, context_id: str) -> bool:
    return (
        await storage.saver.aget_tuple({"configurable": {"thread_id": make_thread_id("", context_id)}})
        is not None
    )


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_conversation_whose_runs_are_forgotten_leaves_no_state(tmp_path: Path, backend: str) -> None:
    storage = in_folder(tmp_path, LANGGRAPH_CHECKPOINT_TYPE=backend, RETENTION_DAYS=AT_ONCE)
    model = ScriptedChatModel(script=MODEL)
    async with supervisor_on(storage, model, tools=[form_tool()]) as client:
        over = await client.ask("Is it?")
        waiting = await client.ask("Create a repo.")
        assert (over.last.state, waiting.last.state) == ("completed", "input-required")
        assert await is_kept(storage, over.context_id)

        await storage.clean()

        assert not await is_kept(storage, over.context_id)
        assert (await client.call("tasks/get", {"id": over.task_id}))["error"]["code"] == -32001
        again = await client.ask("Is it still?", contextId=over.context_id)
        assert [message.text for message in model.requests[-1].messages] == ["Is it still?"]
        assert again.answer == "Yes."
        # What waits for people is not old, and goes on with what it knows.
        answer = {"kind": "data", "data": {"repo": "kept"}}
        message = {
            **client.message(""),
            "parts": [answer],
            "taskId": waiting.task_id,
            "contextId": waiting.context_id,
        }
        done = await client.call("message/send", {"message": message})
        assert "Made kept." in json.dumps(done)


async def test_the_server_cleans_when_it_starts(tmp_path: Path) -> None:
    model = ScriptedChatModel(script=MODEL)
    async with supervisor_on(in_folder(tmp_path), model) as client:
        over = await client.ask("Is it?")
    storage = in_folder(tmp_path, RETENTION_DAYS=AT_ONCE)
    await storage.open()
    async with asyncio.timeout(120):
        while await storage.log.get(over.task_id) is not None:  # noqa: ASYNC110 - a removal sends no signal
            await asyncio.sleep(0.01)
    assert await threads(storage) == set(), "the state goes before the runs that say where it is"
    await storage.aclose()


async def test_facts_are_not_a_matter_of_retention(tmp_path: Path) -> None:
    storage = in_folder(tmp_path, RETENTION_DAYS=AT_ONCE)
    await storage.open()
    facts = Facts(lambda: storage.store)
    await facts.remember("ann", "Ann likes tea.")
    await storage.clean()
    assert [fact.text for fact in await facts.list_facts("ann")] == ["Ann likes tea."]
    await storage.aclose()


# --- the log's part -----------------------------------------------------------------------------------------


async def run(log: RunLog, context: str, *last: Any, owner: str = "ann") -> RunRow:
    run_id = f"{owner}-{context}-{len(await list_all_runs(log, owner))}"
    started = RunStarted(message_id=run_id, parts=(TextPart(text="?"),), owner=owner)
    row, _ = await log.create(NewRun(run_id, context, owner, run_id, "digest", started, lasting_id=True))
    if last:
        await log.append(row.run_id, row.epoch, last)
    return row


DONE = Answered(text="Yes.", trace_id="t")


@pytest.mark.parametrize("name", NAMES)
async def test_a_conversation_has_expired_when_all_its_runs_have(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    log = log_opener(name, request)(tmp_path)
    await run(log, "over", DONE)
    await run(log, "over", DONE)
    for last in ((), (Paused(text="?"),)):
        await run(log, f"open {len(last)}", DONE)
        await run(log, f"open {len(last)}", *last)
    await run(log, "shared", DONE)
    await run(log, "shared", owner="bob")
    assert sorted(await log.find_expired_conversations(LATER, limit=10)) == [
        ("ann", "over"),
        ("ann", "shared"),
    ]
    assert await log.find_expired_conversations(datetime.now(UTC) - timedelta(days=1), limit=10) == []
    assert await log.delete_runs(LATER) == 5
    assert await log.find_expired_conversations(LATER, limit=10) == []
    await log.close()


class Unwilling(InMemorySaver):
    """A database that does not answer the first time."""

    calls = 0

    async def adelete_thread(self, thread_id: str) -> None:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("away")
        await super().adelete_thread(thread_id)


async def test_a_thread_that_could_not_be_removed_is_removed_the_next_time(tmp_path: Path) -> None:
    storage = in_folder(tmp_path, RETENTION_DAYS=AT_ONCE)
    database = Unwilling()
    storage.saver = FencedSaver(lambda: database, storage.log)
    row = await run(storage.log, "over", DONE)
    with pytest.raises(ConnectionError):
        await storage.clean()
    assert await storage.log.get(row.run_id) is not None, "nobody would know the thread any more"
    assert (await storage.clean(), database.calls) == (1, 2)
    await storage.aclose()
