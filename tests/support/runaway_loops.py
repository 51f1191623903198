"""Models that never stop, kind by kind, and a supervisor with two agents whose models are of such a kind."""

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.tools import BaseTool, tool

from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from tests.support.agent_services import Where, place_agent
from tests.support.fakes.request import Request
from tests.support.fakes.script import Book, Call, Fail, Say, Script, Think, Turn
from tests.support.fakes.serving import ModelServer
from tests.support.harness import Client, ReceivedStream, agent, supervisor
from tests.support.providers import Provider

AGENTS = ("digger", "miner")

Step = Callable[[Request], Turn]


def anything() -> str:
    """A word without digits that nobody has used."""
    return secrets.token_hex(8).translate(str.maketrans("0123456789", "ghijklmnop"))


def look(at: str) -> Call:
    return Call("look", {"at": at})


def delegate(text: str, to: str = "digger") -> Call:
    return Call("task", {"description": text, "subagent_type": to})


def delegate_anything(_: Request) -> Turn:
    return Turn(delegate(anything()))


def delegate_to_helper(_: Request) -> Turn:
    return Turn(delegate(anything(), "helper"))


def answer(_: Request) -> Turn:
    return Turn(Say("Dug."))


def look_at_anything(_: Request) -> Turn:
    return Turn(look(anything()))


def look_at_the_same(_: Request) -> Turn:
    return Turn(look("the mine"))


def call_in_turn(*calls: Callable[[], Call]) -> Step:
    return lambda request: Turn(calls[request.position % len(calls)]())


def ask_as_told(request: Request) -> Turn:
    """Does what the agent's last answer asks for."""
    results = request.tool_results.get("task") or [anything()]
    return Turn(delegate(results[-1]))


@dataclass(frozen=True, slots=True)
class Loop:
    """What the models do: the supervisor's, the agents', and that of a helper that each agent may have.

    `waits`: it takes seconds, since it waits between its calls."""

    root: Step = delegate_anything
    inner: Step = answer
    helper: Step | None = None
    waits: bool = False


def of_agent(step: Step, *, waits: bool = False) -> Loop:
    """An agent that never stops behind a supervisor that never stops."""
    return Loop(delegate_anything, step, waits=waits)


LOOPS: Mapping[str, Loop] = {
    # The agent's tools.
    "the same call": of_agent(look_at_the_same),
    "other case and spaces": of_agent(
        lambda request: Turn(look("the" + " " * (request.position + 1) + "Mine"))
    ),
    "the keys in another order": of_agent(
        call_in_turn(
            lambda: Call("measure", {"at": "it", "deep": True}),
            lambda: Call("measure", {"deep": True, "at": "it"}),
        )
    ),
    "a counter in the arguments": of_agent(lambda request: Turn(look(f"page {request.position}"))),
    "ever different arguments": of_agent(look_at_anything),
    "ever longer arguments": of_agent(lambda request: Turn(look("down " * (request.position + 1)))),
    "two tools in turn": of_agent(call_in_turn(lambda: look("it"), lambda: Call("count", {"at": "it"}))),
    "three tools in turn": of_agent(
        call_in_turn(
            lambda: look("it"), lambda: Call("count", {"at": "it"}), lambda: Call("measure", {"at": "it"})
        )
    ),
    "a wait between the same calls": of_agent(
        call_in_turn(lambda: look("it"), lambda: Call("wait", {"seconds": 1})), waits=True
    ),
    "varied bad arguments": of_agent(lambda _: Turn(Call("look", {anything(): 1}))),
    "arguments that are no JSON": of_agent(lambda _: Turn(Call("look", arg_pieces=('{"at": ',)))),
    "messages that are cut off": of_agent(lambda _: Turn(look(anything()), cut=True)),
    "a tool that fails": of_agent(lambda _: Turn(Call("collapse", {"at": anything()}))),
    "two tools that fail in turn": of_agent(
        call_in_turn(lambda: Call("collapse", {"at": anything()}), lambda: Call("look", {anything(): 1}))
    ),
    "unknown tools": of_agent(lambda _: Turn(Call(f"tool_{anything()}", {}))),
    "parallel calls that are the same": of_agent(lambda _: Turn(*[look("the mine")] * 12)),
    "parallel calls that differ": of_agent(lambda _: Turn(*[look(anything()) for _ in range(30)])),
    "a hundred calls at once": of_agent(lambda _: Turn(*[look(anything()) for _ in range(100)])),
    "text beside each call": of_agent(lambda _: Turn(Say("Deeper still."), look(anything()))),
    "reasoning before each call": of_agent(lambda _: Turn(Think("Deeper still."), look(anything()))),
    "silence when there are no tools": of_agent(
        lambda request: Turn(look("it")) if request.tools else Turn()
    ),
    "nothing but silence": of_agent(lambda _: Turn()),
    "an agent's plan, the same": of_agent(lambda _: Turn(Call("write_todos", {"todos": ["Dig"]}))),
    "an agent's model that refuses": of_agent(lambda _: Turn(Fail(400, message="It is refused."))),
    # The supervisor's delegations and plans.
    "the same delegation": Loop(lambda _: Turn(delegate("Dig"))),
    "the same delegation in other words": Loop(
        lambda request: Turn(delegate("DIG  here" + "!" * request.position))
    ),
    "a counter in the delegation": Loop(lambda request: Turn(delegate(f"Dig in shaft {request.position}"))),
    "ever different delegations": Loop(delegate_anything),
    "two agents in turn": Loop(lambda request: Turn(delegate("Dig", AGENTS[request.position % 2]))),
    "two agents in turn, ever different": Loop(
        lambda request: Turn(delegate(anything(), AGENTS[request.position % 2]))
    ),
    "an agent that asks to be asked again": Loop(
        ask_as_told, lambda _: Turn(Say(f"Ask me again, with the word {anything()}."))
    ),
    "parallel delegations that are the same": Loop(lambda _: Turn(*[delegate("Dig")] * 12)),
    "parallel delegations that differ": Loop(lambda _: Turn(*[delegate(anything()) for _ in range(12)])),
    "agents of agents": Loop(delegate_anything, delegate_to_helper, look_at_anything),
    "an unknown agent": Loop(lambda _: Turn(delegate(anything(), "nobody"))),
    "delegations with bad arguments": Loop(lambda _: Turn(Call("task", {"subagent_type": anything()}))),
    "the supervisor's plan, the same": Loop(lambda _: Turn(Call("write_todos", {"todos": ["Dig"]}))),
    "the supervisor's plan, ever different": Loop(
        lambda _: Turn(Call("write_todos", {"todos": [anything()]}))
    ),
    "the supervisor's messages cut off": Loop(lambda _: Turn(delegate(anything()), cut=True)),
    "the supervisor's unreadable calls": Loop(lambda _: Turn(Call("task", arg_pieces=('{"subagent',)))),
    "the supervisor's unknown tools": Loop(lambda _: Turn(Call(f"tool_{anything()}", {}))),
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
        async def measure(at: str, deep: bool = False) -> str:
            """Measure."""
            self.runs += 1
            return "Nine feet."

        @tool
        async def collapse(at: str) -> str:
            """Fail."""
            self.runs += 1
            raise ConnectionError(at)

        self.tools = (look_around, count, measure, collapse)


@dataclass
class LoopRun:
    """A supervisor with two agents, and all that was asked of their models."""

    client: Client
    server: ModelServer
    mine: Mine

    @property
    def model_calls(self) -> int:
        return len(self.server.requests)


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """What one loop cost, and how it ended."""

    model_calls: int
    tool_calls: int
    seconds: float
    stream: ReceivedStream


@contextlib.asynccontextmanager
async def run_loop(
    loop: Loop, where: Where, provider: Provider, limits: Mapping[str, str]
) -> AsyncIterator[LoopRun]:
    """The supervisor and its agents, whose models are behind one scripted server of the provider."""
    mine = Mine()
    scripts = {"supervisor": Script(loop.root), "agents": Script(loop.inner)}
    if loop.helper is not None:
        scripts["helpers"] = Script(loop.helper)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(provider.serve(Book.for_model(scripts)))
        env = {**provider.settings(server, LLM_MODEL=provider.model("supervisor")), **limits}
        placed = [
            await stack.enter_async_context(
                place_agent(_build_agent(name, loop, provider, mine), where, **env)
            )
            for name in AGENTS
        ]
        client = await stack.enter_async_context(supervisor(None, agents=placed, env=env))
        yield LoopRun(client, server, mine)


async def measure_loop(
    loop: Loop, where: Where, provider: Provider, limits: Mapping[str, str]
) -> LoopFigures:
    async with run_loop(loop, where, provider, limits) as run:
        began = time.monotonic()
        stream = await run.client.ask("Dig")
        seconds = time.monotonic() - began
        assert not run.server.refusals, run.server.refusals[:3]
        return LoopFigures(run.model_calls, run.mine.runs, seconds, stream)


def _build_agent(name: str, loop: Loop, provider: Provider, mine: Mine) -> LocalAgent:
    helpers: list[LocalAgent] = []
    if loop.helper is not None:
        helpers.append(agent("helper", None, *mine.tools, model=provider.model("helpers")))
    return agent(name, None, *mine.tools, agents=helpers, model=provider.model("agents"))
