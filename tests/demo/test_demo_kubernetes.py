"""The stand-in for Kubernetes answers as its API does; its changes are seen in all systems of the estate."""

import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from ai_platform_engineering.demo.argocd import app as argocd
from ai_platform_engineering.demo.estate.estate import Estate, Health, build_estate
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn
from ai_platform_engineering.demo.kubernetes.app import DEMO_TOKEN, STAND_IN, create_app
from ai_platform_engineering.demo.kubernetes.deployment_changes import MAX_REPLICAS
from tests.demo.test_estate import Clock

PODS = "/api/v1/namespaces/shop/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
CHECKOUT = f"{DEPLOYMENTS}/checkout"
APPLY = {"Content-Type": "application/apply-patch+yaml"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def client(estate: Estate, token: str = DEMO_TOKEN) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(estate)),
        base_url="http://kubernetes",
        headers={"Authorization": f"Bearer {token}"},
    )


def environment_patch(name: str, **settings: str) -> dict[str, Any]:
    items = [{"name": setting, "value": value} for setting, value in settings.items()]
    containers = [{"name": name, "env": items}]
    return {"spec": {"template": {"spec": {"containers": containers}}}}


async def list_names(http: httpx.AsyncClient, path: str, **parameters: str) -> list[str]:
    items = (await http.get(path, params=parameters)).json()["items"]
    return [item["metadata"]["name"] for item in items]


async def test_discovery_names_every_resource_with_what_is_allowed() -> None:
    async with client(build_estate(4, Clock())) as http:
        version = (await http.get("/version")).json()
        groups = (await http.get("/apis")).json()["groups"]
        versions = (await http.get("/api")).json()["versions"]
        core = (await http.get("/api/v1")).json()["resources"]
        apps = (await http.get("/apis/apps/v1")).json()["resources"]
        unknown = await http.get("/apis/batch/v1")
    verbs = {resource["name"]: resource["verbs"] for resource in (*core, *apps)}
    assert (version["minor"], versions) == ("33", ["v1"])
    assert {group["name"] for group in groups} == {"apps", "authorization.k8s.io", "metrics.k8s.io"}
    assert verbs["pods"] == ["get", "list", "delete"]
    assert verbs["deployments/scale"] == ["get", "patch", "update"]
    assert "secrets" in verbs
    assert (unknown.status_code, unknown.json()["kind"]) == (404, "Status")


async def test_only_the_pods_of_checkout_crash_and_their_log_names_the_setting() -> None:
    estate = build_estate(4, Clock())
    release = estate.company.failing_release
    async with client(estate) as http:
        pods = (await http.get("/api/v1/pods")).json()["items"]
        crashing = [pod for pod in pods if not pod["status"]["containerStatuses"][0]["ready"]]
        name = crashing[0]["metadata"]["name"]
        log = (await http.get(f"{PODS}/{name}/log", params={"tailLines": "1", "previous": "true"})).text
        healthy_name = next(pod["metadata"]["name"] for pod in pods if pod not in crashing)
        no_previous = await http.get(f"{PODS}/{healthy_name}/log", params={"previous": "true"})
        warnings = (await http.get("/api/v1/events", params={"fieldSelector": "type=Warning"})).json()[
            "items"
        ]
        usage = (await http.get("/apis/metrics.k8s.io/v1beta1/pods")).json()["items"]
        deployment = (await http.get(CHECKOUT)).json()
    states = {pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] for pod in crashing}
    assert {pod["metadata"]["labels"]["app"] for pod in crashing} == {"checkout"}
    assert len(crashing) == release.service.replicas
    assert states == {"CrashLoopBackOff"}
    assert log == f"{release.log_line}\n"
    assert no_previous.status_code == 400
    assert {event["involvedObject"]["name"] for event in warnings} == {
        pod["metadata"]["name"] for pod in crashing
    }
    assert len(usage) == len(pods)
    assert deployment["status"]["readyReplicas"] == 0


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"labelSelector": "app=cart"}, ["cart"]),
        ({"labelSelector": "app in (cart, ledger)"}, ["cart", "ledger"]),
        ({"labelSelector": "app notin (cart),app,!tier"}, None),
        ({"labelSelector": "app!=cart,app==ledger"}, ["ledger"]),
        ({"fieldSelector": "metadata.name=payments"}, ["payments"]),
        ({"fieldSelector": "metadata.namespace!=shop"}, []),
    ],
)
async def test_lists_are_narrowed_by_selectors(parameters: dict[str, str], names: list[str] | None) -> None:
    estate = build_estate(4, Clock())
    others = sorted(service.name for service in estate.company.services if service.name != "cart")
    async with client(estate) as http:
        listed = await list_names(http, "/apis/apps/v1/deployments", **parameters)
    assert listed == (others if names is None else names)


async def test_lists_are_paged_and_can_be_tables() -> None:
    async with client(build_estate(4, Clock())) as http:
        pages: list[list[str]] = []
        parameters = {"limit": "3"}
        while True:
            body = (await http.get(DEPLOYMENTS, params=parameters)).json()
            pages.append([item["metadata"]["name"] for item in body["items"]])
            if "continue" not in body["metadata"]:
                break
            parameters["continue"] = body["metadata"]["continue"]
        table = (await http.get(PODS, params={"labelSelector": "app=checkout"}, headers=TABLE)).json()
        tables = [
            (await http.get(path, headers=TABLE)).json()
            for path in ("/api/v1/nodes", "/api/v1/services", "/api/v1/namespaces", "/api/v1/configmaps")
        ]
        events = (await http.get("/api/v1/events", headers=TABLE)).json()
        single = (await http.get(CHECKOUT, headers=TABLE)).json()
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert len({name for page in pages for name in page}) == 7
    assert table["kind"] == "Table"
    assert {row["cells"][columns.index("Status")] for row in table["rows"]} == {"CrashLoopBackOff"}
    assert all(row["object"]["metadata"]["namespace"] == "shop" for row in table["rows"])
    assert all(
        len(row["cells"]) == len(item["columnDefinitions"])
        for item in (*tables, events, single)
        for row in item["rows"]
    )


async def test_a_deployment_is_scaled_in_both_ways() -> None:
    estate = build_estate(4, Clock())
    cart = estate.company.services[1]
    async with client(estate) as http:
        scale = (await http.get(f"{DEPLOYMENTS}/cart/scale")).json()
        stale = scale["metadata"]["resourceVersion"]
        scale["spec"]["replicas"] = 6
        updated = (await http.put(f"{DEPLOYMENTS}/cart/scale", json=scale)).json()
        conflict = await http.put(f"{DEPLOYMENTS}/cart/scale", json=scale)
        pods = await list_names(http, PODS, labelSelector="app=cart")
        dry_run = await http.patch(
            f"{DEPLOYMENTS}/cart", params={"dryRun": "All"}, json={"spec": {"replicas": 1}}, headers=STRATEGIC
        )
        merge_type = {"Content-Type": "application/merge-patch+json"}
        await http.patch(f"{DEPLOYMENTS}/cart/scale", json={"spec": {"replicas": 0}}, headers=merge_type)
        none = await list_names(http, PODS, labelSelector="app=cart")
    assert updated["spec"]["replicas"] == len(pods) == 6
    assert updated["metadata"]["resourceVersion"] != stale
    assert (conflict.status_code, conflict.json()["reason"]) == (409, "Conflict")
    assert dry_run.status_code == 200
    assert none == []
    assert estate.deployment(cart).replicas == 0


async def test_the_missing_setting_can_be_applied_and_is_removed_when_it_is_no_longer_applied() -> None:
    clock = Clock()
    estate = build_estate(4, clock)
    release = estate.company.failing_release
    async with client(estate) as http:
        before = await list_names(http, PODS, labelSelector="app=checkout")
        clock.advance(5)
        manifest = environment_patch("checkout", **{release.new_setting: "7"})
        applied = await http.patch(CHECKOUT, content=yaml.safe_dump(manifest), headers=APPLY)
        health = estate.health(release.service)
        after = await list_names(http, PODS, labelSelector="app=checkout")
        # As a client changes it: the whole object is read, edited and applied again.
        document = (await http.get(CHECKOUT)).json()
        document["spec"]["replicas"] = 1
        again = await http.patch(CHECKOUT, json=document, headers=APPLY)
        still_healthy = estate.health(release.service)
        await http.patch(CHECKOUT, json={"spec": {"replicas": 2}}, headers=APPLY)
    environment = applied.json()["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {item["name"] for item in environment} == {release.old_setting, release.new_setting}
    assert not set(before) & set(after)
    assert (health, still_healthy) == (Health.HEALTHY, Health.HEALTHY)
    assert again.json()["spec"]["replicas"] == 1
    assert estate.health(release.service) == Health.DEGRADED


async def test_pods_are_replaced_by_a_restart_and_when_one_is_deleted() -> None:
    clock = Clock()
    estate = build_estate(4, clock)
    annotation = {"kubectl.kubernetes.io/restartedAt": "2026-03-04T12:00:00Z"}
    restart = {"spec": {"template": {"metadata": {"annotations": annotation}}}}
    async with client(estate) as http:
        first = await list_names(http, PODS, labelSelector="app=cart")
        clock.advance(5)
        await http.patch(f"{DEPLOYMENTS}/cart", json=restart, headers=STRATEGIC)
        restarted = await list_names(http, PODS, labelSelector="app=cart")
        clock.advance(5)
        deleted = await http.request("DELETE", f"{PODS}/{restarted[0]}", json={"kind": "DeleteOptions"})
        replaced = await list_names(http, PODS, labelSelector="app=cart")
    assert deleted.status_code == 200
    assert len(first) == len(restarted) == len(replaced)
    assert not set(first) & set(restarted)
    assert set(restarted) - set(replaced) == {restarted[0]}


async def test_a_rollback_by_argocd_or_by_the_image_is_seen_in_the_cluster() -> None:
    clock = Clock()
    estate = build_estate(4, clock)
    service = estate.company.failing_release.service
    argo_headers = {"Authorization": f"Bearer {argocd.DEMO_TOKEN}"}
    argo_client = httpx.AsyncClient(
        transport=httpx.ASGITransport(argocd.create_app(estate)),
        base_url="http://argocd",
        headers=argo_headers,
    )
    async with client(estate) as http, argo_client:
        body = {"revision": service.previous_version}
        await argo_client.post("/api/v1/applications/checkout/sync", json=body)
        pending = (await http.get(PODS, params={"labelSelector": "app=checkout"})).json()["items"]
        no_log = await http.get(f"{PODS}/{pending[0]['metadata']['name']}/log")
        clock.advance(60)
        deployment = (await http.get(CHECKOUT)).json()
        image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
        containers = [{"name": "checkout", "image": image.replace(service.previous_version, service.version)}]
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        await http.patch(CHECKOUT, json=patch, headers=STRATEGIC)
        clock.advance(60)
        application = (await argo_client.get("/api/v1/applications/checkout")).json()
    assert {pod["status"]["phase"] for pod in pending} == {"Pending"}
    assert "is waiting to start" in no_log.json()["message"]
    assert image.endswith(f":{service.previous_version}")
    assert deployment["status"]["readyReplicas"] == service.replicas
    assert application["status"]["health"]["status"] == "Degraded"


async def test_what_is_not_allowed_or_not_possible_is_refused_with_the_reason() -> None:
    estate = build_estate(4, Clock())
    too_many = {"spec": {"replicas": MAX_REPLICAS + 1}}
    other_image = {"spec": {"template": {"spec": {"containers": [{"name": "cart", "image": "evil:1"}]}}}}
    cart = f"{DEPLOYMENTS}/cart"
    async with client(estate) as http, client(estate, "wrong") as stranger:
        secrets = await http.get("/api/v1/secrets")
        answers = [
            secrets,
            await http.get("/api/v1/namespaces/shop/secrets/database"),
            await http.post(PODS, json={}),
            await http.post(f"{PODS}/x/exec"),
            await http.delete(cart),
            await http.patch(f"{DEPLOYMENTS}/other", json={}, headers=APPLY),
            await stranger.get(PODS),
            await http.get(f"{PODS}/none"),
            await http.get(PODS, params={"watch": "true"}),
            await http.get(PODS, params={"labelSelector": "a=b=c"}),
            await http.get(PODS, params={"fieldSelector": "status.colour=red"}),
            await http.get(PODS, params={"continue": "?"}),
            await http.patch(cart, json=[], headers=STRATEGIC),
            await http.patch(cart, json={}, headers={"Content-Type": "application/json-patch+json"}),
            await http.patch(cart, json=too_many, headers=STRATEGIC),
            await http.patch(cart, json={"spec": {"paused": True}}, headers=STRATEGIC),
            await http.patch(cart, json=other_image, headers=STRATEGIC),
            await http.patch(cart, json={"spec": {"template": None}}, headers=STRATEGIC),
        ]
    statuses = [answer.status_code for answer in answers]
    assert statuses == [
        403,
        403,
        403,
        403,
        403,
        403,
        401,
        404,
        405,
        400,
        400,
        400,
        400,
        415,
        422,
        422,
        422,
        422,
    ]
    assert {answer.json()["kind"] for answer in answers} == {"Status"}
    assert 'cannot list resource "secrets"' in secrets.json()["message"]
    assert estate.deployment(estate.company.services[1]).replicas == estate.company.services[1].replicas


@pytest.mark.parametrize(("resource", "allowed"), [("pods", True), ("secrets", False)])
async def test_a_client_can_ask_what_it_may_do_also_in_protobuf(resource: str, allowed: bool) -> None:
    attributes = {"verb": "list", "resource": resource}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    protobuf = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    async with client(build_estate(4, Clock())) as http:
        as_json = await http.post(path, json={"spec": {"resourceAttributes": attributes}})
        as_protobuf = await http.post(path, content=_encode_review("list", resource), headers=protobuf)
        broken = await http.post(path, content=b"k8s\x00\x12\xff", headers=protobuf)
    assert as_json.json()["status"] == as_protobuf.json()["status"] == {"allowed": allowed}
    assert broken.status_code == 400


async def test_the_kubeconfig_leads_to_the_stand_in_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    variables = STAND_IN.variables(RunningStandIn("http://kubernetes", tmp_path))
    path = Path(variables["KUBECONFIG"])
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    server = config["clusters"][0]["cluster"]["server"]
    transport = httpx.ASGITransport(create_app(build_estate(4, Clock())))
    async with httpx.AsyncClient(transport=transport) as http:
        namespaces = await list_names(http, f"{server}/api/v1/namespaces")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert variables["KUBERNETES_READ_ONLY"] == "false"
    assert namespaces == ["argocd", "default", "kube-system", "shop"]


async def test_nodes_show_their_log_and_usage() -> None:
    async with client(build_estate(4, Clock())) as http:
        names = await list_names(http, "/api/v1/nodes")
        logs = [
            (await http.get(f"/api/v1/nodes/{name}/proxy/logs", params={"query": "kubelet"})).text
            for name in names
        ]
        summary = (await http.get(f"/api/v1/nodes/{names[0]}/proxy/stats/summary")).json()
        usage = (await http.get("/apis/metrics.k8s.io/v1beta1/nodes")).json()["items"]
        unknown = await http.get("/api/v1/nodes/none/proxy/stats/summary")
    assert "Back-off restarting failed container checkout" in "".join(logs)
    assert summary["node"]["nodeName"] == names[0]
    assert [item["metadata"]["name"] for item in usage] == names
    assert unknown.status_code == 404


def _encode_review(verb: str, resource: str) -> bytes:
    """A SelfSubjectAccessReview as client-go sends it."""
    attributes = _encode_field(2, verb.encode()) + _encode_field(5, resource.encode())
    spec = _encode_field(1, attributes)
    unknown = _encode_field(1, b"") + _encode_field(2, _encode_field(2, spec))
    return b"k8s\x00" + unknown


def _encode_field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value
