"""A server that is killed or stopped in the middle of runs: the next one goes on with them, and a reader
that held on has it all.
"""

import asyncio
import random
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ai_platform_engineering.core.events import Failed, Notice
from tests.support.crash.checks import judged
from tests.support.crash.script import UNSURE
from tests.support.crash.stage import Stage, staged
from tests.support.crash.strata import STRATA, kill_at
from tests.support.processes import run_command
from tests.support.server_starts import is_server_start

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

STRATUM = {stratum.name: stratum for stratum in STRATA}
REMOTE, WRITING = STRATUM["remote call in flight"], STRATUM["in a write tool"]
TOGETHER = 2

# One point of each stratum; the benchmark knows the others.
POINTS = {
    "before the first token": "keeper:0:0",
    "mid-text": "keeper:0:2",
    "in a read tool": "keeper:look",
    "in a write tool": "keeper:write",
    "between tool end and checkpoint": "keeper:leave",
    "remote call in flight": "scout:0:2",
    "paused for input": "answered",
    "mid-answer": "supervisor:3:4",
}
# A text, an effect and a person: what is in flight is of another kind in each. The others are `full`.
ALWAYS = ("mid-text", "in a write tool", "paused for input")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("crash"), forked=True) as running:
        yield running


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ALWAYS else pytest.mark.full)
        for name in sorted(STRATUM, key=lambda name: STRATUM[name].asks)  # those need another command
    ],
)
async def test_a_run_whose_server_is_killed_goes_on_in_the_next_one(stage: Stage, name: str) -> None:
    stratum, point = STRATUM[name], POINTS[name]
    loose = point not in stratum.held
    _, _, runs = await kill_at(stage, stratum, point, TOGETHER, loose=loose, delay=random.uniform(0, 0.02))
    assert [verdict.wrong for _, verdict in runs] == [()] * TOGETHER
    if not loose and stratum is not REMOTE:  # otherwise the write may be under way just then
        assert [verdict.unknown for _, verdict in runs] == [stratum is WRITING] * TOGETHER
    for reader, verdict in runs:
        notices = [
            event.code
            for _, event in reader.events
            if isinstance(event, Notice) and not is_server_start(event)
        ]
        assert stratum.asks or notices == ["recovery"]
        answer = reader.events[-1][1]
        assert (UNSURE.format(tag=reader.tag) in str(answer)) == verdict.unknown


async def test_a_server_that_is_stopped_hands_its_runs_to_the_next_one(stage: Stage) -> None:
    _, _, runs = await kill_at(stage, REMOTE, "scout:0:2", TOGETHER, loose=False, delay=0, by=signal.SIGTERM)
    assert [verdict.wrong for _, verdict in runs] == [
        ()
    ] * TOGETHER  # one end, the answer; one order elsewhere, and not cancelled


async def test_a_second_server_on_the_same_home_is_refused_and_the_first_goes_on(stage: Stage) -> None:
    if stage.process is None or stage.asking:
        await stage.stop(signal.SIGTERM)
        await stage.serve()
    second = await run_command("caipe", "serve", "--port", "0", env=stage.environment(stage.name))
    reader = stage.reader()
    await stage.follow(reader)
    assert second.code == 1
    assert "is in use by another process" in second.err
    assert "Traceback" not in second.err
    assert judged(stage, reader).wrong == ()


async def test_without_storage_a_server_that_is_stopped_ends_its_runs_with_words(stage: Stage) -> None:
    async with stage.beside("forgetful", LANGGRAPH_CHECKPOINT_TYPE="memory") as lone:
        await lone.serve()
        reader = lone.reader()
        lone.points.hold("supervisor:0:3", [reader.tag])
        following = asyncio.create_task(lone.follow(reader))
        await lone.points.reached()
        await lone.stop(signal.SIGTERM)
        lone.points.release()
        await following
    last = reader.events[-1][1]
    assert isinstance(last, Failed)
    assert (last.code, last.message) == (
        "shutdown",
        "The server was stopped before the answer was finished. Ask again when it is back.",
    )
    assert [seq for seq, _ in reader.events] == list(range(1, len(reader.events) + 1))
