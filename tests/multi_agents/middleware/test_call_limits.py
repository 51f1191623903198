"""A model that does not stop: every bound ends in an answer or in a sentence, for the supervisor, its
agents and theirs.
"""

import random
import uuid
from collections.abc import Callable

import pytest
from langchain_core.tools import BaseTool, tool
from langgraph.errors import GraphRecursionError

from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Fail, Say, Script, Turn
from tests.support.harness import ReceivedStream, agent, supervisor

TOO_MANY = "I stopped: the request needed too many steps. A narrower question may help."
FOUND = "I stopped before I had a complete answer: "


class Mine:
    """A tool that can be used for ever; it remembers what it gave."""

    def __init__(self) -> None:
        self.given: list[str] = []

        @tool
        async def dig(place: int) -> str:
            """Dig deeper."""
            self.given.append(uuid.uuid4().hex)
            return f"depth={self.given[-1]} {place}"

        self.tool: BaseTool = dig


def digging() -> Call:
    return Call("dig", {"place": random.randrange(10**9)})


def restless() -> ScriptedChatModel:
    """Calls with ever-different arguments, whether tools are bound or not."""
    return ScriptedChatModel(script=Script(lambda _: Turn(Say("Deeper still."), digging())))


def obedient(last: str = "Found {{tool:dig.depth}}.") -> ScriptedChatModel:
    """Calls as long as tools are bound, then answers."""
    return ScriptedChatModel(
        script=Script(lambda request: Turn(digging()) if request.tools else Turn(Say(last)))
    )


def delegating(to: str = "digger", last: str = "It said: {{tool:task}}") -> ScriptedChatModel:
    return ScriptedChatModel(
        script=Script(Turn(Call("task", {"description": "Dig", "subagent_type": to})), Turn(Say(last)))
    )


def notices(stream: ReceivedStream) -> list[str]:
    return [frame.status_text for frame in stream.frames if frame.state == "working" and frame.status_text]


def assert_readable(stream: ReceivedStream) -> None:
    for word in (b"Traceback", b"GraphRecursionError", b"recursion_limit", b".py"):
        assert word not in stream.raw


def within(limit: int) -> range:
    """How many model calls a limit of steps allows: a call and its tools are two steps, and the last call
    is kept for an answer.
    """
    return range(limit // 2 - 2, limit // 2 + 2)


# --- steps of the graph ---------------------------------------------------------------------------


async def test_a_supervisor_that_never_stops_calling_answers_with_what_it_found() -> None:
    model, mine = restless(), Mine()
    async with supervisor(model, tools=[mine.tool], env={"LANGGRAPH_RECURSION_LIMIT": "30"}) as client:
        stream = await client.ask("Dig")
        assert stream.last.state == "completed"
        assert stream.answer.startswith(f"{FOUND}the limit of steps is near.")
        assert mine.given[-1] in stream.answer
        assert "What is missing" in stream.answer
        assert len(model.requests) in within(30)
        assert len(set(mine.given)) == len(model.requests) - 2, "ever-different calls"
        assert_readable(stream)
        assert (await client.ask("Dig again", contextId=stream.context_id)).answer.startswith(FOUND)


async def test_an_agent_that_never_stops_calling_hands_back_what_it_found() -> None:
    model, mine = restless(), Mine()
    async with supervisor(
        delegating(), agents=[agent("digger", model, mine.tool)], env={"LANGGRAPH_RECURSION_LIMIT": "30"}
    ) as client:
        stream = await client.ask("Dig")
        assert stream.answer.startswith(f"It said: {FOUND}")
        assert mine.given[-1] in stream.answer
        assert stream.last.state == "completed"
        assert stream.notifications[-1] == "✅ Supervisor: Digger completed\n"
        assert len(model.requests) in within(30)
        assert_readable(stream)


@pytest.mark.parametrize("limit", [12, 60])
async def test_the_limit_of_steps_reaches_every_agent_and_their_agents(limit: int) -> None:
    models, mine = {name: restless() for name in ("supervisor", "digger", "mole")}, Mine()
    mole = agent("mole", models["mole"], mine.tool)
    outer = agent("outer", delegating("mole"), agents=[mole])
    digger = agent("digger", models["digger"], mine.tool)
    env = {"LANGGRAPH_RECURSION_LIMIT": str(limit)}
    async with supervisor(models["supervisor"], tools=[mine.tool], env=env) as client:
        await client.ask("Dig")
    for to in (digger, outer):
        async with supervisor(delegating(to.definition.name), agents=[to], env=env) as client:
            stream = await client.ask("Dig")
            assert FOUND in stream.answer
            assert_readable(stream)
    counts = {name: len(model.requests) for name, model in models.items()}
    assert all(count in within(limit) for count in counts.values()), counts
    assert len(set(counts.values())) == 1, counts


@pytest.mark.parametrize("limit", [5, 6, 7, 8, 30, 31])
async def test_a_model_that_obeys_answers_within_the_steps_it_has(limit: int) -> None:
    model, mine = obedient(), Mine()
    async with supervisor(model, tools=[mine.tool], env={"LANGGRAPH_RECURSION_LIMIT": str(limit)}) as client:
        stream = await client.ask("Dig")
        assert stream.answer == f"Found {mine.given[-1]}."
        assert stream.last.state == "completed"
        assert notices(stream) == ["I stop using tools and answer now: the limit of steps is near."]
        assert 2 * len(model.requests) - 1 <= limit
        assert [bool(request.tools) for request in model.requests] == [True] * (len(model.requests) - 1) + [
            False
        ]


async def test_an_agent_that_obeys_answers_within_the_steps_it_has() -> None:
    model, mine = obedient(), Mine()
    async with supervisor(
        delegating(), agents=[agent("digger", model, mine.tool)], env={"LANGGRAPH_RECURSION_LIMIT": "30"}
    ) as client:
        stream = await client.ask("Dig")
        assert stream.answer == f"It said: Found {mine.given[-1]}."
        assert len(model.requests) in within(30)
        assert stream.notifications[-1] == "✅ Supervisor: Digger completed\n"


@pytest.mark.parametrize(
    "error",
    [GraphRecursionError("at step 30"), RuntimeError("GraphRecursionError: Recursion limit of 30 reached")],
    ids=["type", "text"],
)
async def test_a_recursion_error_of_a_graph_is_told_as_a_sentence(error: Exception) -> None:
    async with supervisor(Script(Turn(Fail(error=error)))) as client:
        stream = await client.ask("Dig")
        assert (stream.last.state, stream.last.status_text) == ("failed", TOO_MANY)
        assert_readable(stream)


# --- model calls and tool calls -------------------------------------------------------------------

Limited = tuple[dict[str, str], int, str]
LIMITS: list[Limited] = [
    (
        {"MODEL_CALL_LIMIT": "4"},
        4,
        "I stop using tools and answer now: 4 model calls are the most for one question.",
    ),
    (
        {"TOOL_CALL_LIMIT": "3"},
        4,
        "I stop using tools and answer now: 3 tool calls are the most for one question.",
    ),
]
limited = pytest.mark.parametrize(("env", "calls", "notice"), LIMITS, ids=["model", "tool"])


@limited
async def test_the_last_turn_has_no_tools_an_answer_comes_and_people_are_told(
    env: dict[str, str], calls: int, notice: str
) -> None:
    model, mine = obedient(), Mine()
    async with supervisor(model, tools=[mine.tool], env=env) as client:
        stream = await client.ask("Dig")
        assert stream.answer == f"Found {mine.given[-1]}."
        assert notices(stream) == [notice]
        assert len(model.requests) == calls
        assert len(mine.given) == calls - 1
        assert [bool(request.tools) for request in model.requests] == [True] * (calls - 1) + [False]
        assert "Do not call tools any more." in model.requests[-1].system


@limited
async def test_the_counts_begin_again_with_the_next_question(
    env: dict[str, str], calls: int, notice: str
) -> None:
    model, mine = obedient(), Mine()
    async with supervisor(model, tools=[mine.tool], env=env) as client:
        first = await client.ask("Dig")
        second = await client.ask("Dig again", contextId=first.context_id)
        assert second.answer == f"Found {mine.given[-1]}."
        assert len(model.requests) == 2 * calls
        assert len(mine.given) == 2 * (calls - 1)
        assert notices(second) == [notice]


@limited
async def test_an_agent_has_counts_of_its_own(env: dict[str, str], calls: int, notice: str) -> None:
    model, mine = obedient(), Mine()
    twice = Script(
        Turn(Call("task", {"description": "Dig", "subagent_type": "digger"})),
        Turn(Call("task", {"description": "Dig again", "subagent_type": "digger"})),
        Turn(Say("It said: {{tool:task}}")),
    )
    async with supervisor(twice, agents=[agent("digger", model, mine.tool)], env=env) as client:
        stream = await client.ask("Dig")
        assert stream.answer == f"It said: Found {mine.given[-1]}."
        assert notices(stream) == [notice] * 2
        assert len(model.requests) == 2 * calls


@limited
async def test_a_model_that_calls_on_without_tools_is_asked_once_more(
    env: dict[str, str], calls: int, notice: str
) -> None:
    model, mine = restless(), Mine()
    async with supervisor(model, tools=[mine.tool], env=env) as client:
        stream = await client.ask("Dig")
        assert stream.last.state == "completed"
        assert stream.answer.startswith(FOUND)
        assert mine.given[-1] in stream.answer
        assert notices(stream) == [notice]
        assert len(model.requests) == calls + 1
        assert len(mine.given) == calls - 1
        assert_readable(stream)


@pytest.mark.parametrize(
    "env", [{"MODEL_CALL_LIMIT": "3"}, {"TOOL_CALL_LIMIT": "2"}, {"LANGGRAPH_RECURSION_LIMIT": "7"}], ids=str
)
async def test_a_structured_answer_is_no_call_too_many(env: dict[str, str]) -> None:
    def turn(request: Request) -> Turn:
        if "dig" in request.tools:
            return Turn(digging())
        return Turn(Call("PlatformEngineerResponse", {"content": "Found {{tool:dig.depth}}."}))

    model, mine = ScriptedChatModel(script=Script(turn)), Mine()
    async with supervisor(model, tools=[mine.tool], env={**env, "USE_STRUCTURED_RESPONSE": "true"}) as client:
        stream = await client.ask("Dig")
        assert stream.last.state == "completed", stream.last.status_text
        assert stream.answer == f"Found {mine.given[-1]}."


async def test_a_limit_of_one_model_call_is_an_answer_without_tools() -> None:
    model = ScriptedChatModel(
        script=Script(lambda request: Turn(Say("From memory.")) if not request.tools else Turn(digging()))
    )
    async with supervisor(model, tools=[Mine().tool], env={"MODEL_CALL_LIMIT": "1"}) as client:
        assert (await client.ask("Dig")).answer == "From memory."
        assert [request.tools for request in model.requests] == [()]


# --- the size of results --------------------------------------------------------------------------


def long_text(_: int) -> str:
    return "head=" + uuid.uuid4().hex + " " + "x" * 5000


def long_blocks(_: int) -> list[dict[str, str]]:
    return [
        {"type": "text", "text": "head=" + uuid.uuid4().hex + " "},
        *({"type": "text", "text": "y" * 700} for _ in range(8)),
    ]


@pytest.mark.parametrize("content", [long_text, long_blocks])
@pytest.mark.parametrize("inside", [False, True], ids=["supervisor", "agent"])
async def test_a_long_result_is_cut_before_a_model_sees_it(
    content: Callable[[int], object], inside: bool
) -> None:
    @tool
    async def dig(place: int) -> object:
        """Dig."""
        return content(place)

    model = ScriptedChatModel(script=Script(Turn(digging()), Turn(Say("Found {{tool:dig.head}}."))))
    env = {"TOOL_MAX_OUTPUT_CHARS": "1000"}
    agents = [agent("digger", model, dig)] if inside else []
    async with supervisor(
        delegating() if inside else model, agents=agents, tools=[] if inside else [dig], env=env
    ) as client:
        stream = await client.ask("Dig")
        assert stream.last.state == "completed"
    [result] = model.requests[-1].tool_results["dig"]
    cut, mark, note = result.partition("\n[Output truncated")
    assert len(cut) == 1000
    assert mark
    assert "characters in all" in note
    assert cut.partition("head=")[2][:32] in stream.answer


async def test_a_result_within_the_bound_is_left_alone() -> None:
    text = "z" * 1000

    @tool
    async def dig(place: int) -> str:
        """Dig."""
        return text

    model = ScriptedChatModel(script=Script(Turn(digging()), Turn(Say("Done."))))
    async with supervisor(model, tools=[dig], env={"TOOL_MAX_OUTPUT_CHARS": "1000"}) as client:
        await client.ask("Dig")
    assert model.requests[-1].tool_results["dig"] == [text]
