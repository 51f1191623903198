"""The environment of the demo's supervisor: its own settings and systems, and the user's language model."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ai_platform_engineering.agents.agent_catalog import AgentEntry, load_catalog
from ai_platform_engineering.core.agent_definition import enabling_variable
from ai_platform_engineering.core.env_files import ENV_FILE_VARIABLE, HOME_VARIABLE, find_home
from ai_platform_engineering.core.legacy_variables import RENAMED
from ai_platform_engineering.core.model_providers import find_provider
from ai_platform_engineering.core.private_files import create_private_folder
from ai_platform_engineering.core.settings import LogSettings, ModelSettings, Settings
from ai_platform_engineering.core.settings_report import list_setting_variables

# What the user configures beside systems and storage; everything else is the demo's.
_SHARED_GROUPS = (ModelSettings, LogSettings)
_SHARED_VARIABLES = frozenset(
    {"ENABLE_RAG", "RAG_EMBEDDINGS", "MCP_CHECK_SERVERS"}
)  # what a machine can bear
_ORDINARY_AGENTS = ("netutils", "weather")  # they need no system of the company
_PROVIDER_PREFIXES = {"bedrock_converse": ("AWS_",), "google_genai": ("GOOGLE_",)}
_LOOPBACK = "127.0.0.1,localhost"
# A second Ctrl-C is rarely needed when the first takes this long.
_SHUTDOWN_SECONDS = "5"


def find_demo_home(variables: Mapping[str, str]) -> Path:
    """The demo's own CAIPE_HOME, below that of the user: conversations are never mixed."""
    return find_home(variables).absolute() / "demo"


def list_demo_entries(variables: Mapping[str, str], names: Iterable[str]) -> list[AgentEntry]:
    """The agents of the catalogue that work on stand-ins."""
    catalog = load_catalog(variables, agents_config=None)
    entries = (catalog.get(name) for name in names)
    return [entry for entry in entries if entry is not None]


def build_environment(
    variables: Mapping[str, str], demo_home: Path, systems: Mapping[str, Mapping[str, str]], port: int
) -> dict[str, str]:
    """The environment for the supervisor. `systems`: the variables of each agent that works on a stand-in.

    The user's own settings and credentials of agents are left out, and other agents are off: the demo must
    not reach a real system.
    """
    environment = _drop_own_settings(variables)
    for entry in load_catalog({}, agents_config=None):
        if entry.name in _ORDINARY_AGENTS:
            continue
        for name in entry.variables:
            environment.pop(name, None)
        environment[enabling_variable(entry.name)] = str(entry.name in systems).lower()
    environment |= _pick_provider_variables(variables)
    for system_variables in systems.values():
        environment |= system_variables
    if sys.stderr.isatty():
        # What to do next stays in sight.
        environment.setdefault("LOG_LEVEL", "WARNING")
    environment |= {
        HOME_VARIABLE: str(demo_home),
        "A2A_HOST": "127.0.0.1",
        "A2A_PORT": str(port),
        "SHUTDOWN_SECONDS": _SHUTDOWN_SECONDS,
        # Stand-ins answer on loopback, and a proxy would not find them.
        "NO_PROXY": _join(environment.get("NO_PROXY"), _LOOPBACK),
        "no_proxy": _join(environment.get("no_proxy"), _LOOPBACK),
    }
    return environment


def _pick_provider_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """What the model needs and an agent reads, too, such as AWS_REGION."""
    model = Settings.from_variables(variables).model.name
    if model is None:
        return {}
    prefixes = _PROVIDER_PREFIXES.get(find_provider(model).name, ())
    return {name: value for name, value in variables.items() if name.startswith(prefixes)}


def _drop_own_settings(variables: Mapping[str, str]) -> dict[str, str]:
    shared = {name for group in _SHARED_GROUPS for name in list_setting_variables(group)}
    dropped = {*list_setting_variables(), HOME_VARIABLE, ENV_FILE_VARIABLE} - shared - _SHARED_VARIABLES
    dropped |= {legacy_name for legacy_name, name in RENAMED.items() if name in dropped}
    return {name: value for name, value in variables.items() if name not in dropped}


def _join(value: str | None, addition: str) -> str:
    return ",".join(filter(None, (value, addition)))


def link_agents_folder(home: Path, demo_home: Path) -> None:
    """Lets the demo use the tool servers that are installed in the user's CAIPE_HOME, and install there.

    Raises OSError.
    """
    agents_folder = home / "agents"
    create_private_folder(agents_folder)
    link = demo_home / "agents"
    if link.is_symlink() and Path(os.readlink(link)) == agents_folder:
        return
    if link.is_symlink():
        link.unlink()
    if not link.exists():
        link.symlink_to(agents_folder)
