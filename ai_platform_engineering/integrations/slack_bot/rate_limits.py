"""Slack's rate limits: a token bucket per method, shared by everything that this process sends.

Slack counts per app, so each of several processes uses its part.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ai_platform_engineering.integrations.slack_bot.clock import Clock, RealClock


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Calls of a method per minute, below what Slack allows: `burst` of them at once, then evenly spread."""

    per_minute: int
    burst: int

    def share_among(self, processes: int) -> "RateLimit":
        """The part of one of so many processes."""
        return RateLimit(max(1, self.per_minute // processes), max(1, self.burst // processes))


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

_DEFAULT_LIMIT = RateLimit(600, 60)  # of other methods: Slack itself says when they are too many

_MINUTE = 62.0  # seconds: a call counts when it arrives, which is later than it was sent
MIN_FLUSH_INTERVAL = 0.7  # seconds between two flushes of one stream
_SLOW_DOWN_SECONDS = 60.0


@dataclass(slots=True)
class _TokenBucket:
    limit: RateLimit
    full_at: float = 0.0  # when the bucket will be full again
    blocked_until: float = 0.0
    waiting: int = 0  # how many calls wait
    _recent_calls: deque[float] = field(default_factory=deque)  # times of the calls of the last minute

    def seconds_to_wait(self, now: float, ahead: int = 0) -> float:
        """Seconds until a call is allowed when `ahead` calls come before it."""
        gap = 60.0 / self.limit.per_minute
        evenly_at = max(self.full_at, now) + gap * (ahead - self.limit.burst + 1)
        return max(0.0, evenly_at - now, self._window_free_at(now, ahead) - now, self.blocked_until - now)

    def _window_free_at(self, now: float, ahead: int) -> float:
        """When enough calls of the last minute are older than a minute."""
        excess = self.count_recent(now) + ahead - self.limit.per_minute
        if excess < 0 or not self._recent_calls:
            return now
        return self._recent_calls[min(excess, len(self._recent_calls) - 1)] + _MINUTE

    def count_recent(self, now: float) -> int:
        """The number of calls in the last minute."""
        while self._recent_calls and self._recent_calls[0] + _MINUTE <= now:
            self._recent_calls.popleft()
        return len(self._recent_calls)

    def take(self, now: float) -> None:
        self.full_at = max(self.full_at, now) + 60.0 / self.limit.per_minute
        self._recent_calls.append(now)

    def block(self, until: float) -> None:
        """Allows no call before then: Slack has said so."""
        self.blocked_until = max(self.blocked_until, until)


@dataclass(slots=True)
class RateLimiter:
    """Says when a method of Slack may be called, and how often a stream may be flushed."""

    clock: Clock = field(default_factory=RealClock)
    rates: Mapping[str, RateLimit] = field(default_factory=lambda: RATE_LIMITS)
    min_interval: float = MIN_FLUSH_INTERVAL
    live_streams: int = 0
    processes: int = 1  # that share the limits
    _buckets: dict[str, _TokenBucket] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _slow_until: float = 0.0

    @contextmanager
    def count_stream(self) -> Iterator[None]:
        """Counts one more live stream while the context is open."""
        self.live_streams += 1
        try:
            yield
        finally:
            self.live_streams -= 1

    def flush_interval(self, method: str) -> float:
        """Seconds between two flushes of one message by the method.

        All streams together stay within the limit; the less of it was used in the last minute, the quicker
        they are. What each stream needs for its end is left over.
        """
        now = self.clock.now()
        bucket = self._find_bucket(method, method)
        per_minute = bucket.limit.per_minute
        used = bucket.count_recent(now)
        budget = max(per_minute // 2, per_minute - self.live_streams)
        interval = max(self.min_interval, 60.0 / per_minute * self.live_streams * used / budget)
        if used >= budget:
            interval = max(interval, _MINUTE / 2)
        if now < self._slow_until:
            return 2 * interval
        return interval

    async def acquire(
        self, method: str, channel: str | None = None, *, max_wait: float | None = None
    ) -> bool:
        """Waits until the call is allowed, first come, first served.

        Returns False, and takes nothing from the bucket, when that would take longer than `max_wait` seconds.
        """
        key = _bucket_key(method, channel)
        bucket = self._find_bucket(key, method)
        if max_wait is not None and bucket.seconds_to_wait(self.clock.now(), bucket.waiting) > max_wait:
            return False
        bucket.waiting += 1
        try:
            async with self._locks.setdefault(key, asyncio.Lock()):
                while (seconds := bucket.seconds_to_wait(self.clock.now())) > 0:
                    await self.clock.sleep(seconds)
                bucket.take(self.clock.now())
        finally:
            bucket.waiting -= 1
        return True

    def back_off(self, method: str, channel: str | None, seconds: float) -> None:
        """Blocks a method that Slack refused for so long, and slows all streams down for a minute."""
        now = self.clock.now()
        self._find_bucket(_bucket_key(method, channel), method).block(now + seconds)
        self._slow_until = now + _SLOW_DOWN_SECONDS

    def share_among(self, processes: int) -> None:
        """Uses one part of the limits from now on: Slack counts the calls of all processes together."""
        if processes == self.processes:
            return
        self.processes = max(1, processes)
        for key, bucket in self._buckets.items():
            bucket.limit = self._find_limit(key.partition(" ")[0])

    def _find_bucket(self, key: str, method: str) -> _TokenBucket:
        if key not in self._buckets:
            self._buckets[key] = _TokenBucket(self._find_limit(method))
        return self._buckets[key]

    def _find_limit(self, method: str) -> RateLimit:
        return self.rates.get(method, _DEFAULT_LIMIT).share_among(self.processes)


def _bucket_key(method: str, channel: str | None) -> str:
    if method in _PER_CHANNEL_METHODS:
        return f"{method} {channel}"
    return method
