"""What the commands of the knowledge base do: over REST, to the process that owns it, which may be this one."""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from starlette.applications import Starlette

from ai_platform_engineering.a2a.client import bearer_headers, create_http_client
from ai_platform_engineering.cli.rest_requests import RestApi, rest_api_at
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings, read_environment
from ai_platform_engineering.knowledge_bases.indexing.ingest_jobs import ENDED_STATES
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_knowledge_base
from ai_platform_engineering.knowledge_bases.owner_file import OwnerProcess
from ai_platform_engineering.knowledge_bases.rest_api import LOCAL_KEY_HEADER, KnowledgeApi
from ai_platform_engineering.terminal.screen import sanitize_line, sanitize_text

INTERRUPTED = 130
_LOOK_AGAIN = 0.2  # seconds between two looks at a job
_LINE_EVERY = 100  # documents, where no bar can be drawn
_MOST_SHOWN = 20  # documents that could not be read
_HERE = "http://here"

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnowledgeBaseConnection:
    """The way to the knowledge base; `kb` is there when it is open in this process."""

    api: RestApi
    kb: KnowledgeBase | None = None


@contextlib.asynccontextmanager
async def connect_knowledge_base(
    url: str | None, token: str | None, *, changes: bool
) -> AsyncIterator[KnowledgeBaseConnection]:
    """The named server's, or the one of this machine: opened here, or through the server that has it open."""
    variables = read_environment()
    settings = Settings.from_variables(variables)
    home = settings.agent.home
    if url is not None:
        async with _over_http(url, token, home) as api:
            yield KnowledgeBaseConnection(api)
        return
    logging.basicConfig(level=logging.ERROR)
    kb = create_knowledge_base(settings, variables)
    try:
        await kb.open(start_workers=changes)
        if kb.is_writable or not changes:
            if kb.is_writable and not changes and (job := await kb.add_shipped_docs()) is not None:
                async for _ in kb.follow_job(job.job_id):
                    pass
            async with _in_process(KnowledgeApi(kb)) as api:
                yield KnowledgeBaseConnection(api, kb)
            return
    finally:
        await kb.aclose()
    owner = OwnerProcess.read(home)
    if owner is None:
        raise CaipeError("Another process has the knowledge base open. Try again when it has ended.")
    async with _over_http(owner.url, token, home) as api:
        yield KnowledgeBaseConnection(api)


@contextlib.asynccontextmanager
async def _in_process(served: KnowledgeApi) -> AsyncIterator[RestApi]:
    transport = httpx.ASGITransport(Starlette(routes=served.routes()))
    async with httpx.AsyncClient(
        transport=transport, headers={LOCAL_KEY_HEADER: served.local_key}, timeout=None
    ) as http:
        yield rest_api_at(http, _HERE)


@contextlib.asynccontextmanager
async def _over_http(address: str, token: str | None, home: Path) -> AsyncIterator[RestApi]:
    owner = OwnerProcess.read(home)
    # Only the server that wrote the key is given it.
    known = (
        {LOCAL_KEY_HEADER: owner.local_key}
        if owner is not None and owner.url.rstrip("/") == address.rstrip("/")
        else {}
    )
    async with create_http_client(address) as http:
        http.headers.update({**bearer_headers(token), **known})
        http.timeout = httpx.Timeout(300.0, connect=10.0)  # a large datasource takes a while to remove
        yield rest_api_at(http, address)


def _run(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        return INTERRUPTED


def add_datasource(url: str | None, token: str | None, asked: Entry) -> int:
    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=True) as there:
            begun = await there.api(
                "POST", "/v1/datasources", {**asked, "location": _absolute(asked["location"])}
            )
            return await _followed(there, [begun["job"]])

    return _run(run)


def refresh_datasources(url: str | None, token: str | None, name: str | None) -> int:
    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=True) as there:
            begun = await there.api("POST", "/v1/ingest", {"datasource": name})
            return await _followed(there, begun["jobs"])

    return _run(run)


def remove_datasource(url: str | None, token: str | None, name: str) -> int:
    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=True) as there:
            await there.api("DELETE", f"/v1/datasources/{quote(name, safe='')}")
        click.echo(f"{name} is removed, with its documents.", err=True)
        return 0

    return _run(run)


def list_datasources(url: str | None, token: str | None, *, as_json: bool) -> int:
    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=False) as there:
            found = (await there.api("GET", "/v1/datasources"))["datasources"]
        if as_json:
            click.echo(json.dumps(found, indent=2))
        elif found:
            _show_table(found)
        else:
            click.echo(
                "There are no documents yet. Bring some in with: caipe kb add PATH|URL|GIT-REPO", err=True
            )
        return 0

    return _run(run)


def search_documents(url: str | None, token: str | None, asked: Entry, *, as_json: bool) -> int:
    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=False) as there:
            found = (await there.api("POST", "/v1/query", asked))["results"]
        if as_json:
            click.echo(json.dumps(found, indent=2, ensure_ascii=False))
            return 0
        for number, result in enumerate(found, 1):
            _show_result(number, result)
        if not found:
            click.echo("Nothing was found.", err=True)
        return 0

    return _run(run)


def show_document(url: str | None, token: str | None, document_id: str) -> int:
    async def run() -> int:
        offset: int | None = 0
        async with connect_knowledge_base(url, token, changes=False) as there:
            while offset is not None:
                page = await there.api("GET", f"/v1/documents/{quote(document_id, safe='')}?offset={offset}")
                if offset == 0:
                    where = page["link"] or page["datasource"]
                    click.echo(f"{sanitize_line(page['title'])}  ({sanitize_line(where)})\n", err=True)
                click.echo(sanitize_text(page["text"]), nl=False)
                offset = page["next_offset"]
        click.echo()
        return 0

    return _run(run)


# --- a job, followed to its end


async def _followed(there: KnowledgeBaseConnection, jobs: Sequence[Entry]) -> int:
    failed = False
    for begun in jobs:
        with _Bar(begun["datasource"]) as bar:
            job = begun
            while job["state"] not in ENDED_STATES:
                await asyncio.sleep(_LOOK_AGAIN)
                job = await there.api("GET", f"/v1/jobs/{begun['id']}")
                bar.show(job)
        _show_end(job)
        failed = failed or job["state"] != "done"
    if there.kb is not None:
        await _made_vectors(there.kb)
    if failed:
        return 1
    return 0


async def _made_vectors(kb: KnowledgeBase) -> None:
    """Documents are found by their words already; the rest is told, and may be broken off."""
    if not kb.has_embeddings or all(one.embedded >= one.chunks for one in await kb.list_datasources()):
        return
    click.echo(
        "The documents can be found by their words. Vectors are made now; Ctrl-C leaves the rest for later.",
        err=True,
    )
    await kb.wait_for_embeddings()


class _Bar:
    """How far a job is: a bar on a terminal, else a line now and then."""

    def __init__(self, datasource: str) -> None:
        self._name, self._told = sanitize_line(datasource), 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = Console(stderr=True)
        self._progress = Progress(*columns, console=console, transient=True) if console.is_terminal else None
        self._task = self._progress.add_task(self._name, total=None) if self._progress is not None else None

    def __enter__(self) -> "_Bar":
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, job: Entry) -> None:
        looked_at = job["done"] + job["skipped"] + len(job["failed"])
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=job["total"], completed=looked_at)
        elif looked_at - self._told >= _LINE_EVERY:
            self._told = looked_at
            of = f" of {job['total']}" if job["total"] else ""
            click.echo(f"{self._name}: {looked_at}{of}", err=True)


def _show_end(job: Entry) -> None:
    figures = f"{job['done']} read, {job['skipped']} unchanged, {job['removed']} removed, {len(job['failed'])} left out"
    click.echo(f"{sanitize_line(job['datasource'])}: {job['state']}, {figures}.", err=True)
    if job["problem"]:
        click.echo(f"  {sanitize_line(job['problem'])}", err=True)
    for one in job["failed"][:_MOST_SHOWN]:
        click.echo(f"  {sanitize_line(one['address'])}: {sanitize_line(one['reason'])}", err=True)
    if len(job["failed"]) > _MOST_SHOWN:
        click.echo(f"  and {len(job['failed']) - _MOST_SHOWN} more", err=True)


def _show_table(found: Sequence[Entry]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("name", "kind", "documents", "vectors", "refreshed", "location"):
        table.add_column(
            column, overflow="fold", justify="right" if column in ("documents", "vectors") else "left"
        )
    for one in found:
        vectors = f"{100 * one['embedded'] // one['chunks']} %" if one["chunks"] else ""
        refreshed = (one["refreshed"] or "")[:16].replace("T", " ")
        table.add_row(
            *map(
                sanitize_line,
                (one["name"], one["kind"], str(one["documents"]), vectors, refreshed, one["location"]),
            )
        )
    # A line is a line where no person reads it.
    Console(width=None if sys.stdout.isatty() else 1000, markup=False, highlight=False).print(table)


def _show_result(number: int, result: Entry) -> None:
    where = " > ".join(sanitize_line(heading) for heading in result["headings"])
    click.echo(f"{number}. {sanitize_line(result['title'])}{f'  ({where})' if where else ''}")
    click.echo(
        "   "
        + "  ".join(
            map(sanitize_line, filter(None, (result["link"], result["datasource"], result["document_id"])))
        )
    )
    for line in result["snippet"].splitlines():
        click.echo(f"   {sanitize_line(line)}")
    click.echo()


def _absolute(location: str) -> str:
    """A path as the server sees it; what is no path here stays as it is."""
    path = Path(location).expanduser()
    if "://" not in location and path.exists():
        return str(path.absolute())
    return location
