"""The stand-in for Jira answers as Jira Data Center's REST API does: JQL, changes, changelogs, limits."""

import base64
from typing import Any

import httpx
import pytest

from ai_platform_engineering.demo.atlassian.api_access import MAX_BODY_BYTES, find_demo_user
from ai_platform_engineering.demo.estate.estate import Estate, build_estate
from ai_platform_engineering.demo.estate.stand_in import FaultMiddleware, Faults, FaultSwitch
from ai_platform_engineering.demo.jira import state as jira_state
from ai_platform_engineering.demo.jira.app import DEMO_TOKEN, create_app
from ai_platform_engineering.demo.jira.sample_tickets import build_jira_state, find_key_tickets
from ai_platform_engineering.demo.jira.state import JiraState
from tests.demo.test_estate import Clock

API = "/rest/api/2"


def client(estate: Estate, state: JiraState | None = None, token: str = DEMO_TOKEN) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(estate, state)),
        base_url="http://jira",
        headers={"Authorization": f"Bearer {token}"},
    )


async def search(http: httpx.AsyncClient, jql: str, **parameters: str) -> Any:
    response = await http.get(f"{API}/search", params={"jql": jql, **parameters})
    return response.json()


async def search_summaries(http: httpx.AsyncClient, jql: str) -> list[str]:
    return [issue["fields"]["summary"] for issue in (await search(http, jql))["issues"]]


@pytest.mark.parametrize("seed", [1, 2, 77])
async def test_tickets_tell_the_same_story_as_the_company_for_every_seed(seed: int) -> None:
    estate = build_estate(seed, Clock())
    release = estate.company.failing_release
    tickets = find_key_tickets(estate.company)
    async with client(estate) as http:
        releases = await search(http, f'fixVersion = "checkout {release.service.version}"')
        rename = (await http.get(f"{API}/issue/{tickets.rename}")).json()["fields"]
        earlier = (await http.get(f"{API}/issue/{tickets.earlier_failure}")).json()["fields"]
        failures = await search(http, "text ~ checkout AND type = Bug AND statusCategory != Done")
    [issue] = releases["issues"]
    assert issue["key"] == tickets.release
    assert issue["fields"]["assignee"]["emailAddress"] == release.author.email
    assert release.new_setting in issue["fields"]["description"]
    assert tickets.rename in issue["fields"]["description"]
    assert rename["summary"] == f"Rename the setting {release.old_setting} to {release.new_setting}"
    assert rename["issuelinks"][0]["inwardIssue"]["key"] == tickets.release
    assert (earlier["status"]["name"], earlier["resolution"]["name"]) == ("Done", "Done")
    assert failures["total"] == 0  # nobody has reported the current failure yet


def test_keys_of_a_project_grow_with_time() -> None:
    state = build_jira_state(build_estate(8, Clock()).company)
    for project in state.projects:
        issues = [issue for issue in state.issues.values() if issue.project.key == project]
        by_number = sorted(issues, key=lambda issue: issue.number)
        assert by_number == sorted(issues, key=lambda issue: issue.created)


QUERIES = {
    "project = STORE AND status = 'In Review'": ["Basket keeps articles that are sold out"],
    "project in (PAY, PLAT) AND priority >= High AND resolution = Unresolved ORDER BY key": [
        "Receipts of refunds are sent twice",
        "Alert when a deployment is degraded for ten minutes",
    ],
    "assignee = currentUser() ORDER BY created ASC": [
        "Alert when a deployment is degraded for ten minutes",
        "Update the base image of inventory",
    ],
    "labels = incident AND resolved < -5d AND project = STORE": [
        "checkout fails: the payment provider answers too late"
    ],
    'text ~ "failing checkout"': ["checkout fails: the payment provider answers too late"],
    'text ~ "\\"base image\\"" AND created >= -1w': ["Update the base image of inventory"],
    "summary ~ refund* AND NOT status = Done ORDER BY created": [
        "Refunds above the daily limit fail without a message",
        "Receipts of refunds are sent twice",
    ],
    "assignee IS EMPTY AND component = payments": ["Refunds above the daily limit fail without a message"],
    "(type = Epic OR parent IS NOT EMPTY) AND created > startOfYear(-1)": ["Order in one page"],
    "labels NOT IN (security, alerting) AND project = Platform AND statusCategory = 'To Do'": [
        "Check manifests for settings that the code requires"
    ],
    "updated >= '2026-03-03 12:00' AND project = PAY": [],
}


@pytest.mark.parametrize("jql", QUERIES)
async def test_a_query_selects_and_orders_issues(jql: str) -> None:
    async with client(build_estate(4, Clock())) as http:
        assert await search_summaries(http, jql) == QUERIES[jql]


REFUSED_QUERIES = {
    "sprint = 3": "Field 'sprint' does not exist or you do not have permission to view it.",
    "project = OPS": "The value 'OPS' does not exist for the field 'project'.",
    "assignee = nobody": "The value 'nobody' does not exist for the field 'assignee'.",
    "project ~ STORE": "The operator '~' is not supported by the 'project' field.",
    "summary = checkout": "The operator '=' is not supported by the 'summary' field.",
    "assignee = membersOf(x)": "Unable to find the function 'membersOf()'.",
    "status WAS Done": "Error in the JQL Query: The operator 'WAS' is not supported here.",
    "project STORE": "but got 'STORE'. (line 1, character 9)",
    "project = STORE AND": "Expecting a field name before the end of the query.",
    "(project = STORE": "Expecting ')' before the end of the query.",
    "project = STORE status = Done": "Expecting either 'OR' or 'AND' but got 'status'.",
    "created > yesterday": "Date value 'yesterday' is invalid.",
    "created > 9999y": "Date value '9999y' is out of range.",
    "ORDER BY description": "Field 'description' does not support sorting.",
    "text ~ 'open": "The character ''' was not expected at character 8",
    "(" * 60 + "project = STORE" + ")" * 60: "nested deeper than 40 levels",
    "text ~ '" + "word " * 31 + "'": "A text search has at most 30 words.",
    "text ~ '" + "x" * 10_000 + "'": "longer than 10000 characters",
}


@pytest.mark.parametrize("jql", REFUSED_QUERIES, ids=range(len(REFUSED_QUERIES)))
async def test_a_query_that_is_not_understood_is_refused_in_jiras_shape(jql: str) -> None:
    async with client(build_estate(4, Clock())) as http:
        response = await http.get(f"{API}/search", params={"jql": jql})
        posted = await http.post(f"{API}/search", json={"jql": jql})
    [message] = response.json()["errorMessages"]
    assert (response.status_code, posted.status_code) == (400, 400)
    assert REFUSED_QUERIES[jql] in message
    assert response.json()["errors"] == {}


async def test_results_come_in_pages_with_the_fields_that_were_asked_for() -> None:
    async with client(build_estate(4, Clock())) as http:
        everything = await search(http, "ORDER BY key")
        page = await search(http, "ORDER BY key", startAt="2", maxResults="3", fields="summary,status")
        body = {"jql": "ORDER BY key", "startAt": 2, "maxResults": 3, "fields": ["summary", "status"]}
        posted = (await http.post(f"{API}/search", json=body)).json()
        refused = await http.get(f"{API}/search", params={"maxResults": "-1"})
    keys = [issue["key"] for issue in everything["issues"]]
    assert [issue["key"] for issue in page["issues"]] == keys[2:5]
    assert page == posted
    assert (page["startAt"], page["maxResults"], page["total"]) == (2, 3, len(keys))
    assert {name for issue in page["issues"] for name in issue["fields"]} == {"summary", "status"}
    assert "comment" not in everything["issues"][0]["fields"]
    assert refused.status_code == 400


async def test_an_issue_is_created_edited_moved_and_commented_with_a_changelog() -> None:
    clock = Clock()
    estate = build_estate(4, clock)
    person = estate.company.people[1]
    fields = {
        "project": {"key": "STORE"},
        "summary": "checkout crashes",
        "issuetype": {"name": "Bug"},
        "labels": ["incident"],
        "components": [{"name": "checkout"}],
    }
    async with client(estate) as http:
        created = await http.post(f"{API}/issue", json={"fields": fields})
        path = f"{API}/issue/{created.json()['key']}"
        clock.advance(60)
        update = {"labels": [{"add": "urgent"}], "comment": [{"add": {"body": "Look."}}]}
        edited = await http.put(path, json={"fields": {"priority": {"name": "Highest"}}, "update": update})
        assigned = await http.put(f"{path}/assignee", json={"name": person.login})
        available = (await http.get(f"{path}/transitions")).json()["transitions"]
        done = {"transition": {"id": "51"}, "fields": {"resolution": {"name": "Duplicate"}}}
        moved = await http.post(f"{path}/transitions", json=done)
        again = await http.post(f"{path}/transitions", json={"transition": {"id": "11"}})
        comment = (await http.post(f"{path}/comment", json={"body": "First"})).json()
        await http.put(f"{path}/comment/{comment['id']}", json={"body": "Second"})
        issue = (await http.get(path, params={"expand": "changelog"})).json()
        newest = await search(http, "project = STORE", maxResults="1")
    user = find_demo_user(estate.company)
    new_fields = issue["fields"]
    changes = [
        (item["field"], item["fromString"], item["toString"])
        for history in issue["changelog"]["histories"]
        for item in history["items"]
    ]
    statuses = [response.status_code for response in (created, edited, assigned, moved, again)]
    assert statuses == [201, 204, 204, 204, 400]
    assert [transition["to"]["name"] for transition in available] == ["In Progress", "Done"]
    assert "illegal workflow operation" in again.json()["errorMessages"][0]
    assert changes == [
        ("priority", "Medium", "Highest"),
        ("labels", "incident", "incident urgent"),
        ("assignee", "", person.login),
        ("status", "To Do", "Done"),
        ("resolution", "", "Duplicate"),
    ]
    assert new_fields["reporter"]["name"] == user.login
    assert [entry["body"] for entry in new_fields["comment"]["comments"]] == ["Look.", "Second"]
    assert new_fields["resolutiondate"] == "2026-03-04T12:01:00.000+0000"
    assert newest["issues"][0]["key"] == issue["key"]


async def test_a_field_that_cannot_be_set_is_named_and_nothing_is_changed() -> None:
    estate = build_estate(4, Clock())
    state = build_jira_state(estate.company)
    keys = set(state.issues)
    fields = {
        "project": {"key": "STORE"},
        "summary": " ",
        "issuetype": {"name": "Wish"},
        "assignee": {"name": "nobody"},
        "labels": ["two words"],
        "components": [{"name": "ledger"}],
        "color": "red",
    }
    async with client(estate, state) as http:
        refused = await http.post(f"{API}/issue", json={"fields": fields})
        no_project = await http.post(f"{API}/issue", json={"fields": {"project": {"key": "OPS"}}})
        required = await http.post(f"{API}/issue", json={"fields": {"project": {"key": "PAY"}}})
        subtask = {"project": {"key": "PAY"}, "summary": "x", "issuetype": {"name": "Sub-task"}}
        no_parent = await http.post(f"{API}/issue", json={"fields": subtask})
    errors = refused.json()["errors"]
    assert refused.status_code == 400
    assert set(errors) == {"summary", "issuetype", "assignee", "labels", "components", "color"}
    assert errors["labels"] == "The label 'two words' contains spaces which is invalid."
    assert no_project.json()["errors"]["project"].startswith("valid project is required")
    assert set(required.json()["errors"]) == {"summary", "issuetype"}
    assert set(no_parent.json()["errors"]) == {"parent"}
    assert set(state.issues) == keys


async def test_of_many_issues_those_that_are_valid_are_created() -> None:
    valid = {"fields": {"project": {"key": "PAY"}, "summary": "one", "issuetype": {"name": "Task"}}}
    async with client(build_estate(4, Clock())) as http:
        body = {"issueUpdates": [valid, {"fields": {"project": {"key": "PAY"}}}]}
        created = await http.post(f"{API}/issue/bulk", json=body)
        too_many = await http.post(f"{API}/issue/bulk", json={"issueUpdates": [valid] * 51})
    assert created.status_code == 201
    assert len(created.json()["issues"]) == 1
    assert created.json()["errors"][0]["failedElementNumber"] == 1
    assert too_many.status_code == 400


async def test_people_fields_and_what_a_new_issue_needs_can_be_asked_for() -> None:
    estate = build_estate(4, Clock())
    person = estate.company.people[4]
    async with client(estate) as http:
        myself = (await http.get(f"{API}/myself")).json()
        users = (await http.get(f"{API}/user/search", params={"username": person.email})).json()
        fields = {field["id"] for field in (await http.get(f"{API}/field")).json()}
        types = (await http.get(f"{API}/issue/createmeta/STORE/issuetypes")).json()["values"]
        bug = next(entry for entry in types if entry["name"] == "Bug")
        metadata = (await http.get(f"{API}/issue/createmeta/STORE/issuetypes/{bug['id']}")).json()["values"]
        project = (await http.get(f"{API}/project/STORE")).json()
    components = next(field for field in metadata if field["fieldId"] == "components")["allowedValues"]
    assert myself["name"] == find_demo_user(estate.company).login
    assert [user["displayName"] for user in users] == [person.name]
    assert {"summary", "status", "customfield_10008"} <= fields
    assert {field["fieldId"] for field in metadata if field["required"]} == {
        "project",
        "issuetype",
        "summary",
    }
    assert {entry["name"] for entry in components} == {"checkout", "cart", "storefront"}
    assert project["lead"]["displayName"] == estate.company.teams[0].on_call.name


async def test_who_has_no_token_and_what_does_not_exist_is_refused() -> None:
    estate = build_estate(4, Clock())
    password = base64.b64encode(f"someone:{DEMO_TOKEN}".encode()).decode()
    async with client(estate) as http, client(estate, token="wrong") as stranger:
        basic = await stranger.get(f"{API}/myself", headers={"Authorization": f"Basic {password}"})
        broken = await stranger.get(f"{API}/myself", headers={"Authorization": "Basic ?"})
        refused = await stranger.get(f"{API}/myself")
        statuses = [
            (await http.get(f"{API}/issue/STORE-1")).status_code,
            (await http.get(f"{API}/agile/boards")).status_code,
            (await http.post(f"{API}/issue", content=b"[")).status_code,
            (await http.post(f"{API}/issue", content=b"x" * (MAX_BODY_BYTES + 1))).status_code,
        ]
    assert (basic.status_code, broken.status_code, refused.status_code) == (200, 401, 401)
    assert refused.headers["content-type"] == "application/json;charset=UTF-8"
    assert refused.json()["errorMessages"]
    assert statuses == [404, 404, 400, 413]


async def test_what_is_stored_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    estate = build_estate(4, Clock())
    state = build_jira_state(estate.company)
    key = find_key_tickets(estate.company).release
    fields = {"project": {"key": "PAY"}, "summary": "one more", "issuetype": {"name": "Task"}}
    monkeypatch.setattr(jira_state, "MAX_ISSUES", len(state.issues))
    monkeypatch.setattr(jira_state, "MAX_COMMENTS", 2)
    monkeypatch.setattr(jira_state, "MAX_CHANGES", 3)
    monkeypatch.setattr(jira_state, "MAX_STORED_LENGTH", 400)
    async with client(estate, state) as http:
        issue = await http.post(f"{API}/issue", json={"fields": fields})
        comments = [await http.post(f"{API}/issue/{key}/comment", json={"body": "a"}) for _ in range(2)]
        long_text = await http.put(f"{API}/issue/{key}", json={"fields": {"description": "a" * 32_768}})
        text = await http.put(f"{API}/issue/{key}", json={"fields": {"description": "a" * 300}})
        for number in range(5):
            await http.put(f"{API}/issue/{key}", json={"fields": {"summary": f"Summary {number}"}})
    assert issue.json()["errorMessages"] == [f"This Jira stores at most {len(state.issues)} issues."]
    assert [response.status_code for response in comments] == [201, 400]
    assert "exceeds the allowed limit of 32767" in long_text.json()["errors"]["description"]
    assert text.json()["errorMessages"] == ["This Jira stores at most 400 characters."]
    assert [change.items[0].new for change in state.issues[key].changes] == [
        f"Summary {n}" for n in (2, 3, 4)
    ]


async def test_a_fault_says_why_in_jiras_shape() -> None:
    estate = build_estate(4, Clock())
    app = FaultMiddleware(create_app(estate), estate, FaultSwitch(faults=Faults(errors=1.0)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://jira") as http:
        response = await http.get(f"{API}/myself")
    assert response.status_code == 503
    assert response.json()["errorMessages"] == ["Service unavailable (fault of the demo)"]
