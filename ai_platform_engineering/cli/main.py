"""`caipe`: the command line; here `serve` and `agent`, and the groups of commands from their own modules."""

import click

from ai_platform_engineering.cli import conversations, requests
from ai_platform_engineering.cli.agents import agents
from ai_platform_engineering.cli.doctor import doctor
from ai_platform_engineering.cli.facts import facts
from ai_platform_engineering.cli.kb import kb
from ai_platform_engineering.cli.options import readable_errors
from ai_platform_engineering.cli.outcomes import outcome
from ai_platform_engineering.cli.skills import skills
from ai_platform_engineering.cli.slack import slack
from ai_platform_engineering.core.settings import export_variables, read_environment


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ai-platform-engineering", prog_name="caipe")
def main() -> None:
    """The AI platform engineer."""
    with readable_errors():
        # Options, proxies and certificates may also come from `.env`.
        export_variables(read_environment())


@main.command()
@click.option("--host", help="Where to listen (A2A_HOST, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="The port (A2A_PORT, 8000).")
def serve(host: str | None, port: int | None) -> None:
    """Start the supervisor."""
    # Imported late: asking a question needs none of the graph's libraries.
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import run

    run(_listen_variables(host, port))


@main.command()
@click.argument("name")
@click.option("--host", help="Where to listen (A2A_HOST, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="The port (A2A_PORT, 8001).")
def agent(name: str, host: str | None, port: int | None) -> None:
    """Serve one agent over A2A, for a supervisor that has it in DISTRIBUTED_AGENTS."""
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service import (
        run_agent,
    )

    run_agent(name, _listen_variables(host, port))


def _listen_variables(host: str | None, port: int | None) -> dict[str, str | None]:
    return {"A2A_HOST": host, "A2A_PORT": None if port is None else str(port)}


for _command in (
    *conversations.COMMANDS,
    *requests.COMMANDS,
    agents,
    doctor,
    facts,
    kb,
    outcome,
    skills,
    slack,
):
    main.add_command(_command)
