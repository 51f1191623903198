"""`/v1/uploads`: files that people send are read like those of a folder, bounded, and deleted one by one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from tests.support.harness import FAST, PLAIN, serve_app
from tests.support.knowledge import open_knowledge_base
from tests.support.storages import KEY

GUIDE = b"# Guide\n\nThe heron platform is restarted with heronctl.\n"


@contextlib.asynccontextmanager
async def rest(home: Path, **variables: str) -> AsyncIterator[httpx.AsyncClient]:
    async with open_knowledge_base(home) as kb:
        api = KnowledgeApi.from_settings(kb, Settings.from_variables(variables).knowledge, home)
        async with (
            serve_app(Starlette(routes=api.routes())) as url,
            httpx.AsyncClient(base_url=url, verify=PLAIN, timeout=120) as http,
        ):
            yield http


async def upload(http: httpx.AsyncClient, name: str, content: bytes = GUIDE, **params: str) -> dict[str, Any]:
    response = await http.post("/v1/uploads", params={"name": name, **params}, content=content)
    assert response.status_code == 202, response.text
    return dict(response.json())


async def ended(http: httpx.AsyncClient, job: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while job["state"] in ("waiting", "running"):
            await asyncio.sleep(0.01)
            job = (await http.get(f"/v1/jobs/{job['id']}")).json()
    return job


async def find(http: httpx.AsyncClient, query: str) -> list[str]:
    response = await http.post("/v1/query", json={"query": query})
    return [result["document_id"] for result in response.json()["results"]]


async def test_uploaded_files_are_found_replaced_and_deleted(tmp_path: Path) -> None:
    async with rest(tmp_path) as http:
        first = await upload(http, "Guide (1).md")
        assert (first["datasource"]["name"], first["datasource"]["kind"]) == ("uploads", "folder")
        jobs = [first["job"], *[(await upload(http, f"zoo-{number}.txt"))["job"] for number in range(3)]]
        states = {(await ended(http, job))["state"] for job in jobs}
        assert states == {"done"}
        assert first["document_id"] in await find(http, "heronctl")
        [source] = (await http.get("/v1/datasources")).json()["datasources"]
        assert source["documents"] == 4
        again = await upload(http, "Guide (1).md", b"# Guide\n\nNow it is the giraffe.\n")
        await ended(http, again["job"])
        assert await find(http, "giraffe") == [first["document_id"]]
        assert first["document_id"] not in await find(http, "heronctl")
        deleted = await http.delete(f"/v1/documents/{first['document_id']}")
        assert deleted.status_code == 202
        assert (await ended(http, deleted.json()["job"]))["removed"] == 1
        assert await find(http, "giraffe") == []
        assert (await http.delete(f"/v1/documents/{first['document_id']}")).status_code == 404


async def test_a_datasource_of_its_own_is_gone_with_its_files(tmp_path: Path) -> None:
    async with rest(tmp_path) as http:
        await ended(http, (await upload(http, "a.md", datasource="team"))["job"])
        assert (await http.delete("/v1/datasources/team")).status_code == 204
        assert not (tmp_path / "uploads" / "team").exists()
        second = await upload(http, "b.md", b"# Zoo\n\nGiraffes.\n", datasource="team")
        await ended(http, second["job"])
        assert await find(http, "heronctl") == []
        assert await find(http, "giraffes") == [second["document_id"]]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("", GUIDE, "name"),
        ("../guide.md", GUIDE, "folder"),
        ("a\\guide.md", GUIDE, "folder"),
        (".env", GUIDE, "dot"),
        ("x" * 201, GUIDE, "200"),
        ("line\nbreak.md", GUIDE, "name"),
        ("uv.lock", GUIDE, "lock file"),
        ("empty.md", b"", "empty"),
        ("program", b"\x7fELF\0\0\0\0\0", "neither"),
        ("large.md", b"x" * 1001, "RAG_UPLOAD_MAX_BYTES"),
    ],
)
async def test_what_is_no_document_is_refused_and_leaves_nothing(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    async with rest(tmp_path, RAG_UPLOAD_MAX_BYTES="1000") as http:

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(content), 100):
                yield content[start : start + 100]

        for body in (content, pieces()):  # with its length, and without
            response = await http.post("/v1/uploads", params={"name": name}, content=body)
            assert response.status_code == 400
            assert reason in response.json()["detail"]
        assert (await http.get("/v1/datasources")).json()["datasources"] == []
    assert [path for path in (tmp_path / "uploads").glob("*/*") if path.is_file()] == []


async def test_uploads_have_an_end(tmp_path: Path) -> None:
    async with rest(tmp_path, RAG_UPLOADS_MAX_FILES="1") as http:
        await upload(http, "a.md")
        response = await http.post("/v1/uploads", params={"name": "b.md"}, content=GUIDE)
    assert "RAG_UPLOADS_MAX_FILES" in response.json()["detail"]


async def test_documents_of_other_datasources_are_neither_replaced_nor_deleted(tmp_path: Path) -> None:
    async with rest(tmp_path) as http:
        pushed = {"id": "1", "title": "T", "text": "Some text."}
        await http.post("/v1/datasources", json={"location": "push:wiki"})
        pushed_results = await http.post("/v1/datasources/wiki/documents", json={"documents": [pushed]})
        [result] = pushed_results.json()["results"]
        response = await http.post(
            "/v1/uploads", params={"name": "a.md", "datasource": "wiki"}, content=GUIDE
        )
        assert (response.status_code, "other documents" in response.text) == (400, True)
        refused = await http.delete(f"/v1/documents/{result['document_id']}")
        assert (refused.status_code, "not uploaded" in refused.text) == (400, True)


async def test_a_datasource_that_one_may_not_see_is_not_there(tmp_path: Path) -> None:
    variables = {
        **FAST,
        "ENABLE_RAG": "true",
        "RAG_EMBEDDINGS": "off",
        "CAIPE_HOME": str(tmp_path),
        "A2A_AUTH_DELEGATE_KEY": KEY,
    }
    app = build_app(Settings.from_variables(variables), variables)
    async with serve_app(app) as url, httpx.AsyncClient(base_url=url, verify=PLAIN, timeout=120) as http:
        assert (await http.post("/v1/uploads", params={"name": "a.md"}, content=GUIDE)).status_code == 401
        http.headers.update({"Authorization": f"Bearer {KEY}", "X-CAIPE-User": "ann"})
        async with asyncio.timeout(60):
            while (await http.get("/v1/datasources")).status_code != 200:  # noqa: ASYNC110 - it is HTTP
                await asyncio.sleep(0.05)
        first = await upload(http, "a.md", datasource="team")
        await ended(http, first["job"])
        del http.headers["X-CAIPE-User"]  # whoever has the key alone decides on who sees it
        await http.patch("/v1/datasources/team", json={"visible_to": ["ann"]})
        http.headers["X-CAIPE-User"] = "bob"
        params = {"name": "b.md", "datasource": "team"}
        assert (await http.post("/v1/uploads", params=params, content=GUIDE)).status_code == 404
        assert (await http.delete(f"/v1/documents/{first['document_id']}")).status_code == 404
        http.headers["X-CAIPE-User"] = "ann"
        assert (await http.delete(f"/v1/documents/{first['document_id']}")).status_code == 202
