"""Models that never stop, of every kind: each run ends with an answer, within the run's budget over all
agents, in-process and remote, over HTTP in the dialect of each provider.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from ai_platform_engineering.core.events import Answered
from tests.support.agent_services import Where, place_agent
from tests.support.approving_agent import Person, only_request_id
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Fail, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, agent, supervisor
from tests.support.providers import BEDROCK, DIALECTS, Provider
from tests.support.runaway_loops import (
    AGENTS,
    LOOPS,
    Loop,
    Mine,
    Step,
    anything,
    delegate,
    delegate_anything,
    look,
    look_at_anything,
    look_at_the_same,
    measure_loop,
    run_loop,
)
from tests.support.storages import in_folder, supervisor_on

MODEL_CALLS = 40
TOOL_CALLS = 120
LIMITS = {"RUN_MODEL_CALL_LIMIT": str(MODEL_CALLS), "RUN_TOOL_CALL_LIMIT": str(TOOL_CALLS)}
# For the table, whose loops are many: what a run costs grows with its budget.
FEW_MODEL_CALLS = 20
FEW_TOOL_CALLS = 60
FEW_LIMITS = {"RUN_MODEL_CALL_LIMIT": str(FEW_MODEL_CALLS), "RUN_TOOL_CALL_LIMIT": str(FEW_TOOL_CALLS)}
PLACES: tuple[Where, ...] = ("in-process", "remote")


def delegate_once(request: Request) -> Turn:
    return Turn(Say("It said: {{tool:task}}")) if request.position else Turn(delegate("Dig"))


# --- the table ----------------------------------------------------------------------------------------------


def list_combinations() -> Iterator[ParameterSet]:
    """Each kind of loop in each place and dialect; in `make test` each kind in each place, in one dialect."""
    for kind_number, (kind, loop) in enumerate(LOOPS.items()):
        for place_number, where in enumerate(PLACES):
            for dialect_number, provider in enumerate(DIALECTS):
                is_first = dialect_number == (kind_number + place_number) % len(DIALECTS)
                marks = () if is_first and not loop.waits else (pytest.mark.full,)
                yield pytest.param(kind, where, provider, marks=marks, id=f"{kind}-{where}-{provider}")


@pytest.mark.sample(27)
@pytest.mark.parametrize(("kind", "where", "provider"), list(list_combinations()))
async def test_a_loop_ends_with_an_answer_within_the_budget(
    kind: str, where: Where, provider: Provider
) -> None:
    figures = await measure_loop(LOOPS[kind], where, provider, FEW_LIMITS)
    assert figures.stream.last.state == "completed", figures.stream.last.status_text
    assert figures.stream.answer.strip()
    assert "too many steps" not in figures.stream.answer
    assert figures.model_calls <= FEW_MODEL_CALLS
    assert figures.tool_calls <= FEW_TOOL_CALLS


def test_the_table_has_all_kinds_of_loops() -> None:
    assert len(LOOPS) >= 32


@pytest.mark.full
async def test_bedrock_gets_its_tools_in_the_last_turn_and_the_calls_are_refused() -> None:
    """The fake refuses a history with calls when no tool is declared, as Converse does."""
    async with run_loop(Loop(inner=look_at_the_same), "in-process", BEDROCK, LIMITS) as run:
        stream = await run.client.ask("Dig")
    assert stream.last.state == "completed"
    assert not run.server.refusals
    with_history = [request for request in run.server.requests if request.since_user]
    assert with_history
    assert all(request.tools for request in with_history)


# --- details, with models in the process --------------------------------------------------------------------


@dataclass
class Run:
    """A supervisor with two agents, and all that was asked of their models."""

    client: Client
    models: Sequence[ScriptedChatModel]
    mine: Mine

    @property
    def model_calls(self) -> int:
        return sum(len(model.requests) for model in self.models)

    def assert_ended_within_budget(self, stream: ReceivedStream) -> None:
        assert stream.last.state == "completed", stream.last.status_text
        assert stream.answer.strip()
        assert self.model_calls <= MODEL_CALLS
        assert self.mine.runs <= TOOL_CALLS


@contextlib.asynccontextmanager
async def run_models(root: Step, inner: Step, where: Where) -> AsyncIterator[Run]:
    mine = Mine()
    root_model = ScriptedChatModel(script=Script(root))
    inner_models = [ScriptedChatModel(script=Script(inner)) for _ in AGENTS]
    async with contextlib.AsyncExitStack() as stack:
        placed = [
            await stack.enter_async_context(place_agent(agent(name, model, *mine.tools), where))
            for name, model in zip(AGENTS, inner_models, strict=True)
        ]
        client = await stack.enter_async_context(supervisor(root_model, agents=placed, env=LIMITS))
        yield Run(client, [root_model, *inner_models], mine)


everywhere = pytest.mark.parametrize("where", PLACES)


@pytest.mark.sample(1)
@everywhere
async def test_an_agent_whose_model_fails_is_asked_a_few_times(where: Where) -> None:
    async with run_models(delegate_anything, lambda _: Turn(Fail(400)), where) as run:
        stream = await run.client.ask("Dig")
        run.assert_ended_within_budget(stream)
    assert len(run.models[1].requests) == 6
    assert "digger failed 6 times in a row" in stream.answer


@pytest.mark.sample(1)
@everywhere
async def test_the_answer_says_what_the_whole_run_has_used(where: Where) -> None:
    async with run_models(delegate_once, look_at_anything, where) as run:
        stream = await run.client.ask("Dig")
        run.assert_ended_within_budget(stream)
    [answered] = [event for event in stream.events if isinstance(event, Answered)]
    assert answered.usage is not None
    assert answered.usage.model_calls == run.model_calls
    assert answered.usage.tool_calls == run.mine.runs + 1  # and the delegation


@pytest.mark.sample(1)
@everywhere
async def test_what_one_delegation_used_the_next_one_cannot(where: Where) -> None:
    async with run_models(delegate_anything, look_at_anything, where) as run:
        stream = await run.client.ask("Dig")
        run.assert_ended_within_budget(stream)
        used = run.model_calls
        again = await run.client.ask("Dig again", contextId=stream.context_id)
        assert again.last.state == "completed"
    assert used < run.model_calls <= 2 * MODEL_CALLS, "the next question has a budget of its own"
    assert f"the run's budget of {MODEL_CALLS} model calls is used up" in stream.answer


async def test_the_budget_is_the_same_after_a_pause_and_a_restart(tmp_path: Path) -> None:
    def root(request: Request) -> Turn:
        if request.position == 1:
            return Turn(Call("CAIPEAgentResponse", {"response": "Go on?"}))
        return Turn(delegate(anything())) if request.tools else Turn(Say("Enough."))

    def inner(request: Request) -> Turn:
        return Turn(look(anything())) if request.position < 10 else Turn(Say("Dug."))

    mine = Mine()
    models = [ScriptedChatModel(script=Script(step)) for step in (root, inner)]
    digger = agent("digger", models[1], *mine.tools)
    async with supervisor_on(
        storage := in_folder(tmp_path), models[0], agents=[digger], env=LIMITS
    ) as client:
        paused = await Person(client, storage).ask()
        assert paused.last.state == "input-required"
        assert len(models[1].requests) == 11
    async with supervisor_on(
        storage := in_folder(tmp_path), models[0], agents=[digger], env=LIMITS
    ) as client:
        stream = await Person(client, storage).answer(paused, {only_request_id(paused): {"answer": "yes"}})
    assert stream.answer == "Enough."
    assert sum(len(model.requests) for model in models) in range(MODEL_CALLS - 5, MODEL_CALLS + 1)


class DemandingModel(ScriptedChatModel):
    """A model of a provider that demands a list of tools while the history holds calls."""

    @property
    def _llm_type(self) -> str:
        return "amazon_bedrock_converse_chat"


async def test_a_provider_that_demands_tools_gets_them_and_the_calls_are_refused() -> None:
    model, mine = DemandingModel(script=Script(look_at_the_same)), Mine()
    async with supervisor(model, tools=mine.tools) as client:
        stream = await client.ask("Dig")
    assert stream.last.state == "completed"
    assert "look: It is dark." in stream.answer
    assert mine.runs == 6
    assert len(model.requests) == 8
    assert all(request.tools for request in model.requests)
