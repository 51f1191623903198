"""`caipe kb`: `add`, `list`, `remove`, `refresh`, `search`, `show`, `eval`, `embeddings install`.

`push`, `set` and `group` are in kb_push.py.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

import click

from ai_platform_engineering.cli.kb_push import VISIBLE_TO_OPTION, group, push, set_
from ai_platform_engineering.cli.options import (
    exit_code,
    run_and_exit,
    run_interruptible,
    server_options,
)
from ai_platform_engineering.knowledge_bases.indexing.embedded_models import EMBEDDED_MODELS
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import SearchMode

if TYPE_CHECKING:
    from ai_platform_engineering.cli.kb_connection import KnowledgeBaseConnection
    from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
    from ai_platform_engineering.knowledge_bases.search.evaluation import SearchMetrics

_POLL_SECONDS = 0.2
_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
_MODE_OPTION = click.option(
    "--mode",
    type=click.Choice(get_args(SearchMode)),
    default="hybrid",
    help="Search by words and meaning, or by one of them.",
)


@click.group()
def kb() -> None:
    """The knowledge base: documents to answer from."""


kb.add_command(push)
kb.add_command(set_)
kb.add_command(group)


@kb.command()
@click.argument("location", metavar="LOCATION")
@server_options
@click.option("--name", help="Name of the datasource. Default: made from the location.")
@click.option("--title", default="", help="A description for people and models.")
@click.option(
    "--depth", type=click.IntRange(0, 20), help="For a website: how many links to follow from the first page."
)
@click.option(
    "--max-pages", type=click.IntRange(1, 100_000), help="For a website: the maximum number of pages."
)
@click.option("--prefix", help="For a website: only URLs that start with this.")
@click.option("--include", help="For github: any of issues, pulls, discussions, wiki, separated by commas.")
@click.option("--every", metavar="INTERVAL", help="How often to refresh it: 30m, 6h, 1d.")
@VISIBLE_TO_OPTION
def add(
    location: str,
    url: str | None,
    token: str | None,
    name: str | None,
    title: str,
    depth: int | None,
    max_pages: int | None,
    prefix: str | None,
    include: str | None,
    every: str | None,
    visible_to: tuple[str, ...],
) -> None:
    """Add documents.

    LOCATION is a folder, a file, a website, a git repository, confluence:SPACE, jira:PROJECT, jira:JQL,
    github:owner/repository, slack:CHANNEL, backstage:all or s3:BUCKET/PREFIX. Ctrl-C leaves the rest for
    later.
    """
    from ai_platform_engineering.cli.kb_connection import connect_knowledge_base

    all_options = {"depth": depth, "max_pages": max_pages, "prefix": prefix, "include": include}
    options = {option: str(value) for option, value in all_options.items() if value is not None}
    datasource = {
        "location": _resolve_location(location),
        "name": name,
        "title": title,
        "options": options,
        "every": every,
        "visible_to": list(visible_to) or None,
    }

    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=True) as connection:
            response = await connection.api("POST", "/v1/datasources", datasource)
            jobs = [response["job"]] if response["job"] is not None else []
            return await _follow_jobs(connection, jobs)

    run_interruptible(run)


@kb.command("list")
@server_options
@_JSON_OPTION
def list_(url: str | None, token: str | None, as_json: bool) -> None:
    """List the datasources."""
    from ai_platform_engineering.cli.kb_connection import connect_knowledge_base
    from ai_platform_engineering.terminal.knowledge_base_view import print_datasources

    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=False) as connection:
            response = await connection.api("GET", "/v1/datasources")
        print_datasources(response["datasources"], as_json=as_json)
        return exit_code(failed=False)

    run_interruptible(run)


@kb.command()
@click.argument("name")
@server_options
def remove(name: str, url: str | None, token: str | None) -> None:
    """Remove a datasource with all its documents."""
    from ai_platform_engineering.cli.kb_connection import connect_knowledge_base

    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=True) as connection:
            await connection.api("DELETE", f"/v1/datasources/{quote(name, safe='')}")
        click.echo(f"{name} and its documents are removed.", err=True)
        return exit_code(failed=False)

    run_interruptible(run)


@kb.command()
@click.argument("name", required=False)
@server_options
def refresh(name: str | None, url: str | None, token: str | None) -> None:
    """Update one datasource, or all.

    New and changed documents are read, deleted ones removed.
    """
    from ai_platform_engineering.cli.kb_connection import connect_knowledge_base

    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=True) as connection:
            response = await connection.api("POST", "/v1/ingest", {"datasource": name})
            return await _follow_jobs(connection, response["jobs"])

    run_interruptible(run)


@kb.command()
@click.argument("query", nargs=-1, required=True)
@server_options
@click.option("--limit", type=click.IntRange(1, 50), default=5, help="The maximum number of results.")
@click.option("--datasource", help="Search only this datasource.")
@_MODE_OPTION
@_JSON_OPTION
def search(
    query: tuple[str, ...],
    url: str | None,
    token: str | None,
    limit: int,
    datasource: str | None,
    mode: str,
    as_json: bool,
) -> None:
    """Search the documents."""
    from ai_platform_engineering.cli.kb_connection import connect_knowledge_base
    from ai_platform_engineering.terminal.knowledge_base_view import print_search_results

    body = {"query": " ".join(query), "limit": limit, "datasource": datasource, "mode": mode}

    async def run() -> int:
        async with connect_knowledge_base(url, token, changes=False) as connection:
            response = await connection.api("POST", "/v1/query", body)
        print_search_results(response["results"], as_json=as_json)
        return exit_code(failed=False)

    run_interruptible(run)


@kb.command()
@click.argument("document_id", metavar="DOCUMENT-ID|DATASOURCE")
@server_options
def show(document_id: str, url: str | None, token: str | None) -> None:
    """Print a document by the id of a search result, or describe a datasource."""
    from ai_platform_engineering.cli.kb_connection import connect_knowledge_base
    from ai_platform_engineering.terminal.knowledge_base_view import print_datasource, print_document_page

    path = f"/v1/documents/{quote(document_id, safe='')}"

    async def run() -> int:
        offset: int | None = 0
        async with connect_knowledge_base(url, token, changes=False) as connection:
            datasources = (await connection.api("GET", "/v1/datasources"))["datasources"]
            for datasource in datasources:
                if datasource["name"] == document_id:
                    print_datasource(datasource)
                    return exit_code(failed=False)
            while offset is not None:
                page = await connection.api("GET", f"{path}?offset={offset}")
                print_document_page(page, first=offset == 0)
                offset = page["next_offset"]
        click.echo()
        return exit_code(failed=False)

    run_interruptible(run)


@kb.command("eval")
@click.argument("qrels", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--queries",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="One id and query per line.",
)
@click.option("--datasource", help="Search only this datasource.")
@click.option(
    "--collection",
    type=click.Path(exists=True, path_type=Path),
    help="A collection in BEIR's layout, a folder or a zip file, instead of the knowledge base.",
)
def eval_(qrels: Path | None, queries: Path | None, datasource: str | None, collection: Path | None) -> None:
    """Measure how well documents are found.

    Prints nDCG, recall and time over judged queries, by words, by meaning, and by
    both, with reciprocal rank fusion (rrf) as the baseline.

    QRELS and --queries judge the documents of the knowledge base, in the format of TREC. --collection brings
    documents of its own (corpus.jsonl, queries.jsonl, qrels.tsv), which are indexed only for this."""
    from ai_platform_engineering.cli.kb_evaluation import evaluate_collection, evaluate_search

    if collection is not None and (qrels or queries or datasource):
        raise click.UsageError("--collection brings its own queries and judgements.")
    if collection is None and (qrels is None or queries is None):
        raise click.UsageError("Pass QRELS and --queries, or --collection.")

    async def run() -> int:
        if collection is not None:
            await _print_evaluation(await evaluate_collection(collection, _show_progress))
        elif qrels is not None and queries is not None:
            await _print_evaluation(await evaluate_search(qrels, queries, datasource))
        return exit_code(failed=False)

    run_and_exit(run)


async def _print_evaluation(evaluated: Sequence["SearchMetrics"]) -> None:
    import asyncio

    from ai_platform_engineering.knowledge_bases.search.significance import compute_p_value
    from ai_platform_engineering.terminal.knowledge_base_view import (
        print_search_comparison,
        print_search_metrics,
    )

    rows = []
    for metrics in evaluated:
        figures = (metrics.ndcg, metrics.recall, metrics.p50, metrics.p95)
        rows.append((metrics.mode, metrics.questions, *figures))
    print_search_metrics(rows)
    by_mode = {metrics.mode: metrics for metrics in evaluated}
    if "rrf" in by_mode and "hybrid" in by_mode:
        before, now = by_mode["rrf"], by_mode["hybrid"]
        p_value = await asyncio.to_thread(compute_p_value, before.gains, now.gains)
        print_search_comparison(now.questions, now.ndcg - before.ndcg, p_value)


def _show_progress(what: str, ready: int, total: int) -> None:
    click.echo(f"{what}: {ready} of {total}", err=True)


@kb.group()
def embeddings() -> None:
    """The model for search by meaning: install."""


@embeddings.command("install")
@click.option(
    "--model",
    type=click.Choice([model.name for model in EMBEDDED_MODELS]),
    default=EMBEDDED_MODELS[0].name,
    show_default=True,
    help="The model to install; RAG_EMBEDDED_MODEL chooses the one to use.",
)
def install_embeddings_(model: str) -> None:
    """Install an embedding model into this environment."""
    from ai_platform_engineering.cli.embeddings_install import install_embeddings

    install_embeddings(model)
    sys.exit(exit_code(failed=False))


def _resolve_location(location: str) -> str:
    """Makes a path absolute, since the server has another working directory; a URL stays as it is."""
    if not location.strip():  # as a path it would be this folder
        raise click.BadParameter(
            "Give a folder, a file, a web address or a git repository. Or one like confluence:OPS."
        )
    path = Path(location).expanduser()
    if "://" not in location and path.exists():
        return str(path.absolute())
    return location


async def _follow_jobs(connection: "KnowledgeBaseConnection", jobs: Sequence[Mapping[str, Any]]) -> int:
    """Shows the progress of ingest jobs to their end; the exit code."""
    import asyncio

    from ai_platform_engineering.knowledge_bases.indexing.ingest_jobs import ENDED_STATES
    from ai_platform_engineering.terminal.knowledge_base_view import IngestProgressBar, print_ended_job

    failed = False
    for started_job in jobs:
        job = started_job
        with IngestProgressBar(job["datasource"]) as bar:
            while job["state"] not in ENDED_STATES:
                await asyncio.sleep(_POLL_SECONDS)
                job = await connection.api("GET", f"/v1/jobs/{job['id']}")
                bar.show(job)
        print_ended_job(job)
        failed = failed or job["state"] != "done"
    if connection.kb is not None and not failed:
        await wait_for_vectors(connection.kb)
    return exit_code(failed=failed)


async def wait_for_vectors(kb: "KnowledgeBase") -> None:
    """Waits for missing vectors; documents are found by their words before, so Ctrl-C loses nothing."""
    from ai_platform_engineering.knowledge_bases.access import OPERATOR

    if not kb.has_embeddings:
        return
    if all(datasource.embedded >= datasource.chunks for datasource in await kb.list_datasources(OPERATOR)):
        return
    click.echo(
        "The documents can be found by their words. Vectors are made now; Ctrl-C leaves the rest for later.",
        err=True,
    )
    await kb.wait_for_embeddings()
