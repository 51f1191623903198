"""An agent with 118 tools and more than 150,000 characters of schema: what its model is sent, and that found
and hidden tools are under the same policy as any other."""

import json
from pathlib import Path

import pytest

from tests.support.agent_services import Where
from tests.support.fakes.mcp_fleet import COUNT, list_tools
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.fleet_agent import FleetAgent, agent_requests, ask, decide, schema_chars

BUDGET = 24_000
SCRIPTS = {
    "^drop": Script(
        Turn(Call("search_tools", {"words": "delete a branch"})),
        Turn(Call("delete_branch", {"name": "old"})),
        Turn(Say("{{tool:delete_branch}}")),
    ),
    "^hidden": Script(Turn(Call("get_release", {"name": "v7"})), Turn(Say("{{tool:get_release}}"))),
    "^unknown": Script(Turn(Call("erase_branches", {})), Turn(Say("{{tool:erase_branches}}"))),
    "^many": Script(
        *(
            Turn(Call("search_tools", {"words": words}))
            for words in ("webhook", "wiki page", "milestone", "pipeline", "runner", "snippet")
        ),
        Turn(Say("Done.")),
    ),
    "^nothing": Script(Turn(Call("search_tools", {"words": "zebra"})), Turn(Say("{{tool:search_tools}}"))),
}


def test_the_server_is_as_large_as_the_largest_real_one() -> None:
    tools = list_tools()
    assert len(tools) == COUNT
    assert sum(len(json.dumps(tool)) for tool in tools) > 150_000


@pytest.mark.sample(1)
@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_a_found_tool_is_bound_and_asks_as_any_other(tmp_path: Path, where: Where) -> None:
    fleet = FleetAgent(tmp_path, SCRIPTS, where)
    async with fleet.run() as (model, client):
        paused = await ask(client, "drop it")
        assert fleet.calls == []
        done = await decide(client, paused, type="approve")
        later = await ask(client, "hidden", contextId=done.context_id)
    assert paused.last.state == "input-required"
    assert "🔧 Fleet: Calling tool: Search_Tools\n" in paused.notifications
    assert done.answer == "delete_branch of old is done"
    assert later.answer == "get_release of v7 is done"
    first, second, third, *rest = agent_requests(model)
    assert all(schema_chars(request) <= BUDGET for request in (first, second, third, *rest))
    assert "search_tools" in first.tools
    assert "delete_branch" not in first.tools
    assert second.tools[: len(first.tools)] == first.tools  # appended: what a provider has cached stays
    assert second.tools[len(first.tools)] == "delete_branch"
    assert third.tools == second.tools
    # The later question has found what the first one did, and what it calls by name is bound afterwards.
    assert rest[0].tools == second.tools
    assert rest[1].tools == (*second.tools, "get_release")
    assert fleet.calls == [["delete_branch", {"name": "old"}], ["get_release", {"name": "v7"}]]
    assert model.refusals == []


async def test_an_unknown_tool_is_refused_with_what_is_similar(tmp_path: Path) -> None:
    fleet = FleetAgent(tmp_path, SCRIPTS)
    async with fleet.run() as (_, client):
        unknown = await ask(client, "unknown")
        nothing = await ask(client, "nothing")
    assert unknown.answer.startswith("There is no tool erase_branches; nothing was called.")
    assert "list_branchs" in unknown.answer
    assert len(unknown.answer) < 600
    assert nothing.answer.startswith("No tool matches.")
    assert fleet.calls == []


async def test_more_finds_than_fit_replace_the_oldest_ones(tmp_path: Path) -> None:
    fleet = FleetAgent(tmp_path, SCRIPTS)
    async with fleet.run() as (model, client):
        assert (await ask(client, "many")).answer == "Done."
    requests = agent_requests(model)
    assert all(schema_chars(request) <= BUDGET for request in requests)
    assert "list_webhooks" in requests[1].tools
    assert "list_webhooks" not in requests[-1].tools
    assert "list_snippets" in requests[-1].tools


async def test_with_room_for_all_of_them_there_is_no_search(tmp_path: Path) -> None:
    fleet = FleetAgent(tmp_path, SCRIPTS)
    async with fleet.run(TOOL_SCHEMA_BUDGET_CHARS="400000") as (model, client):
        await ask(client, "hidden")
    [first, _] = agent_requests(model)
    assert "search_tools" not in first.tools
    assert "delete_branch" in first.tools
    assert len(first.tools) > COUNT


async def test_read_only_denies_a_hidden_tool_that_writes(tmp_path: Path) -> None:
    scripts = {
        "^drop": Script(Turn(Call("delete_branch", {"name": "a"})), Turn(Say("{{tool:delete_branch}}")))
    }
    fleet = FleetAgent(tmp_path, scripts)
    async with fleet.run(READ_ONLY="true") as (_, client):
        stream = await ask(client, "drop it")
    assert "READ_ONLY is set" in stream.answer
    assert fleet.calls == []
