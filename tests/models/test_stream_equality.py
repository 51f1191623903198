"""Our streams equal those of the stock clients: both read the same bytes, cut anywhere."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.anthropic_streams import ANTHROPIC_STREAMS
from tests.support.fakes.raw_http import RawAnswer, chunked, until_close, whole
from tests.support.fuzzing import server_examples
from tests.support.model_pairs import ModelPair, Outcome, serve_pair
from tests.support.openai_streams import OPENAI_STREAMS

STREAMS = {"openai": OPENAI_STREAMS, "anthropic": ANTHROPIC_STREAMS}
EVENT_STREAM = ["content-type: text/event-stream"]

providers = pytest.mark.parametrize("provider", STREAMS)


async def compare(pair: ModelPair, name: str, answer: RawAnswer, *, tools: bool = False) -> Outcome:
    fast, stock = await pair.read(answer, tools=tools)
    assert fast == stock, name
    return fast


@pytest.mark.sample(2)
@providers
@pytest.mark.parametrize("tools", [False, True], ids=["no tools", "tools"])
async def test_every_stream_event_by_event(provider: str, tools: bool) -> None:
    async with serve_pair(provider) as pair:
        for name, events in STREAMS[provider].items():
            await compare(pair, name, chunked(events), tools=tools)


@providers
async def test_every_stream_in_one_piece(provider: str) -> None:
    async with serve_pair(provider) as pair:
        for name, events in STREAMS[provider].items():
            await compare(pair, name, whole(b"".join(events), headers=EVENT_STREAM), tools=True)


@providers
async def test_every_stream_with_other_line_ends(provider: str) -> None:
    async with serve_pair(provider) as pair:
        for name, events in STREAMS[provider].items():
            carriage_returns = [event.replace(b"\n", b"\r\n") for event in events]
            await compare(pair, f"{name}, CRLF", chunked(carriage_returns), tools=True)


@providers
async def test_what_the_corpus_says(provider: str) -> None:
    """Equal nothings would be equal too."""
    streams = STREAMS[provider]
    async with serve_pair(provider) as pair:
        text = await compare(pair, "text", chunked(streams["text"]), tools=True)
        call = await compare(pair, "call", chunked(streams["a call in letters"]), tools=True)
        broken = await compare(pair, "error", chunked(streams["an error after text"]), tools=True)
    assert text.message is not None
    assert call.message is not None
    assert broken.error is not None
    assert "Welt 🚀 你好" in str(text.message["content"])
    assert text.message["usage_metadata"]["input_token_details"]["cache_read"] == 4
    assert call.message["tool_calls"][0]["args"] == {"city": "Zürich 🚀", "days": 3}
    assert "Welt 🚀 你好" in str(broken.message)
    assert broken.error["is transient"]


# --- cut anywhere ---------------------------------------------------------------------------------


@st.composite
def cut_streams(draw: st.DrawFn, provider: str) -> tuple[str, RawAnswer]:
    """A stream of the corpus with any line ends, in any HTTP chunks and any pieces, compressed or not."""
    name = draw(st.sampled_from(sorted(STREAMS[provider])))
    line_end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    body = b"".join(STREAMS[provider][name]).replace(b"\n", line_end)
    pieces = RawAnswer((body,)).cut(draw(st.lists(st.integers(0, len(body) + 1), max_size=12))).pieces
    framing = draw(st.sampled_from(["chunked", "gzip", "deflate", "length", "close"]))
    if framing == "length":
        answer = whole(body, headers=EVENT_STREAM)
    elif framing == "close":
        answer = until_close(body)
    else:
        answer = chunked(pieces, encoding=None if framing == "chunked" else framing)
    points = draw(st.lists(st.integers(0, len(answer)), max_size=12))
    return f"{name}, {framing}", answer.cut(points)


# One example is one server and many streams.
@given(st.lists(cut_streams("openai"), min_size=10, max_size=20))
@server_examples(20)
async def test_completions_cut_anywhere(streams: Sequence[tuple[str, RawAnswer]]) -> None:
    async with serve_pair("openai") as pair:
        for name, answer in streams:
            await compare(pair, name, answer, tools=True)


@given(st.lists(cut_streams("anthropic"), min_size=10, max_size=20))
@server_examples(20)
async def test_messages_cut_anywhere(streams: Sequence[tuple[str, RawAnswer]]) -> None:
    async with serve_pair("anthropic") as pair:
        for name, answer in streams:
            await compare(pair, name, answer, tools=True)
