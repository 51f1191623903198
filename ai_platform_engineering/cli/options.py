"""What the commands share: the server's options, `name=value`, and errors as sentences."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ai_platform_engineering.core.errors import CaipeError


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that talks to a server."""
    named = "The supervisor; without it the one on this machine, else one is started for the command."
    command = click.option(
        "--token", envvar="A2A_AUTH_SHARED_KEY", help="The shared key, if the server has one."
    )(command)
    return click.option("--url", envvar="CAIPE_URL", help=named)(command)


def parse_named_values(given: Sequence[str]) -> dict[str, str | list[str]]:
    """Values by name; one that is given several times is a list."""
    found: dict[str, list[str]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.UsageError(f"Write name=value, not {text!r}.")
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def read_values_file(file: Path) -> dict[str, Any]:
    """The values by name of a file."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise click.UsageError(f"{file} does not hold a JSON object with a value for each name.")
    return found


@contextmanager
def readable_errors() -> Iterator[None]:
    """An error of ours is a sentence and an exit code, never a stack trace."""
    try:
        yield
    except CaipeError as error:
        click.echo(str(error), err=True)
        sys.exit(3 if error.code == "unreachable" else 1)
