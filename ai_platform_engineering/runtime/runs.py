"""Runs: a run is started once, owns its execution, and outlives the request that brought it."""

import asyncio
import contextlib
import hashlib
import logging
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal
from weakref import WeakValueDictionary

from ai_platform_engineering.core.errors import Fenced, MessageConflict, Refused, RunNotFound, WrongState
from ai_platform_engineering.core.events import AnyEvent, Cancelled, Failed, Notice, Numbered, RunStarted, ends_turn
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.runtime.ending import closing
from ai_platform_engineering.runtime.log import Answer, NewRun, RunLog, RunRow
from ai_platform_engineering.utils.a2a_common.parts import UserPart, digest
from ai_platform_engineering.utils.failures import traced

log = logging.getLogger(__name__)


Busy = Literal["enqueue", "reject", "interrupt"]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A user's message as it came in, checked and readable."""

    message_id: str
    parts: tuple[UserPart, ...]
    owner: str = ""
    principal: str = ""
    context_id: str | None = None
    task_id: str | None = None  # of the run that it continues
    run_id: str | None = None  # that a new run must have, when somebody else has given the id
    seconds: float | None = None  # how long its sender will wait
    busy: Busy | None = None  # what it wants when its conversation works on something else
    new_question: bool = False  # no answer, whatever the conversation waits for


@dataclass(frozen=True, slots=True)
class Turn:
    """One stretch of a run: from its question, or from an answer to what it asked, to its end or the next pause."""

    row: RunRow
    parts: tuple[UserPart, ...]
    principal: str
    message_id: str = ""
    resumes: bool = False
    takes_over: bool = False  # its process died in the middle
    seconds: float | None = None
    deadline: float = math.inf  # since the epoch; known when the work begins

    @property
    def trace_id(self) -> str:
        return trace_of(self.row.run_id)


def trace_of(run_id: str) -> str:
    """The trace id of a run, 32 hex digits; derived, so that a run keeps it over a restart."""
    try:
        return uuid.UUID(run_id).hex
    except ValueError:
        return hashlib.sha256(run_id.encode()).hexdigest()[:32]


_NO_END = "The run ended without an answer. Trying again may help."

Drive = Callable[[Turn], Awaitable[None]]
_Line = tuple[str, str]


class Runs:
    """Starts, continues, cancels and follows runs. A conversation works on one run at a time, in the order they came."""

    def __init__(self, run_log: RunLog, drive: Drive, *, cancel_grace: float = 2.0, busy: Busy = "enqueue") -> None:
        """`busy`: what becomes of a question to a conversation that works on another one, when it does not say so itself."""
        self._log, self._drive, self._grace, self._busy = run_log, drive, cancel_grace, busy
        self._holder = str(uuid.uuid4())
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns: dict[str, Turn] = {}
        self._lines: dict[_Line, list[str]] = {}
        self._moved: dict[_Line, asyncio.Condition] = {}
        self._doors: WeakValueDictionary[_Line, asyncio.Lock] = WeakValueDictionary()

    async def accept(self, message: Incoming) -> tuple[RunRow, int]:
        """The run that works on the message and the number before its turn. A known message finds its run again."""
        if (known := await self._known_answer(message)) is not None:
            return known
        paused = await self._waiting_run(message)
        if paused is not None:
            return await self._resume(paused, message)
        context_id = message.context_id or str(uuid.uuid4())
        started = RunStarted(message_id=message.message_id, parts=message.parts, owner=message.owner, principal=message.principal)
        new = NewRun(
            run_id=message.run_id or str(uuid.uuid4()),
            context_id=context_id,
            owner=message.owner,
            message_id=message.message_id,
            digest=digest(message.parts),
            started=started,
            lasting_id=message.context_id is not None,
        )
        door = self._doors.setdefault((new.owner, new.context_id), asyncio.Lock())
        async with door:  # of two questions at once, one finds the other at work
            await self._make_way(message)
            row, is_new = await self._log.create(new)
        if is_new:
            log.info("run %s started, context %s", row.run_id, row.context_id)
            self._lines.setdefault(self._line(row), []).append(row.run_id)
            self._spawn(Turn(row, message.parts, message.principal, seconds=message.seconds))
        return row, 0

    async def _make_way(self, message: Incoming) -> None:
        """What a conversation works on is refused company, or stopped, when the message wants it so."""
        busy = message.busy or self._busy
        if busy == "enqueue" or message.context_id is None:
            return
        rows = await self._log.find(message.owner, message.context_id)
        working = [row for row in rows if row.status == "running"]
        if not working or any(row.message_id == message.message_id for row in rows):
            return
        if busy == "reject":
            raise WrongState("The conversation works on another question. Wait for its answer, cancel it, or send this one to be queued.")
        for row in working:
            await self.cancel(row.run_id, message.principal)

    async def get(self, run_id: str, owner: str) -> RunRow:
        """The owner's run; a run of somebody else is not found."""
        row = await self._log.get(run_id)
        if row is None or row.owner != owner:
            raise RunNotFound(f"There is no task {run_id}.")
        return row

    async def find(self, owner: str, context_id: str | None = None) -> list[RunRow]:
        return await self._log.find(owner, context_id)

    async def events(self, run_id: str, upto: int | None = None) -> list[Numbered]:
        """The stored events, up to a number or all."""
        found: list[Numbered] = []
        while upto is None or len(found) < upto:
            more = await self._log.read(run_id, len(found))
            if not more:
                break
            found += more
        return found if upto is None else found[:upto]

    async def read(self, run_id: str, after: int) -> list[Numbered]:
        return await self._log.read(run_id, after)

    async def changed(self, run_id: str, after: int) -> None:
        await self._log.changed(run_id, after)

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Numbered]:
        """The events above a number as they are stored, until the turn ends."""
        while True:
            for item in await self._log.read(run_id, after):
                yield item
                after = item.seq
                if ends_turn(item.event):
                    return
            await self._log.changed(run_id, after)

    async def transcript(self, run_id: str) -> Transcript:
        return fold(item.event for item in await self.events(run_id))

    async def cancel(self, run_id: str, by: str) -> bool:
        """Stops the run. False when it ended before the cancel was stored: what was stored first counts."""
        row = await self._log.get(run_id)
        if row is None or row.status == "ended":
            return False
        await self._stop(run_id)
        return await self._end(row, lambda trace_id, partial: Cancelled(by=by, trace_id=trace_id, partial=partial))

    async def recover(self) -> int:
        """Takes over what a process that is gone has left unfinished; to be called once, before anything is accepted."""
        rows = await self._log.unfinished()
        for row in rows:
            self._lines.setdefault(self._line(row), []).append(row.run_id)
        working = [row for row in rows if row.status == "running"]
        for row in working:
            epoch = await self._log.lease(row.run_id, self._holder, 0, force=True)
            first = (await self._log.read(row.run_id, 0, 1))[0].event
            if epoch is not None and isinstance(first, RunStarted):
                log.info("run %s goes on after a restart", row.run_id)
                self._spawn(Turn(replace(row, epoch=epoch), first.parts, row.principal, takes_over=True))
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
            await self._end(row, lambda trace_id, partial: Failed(message=message, code="shutdown", trace_id=trace_id, partial=partial))

        working = [row for run_id in list(self._tasks) if (row := await self._log.get(run_id)) is not None]
        await asyncio.gather(*(end(row) for row in working))

    async def _known_answer(self, message: Incoming) -> tuple[RunRow, int] | None:
        """The run that this message continued when it came before."""
        context_id = message.context_id
        if context_id is None and message.task_id is not None:
            context_id = (await self.get(message.task_id, message.owner)).context_id
        answer = await self._log.recall(message.owner, context_id, message.message_id) if context_id else None
        if answer is None:
            return None
        if answer.digest != digest(message.parts):
            raise MessageConflict()
        row = await self.get(answer.run_id, message.owner)
        if row.status == "paused" and row.last_seq == answer.before and row.run_id not in self._tasks:
            return None  # the process died before it was taken in
        return row, answer.before

    async def _waiting_run(self, message: Incoming) -> RunRow | None:
        """The paused run that the message answers."""
        if message.task_id is not None:
            row = await self.get(message.task_id, message.owner)
            if message.context_id is not None and message.context_id != row.context_id:
                raise Refused("The task belongs to another context.")
            if row.status == "ended":
                raise WrongState("The task has ended. Send the message with the context id alone to go on with the conversation.")
            if row.status == "running":
                raise WrongState("The task is working. Cancel it, wait for it, or send the message with the context id alone to queue it.")
            return row
        if message.context_id is None:
            return None
        rows = await self._log.find(message.owner, message.context_id)
        if any(row.message_id == message.message_id for row in rows):
            return None  # a question of this conversation, sent again, is no answer
        paused = next((row for row in rows if row.status == "paused"), None)
        if paused is not None and message.new_question:
            await self.cancel(paused.run_id, message.principal)
            return None
        return paused

    async def _resume(self, row: RunRow, message: Incoming) -> tuple[RunRow, int]:
        """Continues a paused run. Of several answers at once the first one counts."""
        working, task = self._turns.get(row.run_id), self._tasks.get(row.run_id)
        if working is not None and task is not None:
            if working.resumes and working.row.last_seq == row.last_seq:
                if working.message_id == message.message_id and working.parts == message.parts:
                    return row, row.last_seq
                raise WrongState("The task is being continued by another answer.")
            await asyncio.wait({task})  # the turn that has just paused is putting its things away
            return await self.accept(message)
        self._spawn(Turn(row, message.parts, message.principal, message.message_id, resumes=True, seconds=message.seconds))
        await self._log.remember(Answer(row.run_id, message.message_id, digest(message.parts), row.last_seq))
        return row, row.last_seq

    def _spawn(self, turn: Turn) -> None:
        run_id = turn.row.run_id
        self._turns[run_id] = turn
        task = self._tasks[run_id] = asyncio.create_task(self._work(turn), name=f"run:{run_id}")
        task.add_done_callback(lambda done: self._forget(run_id, done))

    def _forget(self, run_id: str, done: asyncio.Task[None]) -> None:
        if self._tasks.get(run_id) is done:
            del self._tasks[run_id], self._turns[run_id]

    async def _work(self, turn: Turn) -> None:
        row, line = turn.row, self._line(turn.row)
        try:
            await self._wait_in_line(turn, line)
            await self._drive(turn)
            await self._fail_unended(turn)
        except Fenced:
            log.info("run %s has another owner or has ended; its work stops", row.run_id)
        except Exception as error:  # noqa: BLE001 - no reader waits for a run whose work has broken
            log.error("run %s: its work broke: %s", row.run_id, traced(error))
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
            await self._end(now, lambda trace_id, partial: Failed(message=_NO_END, trace_id=trace_id, partial=partial))

    async def _wait_in_line(self, turn: Turn, line: _Line) -> None:
        row, waiting = turn.row, self._lines.get(line, [])
        before = waiting[: waiting.index(row.run_id)] if row.run_id in waiting else []
        if not before:
            return
        # One that has ended and is putting its things away is waited for, too, but nobody need be told.
        ahead = [run_id for run_id in before if (one := await self._log.get(run_id)) is not None and one.status != "ended"]
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
        epoch = await self._log.claim(row.run_id)
        seen = await self.transcript(row.run_id)
        last = ending(trace_of(row.run_id), seen.unfinished_text())
        with contextlib.suppress(Fenced):
            await self._log.append(row.run_id, epoch, [*closing(seen, answered=False), last])
            await self._leave_line(row)
            return True
        return False

    @staticmethod
    def _line(row: RunRow) -> _Line:
        return row.owner, row.context_id
