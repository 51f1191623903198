"""The types of the handlers that LangChain passes to middlewares: the next model call, the next tool call."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.types import Command

ModelCallHandler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
ToolCallResult = ToolMessage | Command[Any]
ToolCallHandler = Callable[[ToolCallRequest], Awaitable[ToolCallResult]]
