"""What the A2A servers of other people do in our tests: a question is a list of steps as JSON, played by an
agent on any SDK.

Standard library, starlette and uvicorn only: it also runs in the environment of the older SDK.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class Voice(Protocol):
    """How an agent speaks with one SDK."""

    async def open(self) -> None: ...
    async def status(self, state: str, text: str | None) -> None: ...
    async def artifact(
        self, artifact_id: str, name: str | None, parts: list[dict[str, Any]], append: bool, last: bool
    ) -> None: ...
    async def message(self, text: str) -> None: ...


class Stage:
    """Plays steps; gates are opened, and what arrived is read, over HTTP."""

    def __init__(self) -> None:
        self.server: uvicorn.Server | None = None
        self.requests: list[dict[str, Any]] = []
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._rest: dict[str, list[dict[str, Any]]] = {}
        self.routes = [
            Route("/gates/{name}", self._open_gate, methods=["POST"]),
            Route("/requests", self._report),
        ]

    async def play(self, voice: Voice, task_id: str, text: str) -> None:
        """The steps of a new question, or what is left of an older one; `{reply}` in it stands for the text
        given now."""
        rest = self._rest.pop(task_id, None)
        steps = json.loads(text) if rest is None else json.loads(json.dumps(rest).replace("{reply}", text))
        if rest is None and not any("message" in step for step in steps):
            await voice.open()
        for number, step in enumerate(steps):
            await self._do(voice, step)
            if step.get("status") == "input-required":
                self._rest[task_id] = steps[number + 1 :]
                return

    async def _do(self, voice: Voice, step: dict[str, Any]) -> None:
        match step:
            case {"status": state}:
                await voice.status(state, step.get("text"))
            case {"artifact": artifact_id}:
                parts = step.get("parts") or [{"text": step.get("text", "")}]
                await voice.artifact(
                    artifact_id, step.get("name"), parts, step.get("append", False), step.get("last", False)
                )
            case {"message": text}:
                await voice.message(text)
            case {"gate": name}:
                await self._gates[name].wait()
            case {"raise": text}:
                raise RuntimeError(text)
            case {"drop": _}:
                await asyncio.sleep(0)
                self.drop()
            case _:
                raise AssertionError(f"no such step: {step}")

    def drop(self) -> None:
        """Breaks every connection; the work goes on."""
        assert self.server is not None
        for connection in list(self.server.server_state.connections):
            connection.transport.abort()

    async def _open_gate(self, request: Request) -> Response:
        self._gates[request.path_params["name"]].set()
        return Response()

    async def _report(self, _: Request) -> Response:
        return JSONResponse(self.requests)

    def recording(self, app: Any) -> Any:
        """The application; of each call to the agent the method and the credentials are written down."""

        async def recorded(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != "/":
                return await app(scope, receive, send)
            seen: dict[str, Any] = {
                "authorization": dict(scope["headers"]).get(b"authorization", b"").decode()
            }
            body = bytearray()

            async def heard() -> Any:
                message = await receive()
                body.extend(message.get("body", b""))
                if message["type"] == "http.request" and not message.get("more_body"):
                    self.requests.append({**seen, "method": json.loads(bytes(body)).get("method")})
                return message

            return await app(scope, heard, send)

        return recorded


def serve(build: Callable[[str, Stage, bool], Any]) -> None:
    """Runs the application that is built for an address and prints the address; ends with the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-streaming", action="store_true")
    streaming = not parser.parse_args().no_streaming
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    stage = Stage()
    app = build(url, stage, streaming)
    app.router.routes.extend(stage.routes)
    stage.server = uvicorn.Server(uvicorn.Config(stage.recording(app), log_level="error"))
    os.write(1, f"{url}\n".encode())
    stage.server.run(sockets=[listener])
