"""Uploaded files in a database that two servers share: either reads, replaces and deletes them."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psycopg
from starlette.applications import Starlette

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource
from tests.knowledge_bases.conftest import Replica
from tests.knowledge_bases.test_uploads import GUIDE, ended, find, upload
from tests.support.fakes.site import Page, serve_site
from tests.support.harness import PLAIN, serve_app
from tests.support.knowledge import wait_for_job, wait_until, write_files


@contextlib.asynccontextmanager
async def rest(kb: KnowledgeBase, home: Path, **variables: str) -> AsyncIterator[httpx.AsyncClient]:
    api = KnowledgeApi.from_settings(kb, Settings.from_variables(variables).knowledge, home)
    async with (
        serve_app(Starlette(routes=api.routes())) as url,
        httpx.AsyncClient(base_url=url, verify=PLAIN, timeout=120) as http,
    ):
        yield http


def count_files(address: str) -> int:
    with psycopg.connect(address, autocommit=True) as connection:
        [row] = connection.execute("SELECT count(*) FROM caipe_kb.uploads").fetchall()
    return int(row[0])


async def test_a_file_is_read_by_another_server_than_the_one_that_took_it(
    replica: Replica, address: str, tmp_path: Path
) -> None:
    async with serve_site({"/": Page(endless=True)}) as site, replica() as first:
        # The one that takes the file has something else to do.
        _, busy = await first.add_datasource(f"{site.url}/", name="web")
        await wait_until(lambda: site.requests)
        async with (
            replica() as second,
            rest(first, tmp_path / "one") as one,
            rest(second, tmp_path / "two") as two,
        ):
            first_file = await upload(one, "guide.md")
            assert first_file["datasource"]["kind"] == "upload"
            assert (await ended(one, first_file["job"]))["state"] == "done"
            assert (await first.find_job(busy.job_id)).state == "running"
            await first.stop_job(busy.job_id)
            other = await upload(two, "zoo.md", b"# Zoo\n\nGiraffes graze.\n")
            assert (await ended(one, other["job"]))["state"] == "done"
            for http in (one, two):
                assert first_file["document_id"] in await find(http, "heronctl")
                assert other["document_id"] in await find(http, "giraffes")
            again = await upload(two, "guide.md", b"# Guide\n\nNow it is the okapi.\n")
            await ended(two, again["job"])
            assert await find(one, "okapi") == [first_file["document_id"]]
            deleted = await one.delete(f"/v1/documents/{other['document_id']}")
            assert (await ended(two, deleted.json()["job"]))["removed"] == 1
            assert count_files(address) == 1
            assert (await two.delete("/v1/datasources/uploads")).status_code == 204
            assert count_files(address) == 0
    assert not list(tmp_path.glob("*/uploads/uploads"))


async def test_shared_uploads_have_an_end(replica: Replica, address: str, tmp_path: Path) -> None:
    async with replica() as kb, rest(kb, tmp_path, RAG_UPLOADS_MAX_FILES="1") as http:
        await upload(http, "a.md")
        response = await http.post("/v1/uploads", params={"name": "b.md"}, content=GUIDE)
        assert "RAG_UPLOADS_MAX_FILES" in response.json()["detail"]
        assert count_files(address) == 1


async def test_a_file_that_cannot_be_read_leaves_nothing_behind(
    replica: Replica, address: str, tmp_path: Path
) -> None:
    async with replica() as kb, rest(kb, tmp_path) as http:
        broken = await upload(http, "broken.pdf", b"%PDF-1.7\nnothing of a PDF follows")
        assert (await ended(http, broken["job"]))["state"] == "failed"
        assert (await http.get("/v1/datasources")).json()["datasources"] == []
        assert count_files(address) == 0
        fine = await upload(http, "guide.md")
        assert (await ended(http, fine["job"]))["done"] == 1


async def test_files_of_the_version_before_move_into_the_database(
    replica: Replica, address: str, tmp_path: Path
) -> None:
    """It kept them in a folder of the server that took them, also with a shared database."""
    folder = write_files(tmp_path / "home" / "uploads" / "uploads", old="# Old\n\nThe heron.\n")
    async with replica() as kb, rest(kb, tmp_path / "home") as http:
        await kb._store.put_datasource(Datasource("uploads", str(folder.resolve()), "folder"))
        await wait_for_job(kb, await kb.refresh_datasource("uploads"))
        [document_id] = await find(http, "heron")
        new = await upload(http, "new.md", b"# New\n\nThe giraffe.\n")
        assert (await ended(http, new["job"]))["state"] == "done"
        assert await find(http, "heron") == [document_id]
        assert await find(http, "giraffe") == [new["document_id"]]
        assert not folder.exists()
        deleted = await http.delete(f"/v1/documents/{document_id}")
        await ended(http, deleted.json()["job"])
        assert await find(http, "heron") == []
        assert count_files(address) == 1
