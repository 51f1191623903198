"""Bodies of streamed chat completions, as OpenAI and compatible servers send them, with their oddities."""

import json
from collections.abc import Sequence
from typing import Any

MULTIBYTE = ["Grüße", ", ", "Welt 🚀", " 你好", "\u2028", " e\u0301", '"\\"', "\n\n", " done"]
_DONE = b"data: [DONE]\n\n"
_USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event(_frame(choices=[choice], **more))


def _frame(**fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "scripted-1",
        "system_fingerprint": "fp_1",
        **fields,
    }


def _choices(*choices: dict[str, Any]) -> bytes:
    return event(_frame(choices=list(choices)))


def _raw_text(text: bytes) -> bytes:
    """A chunk with this JSON string."""
    return chunk({"content": "TEXT"}).replace(b"TEXT", text)


def _text(words: Sequence[str]) -> list[bytes]:
    return [chunk({"content": word}) for word in words]


def _call(
    index: int | None, *, id: str | None = None, name: str | None = None, args: str | None = None
) -> Any:
    call: dict[str, Any] = {"function": {}}
    if index is not None:
        call["index"] = index
    if id is not None:
        call |= {"id": id, "type": "function"}
    if name is not None:
        call["function"]["name"] = name
    if args is not None:
        call["function"]["arguments"] = args
    return call


def _calls(*calls: Any) -> bytes:
    return chunk({"tool_calls": list(calls)})


ROLE = chunk({"role": "assistant", "content": "", "refusal": None})
STOP = chunk({}, "stop", service_tier="default")
CALLED = chunk({}, "tool_calls")
USAGE = event(_frame(choices=[], usage=_USAGE))
END = [STOP, USAGE, _DONE]
ARGUMENTS = '{"city": "Zürich 🚀", "days": 3}'
OPEN_0 = _calls(_call(0, id="call_0", name="look", args=""))
OPEN_1 = _calls(_call(1, id="call_1", name="find", args=""))


def _letters(index: int, text: str) -> list[bytes]:
    return [_calls(_call(index, args=letter)) for letter in text]


def _interleaved() -> list[bytes]:
    pairs = zip(_letters(0, ARGUMENTS), _letters(1, ARGUMENTS), strict=True)
    return [piece for pair in pairs for piece in pair]


OPENAI_STREAMS: dict[str, list[bytes]] = {
    "text": [ROLE, *_text(MULTIBYTE), *END],
    "text without a role": [*_text(MULTIBYTE), *END],
    "a role in every chunk": [
        *(chunk({"role": "assistant", "content": word}) for word in MULTIBYTE),
        *END,
    ],
    "null content at first": [chunk({"role": "assistant", "content": None}), *_text(MULTIBYTE), *END],
    "empty deltas": [ROLE, chunk({}), *_text(["", "a", "", "b", ""]), chunk(None), *END],
    "everything in one chunk": [chunk({"role": "assistant", "content": "all"}, "stop"), USAGE, _DONE],
    "the reason with the last text": [ROLE, *_text(["a", "b"]), chunk({"content": "c"}, "length"), _DONE],
    "a call in letters": [ROLE, OPEN_0, *_letters(0, ARGUMENTS), CALLED, USAGE, _DONE],
    "calls one after the other": [
        ROLE,
        OPEN_0,
        *_letters(0, ARGUMENTS),
        OPEN_1,
        *_letters(1, ARGUMENTS),
        CALLED,
        _DONE,
    ],
    "calls at the same time": [ROLE, OPEN_0, OPEN_1, *_interleaved(), CALLED, _DONE],
    "two calls in one delta": [
        ROLE,
        _calls(
            _call(0, id="call_0", name="look", args='{"a":'), _call(1, id="call_1", name="find", args="{")
        ),
        _calls(_call(0, args="1}"), _call(1, args="}")),
        CALLED,
        _DONE,
    ],
    "a whole call": [
        _calls(_call(0, id="call_0", name="look", args=ARGUMENTS)),
        CALLED,
        _DONE,
    ],
    "a name in pieces": [
        ROLE,
        _calls(_call(0, id="call_0", name="lo", args="")),
        _calls(_call(0, name="ok", args="{")),
        _calls(_call(0, args="}")),
        CALLED,
        _DONE,
    ],
    "an id of its own": [
        ROLE,
        _calls(_call(0, name="look", args="")),
        _calls(_call(0, id="call_0", args="{")),
        _calls(_call(0, args="}")),
        CALLED,
        _DONE,
    ],
    "calls without a number": [
        ROLE,
        _calls(_call(None, id="call_0", name="look", args="{}")),
        _calls(_call(None, id="call_1", name="find", args="{}")),
        CALLED,
        _DONE,
    ],
    "empty names and ids": [
        ROLE,
        OPEN_0,
        *(_calls(_call(0, id="", name="", args=letter)) for letter in "{}"),
        CALLED,
        _DONE,
    ],
    "a number that is no integer": [
        ROLE,
        _calls(_call(0, id="call_0", name="look", args="{")),
        _calls({**_call(0, args="}"), "index": "0"}),
        CALLED,
        _DONE,
    ],
    "a call without arguments": [ROLE, _calls(_call(0, id="call_0", name="look")), CALLED, _DONE],
    "arguments that are no JSON": [ROLE, OPEN_0, *_letters(0, '{"a": '), CALLED, _DONE],
    "text and calls": [ROLE, *_text(["I ", "look."]), OPEN_0, *_letters(0, "{}"), CALLED, _DONE],
    "calls and text": [ROLE, OPEN_0, *_letters(0, "{}"), *_text(["I ", "looked."]), STOP, _DONE],
    "text in the delta of a call": [
        ROLE,
        chunk({"content": "so: ", "tool_calls": [_call(0, id="call_0", name="look", args="{")]}),
        chunk({"content": "and ", "tool_calls": [_call(0, args="}")]}),
        CALLED,
        _DONE,
    ],
    "a function call of old": [
        ROLE,
        chunk({"function_call": {"name": "look", "arguments": "{"}}),
        chunk({"function_call": {"name": None, "arguments": "}"}}),
        chunk({}, "function_call"),
        _DONE,
    ],
    "a refusal": [
        chunk({"role": "assistant", "content": None, "refusal": ""}),
        *(chunk({"refusal": word}) for word in ("I ", "cannot.")),
        chunk({}, "content_filter"),
        _DONE,
    ],
    "reasoning": [
        chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
        *(chunk({"reasoning_content": word}) for word in MULTIBYTE),
        *(chunk({"reasoning": word, "content": None}) for word in MULTIBYTE),
        *_text(MULTIBYTE),
        *END,
    ],
    "annotations": [
        ROLE,
        *_text(["See "]),
        chunk({"content": "this", "annotations": [{"type": "url_citation", "url": "https://a.test"}]}),
        *END,
    ],
    "log probabilities": [
        ROLE,
        _choices(
            {
                "index": 0,
                "delta": {"content": "so"},
                "logprobs": {"content": [{"token": "so", "logprob": -1, "bytes": None}], "refusal": None},
            }
        ),
        *END,
    ],
    "usage in every chunk": [
        chunk({"role": "assistant", "content": ""}, usage={**_USAGE, "completion_tokens": 0}),
        *(chunk({"content": word}, usage=_USAGE) for word in ("a", "b")),
        chunk({}, "stop", usage=_USAGE),
        _DONE,
    ],
    "usage of null": [
        chunk({"role": "assistant", "content": ""}, usage=None),
        *(chunk({"content": word}, usage=None) for word in MULTIBYTE),
        *END,
    ],
    "a filter's chunk without a choice": [
        event(
            {"id": "", "object": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": []}
        ),
        ROLE,
        *_text(MULTIBYTE),
        *END,
    ],
    "two choices": [
        _choices(*({"index": n, "delta": {"content": f"{n}"}, "finish_reason": None} for n in (0, 1))),
        _choices(*({"index": n, "delta": {"content": f"{n}"}, "finish_reason": None} for n in (1, 0))),
        *END,
    ],
    "a choice without a delta": [ROLE, _choices({"index": 0, "finish_reason": None}), *END],
    "an id in the delta": [ROLE, chunk({"id": "msg-1", "content": "a"}), *_text(["b"]), *END],
    "few fields": [
        *(event({"choices": [{"delta": {"content": word}}]}) for word in MULTIBYTE),
        event({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
        _DONE,
    ],
    "comments": [
        b": PROCESSING\n\n",
        b":\n\n",
        ROLE,
        b": PROCESSING\n\n",
        *(b": keep-alive\n\n" + piece for piece in _text(MULTIBYTE)),
        b":" + b" " * 300 + b"\n\n",
        *END,
    ],
    "other fields of events": [
        b"event: message\nretry: 100\n" + ROLE,
        *(b"event: message\nunknown: x\n" + piece for piece in _text(MULTIBYTE)),
        b"id: 7\n" + STOP,
        _DONE,
    ],
    "data over several lines": [
        ROLE,
        *(piece.replace(b'"choices"', b'\ndata: "choices"', 1) for piece in _text(MULTIBYTE)),
        *END,
    ],
    "no space before the data": [
        piece.replace(b"data: ", b"data:", 1) for piece in (ROLE, *_text(MULTIBYTE), *END)
    ],
    "many blank lines": [b"\n\n" + piece + b"\n" for piece in (ROLE, *_text(MULTIBYTE), *END)],
    "escapes": [
        ROLE,
        _raw_text(rb"\u00fc"),
        _raw_text(rb"\ud83d\ude80"),
        _raw_text(rb"\ud83d"),
        _raw_text(rb"\ude80"),
        _raw_text(rb"\u2028\n\/"),
        *END,
    ],
    "numbers that few parsers take": [
        ROLE,
        chunk({"content": "a"}).replace(b"1700000000", b"NaN"),
        chunk({"content": "b"}).replace(b"1700000000", b"1" * 40),
        *END,
    ],
    "no end mark": [ROLE, *_text(MULTIBYTE), STOP],
    "more behind the end mark": [ROLE, *_text(["a"]), *END, *_text(["never"]), b"data: {\n\n"],
    "an event that does not end": [ROLE, *_text(["a", "b"]), chunk({"content": "lost"}).rstrip(b"\n")],
    "nothing": [],
    "only the end mark": [_DONE],
    "an error": [
        event({"error": {"message": "The server had an error", "type": "server_error", "code": "e1"}})
    ],
    "an error after text": [
        ROLE,
        *_text(MULTIBYTE),
        event({"error": {"message": "Overloaded", "type": "server_error", "param": None, "code": None}}),
        *_text(["never"]),
    ],
    "an error that is a word": [ROLE, *_text(["a"]), event({"error": "broken"})],
    "an error without words": [ROLE, *_text(["a"]), event({"error": {"code": 500}})],
    "an error in a chunk": [ROLE, *_text(["a"]), chunk({"content": "b"}, error={"message": "no", "code": 1})],
    "too long a conversation": [
        event({"error": {"message": "Your input exceeds the context window of this model.", "code": "c"}})
    ],
    "no JSON": [ROLE, *_text(["a", "b"]), b"data: {oops\n\n", *_text(["never"])],
    "no UTF-8": [ROLE, *_text(["a"]), b'data: {"x": "\xff"}\n\n', *_text(["never"])],
}
