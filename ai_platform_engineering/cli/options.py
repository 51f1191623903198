"""What the commands share: the server's options, `name=value` arguments, and how a command ends."""

import json
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from ai_platform_engineering.core.display_text import remove_controls
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.terminal.exit_codes import FAILED, INTERRUPTED, OK, UNREACHABLE

AsyncCommand = Callable[[], Coroutine[Any, Any, int]]


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--url` and `--token`, the options of every command that talks to a server."""
    url_help = "The supervisor; without it the one on this machine, else one is started for the command."
    token_help = "The shared key, if the server has one."
    command = click.option("--token", envvar="A2A_AUTH_SHARED_KEY", help=token_help)(command)
    return click.option("--url", envvar="CAIPE_URL", help=url_help)(command)


def owner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--owner` and `--user`, for who may speak for others: for a Slack thread, for example."""
    owner_help = (
        "Whose conversations: a Slack thread's, for example. A server with keys wants the delegate key."
    )
    user_help = "Who decides, with --owner; without it who is logged in here."
    command = click.option("--user", help=user_help)(command)
    return click.option("--owner", help=owner_help)(command)


def parse_named_values(arguments: Sequence[str]) -> dict[str, str | list[str]]:
    """Parses `name=value` arguments; a name that comes several times has a list of values."""
    values_by_name: dict[str, list[str]] = {}
    for text in arguments:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.UsageError(f"Write name=value, not {text!r}.")
        values_by_name.setdefault(name, []).append(value)
    result: dict[str, str | list[str]] = {}
    for name, values in values_by_name.items():
        result[name] = values[0] if len(values) == 1 else values
    return result


def read_values_file(file: Path) -> dict[str, Any]:
    """Reads a JSON object with a value for each name."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise click.UsageError(f"{file} does not hold a JSON object with a value for each name.")
    return values


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turns an error of ours into a sentence and an exit code, never a stack trace."""
    try:
        yield
    except CaipeError as error:
        click.echo(remove_controls(str(error)), err=True)
        sys.exit(UNREACHABLE if error.code == "unreachable" else FAILED)


def run_and_exit(command: AsyncCommand) -> NoReturn:
    """Runs a command in an event loop and exits with its code; click answers Ctrl-C with "Aborted!"."""
    import asyncio  # late: `caipe --help` needs no event loop

    with readable_errors():
        sys.exit(asyncio.run(command()))


def run_interruptible(command: AsyncCommand) -> NoReturn:
    """Runs a command in an event loop and exits with its code; Ctrl-C is an exit code without a message."""
    try:
        run_and_exit(command)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def exit_code(*, failed: bool) -> int:
    """The exit code of a command that ran to its end."""
    return FAILED if failed else OK
