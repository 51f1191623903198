"""`caipe`: the command line."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from ai_platform_engineering.cli.kb import kb
from ai_platform_engineering.cli.options import (
    parse_named_values,
    read_values_file,
    readable_errors,
    server_options,
)
from ai_platform_engineering.cli.requests import COMMANDS
from ai_platform_engineering.cli.skills import skills
from ai_platform_engineering.core.settings import Settings, export_variables, read_dotenv, read_environment


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ai-platform-engineering", prog_name="caipe")
def main() -> None:
    """The AI platform engineer."""
    with readable_errors():
        export_variables(
            read_environment()
        )  # so that options, proxies and certificates may also come from `.env`


@main.command()
@click.option("--host", help="Where to listen (A2A_HOST, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="The port (A2A_PORT, 8000).")
def serve(host: str | None, port: int | None) -> None:
    """Start the supervisor."""
    # Imported late: asking a question needs none of the graph's libraries.
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import run

    run({"A2A_HOST": host, "A2A_PORT": None if port is None else str(port)})


@main.command()
@click.argument("name")
@click.option("--host", help="Where to listen (A2A_HOST, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="The port (A2A_PORT, 8001).")
def agent(name: str, host: str | None, port: int | None) -> None:
    """Serve one agent over A2A, for a supervisor that has it in DISTRIBUTED_AGENTS."""
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service import (
        run_agent,
    )

    run_agent(name, {"A2A_HOST": host, "A2A_PORT": None if port is None else str(port)})


@main.command()
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
    """Ask a question. The answer goes to stdout when it is final, progress to stderr; text on stdin is joined to the question."""
    from ai_platform_engineering.cli.server_address import find_or_start_server
    from ai_platform_engineering.terminal.ask import ask_once

    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    text = "\n\n".join(part for part in (" ".join(question), piped.strip()) if part)
    if not text:
        raise click.UsageError("There is no question: give it as an argument or on stdin.")
    values = {**(read_values_file(file) if file else {}), **parse_named_values(answers)}
    with readable_errors():
        sys.exit(
            ask_once(
                text,
                server=find_or_start_server(url),
                token=token,
                context_id=context_id,
                as_json=as_json,
                timeout=timeout,
                values=values,
            )
        )


@main.command()
@server_options
@click.option("--context", "context_id", help="Go on with an earlier conversation.")
def chat(url: str | None, token: str | None, context_id: str | None) -> None:
    """Talk in the terminal. Ctrl-C stops the answer, not the conversation."""
    from ai_platform_engineering.cli.conversations import run_chat

    with readable_errors():
        sys.exit(run_chat(url, token, context_id))


@main.command()
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
    from ai_platform_engineering.cli.server_address import find_or_start_server
    from ai_platform_engineering.terminal.follow import follow_task

    with readable_errors():
        sys.exit(
            follow_task(task_id, server=find_or_start_server(url), token=token, after=after, as_json=as_json)
        )


@main.command()
@click.argument("task_id")
@server_options
@click.option("--results", is_flag=True, help="Show what the tools returned, too.")
def show(task_id: str, url: str | None, token: str | None, results: bool) -> None:
    """A run afterwards: plan, calls, arguments, timing, tokens."""
    from ai_platform_engineering.cli.conversations import show_task

    with readable_errors():
        sys.exit(show_task(task_id, url, token, results=results))


@main.command()
@click.argument("task_id")
@click.argument("call", required=False)
@server_options
@click.option("--done", "outcome", flag_value="done", help="The call took effect.")
@click.option("--not-done", "outcome", flag_value="not_done", help="The call did not take effect.")
@click.option("--note", default="", help="What else the model should know.")
def outcome(
    task_id: str, call: str | None, url: str | None, token: str | None, outcome: str | None, note: str
) -> None:
    """Say what became of a call whose outcome is unknown; without a call: list the calls."""
    from ai_platform_engineering.cli.outcomes import list_calls, settle_call

    if (call is None) != (outcome is None):
        raise click.UsageError("Name the call and give --done or --not-done; or neither, to list the calls.")
    with readable_errors():
        if call is None or outcome is None:
            sys.exit(list_calls(task_id, url, token))
        sys.exit(settle_call(task_id, call, outcome, note, url, token))


@main.group()
def facts() -> None:
    """What you asked to be remembered: list, forget ID."""


@facts.command("list")
@server_options
def list_facts_(url: str | None, token: str | None) -> None:
    """What is remembered, with ids."""
    from ai_platform_engineering.cli.facts import list_facts

    with readable_errors():
        sys.exit(list_facts(url, token))


@facts.command("forget")
@click.argument("fact_id")
@server_options
def forget_fact_(fact_id: str, url: str | None, token: str | None) -> None:
    """Forget a fact."""
    from ai_platform_engineering.cli.facts import forget_fact

    with readable_errors():
        sys.exit(forget_fact(fact_id, url, token))


@main.group(invoke_without_command=True)
@click.pass_context
def agents(context: click.Context) -> None:
    """The agents: list, install NAME, test NAME."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


@agents.command("list")
def list_() -> None:
    """Which agents there are and what each needs."""
    from ai_platform_engineering.cli.agents import list_agents

    _with_settings(list_agents)


@agents.command()
@click.argument("name")
def install(name: str) -> None:
    """Bring the packages of an agent's tool server into an environment of its own."""
    from ai_platform_engineering.cli.agents import install_agent

    _with_settings(install_agent, name)


@agents.command()
@click.argument("name")
def test(name: str) -> None:
    """Start an agent's tool servers and list their tools."""
    from ai_platform_engineering.cli.agents import test_agent

    _with_settings(test_agent, name)


@main.command()
@click.option("--url", envvar="CAIPE_URL", help="The supervisor (http://127.0.0.1:8000/).")
@click.option(
    "--mode",
    type=click.Choice(["socket", "http"]),
    help="How Slack reaches the bot (SLACK_INTEGRATION_BOT_MODE, socket).",
)
def slack(url: str | None, mode: str | None) -> None:
    """Start the Slack bot. docs/slack.md goes from nothing to the first answer."""
    from ai_platform_engineering.cli.slack import run_bot

    with readable_errors():
        sys.exit(run_bot(url, mode))


@main.command()
def doctor() -> None:
    """Settings and where each came from, model, agents, proxies, certificates, and how to mend what is wrong."""
    from rich.console import Console

    from ai_platform_engineering.cli.doctor import examine

    sys.exit(examine(Console(soft_wrap=True), read_environment(), read_dotenv()))


def _with_settings(command: Callable[..., int], *arguments: str) -> None:
    from rich.console import Console

    variables = read_environment()
    with readable_errors():
        sys.exit(command(Console(), Settings.from_variables(variables), variables, *arguments))


for _command in (*COMMANDS, kb, skills):
    main.add_command(_command)
