"""What the real tool servers offer, as it was recorded: names, annotations and sizes of their tools.

`tests/support/real_servers.py` records them, from servers that `make servers` has installed.
"""

import json
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel, ConfigDict

from ai_platform_engineering.core.tool_traits import traits_of

# Without the test configuration: a benchmark reads them, too.
LISTS_FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "tool_lists"


class RecordedTool(BaseModel):
    """A tool without its texts: `size` is the number of characters of name, description and input schema."""

    model_config = ConfigDict(frozen=True)

    name: str
    hints: dict[str, bool] = {}
    size: int

    @classmethod
    def from_tool(cls, tool: BaseTool) -> "RecordedTool":
        name = (tool.metadata or {})["tool"]
        shown = {"name": name, "description": tool.description, "inputSchema": tool.args_schema}
        size = len(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))
        return cls(name=name, hints=dict(traits_of(tool).annotations or {}), size=size)


class AgentRecord(BaseModel):
    """The tools of each server of an agent, with the packages that they were recorded from.

    `read_only` are the tools that are left when the definition forbids writing, as it does by default.
    `refused` is how often a server wanted to leave the machine.
    """

    model_config = ConfigDict(frozen=True)

    packages: tuple[str, ...] = ()
    servers: dict[str, tuple[RecordedTool, ...]]
    read_only: dict[str, tuple[str, ...]] = {}
    refused: int = 0

    def list_tools(self) -> tuple[RecordedTool, ...]:
        return tuple(tool for tools in self.servers.values() for tool in tools)


def list_recorded_agents() -> list[str]:
    return sorted(file.stem for file in LISTS_FOLDER.glob("*.json"))


def load_record(agent: str) -> AgentRecord:
    return AgentRecord.model_validate_json((LISTS_FOLDER / f"{agent}.json").read_text(encoding="utf-8"))


def store_record(agent: str, record: AgentRecord, folder: Path = LISTS_FOLDER) -> None:
    """Writes a record with a line for each tool, so that a change of one is seen."""
    data: dict[str, Any] = record.model_dump(mode="json", exclude={"servers", "refused"})
    lines = [f' "{key}": {json.dumps(value)},' for key, value in data.items()]
    servers = list[str]()
    for name, tools in record.servers.items():
        rows = ",\n".join(
            f"   {tool.model_dump_json()}" for tool in sorted(tools, key=lambda tool: tool.name)
        )
        servers.append(f'  "{name}": [\n{rows}\n  ]')
    lines.append(' "servers": {\n' + ",\n".join(servers) + "\n }")
    folder.mkdir(exist_ok=True)
    (folder / f"{agent}.json").write_text("{\n" + "\n".join(lines) + "\n}\n", encoding="utf-8")
