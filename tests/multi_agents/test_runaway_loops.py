"""Models that never stop, of every kind: each run ends with an answer, within the run's budget over all
agents, in-process and remote.
"""

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from langchain_core.tools import BaseTool, tool

from ai_platform_engineering.core.events import Answered
from tests.support.agent_services import Where, place_agent
from tests.support.approving_agent import Person, only_request_id
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Fail, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, agent, supervisor
from tests.support.storages import in_folder, supervisor_on

MODEL_CALLS = 40
TOOL_CALLS = 120
LIMITS = {"RUN_MODEL_CALL_LIMIT": str(MODEL_CALLS), "RUN_TOOL_CALL_LIMIT": str(TOOL_CALLS)}
AGENTS = ("digger", "miner")

Step = Callable[[Request], Turn]


def anything() -> str:
    return secrets.token_hex(8).translate(str.maketrans("0123456789", "ghijklmnop"))


def look(at: str) -> Call:
    return Call("look", {"at": at})


def delegate(text: str, to: str = "digger") -> Call:
    return Call("task", {"description": text, "subagent_type": to})


def delegate_anything(_: Request) -> Turn:
    return Turn(delegate(anything()))


def delegate_once(request: Request) -> Turn:
    return Turn(Say("It said: {{tool:task}}")) if request.position else Turn(delegate("Dig"))


def answer(_: Request) -> Turn:
    return Turn(Say("Dug."))


def look_at_the_same(_: Request) -> Turn:
    return Turn(look("the mine"))


AGENT_LOOPS: dict[str, Step] = {
    "the same call": look_at_the_same,
    "other case and spaces": lambda request: Turn(look("the" + " " * (request.position + 1) + "Mine")),
    "a counter in the arguments": lambda request: Turn(look(f"page {request.position}")),
    "ever different arguments": lambda _: Turn(look(anything())),
    "two tools in turn": lambda request: Turn(
        Call("count", {"at": "it"}) if request.position % 2 else look("it")
    ),
    "varied bad arguments": lambda _: Turn(Call("look", {anything(): 1})),
    "arguments that are no JSON": lambda _: Turn(Call("look", arg_pieces=('{"at": ',))),
    "a tool that fails": lambda _: Turn(Call("collapse", {"at": anything()})),
    "two tools that fail in turn": lambda request: Turn(
        Call("collapse", {"at": anything()}) if request.position % 2 else Call("look", {anything(): 1})
    ),
    "unknown tools": lambda _: Turn(Call(f"tool_{anything()}", {})),
    "parallel calls that are the same": lambda _: Turn(*[look("the mine")] * 12),
    "parallel calls that differ": lambda _: Turn(*[look(anything()) for _ in range(30)]),
    "text beside each call": lambda _: Turn(Say("Deeper still."), look(anything())),
    "silence when there are no tools": lambda request: Turn(look("it")) if request.tools else Turn(),
    "the same plan": lambda _: Turn(Call("write_todos", {"todos": ["Dig"]})),
}
SUPERVISOR_LOOPS: dict[str, Step] = {
    "the same delegation": lambda _: Turn(delegate("Dig")),
    "the same delegation in other words": lambda request: Turn(
        delegate("DIG  here" + "!" * request.position)
    ),
    "a counter in the delegation": lambda request: Turn(delegate(f"Dig in shaft {request.position}")),
    "ever different delegations": delegate_anything,
    "two agents in turn": lambda request: Turn(delegate("Dig", AGENTS[request.position % 2])),
    "two agents in turn, ever different": lambda request: Turn(
        delegate(anything(), AGENTS[request.position % 2])
    ),
    "parallel delegations that are the same": lambda _: Turn(*[delegate("Dig")] * 12),
    "parallel delegations that differ": lambda _: Turn(*[delegate(anything()) for _ in range(12)]),
    "an unknown agent": lambda _: Turn(delegate(anything(), "nobody")),
    "delegations with bad arguments": lambda _: Turn(Call("task", {"subagent_type": anything()})),
    "the same plan": AGENT_LOOPS["the same plan"],
    "unknown tools": AGENT_LOOPS["unknown tools"],
}


@dataclass
class Mine:
    """The tools of an agent, and how often they ran."""

    runs: int = 0
    tools: Sequence[BaseTool] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        @tool("look")
        async def look_around(at: str) -> str:
            """Look."""
            self.runs += 1
            return "It is dark."

        @tool
        async def count(at: str) -> str:
            """Count."""
            self.runs += 1
            return "Seven."

        @tool
        async def collapse(at: str) -> str:
            """Fail."""
            self.runs += 1
            raise ConnectionError(at)

        self.tools = (look_around, count, collapse)


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
async def run_loops(root: Step, inner: Step, where: Where) -> AsyncIterator[Run]:
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


everywhere = pytest.mark.parametrize("where", ["in-process", "remote"])


@everywhere
@pytest.mark.parametrize("loop", AGENT_LOOPS)
async def test_an_agent_that_never_stops_behind_a_supervisor_that_never_stops(
    loop: str, where: Where
) -> None:
    async with run_loops(delegate_anything, AGENT_LOOPS[loop], where) as run:
        run.assert_ended_within_budget(await run.client.ask("Dig"))


@everywhere
@pytest.mark.parametrize("loop", SUPERVISOR_LOOPS)
async def test_a_supervisor_that_never_stops(loop: str, where: Where) -> None:
    async with run_loops(SUPERVISOR_LOOPS[loop], answer, where) as run:
        run.assert_ended_within_budget(await run.client.ask("Dig"))


@everywhere
async def test_an_agent_whose_model_fails_is_asked_a_few_times(where: Where) -> None:
    async with run_loops(delegate_anything, lambda _: Turn(Fail(400)), where) as run:
        stream = await run.client.ask("Dig")
        run.assert_ended_within_budget(stream)
    assert len(run.models[1].requests) == 6
    assert "digger failed 6 times in a row" in stream.answer


@everywhere
async def test_the_answer_says_what_the_whole_run_has_used(where: Where) -> None:
    async with run_loops(delegate_once, AGENT_LOOPS["ever different arguments"], where) as run:
        stream = await run.client.ask("Dig")
        run.assert_ended_within_budget(stream)
    [answered] = [event for event in stream.events if isinstance(event, Answered)]
    assert answered.usage is not None
    assert answered.usage.model_calls == run.model_calls
    assert answered.usage.tool_calls == run.mine.runs + 1  # and the delegation


@everywhere
async def test_what_one_delegation_used_the_next_one_cannot(where: Where) -> None:
    async with run_loops(delegate_anything, AGENT_LOOPS["ever different arguments"], where) as run:
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
