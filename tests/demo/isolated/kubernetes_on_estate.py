"""The agent kubernetes with the real kubernetes-mcp-server on the estate: reading and, approved, changing."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from ai_platform_engineering.demo.estate.cluster_objects import ClusterObjects
from ai_platform_engineering.demo.estate.estate import Health
from ai_platform_engineering.demo.kubernetes.app import STAND_IN
from tests.support.agent_services import Where
from tests.support.estate_agents import delegate, run_estate_supervisor
from tests.support.estate_stage import EstateStage, run_estate_stage
from tests.support.fakes.script import Call, Request, Say, Script, Turn

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]

everywhere = pytest.mark.parametrize("where", ["in-process", "remote"])
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EstateStage]:
    async with run_estate_stage(tmp_path_factory.mktemp("kubernetes"), STAND_IN) as running:
        yield running


def read_log_of_first_pod(request: Request) -> Turn:
    """The pods are a table in text, from which a model reads the name."""
    match = re.search(r"checkout-\w+-\w+", request.tool_results["pods_list"][-1])
    assert match is not None
    return Turn(Call("pods_log", {"namespace": "shop", "name": match[0], "previous": True, "tail": 1}))


@everywhere
async def test_it_finds_the_crashing_pods_of_all_namespaces_their_events_and_logs(
    stage: EstateStage, where: Where
) -> None:
    agent = Script(
        Turn(Call("pods_list", {"labelSelector": "app=checkout"})),
        read_log_of_first_pod,
        Turn(
            Call("events_list", {"fieldSelector": "type=Warning"}),
            Call("resources_list", DEPLOYMENT),
            Call("pods_top", {"label_selector": "app=cart"}),
        ),
        Turn(
            Say(
                "{{tool:pods_list}}\n{{tool:pods_log}}\n{{tool:events_list}}\n"
                "{{tool:resources_list}}\n{{tool:pods_top}}"
            )
        ),
    )
    model = delegate("kubernetes", "Look at checkout.")
    agents = {"kubernetes": {"^Look": agent}}
    async with run_estate_supervisor(stage.servers, where, model, agents) as run:
        stream = await run.ask("Why is checkout failing?")
    objects = ClusterObjects(stage.estate, stage.release.service)
    names = [pod["metadata"]["name"] for pod in objects.pods()]
    image = objects.deployment()["spec"]["template"]["spec"]["containers"][0]["image"]
    assert run.refusals == []
    assert all(re.search(rf"{name} +0/1 +CrashLoopBackOff", stream.answer) for name in names)
    assert stage.release.log_line in stream.answer
    assert f"Back-off restarting failed container checkout in pod {names[0]}" in stream.answer
    assert re.search(rf"checkout +0/{len(names)}", stream.answer)
    assert image in stream.answer
    assert "MEMORY(bytes)" in stream.answer


@everywhere
async def test_secrets_are_not_read(stage: EstateStage, where: Where) -> None:
    secrets = {"apiVersion": "v1", "kind": "Secret", "namespace": "shop"}
    agent = Script(Turn(Call("resources_list", secrets)), Turn(Say("{{tool:resources_list}}")))
    model = delegate("kubernetes", "Read the secrets.")
    agents = {"kubernetes": {"^Read": agent}}
    async with run_estate_supervisor(stage.servers, where, model, agents) as run:
        stream = await run.ask("Which passwords are there?")
    assert "resource not allowed: /v1, Kind=Secret" in stream.answer


@everywhere
async def test_a_deployment_is_scaled_when_it_is_approved(stage: EstateStage, where: Where) -> None:
    deployment = stage.estate.deployment(stage.cart)
    replicas_before = deployment.replicas
    replicas = replicas_before + 2
    scale = {**DEPLOYMENT, "name": "cart", "scale": replicas}
    agent = Script(Turn(Call("resources_scale", scale)), Turn(Say("{{tool:resources_scale.replicas}} pods")))
    declined = Script(Turn(Call("resources_scale", scale)), Turn(Say("Not scaled.")))
    model = delegate("kubernetes", "{{user}}")
    agents = {"kubernetes": {"^Scale": agent, "^Try": declined}}
    async with run_estate_supervisor(stage.servers, where, model, agents) as run:
        rejected = await run.decide(await run.ask("Try to scale cart."), "reject")
        replicas_after_rejection = deployment.replicas
        question = await run.ask("Scale cart.")
        replicas_while_asked = deployment.replicas
        stream = await run.decide(question, "approve")
    assert run.refusals == []
    assert rejected.answer == "So: Not scaled."
    assert question.states[-1] == "input-required"
    assert replicas_after_rejection == replicas_while_asked == replicas_before
    assert stream.answer == f"So: {replicas} pods"
    assert deployment.replicas == replicas


@everywhere
async def test_the_missing_setting_is_applied_and_the_pods_are_new(stage: EstateStage, where: Where) -> None:
    release = stage.release
    service = release.service
    stage.estate.change_deployment(service, settings={})
    stage.clock.advance(1)
    names_before = {pod["metadata"]["name"] for pod in ClusterObjects(stage.estate, service).pods()}

    def apply_with_setting(request: Request) -> Turn:
        resource: dict[str, Any] = yaml.safe_load(request.tool_results["resources_get"][-1])
        container = resource["spec"]["template"]["spec"]["containers"][0]
        container["env"].append({"name": release.new_setting, "value": release.setting_value})
        return Turn(Call("resources_create_or_update", {"resource": yaml.safe_dump(resource)}))

    agent = Script(
        Turn(Call("resources_get", {**DEPLOYMENT, "name": "checkout"})),
        apply_with_setting,
        Turn(Call("resources_get", {**DEPLOYMENT, "name": "checkout"})),
        Turn(Say("{{tool:resources_get.readyReplicas}} are ready")),
    )
    model = delegate("kubernetes", "Set the setting.")
    agents = {"kubernetes": {"^Set": agent}}
    async with run_estate_supervisor(stage.servers, where, model, agents) as run:
        question = await run.ask("Set the missing setting.")
        health_while_asked = stage.estate.health(service)
        stream = await run.decide(question, "approve")
    names_after = {pod["metadata"]["name"] for pod in ClusterObjects(stage.estate, service).pods()}
    assert run.refusals == []
    assert health_while_asked == Health.DEGRADED
    assert stream.answer == f"So: {service.replicas} are ready"
    assert stage.estate.deployment(service).settings == {release.new_setting: release.setting_value}
    assert stage.estate.health(service) == Health.HEALTHY
    assert not names_before & names_after
    stage.estate.change_deployment(service, settings={})
