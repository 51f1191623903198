"""The time of a run: until when it uses tools, and what stops a tool call that goes on after that."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol

from ai_platform_engineering.core.errors import RunNotFound
from ai_platform_engineering.core.run_context import RunContext, answer_seconds
from ai_platform_engineering.core.settings import LimitSettings

_TIME_USED_UP = "the time of this request is used up"
_NOBODY_FOLLOWS = "nobody has followed this request for {seconds:g} seconds"


class ToolStopped(Exception):
    """A tool call that was stopped; the text is the reason, in words for people."""


class FollowerStore(Protocol):
    """Where it is stored since when nobody follows a run: the run log."""

    async def find_unfollowed_since(self, run_id: str) -> datetime | None: ...


class RunClock:
    """Says when a run stops using tools: a while before its deadline, or when nobody has followed it."""

    def __init__(self, limits: LimitSettings, store: FollowerStore | None) -> None:
        """`store` is None where no run is stored, so that nobody knows who follows it."""
        self._unfollowed_seconds = limits.run_unfollowed_seconds
        self._store = store

    async def find_reached_limit(self, run: RunContext) -> str | None:
        """Why the run may use no tools any more, in words for people; None while it may."""
        now = time.time()
        if run.tools_until is not None and now >= run.tools_until:
            return _TIME_USED_UP
        unfollowed_end = await self._find_unfollowed_end(run)
        if unfollowed_end is not None and now >= unfollowed_end:
            return _NOBODY_FOLLOWS.format(seconds=self._unfollowed_seconds)
        return None

    @contextlib.asynccontextmanager
    async def limit_tool(self, run: RunContext, *, delegates: bool) -> AsyncIterator[None]:
        """Cancels the block when the run may use no tools any more. Raises ToolStopped.

        A delegation has a deadline of its own. When nobody follows, its agent stops by itself; a remote one
        does not know it, and is stopped a moment later.
        """
        seconds = None
        has_answer_time = run.tools_until is not None and run.tools_until < (run.deadline or 0.0)
        if has_answer_time and not delegates:
            assert run.tools_until is not None
            seconds = max(0.0, run.tools_until - time.time())
        limit = asyncio.timeout(seconds)
        reason = _TIME_USED_UP
        watcher: asyncio.Task[None] | None = None
        try:
            async with limit:
                if self._unfollowed_seconds is not None and self._store is not None and run.run_id:
                    watcher = asyncio.create_task(self._stop_unfollowed(run, limit, delegates=delegates))
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            if watcher is not None and watcher.done():
                reason = _NOBODY_FOLLOWS.format(seconds=self._unfollowed_seconds)
            raise ToolStopped(reason) from None
        finally:
            if watcher is not None:
                watcher.cancel()

    async def _stop_unfollowed(self, run: RunContext, limit: asyncio.Timeout, *, delegates: bool) -> None:
        """Ends the limit when nobody has followed the run for too long."""
        assert self._unfollowed_seconds is not None
        patience = answer_seconds(self._unfollowed_seconds) if delegates else 0.0
        while True:
            unfollowed_end = await self._find_unfollowed_end(run)
            now = time.time()
            # While somebody follows, it takes at least that long.
            end = (unfollowed_end or now + self._unfollowed_seconds) + patience
            if end <= now:
                limit.reschedule(asyncio.get_running_loop().time())
                return
            await asyncio.sleep(end - now)

    async def _find_unfollowed_end(self, run: RunContext) -> float | None:
        """When the run stops because nobody follows it; None while somebody does, or without such a limit."""
        if self._unfollowed_seconds is None or self._store is None or not run.run_id:
            return None
        try:
            since = await self._store.find_unfollowed_since(run.run_id)
        except RunNotFound:
            return None
        if since is None:
            return None
        return since.timestamp() + self._unfollowed_seconds
