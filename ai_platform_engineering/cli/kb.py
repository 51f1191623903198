"""The commands of the knowledge base: `kb add`, `list`, `remove`, `search`, `show`, `refresh`, `eval`, `embeddings install`."""

import sys
from pathlib import Path
from typing import get_args

import click

from ai_platform_engineering.cli.options import readable_errors, server_options
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import SearchMode

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
_MODE = click.option(
    "--mode",
    type=click.Choice(get_args(SearchMode)),
    default="hybrid",
    help="By words and meaning, or by one of them.",
)


@click.group()
def kb() -> None:
    """The knowledge base: documents that answers are taken from."""


@kb.command()
@click.argument("location", metavar="PATH|URL|GIT-REPO")
@server_options
@click.option("--name", help="What the datasource is called; without it a name is made from the location.")
@click.option("--title", default="", help="What it is, for people and models.")
@click.option(
    "--depth", type=click.IntRange(0, 20), help="Of a web site: how many links away from the first page."
)
@click.option("--max-pages", type=click.IntRange(1, 100_000), help="Of a web site: how many pages at most.")
@click.option("--prefix", help="Of a web site: only addresses that begin so.")
def add(
    location: str,
    url: str | None,
    token: str | None,
    name: str | None,
    title: str,
    depth: int | None,
    max_pages: int | None,
    prefix: str | None,
) -> None:
    """Bring in documents: a folder, a file, a web site, a git repository. Ctrl-C leaves the rest for later."""
    from ai_platform_engineering.cli.kb_commands import add_datasource

    given = {"depth": depth, "max_pages": max_pages, "prefix": prefix}
    options = {option: str(value) for option, value in given.items() if value is not None}
    with readable_errors():
        sys.exit(
            add_datasource(
                url, token, {"location": location, "name": name, "title": title, "options": options}
            )
        )


@kb.command("list")
@server_options
@_AS_JSON
def list_(url: str | None, token: str | None, as_json: bool) -> None:
    """Which datasources there are."""
    from ai_platform_engineering.cli.kb_commands import list_datasources

    with readable_errors():
        sys.exit(list_datasources(url, token, as_json=as_json))


@kb.command()
@click.argument("name")
@server_options
def remove(name: str, url: str | None, token: str | None) -> None:
    """Remove a datasource with all its documents."""
    from ai_platform_engineering.cli.kb_commands import remove_datasource

    with readable_errors():
        sys.exit(remove_datasource(url, token, name))


@kb.command()
@click.argument("name", required=False)
@server_options
def refresh(name: str | None, url: str | None, token: str | None) -> None:
    """Look again at a datasource, or at all: new and changed documents come in, deleted ones leave."""
    from ai_platform_engineering.cli.kb_commands import refresh_datasources

    with readable_errors():
        sys.exit(refresh_datasources(url, token, name))


@kb.command()
@click.argument("query", nargs=-1, required=True)
@server_options
@click.option("--limit", type=click.IntRange(1, 50), default=5, help="How many results at most.")
@click.option("--datasource", help="Search this one alone.")
@_MODE
@_AS_JSON
def search(
    query: tuple[str, ...],
    url: str | None,
    token: str | None,
    limit: int,
    datasource: str | None,
    mode: str,
    as_json: bool,
) -> None:
    """Find documents."""
    from ai_platform_engineering.cli.kb_commands import search_documents

    asked = {"query": " ".join(query), "limit": limit, "datasource": datasource, "mode": mode}
    with readable_errors():
        sys.exit(search_documents(url, token, asked, as_json=as_json))


@kb.command()
@click.argument("document_id")
@server_options
def show(document_id: str, url: str | None, token: str | None) -> None:
    """The whole text of a document; the id is one of a search result."""
    from ai_platform_engineering.cli.kb_commands import show_document

    with readable_errors():
        sys.exit(show_document(url, token, document_id))


@kb.command("eval")
@click.argument("qrels", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--queries",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Id and query per line.",
)
@click.option("--datasource", help="Search this one alone.")
def eval_(qrels: Path, queries: Path, datasource: str | None) -> None:
    """How well documents are found: nDCG, recall and time over judged queries in the format of TREC."""
    from ai_platform_engineering.cli.kb_setup import evaluate_search

    with readable_errors():
        sys.exit(evaluate_search(qrels, queries, datasource))


@kb.group()
def embeddings() -> None:
    """The model that finds documents by what they mean: install."""


@embeddings.command("install")
def install_embeddings_() -> None:
    """Install the packages of the embedded model into this Python environment."""
    from ai_platform_engineering.cli.kb_setup import install_embeddings

    with readable_errors():
        sys.exit(install_embeddings())
