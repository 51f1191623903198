"""`caipe outcome`: tool calls whose outcome is unknown, and what people say became of them."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from ai_platform_engineering.cli.options import exit_code, run_and_exit, server_options
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.terminals import command_name

CallRow = Mapping[str, Any]  # a call of the journal as the REST API lists it


@click.command()
@click.argument("task_id")
@click.argument("call", required=False)
@server_options
@click.option("--done", "outcome", flag_value="done", help="The call took effect.")
@click.option("--not-done", "outcome", flag_value="not_done", help="The call did not take effect.")
@click.option("--note", default="", help="What else the model should know.")
def outcome(
    task_id: str, call: str | None, url: str | None, token: str | None, outcome: str | None, note: str
) -> None:
    """Record the outcome of calls that a crash left unknown.

    Without CALL, list them.
    """
    from ai_platform_engineering.cli.server_connection import open_server_api
    from ai_platform_engineering.core.display_text import reveal_line

    if (call is None) != (outcome is None):
        raise click.UsageError("Pass a call with --done or --not-done, or neither to list the calls.")
    calls_path = f"/v1/tasks/{quote(task_id, safe='')}/calls"

    async def run() -> int:
        async with open_server_api(url, token) as api:
            rows = (await api("GET", calls_path))["calls"]
            if call is None:
                _print_calls(rows)
                return exit_code(failed=False)
            key = quote(_find_call(rows, call)["key"], safe="")
            body = {"outcome": outcome, "note": note}
            response = await api("POST", f"{calls_path}/{key}/outcome", body)
        click.echo(f"Noted: {reveal_line(response['outcome']['content'])}", err=True)
        return exit_code(failed=False)

    run_and_exit(run)


def _print_calls(rows: Sequence[CallRow]) -> None:
    from ai_platform_engineering.core.display_text import reveal_json, reveal_line

    for row in rows:
        state = row["state"]
        if row.get("settled_by"):
            state = f"{state} (according to {reveal_line(row['settled_by'])})"
        arguments = reveal_json(row["arguments"])
        click.echo(f"{state}: {reveal_line(row['tool'])} {arguments}\n  {reveal_line(row['key'])}")
    if not rows:
        click.echo("This task made no calls that change anything.", err=True)


def _find_call(rows: Sequence[CallRow], name: str) -> CallRow:
    """Finds a call by its key, by the end of its key, or by its tool while that is the only unknown one."""
    by_key = [row for row in rows if name in (row["key"], row["key"].rpartition("/")[2])]
    by_tool = [row for row in rows if row["tool"] == name and row["state"] == "unknown"]
    matches = by_key or by_tool
    if len(matches) == 1:
        return matches[0]
    reason = "Several calls are called" if matches else "No call with an unknown outcome is called"
    raise CaipeError(
        f"{reason} {name}. Without a name `{command_name()} outcome TASK_ID` lists the calls with their keys."
    )
