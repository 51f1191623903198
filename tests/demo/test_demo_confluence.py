"""The stand-in for Confluence answers as Confluence Data Center's REST API does: CQL, versions, limits."""

from typing import Any

import httpx
import pytest

from ai_platform_engineering.demo.atlassian.api_access import find_demo_user
from ai_platform_engineering.demo.confluence import state as confluence_state
from ai_platform_engineering.demo.confluence.app import DEMO_TOKEN, create_app
from ai_platform_engineering.demo.confluence.runbooks import list_runbook_documents
from ai_platform_engineering.demo.confluence.sample_pages import build_confluence_state
from ai_platform_engineering.demo.confluence.state import ConfluenceState, ContentPage
from ai_platform_engineering.demo.estate.estate import Estate, build_estate
from ai_platform_engineering.demo.jira.sample_tickets import find_key_tickets
from tests.demo.test_estate import Clock

API = "/rest/api"
OUTDATED = "Emergency guide for checkout"


def client(
    estate: Estate, state: ConfluenceState | None = None, token: str = DEMO_TOKEN
) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(estate, state)),
        base_url="http://confluence",
        headers={"Authorization": f"Bearer {token}"},
    )


def find_page(state: ConfluenceState, space: str, title: str) -> ContentPage:
    page = state.find_page_by_title(space, title)
    assert page is not None
    return page


def storage(body: str) -> dict[str, Any]:
    return {"storage": {"value": body, "representation": "storage"}}


async def search_titles(http: httpx.AsyncClient, cql: str) -> list[str]:
    response = await http.get(f"{API}/search", params={"cql": cql})
    return [result["title"] for result in response.json()["results"]]


@pytest.mark.parametrize("seed", [1, 2, 77])
async def test_pages_tell_the_same_story_as_the_company_for_every_seed(seed: int) -> None:
    estate = build_estate(seed, Clock())
    release = estate.company.failing_release
    on_call = release.service.team.on_call
    tickets = find_key_tickets(estate.company)
    parameters = {"spaceKey": "STORE", "title": "Runbook: checkout", "expand": "body.storage,version,history"}
    async with client(estate) as http:
        [runbook] = (await http.get(f"{API}/content", params=parameters)).json()["results"]
        settings = {"spaceKey": "ENG", "title": "Settings of services", "expand": "body.storage,version"}
        [page] = (await http.get(f"{API}/content", params=settings)).json()["results"]
        process = await search_titles(http, f"text ~ {tickets.release}")
    body = runbook["body"]["storage"]["value"]
    assert "<h2>Roll back</h2>" in body
    assert f"{on_call.name} ({on_call.email})" in body
    assert release.new_setting in page["body"]["storage"]["value"]
    assert page["version"]["by"]["username"] == release.author.login
    assert process == ["Release process"]


@pytest.mark.parametrize("seed", [3, 21])
def test_runbooks_are_documents_for_the_knowledge_base(seed: int) -> None:
    company = build_estate(seed, Clock()).company
    documents = {document.title: document.text for document in list_runbook_documents(company)}
    on_call = company.failing_release.service.team.on_call
    assert set(documents) == {f"Runbook: {service.name}" for service in company.services} | {OUTDATED}
    assert documents["Runbook: checkout"].startswith("# Runbook: checkout\n\nWhat to do when checkout fails.")
    assert "## Roll back\n\n1. Find the previous deployment" in documents["Runbook: checkout"]
    assert on_call.email in documents["Runbook: checkout"]
    assert "Last changed: 2025-01-16" in documents[OUTDATED]


QUERIES = {
    'siteSearch ~ "why is checkout failing"': ["Runbook: checkout", OUTDATED, "Runbook: storefront"],
    "type = page AND label = runbook AND space = PAY ORDER BY title": [
        "Runbook: ledger",
        "Runbook: payments",
    ],
    'title ~ "emergency*" AND space.key IN (STORE, ENG)': [OUTDATED],
    'title = "on-call handbook"': ["On-call handbook"],
    "type = space ORDER BY title DESC": ["Store", "Platform", "Payments", "Engineering"],
    'type = comment AND text ~ "still right"': [f"Re: {OUTDATED}"],
    "lastModified < now('-52w') AND type = page": [OUTDATED],
    'text ~ "\\"memory limit\\"" AND label != architecture': [OUTDATED],
    "space = NOPE": [],
}


@pytest.mark.parametrize("cql", QUERIES)
async def test_a_query_selects_and_orders_content(cql: str) -> None:
    async with client(build_estate(4, Clock())) as http:
        assert await search_titles(http, cql) == QUERIES[cql]


REFUSED_QUERIES = {
    "watcher = currentUser()": "Field 'watcher' does not exist",
    "type = dashboard": "The value 'dashboard' does not exist for the field 'type'.",
    "text = checkout": "The operator '=' is not supported by the 'text' field.",
    "creator = nobody": "The value 'nobody' does not exist for the field 'creator'.",
    "lastModified > lastTuesday()": "Unable to find the function 'lastTuesday()'.",
    "title ~": "Expecting a value or a function before the end of the query.",
    "": "the parameter cql is missing",
}


@pytest.mark.parametrize("cql", REFUSED_QUERIES)
async def test_a_query_that_is_not_understood_is_refused_in_confluences_shape(cql: str) -> None:
    async with client(build_estate(4, Clock())) as http:
        response = await http.get(f"{API}/search", params={"cql": cql})
    body = response.json()
    assert (response.status_code, body["statusCode"]) == (400, 400)
    assert body["message"].startswith("Could not parse cql : ")
    assert REFUSED_QUERIES[cql] in body["message"]


async def test_results_come_in_pages_that_name_the_next_one() -> None:
    async with client(build_estate(4, Clock())) as http:
        titles = [await search_titles(http, "type = page ORDER BY title")]
        url: str | None = f"{API}/search?cql=type%20%3D%20page%20ORDER%20BY%20title&limit=5"
        paged: list[str] = []
        while url:
            body = (await http.get(url)).json()
            paged += [result["title"] for result in body["results"]]
            assert body["totalSize"] == len(titles[0])
            url = body["_links"].get("next")
    assert paged == titles[0]
    assert len(paged) > 10


async def test_the_tree_of_a_space_and_what_is_expanded() -> None:
    estate = build_estate(4, Clock())
    state = build_confluence_state(estate.company)
    home = state.spaces["STORE"].homepage_id
    page = find_page(state, "STORE", OUTDATED)
    async with client(estate, state) as http:
        children = (await http.get(f"{API}/content/{home}/child/page")).json()["results"]
        plain = (await http.get(f"{API}/content/{page.id}")).json()
        expand = "body.storage,version,history,space,ancestors,metadata.labels,children.comment"
        full = (await http.get(f"{API}/content/{page.id}", params={"expand": expand})).json()
        comments = (await http.get(f"{API}/content/{page.id}/child/comment")).json()["results"]
        comment = (await http.get(f"{API}/content/{comments[0]['id']}")).json()
        attachments = (await http.get(f"{API}/content/{page.id}/child/attachment")).json()
    assert [child["title"] for child in children] == ["Architecture of Store", "Runbooks of Store"]
    assert not {"body", "version", "history", "space", "ancestors"} & set(plain)
    assert [ancestor["title"] for ancestor in full["ancestors"]] == ["Store", "Runbooks of Store"]
    assert full["history"]["createdDate"].startswith("2025-01-16")
    assert [label["name"] for label in full["metadata"]["labels"]["results"]] == ["runbook", "checkout"]
    assert "no database" in comments[0]["body"]["view"]["value"]
    assert comment["container"]["id"] == page.id
    assert attachments["results"] == []


async def test_a_page_is_created_updated_commented_and_labelled_with_versions() -> None:
    clock = Clock()
    estate = build_estate(4, clock)
    state = build_confluence_state(estate.company)
    body = {
        "type": "page",
        "title": "Review",
        "space": {"key": "STORE"},
        "body": storage("<p>A &amp; B&nbsp;</p>"),
    }
    async with client(estate, state) as http:
        created = (await http.post(f"{API}/content", json=body)).json()
        same_title = await http.post(f"{API}/content", json=body)
        path = f"{API}/content/{created['id']}"
        clock.advance(60)
        new = {"title": "Review", "body": storage("<p>New</p>"), "version": {"number": 2, "message": "why"}}
        updated = await http.put(path, json=new)
        stale = await http.put(path, json=new)
        comment = {"type": "comment", "container": {"id": created["id"]}, "body": storage("<p>Good</p>")}
        commented = await http.post(f"{API}/content/", json=comment)
        labels = (await http.post(f"{path}/label", json=[{"name": "Review"}])).json()["results"]
        bad_label = await http.post(f"{path}/label", json={"name": "two words"})
        old = (await http.get(path, params={"version": "1", "expand": "body.storage"})).json()
        history = (await http.get(f"{path}/history")).json()
        own_pages = await search_titles(
            http, "creator = currentUser() AND lastModified >= -1h AND type = page"
        )
    page = state.pages[created["id"]]
    assert page.parent_id == state.spaces["STORE"].homepage_id
    assert (same_title.status_code, updated.status_code, stale.status_code) == (400, 200, 409)
    assert (commented.status_code, bad_label.status_code) == (200, 400)
    assert [label["name"] for label in labels] == ["review"]
    assert (old["status"], old["body"]["storage"]["value"]) == ("historical", "<p>A &amp; B&nbsp;</p>")
    assert history["lastUpdated"]["number"] == 2
    assert history["lastUpdated"]["by"]["username"] == find_demo_user(estate.company).login
    assert (page.current.text, page.current.message) == ("New", "why")
    assert [comment.text for comment in page.comments] == ["Good"]
    assert own_pages == ["Review"]


@pytest.mark.parametrize(
    "body", ["<p>open", "a < b", "<p>&unknown;</p>", "<b>" * 3000 + "</b>" * 3000, "<ac:x></ac:y>"]
)
async def test_a_body_that_is_not_well_formed_is_refused(body: str) -> None:
    estate = build_estate(4, Clock())
    page = {"type": "page", "title": "Broken", "space": {"key": "STORE"}, "body": storage(body)}
    async with client(estate) as http:
        response = await http.post(f"{API}/content", json=page)
    assert response.status_code == 400
    assert response.json()["message"].startswith("Error parsing xhtml: ")


async def test_a_page_cannot_be_moved_below_itself_and_home_pages_stay() -> None:
    estate = build_estate(4, Clock())
    state = build_confluence_state(estate.company)
    runbooks = find_page(state, "STORE", "Runbooks of Store")
    child = find_page(state, "STORE", "Runbook: cart")
    home = state.spaces["STORE"].homepage_id
    move = {"title": "Runbooks of Store", "version": {"number": 2}, "ancestors": [{"id": child.id}]}
    async with client(estate, state) as http:
        moved = await http.put(f"{API}/content/{runbooks.id}", json=move)
        deleted_home = await http.delete(f"{API}/content/{home}")
        deleted = await http.delete(f"{API}/content/{runbooks.id}")
    assert (moved.status_code, deleted_home.status_code, deleted.status_code) == (400, 400, 204)
    assert child.parent_id == home


async def test_who_has_no_token_and_what_does_not_exist_is_refused() -> None:
    estate = build_estate(4, Clock())
    page = {"type": "page", "title": "New", "space": {"key": "NOPE"}, "body": storage("<p>x</p>")}
    async with client(estate) as http, client(estate, token="wrong") as stranger:
        refused = await stranger.get(f"{API}/space")
        statuses = [
            (await http.get(f"{API}/content/1")).status_code,
            (await http.get(f"{API}/content", params={"spaceKey": "NOPE"})).status_code,
            (await http.get(f"{API}/audit")).status_code,
            (await http.post(f"{API}/content", json=page)).status_code,
            (await http.post(f"{API}/content", json={"type": "blogpost"})).status_code,
            (await http.post(f"{API}/content", content=b"[")).status_code,
        ]
    assert (refused.status_code, refused.json()["reason"]) == (401, "Unauthorized")
    assert statuses == [404, 404, 404, 404, 400, 400]


async def test_what_is_stored_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    estate = build_estate(4, Clock())
    state = build_confluence_state(estate.company)
    page = find_page(state, "STORE", "Runbook: cart")
    path = f"{API}/content/{page.id}"
    monkeypatch.setattr(confluence_state, "MAX_VERSIONS", 2)
    monkeypatch.setattr(confluence_state, "MAX_COMMENTS", 1)
    monkeypatch.setattr(confluence_state, "MAX_LABELS", 2)
    monkeypatch.setattr(confluence_state, "MAX_PAGES", len(state.pages))
    new = {"type": "page", "title": "New", "space": {"key": "STORE"}, "body": storage("<p>x</p>")}
    comment = {"type": "comment", "container": {"id": page.id}, "body": storage("<p>x</p>")}
    async with client(estate, state) as http:
        for number in (2, 3, 4):
            update = {
                "title": "Runbook: cart",
                "version": {"number": number},
                "body": storage(f"<p>{number}</p>"),
            }
            await http.put(path, json=update)
        lost = await http.get(path, params={"version": "2"})
        created = await http.post(f"{API}/content", json=new)
        comments = [await http.post(f"{API}/content", json=comment) for _ in range(2)]
        label = await http.post(f"{path}/label", json={"name": "third"})
        too_long = await http.post(f"{API}/content", json=new | {"body": storage("x" * 200_001)})
        prop = await http.post(f"{path}/property", json={"key": "large", "value": "x" * 20_000})
        monkeypatch.setattr(confluence_state, "MAX_STORED_LENGTH", 10)
        full = await http.post(f"{API}/content", json=comment)
    assert [version.text for version in page.versions] == ["3", "4"]
    assert (lost.status_code, created.status_code) == (404, 400)
    assert [response.status_code for response in comments] == [200, 400]
    assert (label.status_code, too_long.status_code, prop.status_code) == (400, 413, 413)
    assert full.json()["message"] == "This Confluence stores at most 10 characters."
