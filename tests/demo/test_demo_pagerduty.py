"""The stand-in for PagerDuty answers as its REST API does; incidents follow the health of the estate."""

from typing import Any

import httpx
import pytest

from ai_platform_engineering.demo.estate.estate import Estate, build_estate
from ai_platform_engineering.demo.estate.stand_in import FaultMiddleware, FaultSwitch
from ai_platform_engineering.demo.pagerduty.app import DEMO_TOKEN, create_app
from tests.demo.test_estate import Clock

Item = dict[str, Any]


def client(estate: Estate, token: str = DEMO_TOKEN) -> httpx.AsyncClient:
    app = FaultMiddleware(create_app(estate), estate, FaultSwitch())
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://pagerduty",
        headers={"Authorization": f"Token token={token}"},
    )


async def list_items(http: httpx.AsyncClient, path: str, **parameters: str | list[str]) -> list[Item]:
    key = path.rpartition("/")[2]
    body = (await http.get(path, params=parameters)).json()
    items: list[Item] = body[key]
    return items


async def test_the_failing_release_has_an_open_incident_and_an_older_one_misleads() -> None:
    estate = build_estate(4, Clock())
    release = estate.company.failing_release
    async with client(estate) as http:
        open_incidents = await list_items(http, "/incidents", **{"statuses[]": ["triggered", "acknowledged"]})
        (incident,) = open_incidents
        by_number = (await http.get(f"/incidents/{release.incident_number}")).json()["incident"]
        path = f"/incidents/{incident['id']}"
        (past,) = await list_items(http, f"{path}/past_incidents")
        past_notes = await list_items(http, f"/incidents/{past['incident']['id']}/notes")
        (change,) = (await http.get(f"{path}/related_change_events")).json()["change_events"]
        (alert,) = await list_items(http, f"{path}/alerts")
        same_alert = (await http.get(f"{path}/alerts/{alert['id']}")).json()["alert"]
        related = (await http.get(f"{path}/related_incidents")).json()["related_incidents"]
    assert incident == by_number
    assert incident["incident_number"] == release.incident_number
    assert incident["service"]["summary"] == "checkout"
    assert incident["assignments"][0]["assignee"]["summary"] == release.service.team.on_call.name
    assert incident["created_at"] == release.incident_opened_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert "payment provider" in past_notes[0]["content"]
    assert change["custom_details"]["version"] == release.service.version
    assert alert["body"]["details"]["ready_pods"] == f"0 of {release.service.replicas}"
    assert same_alert == alert
    assert related == []


async def test_a_rollback_resolves_the_incident_and_another_bad_release_opens_one() -> None:
    clock = Clock()
    estate = build_estate(4, clock)
    service = estate.company.failing_release.service
    async with client(estate) as http:
        (incident,) = await list_items(http, "/incidents", **{"statuses[]": "triggered"})
        path = f"/incidents/{incident['id']}"
        estate.roll_back(service, "admin")
        during = (await http.get(path)).json()["incident"]["status"]
        clock.advance(60)
        after = (await http.get(path)).json()["incident"]
        (resolved, *_) = await list_items(http, f"{path}/log_entries")
        (deployed, *_) = await list_items(http, "/change_events")
        estate.deploy(service, service.version, "admin")
        clock.advance(60)
        (reopened,) = await list_items(http, "/incidents", **{"statuses[]": "triggered"})
    assert (during, after["status"]) == ("triggered", "resolved")
    assert after["resolved_at"] is not None
    assert resolved["summary"] == "Resolved by Cluster monitoring"
    assert deployed["summary"] == f"Deployed checkout {service.previous_version}"
    assert reopened["incident_number"] > incident["incident_number"]


async def test_an_incident_is_acknowledged_noted_reassigned_and_resolved_by_a_person() -> None:
    estate = build_estate(4, Clock())
    team = estate.company.failing_release.service.team
    actor = team.members[1]
    async with client(estate) as http:
        http.headers["From"] = actor.email
        (incident,) = await list_items(http, "/incidents", **{"statuses[]": "triggered"})
        reference = {"id": incident["id"], "type": "incident_reference"}
        path = f"/incidents/{incident['id']}"

        async def change(**values: Any) -> Item:
            answer = await http.put("/incidents", json={"incidents": [reference | values]})
            changed: Item = answer.json()["incidents"][0]
            return changed

        acknowledged = await change(status="acknowledged", urgency="low")
        escalated = await change(escalation_level=2)
        service_status = (await http.get(f"/services/{incident['service']['id']}")).json()["service"][
            "status"
        ]
        note = (await http.post(f"{path}/notes", json={"note": {"content": "On it."}})).json()["note"]
        resolved = (await http.put(path, json={"incident": {"status": "resolved"}})).json()["incident"]
        again = await http.put("/incidents", json={"incidents": [reference | {"status": "acknowledged"}]})
        log = await list_items(http, f"{path}/log_entries")
        entry = (await http.get(f"/log_entries/{log[0]['id']}")).json()["log_entry"]
    assert (acknowledged["status"], acknowledged["urgency"]) == ("acknowledged", "low")
    assert escalated["assignments"][0]["assignee"]["summary"] == team.members[-1].name
    assert service_status == "warning"
    assert note["user"]["summary"] == actor.name
    assert resolved["status"] == "resolved"
    assert again.json()["error"]["message"] == "Incident Already Resolved"
    assert f"Acknowledged by {actor.name}" in {item["summary"] for item in log}
    assert entry == log[0]


async def test_an_incident_that_a_person_opened_stays_open_when_the_service_is_healthy() -> None:
    clock = Clock()
    estate = build_estate(4, clock)
    service = estate.company.failing_release.service
    async with client(estate) as http:
        (checkout,) = await list_items(http, "/services", query="CHECK")
        body = {"title": "Orders are lost", "service": {"id": checkout["id"]}, "urgency": "low"}
        created = (await http.post("/incidents", json={"incident": body})).json()["incident"]
        estate.roll_back(service, "admin")
        clock.advance(60)
        open_incidents = await list_items(http, "/incidents", **{"statuses[]": ["triggered"]})
    assert [incident["id"] for incident in open_incidents] == [created["id"]]
    assert created["assignments"][0]["assignee"]["summary"] == service.team.on_call.name


async def test_it_says_who_is_on_call_for_a_service() -> None:
    estate = build_estate(4, Clock())
    team = estate.company.teams[0]
    async with client(estate) as http:
        (service,) = await list_items(http, "/services", query="checkout")
        policy_id = service["escalation_policy"]["id"]
        on_calls = await list_items(http, "/oncalls", **{"escalation_policy_ids[]": policy_id})
        policy = (await http.get(f"/escalation_policies/{policy_id}")).json()["escalation_policy"]
        schedule_id = policy["escalation_rules"][0]["targets"][0]["id"]
        schedule = (await http.get(f"/schedules/{schedule_id}")).json()["schedule"]
        users = await list_items(http, f"/schedules/{schedule_id}/users")
        schedules = await list_items(http, "/schedules", **{"user_ids[]": users[0]["id"]})
        shift_schedules = await list_items(http, "/v3/schedules")
        members = await list_items(http, f"/teams/{service['teams'][0]['id']}/members")
        relationships = (await http.get(f"/service_dependencies/technical_services/{service['id']}")).json()[
            "relationships"
        ]
    assert [item["escalation_level"] for item in on_calls] == [1, 2]
    assert on_calls[0]["user"]["summary"] == team.on_call.name
    assert on_calls[0]["start"] < estate.now.isoformat() < on_calls[0]["end"]
    assert schedule["schedule_layers"][0]["users"][0]["user"]["summary"] == team.on_call.name
    assert [user["name"] for user in users] == [person.name for person in team.members]
    assert [item["id"] for item in schedules] == [schedule_id]
    assert shift_schedules == []
    assert len(members) == len(team.members)
    assert len(relationships) == 4  # three that checkout needs, and the shop that needs checkout


async def test_lists_are_paged_and_filtered() -> None:
    estate = build_estate(4, Clock())
    async with client(estate) as http:
        page = (await http.get("/users", params={"limit": 4, "offset": 4, "total": "true"})).json()
        last = (await http.get("/users", params={"limit": 4, "offset": 8})).json()
        me = (await http.get("/users/me")).json()["user"]
        same = (await http.get(f"/users/{me['id']}")).json()["user"]
        teams = await list_items(http, "/teams", query="pay")
        team_users = await list_items(http, "/users", **{"team_ids[]": teams[0]["id"]})
        recent = await list_items(
            http, "/incidents", since="2026-03-03T00:00:00Z", until="2026-03-05T00:00:00"
        )
        low = await list_items(http, "/incidents", **{"urgencies[]": "low"})
        priorities = await list_items(http, "/priorities")
        critical = await list_items(http, "/incidents", **{"priority_ids[]": priorities[0]["id"]})
        log = await list_items(http, "/log_entries", since="2026-03-03T00:00:00Z")
        changes = await list_items(http, "/change_events", **{"team_ids[]": teams[0]["id"]})
        change = (await http.get(f"/change_events/{changes[0]['id']}")).json()["change_event"]
    assert (len(page["users"]), page["more"], page["total"]) == (4, True, 9)
    assert (len(last["users"]), last["more"], last["total"]) == (1, False, None)
    assert me == same
    assert {user["teams"][0]["summary"] for user in team_users} == {"Payments"}
    assert [incident["status"] for incident in recent] == ["triggered"]
    assert [incident["status"] for incident in low] == ["resolved"]
    assert len(critical) == 2
    assert [entry["type"] for entry in log] == ["trigger_log_entry"]
    assert {item["services"][0]["summary"] for item in changes} == {"payments", "ledger"}
    assert change == changes[0]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/incidents/none", None, 404),
        ("GET", "/users/none", None, 404),
        ("GET", "/teams/none", None, 404),
        ("GET", "/services/none", None, 404),
        ("GET", "/schedules/none", None, 404),
        ("GET", "/change_events/none", None, 404),
        ("GET", "/log_entries/none", None, 404),
        ("GET", "/incidents?since=yesterday", None, 400),
        ("GET", "/incidents?limit=-1", None, 400),
        ("POST", "/incidents", {"incident": {"title": "x", "service": {"id": "none"}}}, 400),
        ("POST", "/incidents", {"incident": {"title": ""}}, 400),
        ("PUT", "/incidents", {"incidents": []}, 400),
        ("PUT", "/incidents", {"incidents": [{"id": "none", "status": "resolved"}]}, 400),
        ("PUT", "/incidents", [], 400),
    ],
)
async def test_what_does_not_exist_or_is_wrong_is_refused(
    method: str, path: str, body: Any, status: int
) -> None:
    estate = build_estate(4, Clock())
    async with client(estate) as http:
        answer = await http.request(method, path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_a_change_needs_valid_values_and_everything_the_token() -> None:
    estate = build_estate(4, Clock())
    number = estate.company.failing_release.incident_number
    async with client(estate) as http, client(estate, "wrong") as stranger:
        answers = [
            await http.put(f"/incidents/{number}", json={"incident": change})
            for change in (
                {"status": "triggered"},
                {"urgency": "extreme"},
                {"assignments": [{"assignee": {"id": "none"}}]},
                {"assignments": ["none"]},
            )
        ]
        answers.append(await http.post(f"/incidents/{number}/notes", json={"note": {"content": " "}}))
        refused = await stranger.get("/incidents")
        incident = (await http.get(f"/incidents/{number}")).json()["incident"]
    assert [answer.status_code for answer in answers] == [400] * 5
    assert refused.status_code == 401
    assert (incident["status"], incident["urgency"]) == ("triggered", "high")
