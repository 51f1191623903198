"""The knowledge base over REST: datasources, jobs, queries, documents, and whose files may be read."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.owner_file import OwnerProcess, owner_file_path
from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
from ai_platform_engineering.knowledge_bases.rest_requests import LOCAL_KEY_HEADER
from tests.support.fakes.site import Page, serve_site
from tests.support.harness import PLAIN, serve_app
from tests.support.knowledge import add_datasource, create_knowledge_base, open_knowledge_base, write_files

GUIDE = "# Guide\n\nTurn the wheel.\n\n## Brakes\n\nPull the lever, gently.\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return write_files(tmp_path / "docs", guide=GUIDE, zoo="# Zoo\n\nThe giraffes are fed at noon.\n")


@contextlib.asynccontextmanager
async def rest(
    home: Path, *folders: Path, **options: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, KnowledgeApi]]:
    async with open_knowledge_base(home, **options) as kb:
        api = KnowledgeApi.from_settings(
            kb, Settings.from_variables({"RAG_INGEST_FOLDERS": ",".join(map(str, folders))}).knowledge
        )
        async with (
            serve_app(Starlette(routes=api.routes())) as url,
            httpx.AsyncClient(base_url=url, verify=PLAIN, timeout=120) as http,
        ):
            yield http, api


async def ended(http: httpx.AsyncClient, job: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while job["state"] in ("waiting", "running"):
            await asyncio.sleep(0.01)
            job = (await http.get(f"/v1/jobs/{job['id']}")).json()
    return job


def problem(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == response.status_code
    return response.status_code, body["detail"]


async def test_from_a_folder_to_a_document(tmp_path: Path, docs: Path) -> None:
    async with rest(tmp_path, docs) as (http, _):
        assert (await http.get("/v1/datasources")).json() == {"datasources": []}
        begun = await http.post(
            "/v1/datasources", json={"location": str(docs), "name": "manual", "title": "The manual"}
        )
        job = await ended(http, begun.json()["job"])
        (listed,) = (await http.get("/v1/datasources")).json()["datasources"]
        datasource = (await http.get("/v1/datasources/manual")).json()
        answer = (
            await http.post("/v1/query", json={"query": "lever of the brakes", "limit": 1, "mode": "lexical"})
        ).json()
        (result,) = answer["results"]
        document = (await http.get(f"/v1/documents/{result['document_id']}")).json()
        rest_of_it = (
            await http.get(f"/v1/documents/{result['document_id']}", params={"offset": result["offset"]})
        ).json()
        jobs = (await http.get("/v1/jobs")).json()["jobs"]
    assert begun.status_code == 202
    assert {
        key: job[key]
        for key in ("datasource", "state", "total", "done", "skipped", "removed", "failed", "problem")
    } == {
        "datasource": "manual",
        "state": "done",
        "total": 2,
        "done": 2,
        "skipped": 0,
        "removed": 0,
        "failed": [],
        "problem": "",
    }
    assert job["ended"] >= job["created"]
    assert jobs == [job]
    assert datasource == listed
    assert (listed["title"], listed["kind"], listed["location"], listed["documents"]) == (
        "The manual",
        "folder",
        str(docs),
        2,
    )
    assert result["snippet"] == "## Brakes\n\nPull the lever, gently."
    assert result["headings"] == ["Guide", "Brakes"]
    assert document["text"] == GUIDE.strip()
    assert (document["next_offset"], document["total_chars"], document["cite"]) == (
        None,
        len(GUIDE.strip()),
        result["cite"],
    )
    assert rest_of_it["text"] == result["snippet"]


async def test_looking_again_at_one_or_all_and_removing(tmp_path: Path, docs: Path) -> None:
    other = write_files(tmp_path / "other", other="# Other\n\nText.\n")
    async with rest(tmp_path, docs, other) as (http, api):
        await add_datasource(api.kb, docs)
        await add_datasource(api.kb, other)
        (docs / "zoo.md").unlink()
        (job,) = (await http.post("/v1/ingest", json={"datasource": "docs"})).json()["jobs"]
        assert (await ended(http, job))["removed"] == 1
        all_of_them = (await http.post("/v1/ingest", json={})).json()["jobs"]
        assert [(await ended(http, job))["datasource"] for job in all_of_them] == ["docs", "other"]
        assert (await http.delete("/v1/datasources/docs")).status_code == 204
        assert [
            datasource["name"] for datasource in (await http.get("/v1/datasources")).json()["datasources"]
        ] == ["other"]
        assert problem(await http.delete("/v1/datasources/docs")) == (
            404,
            "There is no datasource docs. There are: other.",
        )


async def test_a_running_job_can_be_seen_and_stopped(tmp_path: Path) -> None:
    start = Page('<title>Start</title><p>Welcome</p><a href="/slow">slow</a>')
    async with (
        serve_site({"/": start, "/slow": Page(endless=True)}) as web,
        rest(tmp_path, private=True) as (http, api),
    ):
        job = (
            await http.post("/v1/datasources", json={"location": f"{web.url}/", "options": {"depth": "1"}})
        ).json()["job"]
        async for progress in api.kb.follow_job(job["id"]):
            if progress.done == 1:
                break
        assert (await http.get(f"/v1/jobs/{job['id']}")).json()["state"] == "running"
        stopped = (await http.post(f"/v1/jobs/{job['id']}/stop")).json()
    assert (stopped["state"], stopped["done"]) == ("stopped", 1)


async def test_files_of_the_server_are_read_only_where_it_is_allowed(tmp_path: Path, docs: Path) -> None:
    secret = write_files(tmp_path / "secret", secret="# Secret\n\nText.\n")
    (docs / "way-out").symlink_to(secret)
    refusal = (400, "Files of the server are only read below the folders that RAG_INGEST_FOLDERS names.")
    async with rest(tmp_path, docs) as (http, api):
        for location in (
            str(secret),
            f"file://{secret}",
            f"{docs}/../secret",
            str(docs / "way-out"),
            "/etc/passwd",
            "/nowhere",
            "~",
            ".",
            str(tmp_path),
        ):
            for kind in ({}, {"kind": "folder"}, {"kind": "git"}):
                assert (
                    problem(await http.post("/v1/datasources", json={"location": location, "options": kind}))
                    == refusal
                )
        wrong = await http.post(
            "/v1/datasources", json={"location": str(secret)}, headers={LOCAL_KEY_HEADER: "guessed"}
        )
        assert problem(wrong) == refusal
        below = await http.post("/v1/datasources", json={"location": str(docs / "guide.md")})
        local_response = await http.post(
            "/v1/datasources", json={"location": str(secret)}, headers={LOCAL_KEY_HEADER: api.local_key}
        )
        assert (below.status_code, local_response.status_code) == (202, 202)
        assert api.local_key not in repr(api)
    async with rest(tmp_path / "elsewhere") as (http, _):  # nothing is allowed unless somebody says so
        assert problem(await http.post("/v1/datasources", json={"location": str(docs)})) == refusal


async def test_addresses_of_private_networks_are_refused(tmp_path: Path) -> None:
    async with (
        serve_site({"/": Page("<title>Start</title><p>Welcome</p>")}) as web,
        rest(tmp_path) as (http, _),
    ):
        job = await ended(
            http, (await http.post("/v1/datasources", json={"location": f"{web.url}/"})).json()["job"]
        )
        assert web.requests == []
    assert job["done"] == 0
    assert "private, local or reserved" in str(job)


async def test_mistakes_are_problems_with_a_sentence(tmp_path: Path) -> None:
    async with rest(tmp_path) as (http, _):
        assert problem(await http.get("/v1/jobs/none")) == (404, "There is no job none.")
        assert problem(await http.post("/v1/jobs/none/stop"))[0] == 404
        assert problem(await http.get("/v1/datasources/none"))[0] == 404
        assert problem(await http.post("/v1/ingest", json={"datasource": "none"}))[0] == 404
        assert problem(await http.get("/v1/documents/none"))[0] == 404
        assert problem(await http.get("/v1/documents/none", params={"offset": "-1"}))[0] == 400
        assert problem(await http.post("/v1/query", json={"query": "", "limit": 999})) == (
            400,
            "The request is wrong. query: String should have at least 1 character; limit: Input should be "
            "less than or equal to 50.",
        )
        assert (
            problem(await http.post("/v1/query", content=b"{", headers={"Content-Type": "application/json"}))[
                0
            ]
            == 400
        )
        assert problem(await http.post("/v1/query", content=b"query")) == (
            400,
            "Send JSON, with the content type application/json.",
        )
        large = await http.post("/v1/query", json={"query": "x" * 100_000})
        assert problem(large) == (400, "The request is larger than 65536 bytes.")
        assert problem(await http.post("/v1/datasources", json={"location": "ftp://example.com/"}))[0] == 400
        secret = await http.post("/v1/datasources", json={"location": "https://user:hunter2@example.com/"})
        assert problem(secret)[0] == 400
        assert "hunter2" not in secret.text


async def test_a_result_says_why_it_was_found(tmp_path: Path) -> None:
    docs = write_files(
        tmp_path / "docs",
        errors="# Errors\n\nThe error ERR4711 is raised by restarts of pods.\n",
        zoo="# Zoo\n\nThe giraffes restart at noon.\n",
    )
    async with rest(tmp_path / "home", docs) as (http, _):
        added = await http.post("/v1/datasources", json={"location": str(docs)})
        await ended(http, added.json()["job"])
        query = {"query": "what restarted with ERR4711?", "mode": "lexical"}
        best, other = (await http.post("/v1/query", json=query)).json()["results"]
    assert best["why"] == {
        "words": ["restarted", "err4711"],
        "exact": ["err4711"],
        "word_score": 1.0,
        "meaning_score": None,
    }
    assert (other["why"]["words"], other["why"]["exact"]) == (["restarted"], [])
    assert 0 < other["why"]["word_score"] < 1


async def test_a_knowledge_base_that_belongs_to_another_process_is_searched_and_not_changed(
    tmp_path: Path, docs: Path
) -> None:
    async with open_knowledge_base(tmp_path) as owner, rest(tmp_path, docs) as (http, _):
        await add_datasource(owner, docs)
        assert (await http.post("/v1/query", json={"query": "giraffes"})).json()["results"][0][
            "title"
        ] == "Zoo"
        status, detail = problem(await http.post("/v1/datasources", json={"location": str(docs)}))
    assert status == 400
    assert detail.startswith("Another process has the knowledge base open")


async def test_the_owner_says_where_it_is_to_this_user_alone(tmp_path: Path) -> None:
    assert OwnerProcess.read(tmp_path) is None
    settings = Settings.from_variables(
        {"A2A_HOST": "0.0.0.0", "A2A_PORT": "8123", "EXTERNAL_URL": "https://far.example/"}
    )
    api = KnowledgeApi(create_knowledge_base(tmp_path))
    await api.open(settings.server, tmp_path)
    owner = OwnerProcess.read(tmp_path)
    second = KnowledgeApi(create_knowledge_base(tmp_path))
    await second.open(
        Settings.from_variables({}).server, tmp_path
    )  # it reads, and is nobody to give orders to
    assert OwnerProcess.read(tmp_path) == owner
    await second.kb.aclose()
    await api.kb.aclose()
    assert owner == OwnerProcess("http://localhost:8123/", api.local_key)
    assert os.stat(owner_file_path(tmp_path)).st_mode & 0o777 == 0o600
    assert api.local_key not in repr(owner)
    owner_file_path(tmp_path).write_text("{}")
    assert OwnerProcess.read(tmp_path) is None


async def test_a_search_without_a_worker_is_a_problem_that_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rest(tmp_path) as (http, _):
        monkeypatch.setattr(sys, "executable", "/bin/false")
        status, detail = problem(await http.post("/v1/query", json={"query": "volumes"}))
    assert status == 503
    assert "index worker has ended unexpectedly" in detail
