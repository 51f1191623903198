"""`caipe agents`: which agents there are, what each needs, installing a server's packages, and trying one."""

import asyncio
import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ai_platform_engineering.agents.agent_catalog import (
    AgentCatalog,
    AgentEntry,
    load_catalog,
    load_placed_catalog,
)
from ai_platform_engineering.agents.installed_commands import agent_home, find_command, resolve_commands
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool

_STATES = {"ready": "green", "not_configured": "yellow", "disabled": "dim", "unreachable": "red"}


def list_agents(console: Console, settings: Settings, variables: Mapping[str, str]) -> int:
    catalog = load_placed_catalog(settings, variables)
    reached = asyncio.run(
        _reached(settings, [entry for entry in catalog if entry.status == "ready" and entry.address])
    )
    table = Table(box=None, pad_edge=False)
    for column in ("agent", "status", "needs", "runs"):
        table.add_column(column, overflow="fold")
    for entry in catalog:
        state = "unreachable" if reached.get(entry.name) else entry.status
        needs = reached.get(entry.name) or _needs(entry, settings.agent.home)
        table.add_row(entry.name, f"[{_STATES[state]}]{state.replace('_', ' ')}[/]", needs, _where(entry))
    console.print(table)
    return 0


async def _reached(settings: Settings, entries: Sequence[AgentEntry]) -> dict[str, str | None]:
    """What is wrong with each remote agent, by a look at its card."""
    # Imported late: the libraries of A2A take a while, and most installations have no remote agent.
    from ai_platform_engineering.multi_agents.agent_registry import AgentRegistry
    from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import (
        A2ARemoteAgentConnectTool,
        HttpClients,
    )

    if not entries:
        return {}
    http = HttpClients()
    connections = {
        entry.name: A2ARemoteAgentConnectTool(
            name=entry.name, description="", url=entry.address or "", token=entry.token, http=http
        )
        for entry in entries
    }
    registry = AgentRegistry(connections, timeout=settings.placement.check_timeout)
    logging.disable(logging.WARNING)  # the table says it
    try:
        await registry.check_all()
    finally:
        logging.disable(logging.NOTSET)
        await registry.aclose()
        await http.aclose()
    return {entry.name: registry.problem(entry.name) for entry in entries}


def install_agent(console: Console, settings: Settings, variables: Mapping[str, str], name: str) -> int:
    """Brings an agent's server packages into an environment of its own."""
    definition = _entry(load_catalog(variables, agents_config=settings.agent.definitions), name).definition
    wanted = definition.install
    if wanted is None:
        console.print(f"{name} needs no packages of its own.", markup=False)
        return 0
    home = agent_home(settings.agent.home, name)
    home.mkdir(parents=True, exist_ok=True)
    for command in _pip(home, wanted.python, wanted.pip) if wanted.pip else _npm(home, wanted.npm):
        console.print(f"$ {' '.join(command)}", style="dim", markup=False, highlight=False)
        if (code := subprocess.run(command, check=False).returncode) != 0:
            raise CaipeError(f"The command ended with code {code}; {name} is not installed.")
    console.print(f"{name} is installed in {home}.", markup=False, highlight=False)
    return 0


def test_agent(console: Console, settings: Settings, variables: Mapping[str, str], name: str) -> int:
    """Starts an agent's tool servers and lists what they offer."""
    entry = _entry(load_catalog(variables, agents_config=settings.agent.definitions), name)
    if entry.status == "not_configured":
        raise CaipeError(f"{name} is not configured: {entry.note}.")
    return asyncio.run(
        _try_servers(console, settings, variables, resolve_commands(entry.definition, settings.agent.home))
    )


async def _try_servers(
    console: Console, settings: Settings, variables: Mapping[str, str], definition: AgentDefinition
) -> int:
    sessions = McpSessionPool(
        connect_timeout=settings.mcp.connect_timeout,
        call_timeout=settings.mcp.call_timeout,
        cache_dir=None,
        environment=variables,
    )
    try:
        found = await sessions.agent_tools(definition.mcp_servers, definition.tools)
    finally:
        await sessions.aclose()
    for tool in found.tools:
        asks = " (needs approval)" if (tool.metadata or {}).get("permission") == "ask" else ""
        console.print(
            f"{tool.name}{asks}: {tool.description.strip().splitlines()[0][:100]}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    for server, reason in found.problems.items():
        console.print(f"{server} gives no tools: {reason}", style="red", markup=False, highlight=False)
    if found.problems:
        return 1
    return 0


def _entry(catalog: AgentCatalog, name: str) -> AgentEntry:
    entry = catalog.get(name)
    if entry is None:
        raise CaipeError(
            f"There is no agent {name}. The agents are: {', '.join(one.name for one in catalog)}."
        )
    return entry


def _needs(entry: AgentEntry, home: Path) -> str:
    if entry.status != "ready" or entry.placement == "remote":
        return entry.note
    missing = missing_commands(entry.definition, home)
    if missing:
        return f"caipe agents install {entry.name}"
    return entry.note


def missing_commands(definition: AgentDefinition, home: Path) -> list[str]:
    """The programs of an agent that are not on this machine."""
    commands = [server.command for server in definition.mcp_servers.values() if server.command]
    return [command for command in commands if find_command(home, definition.name, command) is None]


def _where(entry: AgentEntry) -> str:
    if entry.placement == "remote":
        if entry.address:
            return f"as a service at {entry.address}"
        return "as a service"
    servers = ", ".join(
        server.command or server.url or "" for server in entry.definition.mcp_servers.values()
    )
    if servers:
        return f"here, with {servers}"
    return "here"


def _pip(home: Path, python: str | None, packages: tuple[str, ...]) -> list[list[str]]:
    interpreter = shutil.which(f"python{python}") if python else sys.executable
    if interpreter is None:
        raise CaipeError(
            f"The server needs Python {python}, which is not on this machine. Install python{python} and try again."
        )
    return [
        [interpreter, "-m", "venv", str(home / "venv")],
        [str(home / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages],
    ]


def _npm(home: Path, packages: tuple[str, ...]) -> list[list[str]]:
    npm = shutil.which("npm")
    if npm is None:
        raise CaipeError(
            "The server is an npm package, and there is no npm on this machine. Install Node.js with npm and try again."
        )
    return [[npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(home), *packages]]
