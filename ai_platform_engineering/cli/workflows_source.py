"""Where `caipe workflows` reads the workflows: from a server, or from the files of this machine."""

import logging
from typing import Any

from ai_platform_engineering.agents.agent_catalog import load_placed_catalog
from ai_platform_engineering.cli.server_connection import find_local_server, open_api_at
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.workflows.workflow_catalog import load_workflows, render_workflows


async def read_workflows(url: str | None, token: str | None) -> dict[str, Any]:
    """The workflows of the named server, of the one on this machine, or those that one would have."""
    variables = read_environment()
    settings = Settings.from_variables(variables)
    address = url or await find_local_server(settings)
    if address:
        async with open_api_at(address, token) as api:
            response: dict[str, Any] = await api("GET", "/workflows")
            return response
    logging.disable(logging.WARNING)  # the list has the problems of the files
    try:
        catalog = load_placed_catalog(settings, variables)
        agent_names = [entry.name for entry in catalog if entry.status == "ready"]
        paths = [
            path for path in (settings.people.task_config, settings.people.workflows) if path is not None
        ]
        return dict(render_workflows(load_workflows(paths, agent_names)))
    finally:
        logging.disable(logging.NOTSET)
