"""AIPlatformEngineerA2AExecutor: executes runs, each with exactly one end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ai_platform_engineering.core.errors import Fenced, RunTimeout
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    InputRequested,
    StoredEvent,
    ends_turn,
    is_terminal,
)
from ai_platform_engineering.core.run_context import answer_seconds
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.graph.failures import failed_event
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent import (
    AIPlatformEngineerA2ABinding,
)
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.runs.closing_events import closing_events
from ai_platform_engineering.runtime.runs.incoming_message import read_message
from ai_platform_engineering.runtime.runs.input_requests import set_expiry
from ai_platform_engineering.runtime.runs.run_writer import RunWriter, RunWriters
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.runs.turn import Turn
from ai_platform_engineering.runtime.server.call_context import owner_of_call
from ai_platform_engineering.utils.a2a_common.event_executor import EventExecutor

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StreamState:
    """The state of one turn of one run: its transcript so far, and whether it has ended."""

    turn: Turn
    writer: RunWriter
    transcript: Transcript = field(default_factory=Transcript)
    ended: bool = False

    async def write(self, event: AnyEvent) -> None:
        """Stores an event. Before a terminal one, what is open is closed; after it, events are dropped."""
        if self.ended:
            log.error("run %s: %s after its end is dropped", self.turn.row.run_id, event.kind)
            return
        if is_terminal(event):
            for closing_event in list(closing_events(self.transcript, answered=isinstance(event, Answered))):
                await self._store(closing_event)
            if isinstance(event, Failed | Cancelled) and event.partial is None:
                event = event.model_copy(update={"partial": self.transcript.unfinished_text()})
        self.ended = ends_turn(event)
        await self._store(event)

    async def _store(self, event: AnyEvent) -> None:
        await self.writer.write(event)
        self.transcript = self.transcript.apply(event)


class AIPlatformEngineerA2AExecutor(EventExecutor):
    """Executes runs: the binding produces events, the run log stores them, and readers follow the log."""

    def __init__(
        self,
        binding: AIPlatformEngineerA2ABinding,
        run_log: RunLog,
        settings: Settings,
        *,
        after_turn: Callable[[RunRow, bool], Awaitable[None]] | None = None,
    ) -> None:
        """`after_turn` is called when a turn is over and stored, with whether its run has ended, too."""
        super().__init__()
        self._binding = binding
        self._writers = RunWriters(run_log, settings.stream)
        self._settings = settings
        self._after_turn = after_turn
        self.runs = Runs(
            run_log,
            self.run_turn,
            busy=settings.server.busy,
            request_seconds=settings.people.request_seconds,
            limits=settings.limits,
            abandon=binding.cancel_remote_tasks,
        )

    async def run_turn(self, turn: Turn) -> None:
        """Runs one turn to its end or its next pause, and stores exactly one end."""
        row = turn.row
        state = StreamState(turn, self._writers.open(row.run_id, row.epoch))
        state.transcript = await self.runs.transcript(row.run_id)
        seconds = min(turn.seconds or math.inf, self._settings.limits.run_seconds)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                deadline = time.time() + seconds
                tools_until = deadline - answer_seconds(seconds)
                await self._write_events(replace(turn, deadline=deadline, tools_until=tools_until), state)
            if not state.ended:
                message = "The run ended without an answer. Trying again may help."
                await state.write(Failed(message=message, trace_id=turn.trace_id))
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the run ends with an event for people
            reason = RunTimeout(seconds) if isinstance(error, TimeoutError) and limit.expired() else error
            if not state.ended:
                await state.write(failed_event(reason, turn.trace_id))
        finally:
            await state.writer.close()
        log.info("run %s: %s", row.run_id, state.transcript.state)
        if self._after_turn is not None:
            await self._after_turn(row, state.transcript.has_ended)

    async def _write_events(self, turn: Turn, state: StreamState) -> None:
        async for event in self._binding.stream(turn, state.transcript):
            await state.write(set_expiry(event, self._settings.people.request_seconds, datetime.now(UTC)))

    async def open(self, context: RequestContext) -> AsyncIterator[StoredEvent]:
        if context.message is None:
            raise ValueError("the request has no message")
        incoming = read_message(
            context.message,
            owner=owner_of_call(context.call_context),
            principal=context.call_context.user.user_name,
            max_file_bytes=self._settings.server.max_file_bytes,
        )
        # The SDK's handler has chosen the ids, and the client learns them from it.
        if context.current_task is None:
            incoming = replace(incoming, context_id=context.context_id, task_id=None, run_id=context.task_id)
        else:
            incoming = replace(incoming, context_id=context.context_id, task_id=context.task_id)
        row, before = await self.runs.accept(incoming)
        return self.runs.follow(row.run_id, before)

    async def list_requests(self, task_id: str) -> Sequence[InputRequested]:
        return await self.runs.requests(task_id)

    async def stop(self, context: RequestContext) -> AsyncIterator[StoredEvent]:
        if context.task_id is None:
            raise ValueError("the request has no task")
        row = await self.runs.get(context.task_id, owner_of_call(context.call_context))
        await self.runs.cancel(row.run_id, by=context.call_context.user.user_name)
        return self.runs.follow(row.run_id, row.last_seq)
