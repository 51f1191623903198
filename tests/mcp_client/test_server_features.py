"""What servers offer besides tools, in both generations of the protocol: resources, prompts, and pictures."""

import base64
from pathlib import Path

import pytest

from ai_platform_engineering.core.agent_definition import ToolPolicy
from ai_platform_engineering.core.tool_traits import traits_of
from ai_platform_engineering.mcp_client.mcp_errors import McpToolFailed
from tests.support.asking_servers import GENERATIONS, Generation, asking_server
from tests.support.fakes.mcp_servers import by_name, open_sessions


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_resources_are_listed_and_read_and_prompts_are_used(
    tmp_path: Path, generation: Generation
) -> None:
    async with asking_server(generation, "stdio", tmp_path) as server, open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("notes", server))
        listed = await tools["list_resources"].ainvoke({})
        assert "notes://today>, text/plain, What is to be done today." in listed
        assert "- template: day_notes <notes://{day}>" in listed
        assert await tools["read_resource"].ainvoke({"uri": "notes://today"}) == "buy milk"
        start = await tools["read_resource"].ainvoke({"uri": "notes://monday"})
        assert start.startswith("monday: nothing....")
        assert start.endswith("characters in all; more with offset 20000]")
        rest = await tools["read_resource"].ainvoke({"uri": "notes://monday", "offset": 100_000})
        assert rest == "." * len("monday: nothing")
        with pytest.raises(McpToolFailed):
            await tools["read_resource"].ainvoke({"uri": "elsewhere://secret"})

        assert "review(topic)" in tools["get_prompt"].description
        prompt = await tools["get_prompt"].ainvoke({"name": "review", "arguments": {"topic": "milk"}})
        assert prompt == "user: Review the notes on milk, one by one."

        assert all(traits_of(tools[name]).effect == "read" for name in ("list_resources", "get_prompt"))
        some = by_name(await sessions.tools("notes", server, ToolPolicy(allow=("order",))))
        assert [*some] == ["order"]


async def test_pictures_and_documents_in_results_are_kept_in_their_order(tmp_path: Path) -> None:
    async with asking_server("2.x", "stdio", tmp_path) as server, open_sessions(tmp_path) as sessions:
        shown = await by_name(await sessions.tools("notes", server))["show"].ainvoke({})
    text, picture, document, link = shown
    assert text == {"type": "text", "text": "Here they are."}
    assert (picture["type"], picture["mime_type"]) == ("image", "image/png")
    assert base64.b64decode(picture["base64"]) == bytes(range(70))
    assert picture["extras"] == {"description": "[image: image/png, 70 bytes]"}
    assert document["text"] == "buy milk"
    assert link["text"] == "[resource: archive <notes://archive>, Older notes.]"
