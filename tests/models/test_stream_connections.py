"""The connections of our streams beside those of the stock clients: statuses, breaks, silence, limits."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk

from ai_platform_engineering.graph.failures import is_transient
from tests.support.anthropic_streams import ANTHROPIC_STREAMS
from tests.support.fakes.raw_http import Ending, RawAnswer, chunked, serve_raw, whole
from tests.support.model_pairs import Outcome, build_model, read_outcome, serve_pair
from tests.support.openai_streams import MULTIBYTE, OPENAI_STREAMS
from tests.support.openai_streams import chunk as completion_chunk

STREAMS = {"openai": OPENAI_STREAMS, "anthropic": ANTHROPIC_STREAMS}
JSON = "content-type: application/json"

providers = pytest.mark.parametrize("provider", STREAMS)


def refusal(status: str, message: str, *headers: str, code: str | None = None, kind: str = "x") -> RawAnswer:
    error = {"message": message, "type": kind, "code": code, "param": None}
    body = json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()
    return whole(body, status=status, headers=[JSON, *headers])


REFUSALS = {
    "bad request": refusal("400 Bad Request", "No such field.", "x-request-id: req_9"),
    "too long": refusal("400 Bad Request", "prompt is too long", code="context_length_exceeded"),
    "too long by code": refusal("400 Bad Request", "maximum context length", code="context_length_exceeded"),
    "wrong key": refusal("401 Unauthorized", "Incorrect API key provided: scripted-key."),
    "forbidden": refusal("403 Forbidden", "Not you."),
    "unknown model": refusal("404 Not Found", "No such model."),
    "conflict": refusal("409 Conflict", "Again."),
    "too large": refusal("413 Payload Too Large", "Too large."),
    "unprocessable": refusal("422 Unprocessable Entity", "No."),
    "busy": refusal("429 Too Many Requests", "Slow down.", "retry-after: 7", kind="rate_limit_error"),
    "busy until a date": refusal("429 Too Many Requests", "!", "retry-after: Wed, 21 Oct 2015 07:28:00 GMT"),
    "broken": refusal("500 Internal Server Error", "Oops."),
    "unavailable": refusal("503 Service Unavailable", "Later.", "retry-after: 1.5"),
    "overloaded": refusal("529 Overloaded", "Overloaded", kind="overloaded_error"),
    "words": whole(b"upstream is down", status="502 Bad Gateway", headers=["content-type: text/html"]),
    "nothing": whole(b"", status="500 Internal Server Error"),
    "a list": whole(b"[1]", status="400 Bad Request"),
    "compressed": chunked([b'{"error": {"message": "Oops.", "code": "e"}}'], status="500 X", encoding="gzip"),
    "no stream but JSON": whole(b'{"error": {"message": "Oops."}}'),
    "a page": whole(b"<html>\n\nlogin</html>", headers=["content-type: text/html"]),
}


@pytest.mark.sample(2)
@providers
@pytest.mark.parametrize("earlier", [False, True], ids=["first request", "later request"])
async def test_refusals_raise_the_same_errors(provider: str, earlier: bool) -> None:
    async with serve_pair(provider) as pair:
        if earlier:
            await pair.read(chunked(STREAMS[provider]["text"]))
        for name, answer in REFUSALS.items():
            fast, stock = await pair.read(answer)
            assert fast == stock, name
        busy, _ = await pair.read(REFUSALS["busy"])
    assert busy.error is not None
    assert (busy.error["status_code"], busy.error["retry after"]) == (429, 7.0)


@providers
@pytest.mark.parametrize("earlier", [False, True], ids=["first request", "later request"])
async def test_a_redirect_is_followed(provider: str, earlier: bool) -> None:
    text = chunked(STREAMS[provider]["text"])

    async with serve_pair(provider) as pair:
        if earlier:
            await pair.read(text)
            pair.server.requests.clear()
        target = pair.server.url
        moved = whole(b"", status="307 Temporary Redirect", headers=[f"location: {target}/elsewhere"])
        outcomes = []
        for model in (pair.fast, pair.stock):
            pair.script = [moved, text]
            outcomes.append(await read_outcome(model))
        paths = [request.target for request in pair.server.requests]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].error is None
    assert paths[0] == paths[2]
    assert paths[1] == paths[3] == "/elsewhere"


@providers
@pytest.mark.parametrize("earlier", [False, True], ids=["first request", "later request"])
async def test_a_connection_that_breaks_before_the_answer(provider: str, earlier: bool) -> None:
    async with serve_pair(provider) as pair:
        if earlier:
            await pair.read(chunked(STREAMS[provider]["text"]))
        fast, stock = await pair.read(RawAnswer((), Ending.ABORT))
    assert fast == stock
    assert fast.error is not None
    assert fast.error["is transient"]


# --- what the stock client still reads ------------------------------------------------------------

COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "scripted-1",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Grüße"},
            "finish_reason": "stop",
            "logprobs": None,
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "scripted-1",
    "content": [{"type": "text", "text": "Grüße"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@providers
async def test_an_answer_that_is_not_streamed(provider: str) -> None:
    async with serve_pair(provider) as pair:
        pair.answer = whole(json.dumps(COMPLETION if provider == "openai" else MESSAGE).encode())
        fast, stock = [await model.ainvoke("Well?") for model in (pair.fast, pair.stock)]
        assert all(not request.json.get("stream") for request in pair.server.requests)
    assert fast.text == "Grüße"
    assert {**fast.model_dump(), "id": None} == {**stock.model_dump(), "id": None}


async def test_a_response_format_and_the_headers_of_a_response() -> None:
    words = ['{"city"', ': "Zürich"', "}"]
    events = [OPENAI_STREAMS["text"][0], *(completion_chunk({"content": word}) for word in words)]
    async with serve_pair("openai") as pair:
        pair.answer = chunked([*events, *OPENAI_STREAMS["text"][-3:]])
        for options in ({"response_format": {"type": "json_object"}}, {"extra_headers": {"x-one": "1"}}):
            fast, stock = [await read_outcome(model.bind(**options)) for model in (pair.fast, pair.stock)]
            assert fast == stock
            assert fast.message is not None
            assert fast.message["content"] == "".join(words)


# --- breaks ---------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@providers
@pytest.mark.parametrize("ending", [Ending.CLOSE, Ending.ABORT])
async def test_a_stream_that_breaks_off_keeps_what_came_before(provider: str, ending: Ending) -> None:
    events = STREAMS[provider]["text"][:-2]
    whole_answer = chunked(events, end=b"", ending=ending)
    async with serve_pair(provider) as pair:
        for point in (10, 60, len(whole_answer) // 2, len(whole_answer) - 3, len(whole_answer)):
            piece = b"".join(whole_answer.pieces)[:point]
            fast, stock = await pair.read(RawAnswer((piece,), ending))
            assert comparable(fast) == comparable(stock), point
            assert fast.error is not None
            assert fast.error["is transient"]
        assert "Welt 🚀" in str(fast.message)


@providers
async def test_what_arrived_before_a_break_is_read_by_one_who_was_busy(provider: str) -> None:
    pieces = chunked(STREAMS[provider]["text"][:-2], end=b"").pieces
    pace = asyncio.Semaphore(4)
    texts: list[str] = []

    async def read_slowly(model: BaseChatModel) -> None:
        async for chunk in model.astream("Well?"):
            texts.append(chunk.text)
            for _ in pieces:
                pace.release()
            for _ in range(20 * len(pieces)):  # turns of the event loop, in which all of it arrives
                await asyncio.sleep(0)

    async with serve_pair(provider) as pair:
        pair.answer = RawAnswer(pieces, Ending.CLOSE, pace)
        with pytest.raises(Exception) as raised:  # noqa: PT011 - each provider has errors of its own
            await read_slowly(pair.fast)
    assert is_transient(raised.value)
    assert "".join(texts) == "".join(MULTIBYTE)


@pytest.mark.sample(4)
@providers
@pytest.mark.parametrize("framing", [b"zz\r\n", b"5\r\nabcdeXX\r\n", b"-1\r\n", b"0\r\nno header\r\n\r\n"])
async def test_wrong_framing_is_an_error_at_once(provider: str, framing: bytes) -> None:
    wrong = chunked(STREAMS[provider]["text"][:-2], end=framing)
    async with serve_pair(provider) as pair, asyncio.timeout(50):
        fast, stock = await pair.read(wrong)
    assert comparable(fast) == comparable(stock)
    assert fast.error is not None
    assert "Welt 🚀" in str(fast.message)


@providers
async def test_a_body_that_cannot_be_decompressed_is_an_error(provider: str) -> None:
    compressed = chunked(STREAMS[provider]["text"], encoding="gzip")
    broken = RawAnswer(tuple(piece.replace(b"\x8b", b"\x00") for piece in compressed.pieces))
    async with serve_pair(provider) as pair:
        fast, stock = await pair.read(broken)
    assert comparable(fast) == comparable(stock)
    assert fast.error is not None


def comparable(outcome: Outcome) -> Any:
    """The message, and what our own code reads of the error: its words are those of the HTTP library."""
    error = outcome.error or {}
    return outcome.message, [error.get(name) for name in ("status_code", "is transient", "for people")]


@providers
async def test_nobody_listens(provider: str) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # it does not listen, and nobody else gets the port
        async with serve_pair(provider, url=f"http://127.0.0.1:{reserved.getsockname()[1]}") as pair:
            fast, stock = await pair.read(whole(b""))
    assert comparable(fast) == comparable(stock)
    assert error_types(fast) == error_types(stock)
    assert any("ConnectionError" in name for name in error_types(fast))


@pytest.mark.sample(2)
@providers
@pytest.mark.parametrize("pieces", [0, 4], ids=["no head", "no more events"])
async def test_a_silent_server_is_given_up(provider: str, pieces: int) -> None:
    answer = chunked(STREAMS[provider]["text"])
    silent = RawAnswer(answer.pieces[:pieces], Ending.HANG)
    async with serve_pair(provider, seconds=1) as pair:
        fast, stock = await pair.read(silent)
    assert comparable(fast) == comparable(stock)
    assert error_types(fast) == error_types(stock)
    assert any("Timeout" in name for name in error_types(fast))


def error_types(outcome: Outcome) -> list[str]:
    assert outcome.error is not None
    types: list[str] = outcome.error["types"]
    return types


async def test_a_server_that_sends_only_comments_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGCHAIN_OPENAI_STREAM_CHUNK_TIMEOUT_S", "1")
    pace = asyncio.Semaphore(2)
    comments = chunked([OPENAI_STREAMS["text"][0], *[b": still here\n\n"] * 10_000])

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.01)
            pace.release()

    beats = asyncio.create_task(beat())
    async with serve_pair("openai") as pair:
        fast, stock = await pair.read(replace(comments, pace=pace))
    beats.cancel()
    assert fast == stock
    assert fast.error is not None
    assert fast.error["types"][0] == "StreamChunkTimeoutError"


# --- connections ----------------------------------------------------------------------------------


@providers
async def test_a_connection_is_used_again(provider: str) -> None:
    async with serve_pair(provider) as pair:
        pair.answer = chunked(STREAMS[provider]["text"])
        for _ in range(3):
            assert (await read_outcome(pair.fast)).error is None
        assert (len(pair.server.requests), pair.server.connections) == (3, 1)


@providers
async def test_a_cancelled_stream_closes_its_connection(provider: str) -> None:
    answer = RawAnswer(chunked(STREAMS[provider]["text"]).pieces[:4], Ending.HANG)
    async with serve_pair(provider) as pair:
        pair.answer = answer
        first = asyncio.Event()

        async def ask() -> None:
            async for _ in pair.fast.astream("Well?"):
                first.set()

        task = asyncio.create_task(ask())
        async with asyncio.timeout(60):
            await first.wait()
            assert not pair.server.left.is_set()
            task.cancel()
            await pair.server.left.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


@providers
async def test_an_abandoned_stream_closes_its_connection(provider: str) -> None:
    answer = RawAnswer(chunked(STREAMS[provider]["text"]).pieces[:6], Ending.HANG)
    async with serve_pair(provider) as pair:
        pair.answer = answer
        stream: Any = pair.fast.astream("Well?")
        async with asyncio.timeout(60):
            await anext(stream)
            await stream.aclose()
            del stream
            await pair.server.left.wait()


async def test_a_token_is_handed_on_at_once_and_what_arrived_together_as_one() -> None:
    words = [f"w{number} " for number in range(20)]
    events = [completion_chunk({"role": "assistant", "content": ""})]
    events += [completion_chunk({"content": word}) for word in words[:10]]
    events.append(b"".join(completion_chunk({"content": word}) for word in words[10:]))
    events += OPENAI_STREAMS["text"][-3:]
    pace = asyncio.Semaphore(2)  # the head, and the role
    async with serve_pair("openai") as pair:
        pair.answer = replace(chunked(events), pace=pace)
        stream: AsyncIterator[Any] = pair.fast.astream("Well?")
        async with asyncio.timeout(60):
            assert (await anext(stream)).text == ""
            for word in words[:10]:
                pace.release()
                assert (await anext(stream)).text == word
            pace.release()
            assert (await anext(stream)).text == "".join(words[10:])
            for _ in range(4):
                pace.release()
            rest = [chunk async for chunk in stream]
    assert "".join(chunk.text for chunk in rest if isinstance(chunk, AIMessageChunk)) == ""


async def test_a_busy_process_reads_more_at_once() -> None:
    """A token arrives with every few turns of the event loop, and each turn takes long."""
    head = completion_chunk({"role": "assistant", "content": ""})
    words = [completion_chunk({"content": f"{number} "}) for number in range(60)]
    chunks: list[str] = []

    async def work() -> None:
        while True:
            time.sleep(0.004)  # noqa: ASYNC251 - what a busy event loop is like
            await asyncio.sleep(0)

    async with serve_pair("openai") as pair:
        pair.answer = chunked([head, *words, b"data: [DONE]\n\n"])
        worker = asyncio.create_task(work())
        async for chunk in pair.fast.astream("Well?"):
            if chunk.text:
                chunks.append(chunk.text)
        worker.cancel()
    assert "".join(chunks) == "".join(f"{number} " for number in range(60))
    assert len(chunks) < len(words) / 2


@providers
async def test_connections_close_with_their_event_loop(provider: str) -> None:
    """A model may be used in several event loops, one after the other."""
    async with serve_pair(provider) as pair, asyncio.timeout(60):
        pair.answer = chunked(STREAMS[provider]["text"])
        for number in (1, 2):
            outcome = await asyncio.to_thread(asyncio.run, read_outcome(pair.fast))
            assert outcome.error is None
            assert pair.server.connections == number
            await pair.server.left.wait()
            pair.server.left.clear()


# --- limits ---------------------------------------------------------------------------------------

LONG = completion_chunk({"content": "x" * 5_000})
MANY = completion_chunk({"content": "x"}, extra=[0] * 40_000)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("events", "variable", "limit"),
    [
        ([LONG], "LLM_MAX_EVENT_BYTES", "2000"),
        ([LONG[:-2]], "LLM_MAX_EVENT_BYTES", "2000"),
        ([LONG] * 5, "LLM_MAX_RESPONSE_BYTES", "20000"),
        ([MANY], "LLM_MAX_EVENT_VALUES", "1000"),
    ],
    ids=["event", "event without an end", "response", "values"],
)
async def test_a_server_that_sends_too_much_is_not_read_further(
    events: list[bytes], variable: str, limit: str
) -> None:
    async with serve_pair("openai", **{variable: limit}) as pair:
        pair.answer = chunked([completion_chunk({"role": "assistant", "content": "so"}), *events])
        outcome = await read_outcome(pair.fast)
        async with asyncio.timeout(60):
            await pair.server.left.wait()
    assert outcome.message is not None
    assert outcome.message["content"].startswith("so")
    assert outcome.error is not None
    assert outcome.error["types"][0] == "ModelAnswerTooLarge"
    assert f"{variable}={limit}" in outcome.error["text"]
    assert not outcome.error["is transient"]


async def test_a_bomb_of_compression_is_not_unpacked() -> None:
    bomb = chunked([b": " + b"x" * 40_000_000 + b"\n\n"], encoding="gzip")
    async with serve_pair("openai", LLM_MAX_RESPONSE_BYTES="1000000") as pair:
        pair.answer = bomb
        outcome = await read_outcome(pair.fast)
    assert len(bomb) < 100_000
    assert outcome.error is not None
    assert outcome.error["types"][0] == "ModelAnswerTooLarge"


async def test_a_body_that_is_no_stream_has_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_raw(lambda _: whole(b" " * 50_000 + b"{}")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "scripted-key")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        model = build_model("openai", "fast", LLM_MAX_RESPONSE_BYTES="20000")
        with pytest.raises(Exception, match="LLM_MAX_RESPONSE_BYTES=20000"):
            await model.ainvoke("Well?")
