"""`caipe workflows`: which workflows there are, and how to start one."""

import json

import click

from ai_platform_engineering.cli.options import exit_code, run_and_exit, server_options


@click.command()
@server_options
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def workflows(url: str | None, token: str | None, as_json: bool) -> None:
    """List the workflows.

    Start one by its title: caipe ask "Check a service", or type the title in caipe chat.
    """
    from rich.console import Console

    from ai_platform_engineering.cli.workflows_source import read_workflows
    from ai_platform_engineering.terminal.catalog_view import print_workflow_list

    async def run() -> int:
        response = await read_workflows(url, token)
        if as_json:
            click.echo(json.dumps(response, indent=2))
        else:
            print_workflow_list(Console(), response)
        return exit_code(failed=False)

    run_and_exit(run)
