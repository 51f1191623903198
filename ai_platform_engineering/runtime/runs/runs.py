"""Starts, continues and ends runs. A run is a task of its own: it outlives the request that started it."""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

from ai_platform_engineering.a2a.message_parts import UserPart, bounds_run, hash_parts
from ai_platform_engineering.core.errors import MessageConflict, Refused, RunNotFound, WrongState
from ai_platform_engineering.core.events import (
    Cancelled,
    InputRequested,
    MessageReceived,
    RunStarted,
    StoredEvent,
    TextPart,
    ends_turn,
)
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.runtime.log.log_rows import NewRun, RunFilter, RunPage, RunPosition, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.run_log_rules import CONVERSATION_BUSY
from ai_platform_engineering.runtime.runs.admission import Admission
from ai_platform_engineering.runtime.runs.answers import is_answer, read_request_ids
from ai_platform_engineering.runtime.runs.conversation_queues import make_queues
from ai_platform_engineering.runtime.runs.incoming_message import BusyPolicy, IncomingMessage
from ai_platform_engineering.runtime.runs.input_requests import InputRequests, RequestsDropped
from ai_platform_engineering.runtime.runs.replica_keeper import ReplicaKeeper, RunsOfReplica
from ai_platform_engineering.runtime.runs.run_followers import RunFollowers
from ai_platform_engineering.runtime.runs.run_holders import RunHolders
from ai_platform_engineering.runtime.runs.run_lookup import (
    find_paused_run,
    find_run_of_request,
    is_repeated_question,
    make_new_run,
)
from ai_platform_engineering.runtime.runs.run_reader import load_events, load_transcript
from ai_platform_engineering.runtime.runs.run_tasks import RunTasks
from ai_platform_engineering.runtime.runs.turn import Turn, TurnRunner

log = logging.getLogger(__name__)


_ENDED = "The task has ended. Send the message with the context id alone to continue the conversation."
_BUSY = (
    "The task is working. Cancel it, wait for it, or send the message with the context id alone to queue it."
)
_CRASHED = (
    "I gave up on this request: the server crashed {crashes} times while working on it. "
    "Check what was done before you ask again, and ask for less at a time."
)

_MAX_EXPIRIES = 100  # runs whose requests expire in one pass; the next pass takes the others

AcceptedRun = tuple[RunRow, int]  # the run that works on a message, and the sequence number before its turn


class Runs:
    """Starts, continues, cancels and follows runs.

    A conversation works on one run at a time, in the order they came.
    """

    def __init__(
        self,
        run_log: RunLog,
        run_turn: TurnRunner,
        *,
        cancel_grace: float = 2.0,
        busy: BusyPolicy = "enqueue",
        request_seconds: float = math.inf,
        limits: LimitSettings | None = None,
        abandon: Callable[[RunRow], Awaitable[None]] | None = None,
    ) -> None:
        """`busy`: what to do with a question to a busy conversation when the message does not say so itself.
        `abandon` cancels the remote tasks of a run that is cancelled while it is paused."""
        self._log = run_log
        self._busy = busy
        self._abandon = abandon
        self._requests = InputRequests(run_log, request_seconds)
        self._limits = limits or LimitSettings()
        self._queues = make_queues(run_log)
        self._admission = Admission(run_log, self._limits)
        self._holders = RunHolders(run_log, self._admission)
        self.followers = RunFollowers(run_log, self._limits.run_unfollowed_seconds)
        self._run_turn = run_turn
        self._tasks = RunTasks(
            run_log, self._run_watched_turn, self._requests, self._queues, self._admission, cancel_grace
        )
        self._keeper = self._make_keeper()

    def _make_keeper(self) -> ReplicaKeeper | None:
        if self._log.replicas is None:
            return None
        runs = RunsOfReplica(
            run_ids=lambda: self._tasks.run_ids,
            has_task=lambda run_id: run_id in self._tasks,
            room=self._admission.room,
            start=self._resume,
            stop=self._tasks.stop,
        )
        keeper = ReplicaKeeper(self._log, self._log.replicas, runs)
        self._admission.on_room = keeper.note_room
        return keeper

    async def _run_watched_turn(self, turn: Turn) -> None:
        """Runs a turn while its followers are counted."""
        await self.followers.begin_turn(turn)
        try:
            await self._run_turn(turn)
        finally:
            await self.followers.end_turn(turn.row.run_id)

    # --- messages -------------------------------------------------------------------------------------------

    async def accept(self, message: IncomingMessage) -> AcceptedRun:
        """The run that works on the message, and the number before its turn.

        A message sent again finds its run.
        """
        accepted = await self._find_repeated(message)
        if accepted is not None:
            return accepted
        asking_run = await self._find_asking_run(message)
        if asking_run is not None:
            # Of two answers at once, the second one sees what the first one claimed.
            async with self._lock_of(asking_run):
                return await self._continue_run(asking_run, message)
        rejects = (message.busy or self._busy) == "reject"
        new = replace(make_new_run(message, message.parts), only_if_idle=rejects)
        with self._admission.accept(message):
            # Of two questions at once, the second one sees that the first one works.
            async with self._queues.lock(new.owner, new.context_id):
                await self._apply_busy_policy(message)
                if self._works_at_once(new, message):
                    new = replace(new, attempt="working")
                elif await self._must_wait(new, message):
                    new = replace(new, started=new.started.model_copy(update={"queued": True}))
                row, is_new = await self._log.create(await self._holders.choose(new))
            if is_new and self._holders.is_here(row):
                self._begin(row, message, message.parts, marked=new.attempt == "working")
        return row, 0

    def _works_at_once(self, new: NewRun, message: IncomingMessage) -> bool:
        """Whether nothing is before the run: then its first commit says that this process works on it."""
        if not self._queues.is_empty(new.owner, new.context_id):
            return False
        return self._admission.has_room(message.principal)

    async def _must_wait(self, new: NewRun, message: IncomingMessage) -> bool:
        """Whether a run is before the new one that has not ended, or there is no room: it is queued then."""
        if not self._admission.has_room(message.principal):
            return True
        return await self._queues.has_unended(new.owner, new.context_id)

    def _begin(
        self, row: RunRow, message: IncomingMessage, parts: tuple[UserPart, ...], *, marked: bool = False
    ) -> None:
        log.info("run %s started, context %s", row.run_id, row.context_id)
        self._queues.add(row)
        self._tasks.start(Turn(row, parts, message.principal, seconds=message.seconds, marked=marked))

    async def _apply_busy_policy(self, message: IncomingMessage) -> None:
        """Refuses a question to a busy conversation, or cancels what it works on, as the policy says."""
        busy = message.busy or self._busy
        if busy == "enqueue" or message.context_id is None:
            return
        open_runs = await self._log.find_open_runs(message.owner, message.context_id)
        working = [row for row in open_runs if row.status == "running"]
        if not working or await is_repeated_question(self._log, message, message.context_id):
            return
        if busy == "reject":
            raise WrongState(CONVERSATION_BUSY)
        for row in working:
            await self.cancel(row.run_id, message.principal)

    async def _find_repeated(self, message: IncomingMessage) -> AcceptedRun | None:
        """The run that this message continued when it was sent before."""
        context_id = message.context_id
        if context_id is None and message.task_id is not None:
            context_id = (await self.get(message.task_id, message.owner)).context_id
        if not context_id:
            return None
        answer = await self._log.find_answer(message.owner, context_id, message.message_id)
        if answer is None:
            return None
        if answer.digest != hash_parts(message.parts):
            raise MessageConflict()
        row = await self.get(answer.run_id, message.owner)
        items = await self._log.read(answer.run_id, answer.before)
        has_effect = any(not isinstance(item.event, MessageReceived) for item in items)
        is_held = row.run_id in self._tasks or row.holder
        if row.status == "paused" and not is_held and not has_effect:
            return None  # the process died before the answer was processed
        if items and isinstance(items[0].event, MessageReceived):
            return row, items[0].seq
        return row, answer.before

    async def _find_asking_run(self, message: IncomingMessage) -> RunRow | None:
        """The run whose requests the message may answer; None for a question that starts a run."""
        if is_answer(message.parts):
            return await self._find_answered_run(message)
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
        paused = await find_paused_run(self._log, message.owner, message.context_id)
        if paused is None or await is_repeated_question(self._log, message, message.context_id):
            return None
        if message.new_question:
            await self.cancel(paused.run_id, message.principal)
            return None
        return paused

    async def _find_answered_run(self, message: IncomingMessage) -> RunRow:
        """The run of the requests that an answer names.

        Without names: the paused run of its conversation, or the last one that had requests.
        """
        if message.task_id is not None:
            return await self.get(message.task_id, message.owner)
        for request_id in read_request_ids(message.parts):
            row = await find_run_of_request(self._log, request_id)
            if row is None or row.owner != message.owner:
                continue
            if message.context_id in (None, row.context_id):
                return row
        if message.context_id:
            asking = await find_paused_run(self._log, message.owner, message.context_id)
            if asking is None:
                asking = await self._log.find_asking_run(message.owner, message.context_id)
            if asking is not None:
                return asking
        raise WrongState("There is nothing to answer: no request of this conversation is known.")

    async def _continue_run(self, asking_run: RunRow, message: IncomingMessage) -> AcceptedRun:
        """Claims the requests that the message answers; the task of the run processes them."""
        accepted = await self._find_repeated(replace(message, context_id=asking_run.context_id))
        if accepted is not None:
            return accepted  # it was sent twice at once, or names its request alone
        row = await self.get(asking_run.run_id, asking_run.owner)
        claim = await self._requests.claim(row, message)
        if claim.claimed:
            noted = await self.get(row.run_id, row.owner)
            self._tasks.wake(Turn(noted, (), message.principal, resumes=True, seconds=message.seconds))
            # After the message: a reader finds a task that works, and not the question that it answered.
            return row, min(row.last_seq + 1, noted.last_seq)
        if claim.late or row.status != "paused" or await self._requests.has_claimed(row.run_id):
            default = _ENDED if row.status == "ended" else _BUSY
            raise WrongState(claim.problem or default)
        await self._tasks.wait(row.run_id)  # a turn that has just paused is cleaning up
        dropped = await self._requests.report_problem(row, message, claim)
        if dropped is not None:
            return await self._drop_requests(row, message, dropped)
        return row, row.last_seq + 1

    async def _drop_requests(
        self, asking_run: RunRow, message: IncomingMessage, dropped: RequestsDropped
    ) -> AcceptedRun:
        """Cancels the run that asks, and starts one with the held text.

        The new run is stored first: a crash in between loses nothing.
        """
        asking_run = await self.get(asking_run.run_id, asking_run.owner)
        await self._requests.note_message(asking_run, message)
        if dropped.held_text is None:
            await self._log.store_answer(message.to_answer(asking_run))
            await self.cancel(asking_run.run_id, message.principal)
            return asking_run, asking_run.last_seq
        parts = (TextPart(text=dropped.held_text), *filter(bounds_run, message.parts))
        new = make_new_run(replace(message, context_id=asking_run.context_id), parts)
        row, is_new = await self._log.create(self._holders.hold(new))
        await self._log.store_answer(replace(message.to_answer(row), before=0))
        await self.cancel(asking_run.run_id, message.principal)
        if is_new:
            self._begin(row, message, parts)
        return row, 0

    # --- readers --------------------------------------------------------------------------------------------

    async def get(self, run_id: str, owner: str) -> RunRow:
        """The owner's run; a run of somebody else is not found."""
        row = await self._log.get(run_id)
        if row is None or row.owner != owner:
            raise RunNotFound(f"There is no task {run_id}.")
        return row

    async def list_runs(
        self, run_filter: RunFilter, *, after: RunPosition | None = None, limit: int
    ) -> RunPage:
        return await self._log.list_runs(run_filter, after=after, limit=limit)

    async def outlines(self, run_ids: Sequence[str]) -> dict[str, list[StoredEvent]]:
        """The events of runs without their texts, tool calls and plans."""
        return await self._log.read_outlines(run_ids)

    async def events(self, run_id: str, upto: int | None = None) -> list[StoredEvent]:
        """The stored events, up to a number or all."""
        return await load_events(self._log, run_id, upto)

    async def requests(self, run_id: str) -> list[InputRequested]:
        """All requests of the run, answered or not, in the order in which they were made."""
        return [request.event for request in await self._log.requests(run_id)]

    async def read(self, run_id: str, after: int, limit: int = 256) -> list[StoredEvent]:
        return await self._log.read(run_id, after, limit)

    async def wait_for_event(self, run_id: str, after: int) -> None:
        await self._log.wait_for_event(run_id, after)

    def following(self, run_id: str) -> contextlib.AbstractContextManager[None]:
        """A block in which somebody follows the run."""
        return self.followers.following(run_id)

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[StoredEvent]:
        """The events above a number as they are stored, until the turn ends."""
        with self.followers.following(run_id):
            while True:
                for item in await self._log.read(run_id, after):
                    yield item
                    after = item.seq
                    if ends_turn(item.event):
                        return
                await self._log.wait_for_event(run_id, after)

    async def transcript(self, run_id: str) -> Transcript:
        return await load_transcript(self._log, run_id)

    # --- operations on all runs -----------------------------------------------------------------------------

    async def cancel(self, run_id: str, by: str) -> bool:
        """Stops the run. False when it ended before the cancel was stored: what was stored first counts."""
        row = await self._log.get(run_id)
        if row is None or row.status == "ended":
            return False
        await self._tasks.stop(run_id)
        ended = await self._tasks.end(
            row, lambda trace_id, partial: Cancelled(by=by, trace_id=trace_id, partial=partial)
        )
        if ended and row.status == "paused" and self._abandon is not None:
            await self._abandon(row)  # no task works on it that could pass the cancellation on
        return ended

    async def delete_conversation(self, owner: str, context_id: str, by: str) -> bool:
        """Stops the runs of a conversation and deletes all of them. False when there is none."""
        if not await self._log.has_conversation(owner, context_id):
            return False
        async with self._queues.lock(owner, context_id):
            for row in await self._log.find_open_runs(owner, context_id):
                await self.cancel(row.run_id, by)
            await self._log.delete_conversation(owner, context_id)
        return True

    async def expire(self) -> None:
        """Marks overdue requests as expired, in runs that wait for them."""
        for run_id in await self._log.find_overdue_runs(_MAX_EXPIRIES):
            row = await self._log.get(run_id)
            if row is None:
                continue
            async with self._lock_of(row):
                if run_id not in self._tasks:
                    async with self._holders.holding(run_id) as is_held:
                        if is_held:
                            await self._requests.expire(run_id)

    async def recover(self) -> int:
        """Takes over the unfinished runs of a process that died; called once, before any message."""
        if self._keeper is not None:
            return await self._keeper.start()
        rows = await self._log.find_unfinished()
        for row in rows:
            self._queues.add(row)
        working: list[RunRow] = []
        for row in rows:
            if row.status == "running" or await self._requests.has_claimed(row.run_id):
                working.append(row)
        for row in working:
            await self._take_over(row)
        return len(working)

    async def _take_over(self, row: RunRow) -> None:
        await self._resume(await self._log.take_over(row.run_id))

    async def _resume(self, row: RunRow) -> None:
        """Continues a run that was taken over."""
        first = (await self._log.read(row.run_id, 0, 1))[0].event
        if not isinstance(first, RunStarted):
            return
        if row.crashes >= self._limits.run_crashes:
            log.error(
                "run %s is given up: the process died %d times while working on it", row.run_id, row.crashes
            )
            await self._tasks.fail(row, _CRASHED.format(crashes=row.crashes), code="crashed")
            return
        log.info("run %s resumes after a restart", row.run_id)
        was_running = row.status == "running"
        turn = Turn(
            row,
            first.parts,
            row.principal,
            resumes=not was_running,
            takes_over=was_running,
            recovered=True,
            is_last_attempt=0 < row.crashes == self._limits.run_crashes - 1,
        )
        self._tasks.start(turn)

    async def hand_over(self, patience: float) -> None:
        """Lets turns finish for a while, and stops the rest without an end: another replica or the next start
        continues them."""
        if self._keeper is not None:
            await self._keeper.stop_taking()
        await self._tasks.wait_for_all(patience)
        run_ids = self._tasks.run_ids
        await asyncio.gather(*(self._tasks.stop(run_id) for run_id in run_ids))
        for run_id in run_ids:
            await self._log.mark_attempt(run_id, "handed_over")
        if self._keeper is not None:
            await self._keeper.leave()

    async def close(self, message: str, patience: float = 0.0) -> None:
        """Stops all running turns; each run fails with the message, so that no reader waits for ever."""
        if patience:
            await self._tasks.wait_for_all(patience)
        working: list[RunRow] = []
        for run_id in self._tasks.run_ids:
            row = await self._log.get(run_id)
            if row is not None:
                working.append(row)
        await asyncio.gather(*(self._shut_down(row, message) for row in working))
        if self._keeper is not None:
            await self._keeper.leave()

    async def _shut_down(self, row: RunRow, message: str) -> None:
        await self._tasks.stop(row.run_id)
        await self._tasks.fail(row, message, code="shutdown")

    def _lock_of(self, row: RunRow) -> asyncio.Lock:
        return self._queues.lock(row.owner, row.context_id)
