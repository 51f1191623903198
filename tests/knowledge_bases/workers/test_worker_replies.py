"""What a worker says is data: whatever it is, it is checked, bounded, and taken for nothing else."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.knowledge_bases.documents import Chunk, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.read_documents import (
    ReadDocument,
    decode_read_document,
    encode_read_document,
)
from ai_platform_engineering.knowledge_bases.workers.frames import (
    HEADER,
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    BadFrame,
    Frame,
    Reply,
    decode_frame,
    decode_header,
    encode_frame,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values, max_size=4),
    max_leaves=12,
)
TEXT = "Größe of pods. 🚀"


@given(JSON_VALUES, st.binary(max_size=200))
def test_a_frame_comes_back_or_is_refused(head: Any, body: bytes) -> None:
    if not isinstance(head, dict):
        with pytest.raises(BadFrame, match="no object"):
            decode_frame(json.dumps(head).encode(), body)
        return
    data = b"".join(encode_frame(Frame(head, body)))
    head_size, body_size = decode_header(data[: HEADER.size])
    rest = data[HEADER.size :]
    assert len(rest) == head_size + body_size
    frame = decode_frame(rest[:head_size], rest[head_size:])
    assert json.dumps(frame.head) == json.dumps(head)
    assert frame.body == body


@pytest.mark.parametrize("sizes", [(MAX_HEAD_BYTES + 1, 0), (0, MAX_BODY_BYTES + 1), (2**32 - 1, 2**32 - 1)])
def test_a_frame_that_says_it_is_huge_is_not_read(sizes: tuple[int, int]) -> None:
    with pytest.raises(BadFrame, match="too large"):
        decode_header(struct.pack("!II", *sizes))


@pytest.mark.parametrize("head", [b"", b"{", b"\xff", b"[" * 100_000, b"nul", b'{"a":1'])
def test_a_head_that_is_no_json_is_refused(head: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_frame(head, b"")


def test_a_document_comes_back_as_it_was_read() -> None:
    chunks = tuple(
        Chunk(ordinal, f"(repeated)\n{TEXT}" if ordinal % 3 else TEXT, ("A", "B"), 0, len(TEXT))
        for ordinal in range(1_200)
    )
    document = ReadDocument("markdown", "Guide", TEXT, chunks)
    assert decode_read_document(encode_read_document(document)) == document


def _reply(rows: Any, **changes: Any) -> Reply:
    text = TEXT.encode()
    result = {"kind": "markdown", "title": "T", "text_bytes": len(text), **changes}
    return Reply(result, text + json.dumps(rows).encode())


@pytest.mark.parametrize(
    "reply",
    [
        Reply(),
        Reply({"kind": 1, "title": "T", "text_bytes": 0}),
        Reply({"kind": "text", "title": "T", "text_bytes": 1}, b"\xff"),
        _reply([[0, 999, [], None]]),
        _reply([[-1, 3, [], None]]),
        _reply([[5, 3, [], None]]),
        _reply([[0, 3, ["A", 7], None]]),
        _reply([[0, 3, "A", None]]),
        _reply([[0, 3, [], 7]]),
        _reply([[0, 3, [], "half a \ud83d sign"]]),
        _reply([[0, 3, ["half a \ud83d sign"], None]]),
        _reply([[0, len(TEXT), ["x" * 1_000_000], None]] * 9),  # more text than any document has
        _reply({"a": 1}),
        _reply(7),
        _reply([], title="x" * 20_000),
        _reply([], title="half a \ud83d sign"),
    ],
)
def test_a_document_that_no_reader_would_send_is_unreadable(reply: Reply) -> None:
    with pytest.raises(UnreadableDocument):
        decode_read_document(reply)


@given(JSON_VALUES, JSON_VALUES)
def test_whatever_comes_is_a_document_or_unreadable(rows: Any, title: Any) -> None:
    try:
        document = decode_read_document(_reply(rows, title=title))
    except UnreadableDocument:
        return
    assert isinstance(document.title, str)
    for chunk in document.chunks:
        assert 0 <= chunk.start <= chunk.end <= len(document.text)
