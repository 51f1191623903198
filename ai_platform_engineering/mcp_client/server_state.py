"""The state of an MCP server, for reports."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

ServerStatus = Literal["not started", "starting", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class McpState:
    """The state of a server. `tools` is their number once they are known, also from the cache."""

    server: str
    status: ServerStatus
    tools: int | None = None
    reason: str | None = None
    since: datetime | None = None


def describe_start(server: str) -> str:
    """What people read while a tool server is being started."""
    return f"Starting the tool server {server} ..."
