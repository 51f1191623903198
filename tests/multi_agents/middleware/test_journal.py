"""Calls that change something: which are journalled, what becomes of one that a stop cut off, and how
people say what happened.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from langchain_core.tools import BaseTool, StructuredTool

from ai_platform_engineering.core.agent_definition import ToolPolicy
from ai_platform_engineering.runtime.storage import Storage
from tests.support.fakes.mcp_servers import open_sessions, raw_stdio_server
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, agent, supervisor
from tests.support.processes import CommandResult, invoke_caipe
from tests.support.storages import KEY, in_folder, problem, supervisor_on

CALL_ID = "call_0123"
BOOK = Book(
    {
        "^Create": Script(
            Turn(Call("create_repo", {"name": "cai"}, id=CALL_ID)), Turn(Say("So: {{tool:create_repo}}"))
        ),
        "": Script(Turn(Say("I see."))),
    }
)


@dataclass(slots=True)
class Repos:
    """A tool that is cut off in its first call: nobody hears what became of it."""

    effect: str | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    made: list[str] = field(default_factory=list)

    @property
    def tool(self) -> BaseTool:
        async def create_repo(name: str) -> str:
            """Creates a repository."""
            self.made.append(name)
            if len(self.made) == 1:
                self.begun.set()
                await asyncio.Event().wait()
            return f"{name} is there."

        metadata = {"effect": self.effect} if self.effect else None
        return StructuredTool.from_function(coroutine=create_repo, name="create_repo", metadata=metadata)


@dataclass(slots=True)
class Stage:
    """A supervisor that was stopped in the middle of the call and started again."""

    client: Client
    storage: Storage
    model: ScriptedChatModel
    task_id: str
    context_id: str

    async def answer(self) -> str:
        """The answer of the run that was taken over."""
        frames = self.client.open("tasks/resubscribe", {"id": self.task_id}, last_event_id="0")
        return ReceivedStream([frame async for frame in frames]).answer

    async def calls(self) -> list[dict[str, Any]]:
        return list(
            (await self.client.http.get(f"{self.client.url}v1/tasks/{self.task_id}/calls")).json()["calls"]
        )

    async def say(self, key: str, outcome: Any, **more: Any) -> Any:
        url = f"{self.client.url}v1/tasks/{self.task_id}/calls/{quote(key, safe='')}/outcome"
        return await self.client.http.post(url, json=outcome, **more)

    async def seen_by_the_model(self, question: str) -> list[str]:
        """Asks in the same conversation; what the model then sees of the user's side."""
        await self.client.ask(question, contextId=self.context_id)
        return [message.text for message in self.model.requests[-1].messages if message.role == "user"]


@contextlib.asynccontextmanager
async def cut_off(folder: Path, repos: Repos, *, lost: str = "") -> AsyncIterator[Stage]:
    """`lost`: files of the storage that are not there any more at the second start."""
    model = ScriptedChatModel(script=BOOK)
    async with supervisor_on(in_folder(folder), model, tools=[repos.tool]) as client:
        stream = client.stream("Create cai.")
        first = await anext(stream)
        await repos.begun.wait()
    with contextlib.suppress(Exception):
        await stream.aclose()  # type: ignore[attr-defined]
    for path in (folder / "supervisor").glob(lost) if lost else ():
        path.unlink()
    storage = in_folder(folder)
    async with supervisor_on(storage, model, tools=[repos.tool]) as client:
        yield Stage(client, storage, model, first.update["id"], first.update["contextId"])


# --- what is journalled ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "journalled"),
    [
        ({}, ["who"]),  # `read_who` says of itself that it reads
        ({"read": ("wh?",)}, []),
        ({"idempotent": ("who", "read_who")}, ["who", "read_who"]),
        ({"read": ("read_*",), "idempotent": ("*",)}, ["who"]),
    ],
    ids=["by the server's word", "read", "idempotent", "read wins"],
)
async def test_calls_that_may_change_something_are_journalled(
    tmp_path: Path, policy: dict[str, Any], journalled: list[str]
) -> None:
    script = Script(Turn(Call("who"), Call("read_who")), Turn(Say("Done.")))
    delegating = Script(
        Turn(Call("task", {"description": "Who?", "subagent_type": "desk"})), Turn(Say("It is done."))
    )
    async with open_sessions(tmp_path) as sessions:
        tools = await sessions.tools(
            "raw", raw_stdio_server(), ToolPolicy(allow=("who", "read_who"), **policy)
        )
        async with supervisor(delegating, agents=[agent("desk", script, *tools)]) as client:
            stream = await client.ask("Who?")
            calls = (await client.http.get(f"{client.url}v1/tasks/{stream.task_id}/calls")).json()["calls"]
    assert stream.answer == "It is done."
    assert sorted(call["tool"] for call in calls) == sorted(journalled)
    assert {call["state"] for call in calls} <= {"done"}


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_call_that_does_no_harm_twice_is_made_again(tmp_path: Path, effect: str) -> None:
    repos = Repos(effect)
    async with cut_off(tmp_path, repos) as stage:
        assert await stage.answer() == "So: cai is there."
        assert [call["state"] for call in await stage.calls()] == (["done"] if effect == "idempotent" else [])
    assert repos.made == ["cai", "cai"]


async def test_any_other_call_that_was_cut_off_is_unknown_and_not_made_again(tmp_path: Path) -> None:
    repos = Repos()
    async with cut_off(tmp_path, repos) as stage:
        answer = await stage.answer()
        assert answer.startswith("So: The outcome of create_repo is unknown")
        (call,) = await stage.calls()
    assert repos.made == ["cai"]
    assert call.pop("key").endswith(f"/{CALL_ID}")
    assert call == {"tool": "create_repo", "arguments": {"name": "cai"}, "state": "unknown"}


async def test_a_run_whose_state_is_lost_does_not_begin_again_after_a_call(tmp_path: Path) -> None:
    repos = Repos()
    async with cut_off(tmp_path, repos, lost="checkpoints.db*") as stage:
        frames = stage.client.open("tasks/resubscribe", {"id": stage.task_id}, last_event_id="0")
        stream = ReceivedStream([frame async for frame in frames])
        assert stream.last.state == "failed"
        assert "the state of this run is lost. It had called create_repo before" in stream.last.status_text
        assert [call["state"] for call in await stage.calls()] == ["unknown"]
    assert repos.made == ["cai"]


# --- what people say ------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize(("outcome", "words"), [("done", "took effect"), ("not_done", "did not take effect")])
async def test_a_persons_word_reaches_the_model_once_before_the_next_question(
    tmp_path: Path, outcome: str, words: str
) -> None:
    async with cut_off(tmp_path, Repos()) as stage:
        await stage.answer()
        (call,) = await stage.calls()
        settled = await stage.say(call["key"], {"outcome": outcome, "note": "I looked."})
        assert settled.status_code == 200
        assert (settled.json()["state"], settled.json()["settled_by"]) == ("done", "the user")
        first, note, question = await stage.seen_by_the_model("And now?")
        assert (first, question) == ("Create cai.", "And now?")
        assert note.endswith(f"the user says that create_repo {words}. I looked.")
        assert 'create_repo {"name": "cai"}' in note
        assert await stage.seen_by_the_model("And then?") == [first, note, question, "And then?"]
        # Another conversation has nothing to do with it.
        await stage.client.ask("Hello?")
        assert [message.text for message in stage.model.requests[-1].messages] == ["Hello?"]


async def test_only_the_owner_sees_a_call_and_says_what_became_of_it(tmp_path: Path) -> None:
    async with cut_off(tmp_path, Repos()) as stage:
        await stage.answer()
        (call,) = await stage.calls()
    storage = in_folder(tmp_path)
    async with supervisor_on(storage, stage.model, key=KEY) as stranger:
        theirs = Stage(stranger, storage, stage.model, stage.task_id, stage.context_id)
        stream = await stranger.http.get(f"{stranger.url}v1/tasks/{stage.task_id}/calls")
        assert problem(stream, 404) == f"There is no task {stage.task_id}."
        assert (
            problem(await theirs.say(call["key"], {"outcome": "done"}), 404)
            == f"There is no task {stage.task_id}."
        )
        unknown = await stranger.http.get(
            f"{stranger.url}v1/tasks/{stage.task_id}/calls", headers={"Authorization": ""}
        )
        assert unknown.status_code == 401
        assert [entry.state for entry in await storage.log.journal(stage.task_id)] == ["unknown"]


async def test_what_cannot_be_taken_as_a_word_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with cut_off(tmp_path, Repos()) as stage:
        await stage.answer()
        (call,) = await stage.calls()
        wrong = [
            {},
            {"outcome": "perhaps"},
            {"outcome": "done", "note": "x" * 2001},
            {"outcome": "done", "by": "bob"},
            [],
            "done",
        ]
        for outcome in wrong:
            assert "not_done" in problem(await stage.say(call["key"], outcome), 400)
        large = {"outcome": "done", "note": "x" * 70_000}
        assert "larger" in problem(await stage.say(call["key"], large), 400)
        plain = await stage.say(call["key"], {"outcome": "done"}, headers={"content-type": "text/plain"})
        assert "Send JSON" in problem(plain, 400)
        assert (
            problem(await stage.say("tools/other", {"outcome": "done"}), 404)
            == "The task has no call tools/other."
        )
        assert [journalled["state"] for journalled in await stage.calls()] == ["unknown"]

        assert (await stage.say(call["key"], {"outcome": "done"})).status_code == 200
        assert (await stage.say(call["key"], {"outcome": "done"})).status_code == 200, (
            "the same word again is no mistake"
        )
        assert "has already recorded" in problem(await stage.say(call["key"], {"outcome": "not_done"}), 409)
        assert (await stage.calls())[0]["outcome"]["said"] == "done"


async def test_the_outcome_of_a_call_that_ended_or_works_is_nobodys_to_say(tmp_path: Path) -> None:
    repos = Repos()
    storage = Storage.in_memory()
    async with supervisor_on(storage, ScriptedChatModel(script=BOOK), tools=[repos.tool]) as client:
        stream = client.stream("Create cai.")
        first = await anext(stream)
        await repos.begun.wait()
        stage = Stage(
            client, storage, ScriptedChatModel(script=BOOK), first.update["id"], first.update["contextId"]
        )
        (working,) = await stage.calls()
        assert working["state"] == "intent"
        assert "is still running" in problem(await stage.say(working["key"], {"outcome": "done"}), 409)
        await stream.aclose()  # type: ignore[attr-defined]
        await client.call("tasks/cancel", {"id": stage.task_id})
        assert [call["state"] for call in await stage.calls()] == ["unknown"], "it was broken off"
        done = await client.ask("Create cai.")
        stage.task_id = done.task_id
        (over,) = await stage.calls()
        assert (over["state"], done.answer) == ("done", "So: cai is there.")
        assert (
            problem(await stage.say(over["key"], {"outcome": "not_done"}), 409)
            == "The outcome of create_repo is known."
        )


# --- the command ----------------------------------------------------------------------------------


async def test_the_command_lists_calls_and_takes_a_word(tmp_path: Path) -> None:
    async with cut_off(tmp_path, Repos()) as stage:
        await stage.answer()
        (call,) = await stage.calls()

        async def outcome(*arguments: str) -> CommandResult:
            return await invoke_caipe("outcome", *arguments, env={"CAIPE_URL": stage.client.url})

        listed = await outcome(stage.task_id)
        assert (listed.code, listed.out) == (0, f'unknown: create_repo {{"name": "cai"}}\n  {call["key"]}\n')
        assert (await outcome(stage.task_id, "create_repo")).code == 2
        assert (await outcome(stage.task_id, "--done")).code == 2
        other = await outcome(stage.task_id, "delete_repo", "--done")
        assert (other.code, "delete_repo" in other.err) == (1, True)
        missing = await outcome("no-task", CALL_ID, "--done")
        assert (missing.code, missing.err) == (1, "There is no task no-task.\n")
        assert [journalled["state"] for journalled in await stage.calls()] == ["unknown"]

        result = await outcome(stage.task_id, "create_repo", "--not-done", "--note", "It is not there.")
        assert (result.code, result.err) == (
            0,
            "Noted: the user says that create_repo did not take effect. It is not there.\n",
        )
        again = await outcome(stage.task_id, CALL_ID, "--done")
        assert (again.code, again.err) == (1, "the user has already recorded the outcome of create_repo.\n")
        assert (await outcome(stage.task_id)).out.startswith("done (according to the user): create_repo")
        assert (await stage.calls())[0]["outcome"]["note"] == "It is not there."
