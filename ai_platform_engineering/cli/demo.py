"""`caipe demo`: a company on this machine to try the agents on; `fault`, `faults`, `status`, `reset`."""

import sys
from typing import TYPE_CHECKING

import click

from ai_platform_engineering.cli.options import exit_code, run_and_exit
from ai_platform_engineering.core.environment import read_environment

if TYPE_CHECKING:
    from ai_platform_engineering.cli.demo_control import DemoControl

DEFAULT_SEED = 1
_MAX_SEED = 2**31


@click.group(invoke_without_command=True)
@click.option("--port", type=click.IntRange(0, 65535), help="The port of the page (A2A_PORT, 8000).")
@click.option(
    "--seed",
    type=click.IntRange(0, _MAX_SEED),
    default=DEFAULT_SEED,
    show_default=True,
    help="Which company: names, versions and the cause of the failure differ.",
)
@click.option("--no-install", is_flag=True, help="Use only the tool servers that are installed.")
@click.pass_context
def demo(context: click.Context, port: int | None, seed: int, no_install: bool) -> None:
    """Try the agents on a made-up company, without credentials.

    Starts local stand-ins for Argo CD, GitHub, Jira, Confluence, PagerDuty and Kubernetes, and the supervisor
    with the real tool servers. Every start begins with the same state. Ctrl-C stops it.
    """
    if context.invoked_subcommand is not None:
        return
    from ai_platform_engineering.cli.demo_start import DemoOptions, prepare_demo, run_demo

    options = DemoOptions(port=port, seed=seed, installs=not no_install)
    plan = prepare_demo(options, read_environment())
    run_and_exit(lambda: run_demo(plan))


@demo.command()
@click.argument("name")
@click.option("--errors", type=float, help="Share of requests that fail with 503, for example 0.2.")
@click.option("--latency", type=float, help="Seconds before each answer.")
@click.option("--rate-limit", type=int, help="Requests in a minute; above it, 429. 0: no limit.")
@click.option("--off", is_flag=True, help="Switch all faults of this system off.")
def fault(name: str, errors: float | None, latency: float | None, rate_limit: int | None, off: bool) -> None:
    """Let a system of the running demo fail.

    NAME is one of those that `caipe demo faults` lists, or "all".
    """
    from ai_platform_engineering.cli.demo_control import change_faults, describe_faults

    options = {"errors": errors, "latency": latency, "rate_limit": rate_limit}
    changes = {option: value for option, value in options.items() if value is not None}
    if off and changes:
        raise click.UsageError("--off switches all faults off; leave the other options out.")
    if not off and not changes:
        raise click.UsageError("Say what is to fail: --errors, --latency or --rate-limit; or --off.")
    for system, faults in change_faults(_open_control(), name, changes).items():
        click.echo(describe_faults(system, faults))
    sys.exit(exit_code(failed=False))


@demo.command()
def faults() -> None:
    """List the systems of the running demo and their faults."""
    from ai_platform_engineering.cli.demo_control import describe_faults

    for system, system_faults in _open_control().list_faults().items():
        click.echo(describe_faults(system, system_faults))
    sys.exit(exit_code(failed=False))


@demo.command()
def status() -> None:
    """Show the running demo: services, their health, and systems."""
    from ai_platform_engineering.cli.demo_control import describe_faults
    from ai_platform_engineering.cli.demo_environment import find_demo_home
    from ai_platform_engineering.core.server_address import ServerAddress

    demo_status = _open_control().read_status()
    server = ServerAddress.read(find_demo_home(read_environment()))
    page = "the supervisor is not running"
    if server is not None and server.is_running:
        page = server.url
    click.echo(f"company  {demo_status.company} (seed {demo_status.seed})")
    click.echo(f"page     {page}")
    click.echo("services")
    for service, health in demo_status.services.items():
        click.echo(f"  {service:14} {health}")
    click.echo("systems")
    for stand_in in demo_status.stand_ins:
        click.echo(f"  {describe_faults(stand_in.name, stand_in.faults)}, {stand_in.url}")
    sys.exit(exit_code(failed=server is None or not server.is_running))


@demo.command()
def reset() -> None:
    """Set the systems of the running demo back to their first state.

    Conversations stay; faults are switched off.
    """
    company = _open_control().reset().company
    click.echo(f"{company} is as it was at the start.")
    sys.exit(exit_code(failed=False))


def _open_control() -> "DemoControl":
    from ai_platform_engineering.cli.demo_control import DemoControl
    from ai_platform_engineering.cli.demo_environment import find_demo_home

    return DemoControl(find_demo_home(read_environment()))
