"""`caipe agents`: lists agents, installs the packages of tool servers, tries servers and trusts them."""

import sys

import click

from ai_platform_engineering.cli.options import exit_code, readable_errors, run_and_exit
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings, read_environment


@click.group(invoke_without_command=True)
@click.pass_context
def agents(context: click.Context) -> None:
    """The agents: list, install NAME, test NAME, trust NAME."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


@agents.command("list")
def list_() -> None:
    """Which agents there are and what each needs."""
    from rich.console import Console

    from ai_platform_engineering.cli.agent_status import list_agent_rows
    from ai_platform_engineering.terminal.agent_view import print_agents

    variables = read_environment()

    async def run() -> int:
        rows = await list_agent_rows(Settings.from_variables(variables), variables)
        print_agents(Console(), rows)
        return exit_code(failed=False)

    run_and_exit(run)


@agents.command()
@click.argument("name")
@click.option("--without-lock", is_flag=True, help="Install packages of your own definition by name alone.")
def install(name: str, without_lock: bool) -> None:
    """Bring the packages of an agent's tool server into an environment of its own, checked by hash."""
    from rich.console import Console

    from ai_platform_engineering.cli.agent_install import install_packages
    from ai_platform_engineering.cli.agent_status import load_agent

    variables = read_environment()
    with readable_errors():
        settings = Settings.from_variables(variables)
        entry = load_agent(settings, variables, name)
        install_packages(Console(), settings, entry, variables=variables, locked=not without_lock)
    sys.exit(exit_code(failed=False))


@agents.command()
@click.argument("name")
def test(name: str) -> None:
    """Start an agent's tool servers and list their tools."""
    from rich.console import Console

    from ai_platform_engineering.agents.check_records import CheckRecords
    from ai_platform_engineering.agents.installed_commands import resolve_commands
    from ai_platform_engineering.cli.agent_status import load_agent
    from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
    from ai_platform_engineering.terminal.agent_view import print_server_problem, print_tool

    variables = read_environment()

    async def run() -> int:
        settings = Settings.from_variables(variables)
        entry = load_agent(settings, variables, name)
        if entry.status == "not_configured":
            raise CaipeError(f"{name} is not configured: {entry.note}.")
        definition = resolve_commands(entry.definition, settings.agent.home)
        sessions = McpSessionPool(
            connect_timeout=settings.mcp.connect_timeout,
            call_timeout=settings.mcp.call_timeout,
            message_bytes=settings.mcp.max_message_bytes,
            message_values=settings.mcp.max_message_values,
            cache_dir=None,
            environment=variables,
            sandbox=settings.mcp.sandbox,
            private_paths=(settings.agent.home,),
        )
        try:
            agent_tools = await sessions.agent_tools(definition.mcp_servers, definition.tools)
        finally:
            await sessions.aclose()
        console = Console()
        for tool in agent_tools.tools:
            needs_approval = (tool.metadata or {}).get("permission") == "ask"
            print_tool(console, tool.name, tool.description, needs_approval=needs_approval)
        for server, reason in agent_tools.problems.items():
            print_server_problem(console, server, reason)
        problems = [f"{server}: {reason}" for server, reason in agent_tools.problems.items()]
        CheckRecords(settings.agent.home).write(entry, "; ".join(problems) or None)
        return exit_code(failed=bool(agent_tools.problems))

    run_and_exit(run)


@agents.command()
@click.argument("name", required=False)
@click.option("--yes", is_flag=True, help="Trust what is shown without asking.")
def trust(name: str | None, yes: bool) -> None:
    """Show what tool servers have changed since they were trusted, and trust it."""
    from rich.console import Console

    from ai_platform_engineering.cli.agent_trust import find_held_servers
    from ai_platform_engineering.terminal.trust_view import print_change

    variables = read_environment()
    console = Console()
    with readable_errors():
        held_servers = find_held_servers(Settings.from_variables(variables), variables, name)
        if not held_servers:
            click.echo("No tool is held: nothing has changed since it was trusted.")
            sys.exit(exit_code(failed=False))
        for server in held_servers:
            for change in server.changes:
                print_change(console, change)
        if not yes:
            click.confirm("Trust these tools as they are now?", abort=True)
        for server in held_servers:
            server.approve()
    count = sum(len(server.changes) for server in held_servers)
    click.echo(f"Trusted: {count} tools. A running server uses them from its next question on.")
    sys.exit(exit_code(failed=False))
