"""A fake of OpenAI's chat completions that plays a script and checks histories as strictly as the
provider."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from .request import Msg, Request, ToolUse, named, parsed_args, text_of
from .script import CallArgs, CallOpened, Casting, Fail, Piece, Playback, Reasoning, Text, joined
from .serving import ModelServer, Wire, serving, sse

_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_TYPES = {401: "invalid_request_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


class OpenAIServer(ModelServer):
    """`/v1/chat/completions` and `/v1/models`."""

    path = "/v1/chat/completions"
    base = "/v1"

    def given_key(self, headers: Mapping[str, str]) -> str | None:
        """The bearer token."""
        return headers.get("authorization", "").removeprefix("Bearer ") or None

    def objection(self, body: dict[str, Any]) -> Fail | None:
        """Missing fields, unknown roles, bad tool names, calls without results and results without calls."""
        if not body.get("model"):
            return _invalid("you must provide a model parameter")
        if not body.get("messages"):
            return _invalid(
                "Invalid 'messages': empty array. Expected an array with minimum length 1.", "empty_array"
            )
        for n, tool in enumerate(body.get("tools") or []):
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool["function"]["name"]):
                return _invalid(
                    f"Invalid 'tools[{n}].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'.",
                    "invalid_value",
                )
        return _wrong_message(body["messages"]) or _wrong_order(body["messages"])

    def parse(self, body: dict[str, Any]) -> Request:
        """The body of a chat completion as a normalised request."""
        system = [text_of(m.get("content")) for m in body["messages"] if m["role"] in ("system", "developer")]
        return Request(
            system="\n".join(system),
            messages=named(map(_message, _conversation(body["messages"]))),
            tools=tuple(tool["function"]["name"] for tool in body.get("tools") or []),
            model=body["model"],
            stream=bool(body.get("stream")),
            raw=body,
            cache=self.automatic_cache.use(json.dumps([body.get("tools"), body["messages"]])),
        )

    def overflow(self, tokens: int, limit: int) -> Fail:
        """OpenAI's words for a prompt that is too long."""
        return _invalid(
            f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
            f"{tokens} tokens. "
            "Please reduce the length of the messages.",
            "context_length_exceeded",
        )

    def wire(self, playback: Playback) -> Wire:
        """Completion chunks."""
        return _Completion(playback)

    def error_body(self, fail: Fail) -> dict[str, Any]:
        """OpenAI's error object."""
        kind = _TYPES.get(fail.status, "server_error" if fail.status >= 500 else "invalid_request_error")
        return {
            "error": {
                "message": fail.message,
                "type": kind,
                "param": None,
                "code": fail.code or _CODES.get(fail.status),
            }
        }

    def model_list(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The models by name."""
        return {
            "object": "list",
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "scripted"} for name in names],
        }


class AzureOpenAIServer(OpenAIServer):
    """The same behind the paths of Azure, which names a deployment and takes its key in another header."""

    path = "/openai/deployments/{deployment}/chat/completions"
    base = ""

    def given_key(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("api-key")


def serve_azure(casting: Casting, *, api_key: str) -> AbstractAsyncContextManager[AzureOpenAIServer]:
    """Run the fake while the context is open; `url` is the endpoint."""
    return serving(AzureOpenAIServer(casting, api_key=api_key))


def serve_openai(
    casting: Casting, *, api_key: str | None = None, max_context_tokens: int | None = None
) -> AbstractAsyncContextManager[OpenAIServer]:
    """Run the fake while the context is open; `url` ends in `/v1`."""
    return serving(OpenAIServer(casting, api_key=api_key, max_context_tokens=max_context_tokens))


class _Completion(Wire):
    """One chat completion."""

    def __init__(self, playback: Playback) -> None:
        super().__init__(playback)
        # A new id for each reply: the client makes it the message id, and messages with equal ids replace
        # each other.
        self._id = playback.id or f"chatcmpl-{uuid.uuid4().hex}"
        self._sent, self._called = 0, False

    def head(self) -> bytes:
        return self._delta({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> bytes:
        self._sent += 1
        match piece:
            case Text(text=text):
                return self._delta({"content": text})
            case Reasoning(text=text):
                return self._delta({"reasoning_content": text})
            case CallOpened(index=index, id=call_id, name=name):
                self._called = True
                call = {
                    "index": index,
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": ""},
                }
                return self._delta({"tool_calls": [call]})
            case CallArgs(index=index, text=text):
                return self._delta({"tool_calls": [{"index": index, "function": {"arguments": text}}]})

    def tail(self) -> bytes:
        end = self._delta({}, self._finish(self._called))
        if (self.playback.request.raw.get("stream_options") or {}).get("include_usage"):
            end += sse(
                {**self._frame("chat.completion.chunk"), "choices": [], "usage": self._usage(self._sent)}
            )
        return end + b"data: [DONE]\n\n"

    def failure(self, fail: Fail) -> bytes:
        kind = "server_error" if fail.status >= 500 else "invalid_request_error"
        return sse({"error": {"message": fail.message, "type": kind, "param": None, "code": fail.code}})

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        text, reasoning, calls = joined(pieces)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text if text or not calls else None,
            "refusal": None,
        }
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": args}}
                for call, args in calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self._finish(bool(calls)),
        }
        return {**self._frame("chat.completion"), "choices": [choice], "usage": self._usage(len(pieces))}

    def _finish(self, called: bool) -> str:
        return "length" if self.playback.cut else "tool_calls" if called else "stop"

    def _frame(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": int(time.time()),
            "model": self.playback.request.model,
        }

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse({**self._frame("chat.completion.chunk"), "choices": [choice]})

    def _usage(self, sent: int) -> dict[str, Any]:
        prompt = self.playback.request.approximate_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": sent,
            "total_tokens": prompt + sent,
            "prompt_tokens_details": {"cached_tokens": self.playback.request.cache_read_tokens},
        }


def _conversation(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of people, models and tools: not those that only hold the images of results."""
    conversation: list[dict[str, Any]] = []
    before = ""
    for message in messages:
        role = message["role"]
        is_attachment = role == "user" and before == "tool" and _has_image(message)
        if role not in ("system", "developer") and not is_attachment:
            conversation.append(message)
        before = role
    return conversation


def _has_image(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part.get("type") == "image_url" for part in content)


def _message(raw: dict[str, Any]) -> Msg:
    text = text_of(raw.get("content"))
    match raw["role"]:
        case "assistant":
            calls = [(call["function"], call["id"]) for call in raw.get("tool_calls") or []]
            return Msg(
                "assistant", text, tuple(ToolUse(f["name"], parsed_args(f["arguments"]), i) for f, i in calls)
            )
        case "tool" | "function":
            return Msg("tool", text, tool_call_id=raw.get("tool_call_id"), tool=raw.get("name"))
        case _:
            return Msg("user", text)


def _invalid(message: str, code: str | None = None) -> Fail:
    return Fail(400, code, message)


def _wrong_message(messages: list[dict[str, Any]]) -> Fail | None:
    for n, message in enumerate(messages):
        if message.get("role") not in _ROLES:
            known = ", ".join(repr(role) for role in _ROLES)
            return _invalid(
                f"Invalid value: {message.get('role')!r}. Supported values are: {known}. "
                f"(messages[{n}].role)",
                "invalid_value",
            )
        if message["role"] != "user" and _has_image(message):
            return _invalid(
                f"Invalid 'messages[{n}]'. Image URLs are only allowed for messages with role 'user', but "
                f"this message with role '{message['role']}' contains an image URL.",
                "invalid_value",
            )
        if message.get("content") is None and not message.get("tool_calls"):
            return _invalid(
                f"Invalid value for 'content': expected a string, got null. (messages[{n}].content)"
            )
    return None


def _wrong_order(messages: list[dict[str, Any]]) -> Fail | None:
    waiting: list[str] = []
    for n, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return _invalid(
                    f"Invalid parameter: messages with role 'tool' must be a response to a preceeding "
                    f"message with 'tool_calls'. "
                    f"(messages[{n}].role, tool_call_id {message.get('tool_call_id')!r})"
                )
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return _invalid(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to "
                "each 'tool_call_id'. "
                f"The following tool_call_ids did not have response messages: {', '.join(waiting)}"
            )
        else:
            waiting = [call["id"] for call in message.get("tool_calls") or []]
    return None
