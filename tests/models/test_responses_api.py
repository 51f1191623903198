"""OpenAI's Responses API: when it is used, and that our stream is what LangChain reads of the same bytes."""

import itertools
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk

from ai_platform_engineering.core.events import TextDiscarded
from tests.support.fakes.openai_responses_server import OpenAIResponsesServer
from tests.support.fakes.raw_http import chunked, whole
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Fail, Say, Script, Think, Turn
from tests.support.model_pairs import build_model, look, serve_pair
from tests.support.providers import OPENAI, RESPONSES, run_behind_provider

EVENT_STREAM = ["content-type: text/event-stream"]
WORDS = ["Grüße", ", ", "Welt 🚀", " 你好", " done"]


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def response(status: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": "scripted-1",
        "status": status,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        **fields,
    }


def message_events() -> list[bytes]:
    at = {"item_id": "msg_1", "output_index": 1}
    deltas = [event("response.output_text.delta", content_index=0, delta=word, **at) for word in WORDS]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
    return [
        event("response.output_item.added", output_index=1, item=item),
        *deltas,
        event("response.output_text.done", content_index=0, text="".join(WORDS), **at),
    ]


def call_events() -> list[bytes]:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": ""}
    arguments = ['{"ci', 'ty": "Z', 'ürich"}']
    return [
        event("response.output_item.added", output_index=2, item=item),
        *[
            event("response.function_call_arguments.delta", item_id="fc_1", output_index=2, delta=piece)
            for piece in arguments
        ],
        event("response.output_item.done", output_index=2, item={**item, "arguments": "".join(arguments)}),
    ]


def whole_stream(status: str = "completed", **fields: Any) -> list[bytes]:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    usage = {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 18,
    }
    return [
        event("response.created", response=response("in_progress")),
        event("response.in_progress", response=response("in_progress")),
        event("response.output_item.added", output_index=0, item=reasoning),
        event("response.output_item.done", output_index=0, item=reasoning),
        *message_events(),
        *call_events(),
        event(f"response.{status}", response=response(status, usage=usage, **fields)),
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("status", ["completed", "incomplete"])
@pytest.mark.parametrize("framing", ["event by event", "one piece"])
async def test_our_stream_equals_that_of_the_stock_client(status: str, framing: str) -> None:
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    events = whole_stream(status, incomplete_details=details)
    answer = chunked(events) if framing == "event by event" else whole(b"".join(events), headers=EVENT_STREAM)
    async with serve_pair("openai", LLM_RESPONSES_API="on") as pair:
        fast, stock = await pair.read(answer, tools=True)
    assert fast == stock
    assert fast.message is not None
    assert fast.error is None
    assert "".join(WORDS) in json.dumps(fast.message["content"], ensure_ascii=False)
    assert fast.message["tool_calls"][0]["args"] == {"city": "Zürich"}
    assert fast.message["usage_metadata"]["input_token_details"]["cache_read"] == 4


async def test_deltas_that_arrive_together_are_one_chunk() -> None:
    async with serve_pair("openai", LLM_RESPONSES_API="on") as pair:
        pair.answer = whole(b"".join(whole_stream()), headers=EVENT_STREAM)
        texts: list[str] = []
        async for chunk in pair.fast.bind_tools([look]).astream("Well?"):
            assert isinstance(chunk, AIMessageChunk)
            texts.append(chunk.text)
    assert [text for text in texts if text] == ["".join(WORDS)]


@pytest.mark.parametrize(
    "failure",
    [
        event(
            "response.failed", response=response("failed", error={"code": "server_error", "message": "Oh."})
        ),
        event("error", code="server_error", message="Oh.", param=None),
    ],
    ids=["failed", "error"],
)
async def test_a_failure_in_the_stream_is_one_that_is_tried_again(failure: bytes) -> None:
    async with serve_pair("openai", LLM_RESPONSES_API="on") as pair:
        fast, _ = await pair.read(chunked([*whole_stream()[:6], failure]))
    assert fast.error is not None
    assert fast.error["text"] == "Oh."
    assert fast.error["is transient"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("mode", "base_url", "is_used"),
    [
        ("auto", None, True),
        ("auto", "https://eu.api.openai.com/v1", True),
        ("auto", "https://gateway.example/v1", False),
        ("on", "https://gateway.example/v1", True),
        ("off", None, False),
    ],
)
@pytest.mark.parametrize("client", ["fast", "stock"])
def test_it_is_used_at_openai_unless_a_setting_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, mode: str, base_url: str | None, is_used: bool, client: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "scripted-key")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    if base_url:
        monkeypatch.setenv("OPENAI_BASE_URL", base_url)
    model: Any = build_model("openai", client, LLM_RESPONSES_API=mode)
    payload = model._get_request_payload("Well?")
    assert ("input" in payload, payload.get("store")) == (is_used, False if is_used else None)


def test_models_that_reason_get_their_reasoning_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "scripted-key")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    includes = []
    for name in ("gpt-5-mini", "gpt-4o"):
        model: Any = build_model("openai", "fast", LLM_MODEL=f"openai:{name}")
        includes.append(model._get_request_payload("Well?").get("include"))
    assert includes == [["reasoning.encrypted_content"], None]


def is_reasoning(item: dict[str, Any]) -> bool:
    return item.get("type") == "reasoning"


async def test_a_conversation_with_tools_reasoning_and_a_failed_attempt() -> None:
    attempts = itertools.count()

    def answer(request: Request) -> Turn:
        if next(attempts) == 0:
            return Turn(Say("It is "), Fail(500, message="Oh."))
        return Turn(Say("It is {{tool:look}}."))

    script = Script(Turn(Think("Hm."), Say("Let me look. "), Call("look", {"city": "Oslo"})), answer)
    settings = {"LLM_RETRY_SECONDS": "0", "LLM_ATTEMPTS": "3"}
    async with run_behind_provider(RESPONSES, script, tools=[look], **settings) as (server, client):
        stream = await client.ask("Where?")
        again = await client.ask("And now?", contextId=stream.context_id)
    assert isinstance(server, OpenAIResponsesServer)
    assert not server.refusals
    assert stream.answer == again.answer == "It is Oslo."
    assert set(server.targets) == {"/v1/responses"}
    assert any(is_reasoning(item) for item in server.requests[1].raw["input"])
    narration, *_ = stream.streamed_texts
    assert narration == "Let me look. "
    assert [event for event in stream.events if isinstance(event, TextDiscarded)]


async def test_a_custom_base_url_is_asked_for_chat_completions() -> None:
    async with run_behind_provider(OPENAI, Script(Turn(Say("Hello.")))) as (server, client):
        stream = await client.ask("Hello?")
    assert stream.answer == "Hello."
    assert set(server.targets) == {"/v1/chat/completions"}
