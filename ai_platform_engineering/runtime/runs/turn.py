"""A turn of a run, and the trace id of a run."""

import hashlib
import math
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ai_platform_engineering.a2a.message_parts import UserPart
from ai_platform_engineering.runtime.log.log_rows import RunRow


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a run: from the question, or from answers to its requests, to the end or the next pause."""

    row: RunRow
    parts: tuple[UserPart, ...]
    principal: str
    resumes: bool = False  # it continues with the answers that were claimed
    takes_over: bool = False  # it continues a turn whose process died
    recovered: bool = False  # it continues a run of an earlier process
    marked: bool = False  # the log says already that this process works on it
    is_last_attempt: bool = False  # one more crash, and the run is given up
    seconds: float | None = None  # how long the sender will wait
    deadline: float = math.inf  # Unix time; set when the turn begins to run
    tools_until: float = math.inf  # the same; from then on there is only time to answer

    @property
    def trace_id(self) -> str:
        return derive_trace_id(self.row.run_id)


TurnRunner = Callable[[Turn], Awaitable[None]]


def derive_trace_id(run_id: str) -> str:
    """The trace id of a run, 32 hex digits; derived, so that a run keeps it over a restart."""
    try:
        return uuid.UUID(run_id).hex
    except ValueError:
        return hashlib.sha256(run_id.encode()).hexdigest()[:32]
