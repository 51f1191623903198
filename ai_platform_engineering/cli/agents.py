"""`caipe agents`: lists agents, installs, tries and trusts their tool servers, and signs in to them."""

import sys

import click

from ai_platform_engineering.cli.options import exit_code, run_and_exit, server_options
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings


@click.group(invoke_without_command=True)
@click.pass_context
def agents(context: click.Context) -> None:
    """Agents: list, install NAME, test NAME, trust NAME, login NAME, logout NAME."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


@agents.command("list")
def list_() -> None:
    """List the agents and what each needs."""
    from ai_platform_engineering.cli.agent_status import list_agent_rows
    from ai_platform_engineering.terminal.agent_view import print_agents
    from ai_platform_engineering.terminal.screen import create_console

    variables = read_environment()

    async def run() -> int:
        rows = await list_agent_rows(Settings.from_variables(variables), variables)
        print_agents(create_console(), rows)
        return exit_code(failed=False)

    run_and_exit(run)


@agents.command()
@click.argument("name")
@click.option(
    "--without-lock", is_flag=True, help="Install your own definition's packages without checking hashes."
)
def install(name: str, without_lock: bool) -> None:
    """Install an agent's tool server.

    It gets an environment of its own; packages are checked by hash.
    """
    from ai_platform_engineering.cli.agent_install import install_packages
    from ai_platform_engineering.cli.agent_status import load_agent
    from ai_platform_engineering.terminal.screen import create_console

    variables = read_environment()
    settings = Settings.from_variables(variables)
    entry = load_agent(settings, variables, name)
    install_packages(create_console(), settings, entry, variables=variables, locked=not without_lock)
    sys.exit(exit_code(failed=False))


@agents.command()
@click.argument("name")
def test(name: str) -> None:
    """Start an agent's tool servers and try them.

    Lists their tools and makes one read-only call.
    """
    from ai_platform_engineering.agents.check_records import CheckRecords
    from ai_platform_engineering.cli.agent_probe import probe_agent
    from ai_platform_engineering.cli.agent_status import load_agent
    from ai_platform_engineering.core.tool_traits import traits_of
    from ai_platform_engineering.terminal.agent_view import (
        print_probed_call,
        print_server_problem,
        print_tool,
        print_untried_server,
    )
    from ai_platform_engineering.terminal.screen import create_console

    variables = read_environment()

    async def run() -> int:
        settings = Settings.from_variables(variables)
        entry = load_agent(settings, variables, name)
        if entry.status == "not_configured":
            raise CaipeError(f"{name} is not configured: {entry.note}.")
        probe = await probe_agent(settings, variables, entry)
        console = create_console()
        for tool in probe.tools:
            needs_approval = traits_of(tool).permission == "ask"
            print_tool(console, tool.name, tool.description, needs_approval=needs_approval)
        for server, reason in probe.problems.items():
            print_server_problem(console, server, reason)
        for call in probe.calls:
            print_probed_call(console, call.server, call.tool, call.problem)
        for server in probe.untried_servers:
            print_untried_server(console, server)
        problems = probe.list_problems()
        CheckRecords(settings.agent.home).write(entry, "; ".join(problems) or None)
        return exit_code(failed=bool(problems))

    run_and_exit(run)


@agents.command()
@click.argument("name", required=False)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def trust(name: str | None, yes: bool) -> None:
    """Review and trust changed tools of tool servers."""
    from ai_platform_engineering.cli.agent_trust import find_held_servers
    from ai_platform_engineering.terminal.screen import create_console
    from ai_platform_engineering.terminal.trust_view import print_change

    variables = read_environment()
    console = create_console()
    held_servers = find_held_servers(Settings.from_variables(variables), variables, name)
    if not held_servers:
        click.echo("No tools are held: nothing has changed since they were trusted.")
        sys.exit(exit_code(failed=False))
    for server in held_servers:
        for change in server.changes:
            print_change(console, change)
    if not yes:
        click.confirm("Trust these tools as they are now?", abort=True)
    for server in held_servers:
        server.approve()
    count = sum(len(server.changes) for server in held_servers)
    click.echo(f"Trusted: {count} tools. A running server uses them from the next question.")
    sys.exit(exit_code(failed=False))


_USER_HELP = "Sign in for this person, as a client with the delegate key names them."
_SERVER_HELP = "One of the agent's tool servers. Default: the first that needs a sign-in."


@agents.command()
@click.argument("name")
@click.option("--device", is_flag=True, help="Enter a code on another device.")
@click.option("--paste", is_flag=True, help="Use a browser elsewhere, and paste the address that it ends at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The port that the browser returns to."
)
@click.option("--server", help=_SERVER_HELP)
@click.option("--user", help=_USER_HELP)
@server_options
def login(
    name: str,
    device: bool,
    paste: bool,
    port: int,
    server: str | None,
    user: str | None,
    url: str | None,
    token: str | None,
) -> None:
    """Sign in to an agent's hosted tool server."""
    from ai_platform_engineering.cli.agent_login import AgentLogin
    from ai_platform_engineering.cli.server_connection import open_server_api

    async def run() -> int:
        async with open_server_api(url, token, user) as api:
            agent_login = AgentLogin(api, name, server)
            if device:
                signed_in_to = await agent_login.use_device()
            elif paste:
                signed_in_to = await agent_login.paste_address(port)
            else:
                signed_in_to = await agent_login.use_browser(port)
        click.echo(f"Signed in to {signed_in_to}.")
        return exit_code(failed=False)

    run_and_exit(run)


@agents.command()
@click.argument("name")
@click.option("--server", help="One of the agent's tool servers. Default: all.")
@click.option("--user", help=_USER_HELP)
@server_options
def logout(name: str, server: str | None, user: str | None, url: str | None, token: str | None) -> None:
    """Sign out of an agent's hosted tool servers."""
    from ai_platform_engineering.cli.agent_login import AgentLogin
    from ai_platform_engineering.cli.server_connection import open_server_api

    async def run() -> int:
        async with open_server_api(url, token, user) as api:
            servers = await AgentLogin(api, name, server).sign_out()
        if servers:
            click.echo(f"Signed out of {', '.join(servers)}.")
        else:
            click.echo("Nobody was signed in.")
        return exit_code(failed=False)

    run_and_exit(run)
