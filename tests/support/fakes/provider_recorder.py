"""A loopback server in the place of any model provider: records requests, and gives one short answer."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.harness import serve_app

ANSWER = "Recorded."
ACCESS_TOKEN = "access-token-of-the-recorder"

_COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 0,
    "model": "recorded",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}},
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
_MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "recorded",
    "content": [{"type": "text", "text": ANSWER}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
_CONVERSE = {
    "output": {"message": {"role": "assistant", "content": [{"text": ANSWER}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
    "metrics": {"latencyMs": 1},
}
_CANDIDATES = {
    "candidates": [
        {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [{"text": ANSWER}]}}
    ],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}
# By the end of the path: OpenAI, Azure and Groq; Anthropic; Bedrock; Google.
_ANSWERS: Mapping[str, dict[str, Any]] = {
    "/chat/completions": _COMPLETION,
    "/messages": _MESSAGE,
    "/converse": _CONVERSE,
    ":generateContent": _CANDIDATES,
}


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class ProviderRecorder:
    """`url` has no slash at its end."""

    url: str
    requests: list[RecordedRequest] = field(default_factory=list)


@contextlib.asynccontextmanager
async def record_provider() -> AsyncIterator[ProviderRecorder]:
    recorder = ProviderRecorder("")

    async def answer(http: Request) -> Response:
        path = http.scope["raw_path"].decode()
        request = RecordedRequest(path, http.url.query, dict(http.headers), await http.body())
        recorder.requests.append(request)
        for suffix, content in _ANSWERS.items():
            if path.endswith(suffix):
                return JSONResponse(content)
        return JSONResponse({"error": {"message": "no provider has this path"}}, 404)

    async with serve_app(Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])) as url:
        recorder.url = url.rstrip("/")
        yield recorder
