"""A fake of Anthropic's messages API that plays a script and checks histories as strictly as the provider."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from .prompt_cache import MAX_MARKS, anthropic_blocks
from .request import Msg, Request, ToolUse, named, parsed_args, text_of
from .script import CallArgs, CallOpened, Casting, Fail, Piece, Playback, Reasoning, Text, joined
from .serving import ModelServer, Wire, serving, sse

_SIGNATURE = "c2NyaXB0ZWQ="
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicServer(ModelServer):
    """`/v1/messages` and `/v1/models`."""

    path = "/v1/messages"

    def given_key(self, headers: Mapping[str, str]) -> str | None:
        """The `x-api-key` header."""
        return headers.get("x-api-key")

    def objection(self, body: dict[str, Any]) -> Fail | None:
        """Missing fields, unknown roles, bad or no tools, empty texts, `tool_use` without result and results
        without `tool_use`."""
        for name in ("model", "max_tokens", "messages"):
            if name not in body:
                return _invalid(f"{name}: Field required")
        if not body["messages"]:
            return _invalid("messages: at least one message is required")
        names = [tool["name"] for tool in body.get("tools") or []]
        for n, name in enumerate(names):
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name):
                return _invalid(
                    f"tools.{n}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
                )
        if len(set(names)) < len(names):
            return _invalid("tools: Tool names must be unique.")
        if not names and _has_calls(body["messages"]):
            return _invalid("Requests which include `tool_use` or `tool_result` blocks must define tools.")
        return _wrong_marks(body) or _wrong_message(body["messages"]) or _wrong_order(body["messages"])

    def parse(self, body: dict[str, Any]) -> Request:
        """The body of a messages request as a normalised request."""
        return Request(
            system=text_of(body.get("system")),
            messages=named(part for m in body["messages"] for part in _messages(m)),
            tools=_callable_tools(body),
            model=body["model"],
            stream=bool(body.get("stream")),
            raw=body,
            cache=self.marked_cache.use(anthropic_blocks(body)),
        )

    def overflow(self, tokens: int, limit: int) -> Fail:
        """Anthropic's words for a prompt that is too long."""
        return _invalid(f"prompt is too long: {tokens} tokens > {limit} maximum")

    def wire(self, playback: Playback) -> Wire:
        """Message events."""
        return _Message(playback)

    def error_body(self, fail: Fail) -> dict[str, Any]:
        """Anthropic's error object."""
        return _error(fail)

    def model_list(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The models by name."""
        models = [
            {"id": name, "type": "model", "display_name": name, "created_at": "2025-01-01T00:00:00Z"}
            for name in names
        ]
        return {"data": models, "has_more": False, "first_id": names[0], "last_id": names[-1]}


def serve_anthropic(
    casting: Casting, *, api_key: str | None = None, max_context_tokens: int | None = None
) -> AbstractAsyncContextManager[AnthropicServer]:
    """Run the fake while the context is open; `url` is the bare address."""
    return serving(AnthropicServer(casting, api_key=api_key, max_context_tokens=max_context_tokens))


class _Message(Wire):
    """One message: content blocks that are opened, filled and closed one after another."""

    def __init__(self, playback: Playback) -> None:
        super().__init__(playback)
        self._id = playback.id or f"msg_{uuid.uuid4().hex[:24]}"
        self._block, self._open, self._sent, self._called = -1, "", 0, False

    def head(self) -> bytes:
        start = {**self._frame([]), "stop_reason": None, "usage": self._usage(1)}
        return _event("message_start", message=start) + _event("ping")

    def piece(self, piece: Piece) -> bytes:
        self._sent += 1
        match piece:
            case Text(text=text):
                return self._opened("text", {"type": "text", "text": ""}) + self._delta(
                    "text_delta", text=text
                )
            case Reasoning(text=text):
                thinking = {"type": "thinking", "thinking": "", "signature": ""}
                return self._opened("thinking", thinking) + self._delta("thinking_delta", thinking=text)
            case CallOpened(id=call_id, name=name):
                self._called = True
                block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                return (
                    self._closed()
                    + self._opened("tool_use", block)
                    + self._delta("input_json_delta", partial_json="")
                )
            case CallArgs(text=text):
                return self._delta("input_json_delta", partial_json=text)

    def tail(self) -> bytes:
        delta = {"stop_reason": self._stop(self._called), "stop_sequence": None}
        return (
            self._closed()
            + _event("message_delta", delta=delta, usage=self._usage(self._sent))
            + _event("message_stop")
        )

    def failure(self, fail: Fail) -> bytes:
        return sse(_error(fail), "error")

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        text, reasoning, calls = joined(pieces)
        content: list[dict[str, Any]] = []
        if reasoning:
            content.append({"type": "thinking", "thinking": reasoning, "signature": _SIGNATURE})
        if text:
            content.append({"type": "text", "text": text})
        content += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": parsed_args(args)}
            for call, args in calls
        ]
        return {
            **self._frame(content),
            "stop_reason": self._stop(bool(calls)),
            "usage": self._usage(len(pieces)),
        }

    def _stop(self, called: bool) -> str:
        return "max_tokens" if self.playback.cut else "tool_use" if called else "end_turn"

    def _frame(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        model = self.playback.request.model
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_sequence": None,
        }

    def _usage(self, sent: int) -> dict[str, int]:
        request = self.playback.request
        read, created = request.cache_read_tokens, request.cache_created_tokens
        return {
            "input_tokens": request.approximate_tokens - read - created,
            "output_tokens": sent,
            "cache_creation_input_tokens": created,
            "cache_read_input_tokens": read,
        }

    def _opened(self, kind: str, block: dict[str, Any]) -> bytes:
        if kind == self._open:
            return b""
        before = self._closed()
        self._block, self._open = self._block + 1, kind
        return before + _event("content_block_start", index=self._block, content_block=block)

    def _closed(self) -> bytes:
        if not self._open:
            return b""
        sign = self._delta("signature_delta", signature=_SIGNATURE) if self._open == "thinking" else b""
        self._open = ""
        return sign + _event("content_block_stop", index=self._block)

    def _delta(self, kind: str, **fields: str) -> bytes:
        return _event("content_block_delta", index=self._block, delta={"type": kind, **fields})


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _error(fail: Fail) -> dict[str, Any]:
    kind = _TYPES.get(fail.status, "api_error" if fail.status >= 500 else "invalid_request_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": fail.message},
        "request_id": f"req_{uuid.uuid4().hex[:24]}",
    }


def _invalid(message: str) -> Fail:
    return Fail(400, message=message)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def _callable_tools(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the tools that the model may call: none of those declared when the choice says so."""
    if (body.get("tool_choice") or {}).get("type") == "none":
        return ()
    return tuple(tool["name"] for tool in body.get("tools") or [])


def _has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    blocks = [
        block for message in messages if isinstance(message["content"], list) for block in message["content"]
    ]
    return any(block.get("type") in ("tool_use", "tool_result") for block in blocks)


def _messages(message: dict[str, Any]) -> list[Msg]:
    """One message of the wire, with tool results and user text apart."""
    blocks = _blocks(message)
    text = "".join(b["text"] for b in blocks if b["type"] == "text")
    if message["role"] == "assistant":
        return [
            Msg(
                "assistant",
                text,
                tuple(ToolUse(b["name"], b["input"], b["id"]) for b in blocks if b["type"] == "tool_use"),
            )
        ]
    results = [
        Msg("tool", text_of(b.get("content")), tool_call_id=b["tool_use_id"])
        for b in blocks
        if b["type"] == "tool_result"
    ]
    return [*results, Msg("user", text)] if text or not results else results


def _wrong_marks(body: dict[str, Any]) -> Fail | None:
    marks = sum(is_marked for _, is_marked in anthropic_blocks(body))
    if marks > MAX_MARKS:
        return _invalid(f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {marks}.")
    for message in body["messages"]:
        for block in _blocks(message):
            if "cache_control" in block and block["type"] in ("thinking", "redacted_thinking"):
                return _invalid("cache_control: Extra inputs are not permitted")
    return None


def _wrong_message(messages: list[dict[str, Any]]) -> Fail | None:
    for n, message in enumerate(messages):
        if message.get("role") not in ("user", "assistant"):
            return _invalid(f"messages.{n}.role: Input should be 'user' or 'assistant'")
        blocks = _blocks(message)
        if not blocks and not (message["role"] == "assistant" and n == len(messages) - 1):
            return _invalid(
                f"messages.{n}: all messages must have non-empty content except for the optional final "
                f"assistant message"
            )
        if any(b["type"] == "text" and not b["text"] for b in blocks):
            return _invalid(f"messages.{n}: text content blocks must be non-empty")
    return None


def _wrong_order(messages: list[dict[str, Any]]) -> Fail | None:
    waiting: list[str] = []
    for n, message in enumerate([*messages, {"role": "end"}]):
        blocks = _blocks(message)
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        first = [b["tool_use_id"] for b in blocks[: len(results)] if b["type"] == "tool_result"]
        if missing := [call for call in waiting if call not in first]:
            return _invalid(
                f"messages.{n - 1}: `tool_use` ids were found without `tool_result` blocks immediately "
                f"after: {', '.join(missing)}. "
                "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            )
        for result in results:
            if result not in waiting:
                return _invalid(
                    f"messages.{n}.content: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{result}. "
                    "Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                    "message."
                )
            waiting.remove(result)
        waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
    return None
