"""The providers' prompt caches: what is marked, what stays the same between calls, and what is counted."""

import itertools
import json
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool

from ai_platform_engineering.core.events import Answered, Usage
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.chat_model import create_chat_model
from ai_platform_engineering.models.prompt_cache import OPENAI_HOST, add_breakpoints, is_own_address
from tests.support.fakes.prompt_cache import LOOKBACK, anthropic_blocks, common_length
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import ReceivedStream
from tests.support.providers import (
    ANTHROPIC,
    BEDROCK,
    DIALECTS,
    OPENAI,
    RESPONSES,
    Provider,
    run_behind_provider,
)

FIELDS = ("cache_control", "cachePoint", "prompt_cache_key")
MANY = LOOKBACK + 5  # calls at once: more blocks than Anthropic looks back


def build_tools() -> list[BaseTool]:
    async def look(number: int) -> str:
        return f"{number}: " + "lorem ipsum " * 100

    return [StructuredTool.from_function(coroutine=look, name="look", description="Looks.")]


def looking(rounds: int, at_once: int = 1) -> Script:
    turns = [
        Turn(*(Call("look", {"number": round_ * MANY + number}) for number in range(at_once)))
        for round_ in range(rounds)
    ]
    return Script(*turns, Turn(Say("Done.")))


def read_usage(stream: ReceivedStream) -> Usage:
    [answered] = [event for event in stream.events if isinstance(event, Answered)]
    assert answered.usage is not None
    return answered.usage


def list_used_fields(request: Request) -> set[str]:
    body = json.dumps(request.raw)
    return {name for name in FIELDS if f'"{name}"' in body}


@pytest.mark.sample(4)
@pytest.mark.parametrize("client", ["fast", "stock"])
@pytest.mark.parametrize("provider", DIALECTS, ids=str)
async def test_all_calls_of_a_run_read_what_the_one_before_has_sent(provider: Provider, client: str) -> None:
    async with run_behind_provider(
        provider, looking(5), tools=build_tools(), LLM_PROMPT_CACHE="on", LLM_STREAM_CLIENT=client
    ) as (server, app):
        stream = await app.ask("Look around.")
    assert not server.refusals
    requests = server.requests
    assert len(requests) == 6
    for before, request in itertools.pairwise(requests):
        assert request.cache_read_tokens >= 0.95 * before.approximate_tokens
    usage = read_usage(stream)
    assert usage.cache_read_tokens == sum(request.cache_read_tokens for request in requests)
    created = sum(request.cache_created_tokens for request in requests)
    assert (usage.cache_creation_tokens or 0) == created
    assert bool(created) == (provider not in (OPENAI, RESPONSES))
    assert usage.input_tokens == sum(request.approximate_tokens for request in requests)


async def test_the_end_of_the_preceding_request_is_found_behind_many_parallel_calls() -> None:
    async with run_behind_provider(
        ANTHROPIC, looking(3, at_once=MANY), tools=build_tools(), LLM_PROMPT_CACHE="on"
    ) as (server, app):
        await app.ask("Look around.")
    assert not server.refusals
    for before, request in zip(server.requests[1:], server.requests[2:], strict=False):
        assert request.cache_read_tokens >= 0.95 * before.approximate_tokens


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["auto", "off"])
@pytest.mark.parametrize("provider", DIALECTS, ids=str)
async def test_a_custom_address_gets_no_fields_that_it_might_refuse(provider: Provider, mode: str) -> None:
    async with run_behind_provider(provider, looking(1), tools=build_tools(), LLM_PROMPT_CACHE=mode) as (
        server,
        app,
    ):
        await app.ask("Look around.")
    assert len(server.requests) == 2
    assert all(list_used_fields(request) == set() for request in server.requests)


async def test_a_key_is_that_of_one_conversation_and_tells_nothing() -> None:
    async with run_behind_provider(OPENAI, looking(1), tools=build_tools(), LLM_PROMPT_CACHE="on") as (
        server,
        app,
    ):
        first = await app.ask("Look around in Zurich.")
        await app.ask("And once more.", context_id=first.context_id)
        await app.ask("Look around in Oslo.")
    keys = [request.raw["prompt_cache_key"] for request in server.requests]
    assert len(keys) == 6
    assert len(set(keys[:4])) == 1
    assert len(set(keys[4:])) == 1
    assert keys[0] != keys[4]
    assert all(len(key) == 32 and int(key, 16) for key in keys)


@pytest.mark.parametrize("provider", DIALECTS, ids=str)
async def test_the_requests_of_a_conversation_begin_alike(provider: Provider) -> None:
    """Across questions, too: what changes must come after what does not."""
    async with run_behind_provider(provider, looking(2), tools=build_tools()) as (server, app):
        first = await app.ask("Look around.")
        await app.ask("And once more.", context_id=first.context_id)
    texts = [read_prompt(request.raw) for request in server.requests]
    for before, text in itertools.pairwise(texts):
        assert common_length(before, text) >= len(before) - len("]")


def read_prompt(body: dict[str, Any]) -> str:
    tools = body.get("tools") or (body.get("toolConfig") or {}).get("tools")
    return json.dumps([tools, body.get("system"), *(body.get("messages") or body["input"])])


# --- the breakpoints ------------------------------------------------------------------------------


def test_marks_stand_at_the_ends_and_nothing_of_others_is_changed() -> None:
    tool = {"name": "look", "input_schema": {}}
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": blocks},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "last"},
    ]
    payload = {"tools": [tool, tool], "system": "Be brief.", "messages": messages}
    add_breakpoints(payload)
    assert [is_marked for _, is_marked in anthropic_blocks(payload)] == [
        *(False, True),  # tools
        True,  # system prompt
        *(False, False),
        *(False, True),
        False,
        True,
    ]
    assert "cache_control" not in json.dumps([tool, blocks, messages])


@pytest.mark.parametrize(
    "content", [" ", [], [{"type": "thinking", "thinking": "hm"}], [{"type": "text", "text": ""}]], ids=str
)
def test_no_mark_stands_where_anthropic_refuses_one(content: Any) -> None:
    payload: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
    add_breakpoints(payload)
    assert payload == {"messages": [{"role": "user", "content": content}]}


# --- who gets them --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("https://api.openai.com.example.test/v1", False),
        ("https://notapi.openai.com/v1", False),
        ("http://127.0.0.1:11434/v1", False),
        ("", False),
    ],
)
def test_the_providers_own_addresses_are_recognized(address: str, is_own: bool) -> None:
    assert is_own_address(address, OPENAI_HOST) == is_own


@pytest.mark.parametrize(
    ("name", "variables", "fields"),
    [
        ("openai:gpt-4o", {"OPENAI_API_KEY": "k"}, {"prompt_cache_key"}),
        ("anthropic:claude-sonnet-4-5", {"ANTHROPIC_API_KEY": "k"}, {"cache_control"}),
    ],
)
def test_by_default_the_provider_itself_gets_them(
    name: str, variables: dict[str, str], fields: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    model: Any = create_chat_model(Settings.from_variables({"LLM_MODEL": name}).model)
    payload = model._get_request_payload("Hello")
    assert {field for field in FIELDS if f'"{field}"' in json.dumps(payload)} == fields


@pytest.mark.parametrize(
    ("model_id", "is_cached"),
    [
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        ("amazon.nova-pro-v1:0", True),
        ("anthropic.claude-3-haiku-20240307-v1:0", False),
        ("meta.llama3-70b-instruct-v1:0", False),
    ],
)
async def test_bedrock_gets_cache_points_only_for_models_that_take_them(
    model_id: str, is_cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Provider, "model", lambda self, name: f"bedrock:{model_id}")
    script = Script(Turn(Say("Yes.")))
    async with run_behind_provider(BEDROCK, script, LLM_PROMPT_CACHE="on") as (server, app):
        await app.ask("Well?")
    [request] = server.requests
    assert ("cachePoint" in list_used_fields(request)) == is_cached
