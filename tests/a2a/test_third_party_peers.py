"""Agents made with Strands, Google's Agent Development Kit and Pydantic AI, in all of their modes, behind the
supervisor: what a person sees of them."""

from collections.abc import Iterator

import pytest

from tests.support.peer_checks import (
    check_cancel,
    check_delegation,
    check_error,
    check_failed_tool,
    check_kill,
    check_long_answer,
    check_time_out,
)
from tests.support.peers import PEERS, RunningPeer, run_peer

pytestmark = pytest.mark.full


@pytest.fixture(scope="module", params=PEERS, ids=str)
def running(request: pytest.FixtureRequest) -> Iterator[RunningPeer]:
    """One process for all tests of a peer, which come one after the other; the last one kills it."""
    with run_peer(request.param) as peer:
        yield peer


async def test_a_delegation_and_its_texts_are_shown_once(running: RunningPeer) -> None:
    delegation_problems, text_problems = await check_delegation(running)
    assert delegation_problems == []
    assert text_problems == []


async def test_a_long_answer_is_shown_once(running: RunningPeer) -> None:
    assert await check_long_answer(running) == []


async def test_an_error_is_shown_once(running: RunningPeer) -> None:
    assert await check_error(running) == []


@pytest.mark.parametrize("running", [peer for peer in PEERS if peer.tells_tools], ids=str, indirect=True)
async def test_a_tool_that_failed_is_shown(running: RunningPeer) -> None:
    assert await check_failed_tool(running) == []


async def test_a_delegation_that_takes_too_long_is_cancelled_there(running: RunningPeer) -> None:
    assert await check_time_out(running) == []


async def test_a_cancel_reaches_it(running: RunningPeer) -> None:
    assert await check_cancel(running) == []


async def test_one_that_is_killed_is_a_failed_step(running: RunningPeer) -> None:
    problems, _ = await check_kill(running, lost_timeout=1.0)
    assert problems == []
