"""Calls that wait for a decision, in Slack: approved, edited, rejected, always approved, decided elsewhere,
expired; and by whom.
"""

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from ai_platform_engineering.a2a.client import ClientConversation
from ai_platform_engineering.core.events import InputResolved
from ai_platform_engineering.integrations.slack_bot import approval_messages, request_messages
from tests.support.asking_agent import DELEGATING, Repos, form_tool, github
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import agent
from tests.support.slack_requests import (
    FIELDS,
    TEXT_FIELDS,
    buttons,
    count_stopped_notes,
    model_that_calls,
    task_of,
    tool_result,
    turn_and_request_ids,
    write_approvers,
)
from tests.support.slack_workspace import BotHarness, join_texts, start_harness


def by_repo(on: BotHarness, thread: str) -> dict[str, Any]:
    """The messages that ask for approval, by the repository they are about."""
    waiting = [
        one for one in on.bot_messages("C1", thread) if approval_messages.APPROVE_ACTION in str(one.blocks)
    ]
    return {
        name: one for one in waiting for name in ("one", "two", "three") if f'"{name}"' in str(one.blocks)
    }


async def test_a_call_is_shown_and_runs_when_it_is_approved(tmp_path: Path) -> None:
    repos = Repos()
    async with (
        start_harness(tmp_path, DELEGATING, agents=[github(repos, {"name": "one", "stars": 2})]) as on,
        on.bot(),
    ):
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(approval_messages.APPROVE_ACTION, thread)
        asked = copy.deepcopy(message)
        await on.slack.click(message, approval_messages.APPROVE_ACTION)
        messages = await on.wait_for_turns("C1", thread)
    assert (asked.text, buttons(asked)) == (
        "Github wants to run create_repo",
        ["Approve", "Always here", "Edit", "Reject"],
    )
    approve = next(
        element
        for block in asked.blocks
        for element in block.get("elements", ())
        if element.get("action_id") == approval_messages.APPROVE_ACTION
    )
    assert approve["confirm"]["text"]["text"] == "Run create_repo with these arguments?"
    assert repos.made == [{"name": "one", "private": False, "stars": 2}]
    assert buttons(message) == []
    assert "Approved by <@U1> <!date^" in str(message.blocks)
    assert '"name": "one"' in str(message.blocks)
    assert join_texts(messages[-1:]).strip() == "So: one is there."


async def test_arguments_are_edited_and_secrets_stay_where_they_were_unseen(tmp_path: Path) -> None:
    called: list[dict[str, Any]] = []

    async def rotate(key: dict[str, Any], api_token: str, bypass: bool = False) -> str:
        """Rotates."""
        called.append({"key": key, "api_token": api_token, "bypass": bypass})
        return "Rotated."

    tool = StructuredTool.from_function(coroutine=rotate, name="rotate", metadata={"listed": "ask"})
    given = {"key": {"name": "old", "password": "hunter2"}, "api_token": "t0p-s3cret", "bypass": True}
    vault = agent("vault", Script(Turn(Call("rotate", given)), Turn(Say("{{tool:rotate}}"))), tool)
    outer = Script(
        Turn(Call("task", {"description": "Go on.", "subagent_type": "vault"})), Turn(Say("Done."))
    )
    async with start_harness(tmp_path, outer, agents=[vault]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(approval_messages.EDIT_ACTION, thread)
        view = await on.open_modal(message, approval_messages.EDIT_ACTION)
        shown = view["blocks"][-1]["element"]["initial_value"]
        broken = await on.slack.submit(view, {"arguments": "{"})
        no_object = await on.slack.submit(view, {"arguments": "[1]"})
        unfit = await on.slack.submit(view, {"arguments": shown.replace("true", '"perhaps"')})
        assert called == []
        assert await on.slack.submit(view, {"arguments": shown.replace("old", "new")}) is None
        await on.wait_for_turns("C1", thread)
        seen = json.dumps([call.params for call in on.slack.calls])
    masked = json.loads(shown)
    assert (masked["key"]["name"], masked["bypass"]) == ("old", True)
    assert masked["key"]["password"].startswith("•••• (masked: 7 characters, ")
    assert masked["api_token"].startswith("•••• (masked: 10 characters, ")
    assert broken is not None
    assert broken["errors"]["arguments"].startswith("This is not JSON: ")
    assert no_object is not None
    assert no_object["errors"] == {"arguments": "The arguments are a JSON object with a value for each name."}
    assert unfit is not None
    assert unfit["errors"] == {"arguments": "bypass must be true or false."}
    assert called == [
        {"key": {"name": "new", "password": "hunter2"}, "api_token": "t0p-s3cret", "bypass": True}
    ]
    assert "Approved with changes by <@U1>" in str(message.blocks)
    assert "hunter2" not in seen
    assert "t0p-s3cret" not in seen


async def test_a_call_is_rejected_with_a_reason_and_another_one_is_always_approved_here(
    tmp_path: Path,
) -> None:
    repos = Repos()
    outer = ScriptedChatModel(script=DELEGATING)
    async with start_harness(tmp_path, outer, agents=[github(repos, {"name": "one"})]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(approval_messages.REJECT_ACTION, thread)
        view = await on.open_modal(message, approval_messages.REJECT_ACTION)
        assert await on.slack.submit(view, {"reason": "Not today."}) is None
        await on.wait_for_turns("C1", thread)
        made = list(repos.made)
        refusal = outer.requests[-1].tool_results["github"]

        await on.slack.say("Go again.", thread_ts=thread)
        await on.slack.click(
            await on.wait_for_button(approval_messages.ALWAYS_ACTION, thread), approval_messages.ALWAYS_ACTION
        )
        await on.wait_for_turns("C1", thread, 2)
        await on.slack.say("And again.", thread_ts=thread)
        await on.wait_for_turns("C1", thread, 3)
    assert made == []
    assert "Rejected by <@U1>" in str(message.blocks)
    assert "A person rejected this call of create_repo: Not today." in refusal[0]
    assert [one["name"] for one in repos.made] == ["one", "one"]
    assert on.message_with(approval_messages.APPROVE_ACTION, "C1", thread) is None


async def test_several_calls_wait_and_are_decided_out_of_order_by_two_people_at_once(tmp_path: Path) -> None:
    repos, env = Repos(), write_approvers(tmp_path, "anyone")
    three = github(repos, *({"name": name} for name in ("one", "two", "three")))
    async with start_harness(tmp_path, DELEGATING, agents=[three], env=env) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        waiting = await on.slack.wait(lambda: len(found := by_repo(on, thread)) == 3 and found)
        view = await on.open_modal(waiting["three"], approval_messages.EDIT_ACTION, user="U2")
        assert await on.slack.submit(view, {"arguments": '{"name": "drei"}'}, user="U2") is None
        await on.slack.wait(lambda: not buttons(waiting["three"]))
        both = copy.deepcopy(waiting["one"])
        await asyncio.gather(
            *(on.slack.click(both, approval_messages.APPROVE_ACTION, user=user) for user in ("U1", "U2"))
        )
        await on.slack.wait(lambda: [*on.ephemeral_texts("U1"), *on.ephemeral_texts("U2")])
        view = await on.open_modal(waiting["two"], approval_messages.REJECT_ACTION)
        await on.slack.submit(view, {})
        await on.wait_for_turns("C1", thread)
    assert sorted(one["name"] for one in repos.made) == ["drei", "one"]
    [late] = [*on.ephemeral_texts("U1"), *on.ephemeral_texts("U2")]
    assert late.startswith("A decision on create_repo was already answered by ")
    assert "Approved with changes by <@U2>" in str(waiting["three"].blocks)
    assert "Rejected by <@U1>" in str(waiting["two"].blocks)


# --- what happens elsewhere ---------------------------------------------------------------------------------


async def test_an_answer_that_is_given_elsewhere_takes_the_buttons_away_and_the_thread_goes_on(
    tmp_path: Path,
) -> None:
    repos = Repos()
    async with (
        start_harness(tmp_path, DELEGATING, agents=[github(repos, {"name": "one"})]) as on,
        on.bot() as running,
    ):
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(approval_messages.APPROVE_ACTION, thread)
        stale, (turn_id, request_id) = copy.deepcopy(message), turn_and_request_ids(message)
        row = await running.bot.store.find_turn(turn_id)
        elsewhere = on.supervisor_for(thread, "someone@example.com")
        async for _ in elsewhere.answer(
            {request_id: {"type": "approve"}}, ClientConversation(row.owner, row.task_id)
        ):
            pass
        messages = await on.wait_for_turns("C1", thread)
        await on.slack.click(stale, approval_messages.APPROVE_ACTION)
        await on.slack.wait(on.ephemeral_texts)
    assert repos.made
    assert "Approved by someone@example.com" in str(message.blocks)
    assert join_texts(messages[-1:]).strip() == "So: one is there."
    assert on.ephemeral_texts()[0].startswith(
        "A decision on create_repo was already answered by someone@example.com at "
    )


async def test_a_run_that_is_cancelled_elsewhere_asks_no_longer(tmp_path: Path) -> None:
    async with (
        start_harness(tmp_path, model_that_calls("details"), tools=[form_tool("details", FIELDS)]) as on,
        on.bot() as running,
    ):
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(request_messages.FILL_ACTION, thread)
        stale, (turn_id, _) = copy.deepcopy(message), turn_and_request_ids(message)
        row = await running.bot.store.find_turn(turn_id)
        await on.supervisor_for(thread).cancel(row.task_id)
        await on.wait_for_turns("C1", thread)
        await on.slack.click(stale, request_messages.FILL_ACTION)
        await on.slack.wait(on.ephemeral_texts)
    assert (buttons(message), "About details" in str(message.blocks)) == ([], True)
    assert "No longer asked." in str(message.blocks)
    assert count_stopped_notes(on, thread) == 1
    assert on.ephemeral_texts() == ["About details is no longer open."]


async def test_what_nobody_answers_in_time_expires_and_says_how_to_be_asked_again(tmp_path: Path) -> None:
    env = {"REQUEST_TIMEOUT_SECONDS": "0.2"}
    repos = Repos()
    async with (
        start_harness(tmp_path, DELEGATING, agents=[github(repos, {"name": "one"})], env=env) as on,
        on.bot(),
    ):
        thread = await on.slack.say("Go.", mention=True)
        await on.slack.wait(
            lambda: (
                "Expired: nothing was decided." in str([one.blocks for one in on.bot_messages("C1", thread)])
            )
        )
        [message] = [one for one in on.bot_messages("C1", thread) if one.state == "posted"]
    assert buttons(message) == []
    assert "Write in this thread to get the request again, or `stop`." in str(message.blocks)
    assert repos.made == []


async def test_a_click_on_what_has_expired_has_it_asked_again(tmp_path: Path) -> None:
    model = model_that_calls("details")
    past = form_tool("details", TEXT_FIELDS, expires_at="2000-01-01T00:00:00Z")
    async with start_harness(tmp_path, model, tools=[past]) as on, on.bot() as running:
        thread = await on.slack.say("Go.", mention=True)
        first = await on.wait_for_button(request_messages.DECLINE_ACTION, thread)
        await on.slack.click(first, request_messages.DECLINE_ACTION)
        again = await on.slack.wait(
            lambda: next(
                (one for one in on.bot_messages("C1", thread) if one.ts > first.ts and buttons(one)), None
            )
        )
        assert "Expired: nothing was decided." in str(first.blocks)
        assert len(model.requests) == 1
        async with asyncio.timeout(120):
            await running.listeners.drain()  # who clicks too late does not wait for ever
        await on.slack.click(again, request_messages.DECLINE_ACTION)
        await on.wait_for_turns("C1", thread)
    assert tool_result(model)["type"] == "reject"


# --- who may answer -----------------------------------------------------------------------------------------


async def test_only_who_asked_may_answer_and_that_is_looked_at_again_when_a_modal_is_sent(
    tmp_path: Path,
) -> None:
    repos, env = Repos(), write_approvers(tmp_path, "requester")
    async with (
        start_harness(tmp_path, DELEGATING, agents=[github(repos, {"name": "one"})], env=env) as on,
        on.bot(),
    ):
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(approval_messages.APPROVE_ACTION, thread)
        for action in (
            approval_messages.APPROVE_ACTION,
            approval_messages.ALWAYS_ACTION,
            approval_messages.EDIT_ACTION,
            approval_messages.REJECT_ACTION,
        ):
            await on.slack.click(message, action, user="U2")
        await on.slack.wait(lambda: len(on.ephemeral_texts("U2")) == 4)
        assert on.slack.views == {}
        write_approvers(tmp_path, "requester", "U2")
        view = await on.open_modal(message, approval_messages.EDIT_ACTION, user="U2")
        write_approvers(tmp_path, "requester")
        refused = await on.slack.submit(view, {}, user="U2")
        assert repos.made == []
        assert await on.slack.submit(view, {}) is None
        await on.wait_for_turns("C1", thread)
    assert set(on.ephemeral_texts("U2")) == {"You may not answer this. In this channel it is for <@U1>."}
    assert refused == {
        "response_action": "errors",
        "errors": {"arguments": "You may not answer this. In this channel it is for @first."},
    }
    assert [one["name"] for one in repos.made] == ["one"]


@pytest.mark.parametrize("approver", ["U2", "Second@example.com", "S1", "anyone"])
async def test_others_may_answer_by_id_mail_group_or_all_of_them(tmp_path: Path, approver: str) -> None:
    repos, env = Repos(), write_approvers(tmp_path, approver)
    async with (
        start_harness(tmp_path, DELEGATING, agents=[github(repos, {"name": "one"})], env=env) as on,
        on.bot(),
    ):
        on.slack.usergroups["S1"] = ["U2"]
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(approval_messages.APPROVE_ACTION, thread)
        if approver != "anyone":
            for user in ("U1", "U3"):
                await on.slack.click(message, approval_messages.APPROVE_ACTION, user=user)
            await on.slack.wait(lambda: on.ephemeral_texts("U1") and on.ephemeral_texts("U3"))
            assert repos.made == []
        await on.slack.click(message, approval_messages.APPROVE_ACTION, user="U2")
        await on.wait_for_turns("C1", thread)
        events = await on.events(task_of(on, thread), thread)
    assert [event.by for event in events if isinstance(event, InputResolved)] == ["second@example.com"]
    assert "Approved by <@U2>" in str(message.blocks)


async def test_who_may_not_answer_does_not_answer_with_a_message_either_and_drops_nothing(
    tmp_path: Path,
) -> None:
    model = model_that_calls("cluster")
    async with start_harness(tmp_path, model, tools=[form_tool("cluster", TEXT_FIELDS)]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        await on.wait_for_button(request_messages.FILL_ACTION, thread)
        for number, text in enumerate(("green", "drop"), 1):
            await on.slack.say(text, user="U2", thread_ts=thread)
            await on.slack.wait(lambda: len(on.ephemeral_texts("U2")) == number)  # noqa: B023 - waited for within its turn
        assert len(model.requests) == 1
        await on.slack.say("blue", thread_ts=thread)
        await on.wait_for_turns("C1", thread)
    assert (
        on.ephemeral_texts("U2")
        == ["This thread waits for an answer. You may not answer this. In this channel it is for <@U1>."] * 2
    )
    assert tool_result(model) == {"answer": "blue"}
