"""Runs: a run is started once, owns its execution, and outlives the request that brought it."""

import asyncio
import contextlib
import hashlib
import logging
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from ai_platform_engineering.a2a.message_parts import UserPart, hash_parts, is_scope_part
from ai_platform_engineering.core.errors import Fenced, MessageConflict, Refused, RunNotFound, WrongState
from ai_platform_engineering.core.events import (
    AnyEvent,
    Cancelled,
    Failed,
    Notice,
    RunStarted,
    StoredEvent,
    TextPart,
    ends_turn,
)
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.runtime.log.run_log import NewRun, RunLog, RunRow
from ai_platform_engineering.runtime.runs.answers import is_answer, read_request_ids
from ai_platform_engineering.runtime.runs.closing_events import closing_events
from ai_platform_engineering.runtime.runs.incoming_message import BusyPolicy, IncomingMessage
from ai_platform_engineering.runtime.runs.input_requests import InputRequests, RequestsDropped

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Turn:
    """One stretch of a run: from its question, or from answers to what it asked, to its end or the next pause."""

    row: RunRow
    parts: tuple[UserPart, ...]
    principal: str
    resumes: bool = False  # with the answers that were claimed
    takes_over: bool = False  # its process died in the middle
    seconds: float | None = None
    deadline: float = math.inf  # since the epoch; known when the work begins

    @property
    def trace_id(self) -> str:
        return derive_trace_id(self.row.run_id)


def derive_trace_id(run_id: str) -> str:
    """The trace id of a run, 32 hex digits; derived, so that a run keeps it over a restart."""
    try:
        return uuid.UUID(run_id).hex
    except ValueError:
        return hashlib.sha256(run_id.encode()).hexdigest()[:32]


_ENDED = "The task has ended. Send the message with the context id alone to go on with the conversation."
_BUSY = (
    "The task is working. Cancel it, wait for it, or send the message with the context id alone to queue it."
)
_NO_END = "The run ended without an answer. Trying again may help."

TurnRunner = Callable[[Turn], Awaitable[None]]
_Line = tuple[str, str]


def _new_run(message: IncomingMessage, parts: tuple[UserPart, ...]) -> NewRun:
    return NewRun(
        run_id=message.run_id or str(uuid.uuid4()),
        context_id=message.context_id or str(uuid.uuid4()),
        owner=message.owner,
        message_id=message.message_id,
        digest=hash_parts(message.parts),
        started=RunStarted(
            message_id=message.message_id, parts=parts, owner=message.owner, principal=message.principal
        ),
        lasting_id=message.context_id is not None,
    )


class Runs:
    """Starts, continues, cancels and follows runs. A conversation works on one run at a time, in the order they came."""

    def __init__(
        self,
        run_log: RunLog,
        drive: TurnRunner,
        *,
        cancel_grace: float = 2.0,
        busy: BusyPolicy = "enqueue",
        request_seconds: float = math.inf,
        abandon: Callable[[RunRow], Awaitable[None]] | None = None,
    ) -> None:
        """`busy`: what becomes of a question to a conversation that works on another one, when it does not say so itself. `abandon`
        stops what a run that waited has left with others, when it is cancelled."""
        self._log = run_log
        self._drive = drive
        self._grace = cancel_grace
        self._busy = busy
        self._abandon = abandon
        self._asking = InputRequests(run_log, request_seconds)
        self._holder = str(uuid.uuid4())
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken: set[str] = set()  # runs whose work must look again for answers before it ends
        self._lines: dict[_Line, list[str]] = {}
        self._moved: dict[_Line, asyncio.Condition] = {}
        self._doors: WeakValueDictionary[_Line, asyncio.Lock] = WeakValueDictionary()

    async def accept(self, message: IncomingMessage) -> tuple[RunRow, int]:
        """The run that works on the message and the number before its turn. A known message finds its run again."""
        if (known := await self._known_answer(message)) is not None:
            return known
        asking = await self._asking_run(message)
        if asking is not None:
            async with self._door(asking):  # of two answers at once, one finds what the other has left
                taken = await self._answer(asking, message)
                if isinstance(taken, RequestsDropped):
                    return await self._drop(asking, message, taken)
                return taken
        new = _new_run(message, message.parts)
        async with self._doors.setdefault(
            (new.owner, new.context_id), asyncio.Lock()
        ):  # of two at once, one finds the other at work
            await self._make_way(message)
            row, is_new = await self._log.create(new)
        if is_new:
            self._begin(row, message, message.parts)
        return row, 0

    async def _drop(
        self, asking: RunRow, message: IncomingMessage, dropped: RequestsDropped
    ) -> tuple[RunRow, int]:
        """Drops what was asked, and starts anew with what was held. That is stored first: a crash in between loses nothing."""
        asking = await self.get(asking.run_id, asking.owner)
        if dropped.held is None:
            await self._log.store_answer(message.answer(asking))
            await self.cancel(asking.run_id, message.principal)
            return asking, asking.last_seq
        parts = (TextPart(text=dropped.held), *filter(is_scope_part, message.parts))
        row, is_new = await self._log.create(_new_run(replace(message, context_id=asking.context_id), parts))
        await self._log.store_answer(replace(message.answer(row), before=0))
        await self.cancel(asking.run_id, message.principal)
        if is_new:
            self._begin(row, message, parts)
        return row, 0

    def _begin(self, row: RunRow, message: IncomingMessage, parts: tuple[UserPart, ...]) -> None:
        log.info("run %s started, context %s", row.run_id, row.context_id)
        self._lines.setdefault(self._line(row), []).append(row.run_id)
        self._spawn(Turn(row, parts, message.principal, seconds=message.seconds))

    async def _make_way(self, message: IncomingMessage) -> None:
        """What a conversation works on is refused company, or stopped, when the message wants it so."""
        busy = message.busy or self._busy
        if busy == "enqueue" or message.context_id is None:
            return
        rows = await self._log.find_runs(message.owner, message.context_id)
        working = [row for row in rows if row.status == "running"]
        if not working or any(row.message_id == message.message_id for row in rows):
            return
        if busy == "reject":
            raise WrongState(
                "The conversation works on another question. Wait for its answer, cancel it, or send this one to be queued."
            )
        for row in working:
            await self.cancel(row.run_id, message.principal)

    async def get(self, run_id: str, owner: str) -> RunRow:
        """The owner's run; a run of somebody else is not found."""
        row = await self._log.get(run_id)
        if row is None or row.owner != owner:
            raise RunNotFound(f"There is no task {run_id}.")
        return row

    async def find_runs(self, owner: str, context_id: str | None = None) -> list[RunRow]:
        return await self._log.find_runs(owner, context_id)

    async def events(self, run_id: str, upto: int | None = None) -> list[StoredEvent]:
        """The stored events, up to a number or all."""
        found: list[StoredEvent] = []
        while upto is None or len(found) < upto:
            more = await self._log.read(run_id, len(found))
            if not more:
                break
            found += more
        if upto is None:
            return found
        return found[:upto]

    async def read(self, run_id: str, after: int) -> list[StoredEvent]:
        return await self._log.read(run_id, after)

    async def wait_for_event(self, run_id: str, after: int) -> None:
        await self._log.wait_for_event(run_id, after)

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[StoredEvent]:
        """The events above a number as they are stored, until the turn ends."""
        while True:
            for item in await self._log.read(run_id, after):
                yield item
                after = item.seq
                if ends_turn(item.event):
                    return
            await self._log.wait_for_event(run_id, after)

    async def transcript(self, run_id: str) -> Transcript:
        return fold(item.event for item in await self.events(run_id))

    async def cancel(self, run_id: str, by: str) -> bool:
        """Stops the run. False when it ended before the cancel was stored: what was stored first counts."""
        row = await self._log.get(run_id)
        if row is None or row.status == "ended":
            return False
        await self._stop(run_id)
        ended = await self._end(
            row, lambda trace_id, partial: Cancelled(by=by, trace_id=trace_id, partial=partial)
        )
        if ended and row.status == "paused" and self._abandon is not None:
            await self._abandon(row)  # nobody works on it who could hand the cancellation down
        return ended

    async def expire(self) -> None:
        """Tells of the requests whose time has come, in runs that wait for them."""
        for run_id in await self._asking.overdue():
            row = await self._log.get(run_id)
            if row is None:
                continue
            async with self._door(row):
                if run_id not in self._tasks:
                    await self._asking.tell_expired(run_id)

    async def recover(self) -> int:
        """Takes over what a process that is gone has left unfinished; to be called once, before anything is accepted."""
        rows = await self._log.find_unfinished()
        for row in rows:
            self._lines.setdefault(self._line(row), []).append(row.run_id)
        working = [
            row for row in rows if row.status == "running" or await self._asking.is_answered(row.run_id)
        ]
        for row in working:
            epoch = await self._log.lease(row.run_id, self._holder, 0, force=True)
            first = (await self._log.read(row.run_id, 0, 1))[0].event
            if epoch is not None and isinstance(first, RunStarted):
                log.info("run %s goes on after a restart", row.run_id)
                over = row.status == "running"
                self._spawn(
                    Turn(
                        replace(row, epoch=epoch),
                        first.parts,
                        row.principal,
                        resumes=not over,
                        takes_over=over,
                    )
                )
        return len(working)

    async def hand_over(self, patience: float) -> None:
        """Lets what works finish for a while, and stops the rest without an end: the next start goes on with it."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=patience)
        await asyncio.gather(*(self._stop(run_id) for run_id in list(self._tasks)))

    async def close(self, message: str, patience: float = 0.0) -> None:
        """Stops everything that works; each run ends with the message, so that no reader waits for ever."""
        if self._tasks and patience:
            await asyncio.wait(list(self._tasks.values()), timeout=patience)

        async def end(row: RunRow) -> None:
            await self._stop(row.run_id)
            await self._end(
                row,
                lambda trace_id, partial: Failed(
                    message=message, code="shutdown", trace_id=trace_id, partial=partial
                ),
            )

        working = [row for run_id in list(self._tasks) if (row := await self._log.get(run_id)) is not None]
        await asyncio.gather(*(end(row) for row in working))

    async def _known_answer(self, message: IncomingMessage) -> tuple[RunRow, int] | None:
        """The run that this message continued when it came before."""
        context_id = message.context_id
        if context_id is None and message.task_id is not None:
            context_id = (await self.get(message.task_id, message.owner)).context_id
        answer = (
            await self._log.find_answer(message.owner, context_id, message.message_id) if context_id else None
        )
        if answer is None:
            return None
        if answer.digest != hash_parts(message.parts):
            raise MessageConflict()
        row = await self.get(answer.run_id, message.owner)
        if row.status == "paused" and row.last_seq == answer.before and row.run_id not in self._tasks:
            return None  # the process died before it was taken in
        return row, answer.before

    async def _asking_run(self, message: IncomingMessage) -> RunRow | None:
        """The run that the message answers: one that waits, or the one of whose requests it speaks."""
        if is_answer(message.parts):
            return await self._answered_run(message)
        if message.task_id is not None:
            row = await self.get(message.task_id, message.owner)
            if message.context_id is not None and message.context_id != row.context_id:
                raise Refused("The task belongs to another context.")
            if row.status == "ended":
                raise WrongState(_ENDED)
            if row.status == "running":
                raise WrongState(_BUSY)
            return row
        if message.context_id is None:
            return None
        rows = await self._log.find_runs(message.owner, message.context_id)
        if any(row.message_id == message.message_id for row in rows):
            return None  # a question of this conversation, sent again, is no answer
        paused = next((row for row in rows if row.status == "paused"), None)
        if paused is not None and message.new_question:
            await self.cancel(paused.run_id, message.principal)
            return None
        return paused

    async def _answered_run(self, message: IncomingMessage) -> RunRow:
        """The run of the requests that an answer names; else the one that waits in its conversation, or asked there last."""
        if message.task_id is not None:
            return await self.get(message.task_id, message.owner)
        for request_id in read_request_ids(message.parts):
            request = await self._log.request(request_id)
            row = await self._log.get(request.run_id) if request is not None else None
            if (
                row is not None
                and row.owner == message.owner
                and message.context_id in (None, row.context_id)
            ):
                return row
        rows = await self._log.find_runs(message.owner, message.context_id) if message.context_id else []
        asked = [row for row in rows if row.status == "paused"] or [
            row for row in rows if await self._log.requests(row.run_id)
        ]
        if not asked:
            raise WrongState("There is nothing to answer: no request of this conversation is known.")
        return asked[0]

    async def _answer(
        self, before: RunRow, message: IncomingMessage
    ) -> "tuple[RunRow, int] | RequestsDropped":
        """What becomes of a message to a run that asks. An answer only claims its requests: the run's own work takes them in."""
        if (known := await self._known_answer(replace(message, context_id=before.context_id))) is not None:
            return known  # it came twice at once, or names its request alone
        row = await self.get(before.run_id, before.owner)
        claim = await self._asking.claim(row, message)
        if claim.claimed:
            self._wake(Turn(row, (), message.principal, resumes=True, seconds=message.seconds))
            return row, row.last_seq
        if claim.late or row.status != "paused" or await self._asking.is_answered(row.run_id):
            raise WrongState(claim.problem or _BUSY if row.status != "ended" else claim.problem or _ENDED)
        if (task := self._tasks.get(row.run_id)) is not None:
            await asyncio.wait({task})  # the turn that has just paused is putting its things away
        dropped = await self._asking.answer_back(row, message, claim)
        return dropped or (row, row.last_seq)

    def _wake(self, turn: Turn) -> None:
        """Has the run go on: its work looks for answers before it ends, and begins when there is none."""
        if turn.row.run_id in self._tasks:
            self._woken.add(turn.row.run_id)
        else:
            self._spawn(turn)

    async def _next(self, turn: Turn) -> Turn | None:
        """The next stretch of a run that pauses with answers already there. Without one, its work is over at once: nothing may be
        awaited between the last look and that."""
        run_id = turn.row.run_id
        while True:
            self._woken.discard(run_id)
            now = await self._log.get(run_id)
            if now is not None and now.status == "paused" and await self._asking.is_answered(run_id):
                return replace(turn, row=now, parts=(), resumes=True, takes_over=False)
            if run_id not in self._woken:
                self._tasks.pop(run_id, None)
                return None

    def _spawn(self, turn: Turn) -> None:
        run_id = turn.row.run_id
        task = self._tasks[run_id] = asyncio.create_task(self._work(turn), name=f"run:{run_id}")
        task.add_done_callback(lambda done: self._forget(run_id, done))

    def _forget(self, run_id: str, done: asyncio.Task[None]) -> None:
        if self._tasks.get(run_id) is done:
            del self._tasks[run_id]

    async def _work(self, turn: Turn) -> None:
        row, line = turn.row, self._line(turn.row)
        try:
            await self._wait_in_line(turn, line)
            stretch: Turn | None = turn
            while stretch is not None:
                await self._drive(stretch)
                await self._fail_unended(stretch)
                stretch = await self._next(stretch)
        except Fenced:
            log.info("run %s has another owner or has ended; its work stops", row.run_id)
        except Exception as error:  # noqa: BLE001 - no reader waits for a run whose work has broken
            log.error("run %s: its work broke: %s", row.run_id, format_traceback(error))
            await self._fail_unended(turn)
        finally:
            now = await self._log.get(row.run_id)
            if now is None or now.status == "ended":
                await self._leave_line(row)

    async def _fail_unended(self, turn: Turn) -> None:
        """Work that is over must have ended its run or paused it; whoever cancelled it writes the end."""
        task, now = asyncio.current_task(), await self._log.get(turn.row.run_id)
        if now is None or (task is not None and task.cancelling()):
            return
        if now.status == "running" or (now.status == "paused" and now.last_seq == turn.row.last_seq):
            await self._end(
                now, lambda trace_id, partial: Failed(message=_NO_END, trace_id=trace_id, partial=partial)
            )

    async def _wait_in_line(self, turn: Turn, line: _Line) -> None:
        row, waiting = turn.row, self._lines.get(line, [])
        before = waiting[: waiting.index(row.run_id)] if row.run_id in waiting else []
        if not before:
            return
        # One that has ended and is putting its things away is waited for, too, but nobody need be told.
        ahead = [
            run_id
            for run_id in before
            if (one := await self._log.get(run_id)) is not None and one.status != "ended"
        ]
        text = f"Queued: {len(ahead)} {'question' if len(ahead) == 1 else 'questions'} of this conversation before this one."
        if ahead and not turn.takes_over:
            await self._log.append(row.run_id, row.epoch, [Notice(code="queue", text=text)])
        moved = self._moved.setdefault(line, asyncio.Condition())
        async with moved:
            await moved.wait_for(lambda: self._lines.get(line, [row.run_id])[0] == row.run_id)

    async def _leave_line(self, row: RunRow) -> None:
        line = self._line(row)
        waiting = self._lines.get(line, [])
        if row.run_id in waiting:
            waiting.remove(row.run_id)
        if not waiting:
            self._lines.pop(line, None)
        if moved := self._moved.get(line):
            async with moved:
                moved.notify_all()
            if not waiting:
                self._moved.pop(line, None)

    async def _stop(self, run_id: str) -> None:
        task = self._tasks.get(run_id)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=self._grace)

    async def _end(self, row: RunRow, ending: Callable[[str, str | None], AnyEvent]) -> bool:
        """Writes the end under a new epoch: work that ignores its cancellation cannot write any more."""
        epoch = await self._log.advance_epoch(row.run_id)
        seen = await self.transcript(row.run_id)
        last = ending(derive_trace_id(row.run_id), seen.unfinished_text())
        with contextlib.suppress(Fenced):
            await self._log.append(row.run_id, epoch, [*closing_events(seen, answered=False), last])
            await self._leave_line(row)
            return True
        return False

    def _door(self, row: RunRow) -> asyncio.Lock:
        return self._doors.setdefault(self._line(row), asyncio.Lock())

    @staticmethod
    def _line(row: RunRow) -> _Line:
        return row.owner, row.context_id
