"""The asyncio tasks that execute runs: one task for each run that works, whoever waits for it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from ai_platform_engineering.core.errors import Fenced
from ai_platform_engineering.core.events import AnyEvent, Failed, Notice
from ai_platform_engineering.core.failure_text import describe_for_client
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.databases.sql_connections import StorageFailed
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.runs.admission import Admission
from ai_platform_engineering.runtime.runs.closing_events import closing_events
from ai_platform_engineering.runtime.runs.conversation_queues import ConversationQueues
from ai_platform_engineering.runtime.runs.input_requests import InputRequests
from ai_platform_engineering.runtime.runs.run_reader import load_transcript
from ai_platform_engineering.runtime.runs.turn import Turn, TurnRunner, derive_trace_id

log = logging.getLogger(__name__)

_STORAGE_RETRY_SECONDS = 2.0
_STARTED = "Work on this question has started."
_NO_END = "The run ended without an answer. Trying again may help."

MakeLastEvent = Callable[[str, str | None], AnyEvent]  # from the trace id and the unfinished text


class RunTasks:
    """Starts, wakes and stops the tasks of runs, and writes the end of a run that has none."""

    def __init__(
        self,
        run_log: RunLog,
        run_turn: TurnRunner,
        requests: InputRequests,
        queues: ConversationQueues,
        admission: Admission,
        cancel_grace: float,
    ) -> None:
        self._log = run_log
        self._replicas = run_log.replicas
        self._run_turn = run_turn
        self._requests = requests
        self._queues = queues
        self._admission = admission
        # One at a time: when the process dies again, the run that did it is known.
        self._last_attempt = asyncio.Lock()
        self._grace = cancel_grace
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken: set[str] = set()  # runs whose task must look again for answers before it ends

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._tasks

    @property
    def run_ids(self) -> list[str]:
        """The runs that have a task."""
        return list(self._tasks)

    def start(self, turn: Turn) -> None:
        """Starts a task for the run: it waits for its place in the queues, then runs the turn."""
        run_id = turn.row.run_id
        self._admission.add(turn.row)
        task = asyncio.create_task(self._work(turn), name=f"run:{run_id}")
        self._tasks[run_id] = task
        task.add_done_callback(lambda done: self._remove(run_id, done))

    def wake(self, turn: Turn) -> None:
        """Lets the run's task process new answers before it ends; starts one when there is none."""
        if turn.row.run_id in self._tasks:
            self._woken.add(turn.row.run_id)
        else:
            self.start(turn)

    async def wait(self, run_id: str) -> None:
        """Returns when the run has no task any more."""
        task = self._tasks.get(run_id)
        if task is not None:
            await asyncio.wait({task})

    async def wait_for_all(self, seconds: float) -> None:
        """Waits for all tasks, at most so long."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=seconds)

    async def stop(self, run_id: str) -> None:
        """Cancels the run's task, and waits a moment for it."""
        task = self._tasks.get(run_id)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=self._grace)

    async def fail(self, row: RunRow, message: str, code: str = "internal") -> None:
        """Ends the run with a failure."""
        await self.end(
            row,
            lambda trace_id, partial: Failed(message=message, code=code, trace_id=trace_id, partial=partial),
        )

    async def end(self, row: RunRow, make_last_event: MakeLastEvent) -> bool:
        """Writes the end under a new epoch: a task that ignores its cancellation cannot write any more.

        False when the run has ended already.
        """
        epoch = await self._log.advance_epoch(row.run_id)
        transcript = await load_transcript(self._log, row.run_id)
        last = make_last_event(derive_trace_id(row.run_id), transcript.unfinished_text())
        with contextlib.suppress(Fenced):
            await self._log.append(row.run_id, epoch, [*closing_events(transcript, answered=False), last])
            await self._queues.remove(row)
            return True
        return False

    def _remove(self, run_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(run_id) is task:
            self._unregister(run_id)

    def _unregister(self, run_id: str) -> None:
        self._tasks.pop(run_id, None)
        self._admission.leave(run_id)

    async def _work(self, first_turn: Turn) -> None:
        run_id = first_turn.row.run_id
        try:
            first_turn = await self._acquire(first_turn)
            first_turn = await self._mark_waiting(first_turn)
            await self._queues.wait_until_first(first_turn.row, notify=not first_turn.takes_over)
            if first_turn.is_last_attempt:
                async with self._last_attempt:
                    await self._run_turns(first_turn)
            else:
                await self._run_turns(first_turn)
        except Fenced:
            log.info("run %s has another owner or has ended; its work stops", run_id)
        except Exception as error:  # noqa: BLE001 - no reader waits for a run whose work has broken
            log.error("run %s: its work broke: %s", run_id, format_traceback(error))
            await self._fail_when_storable(first_turn, error)
        finally:
            row = await self._log.get(run_id)
            if row is None or row.status == "ended":
                await self._queues.remove(first_turn.row)
            elif self._replicas is not None and not _is_cancelled():
                await self._replicas.release(run_id, first_turn.row.epoch)

    async def _acquire(self, turn: Turn) -> Turn:
        """The turn of a run that waited for people, with the right to write it. Raises Fenced while another
        replica has that: it looks for answers itself before it gives the run up."""
        if self._replicas is None or not turn.resumes or turn.recovered:
            return turn
        row = await self._replicas.acquire(turn.row.run_id)
        if row is None:
            raise Fenced("Another replica works on the run.")
        return replace(turn, row=row)

    async def _run_turns(self, first_turn: Turn) -> None:
        """Runs the turn when it is admitted, and further ones as long as there are answers already."""
        turn: Turn | None = await self._admit(first_turn)
        while turn is not None:
            await self._run_turn(turn)
            await self._fail_unended(turn)
            turn = await self._next_turn(turn)

    async def _mark_waiting(self, turn: Turn) -> Turn:
        """Corrects what the log says of a run that was to work at once, and has to wait after all."""
        if not turn.marked:
            return turn
        if self._queues.is_first(turn.row) and self._admission.has_room(turn.row.principal):
            return turn
        await self._log.mark_attempt(turn.row.run_id, "waiting")
        return replace(turn, marked=False)

    async def _admit(self, turn: Turn) -> Turn:
        run_id = turn.row.run_id
        has_waited = await self._admission.enter(turn.row, has_begun=turn.resumes or turn.takes_over)
        if turn.recovered or not (turn.marked or turn.resumes):
            # Before anything else is done: when the process dies, it is known which runs it worked on.
            await self._log.mark_attempt(run_id, "working")
        if not turn.marked and not turn.resumes and await self._tell_start(turn.row):
            has_waited = True
        if not has_waited:
            return turn
        row = await self._log.get(run_id)
        if row is None:
            raise Fenced("The run is deleted.")
        # With the notices about its place, which are not the turn's own events.
        return replace(turn, row=replace(row, epoch=turn.row.epoch))

    async def _tell_start(self, row: RunRow) -> bool:
        """Tells the readers of a run that was queued that it works now; false when it was not."""
        transcript = await load_transcript(self._log, row.run_id)
        if transcript.state != "submitted":
            return False
        await self._log.append(row.run_id, row.epoch, [Notice(code="queue", text=_STARTED)])
        return True

    async def _next_turn(self, turn: Turn) -> Turn | None:
        """The next turn of a run that paused and has answers already.

        Without one, the task is unregistered at once: nothing may be awaited between the last look and that.
        """
        run_id = turn.row.run_id
        while True:
            self._woken.discard(run_id)
            row = await self._log.get(run_id)
            if row is not None and row.status == "paused" and await self._requests.has_claimed(run_id):
                return replace(turn, row=row, parts=(), resumes=True, takes_over=False, recovered=False)
            if run_id not in self._woken:
                self._unregister(run_id)
                return None

    async def _fail_when_storable(self, turn: Turn, error: Exception) -> None:
        """Fails a run whose work has broken, as soon as that can be stored: the disk may be full for now."""
        text = describe_for_client(error)
        message = text.message if text else _NO_END
        while True:
            try:
                await self._fail_unended(turn, message)
                return
            except StorageFailed:
                await asyncio.sleep(_STORAGE_RETRY_SECONDS)

    async def _fail_unended(self, turn: Turn, message: str = _NO_END) -> None:
        """Fails a run whose turn is over and has neither ended nor paused it.

        After a cancellation, whoever cancelled writes the end.
        """
        row = await self._log.get(turn.row.run_id)
        if row is None or _is_cancelled():
            return
        wrote_nothing = row.last_seq == turn.row.last_seq
        if row.status == "running" or (row.status == "paused" and wrote_nothing):
            await self.fail(row, message)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
