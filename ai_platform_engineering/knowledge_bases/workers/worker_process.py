"""A worker as its users see it: started with the first call, ended when idle, started again when it died."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.knowledge_bases.workers.frames import Reply
from ai_platform_engineering.knowledge_bases.workers.running_worker import CallName, RunningWorker
from ai_platform_engineering.knowledge_bases.workers.worker_errors import (
    WorkerDied,
    WorkerFailed,
    WorkerNotStarted,
    WorkerTimeout,
    WorkerUnavailable,
)
from ai_platform_engineering.knowledge_bases.workers.worker_kinds import WorkerKind

log = logging.getLogger(__name__)

Prepare = Callable[[RunningWorker], Awaitable[None]]

_FIRST_DELAY = 0.1  # seconds before a start after a failure, doubled with each failure in a row
_MAX_DELAY = 30.0
_SHORT_DELAY = 1.0  # that every call waits for


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How workers are run. `max_calls`: calls without a reply; as many again wait for their turn."""

    idle_seconds: float = 300.0
    max_calls: int = 16
    redactor: Redactor = field(default_factory=Redactor)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a worker.

    `seconds`: for all of it; a process that has taken a call and does not reply in time is killed.
    `attempts`: with so many processes, if one dies; only for what may be done twice. `patient`: waits where a
    process may not be started yet because the last ones failed.
    """

    name: CallName
    arguments: Mapping[str, Any]
    body: bytes = b""
    seconds: float = 60.0
    attempts: int = 1
    patient: bool = False


class WorkerProcess:
    """Calls a worker. `prepare` makes the first calls of each process, for at most `prepare_seconds`;
    `close_seconds` is the time to save what is open, and without it a process is simply killed."""

    def __init__(
        self,
        kind: WorkerKind,
        options: WorkerOptions | None = None,
        *,
        prepare: Prepare | None = None,
        prepare_seconds: float = 60.0,
        close_seconds: float = 0.0,
    ) -> None:
        self._kind: WorkerKind = kind
        self._options = options or WorkerOptions()
        self._prepare = prepare
        self._prepare_seconds = prepare_seconds
        self._close_seconds = close_seconds
        self._running: RunningWorker | None = None
        self._starting: asyncio.Task[RunningWorker] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._slots = asyncio.Semaphore(self._options.max_calls)
        self._call_count = 0  # with a slot, or waiting for one
        self._failures = 0  # in a row: it died, could not be started, or did not answer
        self._crashes = 0  # in a row: it died
        self._not_before = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def crashes(self) -> int:
        """How often it has died in a row, without a reply between."""
        return self._crashes

    async def call(self, call: Call) -> Reply:
        """The reply to a call, for which the process is started if it does not run.

        Raises WorkerFailed, and errors that the worker passes on.
        """
        if self._call_count >= 2 * self._options.max_calls:
            raise self._too_busy()
        self._call_count += 1
        try:
            async with asyncio.timeout(call.seconds) as deadline, self._slots:
                return await self._call_until_answered(call, deadline)
        except TimeoutError:
            raise WorkerTimeout(
                f"The knowledge base's {self._kind} worker did not answer within {call.seconds:g} seconds."
            ) from None
        finally:
            self._call_count -= 1
            self._watch_idleness()

    async def start(self, *, seconds: float) -> None:
        """Starts the process, if it does not run, without a call. Raises WorkerFailed."""
        try:
            async with asyncio.timeout(seconds):
                await self._get_running(patient=False)
        except TimeoutError:
            raise WorkerTimeout(f"The knowledge base's {self._kind} worker is not ready yet.") from None
        finally:
            self._watch_idleness()

    async def aclose(self) -> None:
        """Ends the process in order; no other is started."""
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        self._end_running()
        if self._ending is not None:
            await asyncio.shield(self._ending)

    # --- a call

    async def _call_until_answered(self, call: Call, deadline: asyncio.Timeout) -> Reply:
        for remaining in reversed(range(call.attempts)):
            try:
                running = await self._get_running(patient=call.patient)
                return await self._call_running(running, call, deadline)
            except WorkerDied:
                if not remaining:
                    raise
        raise AssertionError("a call has one attempt at least")

    async def _call_running(self, running: RunningWorker, call: Call, deadline: asyncio.Timeout) -> Reply:
        if running.call_count >= 2 * self._options.max_calls:  # of callers that have given up
            raise self._too_busy()
        try:
            reply = await running.call(call.name, call.arguments, call.body)
        except WorkerDied:
            if self._drop(running):
                self._crashes += 1
            raise
        except asyncio.CancelledError:
            if deadline.expired() and self._drop(running):
                log.warning("the %s worker of the knowledge base does not answer and is ended", self._kind)
                self._begin_end(running.kill())
            raise
        self._failures = 0
        self._crashes = 0
        return reply

    async def _get_running(self, *, patient: bool) -> RunningWorker:
        if self._is_closed:
            raise WorkerUnavailable("The knowledge base is closed.")
        if self._running is not None and not self._running.ended.is_set():
            return self._running
        delay = self._not_before - asyncio.get_running_loop().time()
        if delay > _SHORT_DELAY and not patient:
            raise WorkerUnavailable(
                f"The knowledge base's {self._kind} worker fails again and again; "
                f"it is started again in {delay:.0f} seconds."
            )
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(delay), name=f"start of the {self._kind} worker")
            self._starting.add_done_callback(_retrieve_error)
        return await asyncio.shield(self._starting)

    def _too_busy(self) -> WorkerUnavailable:
        return WorkerUnavailable(
            f"The knowledge base's {self._kind} worker has too much to do. Try again in a moment."
        )

    # --- start and end

    async def _start(self, delay: float) -> RunningWorker:
        try:
            if self._ending is not None:
                await asyncio.shield(self._ending)
            if delay > 0:
                await asyncio.sleep(delay)
            self._running = await self._start_process()
            return self._running
        except (OSError, TimeoutError) as error:
            self._note_failure()
            raise WorkerFailed(
                f"The knowledge base's {self._kind} worker cannot be started ({type(error).__name__})."
            ) from error
        except WorkerDied as error:
            self._note_failure()
            self._crashes += 1
            raise WorkerNotStarted(str(error)) from None
        except WorkerFailed:
            self._note_failure()
            raise
        finally:
            self._starting = None

    async def _start_process(self) -> RunningWorker:
        running = await RunningWorker.start(self._kind, self._options.redactor)
        try:
            async with asyncio.timeout(self._prepare_seconds):
                if self._prepare is not None:
                    await self._prepare(running)
        except BaseException:
            await asyncio.shield(running.kill())
            raise
        return running

    def _drop(self, running: RunningWorker) -> bool:
        """Makes no more calls to a process that failed; False when another call has done that already."""
        if self._running is not running:
            return False
        self._running = None
        self._note_failure()
        return True

    def _note_failure(self) -> None:
        self._failures += 1
        delay = min(_MAX_DELAY, _FIRST_DELAY * 2.0 ** (self._failures - 1))
        self._not_before = asyncio.get_running_loop().time() + delay

    def _watch_idleness(self) -> None:
        """Ends the process when it has had nothing to do for a while."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if not self._call_count and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(self._options.idle_seconds, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if not self._call_count:
            self._end_running()

    def _end_running(self) -> None:
        running = self._running
        self._running = None
        if running is None:
            return
        if self._close_seconds:
            self._begin_end(running.close(self._close_seconds))
        else:
            self._begin_end(running.kill())

    def _begin_end(self, ending: Coroutine[Any, Any, None]) -> None:
        """Ends a process in the background; the next one is started after that."""
        previous = self._ending

        async def end() -> None:
            if previous is not None:
                await previous
            await ending

        self._ending = asyncio.create_task(end(), name=f"end of the {self._kind} worker")


def _retrieve_error(task: asyncio.Task[RunningWorker]) -> None:
    """All who waited for the start may have given up: its failure is no news then."""
    if not task.cancelled():
        task.exception()
