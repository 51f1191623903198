"""AIPlatformEngineerA2AExecutor: the life of a task, from the first event to exactly one end."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from a2a.server.agent_execution import RequestContext

from ai_platform_engineering.a2a.message_parts import (
    is_new_question,
    read_busy_policy,
    read_parts,
    read_timeout,
)
from ai_platform_engineering.core.errors import Fenced, RunTimeout
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    StoredEvent,
    ends_turn,
    is_terminal,
)
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.graph.failures import failed_event
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent import (
    AIPlatformEngineerA2ABinding,
)
from ai_platform_engineering.runtime.log.run_log import RunLog, RunRow
from ai_platform_engineering.runtime.runs.closing_events import closing_events
from ai_platform_engineering.runtime.runs.incoming_message import IncomingMessage
from ai_platform_engineering.runtime.runs.input_requests import set_expiry
from ai_platform_engineering.runtime.runs.run_writer import RunWriter
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.runs.turn import Turn
from ai_platform_engineering.utils.a2a_common.base_langgraph_agent_executor import BaseLangGraphAgentExecutor

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StreamState:
    """What one turn of one run has said so far; nothing of it is shared between requests."""

    turn: Turn
    writer: RunWriter
    seen: Transcript = field(default_factory=Transcript)
    over: bool = False

    async def write(self, event: AnyEvent) -> None:
        """Stores an event. Before the last one, what is still open is closed; after it, nothing is taken."""
        if self.over:
            log.error("run %s: %s after its end is dropped", self.turn.row.run_id, event.kind)
            return
        if is_terminal(event):
            for rest in list(closing_events(self.seen, answered=isinstance(event, Answered))):
                await self._store(rest)
            if isinstance(event, Failed | Cancelled) and event.partial is None:
                event = event.model_copy(update={"partial": self.seen.unfinished_text()})
        self.over = ends_turn(event)
        await self._store(event)

    async def _store(self, event: AnyEvent) -> None:
        await self.writer.write(event)
        self.seen = self.seen.apply(event)


class AIPlatformEngineerA2AExecutor(BaseLangGraphAgentExecutor):
    """Drives runs: the binding produces events, the log keeps them, and readers follow the log."""

    def __init__(
        self,
        binding: AIPlatformEngineerA2ABinding,
        run_log: RunLog,
        settings: Settings,
        *,
        after: Callable[[RunRow, bool], Awaitable[None]] | None = None,
    ) -> None:
        """`after` is done when a turn is over and stored, with whether its run is as well."""
        super().__init__()
        self._binding = binding
        self._log = run_log
        self._settings = settings
        self._after = after
        self.runs = Runs(
            run_log,
            self.drive,
            busy=settings.server.busy,
            request_seconds=settings.people.request_seconds,
            abandon=binding.abandon,
        )

    async def drive(self, turn: Turn) -> None:
        """Works on one turn to its end or its next pause; never two ends, never none."""
        row = turn.row
        state = StreamState(turn, RunWriter(self._log, row.run_id, row.epoch, self._settings.stream))
        state.seen = await self.runs.transcript(row.run_id)
        seconds = min(turn.seconds or math.inf, self._settings.limits.run_seconds)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                async for event in self._binding.stream(
                    replace(turn, deadline=time.time() + seconds), state.seen
                ):
                    await state.write(
                        set_expiry(event, self._settings.people.request_seconds, datetime.now(UTC))
                    )
            if not state.over:
                await state.write(
                    Failed(
                        message="The run ended without an answer. Trying again may help.",
                        trace_id=turn.trace_id,
                    )
                )
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the task ends with words for a person
            shown = RunTimeout(seconds) if isinstance(error, TimeoutError) and limit.expired() else error
            if not state.over:
                await state.write(failed_event(shown, turn.trace_id))
        finally:
            await state.writer.close()
        log.info("run %s: %s", row.run_id, state.seen.state)
        if self._after is not None:
            await self._after(row, state.seen.state != "input-required")

    async def open(self, context: RequestContext) -> AsyncIterator[StoredEvent]:
        if context.message is None:
            raise ValueError("the request has no message")
        user = context.call_context.user.user_name
        continues = context.current_task is not None
        incoming = IncomingMessage(
            message_id=context.message.message_id,
            parts=read_parts(context.message, self._settings.server.max_file_bytes),
            owner=user,
            principal=user,
            context_id=context.context_id,
            task_id=context.task_id if continues else None,
            run_id=None if continues else context.task_id,
            seconds=read_timeout(context.message),
            busy=read_busy_policy(context.message),
            new_question=is_new_question(context.message),
        )
        row, before = await self.runs.accept(incoming)
        return self.runs.follow(row.run_id, before)

    async def stop(self, task_id: str, by: str) -> AsyncIterator[StoredEvent]:
        row = await self.runs.get(task_id, by)
        await self.runs.cancel(task_id, by)
        return self.runs.follow(task_id, row.last_seq)
