"""The commands of people in the loop: `pending`, `approve`, `reject`, `answer`, `allowances`."""

import sys

import click

from ai_platform_engineering.cli.options import parse_named_values, readable_errors, server_options

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="One event per line on stdout.")


@click.command()
@server_options
@click.option("--json", "as_json", is_flag=True, help="The requests as JSON on stdout.")
def pending(url: str | None, token: str | None, as_json: bool) -> None:
    """What waits for you in any conversation, and how to answer it."""
    from ai_platform_engineering.cli.request_commands import list_pending

    with readable_errors():
        sys.exit(list_pending(url, token, as_json=as_json))


@click.command()
@click.argument("request_id")
@server_options
@click.option("--always", is_flag=True, help="The tool needs no approval in this conversation any more.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change an argument; JSON, or text where a text stands.",
)
@_AS_JSON
def approve(
    request_id: str, url: str | None, token: str | None, always: bool, changes: tuple[str, ...], as_json: bool
) -> None:
    """Let a call run, and follow its task. The beginning of the id is enough while no other begins so."""
    from ai_platform_engineering.cli.request_commands import Approve, answer_request

    if always and changes:
        raise click.UsageError("--always is for the call as it is shown: leave out --set, or --always.")
    values = {
        name: value if isinstance(value, str) else value[-1]
        for name, value in parse_named_values(changes).items()
    }
    with readable_errors():
        sys.exit(answer_request(request_id, Approve(values, always=always), url, token, as_json=as_json))


@click.command()
@click.argument("request_id")
@server_options
@click.option("--reason", default="", help="What the model is told.")
@_AS_JSON
def reject(request_id: str, url: str | None, token: str | None, reason: str, as_json: bool) -> None:
    """Refuse a call or decline a form, and follow the task."""
    from ai_platform_engineering.cli.request_commands import Reject, answer_request

    with readable_errors():
        sys.exit(answer_request(request_id, Reject(reason), url, token, as_json=as_json))


@click.command()
@click.argument("request_id")
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@server_options
@_AS_JSON
def answer(
    request_id: str, values: tuple[str, ...], url: str | None, token: str | None, as_json: bool
) -> None:
    """Fill in a form, and follow its task. A name that is given several times is a list."""
    from ai_platform_engineering.cli.request_commands import FillIn, answer_request

    filled = FillIn(parse_named_values(values))
    with readable_errors():
        sys.exit(answer_request(request_id, filled, url, token, as_json=as_json))


@click.command()
@click.argument("context_id")
@server_options
@click.option("--remove", metavar="AGENT/TOOL", help="Ask again before this tool runs.")
def allowances(context_id: str, url: str | None, token: str | None, remove: str | None) -> None:
    """Which tools run without asking in a conversation."""
    from ai_platform_engineering.cli.request_commands import list_allowances, remove_allowance

    with readable_errors():
        sys.exit(
            list_allowances(context_id, url, token)
            if remove is None
            else remove_allowance(context_id, remove, url, token)
        )


COMMANDS: tuple[click.Command, ...] = (pending, approve, reject, answer, allowances)
