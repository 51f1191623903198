"""`caipe pending`, `approve`, `reject`, `answer` and `allowances`: requests of runs, and who answers them."""

import json
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote

import click

from ai_platform_engineering.cli.options import (
    exit_code,
    owner_options,
    parse_named_values,
    run_and_exit,
    run_interruptible,
    server_options,
)
from ai_platform_engineering.cli.run_options import RECONNECT_OPTION

if TYPE_CHECKING:
    from ai_platform_engineering.cli.request_answers import AnswerFactory

_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="One event per line on stdout.")


@click.command()
@server_options
@owner_options
@click.option("--json", "as_json", is_flag=True, help="The requests as JSON on stdout.")
def pending(url: str | None, token: str | None, owner: str | None, user: str | None, as_json: bool) -> None:
    """List open requests, and how to answer them."""
    from ai_platform_engineering.a2a.rest_client import read_all_pages, rest_api_for_client
    from ai_platform_engineering.cli.request_answers import parse_request
    from ai_platform_engineering.cli.server_connection import open_client
    from ai_platform_engineering.core.display_text import reveal_line
    from ai_platform_engineering.terminal.request_text import render_allowances, render_request

    async def run() -> int:
        async with open_client(url, token, owner, user) as client:
            api = rest_api_for_client(client)
            rows = await read_all_pages(api, "/v1/requests", "requests")
            if as_json:
                click.echo(json.dumps(rows, indent=2))
                return exit_code(failed=False)
            for row in rows:
                task = f"(task {reveal_line(row['task_id'])}, context {reveal_line(row['context_id'])})"
                click.echo(f"{render_request(parse_request(row))}\n  {task}\n")
            for context_id in dict.fromkeys(row["context_id"] for row in rows):
                response = await api("GET", _allowances_path(context_id))
                for line in render_allowances(context_id, response["allowances"]):
                    click.echo(line)
            if not rows:
                click.echo("There are no open requests.", err=True)
            elif owner is not None:
                click.echo(f"Answer with: --owner {reveal_line(owner)}", err=True)
        return exit_code(failed=False)

    run_and_exit(run)


@click.command()
@click.argument("request_id")
@server_options
@owner_options
@click.option("--always", is_flag=True, help="Stop asking for this tool in this conversation.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change an argument; the value is JSON, or text if the argument is text.",
)
@_JSON_OPTION
@RECONNECT_OPTION
def approve(
    request_id: str,
    always: bool,
    changes: tuple[str, ...],
    as_json: bool,
    reconnect: float,
    **server: str | None,
) -> None:
    """Approve a tool call, and follow its task.

    The beginning of the id is enough while it is unique.
    """
    from ai_platform_engineering.cli.request_answers import Approve

    if always and changes:
        raise click.UsageError("--always and --set exclude each other.")
    values: dict[str, str] = {}
    for name, value in parse_named_values(changes).items():
        values[name] = value if isinstance(value, str) else value[-1]
    decision = Approve(values, always=always)
    _answer_request(request_id, decision, as_json=as_json, reconnect=reconnect, **server)


@click.command()
@click.argument("request_id")
@server_options
@owner_options
@click.option("--reason", default="", help="A reason for the model.")
@_JSON_OPTION
@RECONNECT_OPTION
def reject(request_id: str, reason: str, as_json: bool, reconnect: float, **server: str | None) -> None:
    """Reject a call or decline a form, and follow the task."""
    from ai_platform_engineering.cli.request_answers import Reject

    _answer_request(request_id, Reject(reason), as_json=as_json, reconnect=reconnect, **server)


@click.command()
@click.argument("request_id")
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@server_options
@owner_options
@_JSON_OPTION
@RECONNECT_OPTION
def answer(
    request_id: str, values: tuple[str, ...], as_json: bool, reconnect: float, **server: str | None
) -> None:
    """Fill in a form, and follow its task.

    Repeat a name to give it a list of values.
    """
    from ai_platform_engineering.cli.request_answers import FillIn

    decision = FillIn(parse_named_values(values))
    _answer_request(request_id, decision, as_json=as_json, reconnect=reconnect, **server)


def _answer_request(
    request_id: str,
    decision: "AnswerFactory",
    *,
    as_json: bool,
    reconnect: float,
    url: str | None,
    token: str | None,
    owner: str | None,
    user: str | None,
) -> NoReturn:
    """Sends the answer over A2A, and shows the run that goes on like `caipe ask` does."""
    from ai_platform_engineering.a2a.client import ClientConversation, create_http_client
    from ai_platform_engineering.a2a.rest_client import rest_api_for_client
    from ai_platform_engineering.cli.request_answers import find_request, parse_request
    from ai_platform_engineering.cli.server_connection import create_client, find_or_start_server
    from ai_platform_engineering.core.errors import CaipeError
    from ai_platform_engineering.terminal.run_reporter import RunReporter, check_server_url

    reporter = RunReporter(as_json=as_json)
    conversation = ClientConversation(on_retry=reporter.show_retry)

    async def run() -> int:
        async with find_or_start_server(url, reporter.show_server_start) as address:
            try:
                check_server_url(address)
                async with create_http_client(address) as http:
                    client = create_client(http, address, token, owner, user, reconnect)
                    row = await find_request(rest_api_for_client(client), request_id, decision.min_id_chars)
                    conversation.context_id = str(row["context_id"])
                    conversation.task_id = str(row["task_id"])
                    answers = {str(row["request_id"]): decision.answer_to(parse_request(row))}
                    transcript = await reporter.show_events(
                        client.answer(answers, conversation), conversation
                    )
                    return reporter.print_result(transcript, conversation)
            except CaipeError as error:
                return reporter.report_error(error, conversation)

    with reporter:
        run_interruptible(run)


@click.command()
@click.argument("context_id")
@server_options
@owner_options
@click.option("--remove", metavar="AGENT/TOOL", help="Ask again before this tool runs.")
def allowances(context_id: str, remove: str | None, **server: str | None) -> None:
    """List the tools that no longer ask in a conversation."""
    from ai_platform_engineering.a2a.rest_client import rest_api_for_client
    from ai_platform_engineering.cli.server_connection import open_client
    from ai_platform_engineering.terminal.request_text import render_allowances

    path = _allowances_path(context_id)

    async def run() -> int:
        async with open_client(**server) as client:
            api = rest_api_for_client(client)
            if remove is not None:
                await api("DELETE", f"{path}/{quote(remove, safe='')}")
                click.echo(f"{remove} asks for approval again.", err=True)
                return exit_code(failed=False)
            rows = (await api("GET", path))["allowances"]
        for line in render_allowances(context_id, rows):
            click.echo(line)
        if not rows:
            click.echo("No tool runs without its approval here.", err=True)
        return exit_code(failed=False)

    run_and_exit(run)


def _allowances_path(context_id: str) -> str:
    return f"/v1/conversations/{quote(context_id, safe='')}/allowances"


COMMANDS: tuple[click.Command, ...] = (pending, approve, reject, answer, allowances)
