"""How often Slack may be called: budgets per method, shared by everything that this process draws."""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def wait_then_cancel(clock: Clock, tasks: Collection[asyncio.Task[None]], seconds: float = 8.0) -> None:
    """Gives them so long to come to their end, and then ends them."""
    if tasks:
        late = asyncio.create_task(clock.sleep(seconds))
        late.add_done_callback(lambda _: [task.cancel() for task in tasks])
        await asyncio.wait(tasks)
        late.cancel()


async def wait_for_first(one: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, Any]) -> None:
    """Until the first of the two is done."""
    both = {asyncio.ensure_future(one), asyncio.ensure_future(other)}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many in any minute, below what Slack allows; `burst` of them at once, and then evenly."""

    per_minute: int
    burst: int


# Slack counts per method, app and workspace; a channel takes about one message a second.
RATE_LIMITS: Mapping[str, RateLimit] = {
    "chat.appendStream": RateLimit(95, 95),
    "chat.startStream": RateLimit(18, 18),
    "chat.stopStream": RateLimit(18, 18),
    "chat.update": RateLimit(46, 46),
    "chat.delete": RateLimit(46, 46),
    "agents.sessions.setStatus": RateLimit(46, 46),
    "assistant.threads.setStatus": RateLimit(46, 46),
    "chat.postMessage": RateLimit(55, 2),
}
_PER_CHANNEL_METHODS = frozenset({"chat.postMessage"})

_ANY = RateLimit(600, 60)  # of other methods: Slack itself says when they are too many

_MINUTE = 62.0  # seconds: what is on its way counts when it arrives
MIN_FLUSH_INTERVAL = 0.7  # seconds between two flushes of one stream
_SLOW_FOR = 60.0


@dataclass(slots=True)
class _Bucket:
    rate: RateLimit
    free_at: float = 0.0  # when the bucket will be full again
    not_before: float = 0.0
    queue: int = 0  # how many wait
    _lately: deque[float] = field(default_factory=deque)  # when there was a call, in the last minute

    def wait(self, now: float, before: int = 0) -> float:
        """Seconds until a call is allowed, and so many before it."""
        gap, over = 60.0 / self.rate.per_minute, self.used(now) + before - self.rate.per_minute
        evenly = max(self.free_at, now) + gap * (before - self.rate.burst + 1)
        free = self._lately[min(over, len(self._lately) - 1)] + _MINUTE if over >= 0 and self._lately else now
        return max(0.0, evenly - now, free - now, self.not_before - now)

    def used(self, now: float) -> int:
        """Calls in the last minute."""
        while self._lately and self._lately[0] + _MINUTE <= now:
            self._lately.popleft()
        return len(self._lately)

    def take(self, now: float) -> None:
        self.free_at = max(self.free_at, now) + 60.0 / self.rate.per_minute
        self._lately.append(now)

    def block(self, until: float) -> None:
        """Nothing before then: Slack has said so."""
        self.not_before = max(self.not_before, until)


@dataclass(slots=True)
class RateLimiter:
    clock: Clock = field(default_factory=RealClock)
    rates: Mapping[str, RateLimit] = field(default_factory=lambda: RATE_LIMITS)
    min_interval: float = MIN_FLUSH_INTERVAL
    live_streams: int = 0
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _doors: dict[str, asyncio.Lock] = field(default_factory=dict)
    _slow_until: float = 0.0

    @contextmanager
    def count_stream(self) -> Iterator[None]:
        """One more stream is live for so long."""
        self.live_streams += 1
        try:
            yield
        finally:
            self.live_streams -= 1

    def flush_interval(self, method: str) -> float:
        """Seconds between two flushes of one message by the method: all of them together stay within the budget, and the less of it was
        used in the last minute, the quicker they are. What each needs for its end is left."""
        bucket, now = self._bucket(method, method), self.clock.now()
        most, used = bucket.rate.per_minute, bucket.used(now)
        budget = max(most // 2, most - self.live_streams)
        shared = max(
            self.min_interval,
            60.0 / most * self.live_streams * used / budget,
            _MINUTE / 2 if used >= budget else 0.0,
        )
        if now < self._slow_until:
            return 2 * shared
        return shared

    async def acquire(
        self, method: str, channel: str | None = None, *, max_wait: float | None = None
    ) -> bool:
        """Waits until the call is allowed, first come, first served. False, and nothing taken, when that is not `within` so long."""
        key = f"{method} {channel}" if method in _PER_CHANNEL_METHODS else method
        bucket = self._bucket(key, method)
        if max_wait is not None and bucket.wait(self.clock.now(), bucket.queue) > max_wait:
            return False
        bucket.queue += 1
        try:
            async with self._doors.setdefault(key, asyncio.Lock()):
                while (seconds := bucket.wait(self.clock.now())) > 0:
                    await self.clock.sleep(seconds)
                bucket.take(self.clock.now())
        finally:
            bucket.queue -= 1
        return True

    def back_off(self, method: str, channel: str | None, seconds: float) -> None:
        """Slack refused a call for so long: it counts for all, and all streams slow down for a minute."""
        key = f"{method} {channel}" if method in _PER_CHANNEL_METHODS else method
        self._bucket(key, method).block(self.clock.now() + seconds)
        self._slow_until = self.clock.now() + _SLOW_FOR

    def _bucket(self, key: str, method: str) -> _Bucket:
        if key not in self._buckets:
            self._buckets[key] = _Bucket(self.rates.get(method, _ANY))
        return self._buckets[key]
