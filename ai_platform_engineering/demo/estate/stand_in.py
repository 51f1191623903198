"""How a stand-in is described, and the faults that can be switched on for it."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ai_platform_engineering.demo.estate.estate import Estate

MAX_LATENCY_SECONDS = 60
MAX_RATE_LIMIT = 100_000
_MINUTE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RunningStandIn:
    """Where a stand-in listens, and the folder in which it may put files for its tool server."""

    url: str
    folder: Path


@dataclass(frozen=True, slots=True)
class StandIn:
    """A system that the demo replaces.

    `name` is the agent's name; `create_app` makes the REST API over the estate; `variables` are those that
    point the agent's tool server to the stand-in, with credentials that only the stand-in accepts, and
    writing allowed. Port 0 is a free one.
    """

    name: str
    create_app: Callable[[Estate], Starlette]
    variables: Callable[[RunningStandIn], Mapping[str, str]]
    port: int = 0


class Faults(BaseModel):
    """What goes wrong on purpose; all zero is a system without faults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    errors: float = Field(default=0.0, ge=0, le=1, description="share of requests answered with 503")
    latency: float = Field(default=0.0, ge=0, le=MAX_LATENCY_SECONDS, description="seconds before an answer")
    rate_limit: int = Field(default=0, ge=0, le=MAX_RATE_LIMIT, description="requests in a minute; 0: any")


@dataclass(slots=True)
class FaultSwitch:
    """The faults of one stand-in now; they can be changed while it runs."""

    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    _choice: random.Random = field(init=False)
    _minute_started_at: float = 0.0
    _requests_in_minute: int = 0

    def __post_init__(self) -> None:
        self._choice = random.Random(self.seed)

    def draw_error(self) -> bool:
        return self._choice.random() < self.faults.errors

    def seconds_to_wait(self) -> int:
        """Counts a request; 0, or the seconds until there is room again when it is above the limit."""
        if not self.faults.rate_limit:
            return 0
        now = time.monotonic()
        if now - self._minute_started_at >= _MINUTE_SECONDS:
            self._minute_started_at = now
            self._requests_in_minute = 0
        self._requests_in_minute += 1
        if self._requests_in_minute <= self.faults.rate_limit:
            return 0
        return int(self._minute_started_at + _MINUTE_SECONDS - now) + 1


class FaultMiddleware:
    """ASGI middleware of every stand-in: health is announced to observers, then the faults apply."""

    def __init__(self, app: ASGIApp, estate: Estate, switch: FaultSwitch) -> None:
        self._app = app
        self._estate = estate
        self._switch = switch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._estate.announce_health()
        if self._switch.faults.latency:
            await asyncio.sleep(self._switch.faults.latency)
        seconds = self._switch.seconds_to_wait()
        if seconds:
            body = _error_body(f"Rate limit exceeded, try again in {seconds} seconds")
            response = JSONResponse(body, 429, {"Retry-After": str(seconds)})
        elif self._switch.draw_error():
            response = JSONResponse(_error_body("Service unavailable (fault of the demo)"), 503)
        else:
            await self._app(scope, receive, send)
            return
        await response(scope, receive, send)


def _error_body(message: str) -> dict[str, object]:
    """In the shape of most systems and in Jira's, whose clients look for `errorMessages` alone."""
    return {"message": message, "errorMessages": [message]}
