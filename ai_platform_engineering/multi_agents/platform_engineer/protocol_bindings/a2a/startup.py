"""Starts a server of ours: settings, socket, application, and the next settings when it is told to read them again."""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings, export_variables, read_environment
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
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server is up and knows what to do with it
    try:
        variables = read_environment()
        export_variables(variables)
        settings = Settings.from_variables(
            {**variables, **{name: value for name, value in overrides.items() if value is not None}}
        )
        logging.basicConfig(
            level=settings.logging.level, format="%(asctime)s %(levelname)s %(module)s: %(message)s"
        )
        logging.getLogger("a2a").setLevel(
            max(logging.INFO, logging.getLogger().level)
        )  # at DEBUG it would log whole requests
        for chatty in ("httpx", "httpx2", "httpcore", "a2a.client", "aiosqlite"):
            logging.getLogger(chatty).setLevel(
                logging.WARNING
            )  # each check of an agent, each card, each stored conversation
        check_exposure(settings.server)
        listener = listen(settings.server)
        server = settings.server.model_copy(update={"port": listener.getsockname()[1]})
        with contextlib.ExitStack() as failed:
            failed.callback(listener.close)
            app = build(settings.model_copy(update={"server": server}), variables)
            failed.pop_all()
    except CaipeError as error:
        sys.exit(f"{error}")
    log.info("serving on %s", server.url)
    if settings.model.name is None:
        log.warning(OFFLINE_NOTICE)
    serve(app, listener, settings.logging.level)


def say_agents(placed: PlacedAgents) -> None:
    """The start-up table."""
    rows = placed.catalog.report()
    table = "".join(
        f"\n  {row.name:12} {row.status.replace('_', ' '):15} {row.address or ''} {row.note}".rstrip()
        for row in rows
    )
    log.info("agents:%s", table)


async def reload_agent(
    current: ReloadableAgent[ServingAgentT], make: Callable[[], AgentDeployment[ServingAgentT]]
) -> bool:
    """Puts a newly configured crew in the place of the one that answers. What is wrong is said, and the old one stays."""
    try:
        crew = make()
    except CaipeError as error:
        log.error("the configuration was read again and is not used: %s", error)
        return False
    await current.replace(crew)
    log.info("the configuration was read again; new questions use it")
    return True
