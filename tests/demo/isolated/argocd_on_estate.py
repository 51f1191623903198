"""The agent argocd with the real argocd-mcp on the estate: reading and, approved, syncing."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ai_platform_engineering.demo.argocd.app import STAND_IN
from ai_platform_engineering.demo.estate.cluster_objects import ClusterObjects
from ai_platform_engineering.demo.estate.estate import Health
from tests.support.agent_services import Where
from tests.support.estate_agents import delegate, run_estate_supervisor
from tests.support.estate_stage import EstateStage, run_estate_stage
from tests.support.fakes.script import Call, Say, Script, Turn

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]

everywhere = pytest.mark.parametrize("where", ["in-process", "remote"])
CHECKOUT = {"applicationName": "checkout"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EstateStage]:
    async with run_estate_stage(tmp_path_factory.mktemp("argocd"), STAND_IN) as running:
        yield running


@everywhere
async def test_it_finds_the_degraded_application_and_what_its_pods_log(
    stage: EstateStage, where: Where
) -> None:
    stage.break_checkout()
    tree = "{{tool:get_application_resource_tree.nodes.0."
    reference = {key: f"{tree}{key}}}}}" for key in ("uid", "kind", "namespace", "name", "version", "group")}
    logs = {
        **CHECKOUT,
        "applicationNamespace": "{{tool:get_application.metadata.namespace}}",
        "resourceRef": reference,
        "container": "checkout",
    }
    name = "{{tool:list_applications.items.0.metadata.name}}"
    agent = Script(
        Turn(Call("list_applications", {"search": "check"})),
        Turn(Call("get_application", {"applicationName": name})),
        Turn(Call("get_application_resource_tree", CHECKOUT)),
        Turn(Call("get_application_workload_logs", logs), Call("get_application_events", CHECKOUT)),
        Turn(
            Say(
                "{{tool:get_application.status.health.status}} at"
                " {{tool:get_application.status.sync.revision}}:"
                " {{tool:get_application_workload_logs.1.content}};"
                " {{tool:get_application_events.items.0.reason}}"
            )
        ),
    )
    model = delegate("argocd", "Look at checkout.")
    async with run_estate_supervisor(stage.servers, where, model, {"argocd": {"^Look": agent}}) as run:
        stream = await run.ask("Why is checkout failing?")
    revision = stage.estate.deployment(stage.release.service).current.revision
    assert run.refusals == []
    assert stream.answer == f"So: Degraded at {revision.sha}: {stage.release.log_line}; BackOff"


@everywhere
async def test_a_rollback_by_sync_happens_when_it_is_approved(stage: EstateStage, where: Where) -> None:
    stage.break_checkout()
    service = stage.release.service
    deployment = stage.estate.deployment(service)
    assert deployment.previous is not None
    number = deployment.history.index(deployment.previous)
    revision = f"{{{{tool:get_application.status.history.{number}.revision}}}}"
    agent = Script(
        Turn(Call("get_application", CHECKOUT)),
        Turn(Call("sync_application", {**CHECKOUT, "revision": revision})),
        Turn(Say("{{tool:sync_application.status.health.status}}")),
    )
    declined = Script(
        Turn(Call("sync_application", {**CHECKOUT, "revision": deployment.previous.revision.sha})),
        Turn(Say("Not rolled back.")),
    )
    check = Script(
        Turn(Call("get_application", CHECKOUT)), Turn(Say("{{tool:get_application.status.health.status}}"))
    )
    model = delegate("argocd", "{{user}}")
    agents = {"argocd": {"^Roll": agent, "^Try": declined, "^Check": check}}
    async with run_estate_supervisor(stage.servers, where, model, agents) as run:
        rejected = await run.decide(await run.ask("Try to roll it back."), "reject")
        question = await run.ask("Roll it back.")
        version_while_asked = deployment.current.revision.version
        stream = await run.decide(question, "approve")
        stage.finish_rollout()
        healed = await run.ask("Check it.")
    assert run.refusals == []
    assert rejected.answer == "So: Not rolled back."
    assert question.states[-1] == "input-required"
    assert version_while_asked == service.version
    assert (stream.answer, healed.answer) == ("So: Progressing", "So: Healthy")
    assert deployment.current.revision.version == service.previous_version
    assert stage.estate.health(service) == Health.HEALTHY


@everywhere
async def test_a_restart_makes_new_pods_when_it_is_approved(stage: EstateStage, where: Where) -> None:
    stage.clock.advance(1)
    names_before = _list_pods(stage)
    reference = {"kind": "Deployment", "namespace": "shop", "name": "cart", "version": "v1", "group": "apps"}
    resource = {
        "applicationName": "cart",
        "applicationNamespace": "argocd",
        "resourceRef": {**reference, "uid": ""},
    }
    restart = {**resource, "action": "{{tool:get_resource_actions.actions.0.name}}"}
    agent = Script(
        Turn(Call("get_resource_actions", resource)),
        Turn(Call("run_resource_action", restart)),
        Turn(Say("Restarted.")),
    )
    model = delegate("argocd", "Restart cart.")
    async with run_estate_supervisor(stage.servers, where, model, {"argocd": {"^Restart": agent}}) as run:
        question = await run.ask("Restart cart.")
        names_while_asked = _list_pods(stage)
        stream = await run.decide(question, "approve")
    assert run.refusals == []
    assert names_while_asked == names_before
    assert stream.answer == "So: Restarted."
    assert not names_before & _list_pods(stage)


def _list_pods(stage: EstateStage) -> set[str]:
    return {pod["metadata"]["name"] for pod in ClusterObjects(stage.estate, stage.cart).pods()}
