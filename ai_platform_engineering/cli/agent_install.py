"""Installs the packages of an agent's MCP server into an environment of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from ai_platform_engineering.agents.agent_catalog import AgentEntry
from ai_platform_engineering.agents.installed_commands import agent_home
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings


def install_packages(console: Console, settings: Settings, entry: AgentEntry) -> None:
    """Installs with pip or npm, and prints each command. Raises CaipeError."""
    packages = entry.definition.install
    if packages is None:
        console.print(f"{entry.name} needs no packages of its own.", markup=False)
        return
    home = agent_home(settings.agent.home, entry.name)
    home.mkdir(parents=True, exist_ok=True)
    if packages.pip:
        commands = _pip_commands(home, packages.python, packages.pip)
    else:
        commands = _npm_commands(home, packages.npm)
    for command in commands:
        console.print(f"$ {' '.join(command)}", style="dim", markup=False, highlight=False)
        code = subprocess.run(command, check=False).returncode
        if code != 0:
            raise CaipeError(f"The command ended with code {code}; {entry.name} is not installed.")
    console.print(f"{entry.name} is installed in {home}.", markup=False, highlight=False)


def _pip_commands(home: Path, python: str | None, packages: tuple[str, ...]) -> list[list[str]]:
    interpreter = shutil.which(f"python{python}") if python else sys.executable
    if interpreter is None:
        raise CaipeError(
            f"The server needs Python {python}, which is not on this machine."
            f" Install python{python} and try again."
        )
    return [
        [interpreter, "-m", "venv", str(home / "venv")],
        [str(home / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages],
    ]


def _npm_commands(home: Path, packages: tuple[str, ...]) -> list[list[str]]:
    npm = shutil.which("npm")
    if npm is None:
        raise CaipeError(
            "The server is an npm package, and there is no npm on this machine."
            " Install Node.js with npm and try again."
        )
    return [[npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(home), *packages]]
