"""`caipe kb push`, `set` and `group`: documents from other programs, and who may see documents."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import click

from ai_platform_engineering.cli.options import exit_code, run_interruptible, server_options
from ai_platform_engineering.core.errors import CaipeError

if TYPE_CHECKING:
    from ai_platform_engineering.cli.kb_connection import KnowledgeBaseConnection

_BATCH_DOCUMENTS = 50
_BATCH_CHARS = 1_000_000
_MAX_LINE_CHARS = 4 * 1024 * 1024

VISIBLE_TO_OPTION = click.option(
    "--visible-to",
    multiple=True,
    metavar="NAME",
    help="Who may see it: a person or group:NAME; repeat for more. Default: everybody.",
)


@click.command()
@click.argument("name")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@server_options
@click.option("--title", default="", help="Description of a new datasource, for people and models.")
@VISIBLE_TO_OPTION
@click.option("--replace", is_flag=True, help="Remove documents that are not in the file.")
def push(
    name: str,
    file: IO[str],
    url: str | None,
    token: str | None,
    title: str,
    visible_to: tuple[str, ...],
    replace: bool,
) -> None:
    """Store documents that another program collected.

    FILE or stdin has one JSON object per line with id and text, optionally title, url, metadata, updated_at
    and visible_to; or content (base64) and media_type instead of text.
    """
    # Imported late: the group of commands imports this module.
    from ai_platform_engineering.cli.kb import wait_for_vectors
    from ai_platform_engineering.cli.kb_connection import connect_knowledge_base

    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=True) as connection:
            new_datasource = {
                "location": f"push:{name}",
                "title": title,
                "visible_to": list(visible_to) or None,
            }
            await connection.api("POST", "/v1/datasources", new_datasource)
            code = await _push_lines(connection, name, file, replace=replace)
            if connection.kb is not None:
                await wait_for_vectors(connection.kb)
            return code

    run_interruptible(run)


async def _push_lines(
    connection: "KnowledgeBaseConnection", name: str, file: IO[str], *, replace: bool
) -> int:
    path = f"/v1/datasources/{quote(name, safe='')}"
    generation = None
    if replace:
        generation = (await connection.api("POST", f"{path}/generations"))["generation"]
    counts: Counter[str] = Counter()
    async for batch in _read_batches(file):
        body = {"documents": batch, "generation": generation}
        response = await connection.api("POST", f"{path}/documents", body)
        for result in response["results"]:
            counts[result["status"]] += 1
            if result["status"] == "failed":
                click.echo(f"  {result['id']}: {result['reason']}", err=True)
    removed = 0
    if generation is not None:
        removed = (await connection.api("POST", f"{path}/generations/{generation}/finish"))["removed"]
    click.echo(
        f"{name}: {counts['stored']} stored, {counts['unchanged']} unchanged, {removed} removed, "
        f"{counts['failed']} failed.",
        err=True,
    )
    return exit_code(failed=counts["failed"] > 0)


async def _read_batches(file: IO[str]) -> AsyncIterator[list[Any]]:
    """Raises CaipeError for a line that is no JSON."""
    batch: list[Any] = []
    chars = 0
    number = 0
    while line := await asyncio.to_thread(file.readline, _MAX_LINE_CHARS + 1):
        number += 1
        if len(line) > _MAX_LINE_CHARS:
            raise CaipeError(f"Line {number} is longer than {_MAX_LINE_CHARS} characters.")
        if not line.strip():
            continue
        if batch and (len(batch) >= _BATCH_DOCUMENTS or chars + len(line) > _BATCH_CHARS):
            yield batch
            batch = []
            chars = 0
        try:
            batch.append(json.loads(line))
        except ValueError:
            raise CaipeError(f"Line {number} is not JSON. Write one object on each line.") from None
        chars += len(line)
    if batch:
        yield batch


@click.command("set")
@click.argument("name")
@server_options
@click.option("--every", metavar="INTERVAL", help="How often to refresh it: 30m, 6h, 1d, or `off`.")
@VISIBLE_TO_OPTION
@click.option("--visible-to-all", is_flag=True, help="Everybody may see it.")
def set_(
    name: str,
    url: str | None,
    token: str | None,
    every: str | None,
    visible_to: tuple[str, ...],
    visible_to_all: bool,
) -> None:
    """Change how often a datasource is refreshed, or who may see it."""
    from ai_platform_engineering.cli.kb_connection import connect_knowledge_base

    if visible_to and visible_to_all:
        raise click.UsageError("--visible-to and --visible-to-all exclude each other.")
    body: dict[str, Any] = {}
    if every is not None:
        body["every"] = None if every == "off" else every
    if visible_to or visible_to_all:
        body["visible_to"] = list(visible_to) or None
    if not body:
        raise click.UsageError("Nothing to change. Pass --every, --visible-to or --visible-to-all.")

    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=True) as connection:
            await connection.api("PATCH", f"/v1/datasources/{quote(name, safe='')}", body)
        return exit_code(failed=False)

    run_interruptible(run)


@click.command()
@click.argument("name", required=False)
@click.argument("members", nargs=-1)
@server_options
@click.option("--remove", is_flag=True, help="Remove the group.")
def group(
    name: str | None, members: tuple[str, ...], url: str | None, token: str | None, remove: bool
) -> None:
    """List groups, or set the MEMBERS of one.

    Documents can be visible to a group.
    """
    from ai_platform_engineering.cli.kb_connection import connect_knowledge_base

    if name is not None and bool(members) == remove:
        raise click.UsageError("Pass the members of the group, or --remove.")

    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=True) as connection:
            if name is None:
                _print_groups((await connection.api("GET", "/v1/groups"))["groups"])
            elif remove:
                await connection.api("DELETE", f"/v1/groups/{quote(name, safe='')}")
            else:
                await connection.api("PUT", f"/v1/groups/{quote(name, safe='')}", {"members": list(members)})
        return exit_code(failed=False)

    run_interruptible(run)


def _print_groups(groups: dict[str, list[str]]) -> None:
    for name, members in groups.items():
        click.echo(f"{name}: {', '.join(members)}")
    if not groups:
        click.echo("There are no groups.", err=True)
