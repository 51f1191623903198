"""Calls that are long, or that hide something, in Slack: people see all of it there, or cannot approve it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from ai_platform_engineering.integrations.slack_bot import approval_messages
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from tests.support.asking_agent import DELEGATING, Repos, github
from tests.support.fakes import slack_rules as rules
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.fakes.slack import Fault, Upload
from tests.support.harness import agent
from tests.support.slack_requests import buttons, write_approvers
from tests.support.slack_workspace import BotHarness, start_harness

HARMLESS = {f"label-{number:03}": "harmless" for number in range(140)}
HIDDEN = {**HARMLESS, "privileged": True}  # 140 harmless lines, and what matters below them
VERY_LONG = {**{f"label-{number:04}": "harmless" for number in range(1_400)}, "privileged": True}
OUTER = Script(Turn(Call("task", {"description": "Go.", "subagent_type": "cluster"})), Turn(Say("Done.")))


def deploying(called: list[Any], manifest: dict[str, Any]) -> LocalAgent:
    """An agent that wants to deploy the manifest, and writes down what was deployed."""

    async def deploy(manifest: dict[str, Any]) -> str:
        """Deploys."""
        called.append(manifest)
        return "Deployed."

    tool = StructuredTool.from_function(coroutine=deploy, name="deploy", metadata={"listed": "ask"})
    script = Script(Turn(Call("deploy", {"manifest": manifest})), Turn(Say("Deployed.")))
    return agent("cluster", script, tool)


def code_of(message: Any) -> str:
    """The text of a message's code blocks."""
    texts = []
    for part in rules.parts(message.blocks):
        if part.get("type") == "rich_text_preformatted":
            texts += [element["text"] for element in part["elements"]]
    return "\n".join(texts)


async def wait_for_request(on: BotHarness, thread: str) -> Any:
    return await on.wait_for_button(approval_messages.REJECT_ACTION, thread)


def only_upload(on: BotHarness) -> Upload:
    [upload] = on.slack.uploads.values()
    return upload


async def test_nothing_is_below_the_end_of_a_message_with_many_lines(tmp_path: Path) -> None:
    called: list[Any] = []
    async with start_harness(tmp_path, OUTER, agents=[deploying(called, HIDDEN)]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        message = copy.deepcopy(await wait_for_request(on, thread))
        await on.slack.click(message, approval_messages.APPROVE_ACTION)
        await on.wait_for_turns("C1", thread)
    assert json.loads(code_of(message)) == {"manifest": HIDDEN}
    assert '"privileged": true' in code_of(message)
    # It does not fit the input of a modal, so it is not edited there, and the message says so.
    assert buttons(message) == ["Approve", "Always here", "Reject"]
    assert "too long to be edited here" in str(message.blocks)
    assert on.slack.uploads == {}
    assert called == [HIDDEN]


async def test_a_call_that_is_too_long_for_a_message_is_attached_in_whole_before_it_can_be_approved(
    tmp_path: Path,
) -> None:
    called: list[Any] = []
    async with start_harness(tmp_path, OUTER, agents=[deploying(called, VERY_LONG)]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        message = copy.deepcopy(await wait_for_request(on, thread))
        upload = only_upload(on)
        await on.slack.click(message, approval_messages.APPROVE_ACTION)
        await on.wait_for_turns("C1", thread)
    attached = json.loads(upload.text)
    assert (attached["agent"], attached["tool"]) == ("cluster", "deploy")
    assert attached["arguments"] == {"manifest": VERY_LONG}
    assert upload.message is not None
    assert upload.message.thread_ts == thread
    assert float(upload.message.ts) < float(message.ts)
    assert buttons(message) == ["Approve", "Always here", "Reject"]
    assert f"is in the file {upload.name} above. Read it before you decide." in str(message.blocks)
    assert called == [VERY_LONG]


@pytest.mark.sample(2)
@pytest.mark.parametrize("cause", ["scope", "refused", "not shown", "too large", "none allowed"])
async def test_a_call_that_cannot_be_shown_in_whole_cannot_be_approved_there(
    tmp_path: Path, cause: str
) -> None:
    called: list[Any] = []
    env = {
        "too large": {"SLACK_INTEGRATION_APPROVAL_FILE_BYTES": "10000"},
        "none allowed": {"SLACK_INTEGRATION_APPROVAL_FILE_BYTES": "0"},
    }.get(cause, {})
    agents = [deploying(called, VERY_LONG)]
    clock = ScaledClock(40 if cause == "not shown" else 1)
    async with start_harness(tmp_path, OUTER, agents=agents, env=env, clock=clock) as on, on.bot():
        on.slack.trigger_seconds = 1e6
        if cause == "scope":
            on.slack.scopes = on.slack.scopes.replace(",files:write", "")
        if cause == "refused":
            on.slack.faults.add("files.completeUploadExternal", Fault(error="channel_not_found"))
        on.slack.hides_uploads = cause == "not shown"
        thread = await on.slack.say("Go.", mention=True)
        message = copy.deepcopy(await wait_for_request(on, thread))
        view = await on.open_modal(message, approval_messages.REJECT_ACTION)
        assert await on.slack.submit(view, {"reason": "I cannot see it."}) is None
        await on.wait_for_turns("C1", thread)
    assert buttons(message) == ["Reject"]
    shown = str(message.blocks)
    assert "It cannot be approved here: " in shown
    assert f"caipe pending --owner slack:T1:C1:{thread}" in shown
    assert ("files:write" in shown) == (cause == "scope")
    assert called == []


@pytest.mark.full
async def test_an_upload_that_breaks_off_is_made_again(tmp_path: Path) -> None:
    called: list[Any] = []
    async with start_harness(tmp_path, OUTER, agents=[deploying(called, VERY_LONG)]) as on, on.bot():
        on.slack.faults.add("files.getUploadURLExternal", Fault(drop="before"))
        on.slack.faults.add("files.completeUploadExternal", Fault(retry_after=1))
        thread = await on.slack.say("Go.", mention=True)
        message = copy.deepcopy(await wait_for_request(on, thread))
    shown = [upload for upload in on.slack.uploads.values() if upload.message is not None]
    assert [json.loads(upload.text)["arguments"] for upload in shown] == [{"manifest": VERY_LONG}]
    assert "Approve" in buttons(message)


async def test_a_request_that_slack_lost_is_posted_again_and_keeps_its_file(tmp_path: Path) -> None:
    called: list[Any] = []
    async with start_harness(tmp_path, OUTER, agents=[deploying(called, VERY_LONG)]) as on, on.bot():
        on.slack.faults.add("chat.postMessage", Fault(drop="after"))
        thread = await on.slack.say("Go.", mention=True)
        await wait_for_request(on, thread)
        await on.slack.wait(
            lambda: len(on.slack.called("chat.postMessage")) > 1 and not _posted_twice(on, thread)
        )
        upload = only_upload(on)
    assert upload.message is not None
    assert not upload.message.deleted


def _posted_twice(on: BotHarness, thread: str) -> bool:
    asking = [
        one for one in on.bot_messages("C1", thread) if approval_messages.REJECT_ACTION in str(one.blocks)
    ]
    return len(asking) != 1


async def test_what_cannot_be_seen_is_named_and_nothing_is_formatted_linked_or_mentioned(
    tmp_path: Path,
) -> None:
    manifest = {
        "command": "ls \u202e/ fr- mr",
        "image": "shop\u200b\u2800",
        "note": "<!channel> <https://evil.example|docs> ``` *bold*",
        "pass\u200bword": "shown",
        "max_tokens": 5,
    }
    async with start_harness(tmp_path, OUTER, agents=[deploying([], manifest)]) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        message = await wait_for_request(on, thread)
        view = await on.open_modal(message, approval_messages.EDIT_ACTION)
    editable = view["blocks"][-1]["element"]["initial_value"]
    for text in (code_of(message), editable):
        assert json.loads(text) == {"manifest": manifest}
        assert "\\u202e" in text
        assert "\\u200b\\u2800" in text
        assert '"max_tokens": 5' in text
        assert not any(character in text for character in "\u202e\u200b\u2800")
    # Only rich text holds it, which Slack shows as it is.
    marked_up = [part["text"] for part in rules.parts(message.blocks) if part.get("type") == "mrkdwn"]
    assert "channel" not in str(marked_up)


# --- what was seen is what is decided -----------------------------------------------------------------------


async def test_who_approves_what_somebody_else_has_changed_is_told_so(tmp_path: Path) -> None:
    repos, env = Repos(), write_approvers(tmp_path, "anyone")
    async with (
        start_harness(tmp_path, DELEGATING, agents=[github(repos, {"name": "one"})], env=env) as on,
        on.bot(),
    ):
        thread = await on.slack.say("Go.", mention=True)
        old = copy.deepcopy(await on.wait_for_button(approval_messages.APPROVE_ACTION, thread))
        view = await on.open_modal(old, approval_messages.EDIT_ACTION, user="U2")
        assert await on.slack.submit(view, {"arguments": '{"name": "other"}'}, user="U2") is None
        await on.slack.click(old, approval_messages.APPROVE_ACTION, user="U1")
        await on.slack.wait(on.ephemeral_texts)
        await on.wait_for_turns("C1", thread)
    assert [one["name"] for one in repos.made] == ["other"]
    [told] = on.ephemeral_texts()
    assert "was already answered by second@example.com" in told
    assert told.endswith("with different arguments.")


@pytest.mark.sample(1)
@pytest.mark.parametrize("digest", ["", "0" * 64], ids=["none", "another"])
async def test_a_button_that_does_not_name_the_call_approves_nothing(tmp_path: Path, digest: str) -> None:
    repos = Repos()
    async with (
        start_harness(tmp_path, DELEGATING, agents=[github(repos, {"name": "one"})]) as on,
        on.bot(),
    ):
        thread = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(approval_messages.APPROVE_ACTION, thread)
        forged = copy.deepcopy(message)
        for _, element in rules.elements(forged.blocks):
            turn_id, request_id, _ = element["value"].split(" ")
            element["value"] = f"{turn_id} {request_id} {digest}".strip()
        for action in (approval_messages.APPROVE_ACTION, approval_messages.ALWAYS_ACTION):
            await on.slack.click(forged, action)
        await on.slack.wait(lambda: len(on.ephemeral_texts()) == 2)
        assert repos.made == []
        await on.slack.click(message, approval_messages.APPROVE_ACTION)
        await on.wait_for_turns("C1", thread)
    expected = "is not the one that you saw" if digest else "may not show the whole call"
    assert all(expected in text for text in on.ephemeral_texts())
    assert [one["name"] for one in repos.made] == ["one"]
