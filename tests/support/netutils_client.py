"""The netutils server for tests: started as its definition says, asked over stdio as any client does."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, Implementation, TextContent, Tool

import network_guard
from ai_platform_engineering.core.agent_definition import AgentDefinition
from tests.conftest import ROOT
from tests.support.command_process import forked_python

DEFINITION = ROOT / "ai_platform_engineering" / "agents" / "netutils.yaml"
LIMIT = 60  # for a call that hangs; nothing here waits that long
_WORDS_OF_LIBRARIES = re.compile(r"pydantic|validation error|Traceback|Errno|Error executing|\bNone\b")


@dataclass(frozen=True)
class ToolAnswer:
    """A result as a reader gets it: the sentence, the data, whether it failed, and all of it as text."""

    line: str
    data: dict[str, Any]
    failed: bool
    everything: str


def parse_answer(result: CallToolResult) -> ToolAnswer:
    """Parses a result: a sentence, then the data as compact JSON, as in the structured content."""
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    assert len(texts) == len(result.content)
    assert "\n" not in texts[0]
    data = result.structured_content or {}
    assert texts[1:] == ([json.dumps(data, separators=(",", ":"))] if data else [])
    return ToolAnswer(texts[0], data, bool(result.is_error), result.model_dump_json())


@dataclass(frozen=True)
class NetutilsClient:
    portal: BlockingPortal
    session: ClientSession
    about: Implementation

    def call(self, tool: str, **arguments: Any) -> ToolAnswer:
        return self.calls((tool, arguments))[0]

    def calls(self, *wanted: tuple[str, dict[str, Any]]) -> list[ToolAnswer]:
        """Makes several calls at the same time."""

        async def together() -> list[CallToolResult]:
            async with asyncio.timeout(LIMIT):
                return await asyncio.gather(
                    *(self.session.call_tool(tool, arguments) for tool, arguments in wanted)
                )

        return [parse_answer(result) for result in self.portal.call(together)]

    def call_and_fail(self, tool: str, **arguments: Any) -> str:
        """Makes a call that fails, and returns the error message, which quotes no library."""
        answer = self.call(tool, **arguments)
        assert answer.failed
        assert not _WORDS_OF_LIBRARIES.search(answer.line)
        return answer.line

    def tools(self) -> list[Tool]:
        return self.portal.call(self.session.list_tools).tools


def definition() -> AgentDefinition:
    return AgentDefinition.model_validate(yaml.safe_load(DEFINITION.read_text(encoding="utf-8")))


@contextmanager
def start_server(folder: Path, *flags: str, **variables: str) -> Iterator[NetutilsClient]:
    """A server process in the folder, which ends with the context.

    It is told what a single person's server on loopback tells it, unless the variables say otherwise.
    """
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", network_guard.GUARD_FILE)
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"NETWORK_ALLOW_PRIVATE_ADDRESSES": "true"} | variables
    command, *arguments = forked_python(*definition().mcp_servers["netutils"].args, *flags)
    parameters = StdioServerParameters(command=command, args=arguments, env=environment, cwd=folder)

    @asynccontextmanager
    async def session() -> AsyncIterator[tuple[ClientSession, Implementation]]:
        async with stdio_client(parameters) as (reading, writing), ClientSession(reading, writing) as opened:
            yield opened, (await opened.initialize()).server_info

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(session()) as (opened, about):
        yield NetutilsClient(portal, opened, about)
