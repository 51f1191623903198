"""Schemas of tools in the form of a model's provider, converted once for each tool."""

import copy
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool

_MAX_TOOLS = 2_000

Convert = Callable[[BaseTool], Any]  # to the provider's form; none if the tool cannot be converted alone


@dataclass(frozen=True, slots=True)
class _Schema:
    tool: weakref.ref[BaseTool]
    inputs: tuple[object, ...]  # what it was made from
    schema: Any


class ToolSchemas:
    """A cache by tool. A tool that has changed since is converted anew; the oldest schemas go first."""

    def __init__(self, max_tools: int = _MAX_TOOLS) -> None:
        self._max_tools = max_tools
        self._schemas: OrderedDict[tuple[int, object], _Schema] = OrderedDict()

    def __len__(self) -> int:
        return len(self._schemas)

    def convert_all(self, tools: Sequence[Any], variant: object, convert: Convert) -> list[Any]:
        """The tools, each converted where it can be on its own; `variant`: the options of the conversion."""
        return [self._convert(tool, variant, convert) for tool in tools]

    def _convert(self, tool: Any, variant: object, convert: Convert) -> Any:
        if not isinstance(tool, BaseTool) or not _has_plain_schema(tool):
            return tool
        key = (id(tool), variant)
        inputs = _read_inputs(tool)
        cached = self._schemas.get(key)
        if cached is not None and cached.tool() is tool and cached.inputs == inputs:
            self._schemas.move_to_end(key)
            return cached.schema
        schema = convert(tool)
        if schema is None:
            return tool
        reference = weakref.ref(tool, lambda _: self._schemas.pop(key, None))
        self._schemas[key] = _Schema(reference, copy.deepcopy(inputs), schema)
        while len(self._schemas) > self._max_tools:
            self._schemas.popitem(last=False)
        return schema


def _has_plain_schema(tool: BaseTool) -> bool:
    """Whether the schema follows from the fields of the tool, and not from code of its class."""
    tool_class = type(tool)
    return (
        isinstance(tool.args_schema, type | dict)
        and tool_class.tool_call_schema is BaseTool.tool_call_schema
        and tool_class.get_input_schema is BaseTool.get_input_schema
    )


def _read_inputs(tool: BaseTool) -> tuple[object, ...]:
    """Everything that the conversion reads; classes are compared by identity, the rest by value."""
    metadata = tool.metadata or {}
    return (
        tool.name,
        tool.description,
        tool.args_schema,
        tool.extras,
        metadata.get("type"),
        metadata.get("format"),
    )
