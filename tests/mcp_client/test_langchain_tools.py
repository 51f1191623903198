"""MCP tools for a model: names, schemas, policy, results, progress; and the tool lists on disk."""

import asyncio
import base64
import json
import os
import stat
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ai_platform_engineering.core.agent_definition import McpServer, ToolPolicy
from ai_platform_engineering.core.events import ToolFinished, ToolProgress
from ai_platform_engineering.core.tool_traits import traits_of
from ai_platform_engineering.mcp_client.langchain_tools import ServerTools, build_langchain_tools
from ai_platform_engineering.mcp_client.mcp_errors import McpToolGone
from ai_platform_engineering.mcp_client.tool_types import ToolSpec, read_tool_specs
from tests.conftest import ROOT
from tests.support.fakes.mcp_raw import PNG, TOOLS
from tests.support.fakes.mcp_servers import (
    by_name,
    list_processes,
    list_server_pids,
    open_sessions,
    raw_stdio_server,
    until,
)
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import agent, supervisor


def meta(tool: BaseTool) -> dict[str, Any]:
    return dict(tool.metadata or {})


# --- what is offered ------------------------------------------------------------------------------


async def test_a_tool_is_described_as_its_server_does(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        echo = by_name(await sessions.tools("raw", raw_stdio_server()))["echo"]
    assert echo.args_schema == TOOLS["echo"]["inputSchema"]
    function = convert_to_openai_tool(echo)["function"]
    assert function["name"] == "echo"
    assert function["description"] == "Says it again, after a moment."
    assert function["parameters"]["properties"] == {"value": {"type": "string"}}
    assert "outputSchema" not in json.dumps(convert_to_openai_tool(echo))
    assert meta(echo) == {
        "server": "raw",
        "tool": "echo",
        "listed": None,
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "knowledge": False,
    }


@pytest.mark.parametrize(
    ("policy", "targets"),
    [
        ({}, {"host": "host"}),
        ({"targets": {"ch*": {"host": "host", "note": "data"}}}, {"host": "host", "note": "data"}),
        ({"targets": {"check": {}}}, {}),
    ],
)
async def test_the_targets_of_a_tool_are_its_servers_unless_the_policy_says_them(
    tmp_path: Path, policy: dict[str, Any], targets: dict[str, str]
) -> None:
    kinds = {"host": "host", "note": "anything", "list": ["host"]}
    raw = {"name": "check", "_meta": {"caipe/targets": kinds}}
    [spec] = read_tool_specs([raw], "raw")
    cached = ToolSpec.model_validate_json(spec.model_dump_json())
    async with open_sessions(tmp_path) as sessions:
        session = sessions._find_session("raw", raw_stdio_server())
        [tool] = build_langchain_tools([ServerTools("raw", session, (cached,))], ToolPolicy(**policy))
    assert traits_of(tool).targets == targets


@pytest.mark.parametrize(
    ("policy", "offered", "asked"),
    [
        ({"allow": ("echo", "h*")}, {"echo", "hang", "hang_once"}, set()),
        ({"allow": ("h*",), "ask": ("hang",), "deny": ("*_once",)}, {"hang"}, {"hang"}),
        # The server's name in front: literally, and never to admit a tool.
        ({"allow": ("raw_echo", "r?w_*")}, set(), set()),
        ({"allow": ("w*",), "ask": ("raw_who", "raw_*"), "deny": ("raw_withdrawn", "r*")}, {"who"}, {"who"}),
        ({"deny": ("*",)}, set(), set()),
    ],
)
async def test_the_policy_decides_what_is_offered(
    tmp_path: Path, policy: dict[str, Any], offered: set[str], asked: set[str]
) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = await sessions.tools("raw", raw_stdio_server(), ToolPolicy(**policy))
    assert set(by_name(tools)) == offered
    assert {tool.name for tool in tools if meta(tool)["listed"] == "ask"} == asked


async def test_names_are_such_that_models_take_them_and_two_servers_are_told_apart(tmp_path: Path) -> None:
    long = "a" * 70
    async with open_sessions(tmp_path) as sessions:
        first = {"one": raw_stdio_server(), "two": raw_stdio_server(REGION="other")}
        changed = by_name(await sessions.tools("one", first["one"]))["change"]
        await changed.ainvoke({"add": [long + "1", long + "2", "a.b", "a/b"], "remove": ["who"]})
        await until(lambda: sessions.state("one", first["one"]).tools == len(TOOLS) + 3)
        tools = by_name((await sessions.agent_tools(first, knowledge=["read_*"])).tools)
        assert all(len(name) <= 64 and name.replace("-", "").replace("_", "").isalnum() for name in tools)
        assert {"one_echo", "two_echo", "who", "one_odd_name_with_spaces"} <= tools.keys()
        assert "echo" not in tools
        assert {name for name, tool in tools.items() if meta(tool)["knowledge"]} == {
            "one_read_who",
            "two_read_who",
        }
        # Whatever it is called here, the server is asked for what it calls it.
        for name in [
            name
            for name, tool in tools.items()
            if meta(tool)["tool"] in {long + "1", long + "2", "a.b", "a/b"}
        ]:
            assert await tools[name].ainvoke({}) == meta(tools[name])["tool"]
        assert await tools["two_odd_name_with_spaces"].ainvoke({}) == "odd.name/with spaces"


async def test_no_tool_of_a_server_takes_the_name_of_a_tool_of_ours(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        changed = by_name(await sessions.tools("raw", raw_stdio_server()))["change"]
        await changed.ainvoke({"add": ["task", "write_todos", "CAIPEAgentResponse", "wait"]})
        await until(lambda: sessions.state("raw", raw_stdio_server()).tools == len(TOOLS) + 4)
        tools = by_name(await sessions.tools("raw", raw_stdio_server()))
        assert not {"task", "write_todos", "CAIPEAgentResponse", "wait"} & tools.keys()
        assert await tools["task_2"].ainvoke({}) == "task"


async def test_half_a_character_in_an_argument_breaks_nothing(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        mirror = by_name(await sessions.tools("raw", raw_stdio_server()))["mirror"]
        assert json.loads(await mirror.ainvoke({"broken": "a\ud83d", "whole": "😀"})) == {
            "broken": "a?",
            "whole": "😀",
        }


async def test_arguments_may_have_any_name(tmp_path: Path) -> None:
    arguments = {
        name: uuid.uuid4().hex
        for name in ("config", "runtime", "run_manager", "callbacks", "self", "arguments", "call_id", "état")
    }
    async with open_sessions(tmp_path) as sessions:
        mirror = by_name(await sessions.tools("raw", raw_stdio_server()))["mirror"]
        assert json.loads(await mirror.ainvoke(arguments)) == arguments
        message = await mirror.ainvoke({"type": "tool_call", "id": "c1", "name": "mirror", "args": arguments})
        assert json.loads(message.content) == arguments


# --- results --------------------------------------------------------------------------------------

STRUCTURED = {"depth": 3, "name": "é"}


CONTENTS: list[tuple[dict[str, Any], str]] = [
    ({"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}, "one\ntwo"),
    ({"content": [], "structuredContent": STRUCTURED}, json.dumps(STRUCTURED, ensure_ascii=False)),
    ({"structuredContent": STRUCTURED}, json.dumps(STRUCTURED, ensure_ascii=False)),
    ({"content": [{"type": "text", "text": "said"}], "structuredContent": STRUCTURED}, "said"),
    ({"content": [{"type": "image", "mimeType": "image/png"}]}, "[image: image/png, no data]"),
    (
        {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]},
        "[audio: audio/wav, 3 bytes]",
    ),
    (
        {
            "content": [
                {
                    "type": "resource_link",
                    "uri": "file:///a.txt",
                    "name": "a.txt",
                    "mimeType": "text/plain",
                    "description": "A.",
                }
            ]
        },
        "[resource: a.txt <file:///a.txt>, text/plain, A.]",
    ),
    ({"content": [{"type": "resource", "resource": {"uri": "x:y", "text": "inside"}}]}, "inside"),
    (
        {"content": [{"type": "resource", "resource": {"uri": "x:y", "blob": "AAAA"}}]},
        "[resource: x:y, 3 bytes]",
    ),
    (
        {"content": [{"type": "hologram", "beam": 1}, {"type": "text", "text": "and text"}]},
        "[hologram]\nand text",
    ),
    ({"content": ["not a block", {}]}, "[unknown content]"),
    ({"content": []}, "(no output)"),
    ({}, "(no output)"),
]


async def test_every_kind_of_content_but_images_becomes_text(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        reply = by_name(await sessions.tools("raw", raw_stdio_server()))["reply"]
        for result, text in CONTENTS:
            assert await reply.ainvoke({"result": result}) == text
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        [block] = await reply.ainvoke({"result": {"content": [image]}})
    assert (block["type"], block["base64"], block["mime_type"]) == ("image", PNG, "image/png")
    assert block["extras"]["description"] == f"[image: image/png, {len(base64.b64decode(PNG))} bytes]"


async def test_a_failure_and_progress_reach_the_events_of_a_run(tmp_path: Path) -> None:
    words = uuid.uuid4().hex
    calls = Turn(
        Call("count", {"to": 3, "text": words}, id="c1"), Call("fail", {"text": f"no {words}"}, id="c2")
    )
    inner = Script(calls, Turn(Say("Done.")))
    outer = Script(
        Turn(Call("task", {"description": "Count", "subagent_type": "counter"}, id="c0")),
        Turn(Say("All done.")),
    )
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server(), ToolPolicy(allow=("count", "fail"))))
        async with supervisor(
            outer, agents=[agent("counter", inner, tools["count"], tools["fail"])]
        ) as client:
            stream = await client.ask("Count!")
        assert (
            await tools["count"].ainvoke({"to": 3}) == "with progress"
        )  # asked for as a sign of life, shown to nobody
    progress = [event for event in stream.events if isinstance(event, ToolProgress)]
    assert progress
    assert {(event.call_id, event.tool, event.agent) for event in progress} == {("c0/c1", "count", "counter")}
    assert (progress[-1].text, progress[-1].done, progress[-1].total) == (f"{words} 3", 3, 3)
    ended = {event.call_id: event for event in stream.events if isinstance(event, ToolFinished)}
    assert (ended["c0/c2"].outcome, ended["c0/c2"].error) == ("error", f"fail failed: no {words}")
    assert ended["c0/c1"].outcome == "ok"


# --- the cache ------------------------------------------------------------------------------------


async def remember(tmp_path: Path, server: McpServer) -> Path:
    """The file in which the server's tools are kept once it has been seen."""
    folder = tmp_path / "cache"
    async with open_sessions(tmp_path, cache_dir=folder) as sessions:
        await sessions.tools("raw", server)
        (file,) = await until(lambda: list(folder.glob("tools-*.json")), "the file")
    return Path(file)


async def test_tools_that_were_seen_before_are_offered_without_a_process(tmp_path: Path) -> None:
    file = await remember(tmp_path, raw_stdio_server())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with open_sessions(tmp_path, cache_dir=file.parent) as sessions:
        cached = by_name(sessions.cached_tools("raw", raw_stdio_server()) or [])
        together = await sessions.agent_tools({"raw": raw_stdio_server()}, ToolPolicy(allow=("e*",)))
        assert list(by_name(together.tools)) == ["echo", "environment"]
        assert together.instructions == {"raw": "Ask anything."}
        assert sessions.state("raw", raw_stdio_server()).tools == len(TOOLS)
        assert list_processes(tmp_path) == {}
        assert cached["echo"].args_schema == TOOLS["echo"]["inputSchema"]
        value = uuid.uuid4().hex
        assert await cached["echo"].ainvoke({"value": value}) == value
        assert len(list_server_pids(tmp_path)) == 1


async def test_what_was_kept_is_renewed_after_the_first_use(tmp_path: Path) -> None:
    file = await remember(tmp_path, raw_stdio_server())
    stored_list = json.loads(file.read_text())
    stored_list["tools"] = [{**stored_list["tools"][0], "name": "long_gone"}, *stored_list["tools"][1:]]
    file.write_text(json.dumps(stored_list))
    async with open_sessions(tmp_path, cache_dir=file.parent) as sessions:
        old = by_name(sessions.cached_tools("raw", raw_stdio_server()) or [])
        assert "long_gone" in old
        assert "echo" not in old
        revision = sessions.revision({"raw": raw_stdio_server()})
        assert await old["mirror"].ainvoke({}) == "{}"
        await until(
            lambda: sessions.revision({"raw": raw_stdio_server()}) != revision, "the look at what it has now"
        )
        with pytest.raises(McpToolGone, match="no longer has a tool long_gone"):
            await old["long_gone"].ainvoke({})
        assert "echo" in by_name(sessions.cached_tools("raw", raw_stdio_server()) or [])
        await until(lambda: "long_gone" not in file.read_text(), "the new file")


async def test_the_protocols_library_is_loaded_only_when_a_server_is_used(tmp_path: Path) -> None:
    file = await remember(tmp_path, raw_stdio_server())
    script = (
        "import sys; from pathlib import Path\n"
        "from ai_platform_engineering.core.agent_definition import McpServer\n"
        "from ai_platform_engineering.mcp_client.session_pool import McpSessionPool\n"
        "sessions = McpSessionPool(cache_dir=Path(sys.argv[1]), environment={})\n"
        "tools = sessions.cached_tools('raw', McpServer(command=sys.executable, args=tuple(sys.argv[2:])))\n"
        "print(len(tools), 'mcp' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        str(file.parent),
        *raw_stdio_server().args,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    output, _ = await process.communicate()
    assert output.decode().split() == [str(len(TOOLS)), "False"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"tools": [{"name": 3}]}', bytes(range(256))])
async def test_a_damaged_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    file = await remember(tmp_path, raw_stdio_server())
    good = file.read_bytes()
    file.write_bytes(content)
    async with open_sessions(tmp_path, cache_dir=file.parent) as sessions:
        assert sessions.cached_tools("raw", raw_stdio_server()) is None
        assert len(await sessions.tools("raw", raw_stdio_server())) == len(TOOLS)
        await until(lambda: file.read_bytes() == good, "the mended file")


async def test_other_credentials_and_other_versions_have_files_of_their_own(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {" ".join(raw_stdio_server().args)} "$@"\n')
    program.chmod(0o700)
    server = McpServer(command=str(program), env={"API_TOKEN": "one-token"})
    file = await remember(tmp_path, server)
    assert "one-token" not in file.read_text()
    async with open_sessions(tmp_path, cache_dir=file.parent) as sessions:
        assert sessions.cached_tools("raw", server) is not None
        assert (
            sessions.cached_tools("raw", server.model_copy(update={"env": {"API_TOKEN": "two-token"}}))
            is None
        )
    os.utime(program, ns=(1, 1))  # a new version was installed
    async with open_sessions(tmp_path, cache_dir=file.parent) as sessions:
        assert sessions.cached_tools("raw", server) is None


async def test_without_a_writable_folder_everything_works(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    async with open_sessions(tmp_path, cache_dir=blocked / "cache") as sessions:
        assert sessions.cached_tools("raw", raw_stdio_server()) is None
        assert len(await sessions.tools("raw", raw_stdio_server())) == len(TOOLS)
        await asyncio.sleep(0)
