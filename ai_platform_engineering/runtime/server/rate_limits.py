"""Counts of wrong keys by address and of requests by person, in bounded memory.

Nobody is kept waiting: a request that comes too early is refused, and told when to come back."""

import hashlib
import ipaddress
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

Clock = Callable[[], float]
_MAX_ENTRIES = 10_000
_FIRST_SECONDS = 10.0
_FORGET_SECONDS = 900.0
_IPV6_PREFIX = 64  # what one subscriber gets


@dataclass(slots=True)
class _WrongKeys:
    count: int
    last_digest: bytes
    last_time: float
    blocked_until: float = 0.0


class WrongKeyCounter:
    """Counts different wrong keys by address, and blocks an address for twice as long with each further one.

    The same wrong key again is a client with an old key, and is not counted."""

    def __init__(self, limit: int, max_seconds: float, clock: Clock = time.monotonic) -> None:
        self._limit = limit
        self._max_seconds = max_seconds
        self._clock = clock
        self._salt = secrets.token_bytes(16)
        self._addresses: OrderedDict[str, _WrongKeys] = OrderedDict()

    def seconds_to_wait(self, address: str) -> int:
        """How long the address is blocked; 0 when it is not."""
        entry = self._addresses.get(_group_address(address))
        if entry is None:
            return 0
        return max(0, math.ceil(entry.blocked_until - self._clock()))

    def record(self, address: str, key: bytes) -> None:
        """Counts a wrong key."""
        group = _group_address(address)
        now = self._clock()
        digest = hashlib.blake2b(key, key=self._salt, digest_size=16).digest()
        entry = self._addresses.get(group)
        if entry is None or now - entry.last_time > _FORGET_SECONDS:
            entry = self._addresses[group] = _WrongKeys(0, b"", now)
        self._addresses.move_to_end(group)
        if len(self._addresses) > _MAX_ENTRIES:
            self._addresses.popitem(last=False)
        entry.last_time = now
        if digest == entry.last_digest:
            return
        entry.last_digest = digest
        entry.count += 1
        excess = entry.count - self._limit
        if excess >= 0:
            seconds = min(self._max_seconds, _FIRST_SECONDS * 2.0 ** min(excess, 30))
            entry.blocked_until = now + seconds
            log.warning("%d wrong keys from %s: it is refused for %g s", entry.count, group, seconds)
        elif entry.count == 1:
            log.warning("a wrong key from %s", group)


class RequestCounter:
    """Limits the requests of each person: so many at once, and as many again in each minute."""

    def __init__(self, per_minute: int, clock: Clock = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._people: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when

    def take(self, person: str) -> int:
        """Counts a request; returns the seconds to wait, 0 when it may be served."""
        now = self._clock()
        requests_left, since = self._people.get(person, (float(self._per_minute), now))
        requests_left = min(float(self._per_minute), requests_left + (now - since) * self._per_minute / 60)
        wait = 0
        if requests_left < 1:
            wait = max(1, math.ceil((1 - requests_left) * 60 / self._per_minute))
        else:
            requests_left -= 1
        self._people[person] = requests_left, now
        self._people.move_to_end(person)
        if len(self._people) > _MAX_ENTRIES:
            self._people.popitem(last=False)
        return wait


def _group_address(address: str) -> str:
    """The address, or the network of an IPv6 address: its owner has all of them."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
