"""A fake of Amazon Bedrock's Converse API that plays a script and checks histories as strictly as the
provider; its streams are binary, in the framing of AWS event streams."""

from __future__ import annotations

import binascii
import json
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse

from .prompt_cache import bedrock_blocks
from .request import Msg, Request, ToolUse, named, parsed_args, text_of
from .script import CallArgs, CallOpened, Casting, Fail, Piece, Playback, Reasoning, Text, joined
from .serving import ModelServer, Wire, serving

# What LangChain takes for a model that streams and calls tools.
MODEL_PREFIX = "anthropic.claude-sonnet-4-"

_SIGNATURE = "c2NyaXB0ZWQ="
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_STRING = 7  # the type of a header's value
_ERRORS = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}


class BedrockServer(ModelServer):
    """`/model/{model}/converse` and `/model/{model}/converse-stream`."""

    path = "/model/{model}/{operation}"

    def given_key(self, headers: Mapping[str, str]) -> str | None:
        """The access key that the request is signed with."""
        match = re.search(r"Credential=([^/]+)/", headers.get("authorization", ""))
        return match[1] if match else None

    async def read_body(self, http: HttpRequest) -> dict[str, Any]:
        """The body, with the model and the operation of the path."""
        body = await super().read_body(http)
        streams = http.path_params["operation"] == "converse-stream"
        return {**body, "modelId": http.path_params["model"], "stream": streams}

    def objection(self, body: dict[str, Any]) -> Fail | None:
        """Bad or no tools, roles that do not alternate, blank texts, calls and results that do not match."""
        messages = body.get("messages") or []
        if not messages or messages[0]["role"] != "user":
            return _invalid("A conversation must start with a user message. Try again with a conversation.")
        return _wrong_tools(body) or _wrong_message(messages) or _wrong_order(messages)

    def parse(self, body: dict[str, Any]) -> Request:
        """The body of a converse request as a normalised request."""
        return Request(
            system=text_of(body.get("system")),
            messages=named(part for message in body["messages"] for part in _messages(message)),
            tools=_tool_names(body),
            model=body["modelId"].removeprefix(MODEL_PREFIX),
            stream=body["stream"],
            raw=body,
            cache=self.marked_cache.use(bedrock_blocks(body)),
        )

    def overflow(self, tokens: int, limit: int) -> Fail:
        """Bedrock's words for a prompt that is too long."""
        return _invalid(f"The model returned the following errors: prompt is too long: {tokens} > {limit}")

    def wire(self, playback: Playback) -> Wire:
        """Events of a converse stream."""
        return _Converse(playback)

    def error_body(self, fail: Fail) -> dict[str, Any]:
        return {"message": fail.message}

    def refusal(self, fail: Fail) -> JSONResponse:
        """The error, whose name is in a header."""
        status = 503 if fail.status == 529 else fail.status
        headers = {"x-amzn-ErrorType": _error_name(fail)}
        return JSONResponse(self.error_body(fail), status_code=status, headers=headers)

    def model_list(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {"modelSummaries": [{"modelId": f"{MODEL_PREFIX}{name}"} for name in names]}


def serve_bedrock(
    casting: Casting, *, api_key: str | None = None, max_context_tokens: int | None = None
) -> AbstractAsyncContextManager[BedrockServer]:
    """Run the fake while the context is open; `url` is the endpoint, `api_key` the access key id."""
    return serving(BedrockServer(casting, api_key=api_key, max_context_tokens=max_context_tokens))


class _Converse(Wire):
    """One message: content blocks one after another; only a call has an event that opens its block."""

    content_type = "application/vnd.amazon.eventstream"

    def __init__(self, playback: Playback) -> None:
        super().__init__(playback)
        self._block = -1
        self._open = ""
        self._sent = 0
        self._called = False

    def head(self) -> bytes:
        return event_frame("messageStart", {"role": "assistant"})

    def piece(self, piece: Piece) -> bytes:
        self._sent += 1
        match piece:
            case Text(text=text):
                return self._begin("text") + self._delta({"text": text})
            case Reasoning(text=text):
                return self._begin("reasoning") + self._delta({"reasoningContent": {"text": text}})
            case CallOpened(id=call_id, name=name):
                self._called = True
                before = self._close() + self._begin("call")
                start = {"toolUse": {"toolUseId": call_id, "name": name}}
                opened = event_frame("contentBlockStart", {"start": start, "contentBlockIndex": self._block})
                return before + opened
            case CallArgs(text=text):
                return self._delta({"toolUse": {"input": text}})

    def tail(self) -> bytes:
        metadata = {"usage": self._usage(self._sent), "metrics": {"latencyMs": 1}}
        return (
            self._close()
            + event_frame("messageStop", {"stopReason": self._stop(self._called)})
            + event_frame("metadata", metadata)
        )

    def failure(self, fail: Fail) -> bytes:
        name = _error_name(fail)
        kind = name[0].lower() + name[1:]
        headers = {":message-type": "exception", ":exception-type": kind}
        return _frame(headers, {"message": fail.message})

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        text, reasoning, calls = joined(pieces)
        content: list[dict[str, Any]] = []
        if reasoning:
            reasoning_text = {"text": reasoning, "signature": _SIGNATURE}
            content.append({"reasoningContent": {"reasoningText": reasoning_text}})
        if text:
            content.append({"text": text})
        for call, arguments in calls:
            tool_use = {"toolUseId": call.id, "name": call.name, "input": parsed_args(arguments)}
            content.append({"toolUse": tool_use})
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": self._stop(bool(calls)),
            "usage": self._usage(len(pieces)),
            "metrics": {"latencyMs": 1},
        }

    def _stop(self, called: bool) -> str:
        if self.playback.cut:
            return "max_tokens"
        return "tool_use" if called else "end_turn"

    def _usage(self, sent: int) -> dict[str, int]:
        request = self.playback.request
        read, created = request.cache_read_tokens, request.cache_created_tokens
        return {
            "inputTokens": request.approximate_tokens - read - created,
            "outputTokens": sent,
            "totalTokens": request.approximate_tokens + sent,
            "cacheReadInputTokens": read,
            "cacheWriteInputTokens": created,
        }

    def _begin(self, kind: str) -> bytes:
        if kind == self._open:
            return b""
        before = self._close()
        self._block += 1
        self._open = kind
        return before

    def _close(self) -> bytes:
        if not self._open:
            return b""
        signature = b""
        if self._open == "reasoning":
            signature = self._delta({"reasoningContent": {"signature": _SIGNATURE}})
        self._open = ""
        return signature + event_frame("contentBlockStop", {"contentBlockIndex": self._block})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return event_frame("contentBlockDelta", {"delta": delta, "contentBlockIndex": self._block})


def event_frame(kind: str, payload: Mapping[str, Any]) -> bytes:
    """One event of a stream."""
    return _frame({":message-type": "event", ":event-type": kind}, payload)


def _frame(headers: Mapping[str, str], payload: Mapping[str, Any]) -> bytes:
    """A frame of AWS's event streams: lengths and their checksum, headers, payload, the checksum of all."""
    packed_headers = b""
    for name, value in {**headers, ":content-type": "application/json"}.items():
        packed_headers += struct.pack("!B", len(name)) + name.encode()
        packed_headers += struct.pack("!BH", _STRING, len(value)) + value.encode()
    body = json.dumps(payload, ensure_ascii=False).encode()
    lengths = struct.pack("!II", 16 + len(packed_headers) + len(body), len(packed_headers))
    message = lengths + struct.pack("!I", binascii.crc32(lengths)) + packed_headers + body
    return message + struct.pack("!I", binascii.crc32(message))


def _error_name(fail: Fail) -> str:
    default = _ERRORS[503] if fail.status > 500 else _ERRORS[400]
    return _ERRORS.get(fail.status, default)


def _invalid(message: str) -> Fail:
    return Fail(400, message=message)


def _tool_names(body: Mapping[str, Any]) -> tuple[str, ...]:
    tools = (body.get("toolConfig") or {}).get("tools") or []
    return tuple(tool["toolSpec"]["name"] for tool in tools if "toolSpec" in tool)


def _messages(message: Mapping[str, Any]) -> list[Msg]:
    """One message of the wire, with tool results and user text apart."""
    blocks = message["content"]
    text = "".join(block["text"] for block in blocks if "text" in block)
    if message["role"] == "assistant":
        uses = [block["toolUse"] for block in blocks if "toolUse" in block]
        calls = tuple(ToolUse(use["name"], use["input"], use["toolUseId"]) for use in uses)
        return [Msg("assistant", text, calls)]
    results = [
        Msg("tool", text_of(result["content"]), tool_call_id=result["toolUseId"])
        for result in _pick(message, "toolResult")
    ]
    if text or not results:
        return [*results, Msg("user", text)]
    return results


def _pick(message: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """The blocks of one kind in a message."""
    return [block[kind] for block in message["content"] if kind in block]


def _wrong_tools(body: Mapping[str, Any]) -> Fail | None:
    names = _tool_names(body)
    for name in names:
        if not _NAME.fullmatch(name):
            return _invalid(
                f"Value '{name}' at 'toolConfig.tools' failed to satisfy constraint: [a-zA-Z0-9_-]+"
            )
    if len(set(names)) < len(names):
        return _invalid("The tool names in toolConfig must be unique.")
    uses_tools = any(
        _pick(message, "toolUse") or _pick(message, "toolResult") for message in body["messages"]
    )
    if uses_tools and not names:
        return _invalid(
            "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        )
    return None


def _wrong_message(messages: Sequence[Mapping[str, Any]]) -> Fail | None:
    role_before = "assistant"
    for number, message in enumerate(messages):
        if message["role"] == role_before:
            return _invalid(
                "A conversation must alternate between user and assistant roles. Make sure the conversation "
                f"alternates between user and assistant roles and try again. (messages.{number})"
            )
        role_before = message["role"]
        if not message["content"]:
            return _invalid(
                f"The content field in the Message object at messages.{number} is empty. Add a ContentBlock "
                "object to the content field and try again."
            )
        for block_number, block in enumerate(message["content"]):
            if not block.get("text", "x").strip():
                return _invalid(
                    f"The text field in the ContentBlock object at messages.{number}.content.{block_number} "
                    "is blank. Add text to the text field, and try again."
                )
        for use in _pick(message, "toolUse"):
            if not _NAME.fullmatch(use["toolUseId"]):
                return _invalid(f"Value '{use['toolUseId']}' at 'toolUseId' failed to satisfy constraint.")
    return None


def _wrong_order(messages: Sequence[Mapping[str, Any]]) -> Fail | None:
    waiting: list[str] = []
    for number, message in enumerate([*messages, {"role": "end", "content": []}]):
        results = [result["toolUseId"] for result in _pick(message, "toolResult")]
        missing = [call_id for call_id in waiting if call_id not in results]
        if missing:
            return _invalid(
                f"Expected toolResult blocks at messages.{number}.content for the following Ids: "
                f"{', '.join(missing)}"
            )
        if len(results) > len(waiting):
            return _invalid(
                f"The number of toolResult blocks at messages.{number}.content exceeds the number of toolUse "
                "blocks of previous turn."
            )
        waiting = [use["toolUseId"] for use in _pick(message, "toolUse")]
    return None
