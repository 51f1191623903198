"""Entities of a Backstage catalogue come in with owners and relations, and follow changes and deletions."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import ConfigurationError, Refused
from tests.support.connectors import RecordedWaits, build_connectors
from tests.support.fakes.api_stand_in import ApiStandIn, Failure, serve_api
from tests.support.knowledge import (
    add_datasource,
    job_counts,
    open_knowledge_base,
    refresh_datasource,
    search_titles,
)

TOKEN = "token-of-a-reader"


class Catalogue(ApiStandIn):
    """The query of Backstage's catalogue, two entities on a page."""

    def __init__(self) -> None:
        super().__init__(f"Bearer {TOKEN}")
        self.entities: dict[str, dict[str, Any]] = {}

    def put(self, kind: str, name: str, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        relations = more.pop("relations", [])
        metadata = {"name": name, "namespace": "default", **more}
        entity = {"kind": kind, "metadata": metadata, "spec": spec or {}, "relations": relations}
        self.entities[f"{kind}/{name}"] = entity
        return entity

    def routes(self) -> Sequence[Route]:
        return [Route("/api/catalog/entities/by-query", self._query)]

    async def _query(self, request: Request) -> Response:
        kind = request.query_params.get("filter", "").removeprefix("kind=")
        start, _, kept_kind = request.query_params.get("cursor", "0:").partition(":")
        kind = kind or kept_kind
        entities = [value for value in self.entities.values() if not kind or value["kind"].lower() == kind]
        end = int(start) + 2
        info = {"nextCursor": f"{end}:{kind}"} if end < len(entities) else {}
        return JSONResponse({"items": entities[int(start) : end], "pageInfo": info})


@pytest.fixture
async def catalogue() -> AsyncIterator[Catalogue]:
    stand_in = Catalogue()
    stand_in.put(
        "Component",
        "payments",
        {"type": "service", "lifecycle": "production", "owner": "group:default/zebras", "system": "billing"},
        title="Payments",
        description="Takes money from giraffes.",
        tags=["java"],
        annotations={"backstage.io/techdocs-ref": "dir:."},
        relations=[{"type": "dependsOn", "targetRef": "resource:default/ledger-db"}],
    )
    stand_in.put("Component", "shop", {"type": "website"})
    stand_in.put("API", "ledger", {"definition": "openapi: 3.0.0 # okapi"})
    async with serve_api(stand_in) as running:
        yield running


def variables(catalogue: Catalogue) -> dict[str, str]:
    return {"BACKSTAGE_URL": catalogue.url, "BACKSTAGE_API_TOKEN": TOKEN}


async def test_an_entity_is_a_document(tmp_path: Path, catalogue: Catalogue) -> None:
    portal = {**variables(catalogue), "BACKSTAGE_APP_URL": "https://portal.example/"}
    async with open_knowledge_base(tmp_path, connectors=build_connectors(portal)) as kb:
        assert job_counts(await add_datasource(kb, "backstage:all")) == ("done", 3, 0, 0, 0)
        (result,) = await kb.search("giraffes money")
        excerpt = await kb.fetch_document(result.document_id)
        assert await search_titles(kb, "okapi") == ["ledger (API)"]
    assert (result.title, result.metadata["owner"]) == ("Payments (Component)", "group:default/zebras")
    assert result.link == "https://portal.example/catalog/default/component/payments"
    assert "- system: billing" in excerpt.text
    assert "- dependsOn resource:default/ledger-db" in excerpt.text
    techdocs = "https://portal.example/docs/default/component/payments"
    assert f"- documentation (TechDocs): {techdocs}" in excerpt.text


async def test_changes_relations_and_deletions_are_followed(tmp_path: Path, catalogue: Catalogue) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(catalogue))) as kb:
        await add_datasource(kb, "backstage:all", name="catalogue")
        assert job_counts(await refresh_datasource(kb, "catalogue")) == ("done", 0, 3, 0, 0)
        catalogue.entities["Component/shop"]["relations"] = [
            {"type": "ownedBy", "targetRef": "group:default/wombats"}
        ]
        del catalogue.entities["API/ledger"]
        assert job_counts(await refresh_datasource(kb, "catalogue")) == ("done", 1, 1, 1, 0)
        assert await search_titles(kb, "wombats") == ["shop (Component)"]
        assert await search_titles(kb, "okapi") == []
        catalogue.fail(Failure(500, path="by-query", times=50))
        assert (await refresh_datasource(kb, "catalogue")).state == "failed"
        assert await search_titles(kb, "wombats") == ["shop (Component)"]


async def test_a_filter_selects_and_rate_limits_are_waited_for(tmp_path: Path, catalogue: Catalogue) -> None:
    waits = RecordedWaits()
    catalogue.put("Component", "third")
    catalogue.fail(Failure(429, {"Retry-After": "7"}, path="by-query"))
    connectors = build_connectors(variables(catalogue), waits=waits)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        assert job_counts(await add_datasource(kb, "backstage:kind=component"))[:2] == ("done", 3)
    assert len(waits.seconds) == 1
    assert waits.seconds[0] >= 7


def test_what_is_no_filter_is_refused() -> None:
    with pytest.raises(Refused):
        build_connectors({"BACKSTAGE_URL": "https://b.test"})["backstage"].create("a b&c", {})
    with pytest.raises(ConfigurationError, match="BACKSTAGE_URL"):
        build_connectors({})["backstage"].create("all", {})
