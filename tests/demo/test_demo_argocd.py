"""The stand-in for Argo CD answers as its REST API does; its changes are seen in the cluster's objects."""

import json

import httpx
import pytest

from ai_platform_engineering.demo.argocd.app import DEMO_TOKEN, create_app
from ai_platform_engineering.demo.estate.cluster_objects import ClusterObjects
from ai_platform_engineering.demo.estate.estate import Estate, build_estate
from tests.demo.test_estate import Clock

CHECKOUT = "/api/v1/applications/checkout"


def client(estate: Estate, token: str = DEMO_TOKEN) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(estate)),
        base_url="http://argocd",
        headers={"Authorization": f"Bearer {token}"},
    )


async def test_only_checkout_is_degraded_and_its_revision_is_the_commit_in_github() -> None:
    estate = build_estate(4, Clock())
    async with client(estate) as http:
        items = (await http.get("/api/v1/applications")).json()["items"]
        searched = (await http.get("/api/v1/applications", params={"search": "cart"})).json()["items"]

    health = {item["metadata"]["name"]: item["status"]["health"]["status"] for item in items}
    repository = estate.github.repositories[f"{estate.company.organization}/checkout"]
    assert [name for name, status in health.items() if status != "Healthy"] == ["checkout"]
    assert items[0]["status"]["sync"]["revision"] == repository.branches["main"]
    assert [item["metadata"]["name"] for item in searched] == ["cart"]


async def test_logs_events_and_the_tree_show_the_crashing_pods() -> None:
    estate = build_estate(4, Clock())
    async with client(estate) as http:
        tree = (await http.get(f"{CHECKOUT}/resource-tree")).json()["nodes"]
        logs = (await http.get(f"{CHECKOUT}/logs", params={"resourceName": "checkout"})).text.splitlines()
        events = (await http.get(f"{CHECKOUT}/events")).json()["items"]
        resources = (await http.get(f"{CHECKOUT}/managed-resources")).json()["items"]

    contents = [json.loads(line)["result"]["content"] for line in logs]
    pods = [node["name"] for node in tree if node["kind"] == "Pod"]
    release = estate.company.failing_release
    assert len(pods) == release.service.replicas
    assert release.log_line in contents
    assert {event["reason"] for event in events} == {"BackOff"}
    assert {event["involvedObject"]["name"] for event in events} == set(pods)
    assert json.loads(resources[0]["liveState"])["status"]["readyReplicas"] == 0


@pytest.mark.parametrize("way", ["sync", "rollback"])
async def test_an_earlier_revision_makes_checkout_healthy_after_a_while(way: str) -> None:
    clock = Clock()
    estate = build_estate(9, clock)
    service = estate.company.failing_release.service
    async with client(estate) as http:
        history = (await http.get(CHECKOUT)).json()["status"]["history"]
        body = {"revision": history[-2]["revision"]} if way == "sync" else {"id": history[-2]["id"]}
        changed = (await http.post(f"{CHECKOUT}/{way}", json=body)).json()
        clock.advance(60)
        later = (await http.get(CHECKOUT)).json()

    pods = ClusterObjects(estate, service).pods()
    images = {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods}
    assert changed["status"]["health"]["status"] == "Progressing"
    assert later["status"]["health"]["status"] == "Healthy"
    assert later["status"]["sync"] == {"status": "OutOfSync", "revision": history[-2]["revision"]}
    assert images == {service.previous_version}
    assert all(pod["status"]["containerStatuses"][0]["ready"] for pod in pods)


async def test_what_does_not_exist_and_who_has_no_token_is_refused() -> None:
    estate = build_estate(4, Clock())
    async with client(estate) as http, client(estate, "wrong") as stranger:
        statuses = [
            (await http.get("/api/v1/applications/nothing")).status_code,
            (await http.post(f"{CHECKOUT}/sync", json={"revision": "0000000"})).status_code,
            (await http.post(f"{CHECKOUT}/rollback", json={"id": 99})).status_code,
            (await http.post(f"{CHECKOUT}/sync", content=b"[")).status_code,
            (await http.get("/api/v1/projects/nothing")).status_code,
            (await stranger.get(CHECKOUT)).status_code,
        ]
    assert statuses == [404, 400, 400, 400, 404, 401]
    assert len(estate.deployment(estate.company.services[0]).history) == 3


async def test_a_deployment_can_be_restarted_and_gets_new_pods() -> None:
    clock = Clock()
    estate = build_estate(4, clock)
    service = estate.company.services[1]
    reference = {"kind": "Deployment", "resourceName": "cart"}
    path = "/api/v1/applications/cart/resource/actions"
    before = {pod["metadata"]["name"] for pod in ClusterObjects(estate, service).pods()}
    clock.advance(5)
    async with client(estate) as http:
        actions = (await http.get(path, params=reference)).json()["actions"]
        done = await http.post(path, params=reference, content=b'"restart"')
        unknown = await http.post(path, params=reference, content=b'"explode"')
    after = {pod["metadata"]["name"] for pod in ClusterObjects(estate, service).pods()}
    assert actions == [{"name": "restart"}]
    assert (done.status_code, unknown.status_code) == (200, 400)
    assert not before & after
