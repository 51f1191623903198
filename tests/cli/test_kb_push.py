"""`caipe kb push`, `set` and `group`, and `kb show` of a datasource."""

import json
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.knowledge_bases.access import OPERATOR
from tests.cli.test_kb import FAILED, OK, QUIET, USAGE, owning_server
from tests.support.knowledge import search_titles, write_files
from tests.support.processes import CommandResult, invoke_caipe


async def caipe(*arguments: str, stdin: str | None = None) -> CommandResult:
    return await invoke_caipe("kb", *arguments, env=QUIET, stdin=stdin)


def lines(*documents: Any) -> str:
    return "\n".join(json.dumps(document) for document in documents) + "\n\n"


async def test_documents_from_stdin_and_from_a_file(tmp_path: Path) -> None:
    pages = [{"id": f"p{number}", "text": f"# Page {number}\n\nAbout giraffes."} for number in range(60)]
    pushed = await caipe("push", "wiki", "--title", "The wiki", stdin=lines(*pages))
    assert pushed == CommandResult(OK, "", "wiki: 60 stored, 0 unchanged, 0 removed, 0 failed.\n")
    file = tmp_path / "pages.ndjson"
    file.write_text(lines(*pages[:2], {"id": "bad"}), encoding="utf-8")
    replaced = await caipe("push", "wiki", str(file), "--replace")
    assert replaced.code == FAILED
    assert replaced.err.splitlines() == [
        "  bad: Send either text, or content in base64 with its media_type.",
        "wiki: 0 stored, 2 unchanged, 58 removed, 1 failed.",
    ]
    found = json.loads((await caipe("search", "giraffes", "--datasource", "wiki", "--json")).out)
    assert {result["title"] for result in found} == {"Page 0", "Page 1"}


async def test_a_line_that_is_no_json_removes_nothing() -> None:
    await caipe("push", "wiki", stdin=lines({"id": "p", "text": "About giraffes."}))
    broken = await caipe("push", "wiki", "--replace", stdin='{"id": "q", "text": "b"}\n{oops\n')
    assert broken.code == FAILED
    assert "Line 2 is not JSON." in broken.err
    shown = (await caipe("show", "wiki")).out
    assert "documents:        1" in shown.splitlines()


async def test_who_may_see_a_datasource_and_how_often_it_is_refreshed(tmp_path: Path) -> None:
    docs = write_files(tmp_path / "docs", zoo="# Zoo\n\nThe giraffes are fed at noon.\n")
    async with owning_server(tmp_path / "caipe-home") as api:
        added = await caipe("add", str(docs), "--every", "6h", "--visible-to", "group:sre")
        assert added.code == OK
        assert await search_titles(api.kb, "giraffes") == []
        assert (await caipe("group", "sre", "ann", "bob")).code == OK
        assert await search_titles(api.kb, "giraffes", viewer=await api.kb.groups.identify("bob")) == ["Zoo"]
        assert (await caipe("group")).out == "sre: ann, bob\n"
        (datasource,) = await api.kb.list_datasources(OPERATOR)
        assert datasource.refresh_due is not None
        next_refresh = datasource.refresh_due.isoformat()
        shown = (await caipe("show", "docs")).out.splitlines()
        assert f"next_refresh:     {next_refresh}" in shown
        assert "visible_to:       group:sre" in shown
        assert next_refresh[:16].replace("T", " ") in (await caipe("list")).out
        assert (await caipe("set", "docs", "--every", "off", "--visible-to-all")).code == OK
        assert (await caipe("group", "sre", "--remove")).code == OK
        (datasource,) = await api.kb.list_datasources()
        assert (datasource.refresh_every, datasource.refresh_due) == (None, None)
        assert await api.kb.groups.list() == {}


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("set", "nothing", "--every", "6h"), FAILED, "There is no datasource nothing."),
        (("set", "nothing"), USAGE, "Nothing to change"),
        (("set", "wiki", "--visible-to", "ann", "--visible-to-all"), USAGE, "exclude each other"),
        (("add", "tests", "--every", "soon"), FAILED, "for example 30m, 6h or 1d"),
        (("group", "sre"), USAGE, "Pass the members"),
        (("group", "sre", "--remove"), FAILED, "There is no group sre."),
        (("push", "No Name"), FAILED, "A name has small letters"),
    ],
)
async def test_mistakes_are_sentences(arguments: tuple[str, ...], code: int, sentence: str) -> None:
    result = await caipe(*arguments, stdin="")
    assert result.code == code
    assert sentence in result.err
