"""Documents that other programs push over REST: batches, generations, limits, and who may see them."""

import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware

from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
from ai_platform_engineering.knowledge_bases.rest_requests import LOCAL_KEY_HEADER
from ai_platform_engineering.runtime.server.authentication import BearerAuthMiddleware
from ai_platform_engineering.runtime.server.read_only import ReadOnlyMiddleware
from tests.knowledge_bases.test_rest_api import problem
from tests.support.harness import PLAIN, serve_app
from tests.support.knowledge import open_knowledge_base, write_files

SHARED, DELEGATE = "the-shared-key-of-tests", "the-delegate-key-of-tests"
DOCUMENTS = "/v1/datasources/wiki/documents"
GENERATIONS = "/v1/datasources/wiki/generations"


@contextlib.asynccontextmanager
async def push_server(
    home: Path, *, read_only: bool = False, **env: str
) -> AsyncIterator[tuple[httpx.AsyncClient, KnowledgeApi]]:
    """A server with both keys; the client has the shared one."""
    settings = Settings.from_variables(
        {"A2A_AUTH_SHARED_KEY": SHARED, "A2A_AUTH_DELEGATE_KEY": DELEGATE, **env}
    )
    async with open_knowledge_base(home) as kb:
        api = KnowledgeApi.from_settings(kb, settings.knowledge)
        middleware = [
            Middleware(BearerAuthMiddleware, settings=settings.server),
            Middleware(ReadOnlyMiddleware, read_only=lambda: read_only),
        ]
        async with (
            serve_app(Starlette(routes=api.routes(), middleware=middleware)) as url,
            httpx.AsyncClient(base_url=url, verify=PLAIN, timeout=120, headers=bearer(SHARED)) as http,
        ):
            yield http, api


def bearer(key: str, user: str | None = None) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {key}"}
    if user is not None:
        headers |= on_behalf_of_headers(user)
    return headers


async def create(http: httpx.AsyncClient, **more: Any) -> httpx.Response:
    return await http.post("/v1/datasources", json={"location": "push:wiki", **more})


async def push(http: httpx.AsyncClient, *documents: Any, **more: Any) -> list[tuple[str, str]]:
    response = await http.post(DOCUMENTS, json={"documents": documents, **more})
    assert response.status_code == 200, response.text
    return [(result["id"], result["status"]) for result in response.json()["results"]]


def doc(name: str, text: str = "", **more: Any) -> dict[str, Any]:
    return {"id": name, "text": text or f"# {name}\n\nAbout {name}.", **more}


async def titles(http: httpx.AsyncClient, query: str, headers: dict[str, str] | None = None) -> list[str]:
    response = await http.post("/v1/query", json={"query": query}, headers=headers)
    return sorted(result["title"] for result in response.json()["results"])


async def test_a_batch_is_stored_once_and_found_with_what_was_said_about_it(tmp_path: Path) -> None:
    page = base64.b64encode(b"<html><title>Old</title><main><p>Giraffes graze.</p></main></html>").decode()
    documents = [
        doc(
            "page-1",
            "The lever of the brakes.",
            title="Brakes",
            url="https://wiki.example/1",
            metadata={"team": "sre"},
        ),
        {"id": "page-2", "content": page, "media_type": "text/html", "updated_at": "2026-03-04T12:00:00Z"},
    ]
    async with push_server(tmp_path) as (http, _):
        created = await create(http, title="The wiki")
        first = await push(http, *documents)
        again = await push(http, *documents)
        changed = await push(http, {**documents[0], "metadata": {"team": "dev"}})
        (result,) = (await http.post("/v1/query", json={"query": "lever"})).json()["results"]
        document = (await http.get(f"/v1/documents/{result['document_id']}")).json()
        found = await titles(http, "giraffes")
        deleted = await push(http, delete=["page-1", "page-9"])
        remaining = (await http.get("/v1/datasources/wiki")).json()
        refreshed = await http.post("/v1/ingest", json={"datasource": "wiki"})
        all_of_them = await http.post("/v1/ingest", json={})
    assert created.status_code == 202
    assert (created.json()["job"], created.json()["datasource"]["kind"]) == (None, "push")
    assert first == [("page-1", "stored"), ("page-2", "stored")]
    assert again == [("page-1", "unchanged"), ("page-2", "unchanged")]
    assert changed == [("page-1", "stored")]
    assert (result["title"], result["link"]) == ("Brakes", "https://wiki.example/1")
    assert result["metadata"] == document["metadata"] == {"team": "dev"}
    assert found == ["Old"]
    assert deleted == [("page-1", "deleted"), ("page-9", "unknown")]
    assert (remaining["documents"], remaining["title"]) == (1, "The wiki")
    assert problem(refreshed) == (
        400,
        "wiki holds pushed documents: there is no source to refresh them from.",
    )
    assert all_of_them.json() == {"jobs": []}


async def test_a_document_that_cannot_be_stored_costs_only_itself(tmp_path: Path) -> None:
    async with push_server(tmp_path) as (http, _):
        await create(http)
        response = await http.post(
            DOCUMENTS,
            json={
                "documents": [
                    doc("good"),
                    {"id": "neither"},
                    {"id": "both", "text": "a", "content": "Yg=="},
                    {"id": "no base64", "content": "%%%", "media_type": "text/plain"},
                    doc("link", url="javascript:alert(1)"),
                    doc("nobody", visible_to=[]),
                    doc("blank name", visible_to=[" ann"]),
                    doc("nul", metadata={"a": "\0"}),
                    {"id": "extra", "text": "a", "owner": "ann"},
                    {"text": "no id"},
                    "no object",
                    {"id": "broken.pdf", "content": "JVBERi0=", "media_type": "application/pdf"},
                ]
            },
        )
        assert await titles(http, "good") == ["good"]
    results = response.json()["results"]
    assert [result["status"] for result in results] == ["stored"] + ["failed"] * 11
    assert all(result["reason"] for result in results[1:])
    assert results[5]["reason"].startswith("visible_to is empty.")


async def test_a_generation_replaces_everything(tmp_path: Path) -> None:
    async with push_server(tmp_path) as (http, _):
        await create(http)
        await push(http, doc("old"), doc("kept"), doc("failing"))
        begun = await http.post(GENERATIONS)
        generation = begun.json()["generation"]
        empty = await http.post(f"{GENERATIONS}/{generation}/finish")
        await push(http, doc("kept"), generation=generation)
        await push(http, doc("new"), {"id": "failing", "text": "a", "content": "b"})
        assert await titles(http, "old kept new failing") == ["failing", "kept", "new", "old"]
        finished = await http.post(f"{GENERATIONS}/{generation}/finish")
        left = await titles(http, "old kept new failing")
        late = await http.post(DOCUMENTS, json={"documents": [doc("late")], "generation": generation})
        twice = await http.post(f"{GENERATIONS}/{generation}/finish")
    assert begun.status_code == 201
    assert problem(empty)[0] == 409
    assert finished.json() == {"removed": 1}
    assert left == ["failing", "kept", "new"]
    assert (problem(late)[0], problem(twice)[0]) == (409, 409)


async def test_an_open_generation_survives_a_restart(tmp_path: Path) -> None:
    async with push_server(tmp_path) as (http, _):
        await create(http)
        await push(http, doc("old"))
        generation = (await http.post(GENERATIONS)).json()["generation"]
        await push(http, doc("new"))
    async with push_server(tmp_path) as (http, _):
        await create(http)  # as an ingestor does at its start
        finished = await http.post(f"{GENERATIONS}/{generation}/finish")
        assert finished.json() == {"removed": 1}
        assert await titles(http, "old new") == ["new"]


async def test_batches_have_limits_and_need_a_datasource_for_them(tmp_path: Path) -> None:
    docs = write_files(tmp_path / "docs", guide="# Guide\n\nText.\n")
    limits = {"RAG_PUSH_MAX_BYTES": "1000", "RAG_PUSH_MAX_DOCUMENTS": "2", "RAG_INGEST_FOLDERS": str(docs)}
    async with push_server(tmp_path, **limits) as (http, _):
        unknown = await http.post(DOCUMENTS, json={"documents": []})
        await create(http)
        many = await http.post(DOCUMENTS, json={"documents": [doc("a"), doc("b")], "delete": ["c"]})
        large = await http.post(DOCUMENTS, json={"documents": [doc("a", "x" * 1000)]})
        await http.post("/v1/datasources", json={"location": str(docs)})
        other = await http.post("/v1/datasources/docs/documents", json={"documents": [doc("a")]})
        taken = await http.post("/v1/datasources", json={"location": "push:docs"})
        scheduled = await create(http, every="6h")
        without_key = await http.post(DOCUMENTS, json={"documents": []}, headers={"Authorization": ""})
    assert problem(unknown)[0] == 404
    assert "RAG_PUSH_MAX_DOCUMENTS" in problem(many)[1]
    assert problem(large) == (400, "The request is larger than 1000 bytes.")
    assert "is read from folder" in problem(other)[1]
    assert "Use another name." in problem(taken)[1]
    assert "not refreshed" in problem(scheduled)[1]
    assert without_key.status_code == 401


async def test_nothing_is_pushed_while_nothing_may_be_changed(tmp_path: Path) -> None:
    async with push_server(tmp_path, read_only=True) as (http, _):
        for method, path in (
            ("POST", DOCUMENTS),
            ("POST", GENERATIONS),
            ("POST", f"{GENERATIONS}/x/finish"),
            ("PUT", "/v1/groups/sre"),
            ("DELETE", "/v1/groups/sre"),
            ("PATCH", "/v1/datasources/wiki"),
        ):
            assert (await http.request(method, path, json={})).status_code == 403


# --- who may see them ---------------------------------------------------------------------------------------


async def test_people_find_their_own_documents_over_rest(tmp_path: Path) -> None:
    ann, bob = bearer(DELEGATE, "ann"), bearer(DELEGATE, "bob")
    async with push_server(tmp_path) as (http, api):
        await create(http)
        manage = bearer(DELEGATE)
        assert (
            await http.put("/v1/groups/sre", json={"members": ["bob"]}, headers=manage)
        ).status_code == 204
        await push(
            http,
            doc("open", title="Open"),
            doc("anns", "About open things.", title="Anns", visible_to=["ann"]),
            doc("sres", "About open things.", title="Sres", visible_to=["group:sre"]),
        )
        assert await titles(http, "open") == ["Open"]
        assert await titles(http, "open", bearer(DELEGATE)) == ["Open"]
        assert await titles(http, "open", ann) == ["Anns", "Open"]
        assert await titles(http, "open", bob) == ["Open", "Sres"]
        assert await titles(http, "open", bearer(DELEGATE, "group:sre")) == ["Open"]
        local = {LOCAL_KEY_HEADER: api.local_key}
        assert await titles(http, "open", local) == ["Anns", "Open", "Sres"]
        answer = await http.post("/v1/query", json={"query": "open"}, headers=ann)
        (anns,) = [result for result in answer.json()["results"] if result["title"] == "Anns"]
        path = f"/v1/documents/{anns['document_id']}"
        hidden = await http.get(path, headers=bob)
        unknown = await http.get("/v1/documents/0000", headers=bob)
        assert (await http.get(path, headers=ann)).status_code == 200
    assert hidden.status_code == unknown.status_code == 404
    assert problem(hidden)[1].replace(anns["document_id"], "0000") == problem(unknown)[1]


async def test_only_who_may_speak_for_all_changes_who_sees_what(tmp_path: Path) -> None:
    manage = bearer(DELEGATE)
    async with push_server(tmp_path) as (http, _):
        await create(http, visible_to=["ann"])
        await http.post(DOCUMENTS, json={"documents": [doc("plan")]}, headers=manage)
        members = {"members": ["shared-key"]}
        refused = [
            await http.put("/v1/groups/sre", json=members),
            await http.put("/v1/groups/sre", json=members, headers=bearer(DELEGATE, "bob")),
            await http.get("/v1/groups"),
        ]
        not_there = [
            await http.get("/v1/datasources/wiki"),
            await http.patch("/v1/datasources/wiki", json={"visible_to": None}),
            await http.delete("/v1/datasources/wiki"),
            await http.post(DOCUMENTS, json={"documents": [doc("mine")]}),
            await http.post("/v1/query", json={"query": "plan", "datasource": "wiki"}),
        ]
        added_again = await create(http)
        anns = await http.get("/v1/datasources/wiki", headers=bearer(DELEGATE, "ann"))
        anns_change = await http.patch(
            "/v1/datasources/wiki", json={"visible_to": None}, headers=bearer(DELEGATE, "ann")
        )
        changed = await http.patch(
            "/v1/datasources/wiki", json={"visible_to": ["bob", "group:sre"]}, headers=manage
        )
        group_in_group = await http.put("/v1/groups/sre", json={"members": ["group:dev"]}, headers=manage)
        assert await titles(http, "plan", bearer(DELEGATE, "ann")) == []
        assert await titles(http, "plan", bearer(DELEGATE, "bob")) == ["plan"]
        await http.patch("/v1/datasources/wiki", json={"visible_to": None}, headers=manage)
        assert await titles(http, "plan") == ["plan"]
    assert [response.status_code for response in refused] == [403, 403, 403]
    assert [response.status_code for response in not_there] == [404] * 5
    assert problem(added_again)[0] == 400
    assert anns.json()["restricted"] is True
    assert "visible_to" not in anns.json()
    assert anns_change.status_code == 403
    assert changed.json()["visible_to"] == ["bob", "group:sre"]
    assert problem(group_in_group) == (400, "Groups cannot be nested: the members of a group are people.")
