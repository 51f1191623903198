"""The eight moments at which a server is killed, and one kill: runs come to the moment together, die, and go
on in the next process."""

import asyncio
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.crash.checks import Verdict, judged
from tests.support.crash.stage import Launch, Reader, Stage

SPREAD = 0.02  # seconds at random between the moment and the kill


@dataclass(frozen=True, slots=True)
class Stratum:
    """`held`: points at which runs are kept and killed; `loose`: points from which they go on for a random
    moment before the kill."""

    name: str
    held: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    asks: bool = False


SENT = "sent"  # nothing is waited for: the question has just been sent
PAUSED = "paused"
ANSWERED = "answered"  # the answer to what the run asked has just been sent

STRATA = (
    Stratum("before the first token", ("supervisor:0:0", "keeper:0:0"), (SENT,)),
    Stratum(
        "mid-text",
        ("supervisor:0:2", "supervisor:1:3", "keeper:0:2", "keeper:1:1", "keeper:2:3"),
        ("keeper:0:1", "supervisor:1:1"),
    ),
    Stratum("in a read tool", ("keeper:look",)),
    Stratum("in a write tool", ("keeper:arrive", "keeper:write", "keeper:leave"), ("keeper:arrive",)),
    Stratum("between tool end and checkpoint", (), ("keeper:look", "keeper:leave")),
    Stratum(
        "remote call in flight",
        ("scout:0:0", "scout:0:2", "scout:arrive", "scout:1:1"),
        ("scout:leave", "supervisor:1:5"),
    ),
    Stratum("paused for input", (PAUSED,), (ANSWERED, "supervisor:2:3"), asks=True),
    Stratum("mid-answer", ("supervisor:3:0", "supervisor:3:4"), ("supervisor:3:8", "supervisor:3:12")),
)


async def one_kill(
    stage: Stage, stratum: Stratum, together: int, rng: random.Random
) -> tuple[Launch, str, list[tuple[Reader, Verdict]]]:
    """Kills a server when some runs have come to a point of the stratum: how the next one started, the point,
    what became of the runs."""
    point, loose = rng.choice(
        [*((one, False) for one in stratum.held), *((one, True) for one in stratum.loose)]
    )
    return await kill_at(stage, stratum, point, together, loose=loose, delay=rng.uniform(0, SPREAD))


async def kill_at(
    stage: Stage,
    stratum: Stratum,
    point: str,
    together: int,
    *,
    loose: bool,
    delay: float,
    by: signal.Signals = signal.SIGKILL,
) -> tuple[Launch, str, list[tuple[Reader, Verdict]]]:
    if stage.process is None or stage.process.returncode is not None or stage.asking != stratum.asks:
        await stage.stop(signal.SIGTERM)
        await stage.serve(asking=stratum.asks)
    readers = [stage.reader(asks=stratum.asks) for _ in range(together)]
    if ":" in point:
        stage.points.hold(point, [reader.tag for reader in readers])
    following = await bring_to_point(stage, readers, point)
    if loose:
        stage.points.release()
    await asyncio.sleep(delay)
    await stage.stop(by)
    stage.points.release()
    launch = await stage.serve(asking=stratum.asks)
    await finish_runs(stage, readers, following)
    return (
        launch,
        f"{point}{' +' if loose else ''}",
        [(reader, judged(stage, reader, launch.at)) for reader in readers],
    )


async def bring_to_point(stage: Stage, readers: Sequence[Reader], point: str) -> list[asyncio.Task[None]]:
    """The runs are at the point; what reads them goes on."""
    following = [asyncio.create_task(stage.follow(reader)) for reader in readers]
    if ":" in point:
        async with asyncio.timeout(120):
            await stage.points.reached()
    elif point in (PAUSED, ANSWERED):
        await asyncio.gather(*following)
        following = []
    if point == ANSWERED:
        for reader in readers:
            reader.answer()
        following = [asyncio.create_task(stage.follow(reader)) for reader in readers]
    return following


async def finish_runs(
    stage: Stage, readers: Sequence[Reader], following: Sequence[asyncio.Task[None]]
) -> None:
    await asyncio.gather(*following)
    waiting = [reader for reader in readers if reader.paused]
    for reader in waiting:
        reader.answer()
    await asyncio.gather(*(stage.follow(reader) for reader in waiting))
