"""`caipe ask`, `chat`, `follow`, `show` and `tasks`: conversations with a server, and their runs."""

import contextlib
import os
import sys
from pathlib import Path

import click

from ai_platform_engineering.cli.options import (
    exit_code,
    owner_options,
    parse_named_values,
    read_stdin_text,
    read_values_file,
    readable_errors,
    run_and_exit,
    run_interruptible,
    server_options,
)
from ai_platform_engineering.cli.run_options import CONTEXT_OPTION, RECONNECT_OPTION, TASK_ARGUMENT
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.private_files import create_private_folder, open_private_file
from ai_platform_engineering.core.settings import Settings


@click.command()
@click.argument("question", nargs=-1)
@server_options
@CONTEXT_OPTION
@RECONNECT_OPTION
@click.option("--json", "as_json", is_flag=True, help="One event per line on stdout.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait for the answer."
)
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value for forms; repeat for more.",
)
@click.option(
    "--answers",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Values for forms, from a JSON object in a file.",
)
def ask(
    question: tuple[str, ...],
    url: str | None,
    token: str | None,
    context_id: str | None,
    reconnect: float,
    as_json: bool,
    timeout: float | None,
    answers: tuple[str, ...],
    file: Path | None,
) -> None:
    """Ask one question.

    On a terminal the answer is drawn as it is written. Piped, the final answer goes to stdout and progress
    to stderr. Text on stdin is appended to the question.
    """
    from ai_platform_engineering.cli.server_connection import find_or_start_server
    from ai_platform_engineering.terminal.ask import ask_once
    from ai_platform_engineering.terminal.run_reporter import RunReporter

    text = "\n\n".join(filter(None, (" ".join(question), read_stdin_text())))
    if not text:
        raise click.UsageError("No question. Pass it as an argument or on stdin.")
    values = read_values_file(file) if file else {}
    values.update(parse_named_values(answers))
    reporter = RunReporter(as_json=as_json)
    with readable_errors():
        code = ask_once(
            text,
            reporter=reporter,
            server=find_or_start_server(url, reporter.show_server_start),
            token=token,
            context_id=context_id,
            timeout=timeout,
            reconnect_seconds=reconnect,
            values=values,
        )
    sys.exit(code)


@click.command()
@server_options
@CONTEXT_OPTION
@click.option("-c", "--continue", "latest", is_flag=True, help="Continue your latest conversation.")
@RECONNECT_OPTION
def chat(url: str | None, token: str | None, context_id: str | None, latest: bool, reconnect: float) -> None:
    """Have a conversation in the terminal.

    Ctrl-C stops the answer; press it again to leave.
    """
    if latest and context_id:
        raise click.UsageError("Use either --continue or --context.")
    from rich.console import Console

    from ai_platform_engineering.terminal.connection_screen import ConnectionScreen

    console = Console()

    async def run() -> int:
        async with contextlib.AsyncExitStack() as stack:
            with ConnectionScreen(console) as screen:
                # Imported here: the screen says already that something happens.
                from ai_platform_engineering.a2a.client import A2AClient, create_http_client
                from ai_platform_engineering.cli.server_connection import find_or_start_server
                from ai_platform_engineering.terminal.chat import ChatSession

                address = await stack.enter_async_context(find_or_start_server(url, screen.show_server_start))
                http = await stack.enter_async_context(create_http_client(address))
                client = A2AClient(address, http, token=token, reconnect_seconds=reconnect)
                session = ChatSession(client, console, _create_history_file(), was_started=screen.was_started)
                await session.open(context_id, latest=latest)
            return await session.run()

    run_interruptible(run)


def _create_history_file() -> Path:
    """The file of earlier questions, readable by its owner alone."""
    path = Settings.from_variables(read_environment()).agent.home / "history"
    create_private_folder(path.parent)
    os.close(open_private_file(path))
    return path


@click.command()
@TASK_ARGUMENT
@server_options
@RECONNECT_OPTION
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    help="Skip events up to this number. Default: from the start.",
)
@click.option("--json", "as_json", is_flag=True, help="One event per line on stdout.")
def follow(
    task_id: str, url: str | None, token: str | None, reconnect: float, after: int, as_json: bool
) -> None:
    """Follow a task to its end, displayed as by `ask`.

    Ctrl-C leaves; the task continues.

    TASK_ID is a task id, the beginning of one, or a trace id.
    """
    from ai_platform_engineering.cli.server_connection import find_or_start_server
    from ai_platform_engineering.terminal.follow import follow_task
    from ai_platform_engineering.terminal.run_reporter import RunReporter

    reporter = RunReporter(as_json=as_json)
    server = find_or_start_server(url, reporter.show_server_start)
    with readable_errors():
        code = follow_task(
            task_id, reporter=reporter, server=server, token=token, after=after, reconnect_seconds=reconnect
        )
    sys.exit(code)


@click.command()
@TASK_ARGUMENT
@server_options
@click.option("--results", is_flag=True, help="Include what the tools returned.")
def show(task_id: str, url: str | None, token: str | None, results: bool) -> None:
    """Show a finished run: plan, calls, timing, tokens.

    TASK_ID is a task id, the beginning of one, or a trace id.
    """
    from rich.console import Console

    from ai_platform_engineering.a2a.client import A2AClient, create_http_client
    from ai_platform_engineering.a2a.codec import decode_snapshot
    from ai_platform_engineering.cli.server_connection import find_or_start_server
    from ai_platform_engineering.terminal.run_ids import find_task_id
    from ai_platform_engineering.terminal.run_view import show_run

    async def run() -> int:
        async with find_or_start_server(url) as address, create_http_client(address) as http:
            client = A2AClient(address, http, token=token)
            task = await client.call("GetTask", {"id": await find_task_id(client, task_id)})
            items = decode_snapshot(task)
            if not items:
                raise CaipeError(f"The task {task_id} has no events: it does not belong to this program.")
            show_run(Console(), items, results=results)
            return exit_code(failed=False)

    run_and_exit(run)


@click.command()
@server_options
@owner_options
@CONTEXT_OPTION
@click.option(
    "--state",
    type=click.Choice(["working", "input-required", "completed", "failed", "canceled"]),
    help="Only runs in this state.",
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest first."
)
@click.option("--json", "as_json", is_flag=True, help="The runs as JSON on stdout.")
def tasks(context_id: str | None, state: str | None, limit: int, as_json: bool, **server: str | None) -> None:
    """List recent runs with state and question."""
    from ai_platform_engineering.cli.server_connection import open_client
    from ai_platform_engineering.terminal.run_ids import find_context_id
    from ai_platform_engineering.terminal.task_list_view import list_runs, print_runs, runs_to_json

    async def run() -> int:
        async with open_client(**server) as client:
            context = await find_context_id(client, context_id) if context_id else None
            page = await list_runs(client, context_id=context, state=state, limit=limit)
        if as_json:
            click.echo(runs_to_json(page))
        else:
            print_runs(page)
        return exit_code(failed=False)

    run_and_exit(run)


COMMANDS: tuple[click.Command, ...] = (ask, chat, follow, show, tasks)
