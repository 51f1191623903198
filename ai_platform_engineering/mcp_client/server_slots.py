"""How many stdio tool servers run at once: in this process, and in all replicas that share a database."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Collection
from typing import Protocol

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

_RENEW_SECONDS = 2.0
_POLL_SECONDS = 0.5
_IDLE_SECONDS = 1.0  # a server that was used just now may be about to be used again
_RELEASE_SECONDS = 2.0  # a slot that cannot be given back in time expires
_UNREACHABLE = (
    "the database is away that tells how many tool servers run (MCP_MAX_SERVERS). Those that run can be used."
    " Try again in a minute, or go on without it"
)


class NoServerSlot(Exception):
    """A server may not be started now; the text is for models and people."""


class SlotStore(Protocol):
    """The slots of all replicas. Raises CaipeError while they cannot be reached."""

    async def claim(self, slot_id: str, limit: int) -> bool:
        """Takes a slot for a while if fewer than `limit` are taken; else the other replicas see that one
        waits."""
        ...

    async def renew(self, slot_ids: Collection[str], *, has_idle: bool) -> bool:
        """Keeps these slots for a while. True when another replica waits for a slot, and this one, which has
        an idle server, should close it."""
        ...

    async def release(self, slot_id: str) -> None:
        """Gives a slot back, or waits for none any more."""
        ...


class RunningServer(Protocol):
    """A server that has a slot."""

    @property
    def idle_since(self) -> float | None:
        """Since when nobody uses it, by the clock of the loop; None while somebody does."""
        ...

    def close_idle(self) -> None:
        """Ends the server, with which nothing is wrong, and does not wait for its end."""
        ...


class ServerSlots:
    """The slots of the servers of this process.

    Without a store the limit is that of this process alone."""

    def __init__(
        self,
        max_servers: int,
        wait_seconds: float,
        find_store: Callable[[], SlotStore | None] = lambda: None,
    ) -> None:
        """`wait_seconds`: how long a start waits for a slot."""
        self._find_store = find_store
        self._taken: set[str] = set()
        self._servers: dict[str, RunningServer] = {}
        self._given_back = asyncio.Event()  # set when a server of this process has ended
        self._renewing: asyncio.Task[None] | None = None
        self.set_limits(max_servers, wait_seconds)

    def set_limits(self, max_servers: int, wait_seconds: float) -> None:
        """Sets what holds from the next start of a server on."""
        self._max_servers = max_servers
        self._wait_seconds = wait_seconds

    @contextlib.asynccontextmanager
    async def hold(self, server: RunningServer) -> AsyncIterator[None]:
        """A block in which the server runs and has a slot. Raises NoServerSlot."""
        slot_id = str(uuid.uuid4())
        store = self._find_store()
        try:
            await self._wait_for_slot(slot_id, store)
            self._servers[slot_id] = server
            self._start_renewing(store)
            yield
        finally:
            await self._give_back(slot_id, store)

    # --- starts ---------------------------------------------------------------------------------------------

    async def _wait_for_slot(self, slot_id: str, store: SlotStore | None) -> None:
        wait_seconds = self._wait_seconds
        problem = _UNREACHABLE
        is_closing = False  # a server of ours that was idle
        try:
            async with asyncio.timeout(wait_seconds):
                while not await self._claim(slot_id, store):
                    problem = (
                        f"all {self._max_servers} tool servers that may run at once are in use"
                        f" (MCP_MAX_SERVERS), and none ended within {wait_seconds:g} seconds."
                        " Try again in a minute, or go on without it"
                    )
                    if not is_closing:
                        is_closing = self._close_idle()
                    if await self._is_one_given_back():
                        is_closing = False
        except CaipeError as error:
            log.warning("no slot for a tool server can be claimed: %s", error)
            raise NoServerSlot(_UNREACHABLE) from error
        except TimeoutError:
            raise NoServerSlot(problem) from None

    async def _claim(self, slot_id: str, store: SlotStore | None) -> bool:
        if len(self._taken) >= self._max_servers:
            return False
        self._taken.add(slot_id)
        has_slot = store is None
        try:
            if store is not None:
                has_slot = await store.claim(slot_id, self._max_servers)
        finally:
            if not has_slot:
                self._taken.discard(slot_id)
        return has_slot

    async def _is_one_given_back(self) -> bool:
        """Waits a moment for a server of this process to end; others may have ended as well."""
        self._given_back.clear()
        try:
            async with asyncio.timeout(_POLL_SECONDS):
                await self._given_back.wait()
        except TimeoutError:
            return False
        return True

    def _close_idle(self) -> bool:
        """Closes the server that was idle longest; false when none is."""
        server = self._find_idle()
        if server is None:
            return False
        log.info("an idle tool server is closed, since another one needs its slot")
        server.close_idle()
        return True

    def _find_idle(self) -> RunningServer | None:
        idle_before = asyncio.get_running_loop().time() - _IDLE_SECONDS
        longest_idle: RunningServer | None = None
        for server in self._servers.values():
            idle_since = server.idle_since
            if idle_since is not None and idle_since <= idle_before:
                longest_idle = server
                idle_before = idle_since
        return longest_idle

    # --- running servers ------------------------------------------------------------------------------------

    def _start_renewing(self, store: SlotStore | None) -> None:
        if store is not None and self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(store), name="slots of tool servers")

    async def _renew(self, store: SlotStore) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                has_idle = self._find_idle() is not None
                if await store.renew(tuple(self._servers), has_idle=has_idle):
                    self._close_idle()
            except CaipeError as error:  # the servers run on; the next attempt may work
                log.warning("the slots of tool servers are not renewed: %s", error)

    async def _give_back(self, slot_id: str, store: SlotStore | None) -> None:
        self._taken.discard(slot_id)
        self._servers.pop(slot_id, None)
        renewing = self._renewing
        if renewing is not None and not self._servers:
            self._renewing = None  # before anything is awaited: a new server needs a new task
            await cancel_and_wait(renewing)
        if store is not None:
            with contextlib.suppress(CaipeError, TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await store.release(slot_id)
        self._given_back.set()
