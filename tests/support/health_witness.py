"""Whether the server answers `/health` at once while it is attacked, in CPU time of its event loop.

Wall time would measure whatever else runs on the machine; the CPU time that the loop's thread spends between
a question and its answer is what the attack costs everybody else. It is compared with a fixed amount of work
in the same process: seconds alone would measure how fast the machine is.
"""

import asyncio
import contextlib
import http.client
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

# How often the reference work (about 13 ms on a quiet machine) may fit into one wait.
LIMIT_RATIO = 30
PAUSE_SECONDS = 0.01
TIMEOUT_SECONDS = 60.0


@dataclass(slots=True)
class HealthWitness:
    """What `/health` answered so far."""

    reference_seconds: float  # CPU of a fixed amount of work in this process
    waits: list[float] = field(default_factory=list)  # CPU seconds of the event loop for each answer
    failures: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Fails when an answer was missing, wrong or late."""
        assert not self.failures, self.failures[:3]
        assert self.waits, "/health was never asked"
        longest = max(self.waits)
        ratio = longest / self.reference_seconds
        assert ratio <= LIMIT_RATIO, (
            f"/health had to wait for {longest:.3f} s of work, {ratio:.0f} references"
        )


@contextlib.asynccontextmanager
async def health_witness(url: str) -> AsyncIterator[HealthWitness]:
    """Asks `/health` from a thread of its own until the block ends, then checks.

    Must be entered in the thread whose event loop serves. What that thread does for the attacker counts too:
    a large body is encoded before.
    """
    witness = HealthWitness(_measure_reference())
    clock = time.pthread_getcpuclockid(threading.get_ident())
    stop = threading.Event()
    thread = threading.Thread(target=_ask, args=(url, clock, stop, witness), daemon=True)
    thread.start()
    try:
        yield witness
    finally:
        stop.set()
        await asyncio.to_thread(thread.join)  # the last question may be the one that waited
    witness.check()


def _measure_reference() -> float:
    before = time.thread_time()
    sum(number * number for number in range(300_000))
    return time.thread_time() - before


def _ask(url: str, clock: int, stop: threading.Event, witness: HealthWitness) -> None:
    address = urlsplit(url)
    assert address.hostname is not None
    while not stop.is_set():
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=TIMEOUT_SECONDS)
        before = time.clock_gettime(clock)
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException) as error:
            witness.failures.append(repr(error))
            return
        finally:
            connection.close()
        witness.waits.append(time.clock_gettime(clock) - before)
        if response.status != 200:
            witness.failures.append(f"HTTP {response.status}")
        stop.wait(PAUSE_SECONDS)
