"""`caipe outcome`: what became of calls whose outcome nobody knows."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from ai_platform_engineering.cli.rest_requests import open_server_api
from ai_platform_engineering.core.errors import CaipeError

Call = Mapping[str, Any]


def list_calls(task_id: str, url: str | None, token: str | None) -> int:
    async def run() -> None:
        async with open_server_api(url, token) as api:
            calls = (await api("GET", _path(task_id)))["calls"]
        for call in calls:
            by = f" (said by {call['settled_by']})" if call.get("settled_by") else ""
            click.echo(
                f"{call['state']}{by}: {call['tool']} {json.dumps(call['arguments'], ensure_ascii=False)}\n  {call['key']}"
            )
        if not calls:
            click.echo("The task has made no call that changes something.", err=True)

    asyncio.run(run())
    return 0


def settle_call(task_id: str, named: str, outcome: str, note: str, url: str | None, token: str | None) -> int:
    async def run() -> None:
        async with open_server_api(url, token) as api:
            call = _one((await api("GET", _path(task_id)))["calls"], named)
            path = f"{_path(task_id)}/{quote(call['key'], safe='')}/outcome"
            settled = await api("POST", path, {"outcome": outcome, "note": note})
        click.echo(f"Noted: {settled['outcome']['content']}", err=True)

    asyncio.run(run())
    return 0


def _path(task_id: str) -> str:
    return f"/v1/tasks/{quote(task_id, safe='')}/calls"


def _one(calls: Sequence[Call], named: str) -> Call:
    """The call that is meant: by its key, the end of its key, or its tool's name while that is the only unknown one."""
    by_key = [call for call in calls if named in (call["key"], call["key"].rpartition("/")[2])]
    by_tool = [call for call in calls if call["tool"] == named and call["state"] == "unknown"]
    found = by_key or by_tool
    if len(found) == 1:
        return found[0]
    several = "Several calls are called" if found else "No call with an unknown outcome is called"
    raise CaipeError(
        f"{several} {named}. Without a name `caipe outcome TASK_ID` lists the calls with their keys."
    )
