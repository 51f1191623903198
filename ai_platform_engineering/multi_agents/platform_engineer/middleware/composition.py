"""Several middlewares as one, in the same order.

LangChain wraps each middleware that it is given for LangSmith, whether or not tracing is on. For a coroutine
function that costs two hops to a thread and a task for every call; a plain function that returns a coroutine
is called directly.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, TypedDict, get_type_hints

from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.messages import AIMessage
from langgraph.types import Command

from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)

AnyMiddleware = AgentMiddleware[Any, Any, Any]

# Hooks that LangChain makes nodes of the graph from; a middleware that has one stays by itself.
_NODE_HOOKS = ("before_agent", "before_model", "after_model", "after_agent")

_MOST_SCHEMAS = 64

_Commands = list[Command[Any]]
_ModelCall = Callable[[ModelRequest[Any]], Awaitable[tuple[ModelResponse[Any], _Commands]]]


def compose_middlewares(stack: Sequence[AnyMiddleware]) -> list[AnyMiddleware]:
    """The middlewares that only wrap calls as one, after those that are nodes of the graph."""
    nodes: list[AnyMiddleware] = []
    wrappers: list[AnyMiddleware] = []
    for middleware in stack:
        if any(_overrides(middleware, hook) for hook in _NODE_HOOKS):
            nodes.append(middleware)
        else:
            wrappers.append(middleware)
    return [*nodes, ComposedMiddleware(wrappers)]


class ComposedMiddleware(AgentMiddleware[Any, Any, Any]):
    """A chain of middlewares; the first one is the outermost."""

    def __init__(self, middlewares: Sequence[AnyMiddleware]) -> None:
        super().__init__()
        self.tools = [tool for middleware in middlewares for tool in getattr(middleware, "tools", ())]
        self.state_schema = _merge_state_schemas(middlewares)
        self._around_model = [
            middleware for middleware in middlewares if _overrides(middleware, "wrap_model_call")
        ]
        self._around_tools = [
            middleware for middleware in middlewares if _overrides(middleware, "wrap_tool_call")
        ]

    def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> Coroutine[Any, Any, ModelResponse[Any] | ExtendedModelResponse[Any]]:
        return self._call_model(request, handler)

    def awrap_tool_call(
        self, request: ToolCallRequest, handler: ToolCallHandler
    ) -> Coroutine[Any, Any, ToolCallResult]:
        return self._call_tool(request, handler)

    async def _call_model(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        async def call_model(request: ModelRequest[Any]) -> tuple[ModelResponse[Any], _Commands]:
            return await handler(request), []

        chain: _ModelCall = call_model
        for middleware in reversed(self._around_model):
            chain = _wrap_model_call(middleware, chain)
        response, commands = await chain(request)
        if not commands:
            return response
        return ExtendedModelResponse(model_response=response, command=_merge_commands(commands))

    async def _call_tool(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        chain = handler
        for middleware in reversed(self._around_tools):
            chain = _wrap_tool_call(middleware, chain)
        return await chain(request)


def _wrap_model_call(middleware: AnyMiddleware, inner: _ModelCall) -> _ModelCall:
    async def call(request: ModelRequest[Any]) -> tuple[ModelResponse[Any], _Commands]:
        commands: _Commands = []

        async def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
            response, inner_commands = await inner(request)
            commands[:] = inner_commands  # a call that is made again replaces what the first one wrote
            return response

        result = await middleware.awrap_model_call(request, handler)
        if isinstance(result, ExtendedModelResponse):
            if result.command is not None:
                commands.append(result.command)
            return result.model_response, commands
        if isinstance(result, AIMessage):
            return ModelResponse(result=[result]), commands
        return result, commands

    return call


def _wrap_tool_call(middleware: AnyMiddleware, inner: ToolCallHandler) -> ToolCallHandler:
    async def call(request: ToolCallRequest) -> ToolCallResult:
        return await middleware.awrap_tool_call(request, inner)

    return call


def _merge_commands(commands: _Commands) -> Command[Any]:
    """One command with all updates of the state, as pairs, so that none hides another."""
    if len(commands) == 1:
        return commands[0]
    updates: list[tuple[str, Any]] = []
    for command in commands:
        updates += command._update_as_tuples()
    return Command(update=updates)


def _merge_state_schemas(middlewares: Sequence[AnyMiddleware]) -> type[Any]:
    """The keys of all states; the annotations hold the reducers."""
    schemas = dict.fromkeys([AgentState, *(middleware.state_schema for middleware in middlewares)])
    return _merge_schemas(tuple(schemas))


@lru_cache(_MOST_SCHEMAS)
def _merge_schemas(schemas: tuple[type[Any], ...]) -> type[Any]:
    """Reading the annotations takes milliseconds, and all agents of a process have one of few stacks."""
    annotations: dict[str, Any] = {}
    for schema in schemas:
        annotations |= get_type_hints(schema, include_extras=True)
    return TypedDict("ComposedState", annotations)  # type: ignore[operator, no-any-return]


def _overrides(middleware: AnyMiddleware, hook: str) -> bool:
    """Whether a middleware has a hook of its own, in its async form or in the other one."""
    own = type(middleware)
    return any(getattr(own, name) is not getattr(AgentMiddleware, name) for name in (hook, f"a{hook}"))
