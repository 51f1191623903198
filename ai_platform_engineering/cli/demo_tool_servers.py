"""The tool servers of the demo: installs those that are missing, and goes on without those that cannot be."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from ai_platform_engineering.agents.agent_catalog import AgentEntry
from ai_platform_engineering.agents.installed_commands import missing_commands
from ai_platform_engineering.cli.agent_install import install_packages
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings


def install_missing_servers(
    console: Console,
    settings: Settings,
    entries: Sequence[AgentEntry],
    variables: Mapping[str, str],
    *,
    installs: bool,
) -> list[str]:
    """Returns the names of the agents whose tool servers are there; the others are told, with the reason.

    `installs`: what is missing is installed first.
    """
    usable: list[str] = []
    for entry in entries:
        problem = None
        if missing_commands(entry.definition, settings.agent.home):
            problem = _install(console, settings, entry, variables, installs=installs)
        if problem is None:
            usable.append(entry.name)
            continue
        message = f"The demo goes on without {entry.definition.title}: {problem}"
        console.print(message, style="yellow", markup=False, highlight=False, soft_wrap=True)
    return usable


def _install(
    console: Console,
    settings: Settings,
    entry: AgentEntry,
    variables: Mapping[str, str],
    *,
    installs: bool,
) -> str | None:
    """Why the tool server is missing; None when it was installed."""
    if not installs:
        return "its tool server is not installed, and --no-install was given."
    title = entry.definition.title
    console.print(f"Installing the tool server of {title}, once.", markup=False, highlight=False)
    try:
        install_packages(console, settings, entry, variables=variables)
    except CaipeError as error:
        return str(error)
    if missing_commands(entry.definition, settings.agent.home):
        return "its tool server was installed and lacks its command."
    return None
