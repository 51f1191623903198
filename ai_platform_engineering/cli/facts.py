"""`caipe facts`: what users asked to be remembered."""

from urllib.parse import quote

import click

from ai_platform_engineering.cli.options import exit_code, run_and_exit, server_options


@click.group()
def facts() -> None:
    """Facts you asked to be remembered: list, forget ID."""


@facts.command("list")
@server_options
def list_(url: str | None, token: str | None) -> None:
    """List the remembered facts with their ids."""
    from ai_platform_engineering.cli.server_connection import open_server_api
    from ai_platform_engineering.core.display_text import reveal_line

    async def run() -> int:
        async with open_server_api(url, token) as api:
            rows = (await api("GET", "/v1/facts"))["facts"]
        for row in rows:
            click.echo(f"{row['id']}  {reveal_line(row['fact'])}")
        if not rows:
            click.echo("Nothing is remembered.", err=True)
        return exit_code(failed=False)

    run_and_exit(run)


@facts.command()
@click.argument("fact_id")
@server_options
def forget(fact_id: str, url: str | None, token: str | None) -> None:
    """Forget a fact."""
    from ai_platform_engineering.cli.server_connection import open_server_api

    async def run() -> int:
        async with open_server_api(url, token) as api:
            await api("DELETE", f"/v1/facts/{quote(fact_id, safe='')}")
        click.echo("Forgotten.", err=True)
        return exit_code(failed=False)

    run_and_exit(run)
