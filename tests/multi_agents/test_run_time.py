"""The time of a run: its last part is for the answer, so that what was found is not lost at the deadline."""

import asyncio

import pytest
from langchain_core.tools import tool

from tests.support.agent_services import Where, place_agent
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Attempts, Call, Fail, Say, Script, Turn
from tests.support.harness import agent, supervisor
from tests.support.providers import BEDROCK, run_behind_provider
from tests.support.runaway_loops import delegate, look

TIME = "the time of this request is used up"


@tool("look")
async def look_for_ever(at: str) -> str:
    """Look."""
    await asyncio.Event().wait()
    return "Never."


async def test_a_run_answers_before_its_time_is_over() -> None:
    model = ScriptedChatModel(script=Script(Turn(look("it"))))
    async with supervisor(model, tools=[look_for_ever], env={"RUN_TIMEOUT_SECONDS": "10"}) as client:
        stream = await client.ask("Dig")
    assert stream.last.state == "completed", stream.last.status_text
    assert TIME in stream.answer


@pytest.mark.full
@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_an_agent_answers_before_its_delegation_is_over(where: Where) -> None:
    digger = agent("digger", Script(Turn(look("it")), Turn(Say("Nothing yet."))), look_for_ever)
    model = ScriptedChatModel(script=Script(Turn(delegate("Dig")), Turn(Say("It said: {{tool:task}}"))))
    async with (
        place_agent(digger, where) as placed,
        supervisor(model, agents=[placed], env={"AGENT_TIMEOUT_SECONDS": "30"}) as client,
    ):
        stream = await client.ask("Dig")
    assert stream.answer == "It said: Nothing yet."


async def test_a_busy_bedrock_is_asked_again() -> None:
    busy = Turn(Fail(429, message="Slow down."))
    broken = Turn(Say("Lost."), Fail(503, message="Overloaded."))
    script = Script(Attempts(busy, broken, Turn(Say("It is up."))))
    async with run_behind_provider(BEDROCK, script) as (server, client):
        stream = await client.ask("Which?")
    assert stream.answer == "It is up."
    assert stream.streamed_texts == ["It is up."]
    assert len(server.requests) == 3


async def test_wrong_credentials_of_bedrock_are_told() -> None:
    script = Script(Turn(Fail(403, message="No access.")), Turn(Call("look")))
    async with run_behind_provider(BEDROCK, script) as (server, client):
        stream = await client.ask("Which?")
    assert stream.last.state == "failed"
    assert stream.last.status_text.startswith("The model's server rejected the credentials.")
    assert len(server.requests) == 1
