"""Whether the server answers `/health` at once while it is attacked, in CPU time of its event loop.

Wall time would measure whatever else runs on the machine; the CPU time that the loop's thread spends between
a question and its answer is what the attack costs everybody else. It is compared with a fixed amount of work
in the same process: seconds alone would measure how fast the machine is.
"""

import asyncio
import contextlib
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
    """Asks `/health` again and again until the block ends, then checks.

    Must be entered in the event loop that serves, and asks in it: a client in a thread of its own would also
    count what the loop does while that thread waits for a core. What the loop does for the attacker counts:
    a large body is encoded before.
    """
    witness = HealthWitness(_measure_reference())
    stop = asyncio.Event()
    asking = asyncio.create_task(_ask(url, stop, witness))
    try:
        yield witness
    finally:
        stop.set()
        await asking  # the last question may be the one that waited
    witness.check()


def _measure_reference() -> float:
    before = time.thread_time()
    sum(number * number for number in range(300_000))
    return time.thread_time() - before


async def _ask(url: str, stop: asyncio.Event, witness: HealthWitness) -> None:
    address = urlsplit(url)
    while not stop.is_set():
        before = time.thread_time()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status = await _get_health(address.hostname, address.port)
        except (OSError, TimeoutError) as error:
            witness.failures.append(repr(error))
            return
        witness.waits.append(time.thread_time() - before)
        if status != "HTTP/1.1 200 OK":
            witness.failures.append(status)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_SECONDS):
                await stop.wait()


async def _get_health(host: str | None, port: int | None) -> str:
    """The status line. Without a library: its own work would count."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /health HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        status = await reader.readline()
        await reader.read()
        return status.decode("latin-1").strip()
    finally:
        writer.close()
