"""Admission: how many runs work at once, of one person and in all; the others wait in the order they came."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ai_platform_engineering.core.errors import Fenced, Overloaded, RunNotFound
from ai_platform_engineering.core.events import Notice
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.replica_store import RoomForRuns
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.runs.incoming_message import IncomingMessage


@dataclass(slots=True)
class _Waiter:
    """A run that waits to be admitted; `last_position` is what its readers know."""

    row: RunRow
    admitted: asyncio.Future[None]
    has_begun: bool
    last_position: int = 0


class Admission:
    """Admits runs up to the limits. A run that waits for people has left; it enters again with an answer.

    A person is the principal of a run: one who speaks in many threads has many conversations.
    """

    def __init__(self, run_log: RunLog, limits: LimitSettings) -> None:
        self._log = run_log
        self._limits = limits
        self._accepting = Counter[str]()  # questions that are being stored, by person
        self._rows: dict[str, RunRow] = {}  # every run that has a task
        self._working: set[str] = set()  # those that were admitted
        self._working_of = Counter[str]()  # by person
        self._waiters: dict[str, _Waiter] = {}  # in the order they came
        self._notifications: set[asyncio.Task[None]] = set()
        self.on_room: Callable[[], None] | None = None  # called when a run leaves

    @contextlib.contextmanager
    def accept(self, message: IncomingMessage) -> Iterator[None]:
        """Holds a place for a question until its run has a task; raises Overloaded when there is none.

        A message whose run is here already is no new question.
        """
        person = message.principal
        problem = self._find_problem(person)
        if problem is not None and not self._has_run(message):
            raise Overloaded(problem)
        self._accepting[person] += 1
        try:
            yield
        finally:
            self._accepting[person] -= 1
            if not self._accepting[person]:
                del self._accepting[person]

    @property
    def waiting_limits(self) -> tuple[int, int]:
        """How many questions may wait in all, and of one person."""
        return self._limits.runs_waiting, self._limits.runs_waiting_per_person

    def _has_run(self, message: IncomingMessage) -> bool:
        for row in self._rows.values():
            if row.owner == message.owner and row.message_id == message.message_id:
                return True
        return False

    def _find_problem(self, person: str) -> str | None:
        """Why one more question is too many, in words for its person."""
        waiting = len(self._rows) + self._accepting.total() - len(self._working)
        free = self._limits.runs_working - len(self._working)
        if waiting - free >= self._limits.runs_waiting:
            return f"The server is busy: {waiting} questions are already waiting. Try again in a few minutes."
        working = self._working_of[person]
        runs = sum(row.principal == person for row in self._rows.values())
        waiting = runs + self._accepting[person] - working
        free = self._limits.runs_working_per_person - working
        if waiting - free >= self._limits.runs_waiting_per_person:
            return f"{waiting} of your questions are already waiting. Wait for their answers, or cancel some."
        return None

    def add(self, row: RunRow) -> None:
        """Counts a run that has a task now, whether it works or waits."""
        self._rows[row.run_id] = row

    def has_room(self, person: str) -> bool:
        """Whether a run of the person may work now."""
        if len(self._working) >= self._limits.runs_working:
            return False
        return self._working_of[person] < self._limits.runs_working_per_person

    def room(self) -> RoomForRuns:
        """For how many more runs there is room when those that wait here work as well."""
        return RoomForRuns(
            in_all=self._limits.runs_working - len(self._rows),
            of_person=self._limits.runs_working_per_person,
            used=Counter(row.principal for row in self._rows.values()),
        )

    async def enter(self, row: RunRow, *, has_begun: bool) -> bool:
        """Returns when the run may work: whether it had to wait, so that its readers were told.

        `has_begun`: it goes on after a pause or a restart."""
        if self.has_room(row.principal):
            self._start(row)
            return False
        waiter = _Waiter(row, asyncio.get_running_loop().create_future(), has_begun)
        self._waiters[row.run_id] = waiter
        waiter.last_position = self._position_of(row)
        await self._notify(waiter, waiter.last_position)
        await waiter.admitted
        return True

    def leave(self, run_id: str) -> None:
        """The run has no task any more: it has ended, waits for people, or was stopped. Others enter."""
        row = self._rows.pop(run_id, None)
        self._waiters.pop(run_id, None)
        if row is not None and run_id in self._working:
            self._working.remove(run_id)
            self._working_of[row.principal] -= 1
            if not self._working_of[row.principal]:
                del self._working_of[row.principal]
            self._admit()
        if row is not None and self.on_room is not None:
            self.on_room()

    def _start(self, row: RunRow) -> None:
        self._working.add(row.run_id)
        self._working_of[row.principal] += 1

    def _admit(self) -> None:
        """Admits whoever may enter now, in order; somebody at their own limit holds up nobody else."""
        for waiter in list(self._waiters.values()):
            if self.has_room(waiter.row.principal):
                del self._waiters[waiter.row.run_id]
                self._start(waiter.row)
                waiter.admitted.set_result(None)
        for waiter, position in self._positions():
            # Who has come half way since is told: everybody hears of it a few times, whatever the length.
            if position < waiter.last_position and position * 2 <= waiter.last_position:
                waiter.last_position = position
                self._notify_later(waiter, position)

    def _positions(self) -> Iterator[tuple[_Waiter, int]]:
        """How many runs are before each one: its person's alone, when their own limit holds it up."""
        is_full = len(self._working) >= self._limits.runs_working
        earlier_of = Counter[str]()
        for earlier, waiter in enumerate(self._waiters.values()):
            person = waiter.row.principal
            yield waiter, earlier if is_full else earlier_of[person]
            earlier_of[person] += 1

    def _position_of(self, row: RunRow) -> int:
        for waiter, position in self._positions():
            if waiter.row.run_id == row.run_id:
                return position
        return 0

    def _notify_later(self, waiter: _Waiter, position: int) -> None:
        task = asyncio.create_task(self._notify(waiter, position))
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)

    async def _notify(self, waiter: _Waiter, position: int) -> None:
        text = "Queued: this question is the next one."
        if position == 1:
            text = "Queued: 1 question before this one."
        elif position > 1:
            text = f"Queued: {position} questions before this one."
        # It may be cancelled meanwhile.
        with contextlib.suppress(Fenced, RunNotFound):
            notice = Notice(code="queue", text=text, position=position)
            if waiter.has_begun:  # it keeps its state, so this is for people alone
                notice = Notice(code="info", text=text)
            await self._log.append(waiter.row.run_id, waiter.row.epoch, [notice])
