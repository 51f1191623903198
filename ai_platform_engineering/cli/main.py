"""`caipe`: the command line; here `serve` and `agent`, and the groups of commands from their own modules."""

from pathlib import Path
from typing import Any

import click

from ai_platform_engineering.cli import conversations, requests
from ai_platform_engineering.cli.agents import agents
from ai_platform_engineering.cli.command_logging import configure_logging
from ai_platform_engineering.cli.completion import completion
from ai_platform_engineering.cli.demo import demo
from ai_platform_engineering.cli.doctor import doctor
from ai_platform_engineering.cli.evaluation import eval_
from ai_platform_engineering.cli.extras import extras
from ai_platform_engineering.cli.facts import facts
from ai_platform_engineering.cli.kb import kb
from ai_platform_engineering.cli.options import readable_errors
from ai_platform_engineering.cli.outcomes import outcome
from ai_platform_engineering.cli.skills import skills
from ai_platform_engineering.cli.slack import slack
from ai_platform_engineering.cli.trust import trust
from ai_platform_engineering.cli.workflows import workflows
from ai_platform_engineering.core.env_files import find_home
from ai_platform_engineering.core.environment import export_variables, read_environment, use_env_file
from ai_platform_engineering.core.import_collections import paused_collections
from ai_platform_engineering.core.private_files import make_home_private
from ai_platform_engineering.core.process_protection import forbid_inspection

_SERVERS = ("serve", "agent", "slack")  # they log for who runs them
_ONE_WORKER = (
    "The supervisor runs in one process: its run log is a SQLite file that one process writes. "
    "Use more cores by moving agents into processes of their own (caipe agent NAME, DISTRIBUTED_AGENTS), "
    "or run several supervisors, each with a CAIPE_HOME and a port of its own."
)


class _Commands(click.Group):
    """The commands; whatever fails in one of them is told in words."""

    def invoke(self, ctx: click.Context) -> Any:
        with readable_errors():
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ai-platform-engineering", prog_name="caipe")
@click.option(
    "--env-file",
    type=click.Path(path_type=Path),
    help="Read settings from this file instead of the .env in this folder (CAIPE_ENV_FILE).",
)
@click.pass_context
def main(context: click.Context, env_file: Path | None) -> None:
    """The AI platform engineer: ask, and agents do the work."""
    forbid_inspection()  # before any key is read
    if env_file is not None:
        use_env_file(env_file)
    if context.invoked_subcommand == trust.name:
        return  # it is about a file that was not read, or has changed
    if context.invoked_subcommand not in _SERVERS:
        configure_logging()
    # Options, proxies and certificates may also come from `.env`.
    variables = read_environment()
    export_variables(variables)
    make_home_private(find_home(variables))


@main.command()
@click.option("--host", help="Where to listen (A2A_HOST, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="The port (A2A_PORT, 8000).")
@click.option("--workers", type=click.IntRange(min=1), default=1, help="Processes; only 1 is supported.")
def serve(host: str | None, port: int | None, workers: int) -> None:
    """Start the supervisor."""
    if workers > 1:
        raise click.UsageError(_ONE_WORKER)
    # Imported late: asking a question needs none of the graph's libraries.
    with paused_collections():
        from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import run

    run(_listen_variables(host, port))


@main.command()
@click.argument("name")
@click.option("--host", help="Where to listen (A2A_HOST, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="The port (A2A_PORT, 8001).")
def agent(name: str, host: str | None, port: int | None) -> None:
    """Serve one agent over A2A.

    Name it in DISTRIBUTED_AGENTS of the supervisor that uses it.
    """
    with paused_collections():
        from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a import agent_service

    agent_service.run_agent(name, _listen_variables(host, port))


def _listen_variables(host: str | None, port: int | None) -> dict[str, str | None]:
    return {"A2A_HOST": host, "A2A_PORT": None if port is None else str(port)}


for _command in (
    *conversations.COMMANDS,
    *requests.COMMANDS,
    agents,
    completion,
    demo,
    doctor,
    eval_,
    extras,
    facts,
    kb,
    outcome,
    skills,
    slack,
    trust,
    workflows,
):
    main.add_command(_command)
