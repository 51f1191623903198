"""Group commit: a thread that stores what was submitted together in one transaction."""

import asyncio
import itertools
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ai_platform_engineering.databases.sql_connections import StorageFailed, Work

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK = 0.005  # seconds
BUSY_BATCH = 4  # so many operations in one commit: more are on their way


@dataclass(slots=True)
class Operation:
    """A submitted write, and its result."""

    work: Work[Any]
    future: asyncio.Future[Any]
    stored: Callable[[], None] | None
    value: Any = None
    error: Exception | None = None


class GroupCommitWriter(ABC):
    """A thread that writes through one connection; operations that are submitted together share a commit.

    `commits` counts the committed transactions, `problem` says why the last one failed.
    """

    def __init__(self, name: str, *, tick: float = TICK, busy_batch: int = BUSY_BATCH) -> None:
        """`tick`: how many seconds the writer collects operations after a commit of at least `busy_batch`."""
        self._tick = tick
        self._busy_batch = busy_batch
        self.commits = 0
        self.problem: str | None = None  # why the last commit failed
        self._submitted: list[Operation] = []
        self._is_due = False  # whether the writer has been woken for what is submitted
        self._wake = queue.SimpleQueue[None]()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, work: Work[T], stored: Callable[[], None] | None = None, *, within: float = 0
    ) -> asyncio.Future[T]:
        """The result of the work, once it is committed; an error of the work rolls back the work alone.

        `stored` is called in the event loop just before, even when the future was cancelled. Work that may
        be committed `within` so many seconds waits for other work, and shares its commit. The order is always
        that of the calls.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self.check_open()
            self._submitted.append(Operation(work, future, stored))
            if not within:
                self._make_due()
        if within:
            loop.call_later(within, self._commit_soon, future)
        return future

    def commit_soon(self) -> None:
        """Commits what was submitted, without waiting for other work."""
        with self._lock:
            if self._submitted:
                self._make_due()

    def close(self) -> bool:
        """Commits what was submitted, and refuses anything new; false when it was closed before."""
        with self._lock:
            if self._closing.is_set():
                return False
            self._closing.set()
            self._make_due()
        self._thread.join()
        return True

    def check_open(self) -> None:
        if self._closing.is_set():
            raise StorageFailed("The storage is closed.")

    @abstractmethod
    def _commit(self, batch: list[Operation]) -> None:
        """Stores the operations in one transaction; each has its value or its error afterwards."""

    def _commit_soon(self, awaited: asyncio.Future[Any]) -> None:
        if not awaited.done():
            self.commit_soon()

    def _make_due(self) -> None:
        """Wakes the writer, once for each batch; with the lock held."""
        if not self._is_due:
            self._is_due = True
            self._wake.put(None)

    def _run(self) -> None:
        while batch := self._next_batch():
            self._commit(batch)
            for loop, operations in itertools.groupby(batch, key=_loop_of):
                _deliver(loop, list(operations))
            # While many write, what comes meanwhile shares the next commit; a single writer does not wait.
            if len(batch) >= self._busy_batch:
                self._closing.wait(self._tick)

    def _next_batch(self) -> list[Operation]:
        """Waits for operations; an empty batch means that the writer is closed."""
        if not self._closing.is_set():
            self._wake.get()
        with self._lock:
            batch = self._submitted
            self._submitted = []
            self._is_due = False
            return batch


def _loop_of(operation: Operation) -> asyncio.AbstractEventLoop:
    return operation.future.get_loop()


def _deliver(loop: asyncio.AbstractEventLoop, operations: list[Operation]) -> None:
    """Completes the futures of committed operations, in their event loop."""

    def complete() -> None:
        for operation in operations:
            if operation.error is None and operation.stored is not None:
                operation.stored()
        for operation in operations:
            if operation.future.done():
                continue  # cancelled while it was stored
            if operation.error is not None:
                operation.future.set_exception(operation.error)
            else:
                operation.future.set_result(operation.value)

    try:
        loop.call_soon_threadsafe(complete)
    except RuntimeError:  # the loop has ended, and with it everyone who waited
        log.debug("%d operations were abandoned: nobody is waiting for them", len(operations))
