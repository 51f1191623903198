"""Start of a server: settings, socket, application; and the reload of its configuration."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ai_platform_engineering.a2a.own_servers import is_own_server
from ai_platform_engineering.agents.agent_catalog import AgentEntry
from ai_platform_engineering.agents.installed_commands import missing_commands
from ai_platform_engineering.core.environment import (
    export_variables,
    find_missing_variables,
    read_environment,
)
from ai_platform_engineering.core.errors import CaipeError, ConfigurationError
from ai_platform_engineering.core.failure_text import describe_failure, describe_unforeseen
from ai_platform_engineering.core.model_providers import find_provider
from ai_platform_engineering.core.private_files import make_home_private
from ai_platform_engineering.core.process_protection import forbid_inspection
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.sentences import begin_sentence
from ai_platform_engineering.core.server_address import ServerAddress
from ai_platform_engineering.core.settings import ModelSettings, ServerSettings, Settings
from ai_platform_engineering.core.terminals import command_name, is_in_terminal
from ai_platform_engineering.core.unused_variables import warn_of_unused_variables
from ai_platform_engineering.databases.sql_connections import StorageInUse
from ai_platform_engineering.models.chat_model import describe_missing_variables
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.reloadable_agent import (
    AgentDeployment,
    ReloadableAgent,
    ServingAgentT,
)
from ai_platform_engineering.runtime.server.app import App, PortInUse, listen, serve
from ai_platform_engineering.runtime.server.authentication import check_exposure

log = logging.getLogger(__name__)

_DEFECT_HINT = "This is a bug. LOG_LEVEL=DEBUG shows where it happened."


def start_server(
    overrides: Mapping[str, str | None],
    build: Callable[[Settings, Mapping[str, str]], App],
    *,
    is_supervisor: bool = False,
) -> None:
    """Runs the server until it is stopped; options of the command line win over the environment.

    Commands with the same CAIPE_HOME find the supervisor, whatever its port."""
    forbid_inspection()
    if not is_in_terminal():
        _ignore_hangup()
    with _told_failures():
        variables = read_environment()
        export_variables(variables)
        settings = Settings.from_variables({**variables, **_drop_unset(overrides)})
        _configure_logging(settings.logging.level)
        make_home_private(settings.agent.home)
        check_exposure(settings.server)
        listener = _listen(settings)
        server = settings.server.model_copy(update={"port": listener.getsockname()[1]})
        settings = settings.model_copy(update={"server": server})
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(listener.close)
            app = _build(build, settings, variables)
            cleanup.pop_all()  # the application was built: the listener stays open
        address = ServerAddress(server.local_url, os.getpid())

        def announce() -> None:
            if is_supervisor:
                with contextlib.suppress(OSError):  # the storage has told that the home cannot be written
                    address.write(settings.agent.home)
            _announce(server, app)

        def part() -> None:
            address.remove(settings.agent.home)
            log.info("the server has stopped")

        app.on_ready = announce
        app.on_stopped = part
        serve(app, listener, settings.logging.level)


def _build(
    build: Callable[[Settings, Mapping[str, str]], App], settings: Settings, variables: Mapping[str, str]
) -> App:
    try:
        return build(settings, variables)
    except StorageInUse as error:
        server = ServerAddress.read(settings.agent.home)
        if server is None or not server.is_running:
            raise
        url = mask_urls(server.url)
        raise ConfigurationError(f"{error} It is the server at {url} (process {server.pid}).") from None


@contextlib.contextmanager
def _told_failures() -> Iterator[None]:
    """Ends the process with a sentence for whatever fails at the start."""
    try:
        yield
    except Exception as error:
        log.debug("the start failed", exc_info=True)
        text = describe_failure(error) or describe_unforeseen(error, _DEFECT_HINT)
        sys.exit(text.message)


def _ignore_hangup() -> None:
    """Ignores SIGHUP until the server is up and handles it."""
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _listen(settings: Settings) -> socket.socket:
    try:
        return listen(settings.server)
    except PortInUse:
        url = settings.server.local_url
        if not asyncio.run(is_own_server(url)):
            raise
        raise ConfigurationError(_describe_running_server(url, settings.agent.home)) from None


def _describe_running_server(url: str, home: Path) -> str:
    server = ServerAddress.read(home)
    process = ""
    if server is not None and server.url == url and server.is_running:
        process = f" (process {server.pid})"
    return (
        f"This program already serves on {mask_urls(url)}{process}. Use that one, for example with "
        f"`{command_name()} chat`; stop it; or start this one with another --port and CAIPE_HOME."
    )


def _announce(server: ServerSettings, app: App) -> None:
    """Says that the server is up, and how to use it: in a terminal as it is, else in the log."""
    lines = [f"serving on {mask_urls(server.url)}", *app.greeting()]
    if not sys.stderr.isatty():
        for line in lines:
            log.info("%s", line)
        return
    lines[0] = f"{lines[0]} (Ctrl-C stops it)"
    sys.stderr.write("".join(f"{begin_sentence(line)}\n" for line in lines))
    sys.stderr.flush()


def _drop_unset(overrides: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in overrides.items() if value is not None}


def _configure_logging(level: str) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(module)s: %(message)s")
    # At DEBUG the A2A library would log whole requests.
    logging.getLogger("a2a").setLevel(max(logging.INFO, logging.getLogger().level))
    # At INFO these log each check of an agent, each agent card, each stored conversation.
    for name in ("httpx", "httpx2", "httpcore", "a2a.client", "aiosqlite"):
        logging.getLogger(name).setLevel(logging.WARNING)


def describe_model(settings: ModelSettings) -> str:
    """The configured model, or why there is none, as a line for the start."""
    if settings.name is None:
        return "model: none, so the embedded router answers; set LLM_MODEL for a model"
    missing = find_missing_variables(find_provider(settings.name))
    if missing:
        return f"model: none that works. {describe_missing_variables(settings.name, missing)}"
    return f"model: {settings.name}"


def describe_agents(placed: PlacedAgents, home: Path) -> list[str]:
    """How many agents are offered, and where to look for what the others need; a line for each."""
    ready: list[str] = []
    not_installed: list[str] = []
    unconfigured = 0
    for entry in placed.catalog:
        if entry.status == "not_configured":
            unconfigured += 1
        elif entry.status == "ready" and _misses_program(entry, home):
            not_installed.append(entry.name)
        elif entry.status == "ready" and entry.address:
            ready.append(f"{entry.name} (at {mask_urls(entry.address)})")
        elif entry.status == "ready":
            ready.append(entry.name)
    lines = [f"agents ready: {', '.join(ready) or 'none'}"]
    if not_installed:
        names = ", ".join(not_installed)
        lines.append(f"programs missing: {names}; what to do: {command_name()} agents")
    if unconfigured:
        lines.append(f"not configured: {unconfigured} agents; what each needs: {command_name()} agents")
    return lines


def log_agents(placed: PlacedAgents) -> None:
    """Logs the table of all agents at start-up, with what each needs."""
    table = ""
    for row in placed.catalog.report():
        status = row.status.replace("_", " ")
        table += f"\n  {row.name:12} {status:15} {row.address or ''} {row.note}".rstrip()
    log.debug("agents:%s", table)


def _misses_program(entry: AgentEntry, home: Path) -> bool:
    return entry.placement != "remote" and bool(missing_commands(entry.definition, home))


def warn_of_settings(placed: PlacedAgents, variables: Mapping[str, str]) -> None:
    """Warns of variables that neither this program nor the definition of an agent reads."""
    used_names = {name for entry in placed.catalog for name in entry.variables}
    warn_of_unused_variables(variables, used_names)


async def reload_agent(
    agent: ReloadableAgent[ServingAgentT], build: Callable[[], AgentDeployment[ServingAgentT]]
) -> bool:
    """Replaces the deployment by a newly configured one. With a wrong configuration the old one stays."""
    try:
        deployment = build()
    except CaipeError as error:
        log.error("the new configuration is not used: %s", error)
        return False
    await agent.replace(deployment)
    log.info("the configuration was reloaded; new questions use it")
    return True
