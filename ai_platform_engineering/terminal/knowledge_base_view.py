"""Prints the knowledge base in a terminal: datasources, search results, documents and ingest jobs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ai_platform_engineering.core.display_text import reveal_json
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.terminal.screen import create_console, print_table, sanitize_line, sanitize_text

_DOCUMENTS_PER_LINE = 100  # where no progress bar can be drawn
_MAX_FAILURES = 20  # documents that could not be read, of one job
_DATASOURCE_COLUMNS = ("name", "kind", "documents", "vectors", "refreshed", "next refresh", "location")
_NUMBER_COLUMNS = ("documents", "vectors")

JsonObject = Mapping[str, Any]


def print_datasources(datasources: Sequence[JsonObject], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(datasources, indent=2))
    elif datasources:
        rows = [_datasource_row(datasource) for datasource in datasources]
        print_table(_DATASOURCE_COLUMNS, rows, right_aligned=_NUMBER_COLUMNS)
    else:
        hint = f"Add some with: {command_name()} kb add PATH|URL|GIT-REPO"
        click.echo(f"There are no documents yet. {hint}", err=True)


def _datasource_row(datasource: JsonObject) -> Sequence[str]:
    vectors = ""
    if datasource["chunks"]:
        vectors = f"{100 * datasource['embedded'] // datasource['chunks']} %"
    documents = str(datasource["documents"])
    return (
        datasource["name"],
        datasource["kind"],
        documents,
        vectors,
        _format_minute(datasource["refreshed"]),
        _format_minute(datasource.get("next_refresh")),  # a server of an earlier version has none
        datasource["location"],
    )


def _format_minute(time: str | None) -> str:
    return (time or "")[:16].replace("T", " ")


def print_datasource(datasource: JsonObject) -> None:
    """Prints what is known of one datasource, a line for each fact."""
    for key, value in datasource.items():
        text = value
        if isinstance(value, Mapping):
            text = ", ".join(f"{name} {entry}" for name, entry in value.items())
        elif isinstance(value, list):
            text = ", ".join(map(str, value))
        elif value is None:
            text = ""
        click.echo(f"{key + ':':<18}{sanitize_line(str(text))}".rstrip())


def print_search_results(results: Sequence[JsonObject], *, as_json: bool) -> None:
    if as_json:
        click.echo(reveal_json(results, indent=2))
        return
    for number, result in enumerate(results, 1):
        _print_search_result(number, result)
    if not results:
        click.echo("Nothing found.", err=True)


def _print_search_result(number: int, result: JsonObject) -> None:
    title = sanitize_line(result["title"])
    headings = " > ".join(sanitize_line(heading) for heading in result["headings"])
    if headings:
        title = f"{title}  ({headings})"
    click.echo(f"{number}. {title}")
    origin = filter(None, (result["link"], result["datasource"], result["document_id"]))
    click.echo("   " + "  ".join(map(sanitize_line, origin)))
    for line in result["snippet"].splitlines():
        click.echo(f"   {sanitize_line(line)}")
    click.echo()


def print_document_page(page: JsonObject, *, first: bool) -> None:
    """Prints a part of a document's text on stdout; before the first, its title on stderr."""
    if first:
        origin = page["link"] or page["datasource"]
        click.echo(f"{sanitize_line(page['title'])}  ({sanitize_line(origin)})", err=True)
        if page.get("missing"):  # a server of an earlier version does not say
            click.echo(f"Cut at a limit. Missing: {sanitize_line(page['missing'])}.", err=True)
        click.echo(err=True)
    click.echo(sanitize_text(page["text"]), nl=False)


def print_search_metrics(rows: Sequence[tuple[str, int, float, float, float, float]]) -> None:
    """Prints mode, number of queries, nDCG, recall and two latencies in seconds for each row."""
    click.echo(f"{'mode':10}{'queries':>8}{'nDCG@10':>10}{'recall@10':>11}{'p50 ms':>9}{'p95 ms':>9}")
    for mode, queries, ndcg, recall, p50, p95 in rows:
        quality = f"{ndcg:>10.3f}{recall:>11.3f}"
        latency = f"{p50 * 1000:>9.1f}{p95 * 1000:>9.1f}"
        click.echo(f"{mode:10}{queries:>8}{quality}{latency}")


def print_search_comparison(queries: int, difference: float, p_value: float) -> None:
    """Prints how much better the hybrid search is than reciprocal rank fusion, and whether that may be
    chance."""
    click.echo(
        f"\nhybrid against rrf (reciprocal rank fusion): {difference:+.3f} nDCG@10, p = {p_value:.3f} "
        f"(paired randomisation test, {queries} queries)"
    )


class IngestProgressBar:
    """The progress of an ingest job: a bar on a terminal, else a line now and then."""

    def __init__(self, datasource: str) -> None:
        self._name = sanitize_line(datasource)
        self._printed_count = 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = create_console(stderr=True)
        self._progress: Progress | None = None
        if console.is_terminal:
            self._progress = Progress(*columns, console=console, transient=True)
            self._task = self._progress.add_task(self._name, total=None)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, job: JsonObject) -> None:
        processed = job["done"] + len(job.get("cut", ())) + job["skipped"] + len(job["failed"])
        if self._progress is not None:
            self._progress.update(self._task, total=job["total"], completed=processed)
        elif processed - self._printed_count >= _DOCUMENTS_PER_LINE:
            self._printed_count = processed
            total = f" of {job['total']}" if job["total"] else ""
            click.echo(f"{self._name}: {processed}{total}", err=True)


def print_ended_job(job: JsonObject) -> None:
    failures = job["failed"]
    cut_documents = job.get("cut", ())  # a server of an earlier version has none
    counts = f"{job['done']} read, {job['skipped']} unchanged, {job['removed']} removed"
    if cut_documents:
        counts += f", {len(cut_documents)} cut"
    click.echo(
        f"{sanitize_line(job['datasource'])}: {job['state']}, {counts}, {len(failures)} left out.", err=True
    )
    if job["problem"]:
        click.echo(f"  {sanitize_line(job['problem'])}", err=True)
    for cut in cut_documents[:_MAX_FAILURES]:
        click.echo(
            f"  {sanitize_line(cut['address'])}: Cut at a limit. Missing: {sanitize_line(cut['missing'])}.",
            err=True,
        )
    if len(cut_documents) > _MAX_FAILURES:
        click.echo(f"  and {len(cut_documents) - _MAX_FAILURES} more cut", err=True)
    for failure in failures[:_MAX_FAILURES]:
        click.echo(f"  {sanitize_line(failure['address'])}: {sanitize_line(failure['reason'])}", err=True)
    if len(failures) > _MAX_FAILURES:
        click.echo(f"  and {len(failures) - _MAX_FAILURES} more", err=True)
