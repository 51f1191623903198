"""Middlewares as one: a graph behaves as with the list of them."""

import operator
from collections.abc import Sequence
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.types import Command

from ai_platform_engineering.multi_agents.platform_engineer.middleware.composition import (
    ComposedMiddleware,
    compose_middlewares,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn

Stack = list[AgentMiddleware[Any, Any, Any]]


class NotedState(AgentState[Any]):
    notes: Annotated[list[str], operator.add]


class Recorder(AgentMiddleware[Any, Any, Any]):
    """Notes when it is entered and left, and writes to the state with each model call."""

    state_schema = NotedState

    def __init__(self, label: str, order: list[str], *, attempts: int = 1, writes: bool = True) -> None:
        super().__init__()
        self.label = label
        self._order = order
        self._attempts = attempts
        self._writes = writes

    @property
    def name(self) -> str:
        return f"recorder {self.label}"

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        self._order.append(f"{self.label} model")
        for _ in range(self._attempts):
            response = await handler(request)
        self._order.append(f"{self.label} answered")
        if not self._writes:
            return response
        return ExtendedModelResponse(model_response=response, command=Command(update={"notes": [self.label]}))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        self._order.append(f"{self.label} tool")
        return await handler(request)


class Shortcut(AgentMiddleware[Any, Any, Any]):
    """Answers in the model's place, with a bare message."""

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelCallHandler) -> AIMessage:
        return AIMessage("short")


class Announcer(AgentMiddleware[Any, Any, Any]):
    """A node of the graph."""

    async def abefore_agent(self, state: AgentState[Any], runtime: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("announced")]}


@tool
def look(word: str) -> str:
    """Looks."""
    return f"looked at {word}"


class ToolBringer(AgentMiddleware[Any, Any, Any]):
    def __init__(self) -> None:
        super().__init__()
        self.tools: Sequence[BaseTool] = (look,)


async def run(stack: Stack) -> dict[str, Any]:
    script = Script(Turn(Call("look", {"word": "it"})), Turn(Say("Seen.")))
    graph = create_agent(ScriptedChatModel(script=script), tools=[], middleware=stack)
    state: dict[str, Any] = await graph.ainvoke({"messages": [("user", "Look.")]})
    return state


async def test_calls_pass_in_the_same_order_and_write_the_same_state() -> None:
    def build(order: list[str]) -> Stack:
        return [
            Recorder("a", order),
            ToolBringer(),
            Recorder("b", order, writes=False),
            Recorder("c", order),
        ]

    order: list[str] = []
    composed_order: list[str] = []
    state = await run(build(order))
    composed = await run(compose_middlewares(build(composed_order)))
    assert order[:6] == ["a model", "b model", "c model", "c answered", "b answered", "a answered"]
    assert order[6:9] == ["a tool", "b tool", "c tool"]
    assert composed_order == order
    assert composed["notes"] == state["notes"] == ["c", "a", "c", "a"]
    texts = [message.text for message in composed["messages"]]
    assert texts == [message.text for message in state["messages"]] == ["Look.", "", "looked at it", "Seen."]


async def test_what_a_call_wrote_that_is_made_again_counts_once() -> None:
    script = Script(Turn(Say("Said.")))
    order: list[str] = []
    stack = compose_middlewares([Recorder("a", order, attempts=2), Recorder("b", order)])
    graph = create_agent(ScriptedChatModel(script=script), tools=[], middleware=stack)
    state = await graph.ainvoke({"messages": [("user", "Go on.")]})
    assert state["notes"] == ["b", "a"]
    assert order.count("b model") == 2


async def test_a_middleware_may_answer_with_a_bare_message() -> None:
    state = await run(compose_middlewares([Recorder("a", []), Shortcut()]))
    assert [message.text for message in state["messages"]] == ["Look.", "short"]


async def test_a_middleware_that_is_a_node_stays_one() -> None:
    announcer = Announcer()
    stack = compose_middlewares([Recorder("a", []), announcer, ToolBringer()])
    assert stack[0] is announcer
    assert [type(middleware) for middleware in stack[1:]] == [ComposedMiddleware]
    state = await run(stack)
    assert [message.text for message in state["messages"]][1] == "announced"
