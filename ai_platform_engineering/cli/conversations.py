"""`caipe ask`, `chat`, `follow` and `show`: conversations with a server, and their runs."""

import os
import sys
from pathlib import Path

import click

from ai_platform_engineering.cli.options import (
    exit_code,
    parse_named_values,
    read_values_file,
    readable_errors,
    run_and_exit,
    server_options,
)
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.private_files import create_private_folder, open_private_file
from ai_platform_engineering.core.settings import Settings, read_environment


@click.command()
@click.argument("question", nargs=-1)
@server_options
@click.option("--context", "context_id", help="Go on with an earlier conversation.")
@click.option("--json", "as_json", is_flag=True, help="One event per line on stdout.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait for the answer."
)
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value for forms that come up; repeat it for more.",
)
@click.option(
    "--answers",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same from a JSON object in a file.",
)
def ask(
    question: tuple[str, ...],
    url: str | None,
    token: str | None,
    context_id: str | None,
    as_json: bool,
    timeout: float | None,
    answers: tuple[str, ...],
    file: Path | None,
) -> None:
    """Ask a question. The answer goes to stdout when it is final, progress to stderr;
    text on stdin is joined to the question."""
    from ai_platform_engineering.cli.server_connection import find_or_start_server
    from ai_platform_engineering.terminal.ask import ask_once

    text = "\n\n".join(filter(None, (" ".join(question), _read_piped_text())))
    if not text:
        raise click.UsageError("There is no question: give it as an argument or on stdin.")
    values = read_values_file(file) if file else {}
    values.update(parse_named_values(answers))
    with readable_errors():
        code = ask_once(
            text,
            server=find_or_start_server(url),
            token=token,
            context_id=context_id,
            as_json=as_json,
            timeout=timeout,
            values=values,
        )
    sys.exit(code)


def _read_piped_text() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    return sys.stdin.read().strip()


@click.command()
@server_options
@click.option("--context", "context_id", help="Go on with an earlier conversation.")
def chat(url: str | None, token: str | None, context_id: str | None) -> None:
    """Talk in the terminal. Ctrl-C stops the answer, not the conversation."""
    from rich.console import Console

    from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
    from ai_platform_engineering.cli.server_connection import find_or_start_server
    from ai_platform_engineering.terminal.chat import ChatSession

    async def run() -> int:
        async with find_or_start_server(url) as address, create_http_client(address) as http:
            client = A2AClient(address, http, token=token)
            conversation = ClientConversation(context_id) if context_id else ClientConversation()
            return await ChatSession(client, Console(), conversation, _create_history_file()).run()

    run_and_exit(run)


def _create_history_file() -> Path:
    """The file of earlier questions, readable by its owner alone."""
    path = Settings.from_variables(read_environment()).agent.home / "history"
    create_private_folder(path.parent)
    os.close(open_private_file(path))
    return path


@click.command()
@click.argument("task_id")
@server_options
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    help="Only what came after this number; without it from the start.",
)
@click.option("--json", "as_json", is_flag=True, help="One event per line on stdout.")
def follow(task_id: str, url: str | None, token: str | None, after: int, as_json: bool) -> None:
    """Follow a task to its end, shown like `caipe ask` does. Ctrl-C leaves it; the task goes on."""
    from ai_platform_engineering.cli.server_connection import find_or_start_server
    from ai_platform_engineering.terminal.follow import follow_task

    server = find_or_start_server(url)
    with readable_errors():
        code = follow_task(task_id, server=server, token=token, after=after, as_json=as_json)
    sys.exit(code)


@click.command()
@click.argument("task_id")
@server_options
@click.option("--results", is_flag=True, help="Show what the tools returned, too.")
def show(task_id: str, url: str | None, token: str | None, results: bool) -> None:
    """A run afterwards: plan, calls, arguments, timing, tokens."""
    from rich.console import Console

    from ai_platform_engineering.a2a.client import A2AClient, create_http_client
    from ai_platform_engineering.a2a.codec import decode_snapshot
    from ai_platform_engineering.cli.server_connection import find_or_start_server
    from ai_platform_engineering.terminal.run_view import show_run

    async def run() -> int:
        async with find_or_start_server(url) as address, create_http_client(address) as http:
            task = await A2AClient(address, http, token=token).call("GetTask", {"id": task_id})
            items = decode_snapshot(task)
            if not items:
                raise CaipeError(f"The task {task_id} is not one of ours: it carries no events.")
            show_run(Console(), items, results=results)
            return exit_code(failed=False)

    run_and_exit(run)


COMMANDS: tuple[click.Command, ...] = (ask, chat, follow, show)
