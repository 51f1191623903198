"""What the agents of other frameworks do in our tests: a question is a list of model turns as JSON, played by
a scripted model inside the framework.

A turn is `{"say": [...], "call": {...}}`: pieces of text, which may be `{"gate": name}` or `{"raise": text}`,
then the arguments of a call of the tool `lookup`. Standard library, starlette and uvicorn only: it runs in
the environments of the frameworks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn
from a2a_steps import Stage
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

WORKING = "working"
ANSWERED = "answered"
STOPPED = "stopped"


class PeerStage(Stage):
    """The turns of all questions, and a record of how far the model's work on each question is."""

    def __init__(self) -> None:
        super().__init__()
        self._turns_taken: Counter[str] = Counter()
        self.outcomes: dict[str, str] = {}
        self.routes.append(Route("/outcomes", self._report_outcomes))

    async def speak(self, question: str) -> AsyncIterator[str | dict[str, Any]]:
        """The pieces of the model's next turn on a question; a call is its arguments, and comes last."""
        turns = json.loads(question)
        turn = turns[self._turns_taken[question]]
        self._turns_taken[question] += 1
        self.outcomes[question] = WORKING
        try:
            for piece in turn.get("say", []):
                if isinstance(piece, str):
                    yield piece
                    await asyncio.sleep(0)  # each piece is a frame of its own
                elif "gate" in piece:
                    await self._gates[piece["gate"]].wait()
                else:
                    raise RuntimeError(piece["raise"])
        except (asyncio.CancelledError, GeneratorExit):
            self.outcomes[question] = STOPPED
            raise
        if "call" in turn:
            yield turn["call"]
        else:
            self.outcomes[question] = ANSWERED

    async def _report_outcomes(self, _: Request) -> Response:
        return JSONResponse(self.outcomes)


def lookup(app: str) -> dict[str, Any]:
    """Looks up the version of an application."""
    if app == "broken":
        return {"error": "The registry is away."}
    return {"version": f"{app} 2.9"}


def serve_peer(build: Callable[[str, PeerStage, str], Any], modes: tuple[str, ...]) -> None:
    """Runs the application that is built for an address and a mode, and prints the address."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=modes)
    mode = parser.parse_args().mode
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    stage = PeerStage()
    app = build(url, stage, mode)
    app.router.routes.extend(stage.routes)
    config = uvicorn.Config(stage.recording(app), log_level="critical", timeout_graceful_shutdown=1)
    stage.server = uvicorn.Server(config)
    os.write(1, f"{url}\n".encode())
    stage.server.run(sockets=[listener])
