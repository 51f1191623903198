"""Puts the runbooks of the demo's company into the knowledge base of the demo's supervisor."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from ai_platform_engineering.a2a.rest_client import RestApi
from ai_platform_engineering.cli.kb_connection import open_remote_api
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.demo.launcher import PushedRunbook

_DATASOURCE = "runbooks"
_ATTEMPTS = 10  # the knowledge base opens after the server answers
_RETRY_SECONDS = 1.0


async def push_runbooks(url: str, home: Path, runbooks: Sequence[PushedRunbook]) -> int:
    """Stores the runbooks in place of those of an earlier start; returns how many there are.

    When the knowledge base cannot be used, that is told, and the demo goes on without.
    """
    if not runbooks:
        return 0
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            async with open_remote_api(url, None, home) as api:
                return await _push(api, runbooks)
        except CaipeError as error:
            problem = str(error)
            await asyncio.sleep(_RETRY_SECONDS)
    click.echo(f"The demo goes on without runbooks in the knowledge base: {problem}", err=True)
    return 0


async def _push(api: RestApi, runbooks: Sequence[PushedRunbook]) -> int:
    path = f"/v1/datasources/{_DATASOURCE}"
    title = "Runbooks of the demo's company"
    await api("POST", "/v1/datasources", {"location": f"push:{_DATASOURCE}", "title": title})
    generation = (await api("POST", f"{path}/generations"))["generation"]
    documents = [runbook.model_dump() for runbook in runbooks]
    await api("POST", f"{path}/documents", {"documents": documents, "generation": generation})
    await api("POST", f"{path}/generations/{generation}/finish")
    return len(documents)
