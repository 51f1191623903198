"""The schemas of tools are converted once, and equal those of the stock models."""

import gc
from typing import Annotated, Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, Tool, tool
from langchain_openai import ChatOpenAI, custom_tool
from pydantic import BaseModel, Field

from ai_platform_engineering.core.model_streams import ModelStreamSettings
from ai_platform_engineering.models.anthropic_models import MergedChatAnthropic
from ai_platform_engineering.models.openai_models import MergedChatOpenAI
from ai_platform_engineering.models.tool_schemas import ToolSchemas

SETTINGS = ModelStreamSettings()
OPENAI = (
    MergedChatOpenAI(model="m-1", api_key="k", stream_settings=SETTINGS),
    ChatOpenAI(model="m-1", api_key="k"),
)
ANTHROPIC = (
    MergedChatAnthropic(model="m-1", api_key="k", stream_settings=SETTINGS),
    ChatAnthropic(model="m-1", api_key="k"),
)


class Place(BaseModel):
    """A place."""

    city: str = Field(description="its name")
    near: list["Place"] = []


@tool
def find(place: Place, secret: Annotated[str, InjectedToolArg], days: int = 3) -> str:
    """Finds.

    Args:
        place: where
    """
    return f"{place}{secret}{days}"


@tool(extras={"cache_control": {"type": "ephemeral"}, "defer_loading": True})
def rare(city: str) -> str:
    """Is rare."""
    return city


@custom_tool
def code(text: str) -> str:
    """Runs code."""
    return text


class Inferred(BaseTool):
    """A tool whose schema is made from its method."""

    name: str = "inferred"
    description: str = "Infers."

    def _run(self, city: str) -> str:
        return city


def from_server() -> StructuredTool:
    """A tool with a JSON schema, as MCP servers describe theirs."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "title": "N"}}, "required": ["n"]}
    return StructuredTool(name="twice", description="Doubles.", args_schema=schema, func=lambda n: n)


def plain_function(city: str) -> str:
    """Does something."""
    return city


def bound(model: Any, tools: list[Any], **options: Any) -> Any:
    return model.bind_tools(tools, **options).kwargs


ALL = [find, rare, Inferred(), from_server(), Tool("one", print, "Takes one."), Place, plain_function]
OPENAI_TOOLS = [*ALL, code, {"type": "web_search_preview"}]
ANTHROPIC_TOOLS = [*ALL, {"type": "web_search_20250305", "name": "web_search"}]


@pytest.mark.parametrize(
    "options", [{}, {"strict": True}, {"tool_choice": "find", "parallel_tool_calls": False}]
)
@pytest.mark.parametrize(
    ("models", "tools"), [(OPENAI, OPENAI_TOOLS), (ANTHROPIC, ANTHROPIC_TOOLS)], ids=["openai", "anthropic"]
)
def test_bound_tools_equal_those_of_the_stock_model(
    models: tuple[Any, Any], tools: list[Any], options: dict[str, Any]
) -> None:
    fast, stock = models
    expected = bound(stock, tools, **options)
    assert bound(fast, tools, **options) == expected
    assert bound(fast, tools, **options) == expected  # from the cache


def test_a_response_format_changes_the_schemas() -> None:
    fast, stock = OPENAI
    assert bound(fast, [find]) == bound(stock, [find])
    assert bound(fast, [find], response_format=Place) == bound(stock, [find], response_format=Place)


def test_a_tool_that_anthropic_does_not_take_is_left_out_as_ever() -> None:
    fast, stock = ANTHROPIC
    broken = from_server()
    assert isinstance(broken.args_schema, dict)
    broken.args_schema["anyOf"] = [{"required": ["n"]}]
    for _ in range(2):
        with pytest.warns(UserWarning, match="twice"):
            ours = bound(fast, [find, broken])
        with pytest.warns(UserWarning, match="twice"):
            theirs = bound(stock, [find, broken])
        assert ours == theirs


class Dynamic(BaseTool):
    """A tool whose class makes the schema anew each time."""

    name: str = "dynamic"
    description: str = "Changes."
    args_schema: Any = Place
    days: int = 1

    @property
    def tool_call_schema(self) -> Any:
        return {"title": "dynamic", "type": "object", "properties": {f"day{self.days}": {"type": "string"}}}

    def _run(self) -> str:
        return ""


def test_a_schema_that_a_class_makes_is_not_kept() -> None:
    fast, stock = OPENAI
    dynamic = Dynamic()
    for dynamic.days in (1, 2):
        assert bound(fast, [dynamic]) == bound(stock, [dynamic])


class Counter:
    """Converts and counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, tool: BaseTool) -> Any:
        self.count += 1
        return bound(OPENAI[1], [tool])["tools"][0]


def test_a_tool_is_converted_once() -> None:
    schemas, counter = ToolSchemas(), Counter()
    tools = [find, rare]
    first = schemas.convert_all(tools, None, counter)
    assert schemas.convert_all(tools, None, counter) == first == bound(OPENAI[1], tools)["tools"]
    assert counter.count == 2
    schemas.convert_all(tools, True, counter)
    assert counter.count == 4


def test_a_tool_that_changed_is_converted_again() -> None:
    schemas, counter = ToolSchemas(), Counter()
    server_tool = from_server()
    assert isinstance(server_tool.args_schema, dict)

    def convert() -> Any:
        [schema] = schemas.convert_all([server_tool], None, counter)
        return schema["function"]

    before = convert()
    server_tool.description = "Doubles numbers."
    assert convert()["description"] == "Doubles numbers."
    server_tool.args_schema["properties"]["n"]["type"] = "number"  # in place
    assert convert()["parameters"]["properties"]["n"]["type"] == "number"
    server_tool.args_schema = Place
    assert set(convert()["parameters"]["properties"]) == {"city", "near"}
    server_tool.extras = {"defer_loading": True}
    convert()
    assert counter.count == 5
    assert before["description"] == "Doubles."


def test_another_tool_at_the_same_address_is_another_tool() -> None:
    schemas, counter = ToolSchemas(), Counter()
    for number in range(50):  # the address of a tool that is gone is soon used again
        short_lived = StructuredTool(
            name=f"t{number}", description="!", args_schema={"type": "object"}, func=print
        )
        [schema] = schemas.convert_all([short_lived], None, counter)
        assert schema["function"]["name"] == f"t{number}"
        del short_lived
    gc.collect()
    assert len(schemas) == 0


def test_the_cache_is_bounded() -> None:
    schemas, counter = ToolSchemas(max_tools=3), Counter()
    tools = [from_server() for _ in range(5)]
    schemas.convert_all(tools, None, counter)
    assert len(schemas) == 3
    schemas.convert_all(tools[2:], None, counter)
    assert counter.count == 5
    schemas.convert_all(tools[:1], None, counter)
    assert counter.count == 6
