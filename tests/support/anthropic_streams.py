"""Bodies of streamed messages of Anthropic's protocol, with everything that its blocks can hold."""

import json
from collections.abc import Sequence
from typing import Any

from tests.support.openai_streams import ARGUMENTS, MULTIBYTE


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def _start(**fields: Any) -> bytes:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted-1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 1, "cache_read_input_tokens": 4},
        **fields,
    }
    return event("message_start", message=message)


def _delta(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def _block(index: int, block: dict[str, Any], *deltas: bytes) -> list[bytes]:
    return [
        event("content_block_start", index=index, content_block=block),
        *deltas,
        event("content_block_stop", index=index),
    ]


def _text(index: int, words: Sequence[str] = MULTIBYTE) -> list[bytes]:
    return _block(index, {"type": "text", "text": ""}, *(_delta(index, "text_delta", text=w) for w in words))


def _letters(index: int, text: str = ARGUMENTS) -> list[bytes]:
    return [_delta(index, "input_json_delta", partial_json=letter) for letter in ("", *text)]


def _tool(index: int, name: str, *deltas: bytes, **fields: Any) -> list[bytes]:
    block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}, **fields}
    return _block(index, block, *deltas)


def _end(reason: str = "end_turn", **fields: Any) -> list[bytes]:
    delta = {"stop_reason": reason, "stop_sequence": None, **fields}
    usage = {"input_tokens": 11, "output_tokens": 7, "cache_read_input_tokens": 4}
    return [event("message_delta", delta=delta, usage=usage), event("message_stop")]


PING = event("ping")
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
CITATION = {
    "type": "char_location",
    "cited_text": "Grüße",
    "document_index": 0,
    "document_title": "A",
    "start_char_index": 0,
    "end_char_index": 5,
    "file_id": None,
}

ANTHROPIC_STREAMS: dict[str, list[bytes]] = {
    "text": [_start(), PING, *_text(0), *_end()],
    "several blocks of text": [_start(), *_text(0), *_text(1), *_end()],
    "text in the start of its block": [
        _start(),
        *_block(0, {"type": "text", "text": "At "}, _delta(0, "text_delta", text="once.")),
        *_end(),
    ],
    "pings": [_start(), *(PING + piece for piece in _text(0)), *_end()],
    "a call in letters": [_start(), *_text(0), *_tool(1, "look", *_letters(1)), *_end("tool_use")],
    "several calls": [
        _start(),
        *_tool(0, "look", *_letters(0)),
        *_tool(1, "find", *_letters(1)),
        *_end("tool_use"),
    ],
    "blocks at the same time": [
        _start(),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_start", index=1, content_block={"type": "text", "text": ""}),
        *(_delta(n % 2, "text_delta", text=word) for n, word in enumerate(MULTIBYTE)),
        *_end(),
    ],
    "a call with its input at once": [_start(), *_tool(0, "look", input={"a": 1}), *_end("tool_use")],
    "arguments that are no JSON": [_start(), *_tool(0, "look", *_letters(0, '{"a": ')), *_end("tool_use")],
    "thinking": [
        _start(),
        *_block(
            0,
            THINKING,
            *(_delta(0, "thinking_delta", thinking=word) for word in MULTIBYTE),
            _delta(0, "signature_delta", signature="c2ln"),
        ),
        *_text(1),
        *_end(),
    ],
    "hidden thinking": [
        _start(),
        *_block(0, {"type": "redacted_thinking", "data": "eA=="}),
        *_text(1),
        *_end(),
    ],
    "citations": [
        _start(),
        *_block(
            0,
            {"type": "text", "text": "", "citations": []},
            _delta(0, "text_delta", text="It says "),
            _delta(0, "citations_delta", citation=CITATION),
            _delta(0, "text_delta", text="Grüße"),
            _delta(0, "text_delta", text="."),
            _delta(0, "citations_delta", citation={**CITATION, "document_index": 1}),
        ),
        *_end(),
    ],
    "a tool of the server": [
        _start(),
        *_block(
            0,
            {"type": "server_tool_use", "id": "srvtoolu_0", "name": "web_search", "input": {}},
            *_letters(0, '{"query": "x"}'),
        ),
        *_block(
            1,
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_0",
                "content": [
                    {
                        "type": "web_search_result",
                        "title": "T",
                        "url": "https://a.test",
                        "encrypted_content": "e",
                        "page_age": None,
                    }
                ],
            },
        ),
        *_text(2),
        *_end(),
    ],
    "a stop sequence": [_start(), *_text(0), *_end("stop_sequence", stop_sequence="END")],
    "a refusal": [_start(), *_text(0, ["I "]), *_end("refusal")],
    "more fields than are known": [
        _start(extra=1),
        event("content_block_start", index=0, content_block={"type": "text", "text": "", "more": 1}),
        _delta(0, "text_delta", text="a", more=1),
        _delta(0, "text_delta", text="b"),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "c"}, more=1),
        event("content_block_stop", index=0),
        *_end(),
    ],
    "unknown events and deltas": [
        _start(),
        event("something_new", value=1),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _delta(0, "new_delta", text="a"),
        _delta(0, "text_delta", text="b"),
        *_end(),
    ],
    "events without a name": [_start(), b'data: {"type": "content_block_stop"}\n\n', *_text(0), *_end()],
    "comments": [b": hello\n\n", _start(), *(b": keep\n" + piece for piece in _text(0)), *_end()],
    "data over several lines": [
        _start(),
        *(piece.replace(b'"index"', b'\ndata: "index"', 1) for piece in _text(0)),
        *_end(),
    ],
    "no end": [_start(), *_text(0)],
    "an event that does not end": [_start(), *_text(0), _end()[0].rstrip(b"\n")],
    "an error": [_start(), event("error", error={"type": "overloaded_error", "message": "Overloaded"})],
    "an error after text": [
        _start(),
        *_text(0),
        event("error", error={"type": "rate_limit_error", "message": "Slow down"}, request_id="req_1"),
        *_text(1),
    ],
    "an error that is no JSON": [_start(), *_text(0), b"event: error\ndata: broken\n\n"],
    "an error without data": [_start(), *_text(0), b"event: error\n\n"],
    "no JSON": [_start(), *_text(0, ["a", "b"]), b"event: content_block_delta\ndata: {oops\n\n"],
}
