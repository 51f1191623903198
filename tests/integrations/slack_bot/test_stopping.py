"""What people do with a run in Slack: stop it, say what they think of it, try it again; and that all of it
works over restarts.
"""

import asyncio
import contextlib
import copy
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from ai_platform_engineering.a2a.client import ClientConversation
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.events import Answered, Cancelled, RunStarted
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.integrations.slack_bot import approval_messages, blocks, request_messages
from ai_platform_engineering.integrations.slack_bot.turn_rows import ThreadKey
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.agent_services import eventually
from tests.support.asking_agent import DELEGATING, Repos, form_tool, github
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Fail, Hang, Request, Say, Script, Turn
from tests.support.fakes.slack import FakeSlack, Fault
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.ports import free_port
from tests.support.slack_requests import (
    FIELDS,
    FORM_VALUES,
    TEXT_FIELDS,
    buttons,
    count_stopped_notes,
    model_that_calls,
    task_of,
    tool_result,
    turn_and_request_ids,
)
from tests.support.slack_workspace import LIMITS, BotHarness, join_texts, start_harness
from tests.support.storages import in_folder
from tests.support.workflow_processes import ORG, random_name, serve_supervisor
from tests.support.workflow_processes import serve_github as github_site

How = Literal["native", "word", "button"]
POSTED = {"SLACK_INTEGRATION_STREAMING": "false"}
PLANNED = {
    "title": "Plan",
    "todos": [{"title": "Wait", "status": "in_progress"}, {"title": "Sum up", "status": "pending"}],
}

by_any_means = pytest.mark.parametrize("how", ["native", "word", "button"])


async def stopped(on: BotHarness, thread: str, how: How, user: str = "U2") -> None:
    if how == "native":
        await on.slack.stop("C1", thread, user)
    elif how == "word":
        await on.slack.say("Stop!", user=user, thread_ts=thread)
    else:
        await on.slack.click(
            await on.wait_for_button(blocks.STOP_ACTION, thread), blocks.STOP_ACTION, user=user
        )


def cards(on: BotHarness, thread: str) -> dict[str, str]:
    """The steps of the thread as they were shown last, by their titles."""
    return {
        card["title"]: card["status"] for one in on.bot_messages("C1", thread) for card in one.cards.values()
    }


async def over(on: BotHarness, thread: str) -> list[Any]:
    """The bot's messages when the turn has ended and Slack shows nobody at work any more."""
    messages = await on.wait_for_turns("C1", thread)
    await on.slack.wait(lambda: on.slack.sessions["C1", thread].status == "active")
    return messages


async def end_of(on: BotHarness, thread: str) -> Any:
    return (await on.events(task_of(on, thread), thread))[-1]


# --- stop ---------------------------------------------------------------------------------------------------


@by_any_means
async def test_a_run_is_stopped_in_the_middle(tmp_path: Path, how: How) -> None:
    waiting = BlockingScenario()
    planning = Turn(Say("I make a plan. "), Call("write_todos", PLANNED))
    script = Script(planning, Turn(Say("Please wait. "), Call("wait")), Turn(Say("Never.")))
    env = POSTED if how == "button" else {}
    async with start_harness(tmp_path, script, tools=[waiting.tool], env=env) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        async with asyncio.timeout(120):
            await waiting.started.wait()
        await on.slack.wait(lambda: "Please wait." in on.slack.text_of("C1", thread))
        await stopped(on, thread, how)
        messages = await over(on, thread)
        event = await end_of(on, thread)
    assert isinstance(event, Cancelled)
    assert event.by == "second@example.com"
    assert waiting.cancelled.is_set()
    assert count_stopped_notes(on, thread) == 1
    assert on.slack.text_of("C1", thread).count("Please wait.") == 1
    assert "Never." not in on.slack.text_of("C1", thread)
    assert on.message_with(blocks.STOP_ACTION, "C1", thread) is None
    if how == "word":
        assert cards(on, thread) == {"Wait": "error", "Sum up": "complete"}
    if how == "button":
        assert "❌ Wait" in str(messages[0].blocks)
    if how == "native":  # Slack has closed the message itself, so the word stands below it
        assert [one.text for one in messages if one.state == "posted"] == ["Stopped."]


@pytest.mark.parametrize("how", ["native", "word"])
async def test_a_run_is_stopped_before_it_has_said_anything(tmp_path: Path, how: How) -> None:
    model = ScriptedChatModel(script=Script(Turn(Hang())))
    async with start_harness(tmp_path, model) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        await on.slack.wait(lambda: on.slack.called("assistant.threads.setStatus"))
        await stopped(on, thread, how)
        messages = await over(on, thread)
        event = await end_of(on, thread)
    assert (type(event), event.by) == (Cancelled, "second@example.com")
    assert ([one.text for one in messages], count_stopped_notes(on, thread)) == (["Stopped."], 1)


async def test_a_question_that_the_supervisor_does_not_have_yet_is_stopped_when_it_has_it(
    tmp_path: Path,
) -> None:
    held = asyncio.Event()
    model = ScriptedChatModel(script=Script(Turn(Hang())))
    async with start_harness(tmp_path, model) as on, on.bot() as running:
        on.slack.faults.add("agents.sessions.setStatus", Fault(hold_until=held))
        thread = await on.slack.say("Go.", mention=True)
        await on.slack.wait(lambda: on.slack.called("agents.sessions.setStatus"))
        await running.bot.stop("T1", "C1", thread, "U1")
        held.set()
        messages = await on.wait_for_turns("C1", thread)
        event = await end_of(on, thread)
    assert (type(event), event.by) == (Cancelled, "first@example.com")
    assert ([one.text for one in messages], count_stopped_notes(on, thread)) == (["Stopped."], 1)


@pytest.mark.parametrize("how", ["native", "word"])
async def test_a_run_is_stopped_while_it_waits_for_people(tmp_path: Path, how: How) -> None:
    async with (
        start_harness(tmp_path, model_that_calls("details"), tools=[form_tool("details", FIELDS)]) as on,
        on.bot(),
    ):
        thread = await on.slack.say("Go.", mention=True)
        form = await on.wait_for_button(request_messages.FILL_ACTION, thread)
        await stopped(on, thread, how)
        await over(on, thread)
        event = await end_of(on, thread)
    assert (type(event), event.by) == (Cancelled, "second@example.com")
    assert (buttons(form), "No longer asked." in str(form.blocks), count_stopped_notes(on, thread)) == (
        [],
        True,
        1,
    )


@pytest.mark.parametrize("how", ["native", "word"])
async def test_a_stop_after_the_answer_stops_nothing(tmp_path: Path, how: How) -> None:
    async with start_harness(tmp_path, Script(Turn(Say("Done.")))) as on, on.bot() as running:
        thread = await on.slack.say("Go.", mention=True)
        await on.wait_for_turns("C1", thread)
        await eventually(running.bot.store.list_open_turns, lambda rows: not rows)
        await stopped(on, thread, how)
        await on.slack.wait(lambda: on.ephemeral_texts("U2"))
    assert on.ephemeral_texts("U2") == ["Nothing is running in this thread."]
    assert ([one.shown for one in on.bot_messages("C1", thread)], count_stopped_notes(on, thread)) == (
        ["Done."],
        0,
    )


async def test_an_answer_that_comes_before_the_stop_is_shown_whole(tmp_path: Path) -> None:
    waiting, opened = BlockingScenario(), asyncio.Event()
    script = Script(Turn(Say("Please wait. "), Call("wait")), Turn(Say("It is done.")))
    async with start_harness(tmp_path, script, tools=[waiting.tool]) as on, on.bot() as running:
        on.slack.faults.add("chat.startStream", Fault(hold_until=opened))
        thread = await on.slack.say("Go.", mention=True)
        await on.slack.wait(lambda: on.slack.called("chat.startStream"))
        [row] = await running.bot.store.list_open_turns()
        waiting.released.set()
        await eventually(
            lambda: on.events(row.task_id or "", thread), lambda events: isinstance(events[-1], Answered)
        )
        await running.bot.stop("T1", "C1", thread, "U2")
        opened.set()
        messages = await over(on, thread)
    assert join_texts(messages) == "Please wait. \n\nIt is done."
    assert count_stopped_notes(on, thread) == 0


# --- feedback -----------------------------------------------------------------------------------------------


async def test_the_last_word_on_an_answer_is_kept_with_its_trace(tmp_path: Path) -> None:
    async with start_harness(tmp_path, Script(Turn(Say("Done.")))) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        [message] = await on.wait_for_turns("C1", thread)
        task_id = task_of(on, thread)
        api = rest_api_for_client(on.supervisor_for(thread))

        async def has(**wanted: tuple[str, str | None]) -> str:
            """The trace with which this is kept, and nothing else."""

            def kept(found: Any) -> bool:
                return {
                    one["by"].partition("@")[0]: (one["score"], one["reason"]) for one in found["feedback"]
                } == wanted

            found = await eventually(lambda: api("GET", f"/v1/tasks/{task_id}/feedback"), kept)
            return str(found["trace_id"])

        for score in ("down", "up"):
            await on.slack.click(message, blocks.FEEDBACK_ACTION, value=f"{score} {task_id}")
        await has(first=("up", None))
        known = set(on.slack.views)
        await on.slack.click(message, blocks.FEEDBACK_ACTION, user="U2", value=f"down {task_id}")
        view = await on.slack.wait(
            lambda: next((one for key, one in on.slack.views.items() if key not in known), None)
        )
        await has(first=("up", None), second=("down", None))
        assert await on.slack.submit(view, {"reason": "The wrong cluster."}, user="U2") is None
        trace = await has(first=("up", None), second=("down", "The wrong cluster."))
    assert message.metadata["event_payload"]["trace_id"] == trace


# --- again after an error -----------------------------------------------------------------------------------


async def test_after_an_error_the_same_question_is_asked_again_once(tmp_path: Path) -> None:
    down = [True]

    def step(request: Request) -> Turn:
        return (
            Turn(Fail(500, message="upstream-7 said: Traceback (most recent call last)"))
            if down
            else Turn(Say("To {{user}}: fine."))
        )

    async with start_harness(tmp_path, Script(step)) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        [failed] = await on.wait_for_turns("C1", thread)
        first = task_of(on, thread)
        down.clear()
        await asyncio.gather(*(on.slack.click(failed, blocks.RETRY_ACTION, user="U2") for _ in range(2)))
        messages = await on.wait_for_turns("C1", thread, 2)
        await on.slack.wait(lambda: on.ephemeral_texts("U2"))
        events = await on.events(task_of(on, thread), thread)
    shown = str(failed.all_blocks)
    assert shown.count(":warning: ") == 1
    assert (failed.metadata or {})["event_payload"]["trace_id"] in shown
    assert not any(
        word in str([call.params for call in on.slack.calls]) for word in ("upstream-7", "Traceback")
    )
    assert join_texts(messages[-1:]) == "To Go.: fine."
    assert on.count_ended_turns("C1", thread) == 2
    assert task_of(on, thread) != first
    assert [event.principal for event in events if isinstance(event, RunStarted)] == ["second@example.com"]
    assert on.ephemeral_texts("U2") == ["This was already retried, below."]


async def test_what_would_fail_again_is_not_offered_again(tmp_path: Path) -> None:
    async with start_harness(tmp_path, Script(Turn(Fail(400, message="upstream-7: no")))) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        [failed] = await on.wait_for_turns("C1", thread)
    assert buttons(failed) == []
    assert "The model refused the request." in str(failed.all_blocks)
    assert "upstream-7" not in str([call.params for call in on.slack.calls])


# --- over restarts ------------------------------------------------------------------------------------------


async def test_a_bot_that_closes_leaves_an_open_turn_to_the_next_one(tmp_path: Path) -> None:
    waiting = BlockingScenario()
    model = ScriptedChatModel(script=Script(Turn(Call("wait")), Turn(Say("Done."))))
    async with start_harness(tmp_path, model, tools=[waiting.tool]) as on:
        async with on.bot() as running:
            thread = await on.slack.say("Go.", mention=True)
            await waiting.started.wait()
            on.clock.scale = 0  # nothing ends because its time is over
            async with asyncio.timeout(120):
                await running.bot.turns.close()
                running.bot.begin_thread(ThreadKey("C1", thread))
                await running.listeners.drain()
            on.clock.scale = 1
        waiting.released.set()
        async with on.bot():
            messages = await on.wait_for_turns("C1", thread)
    assert join_texts(messages) == "Done."


async def test_the_bot_is_restarted_between_a_form_and_its_answer(tmp_path: Path) -> None:
    model = model_that_calls("details")
    async with start_harness(tmp_path, model, tools=[form_tool("details", FIELDS)]) as on:
        async with on.bot():
            thread = await on.slack.say("Go.", mention=True)
            form = await on.wait_for_button(request_messages.FILL_ACTION, thread)
            view = await on.open_modal(form, request_messages.FILL_ACTION)
            await on.slack.say("Hm.", thread_ts=thread)
            await on.wait_for_button(request_messages.DROP_ACTION, thread)
        before = [one.ts for one in on.bot_messages("C1", thread)]
        async with on.bot():
            refused = await on.slack.submit(view, {**FORM_VALUES, "name": "Not This"})
            again = [one.ts for one in on.bot_messages("C1", thread)]
        async with on.bot():
            assert await on.slack.submit(view, FORM_VALUES) is None
            messages = await on.wait_for_turns("C1", thread)
    assert refused == {
        "response_action": "errors",
        "errors": {"name": "Name must consist of lowercase letters and hyphens."},
    }
    assert again == before  # nothing is said twice
    assert tool_result(model)["zone"] == "zone-141"
    assert "Answered by <@U1>" in str(form.blocks)
    assert join_texts(messages).count("Got {") == 1


async def test_what_is_decided_while_the_bot_is_away_is_shown_when_it_is_back(tmp_path: Path) -> None:
    repos = Repos()
    async with start_harness(
        tmp_path, DELEGATING, agents=[github(repos, {"name": "one"}, {"name": "two"})]
    ) as on:
        async with on.bot() as running:
            thread = await on.slack.say("Go.", mention=True)
            await on.slack.wait(
                lambda: len([one for one in on.bot_messages("C1", thread) if buttons(one)]) == 2
            )
            first, second = [one for one in on.bot_messages("C1", thread) if buttons(one)]
            turn_id, request_id = turn_and_request_ids(first)
            row = await running.bot.store.find_turn(turn_id)
        elsewhere = on.supervisor_for(thread, "third@example.com")
        async for _ in elsewhere.answer(
            {request_id: {"type": "approve"}}, ClientConversation(row.owner, row.task_id)
        ):
            pass
        async with on.bot():
            await on.slack.wait(lambda: not buttons(first))
            await on.slack.click(second, approval_messages.APPROVE_ACTION)
            messages = await on.wait_for_turns("C1", thread)
    assert "Approved by third@example.com <!date^" in str(first.blocks)
    assert "create_repo" in str(first.blocks)
    assert len(repos.made) == 2
    assert "is there." in join_texts(messages)


@contextlib.asynccontextmanager
async def supervisor_at(
    port: int, folder: Path, model: ScriptedChatModel, *tools: Any, agents: Any = ()
) -> AsyncIterator[Client]:
    """A process of the supervisor, as far as the bot can tell: another one at the same address goes on with
    what is stored.
    """
    app = create_app(
        Settings.from_variables(FAST), agents=agents, tools=tools, model=model, storage=in_folder(folder)
    )
    async with (
        serve_app(app, socket.create_server(("127.0.0.1", port))) as url,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        yield Client(url, http)


async def test_the_supervisor_is_restarted_between_a_form_and_its_answer(tmp_path: Path) -> None:
    port, model, tool = free_port(), model_that_calls("cluster"), form_tool("cluster", TEXT_FIELDS)
    async with FakeSlack(limits=LIMITS) as slack, contextlib.AsyncExitStack() as bots:
        async with supervisor_at(port, tmp_path, model, tool) as client:
            on = BotHarness(slack, client, tmp_path / "bot-home")
            await bots.enter_async_context(on.bot())
            thread = await slack.say("Go.", mention=True)
            form = await on.wait_for_button(request_messages.FILL_ACTION, thread)
            view = await on.open_modal(form, request_messages.FILL_ACTION)
        refused = await slack.submit(view, {"answer": "blue"})
        async with supervisor_at(port, tmp_path, model, tool):
            assert await slack.submit(view, {"answer": "blue"}) is None
            messages = await on.wait_for_turns("C1", thread)
    away = "The supervisor cannot be reached, so this was not accepted. Try again later."
    assert refused == {"response_action": "errors", "errors": {"answer": away}}
    assert tool_result(model) == {"answer": "blue"}
    assert "Answered by <@U1>" in str(form.blocks)
    assert join_texts(messages).count("Got {") == 1


async def test_bot_and_supervisor_are_restarted_between_an_approval_and_its_decision(tmp_path: Path) -> None:
    port, repos, model = free_port(), Repos(), ScriptedChatModel(script=DELEGATING)
    agents = [github(repos, {"name": "one"})]
    async with FakeSlack(limits=LIMITS) as slack:
        async with supervisor_at(port, tmp_path, model, agents=agents) as client:
            on = BotHarness(slack, client, tmp_path / "bot-home")
            async with on.bot():
                thread = await slack.say("Go.", mention=True)
                message = copy.copy(await on.wait_for_button(approval_messages.APPROVE_ACTION, thread))
        async with supervisor_at(port, tmp_path, model, agents=agents), on.bot():
            await slack.click(message, approval_messages.APPROVE_ACTION)
            messages = await on.wait_for_turns("C1", thread)
    assert [one["name"] for one in repos.made] == ["one"]
    assert join_texts(messages[-1:]).strip() == "So: one is there."


# --- a workflow ---------------------------------------------------------------------------------------------


async def test_a_repository_is_created_step_by_step_in_a_thread(tmp_path: Path) -> None:
    repo = random_name()
    async with (
        github_site() as hub,
        serve_supervisor(tmp_path, **hub.settings) as client,
        FakeSlack(limits=LIMITS) as slack,
    ):
        on = BotHarness(slack, client, tmp_path / "bot-home")
        async with on.bot():
            thread = await slack.say("Create GitHub Repo", mention=True)
            view = await on.open_modal(
                await on.wait_for_button(request_messages.FILL_ACTION, thread), request_messages.FILL_ACTION
            )
            refused = await slack.submit(view, {"repo": "not a name", "owner": ORG})
            assert await slack.submit(view, {"repo": repo, "owner": ORG, "description": "Pays."}) is None
            approval = await on.wait_for_button(approval_messages.APPROVE_ACTION, thread)
            asked = str(approval.blocks)
            await slack.click(approval, approval_messages.APPROVE_ACTION)
            messages = await on.wait_for_turns("C1", thread)
        found = await hub.repository(repo)
    assert refused is not None
    assert refused["errors"]["repo"].startswith("Repository must consist of ")
    assert repo in asked
    assert found is not None
    assert (found["private"], found["description"]) == (True, "Pays.")
    assert f"The repository {ORG}/{repo} exists: {found['html_url']}" in join_texts(messages)
    assert cards(on, thread)["[Github] Create the repository"] == "complete"
    assert "pending" not in cards(on, thread).values()
