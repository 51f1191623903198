"""The ranking of tools by words, and schemas that are too large to be bound as they are."""

from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool

from ai_platform_engineering.multi_agents.platform_engineer.tool_catalog import ToolCatalog, measure_schema
from tests.support.tool_lists import load_record


async def call(**arguments: Any) -> str:
    return "done"


def build_tool(name: str, description: str = "", **properties: Any) -> BaseTool:
    schema = {"type": "object", "properties": properties}
    return StructuredTool.from_function(
        coroutine=call, name=name, description=description or name, args_schema=schema
    )


def search(catalog: ToolCatalog, words: str) -> list[str]:
    return catalog.search(words, lambda name: True)


GITLAB = ToolCatalog.build([build_tool(tool.name) for tool in load_record("gitlab").list_tools()], 10_000)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("merge requests", "gitlab_get_mr"),
        ("list merge requests", "gitlab_list_mrs"),
        ("delete a branch", "gitlab_delete_branch"),
        ("list pipelines", "gitlab_list_pipelines"),
        ("get the job log", "gitlab_get_job_log"),
        ("gitlab_list_tags", "gitlab_list_tags"),
        ("create an issue", "gitlab_create_issue"),
    ],
)
def test_real_tools_are_found_by_what_they_do(words: str, name: str) -> None:
    assert name in search(GITLAB, words)[:8]


def test_names_count_more_than_descriptions_and_arguments_count_too() -> None:
    catalog = ToolCatalog.build(
        [
            build_tool("get_secret", "Reads it."),
            build_tool("read_notes", "Notes, which may name a secret."),
            build_tool("rotate", "Changes a key.", secretName={"type": "string"}),
            build_tool("ping", "Is it there?"),
        ],
        10_000,
    )
    assert search(catalog, "secrets")[0] == "get_secret"
    assert set(search(catalog, "secrets")) == {"get_secret", "read_notes", "rotate"}
    assert search(catalog, "xylophone") == []
    assert catalog.search("secrets", lambda name: name != "get_secret")[0] != "get_secret"


def test_a_schema_that_is_too_large_is_bound_with_less_of_it() -> None:
    texts = {f"field{number}": {"type": "string", "description": "x" * 500} for number in range(20)}
    nested = {
        f"field{number}": {"type": "object", "properties": {f"p{n}": {"enum": ["y" * 50]} for n in range(20)}}
        for number in range(20)
    }
    catalog = ToolCatalog.build([build_tool("texts", **texts), build_tool("nested", **nested)], 4_000)
    for name, properties in (("texts", texts), ("nested", nested)):
        entry = catalog.tools[name]
        assert entry.chars == measure_schema(entry.tool) <= 4_000
        schema = entry.tool.args_schema
        assert isinstance(schema, dict)
        assert schema["properties"].keys() == properties.keys()
    assert catalog.tools["texts"].tool.args_schema["properties"]["field0"] == {"type": "string"}  # type: ignore[index, call-overload]
