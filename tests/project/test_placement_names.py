"""The names of placement that the specification keeps decide what the running supervisor does: what it
offers to its model, which delegations it refuses, and which address it contacts.
"""

import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer import deep_agent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from ai_platform_engineering.multi_agents.platform_engineer.subagent_definition import SubAgentDef
from ai_platform_engineering.skills_middleware.mas_registry import get_mas_instance
from tests.support.fakes.a2a_misbehaving import WHOLE, Fake, misbehaving
from tests.support.fakes.script import Call, Request, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.providers import OPENAI

REFUSED = "There is no agent argocd."
DELEGATES = Script(
    Turn(Call("task", {"description": "Look.", "subagent_type": "argocd"})), Turn(Say("{{tool:argocd}}"))
)


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    async with misbehaving() as running:
        yield running


@dataclass(frozen=True, slots=True)
class Traffic:
    """What left the process: the agents in the model's first request, the answer, and the requests that
    arrived at the remote agent."""

    offered: dict[str, str]
    answer: str
    arrived: list[str]
    components: dict[str, Any] = field(default_factory=dict)


def read_offer(request: Request) -> dict[str, str]:
    """The agents and their descriptions in the prompt; the `task` tool names the same agents."""
    tools = {tool["function"]["name"]: tool["function"] for tool in request.raw["tools"]}
    description = tools.get("task", {}).get("description", "")
    in_prompt = dict(
        re.findall(r"^- ([\w-]+): (.*)$", request.system.partition("Agents:\n")[2].partition("\n\n")[0], re.M)
    )
    assert all(re.search(rf"\b{re.escape(name)}\b", description) for name in in_prompt)
    return in_prompt


async def observe(
    fake: Fake, *, change: Callable[[Any], None] | None = None, agents: str | None = "argocd"
) -> Traffic:
    """One question to the supervisor, whose model delegates to Argo CD; `change` gets the running one."""
    before = len(await list_arrived(fake))
    at = {
        "ENABLE_SKILLS": "false",
        "CAIPE_HOME": os.environ["CAIPE_HOME"],
        "ARGOCD_AGENT_URL": fake.at("ours", "good"),
    }
    variables = {**FAST, **at}
    if agents is not None:
        variables["DISTRIBUTED_AGENTS"] = agents
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(OPENAI.serve(DELEGATES))
        variables |= OPENAI.settings(model)
        app = build_app(Settings.from_variables(variables), variables)
        url = await stack.enter_async_context(serve_app(app))
        client = Client(url, await stack.enter_async_context(httpx.AsyncClient(timeout=120, verify=PLAIN)))
        if change is not None:
            change(get_mas_instance())
        stream = await client.ask("How is Argo CD?")
        ready = await client.http.get(f"{client.url}ready")
        arrived = (await list_arrived(fake))[before:]
    components = ready.json()["components"] if ready.status_code in (200, 503) else {}
    offered = read_offer(model.requests[0]) if model.requests else {}
    return Traffic(offered, stream.answer if stream.named("final_result") else "", arrived, components)


async def list_arrived(fake: Fake) -> list[str]:
    """The requests that have arrived at the remote agent."""
    return [call["method"] for call in await fake.arrived(fake.at("ours", "good"))]


async def assert_it_asks_the_service(fake: Fake) -> None:
    traffic = await observe(fake)
    assert list(traffic.offered) == ["argocd", "netutils"]
    assert traffic.answer == WHOLE
    assert traffic.arrived == ["card", "card", "SendStreamingMessage"]


def assert_refused(traffic: Traffic, *others: str) -> None:
    assert list(traffic.offered) == list(others)
    assert traffic.answer.startswith(REFUSED)
    assert "SendStreamingMessage" not in traffic.arrived


async def answer_differently(state: Any) -> dict[str, Any]:
    return {"messages": [*state["messages"], AIMessage("From elsewhere.")]}


def other_definition(name: str) -> SubAgentDef:
    runnable = RunnableLambda(answer_differently)
    return {"name": name, "description": "Another one.", "runnable": runnable}


# --- each name is used --------------------------------------------------------------------------------------

MODULE_NAMES = [
    "_get_distributed_agents",
    "_agent_is_distributed",
    "_is_agent_enabled",
    "_create_remote_a2a_subagent_def",
    "DISTRIBUTED_MODE",
    "SINGLE_NODE_AGENTS",
]


async def test_with_every_name_in_its_place_the_service_is_asked(fake: Fake) -> None:
    await assert_it_asks_the_service(fake)


@pytest.mark.parametrize("name", [*MODULE_NAMES, "_create_subagent_defs"])
async def test_without_a_name_the_service_is_not_asked(
    name: str, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = deep_agent if name in MODULE_NAMES else deep_agent.PlatformEngineerDeepAgent
    monkeypatch.delattr(owner, name)
    with contextlib.suppress(NameError, AttributeError):
        await observe(fake)
    assert "SendStreamingMessage" not in await list_arrived(fake)


async def test_without_the_set_of_the_instance_the_service_is_not_asked(fake: Fake) -> None:
    def remove(supervisor: Any) -> None:
        del supervisor._distributed_agents

    assert "SendStreamingMessage" not in (await observe(fake, change=remove)).arrived


# --- and each decides ---------------------------------------------------------------------------------------


async def test_the_distributed_agents_are_those_that_the_function_returns(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep_agent, "_get_distributed_agents", lambda: {"argocd"})
    assert (await observe(fake, agents=None)).answer == WHOLE
    monkeypatch.setattr(deep_agent, "_get_distributed_agents", set)
    traffic = await observe(fake)
    assert_refused(traffic, "netutils")
    assert traffic.components["agent argocd"]["placement"] == "in-process"


async def test_whether_an_agent_is_distributed_is_what_the_function_returns(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep_agent, "_agent_is_distributed", lambda name, names: name == "argocd")
    assert (await observe(fake, agents=None)).answer == WHOLE
    monkeypatch.setattr(deep_agent, "_agent_is_distributed", lambda name, names: False)
    assert_refused(await observe(fake), "netutils")


async def test_whether_an_agent_is_enabled_is_what_the_function_returns(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep_agent, "_is_agent_enabled", lambda name: name != "argocd")
    traffic = await observe(fake)
    assert_refused(traffic, "netutils")
    assert "agent argocd" not in traffic.components


async def test_an_agent_can_be_switched_off_while_the_supervisor_runs(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def switch_off(_: Any) -> None:
        monkeypatch.setattr(deep_agent, "_is_agent_enabled", lambda name: name != "argocd")

    assert_refused(await observe(fake, change=switch_off), "netutils")


async def test_a_remote_agent_is_what_the_function_creates(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def create(name: str, agent_prompts: Any) -> SubAgentDef:
        calls.append((name, agent_prompts))
        return other_definition(name)

    monkeypatch.setattr(deep_agent, "_create_remote_a2a_subagent_def", create)
    traffic = await observe(fake)
    assert traffic.offered["argocd"] == "Another one."
    assert traffic.answer == "From elsewhere."
    assert "SendStreamingMessage" not in traffic.arrived
    assert calls[0] == ("argocd", {})


@pytest.mark.parametrize("mode", [True, False])
async def test_the_older_switch_is_the_attribute(
    mode: bool, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep_agent, "DISTRIBUTED_MODE", mode)
    traffic = await observe(fake, agents=None)
    if mode:
        assert (list(traffic.offered), traffic.answer) == (["argocd"], WHOLE)
    else:
        assert_refused(traffic, "netutils")


async def test_the_shipped_agents_are_those_of_the_list(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(prompt_config: Any) -> SubAgentDef:
        return other_definition("argocd")

    others = [pair for pair in deep_agent.SINGLE_NODE_AGENTS if pair[0] != "argocd"]
    monkeypatch.setattr(deep_agent, "SINGLE_NODE_AGENTS", others)
    traffic = await observe(fake)
    assert_refused(traffic, "netutils")
    assert "agent argocd" not in traffic.components
    monkeypatch.setattr(deep_agent, "SINGLE_NODE_AGENTS", [*others, ("argocd", create)])
    traffic = await observe(fake, agents=None)
    assert traffic.offered["argocd"] == "Another one."
    assert traffic.answer == "From elsewhere."


@pytest.mark.parametrize("distributed", [{"argocd"}, {"__all__"}, set[str]()], ids=str)
async def test_the_set_of_the_instance_moves_agents(distributed: set[str], fake: Fake) -> None:
    def move(supervisor: Any) -> None:
        supervisor._distributed_agents = distributed

    before = "jira" if distributed else "argocd"
    traffic = await observe(fake, change=move, agents=before)
    if distributed:
        assert traffic.answer == WHOLE
        assert traffic.components["agent argocd"]["placement"] == "remote"
    else:
        assert_refused(traffic, "netutils")
        assert traffic.components["agent argocd"]["placement"] == "in-process"


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", [True, False])
async def test_services_are_checked_in_distributed_mode(
    mode: bool, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep_agent.PlatformEngineerDeepAgent, "distributed_mode", mode)
    traffic = await observe(fake)
    assert traffic.arrived == ["card"] * mode + ["card", "SendStreamingMessage"]


async def test_agents_that_are_not_defined_are_not_there(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_none(self: Any, prompt_config: Any) -> list[SubAgentDef]:
        return []

    monkeypatch.setattr(deep_agent.PlatformEngineerDeepAgent, "_create_subagent_defs", create_none)
    traffic = await observe(fake)
    assert traffic.offered == {}
    assert "SendStreamingMessage" not in traffic.arrived
    assert traffic.answer != WHOLE


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["__all__", "all", "Argo CD"])
async def test_a_definition_with_a_name_that_no_agent_may_have_is_an_error(
    name: str, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create_one(self: Any, prompt_config: Any) -> list[SubAgentDef]:
        return [other_definition(name)]

    monkeypatch.setattr(deep_agent.PlatformEngineerDeepAgent, "_create_subagent_defs", create_one)
    traffic = await observe(fake)
    assert (traffic.offered, traffic.answer) == ({}, "")  # the model is not asked at all
    assert "cannot be offered" in traffic.components["model"]["message"]
