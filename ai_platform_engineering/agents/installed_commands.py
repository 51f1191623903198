"""Where an agent's MCP servers have what is theirs: commands in the environment that `caipe agents install`
made, or on the PATH; what was trusted of them."""

import shutil
from pathlib import Path

from ai_platform_engineering.core.agent_definition import AgentDefinition, McpServer


def agent_home(home: Path, name: str) -> Path:
    """The folder that holds an agent's own environment."""
    return home / "agents" / name


def find_trust_folder(home: Path) -> Path:
    """The folder with what was trusted of each tool server."""
    return home / "mcp-trust"


def find_command(home: Path, agent: str, command: str) -> str | None:
    """The full path of a definition's command; None when it is not installed."""
    own_folder = agent_home(home, agent)
    for folder in (own_folder / "venv" / "bin", own_folder / "node_modules" / ".bin"):
        if (folder / command).is_file():
            return str(folder / command)
    return shutil.which(command)


def missing_commands(definition: AgentDefinition, home: Path) -> list[str]:
    """The programs of an agent that are not on this machine."""
    missing: list[str] = []
    for server in definition.mcp_servers.values():
        if server.command and find_command(home, definition.name, server.command) is None:
            missing.append(server.command)
    return missing


def resolve_commands(definition: AgentDefinition, home: Path) -> AgentDefinition:
    """The definition with full paths; a command that is not installed stays as it is and fails by its
    name."""
    servers: dict[str, McpServer] = {}
    for name, server in definition.mcp_servers.items():
        servers[name] = _resolve_command(server, definition.name, home)
    return definition.model_copy(update={"mcp_servers": servers})


def _resolve_command(server: McpServer, agent: str, home: Path) -> McpServer:
    if not server.command:
        return server
    program = find_command(home, agent, server.command)
    if program is None:
        return server
    return server.model_copy(update={"command": program})
