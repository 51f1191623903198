"""The agent pagerduty with the real pagerduty-mcp on the estate: an incident, who is on call, its end."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ai_platform_engineering.demo.pagerduty.app import STAND_IN
from tests.support.agent_services import Where
from tests.support.estate_agents import delegate, run_estate_supervisor
from tests.support.estate_stage import EstateStage, run_estate_stage
from tests.support.fakes.script import Call, Say, Script, Turn

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]

everywhere = pytest.mark.parametrize("where", ["in-process", "remote"])
OPEN = {"statuses": ["triggered", "acknowledged"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EstateStage]:
    async with run_estate_stage(tmp_path_factory.mktemp("pagerduty"), STAND_IN) as running:
        yield running


@everywhere
async def test_it_finds_the_incident_who_is_on_call_and_the_deployment_before_it(
    stage: EstateStage, where: Where
) -> None:
    incident = "{{tool:list_incidents.response.0.id}}"
    past = "{{tool:get_past_incidents.past_incidents.0.incident.id}}"
    agent = Script(
        Turn(Call("list_incidents", OPEN)),
        Turn(
            Call("list_incident_change_events", {"incident_id": incident}),
            Call("get_past_incidents", {"incident_id": incident, "query_model": {}}),
            Call("list_alerts_from_incident", {"incident_id": incident}),
            Call("list_oncalls", {"service_ids": ["{{tool:list_incidents.response.0.service.id}}"]}),
        ),
        Turn(Call("list_incident_notes", {"incident_id": past})),
        Turn(
            Say(
                "{{tool:list_incidents.response.0.summary}}, on call is"
                " {{tool:list_oncalls.response.0.user.summary}}."
                " Before: {{tool:list_incident_change_events.response.0.summary}}."
                " Ready: {{tool:list_alerts_from_incident.response.0.body.details.ready_pods}}."
                " Earlier: {{tool:list_incident_notes.response.0.content}}"
            )
        ),
    )
    model = delegate("pagerduty", "Look at checkout.")
    agents = {"pagerduty": {"^Look": agent}}
    async with run_estate_supervisor(stage.servers, where, model, agents) as run:
        stream = await run.ask("Which incident is open?")
    release = stage.release
    service = release.service
    assert run.refusals == []
    assert stream.answer == (
        f"So: [#{release.incident_number}] checkout: no pod is ready, on call is {service.team.on_call.name}."
        f" Before: Deployed checkout {service.version}. Ready: 0 of {service.replicas}."
        " Earlier: The payment provider answered slowly and requests timed out. Restarting the pods helped."
    )


@everywhere
async def test_the_incident_is_resolved_when_checkout_is_healthy_again(
    stage: EstateStage, where: Where
) -> None:
    stage.break_checkout()
    agent = Script(
        Turn(Call("list_incidents", OPEN)),
        Turn(Say("{{tool:list_incidents.response}} are open")),
    )
    model = delegate("pagerduty", "{{user}}")
    agents = {"pagerduty": {"^List": agent}}
    async with run_estate_supervisor(stage.servers, where, model, agents) as run:
        before = await run.ask("List open incidents.")
        stage.estate.roll_back(stage.release.service, "admin")
        stage.finish_rollout()
        after = await run.ask("List open incidents.")
    assert run.refusals == []
    assert "checkout: no pod is ready" in before.answer
    assert after.answer == "So: [] are open"
