"""Start of a server: settings, socket, application; and the reload of its configuration."""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.private_files import make_home_private
from ai_platform_engineering.core.process_protection import forbid_inspection
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.settings import Settings, export_variables, read_environment
from ai_platform_engineering.core.unused_variables import warn_of_unused_variables
from ai_platform_engineering.models.offline_model import OFFLINE_NOTICE
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.reloadable_agent import (
    AgentDeployment,
    ReloadableAgent,
    ServingAgentT,
)
from ai_platform_engineering.runtime.server.app import App, listen, serve
from ai_platform_engineering.runtime.server.authentication import check_exposure

log = logging.getLogger(__name__)


def start_server(
    overrides: Mapping[str, str | None], build: Callable[[Settings, Mapping[str, str]], App]
) -> None:
    """Runs the server until it is stopped; options of the command line win over the environment."""
    forbid_inspection()
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server is up and handles it
    try:
        variables = read_environment()
        export_variables(variables)
        settings = Settings.from_variables({**variables, **_drop_unset(overrides)})
        _configure_logging(settings.logging.level)
        make_home_private(settings.agent.home)
        check_exposure(settings.server)
        listener = listen(settings.server)
        server = settings.server.model_copy(update={"port": listener.getsockname()[1]})
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(listener.close)
            app = build(settings.model_copy(update={"server": server}), variables)
            cleanup.pop_all()  # the application was built: the listener stays open
    except CaipeError as error:
        sys.exit(f"{error}")
    log.info("serving on %s", mask_urls(server.url))
    if settings.model.name is None:
        log.warning(OFFLINE_NOTICE)
    try:
        serve(app, listener, settings.logging.level)
    except CaipeError as error:
        sys.exit(f"{error}")


def _drop_unset(overrides: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in overrides.items() if value is not None}


def _configure_logging(level: str) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(module)s: %(message)s")
    # At DEBUG the A2A library would log whole requests.
    logging.getLogger("a2a").setLevel(max(logging.INFO, logging.getLogger().level))
    # At INFO these log each check of an agent, each agent card, each stored conversation.
    for name in ("httpx", "httpx2", "httpcore", "a2a.client", "aiosqlite"):
        logging.getLogger(name).setLevel(logging.WARNING)


def log_agents(placed: PlacedAgents) -> None:
    """Logs the table of all agents at start-up."""
    table = ""
    for row in placed.catalog.report():
        status = row.status.replace("_", " ")
        table += f"\n  {row.name:12} {status:15} {row.address or ''} {row.note}".rstrip()
    log.info("agents:%s", table)


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
        log.error("the configuration was read again and is not used: %s", error)
        return False
    await agent.replace(deployment)
    log.info("the configuration was read again; new questions use it")
    return True
