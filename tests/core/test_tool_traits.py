"""What is known of a tool: by its name, and by the metadata that LangChain keeps with it."""

from dataclasses import dataclass
from typing import Any

import pytest

from ai_platform_engineering.core.tool_traits import (
    ANSWER_TOOL,
    DELEGATION_TOOL,
    LOAD_SKILL_TOOL,
    PLANNING_TOOL,
    RESERVED_TOOL_NAMES,
    RESULT_GREP_TOOL,
    RESULT_PAGE_TOOL,
    RESULT_QUERY_TOOL,
    SEARCH_TOOLS_TOOL,
    USER_INPUT_TOOL,
    WAIT_TOOL,
    ToolTraits,
    mark_as_own,
    traits_of,
)


@dataclass
class SomeTool:
    name: str
    metadata: dict[str, Any] | None = None


def test_the_names_of_control_tools_are_reserved() -> None:
    steering_tools = {DELEGATION_TOOL, PLANNING_TOOL, USER_INPUT_TOOL, WAIT_TOOL, SEARCH_TOOLS_TOOL}
    result_tools = {RESULT_PAGE_TOOL, RESULT_QUERY_TOOL, RESULT_GREP_TOOL}
    assert steering_tools | result_tools == RESERVED_TOOL_NAMES


@pytest.mark.parametrize("name", sorted(RESERVED_TOOL_NAMES))
def test_a_control_tool_is_known_by_its_name(name: str) -> None:
    traits = traits_of(SomeTool(name))
    assert (traits.is_own, traits.is_control, traits.effect) == (True, True, "read")
    assert traits == ToolTraits.from_name(name)


def test_only_plans_and_forms_are_silent() -> None:
    names = [*RESERVED_TOOL_NAMES, LOAD_SKILL_TOOL, ANSWER_TOOL, "search"]
    silent = {name for name in names if ToolTraits.from_name(name).is_silent}
    assert silent == {PLANNING_TOOL, USER_INPUT_TOOL}


def test_a_third_party_tool_with_the_name_of_a_skill_tool_is_not_the_products_own() -> None:
    third_party_tool = SomeTool(LOAD_SKILL_TOOL, ToolTraits(annotations={}).to_metadata())
    assert not traits_of(third_party_tool).is_own
    own_tool = SomeTool(LOAD_SKILL_TOOL)
    mark_as_own(own_tool)
    assert (traits_of(own_tool).is_own, traits_of(own_tool).manages_skills) == (True, True)


@pytest.mark.parametrize(
    "traits",
    [
        ToolTraits(),
        ToolTraits(annotations={}),
        ToolTraits(defined_effect="idempotent", permission="ask", may_poll=True),
        ToolTraits(annotations={"readOnlyHint": True}, is_knowledge=True),
        ToolTraits(is_own=True),
    ],
)
def test_traits_survive_in_the_metadata_of_a_tool(traits: ToolTraits) -> None:
    assert traits_of(SomeTool("look", traits.to_metadata())) == traits


def test_a_tool_of_no_server_differs_from_one_whose_server_says_nothing() -> None:
    assert traits_of(SomeTool("look")).annotations is None
    assert traits_of(SomeTool("look", {"annotations": None})).annotations == {}
