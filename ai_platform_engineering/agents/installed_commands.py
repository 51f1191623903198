"""Where an agent's commands are: in an environment of its own, made by `caipe agents install`, or wherever the shell finds them."""

import shutil
from pathlib import Path

from ai_platform_engineering.core.agent_definition import AgentDefinition, McpServer


def agent_home(home: Path, name: str) -> Path:
    """The folder that holds an agent's own environment."""
    return home / "agents" / name


def find_command(home: Path, agent: str, command: str) -> str | None:
    """The program that a definition's command means; None when there is none."""
    own = agent_home(home, agent)
    for folder in (own / "venv" / "bin", own / "node_modules" / ".bin"):
        if (folder / command).is_file():
            return str(folder / command)
    return shutil.which(command)


def resolve_commands(definition: AgentDefinition, home: Path) -> AgentDefinition:
    """The definition with full paths; a command that is not there stays as it is and fails by its name."""

    def located(server: McpServer) -> McpServer:
        found = find_command(home, definition.name, server.command) if server.command else None
        if found:
            return server.model_copy(update={"command": found})
        return server

    servers = {name: located(server) for name, server in definition.mcp_servers.items()}
    return definition.model_copy(update={"mcp_servers": servers})
