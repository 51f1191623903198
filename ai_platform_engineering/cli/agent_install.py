"""Installs the packages of an agent's MCP server into an environment of its own, from a lock with hashes."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ai_platform_engineering.agents.agent_catalog import AgentEntry
from ai_platform_engineering.agents.install_locks import LOCKS_FOLDER, InstallLock, find_lock
from ai_platform_engineering.agents.installed_commands import agent_home
from ai_platform_engineering.cli.python_interpreters import find_python
from ai_platform_engineering.core.agent_definition import Install
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.optional_packages import explain_image_build, is_image
from ai_platform_engineering.core.private_files import create_private_folder
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.server_environment import base_environment

# How the installers are configured; our keys are not their business.
_INSTALLER_PREFIXES = ("PIP_", "NPM_CONFIG_", "NODE_")
# No code of a package runs while it is installed: only wheels, and no scripts.
_PIP_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:")
_NPM_OPTIONS = ("--ignore-scripts", "--omit=dev", "--no-fund", "--no-audit", "--loglevel=error")
_WITHOUT_LOCK = "These packages are installed without a lock: whatever the package index offers now."


class _Step(NamedTuple):
    command: list[str]
    folder: Path


def install_packages(
    console: Console,
    settings: Settings,
    entry: AgentEntry,
    *,
    variables: Mapping[str, str],
    locked: bool = True,
    locks: Path = LOCKS_FOLDER,
) -> None:
    """Installs with pip or npm, and prints each command. Raises CaipeError, and leaves nothing half done."""
    install = entry.definition.install
    if install is None:
        console.print(f"{entry.name} needs no packages of its own.", markup=False)
        return
    lock = find_lock(install, locks) if locked else None
    if lock is None:
        console.print(_WITHOUT_LOCK, style="yellow", markup=False)
    home = agent_home(settings.agent.home, entry.name)
    create_private_folder(home)
    environment = _installer_environment(variables)
    for step in _list_steps(home, install, lock, environment):
        console.print(f"$ {' '.join(step.command)}", style="dim", markup=False, highlight=False)
        try:
            code = subprocess.run(step.command, check=False, cwd=step.folder, env=environment).returncode
        except KeyboardInterrupt:
            _remove_installed(home)
            raise
        if code != 0:
            _remove_installed(home)
            raise CaipeError(_describe_failure(entry.name, code, locked=locked))
    console.print(f"{entry.name} is installed in {home}.", markup=False, highlight=False)


def _list_steps(
    home: Path, install: Install, lock: InstallLock | None, environment: Mapping[str, str]
) -> list[_Step]:
    if install.pip:
        commands = _pip_commands(home, install, lock, environment)
    else:
        commands = _npm_commands(home, install, lock)
    return [_Step(command, home) for command in commands]


def _pip_commands(
    home: Path, install: Install, lock: InstallLock | None, environment: Mapping[str, str]
) -> list[list[str]]:
    interpreter = sys.executable
    if install.python:
        interpreter = find_python(install.python, environment)
    if lock is None:
        packages = [*install.pip]
    else:
        packages = ["--require-hashes", "--no-deps", "-r", str(lock.requirements)]
    return [
        [interpreter, "-m", "venv", "--clear", str(home / "venv")],
        [str(home / "venv" / "bin" / "python"), "-m", "pip", "install", *_PIP_OPTIONS, *packages],
    ]


def _npm_commands(home: Path, install: Install, lock: InstallLock | None) -> list[list[str]]:
    npm = shutil.which("npm")
    if npm is None:
        remedy = "Install Node.js with npm and try again."
        if is_image():
            remedy = explain_image_build("WITH_NODE", "1")
        raise CaipeError(f"The server is an npm package, and npm is not installed. {remedy}")
    _remove_installed(home)
    if lock is None:
        return [[npm, "install", *_NPM_OPTIONS, "--prefix", str(home), *install.npm]]
    for file in lock.npm_files:
        shutil.copyfile(file, home / file.name)
    return [[npm, "ci", *_NPM_OPTIONS, "--prefix", str(home)]]


def _remove_installed(home: Path) -> None:
    """Removes what an installation may have left; a half of one must not be started."""
    for name in ("venv", "node_modules"):
        shutil.rmtree(home / name, ignore_errors=True)
    for name in ("package.json", "package-lock.json"):
        (home / name).unlink(missing_ok=True)


def _installer_environment(variables: Mapping[str, str]) -> dict[str, str]:
    environment = base_environment(variables)
    for name, value in variables.items():
        if name.upper().startswith(_INSTALLER_PREFIXES):
            environment[name] = value
    if "TMPDIR" in variables:
        environment["TMPDIR"] = variables["TMPDIR"]
    return environment


def _describe_failure(agent: str, code: int, *, locked: bool) -> str:
    message = f"The command ended with code {code}; {agent} is not installed."
    if locked:
        message += (
            " Each package must be what it was when the lock was made: if the lines above say that a hash or"
            " an integrity differs, the package index offers something else now, and nothing of it was kept."
        )
    return message
