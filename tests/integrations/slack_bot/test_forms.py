"""What people can do in Slack with the forms of a run: fill in, correct, decline, answer in words, and drop
them.
"""

import asyncio
import copy
from pathlib import Path

import pytest
import yaml

from ai_platform_engineering.integrations.slack_bot import request_messages
from tests.support.asking_agent import form_tool
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.fakes.slack import Fault
from tests.support.slack_requests import (
    FIELDS,
    FORM_VALUES,
    TEXT_FIELDS,
    buttons,
    count_stopped_notes,
    model_that_calls,
    tool_result,
)
from tests.support.slack_workspace import BotHarness, join_texts, start_harness


def thread_texts(on: BotHarness, thread: str) -> list[str]:
    return [one.shown for one in on.bot_messages("C1", thread)]


async def test_a_form_is_filled_in_corrected_and_sent_twice(tmp_path: Path) -> None:
    model = model_that_calls("details")
    async with start_harness(tmp_path, model, tools=[form_tool("details", FIELDS)]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(request_messages.FILL_ACTION, thread)
        stale = copy.deepcopy(message)
        assert on.slack.sessions["C1", thread].status == "suspended"
        assert (message.text, buttons(message)) == ("Supervisor asks: About details", ["Fill in", "Decline"])
        view = await on.open_modal(message, request_messages.FILL_ACTION)
        offered = await on.slack.suggest(view, "zone", "ZONE-14")
        refused = await on.slack.submit(view, {**FORM_VALUES, "name": "Not This"})
        before = len(model.requests)
        answers = await asyncio.gather(*(on.slack.submit(view, FORM_VALUES) for _ in range(2)))
        await on.wait_for_turns("C1", thread)
        await on.slack.click(stale, request_messages.FILL_ACTION, user="U1")
        await on.slack.wait(on.ephemeral_texts)

    elements = {block["block_id"]: block["element"] for block in view["blocks"] if block["type"] == "input"}
    assert [element["type"] for element in elements.values()] == [
        "plain_text_input",
        "plain_text_input",
        "static_select",
        "multi_static_select",
        "checkboxes",
        "number_input",
        "number_input",
        "datepicker",
        "url_text_input",
        "email_text_input",
        "external_select",
        "multi_external_select",
    ]
    assert [name for name, element in elements.items() if element.get("multiline")] == ["about"]
    assert [name for name, element in elements.items() if element.get("is_decimal_allowed")] == ["ratio"]
    assert elements["visibility"]["initial_option"]["text"]["text"] == "private"
    assert [one["text"]["text"] for one in elements["hosts"]["initial_options"]] == ["zone-7"]
    assert (
        elements["stars"]["initial_value"],
        elements["due"]["initial_date"],
        elements["name"]["initial_value"],
    ) == (
        "3",
        "2026-12-24",
        "cai",
    )
    assert [block["block_id"] for block in view["blocks"] if block.get("optional")] == ["about", "issues"]
    assert [one["text"]["text"] for one in offered] == [
        "zone-14",
        *(f"zone-14{digit}" for digit in range(10)),
    ]

    assert refused == {
        "response_action": "errors",
        "errors": {"name": "Name must consist of lowercase letters and hyphens."},
    }
    assert before == 1
    assert tool_result(model) == {
        "name": "cai",
        "visibility": "private",
        "topics": ["b", "c"],
        "issues": False,
        "stars": 3,
        "ratio": 0.5,
        "due": "2026-12-24",
        "home": "https://example.com",
        "mail": "a@example.com",
        "zone": "zone-141",
        "hosts": ["zone-7"],
    }
    [late] = [answer for answer in answers if answer]
    assert late["errors"]["name"].startswith("About details was already answered by first@example.com at 20")
    assert buttons(message) == []
    assert "Answered by <@U1> <!date^" in str(message.blocks)
    assert "About details" in str(message.blocks)
    assert on.ephemeral_texts()[0].startswith("About details was already answered by <@U1> <!date^")
    assert "must consist of" not in str(
        thread_texts(on, thread)
    )  # it stood in the modal, for the one who typed it
    assert on.slack.sessions["C1", thread].status == "active"


@pytest.mark.sample(1)
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "posts"])
async def test_at_a_form_only_begun_steps_are_shown_and_none_that_waits_as_complete(
    tmp_path: Path, streaming: bool
) -> None:
    todos = [
        {"title": "Look around", "status": "completed"},
        {"title": "Ask for details", "status": "in_progress"},
        {"title": "Create it", "status": "pending"},
    ]
    script = Script(
        Turn(Say("Here is the plan. "), Call("write_todos", {"title": "A new one", "todos": todos})),
        Turn(Call("details")),
        Turn(Say("Got {{tool:details}}")),
    )
    slack = {"streaming": streaming}
    tools = [form_tool("details", TEXT_FIELDS)]
    async with start_harness(tmp_path, script, tools=tools, slack=slack) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        await on.wait_for_button(request_messages.FILL_ACTION, thread)
        plan, *_ = on.bot_messages("C1", thread)
        shown = str(plan.blocks)

    assert "Here is the plan." in shown
    assert "✅ Look around" in shown
    assert "⏳ Ask for details — Supervisor: Details — waits for an answer" in shown
    assert "Create it" not in shown
    completed = {card["title"] for card in plan.card_history if card["status"] == "complete"}
    assert completed <= {"Look around"}


async def test_a_declined_form_reaches_the_model(tmp_path: Path) -> None:
    model = model_that_calls("details")
    async with start_harness(tmp_path, model, tools=[form_tool("details", FIELDS)]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(request_messages.DECLINE_ACTION, thread)
        await on.slack.click(message, request_messages.DECLINE_ACTION)
        await on.wait_for_turns("C1", thread)
    assert tool_result(model) == {"type": "reject", "by": "first@example.com"}
    assert "Rejected by <@U1>" in str(message.blocks)


async def test_a_form_that_slack_opens_too_late_is_clicked_again(tmp_path: Path) -> None:
    async with (
        start_harness(tmp_path, model_that_calls("details"), tools=[form_tool("details", FIELDS)]) as on,
        on.bot(),
    ):
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(request_messages.FILL_ACTION, thread)
        on.slack.faults.add("views.open", Fault(error="expired_trigger_id"))
        await on.slack.click(message, request_messages.FILL_ACTION)
        await on.slack.wait(on.ephemeral_texts)
        view = await on.open_modal(message, request_messages.FILL_ACTION)
        assert await on.slack.submit(view, FORM_VALUES) is None
        await on.wait_for_turns("C1", thread)
    assert on.ephemeral_texts() == ["Slack took too long to open the form. Click the button again."]


# --- answers in words ---------------------------------------------------------------------------------------


async def test_a_message_in_the_thread_answers_a_form_with_one_text_field(tmp_path: Path) -> None:
    model = model_that_calls("cluster")
    async with start_harness(tmp_path, model, tools=[form_tool("cluster", TEXT_FIELDS)]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(request_messages.FILL_ACTION, thread)
        await on.slack.say("The Blue One", thread_ts=thread)
        wrong = "I still need your input: The cluster must consist of lowercase letters."
        await on.slack.wait(lambda: any(text.startswith(wrong) for text in thread_texts(on, thread)))
        await on.slack.say("blue", thread_ts=thread)
        messages = await on.wait_for_turns("C1", thread)
    assert tool_result(model) == {"answer": "blue"}
    assert "Answered by <@U1>" in str(message.blocks)
    assert len(model.requests) == 2
    assert join_texts(messages[-1:]).strip() == 'Got {"answer": "blue"}'
    assert len(on.slack.called("chat.stopStream")) == 2  # one turn, before the pause and after it


async def test_a_question_without_a_title_keeps_its_mark(tmp_path: Path) -> None:
    model = model_that_calls("cluster")
    tool = form_tool("cluster", TEXT_FIELDS, title="", response="Which cluster?")
    async with start_harness(tmp_path, model, tools=[tool]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(request_messages.FILL_ACTION, thread)
        asked = copy.deepcopy(message)
        await on.slack.say("blue", thread_ts=thread)
        await on.wait_for_turns("C1", thread)
        await on.slack.click(asked, request_messages.FILL_ACTION, user="U1")
        await on.slack.wait(on.ephemeral_texts)
    assert asked.text == "Supervisor asks: Which cluster?"
    assert on.ephemeral_texts()[0].startswith("“Which cluster?” was already answered by <@U1>")


@pytest.mark.parametrize("how", ["by word", "by button"])
async def test_what_is_no_answer_is_held_until_the_question_is_dropped(tmp_path: Path, how: str) -> None:
    model = model_that_calls("details")
    config = tmp_path / "channels.yaml"
    config.write_text(yaml.safe_dump({"defaults": {"instructions": "Be brief."}}))
    env = {"SLACK_INTEGRATION_BOT_CONFIG": str(config)}
    async with start_harness(tmp_path, model, tools=[form_tool("details", FIELDS)], env=env) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        form = await on.wait_for_button(request_messages.FILL_ACTION, thread)
        await on.slack.say("What is the weather?", thread_ts=thread)
        held = await on.wait_for_button(request_messages.DROP_ACTION, thread)
        said = held.text
        if how == "by word":
            await on.slack.say("drop", thread_ts=thread)
        else:
            await on.slack.click(held, request_messages.DROP_ACTION)
        messages = await on.wait_for_turns("C1", thread, 2)
    assert (
        said == "I still need your input: About details. "
        'Answer it, or send "drop" to drop it and start over with your message.'
    )
    assert "You said What is the weather?" in join_texts(messages)
    assert "Be brief." in model.requests[-1].system  # what holds in the channel holds for what starts anew
    assert "No longer asked." in str(form.blocks)
    assert (buttons(form), buttons(held)) == ([], [])
    assert count_stopped_notes(on, thread) == 1


async def test_a_drop_that_comes_after_the_answer_drops_nothing(tmp_path: Path) -> None:
    model = model_that_calls("details")
    async with start_harness(tmp_path, model, tools=[form_tool("details", FIELDS)]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        form = await on.wait_for_button(request_messages.FILL_ACTION, thread)
        await on.slack.say("Hm.", thread_ts=thread)
        held = copy.deepcopy(await on.wait_for_button(request_messages.DROP_ACTION, thread))
        await on.slack.submit(await on.open_modal(form, request_messages.FILL_ACTION), FORM_VALUES)
        await on.wait_for_turns("C1", thread)
        await on.slack.click(held, request_messages.DROP_ACTION)
        await on.slack.wait(on.ephemeral_texts)
    assert on.count_ended_turns("C1", thread) == 1
    assert len(model.requests) == 2
    assert on.ephemeral_texts() == ["There is nothing left to drop here."]
