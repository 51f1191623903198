"""`caipe facts`: what is remembered for a user, without a model."""

import asyncio
from urllib.parse import quote

import click

from ai_platform_engineering.cli.rest_requests import open_server_api


def list_facts(url: str | None, token: str | None) -> int:
    async def run() -> None:
        async with open_server_api(url, token) as api:
            known = (await api("GET", "/v1/facts"))["facts"]
        for fact in known:
            click.echo(f"{fact['id']}  {fact['fact']}")
        if not known:
            click.echo("Nothing is remembered.", err=True)

    asyncio.run(run())
    return 0


def forget_fact(fact_id: str, url: str | None, token: str | None) -> int:
    async def run() -> None:
        async with open_server_api(url, token) as api:
            await api("DELETE", f"/v1/facts/{quote(fact_id, safe='')}")
        click.echo("Forgotten.", err=True)

    asyncio.run(run())
    return 0
