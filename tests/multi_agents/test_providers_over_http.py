"""The supervisor and its agents with models of real providers' clients, over HTTP to scripted servers:
delegation, usage, failures.
"""

import asyncio
import logging
import random

import pytest

from ai_platform_engineering.core.events import Answered, Failed
from tests.support.fakes.script import Attempts, Call, Fail, Gate, Say, Script, Turn, unique_pieces
from tests.support.harness import ReceivedStream, joined
from tests.support.scenarios import (
    ScriptedAgent,
    collect_frames,
    delegate,
    run_scripted_system,
    scripted_agent,
    token,
    tool,
)

everywhere = pytest.mark.parametrize("kind", ["openai", "anthropic"])


def team(values: dict[str, str]) -> tuple[Script, list[ScriptedAgent]]:
    """A supervisor that asks two agents at once, each with a model of its own."""
    members = [
        scripted_agent(
            name,
            Script(
                Turn(Say(f"{name} looks."), Call("look", {}, id=f"look-{name}")),
                Turn(Say("value={{tool:look.value}}")),
            ),
            tool("look", f"value={value}"),
        )
        for name, value in values.items()
    ]
    calls = [delegate(name, f"What has {name}?", id=f"call-{name}") for name in values]
    return Script(
        Turn(Say("I ask both."), *calls),
        Turn(Say(*(f"{name}={{{{tool:{name}.value}}}} " for name in values))),
    ), members


def answered(stream: ReceivedStream) -> Answered:
    (event,) = [event for event in stream.events if isinstance(event, Answered)]
    return event


def failed(stream: ReceivedStream) -> Failed:
    (event,) = [event for event in stream.events if isinstance(event, Failed)]
    assert stream.last.state == "failed"
    assert stream.last.status_text == event.message
    return event


# --- the way through ------------------------------------------------------------------------------


@everywhere
async def test_a_question_goes_through_three_models_and_back(kind: str) -> None:
    values = {"argocd": token(), "github": token()}
    script, members = team(values)
    async with run_scripted_system(script, *members, kind=kind, key="right", accepted_key="right") as stage:
        stream = await stage.ask("What do they have?")
        model_requests = {name: stage.requests(name) for name in ("supervisor", *values)}
    assert stream.streamed_texts == ["I ask both.", f"argocd={values['argocd']} github={values['github']} "]
    assert stream.answer == f"argocd={values['argocd']} github={values['github']} "
    for name, value in values.items():
        mine = [frame for frame in stream.named("subagent_result") if frame.metadata["source_agent"] == name]
        assert joined(mine) == [f"{name} looks.", f"value={value}"]
        assert [request.messages[0].text for request in model_requests[name]] == [f"What has {name}?"] * 2
        assert set(model_requests[name][0].tools) == {"look", "CAIPEAgentResponse", "wait"}
    assert [len(requests) for requests in model_requests.values()] == [2, 2, 2]
    assert all(request.stream for requests in model_requests.values() for request in requests)
    assert "task" in model_requests["supervisor"][0].tools
    assert [
        message.text for message in model_requests["supervisor"][1].messages if message.role == "tool"
    ] == [f"value={value}" for value in values.values()]


@everywhere
async def test_the_answer_names_the_tokens_that_all_models_used(kind: str) -> None:
    script, members = team({"argocd": token(), "github": token()})
    async with run_scripted_system(script, *members, kind=kind) as stage:
        stream = await stage.ask()
        requests = [
            request for name in ("supervisor", "argocd", "github") for request in stage.requests(name)
        ]
    usage = answered(stream).usage
    assert usage is not None
    assert usage.input_tokens == sum(request.approximate_tokens for request in requests)
    # A fake counts each piece that it streams. The supervisor: 3 words, 2 calls of 5 pieces, 2 texts.
    # Each agent: 2 words, a call of 3 pieces, 1 text.
    assert usage.output_tokens == 15 + 2 * 6


@everywhere
async def test_a_failed_run_names_the_tokens_that_were_used_before(kind: str) -> None:
    async with run_scripted_system(
        Script(Turn(Call("look", {})), Turn(Fail(401))), kind=kind, tools=[tool("look", token())]
    ) as stage:
        stream = await stage.ask()
        first = stage.requests()[0]
    usage = failed(stream).usage
    assert usage is not None
    assert usage.input_tokens == first.approximate_tokens
    assert usage.output_tokens == 3  # the pieces of the call


# --- failures -------------------------------------------------------------------------------------


REFUSALS = [
    (401, "model_auth", "The model's server rejected the credentials. Check the API key", False),
    (403, "model_auth", "The model's server rejected the credentials. Check the API key", False),
    (404, "model_unknown", "The model's server has no such model. Check LLM_MODEL", False),
    (400, "model_refused", "The model refused the request. Retrying will not help", False),
    (429, "model_busy", "The model is busy (rate limit). Try again in a moment.", True),
    (
        500,
        "model_unavailable",
        "The model's server at http://127.0.0.1:",
        True,
    ),
    (
        529,
        "model_unavailable",
        "The model's server at http://127.0.0.1:",
        True,
    ),
]


@pytest.mark.parametrize(
    ("status", "code", "words", "helps"), REFUSALS, ids=[str(status) for status, *_ in REFUSALS]
)
@everywhere
async def test_a_refusal_fails_the_task_in_words_and_without_secrets(
    kind: str, status: int, code: str, words: str, helps: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key, secret = token("key"), token("secret")
    script = Script(Turn(Fail(status, message=f"The key {key} of {secret} will not do.")))
    async with run_scripted_system(script, kind=kind, key=key) as stage:
        stream = await stage.ask()
        request_count = len(stage.requests())
    event = failed(stream)
    assert (event.code, event.retryable) == (code, helps)
    assert event.message.startswith(words)
    assert request_count == (3 if helps else 1)
    output = stream.raw.decode() + "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith("ai_platform")
    )
    assert key not in output
    assert secret not in output
    assert key not in caplog.text
    assert not stream.named("final_result", "partial_result", "streaming_result")


@everywhere
async def test_a_wrong_key_is_refused_by_the_provider_and_told_without_the_key(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = token("wrong")
    async with run_scripted_system(
        Script(Turn(Say("Never."))), kind=kind, key=key, accepted_key="right"
    ) as stage:
        stream = await stage.ask()
    assert failed(stream).code == "model_auth"
    assert key not in stream.raw.decode() + caplog.text


@everywhere
async def test_a_model_that_the_server_does_not_know_is_told(kind: str) -> None:
    async with run_scripted_system(
        Script(Turn(Say("Never."))), kind=kind, env={"LLM_MODEL": f"{kind}:unheard-of"}
    ) as stage:
        stream = await stage.ask()
    assert failed(stream).code == "model_unknown"
    assert "LLM_MODEL" in failed(stream).message


@everywhere
async def test_a_busy_model_is_asked_again_after_the_time_it_names(kind: str) -> None:
    value = token()
    busy = Turn(Fail(429, message="Slow down.", retry_after=0))
    script = Script(Turn(Call("look", {})), Attempts(busy, busy, Turn(Say("It is {{tool:look.value}}"))))
    # The pause without the header is far longer than anybody waits here.
    env = {"LLM_RETRY_SECONDS": "3600"}
    async with (
        run_scripted_system(script, kind=kind, tools=[tool("look", f"value={value}")], env=env) as stage,
        asyncio.timeout(120),
    ):
        stream = await stage.ask()
        request_count = len(stage.requests())
    assert stream.answer == f"It is {value}"
    assert request_count == 4
    assert stream.streamed_texts == [f"It is {value}"]


@everywhere
async def test_a_server_that_fails_once_is_asked_again_with_a_notice(kind: str) -> None:
    value = token()
    argocd = scripted_agent(
        "argocd",
        Script(
            Attempts(Turn(Fail(500)), Turn(Call("look", {}))),
            Attempts(Turn(Fail(503)), Turn(Say("value={{tool:look.value}}"))),
        ),
        tool("look", f"value={value}"),
    )
    script = Script(
        Attempts(Turn(Fail(500)), Turn(delegate("argocd"))),
        Attempts(Turn(Fail(529)), Turn(Say("It is {{tool:argocd.value}}"))),
    )
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        stream = await stage.ask()
        request_counts = [len(stage.requests(name)) for name in ("supervisor", "argocd")]
    assert request_counts == [4, 4]
    assert stream.answer == f"It is {value}"
    assert len(stream.notifications) == 4
    assert not [event for event in stream.events if event.kind in ("text_discarded", "failed")]
    assert {event.code for event in stream.events if event.kind == "notice"} == {"retry"}


@everywhere
async def test_an_error_event_in_mid_stream_is_retried_and_what_was_said_is_replaced(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    gate = Gate()
    lost = unique_pieces("lost", 2, random.Random())
    value = token()
    secret = token("secret")
    broken = Turn(Say(*lost), Fail(529, message=f"Overloaded {secret}"), gate=gate)
    script = Script(Turn(Call("look", {})), Attempts(broken, Turn(Say("It is {{tool:look.value}}"))))
    async with run_scripted_system(script, kind=kind, tools=[tool("look", f"value={value}")]) as stage:
        stream = await collect_frames(stage.client.stream("Which?"), gate, "streaming_result")
    assert gate.failure is None
    assert stream.answer == f"It is {value}"
    assert stream.streamed_texts == [f"It is {value}"]
    ours = "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith("ai_platform")
    )
    assert secret not in stream.raw.decode() + ours


@everywhere
async def test_error_events_in_every_attempt_fail_the_task_in_words(kind: str) -> None:
    gate = Gate()
    last_pieces = unique_pieces("kept", 2, random.Random())
    secret = token("secret")
    script = Script(Turn(Say(*last_pieces), Fail(529, message=f"Overloaded {secret}"), gate=gate))
    async with run_scripted_system(script, kind=kind, env={"LLM_ATTEMPTS": "1"}) as stage:
        stream = await collect_frames(stage.client.stream("Which?"), gate, "streaming_result")
    event = failed(stream)
    assert (event.code, event.retryable) == ("model_unavailable", True)
    assert [frame.text for frame in stream.named("partial_result")] == ["".join(last_pieces)]
    assert secret not in stream.raw.decode()


@everywhere
async def test_an_agents_failing_provider_fails_its_delegation_and_nothing_else(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key, value = token("key"), token()
    broken = scripted_agent("github", Script(Turn(Fail(401, message=f"{key} is wrong"))))
    right = scripted_agent(
        "argocd",
        Script(Turn(Call("look", {})), Turn(Say("value={{tool:look.value}}"))),
        tool("look", f"value={value}"),
    )
    script = Script(
        Turn(delegate("github", id="one"), delegate("argocd", id="two")),
        Turn(Say("{{tool:argocd.value}}; {{tool:github}}")),
    )
    async with run_scripted_system(script, broken, right, kind=kind, key=key) as stage:
        stream = await stage.ask()
    ends = {
        frame.metadata["tool_call_id"]: frame.metadata["status"]
        for frame in stream.named("tool_notification_end")
    }
    assert (ends["one"], ends["two"]) == ("failed", "completed")
    assert stream.answer.startswith(
        f"{value}; Agent github failed: The model's server rejected the credentials."
    )
    assert key not in stream.raw.decode() + caplog.text
