"""A tool server's question until it is answered: by data part over A2A, in the terminal, in Slack."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.core.agent_definition import McpServer, ToolPolicy
from ai_platform_engineering.core.events import ToolFinished
from ai_platform_engineering.integrations.slack_bot import request_messages
from tests.support.agent_services import (
    CastingByTools,
    Where,
    place_agent,
    run_supervisor,
    write_agent_definition,
)
from tests.support.asking_agent import ask_until_paused, request_ids, send_answers
from tests.support.asking_servers import (
    GENERATIONS,
    Generation,
    asking_server,
    list_calls,
    list_orders,
)
from tests.support.fakes.mcp_servers import open_sessions
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import agent, supervisor
from tests.support.providers import OPENAI
from tests.support.slack_requests import buttons
from tests.support.slack_workspace import start_harness
from tests.support.terminals import start_in_terminal

DETAILS = {"size": "Large", "count": 2}
DELEGATING = Script(
    Turn(Call("task", {"description": "Order it.", "subagent_type": "shop"})), Turn(Say("So: {{tool:shop}}"))
)
RUN_ALL = ToolPolicy(allow=("*",))


def ordering(item: str) -> Script:
    return Script(Turn(Call("order", {"item": item})), Turn(Say("{{tool:order}}")))


def receipt(item: str) -> str:
    return f"ordered {item}: " + json.dumps({"count": 2, "size": "l"})


@pytest.mark.sample(2)
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_a_question_is_answered_by_data_part_in_both_placements(
    tmp_path: Path, where: Where, generation: Generation
) -> None:
    item = uuid.uuid4().hex
    async with (
        asking_server(generation, "stdio", tmp_path) as server,
        open_sessions(tmp_path) as sessions,
    ):
        tools = await sessions.tools("desk", server, RUN_ALL)
        async with (
            place_agent(agent("shop", ordering(item), *tools), where) as placed,
            supervisor(DELEGATING, agents=[placed]) as client,
        ):
            asked = await ask_until_paused(client)
            [form] = [frame.artifact["parts"][0]["data"] for frame in asked.named("UserInputMetaData")]
            assert form["user_input"] is True
            assert (form["input_title"], form["response"]) == ("desk asks, for order", f"Details of {item}?")
            assert [field["field_name"] for field in form["input_fields"]] == ["size", "count", "gift"]
            wrong = await send_answers(client, asked, {form["request_id"]: {"size": "Huge", "count": 20}})
            assert wrong.last.state == "input-required"
            assert "must be one of Small, Large" in wrong.last.status_text
            assert list_orders(tmp_path) == []
            done = await send_answers(client, asked, {form["request_id"]: DETAILS})
            again = await client.call("GetTask", {"id": asked.task_id})
    assert done.answer == f"So: {receipt(item)}"
    assert list_orders(tmp_path) == [item]
    assert "error" not in again
    finished = [event for event in done.events if isinstance(event, ToolFinished) and event.tool == "order"]
    assert [event.outcome for event in finished] == ["ok"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("answer", "action"), [({"type": "reject"}, "decline"), ({"type": "cancel"}, "cancel")]
)
@pytest.mark.parametrize("generation", GENERATIONS)
async def test_declining_and_cancelling_are_answers_too(
    tmp_path: Path, generation: Generation, answer: dict[str, Any], action: str
) -> None:
    async with (
        asking_server(generation, "stdio", tmp_path) as server,
        open_sessions(tmp_path) as sessions,
        supervisor(ordering("tea"), tools=await sessions.tools("desk", server, RUN_ALL)) as client,
    ):
        asked = await ask_until_paused(client)
        done = await send_answers(client, asked, {request_ids(asked)[0]: answer})
    assert done.answer == f"not ordered: {action}"
    assert list_orders(tmp_path) == []


async def test_an_approval_comes_first_and_the_question_after_it(tmp_path: Path) -> None:
    async with (
        asking_server("2.x", "stdio", tmp_path) as server,
        open_sessions(tmp_path) as sessions,
        supervisor(
            ordering("tea"), tools=await sessions.tools("desk", server, ToolPolicy(ask=("*",)))
        ) as client,
    ):
        asked = await ask_until_paused(client)
        assert list_calls(tmp_path) == []
        approved = await send_answers(client, asked, {request_ids(asked)[0]: {"type": "approve"}})
        assert approved.last.state == "input-required"
        done = await send_answers(client, approved, {request_ids(approved)[-1]: DETAILS})
    assert done.answer == receipt("tea")
    assert list_orders(tmp_path) == ["tea"]


# --- a restart while people think ---------------------------------------------------------------------------


def write_shop(folder: Path, server: McpServer) -> None:
    write_agent_definition(folder / "agents", "shop", {"url": server.url}, tools={"allow": ["*"]})


@pytest.mark.sample(1)
@pytest.mark.parametrize("generation", GENERATIONS)
async def test_after_a_restart_nothing_is_done_twice(tmp_path: Path, generation: Generation) -> None:
    """The newer protocol goes on with the stored answer; a call that was held open has an unknown outcome."""
    item = uuid.uuid4().hex
    casting = CastingByTools(DELEGATING, ordering(item))
    async with asking_server(generation, "http", tmp_path) as server, OPENAI.serve(casting) as model:
        write_shop(tmp_path, server)
        async with run_supervisor(tmp_path, model) as client:
            asked = await ask_until_paused(client)
        async with run_supervisor(tmp_path, model) as client:
            done = await send_answers(client, asked, {request_ids(asked)[0]: DETAILS})
    if generation == "2.x":
        assert done.answer == f"So: {receipt(item)}"
        assert list_orders(tmp_path) == [item]
        return
    finished = [event for event in done.events if isinstance(event, ToolFinished) and event.tool == "order"]
    assert [event.outcome for event in finished] == ["unknown"]
    assert list_orders(tmp_path) == []
    assert list_calls(tmp_path) == [item]


# --- where people are ---------------------------------------------------------------------------------------


async def test_a_question_is_answered_in_the_terminal(tmp_path: Path) -> None:
    async with (
        asking_server("2.x", "stdio", tmp_path) as server,
        open_sessions(tmp_path) as sessions,
        supervisor(ordering("tea"), tools=await sessions.tools("desk", server, RUN_ALL)) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Order tea.\r")
        at = await screen.wait_for_text("Supervisor asks: desk asks, for order")
        at = await screen.wait_for_text(r"1\. Small\s+2\. Large", at)
        for label, value in (("Size", "2"), ("How many", "2"), ("gift", "")):
            at = await screen.wait_for_text(rf"\n{label}( \(y/n\))?( \[[^]]*\])?:", at)
            screen.type(f"{value}\r")
        at = await screen.wait_for_text(r"Send\? \[Y/n/edit\]", at)
        screen.type("\r")
        await screen.wait_for_text("ordered tea", at)
        screen.type("\x04")
        assert await screen.wait_for_exit() == 0
    assert list_orders(tmp_path) == ["tea"]


async def test_a_question_is_answered_in_slack(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    async with (
        asking_server("2.x", "stdio", marks) as server,
        open_sessions(marks) as sessions,
        start_harness(tmp_path, ordering("tea"), tools=await sessions.tools("desk", server, RUN_ALL)) as on,
        on.bot(),
    ):
        thread = await on.slack.say("Order tea.", mention=True)
        message = await on.wait_for_button(request_messages.FILL_ACTION, thread)
        assert buttons(message) == ["Fill in", "Decline"]
        view = await on.open_modal(message, request_messages.FILL_ACTION)
        await on.slack.submit(view, {"size": "1", "count": "2"})
        await on.wait_for_turns("C1", thread)
        texts = [reply.shown for reply in on.bot_messages("C1", thread)]
    assert any("ordered tea" in text for text in texts)
    assert list_orders(marks) == ["tea"]
