"""A list of 800 applications: the model gets its head and its shape and reads parts of it, also after a
restart, and no other conversation does."""

import json
import signal
from pathlib import Path

import pytest

from tests.support.agent_services import Where, model_of, run_server_process
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.fleet_agent import (
    FleetAgent,
    agent_requests,
    ask,
    body_chars,
    on_result,
    read_result_id,
    schema_chars,
)

UNHEALTHY = "[?status.health.status!='Healthy'].metadata.name"
ALL = Script(
    Turn(Call("list_applications", {})),
    on_result("result_query", expression=UNHEALTHY),
    on_result("result_grep", pattern="health.status: degr"),
    on_result("result_page", offset=0, length=60),
    Turn(Say("{{tool:result_query}}\n{{tool:result_grep}}\n{{tool:result_page}}")),
)
FURTHER = Script(on_result("result_query", expression="length(@)"), Turn(Say("{{tool:result_query}}")))
SCRIPTS = {
    "^list": ALL,
    "^count": FURTHER,
    "^wrong": Script(
        on_result("result_query", expression="[?"),
        on_result("result_query", expression=" | ".join(["[@,@][]"] * 40)),
        on_result("result_grep", pattern="(["),
        Turn(Say("Done.")),
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_a_long_list_is_read_in_parts(tmp_path: Path, where: Where) -> None:
    fleet = FleetAgent(tmp_path, SCRIPTS, where)
    async with fleet.run() as (model, client):
        stream = await ask(client, "list them")
        later = await ask(client, "count them", contextId=stream.context_id)
    query, _, rest = stream.answer.partition("\nMatching lines: 1. ")
    assert query == f'Array of 1:\n["{fleet.odd}"]'
    assert "[400].status.health.status: Degraded" in rest
    assert '[{"metadata": {"name": "app-000"' in rest
    assert later.answer == "800"
    first, second, *others = agent_requests(model)
    assert not any(name.startswith("result_") for name in first.tools)
    assert {"result_page", "result_query", "result_grep"} <= set(second.tools)
    assert "list_applications" in second.tools  # with as much of its schema as fits
    assert schema_chars(second) <= 24_000
    assert all(body_chars(request) < 60_000 for request in (first, second, *others))
    [message] = [message for message in second.messages if message.role == "tool"]
    assert "JSON, array of 800 objects {metadata: object {name: string, namespace: string}" in message.text
    # What is read of a result is as untrusted as the result.
    marked = [message["content"] for message in others[-1].raw["messages"] if message["role"] == "tool"]
    assert all(text.startswith("[[untrusted ") for text in marked)
    assert [name for name, _ in fleet.calls] == ["list_applications"]


async def test_it_is_readable_after_a_restart_and_in_no_other_conversation(tmp_path: Path) -> None:
    stolen: list[str] = []
    stealing = Script(
        lambda _: Turn(Call("result_query", {"result_id": stolen[0], "expression": "length(@)"})),
        Turn(Say("{{tool:result_query}}")),
    )
    listing_again = Script(
        Turn(Call("list_applications", {})),
        lambda _: Turn(Call("result_query", {"result_id": stolen[0], "expression": "length(@)"})),
        Turn(Say("{{tool:result_query}}")),
    )
    fleet = FleetAgent(tmp_path, {**SCRIPTS, "^steal": stealing, "^other": listing_again})
    async with fleet.run() as (model, client):
        stream = await ask(client, "list them")
        stolen.append(read_result_id(agent_requests(model)[-1]))
    fleet.odd = "another"  # the next list has another id
    async with fleet.run() as (_, client):
        later = await ask(client, "count them", contextId=stream.context_id)
        without_any = await ask(client, "steal it")
        with_another = await ask(client, "other")
    assert later.answer == "800"
    refusal = f"There is no stored result {stolen[0]} in this conversation."
    assert (without_any.answer, with_another.answer) == (refusal, refusal)


async def test_wrong_and_endless_queries_are_refused_in_words(tmp_path: Path) -> None:
    fleet = FleetAgent(tmp_path, SCRIPTS)
    async with fleet.run(TOOL_RESULT_QUERY_SECONDS="3") as (model, client):
        stream = await ask(client, "list them")
        await ask(client, "wrong", contextId=stream.context_id)
    *_, first, second, third = [m.text for m in agent_requests(model)[-1].messages if m.role == "tool"]
    assert first.startswith("The JMESPath expression cannot be used")
    assert second.startswith("It took more than")
    assert third.startswith("The pattern cannot be used")


async def test_checkpoints_and_journal_hold_the_head_alone(tmp_path: Path) -> None:
    fleet = FleetAgent(tmp_path, SCRIPTS)
    async with fleet.run() as (_, client):
        await ask(client, "list them")
    stored = sum(file.stat().st_size for file in (tmp_path / "home" / "supervisor").glob("*.db*"))
    assert stored < 1_000_000  # of a list with as many characters; compressed it is small


@pytest.mark.full
async def test_a_killed_server_leaves_the_result_to_the_next_one(tmp_path: Path) -> None:
    fleet = FleetAgent(tmp_path, SCRIPTS)
    fleet.write_definition()
    async with serve_openai(fleet.casting) as model:
        env = {
            **model_of(model),
            "AGENTS_CONFIG": str(tmp_path / "agents"),
            "CAIPE_HOME": str(tmp_path / "home"),
            "MCP_SANDBOX": "off",
        }
        async with run_server_process("caipe", "serve", "--port", "0", **env) as (process, client):
            stream = await ask(client, "list them")
            process.send_signal(signal.SIGKILL)
            await process.wait_for_exit()
        async with run_server_process("caipe", "serve", "--port", "0", **env) as (_, client):
            later = await ask(client, "count them", contextId=stream.context_id)
    assert later.answer == "800"
    assert json.dumps(fleet.odd) in stream.answer
