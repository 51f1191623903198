"""The tokens of a run over all its agents: counted over HTTP in each dialect, in-process and remote, and as
third-party agents report them; and the time of third-party agents."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from a2a.types import StreamResponse
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from ai_platform_engineering.a2a.third_party_usage import ThirdPartyUsage
from ai_platform_engineering.core.events import Answered
from tests.support.agent_services import Where, connect_remote_agent
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Attempts, Die, Fail, Say, Script, Turn
from tests.support.harness import ReceivedStream, agent, serve_app, supervisor
from tests.support.providers import DIALECTS, Provider, run_behind_provider
from tests.support.runaway_loops import Loop, anything, delegate, look_at_anything, run_loop

TOKENS = 15_000
# Only the tokens end these runs.
CALLS = {
    "RUN_MODEL_CALL_LIMIT": "100000",
    "RUN_TOOL_CALL_LIMIT": "100000",
    "MODEL_CALL_LIMIT": "100000",
    "TOOL_CALL_LIMIT": "100000",
}
# After the budget: the agent's last turn and the supervisor's, each asked once more.
LAST_CALLS = 4


def list_combinations() -> list[Any]:
    combinations: list[Any] = []
    for provider in DIALECTS:
        for number, where in enumerate(("in-process", "remote")):
            is_quick = number == DIALECTS.index(provider) % 2
            marks = () if is_quick else (pytest.mark.full,)
            combinations.append(pytest.param(where, provider, marks=marks, id=f"{where}-{provider}"))
    return combinations


@pytest.mark.sample(2)
@pytest.mark.parametrize(("where", "provider"), list_combinations())
async def test_a_run_ends_with_an_answer_when_its_tokens_are_used_up(
    where: Where, provider: Provider
) -> None:
    limits = {**CALLS, "RUN_TOKEN_LIMIT": str(TOKENS)}
    async with run_loop(Loop(inner=look_at_anything), where, provider, limits) as run:
        stream = await run.client.ask("Dig")
        requests = run.server.requests
    assert stream.last.state == "completed", stream.last.status_text
    assert f"the run's budget of {TOKENS} tokens is used up" in stream.answer
    used_before = itertools.accumulate(request.approximate_tokens for request in requests)
    within_budget = sum(used < TOKENS for used in used_before)
    assert within_budget > 1
    assert len(requests) <= within_budget + 1 + LAST_CALLS
    usage = answered(stream).usage
    assert usage is not None
    assert usage.input_tokens + usage.output_tokens >= TOKENS, "until then there was something left"


# --- attempts that leave no message -------------------------------------------------------------------------

LONG = "All work and no play makes the model a dull one. " * 200  # 9,800 characters


@pytest.mark.sample(2)
@pytest.mark.parametrize("provider", DIALECTS, ids=str)
async def test_the_tokens_of_a_stream_that_broke_off_are_counted(provider: Provider) -> None:
    script = Script(Attempts(Turn(Say(LONG), Die()), Turn(Say("The answer."))))
    async with run_behind_provider(provider, script) as (server, client):
        stream = await client.ask("Dig")
    assert stream.answer == "The answer."
    assert len(server.requests) == 2
    usage = answered(stream).usage
    assert usage is not None
    assert usage.model_calls == 2
    assert usage.output_tokens >= len(LONG) // 4
    # OpenAI and Bedrock report nothing before the end of a stream: their input is an estimate.
    assert usage.input_tokens >= 1.5 * server.requests[1].approximate_tokens


async def test_a_request_that_was_refused_costs_no_tokens() -> None:
    script = Script(Attempts(Turn(Fail(503)), Turn(Say("The answer."))))
    async with run_behind_provider(DIALECTS[0], script) as (server, client):
        stream = await client.ask("Dig")
    usage = answered(stream).usage
    assert usage is not None
    assert usage.model_calls == 2
    assert usage.input_tokens == server.requests[1].approximate_tokens


async def test_a_stream_that_breaks_off_again_and_again_ends_with_the_tokens() -> None:
    script = Script(Turn(Say(LONG), Die()))
    env = {"RUN_TOKEN_LIMIT": "4000", "LLM_ATTEMPTS": "10"}
    async with run_behind_provider(DIALECTS[0], script, **env) as (server, client):
        stream = await client.ask("Dig")
    assert stream.last.state == "failed"
    assert len(server.requests) < 3, "each attempt takes 2,450 tokens, and those of the request"


async def test_tokens_that_nobody_reports_are_estimated_where_they_are_limited() -> None:
    def look_around(request: Request) -> Turn:
        return Turn(Say(LONG), delegate(anything(), "digger")) if request.tools else Turn(Say("Enough."))

    model = ScriptedChatModel(script=Script(look_around), reports_usage=False)
    digger = agent("digger", Script(Turn(Say("A hole."))))
    env = {**CALLS, "RUN_TOKEN_LIMIT": str(TOKENS)}
    async with supervisor(model, agents=[digger], env=env) as client:
        stream = await client.ask("Dig")
    assert stream.answer == "Enough."
    assert len(model.requests) <= 1 + TOKENS // (len(LONG) // 4)


def answered(stream: ReceivedStream) -> Answered:
    [event] = [event for event in stream.events if isinstance(event, Answered)]
    return event


# --- agents that are not ours -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def third_party(
    metadata: dict[str, Any], *, hangs: bool = False
) -> AsyncIterator[tuple[str, list[Any]]]:
    """A server of protocol 1.0 that answers each message with a finished task; its address, and its calls."""
    calls: list[Any] = []

    async def card(http: HttpRequest) -> JSONResponse:
        url = str(http.base_url)
        interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return JSONResponse(
            {
                "name": "foreign",
                "description": "Is not ours.",
                "version": "1",
                "supportedInterfaces": [interface],
                "capabilities": {"streaming": False},
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [{"id": "dig", "name": "Dig", "description": "Digs.", "tags": ["dig"]}],
            }
        )

    async def rpc(http: HttpRequest) -> JSONResponse:
        body = await http.json()
        calls.append(body)
        if hangs and body["method"] == "SendMessage":
            await asyncio.Event().wait()
        number = len(calls)
        task = {
            "id": f"task-{number}",
            "contextId": f"context-{number}",
            "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "a", "name": "answer", "parts": [{"text": f"Hole {number}."}]}],
            **metadata,
        }
        return JSONResponse({"jsonrpc": "2.0", "id": body["id"], "result": {"task": task}})

    routes = [Route("/.well-known/agent-card.json", card), Route("/", rpc, methods=["POST"])]
    async with serve_app(Starlette(routes=routes)) as url:
        yield url, calls


def delegate_for_ever(request: Request) -> Turn:
    return Turn(delegate(anything(), "foreign")) if request.tools else Turn(Say("Enough."))


def artifact_with(metadata: dict[str, Any]) -> dict[str, Any]:
    artifact = {"artifactId": "a", "name": "answer", "parts": [{"text": "A hole."}], "metadata": metadata}
    return {"artifacts": [artifact]}


REPORTS = {
    "a task's usage": {"metadata": {"usage": {"input_tokens": 7000, "output_tokens": 3000}}},
    "as Google ADK names it": artifact_with(
        {"adk_usage_metadata": {"promptTokenCount": 7000, "candidatesTokenCount": 3000}}
    ),
    "with its last message": {
        "status": {
            "state": "TASK_STATE_COMPLETED",
            "message": {
                "messageId": "m",
                "role": "ROLE_AGENT",
                "parts": [{"text": "A hole."}],
                "metadata": {"usage": {"prompt_tokens": 7000, "completion_tokens": 3000}},
            },
        }
    },
    "a total alone": artifact_with({"token_usage": {"total_tokens": 10_000}}),
}


@pytest.mark.parametrize("report", REPORTS)
async def test_the_tokens_that_a_third_party_agent_reports_are_counted(report: str) -> None:
    model = ScriptedChatModel(script=Script(delegate_for_ever))
    env = {**CALLS, "RUN_TOKEN_LIMIT": str(TOKENS)}
    foreign = agent("foreign", Script(Turn(Say("Never."))))
    async with (
        third_party(REPORTS[report]) as (url, calls),
        connect_remote_agent(foreign, url) as far,
        supervisor(model, agents=[far], env=env) as client,
    ):
        stream = await client.ask("Dig")
    assert stream.answer == "Enough."
    own_tokens = sum(request.approximate_tokens for request in model.requests)
    usage = answered(stream).usage
    assert usage is not None
    assert usage.input_tokens + usage.output_tokens >= 10_000 * len(calls) + own_tokens
    assert 1 < len(calls) <= 3, "three delegations use up the budget"


@pytest.mark.full
async def test_the_time_of_a_third_party_agent_is_bounded() -> None:
    foreign = agent("foreign", Script(Turn(Say("Never."))))
    # On a busy machine the time may be over before the agent was asked: then it gets more.
    for seconds in ("0.5", "5", "60"):
        model = ScriptedChatModel(
            script=Script(Turn(delegate("Dig", "foreign")), Turn(Say("It said: {{tool:foreign}}")))
        )
        async with (
            third_party({}, hangs=True) as (url, calls),
            connect_remote_agent(foreign, url) as far,
            supervisor(model, agents=[far], env={"AGENT_TIMEOUT_SECONDS": seconds}) as client,
        ):
            stream = await client.ask("Dig")
        assert stream.last.state == "completed"
        assert f"It did not finish within {seconds} seconds" in stream.answer
        if calls:
            break
    assert calls


def test_reports_that_make_no_sense_count_nothing() -> None:
    for metadata in (
        {"usage": "many"},
        {"usage": {"input_tokens": -5}},
        {"usage": {"input_tokens": True, "total_tokens": "7"}},
        {"usage": {"input_tokens": 1e300}},
        {"sausage": {"input_tokens": 7}},
    ):
        usage = ThirdPartyUsage()
        usage.read(ParseDict({"task": {"id": "t", "metadata": metadata}}, StreamResponse()))
        assert usage.total is None, metadata


def test_the_same_message_counts_once_and_different_ones_add_up() -> None:
    def status(message_id: str, tokens: int) -> StreamResponse:
        metadata = {"usage": {"input_tokens": tokens}}
        message = {"messageId": message_id, "role": "ROLE_AGENT", "metadata": metadata}
        status_update = {"taskId": "t", "status": {"state": "TASK_STATE_WORKING", "message": message}}
        return ParseDict({"statusUpdate": status_update}, StreamResponse())

    usage = ThirdPartyUsage()
    for frame in (status("a", 10), status("a", 25), status("b", 5), status("a", 25)):
        usage.read(frame)
    assert usage.total is not None
    assert usage.total.input_tokens == 30
