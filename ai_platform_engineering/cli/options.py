"""What the commands share: the server's options, `name=value` arguments, and how a command ends."""

import json
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from ai_platform_engineering.core.display_text import remove_controls
from ai_platform_engineering.core.failure_text import describe_failure, describe_unforeseen
from ai_platform_engineering.terminal.exit_codes import FAILED, INTERRUPTED, OK, UNREACHABLE

logger = logging.getLogger(__name__)

AsyncCommand = Callable[[], Coroutine[Any, Any, int]]

_MAX_STDIN_BYTES = 4 * 1024 * 1024  # as much as a server takes in one request
_DEFECT_HINT = "This is a bug. LOG_LEVEL=DEBUG shows where it happened."
# Click answers these itself: usage errors, `--help`, Ctrl-C, and a reader that has gone away.
_FOR_CLICK = (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError)


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--url` and `--token`, the options of every command that talks to a server."""
    url_help = (
        "The server to use (CAIPE_URL). Default: the one of this CAIPE_HOME, else the one at A2A_HOST and "
        "A2A_PORT, else one is started."
    )
    token_help = "The shared key, if the server has one."
    command = click.option("--token", envvar="A2A_AUTH_SHARED_KEY", help=token_help)(command)
    return click.option("--url", envvar="CAIPE_URL", help=url_help)(command)


def owner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--owner` and `--user`, for who may speak for others: for a Slack thread, for example."""
    owner_help = (
        "Act in the conversations of this owner, such as a Slack thread. A server with keys needs the "
        "delegate key."
    )
    user_help = "Who decides, with --owner. Default: the user logged in here."
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


def read_stdin_text() -> str:
    """The text that is piped into the command; nothing from a terminal. Raises UsageError."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    content = sys.stdin.buffer.read(_MAX_STDIN_BYTES + 1)
    if len(content) > _MAX_STDIN_BYTES:
        raise click.UsageError(f"Standard input holds more than {_MAX_STDIN_BYTES} bytes. Send less at once.")
    try:
        return content.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"Standard input is not text in UTF-8 (byte {error.start}). Convert it, for example with iconv."
        ) from None


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turns every failure into a sentence and an exit code, never a stack trace."""
    try:
        yield
    except _FOR_CLICK:
        raise
    except Exception as error:
        logger.debug("the command failed", exc_info=True)
        text = describe_failure(error) or describe_unforeseen(error, _DEFECT_HINT)
        click.echo(remove_controls(text.message), err=True)
        sys.exit(UNREACHABLE if text.code == "unreachable" else FAILED)


def run_and_exit(command: AsyncCommand) -> NoReturn:
    """Runs a command in an event loop and exits with its code; click answers Ctrl-C with "Aborted!"."""
    import asyncio  # late: `caipe --help` needs no event loop

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
