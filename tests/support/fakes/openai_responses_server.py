"""A fake of OpenAI's Responses API that plays a script and checks histories as strictly as the provider."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from .openai_server import OpenAIServer
from .request import Msg, Request, ToolUse, named, parsed_args, text_of
from .script import CallArgs, CallOpened, Casting, Fail, Piece, Playback, Reasoning, Text
from .serving import Wire, serving

_MESSAGE_ROLES = ("user", "assistant", "system", "developer")


class OpenAIResponsesServer(OpenAIServer):
    """`/v1/responses` and `/v1/models`; nothing is stored, so items cannot be named by their ids."""

    path = "/v1/responses"

    def objection(self, body: dict[str, Any]) -> Fail | None:
        """Missing fields, bad tool names, calls without outputs, outputs without calls, unknown items."""
        if not body.get("model"):
            return Fail(400, message="Missing required parameter: 'model'.")
        if "messages" in body or not body.get("input"):
            return Fail(400, "missing_required_parameter", "Missing required parameter: 'input'.")
        if body.get("store") is not False:
            return Fail(400, message="this server stores nothing")
        for number, tool in enumerate(body.get("tools") or []):
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool.get("name", "")):
                return Fail(400, "invalid_value", f"Invalid 'tools[{number}].name'.")
        return _wrong_item(body["input"]) or _wrong_order(body["input"])

    def parse(self, body: dict[str, Any]) -> Request:
        items = body["input"]
        system = [text_of(item["content"]) for item in items if item.get("role") in ("system", "developer")]
        return Request(
            system="\n".join(system),
            messages=named(_messages(items)),
            tools=tuple(tool["name"] for tool in body.get("tools") or []),
            model=body["model"],
            stream=bool(body.get("stream")),
            raw=body,
            cache=self.automatic_cache.use(json.dumps([body.get("tools"), items])),
        )

    def wire(self, playback: Playback) -> Wire:
        return _Response(playback)


def serve_openai_responses(
    casting: Casting, *, api_key: str | None = None, max_context_tokens: int | None = None
) -> AbstractAsyncContextManager[OpenAIResponsesServer]:
    """Run the fake while the context is open; `url` ends in `/v1`."""
    return serving(OpenAIResponsesServer(casting, api_key=api_key, max_context_tokens=max_context_tokens))


def _wrong_item(items: list[dict[str, Any]]) -> Fail | None:
    for number, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") not in _MESSAGE_ROLES:
            return Fail(400, "invalid_value", f"Invalid value: 'input[{number}].role'.")
        if kind == "message" and "id" in item:
            return Fail(404, message=f"Item with id '{item['id']}' not found.")
        if kind == "reasoning" and not item.get("encrypted_content"):
            return Fail(404, message=f"Item with id '{item.get('id')}' not found.")
        if kind not in ("message", "reasoning", "function_call", "function_call_output"):
            return Fail(400, "invalid_value", f"Invalid value: 'input[{number}].type' ({kind}).")
    return None


def _wrong_order(items: list[dict[str, Any]]) -> Fail | None:
    waiting: set[str] = set()
    for item in items:
        if item.get("type") == "function_call":
            waiting.add(item["call_id"])
        elif item.get("type") == "function_call_output":
            if item["call_id"] not in waiting:
                call_id = item["call_id"]
                return Fail(400, message=f"No tool call found for function call output {call_id}.")
            waiting.discard(item["call_id"])
        elif item.get("role") == "user" and waiting:
            break
    if waiting:
        return Fail(400, message=f"No tool output found for function call {sorted(waiting)[0]}.")
    return None


def _messages(items: list[dict[str, Any]]) -> list[Msg]:
    """The items as messages: texts and calls that follow each other are one message of the assistant."""
    messages: list[Msg] = []
    for item in items:
        match item.get("type", "message"):
            case "function_call":
                use = ToolUse(item["name"], parsed_args(item["arguments"]), item["call_id"])
                if messages and messages[-1].role == "assistant":
                    last = messages.pop()
                    messages.append(Msg("assistant", last.text, (*last.tool_calls, use)))
                else:
                    messages.append(Msg("assistant", "", (use,)))
            case "function_call_output":
                messages.append(Msg("tool", text_of(item["output"]), tool_call_id=item["call_id"]))
            case "message" if item["role"] in ("user", "assistant"):
                messages.append(Msg(item["role"], text_of(item["content"])))
            case _:
                pass
    return messages


class _Response(Wire):
    """One response; its output has an item for the text, for the reasoning and for each call."""

    def __init__(self, playback: Playback) -> None:
        super().__init__(playback)
        self._id = playback.id or f"resp_{uuid.uuid4().hex}"
        self._number = 0
        self._items: list[dict[str, Any]] = []
        self._sent = 0

    def head(self) -> bytes:
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def piece(self, piece: Piece) -> bytes:
        self._sent += 1
        match piece:
            case Text(text=text):
                opened, item = self._open("message")
                item["content"][0]["text"] += text
                delta = self._event("response.output_text.delta", content_index=0, delta=text, **_at(item))
                return opened + delta
            case Reasoning():
                opened, _ = self._open("reasoning")
                return opened
            case CallOpened(id=call_id, name=name):
                opened, _ = self._open("function_call", call_id=call_id, name=name)
                return opened
            case CallArgs(text=text):
                item = self._items[-1]
                item["arguments"] += text
                return self._event("response.function_call_arguments.delta", delta=text, **_at(item))

    def tail(self) -> bytes:
        status = "incomplete" if self.playback.cut else "completed"
        return self._close() + self._event(f"response.{status}", response=self._response(status))

    def failure(self, fail: Fail) -> bytes:
        error = {"code": fail.code or "server_error", "message": fail.message}
        return self._event("response.failed", response={**self._response("failed"), "error": error})

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        for piece in pieces:
            self.piece(piece)
        self._close()
        return self._response("incomplete" if self.playback.cut else "completed")

    def _open(self, kind: str, **fields: Any) -> tuple[bytes, dict[str, Any]]:
        """The item that a piece belongs to: the last one, or a new one after the end of that."""
        if kind != "function_call" and self._items and self._items[-1]["type"] == kind:
            return b"", self._items[-1]
        ended = self._close()
        item: dict[str, Any] = {"type": kind, "id": f"{kind}_{uuid.uuid4().hex[:8]}", "status": "in_progress"}
        item["output_index"] = len(self._items)
        match kind:
            case "message":
                item |= {
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "", "annotations": []}],
                }
            case "reasoning":
                item |= {"summary": [], "encrypted_content": f"sealed {item['id']}"}
            case _:
                item |= {"arguments": "", **fields}
        self._items.append(item)
        return ended + self._item_event("response.output_item.added", item), item

    def _close(self) -> bytes:
        if not self._items or self._items[-1]["status"] == "completed":
            return b""
        item = self._items[-1]
        item["status"] = "completed"
        closing = b""
        if item["type"] == "message":
            text = item["content"][0]["text"]
            closing = self._event("response.output_text.done", content_index=0, text=text, **_at(item))
        return closing + self._item_event("response.output_item.done", item)

    def _item_event(self, kind: str, item: dict[str, Any]) -> bytes:
        public = {name: value for name, value in item.items() if name != "output_index"}
        return self._event(kind, output_index=item["output_index"], item=public)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        body = json.dumps({"type": kind, "sequence_number": self._number, **fields})
        return f"event: {kind}\ndata: {body}\n\n".encode()

    def _response(self, status: str) -> dict[str, Any]:
        prompt = self.playback.request.approximate_tokens
        output = [{k: v for k, v in item.items() if k != "output_index"} for item in self._items]
        response: dict[str, Any] = {
            "id": self._id,
            "object": "response",
            "created_at": int(time.time()),
            "model": self.playback.request.model,
            "status": status,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        }
        if status in ("completed", "incomplete"):
            response["usage"] = {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": self.playback.request.cache_read_tokens},
                "output_tokens": self._sent,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + self._sent,
            }
        return response


def _at(item: dict[str, Any]) -> dict[str, Any]:
    return {"item_id": item["id"], "output_index": item["output_index"]}
