"""The yardstick: a proxy that passes the tokens of a model on as A2A events: no agent, no log, no framework.

    python -m benchmarks.load.plain_proxy PORT MODEL_URL

It is what an engineer would write in an hour: httpx line by line, one JSON and one write for each token.
"""

import json
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


def create_app(model_url: str) -> Starlette:
    client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=None)

    async def ready(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ask(request: Request) -> Response:
        body = await request.json()
        text = body["params"]["message"]["parts"][0]["text"]
        return StreamingResponse(stream(body["id"], text), media_type="text/event-stream")

    async def stream(request_id: Any, text: str) -> AsyncIterator[str]:
        ids = {"taskId": str(uuid.uuid4()), "contextId": str(uuid.uuid4())}
        artifact: dict[str, Any] = {"artifactId": str(uuid.uuid4()), "name": "streaming_result"}
        started = False
        prompt = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": text}]}

        def frame(result: dict[str, Any]) -> str:
            return f"data: {json.dumps({'jsonrpc': '2.0', 'id': request_id, 'result': result})}\n\n"

        task = {"id": ids["taskId"], "contextId": ids["contextId"], "status": {"state": "submitted"}}
        yield frame({"kind": "task", **task})
        async with client.stream("POST", f"{model_url}/chat/completions", json=prompt) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    content = choice["delta"].get("content")
                    if content:
                        artifact["parts"] = [{"kind": "text", "text": content}]
                        update = {"kind": "artifact-update", **ids, "artifact": artifact, "append": started}
                        yield frame(update)
                        started = True
        status = {"state": "completed"}
        yield frame({"kind": "status-update", **ids, "status": status, "final": True})

    return Starlette(routes=[Route("/", ask, methods=["POST"]), Route("/ready", ready)])


if __name__ == "__main__":
    uvicorn.run(
        create_app(sys.argv[2]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        loop="uvloop",
        http="httptools",
    )
