"""A conversation on the estate that needs four agents, two of them remote, with their real tool servers.

The model is scripted, and what it says are templates over tool results: a fact that is in its answer was read
from a system. An agent tries a failing tool again, and names what it could not read.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation
from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.agents.installed_commands import missing_commands
from ai_platform_engineering.cli.demo_environment import build_environment, link_agents_folder
from ai_platform_engineering.core.events import Approval
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.demo.estate.control_api import ControlAddress
from ai_platform_engineering.demo.estate.estate import Estate, build_estate
from ai_platform_engineering.demo.estate.estate_state import TICKETS, EstateState
from ai_platform_engineering.demo.estate.stand_in import Faults
from ai_platform_engineering.demo.evaluation.answer_text import names
from ai_platform_engineering.demo.launcher import serve_demo
from ai_platform_engineering.demo.stand_ins import STAND_INS
from tests.conftest import need
from tests.support.agent_services import model_of, run_server_process
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.fakes.script import Call, Casting, Request, Say, Script, Turn
from tests.support.harness import PLAIN
from tests.support.real_servers import SERVERS_HOME

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

SEED = 5
LOCAL = ("argocd", "github")
REMOTE = ("kubernetes", "jira")
QUESTION = "Why is checkout failing? Create a ticket with the cause."
_TRIES = 3
_CONVERSATION_SECONDS = 600.0


# --- what the model does ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """A tool that an agent calls until its result has a fact; `pattern` finds it."""

    tool: str
    arguments: Mapping[str, Any]
    pattern: str
    name: str  # of the fact, for people

    def find(self, request: Request) -> str | None:
        for result in request.tool_results.get(self.tool, ()):
            match = re.search(self.pattern, result)
            if match:
                return match[1]
        return None


class AgentScript:
    """Reads facts one after another, each at most three times, and tells what it has and what is missing."""

    def __init__(self, agent: str, *readings: Reading) -> None:
        self._agent = agent
        self._readings = readings

    def step(self, request: Request) -> Turn:
        values: dict[str, str] = {}
        for reading in self._readings:
            value = reading.find(request)
            tries = len(request.tool_results.get(reading.tool, ()))
            if reading.tool not in request.tools and "search_tools" not in request.tool_results:
                return self._search(request, reading.tool)
            if value is None and tries < _TRIES:
                arguments = {key: str(text).format(**values) for key, text in reading.arguments.items()}
                return Turn(Call(reading.tool, arguments))
            if value is None:
                return Turn(Say(f"{self._say(values)} MISSING[{self._agent}: {reading.name}]"))
            values[reading.name] = value
        return Turn(Say(self._say(values)))

    def _search(self, request: Request, tool: str) -> Turn:
        """Many tools are not bound at once; without any, the tool server did not start."""
        if "search_tools" not in request.tools:
            return Turn(Say(f"MISSING[{self._agent}: tools]"))
        return Turn(Call("search_tools", {"words": tool.replace("_", " ")}))

    def _say(self, values: Mapping[str, str]) -> str:
        return " ".join(f"{name}=<{value}>" for name, value in values.items()) or "Nothing was read."


class Company(Casting):
    """One model for the supervisor and its four agents, which it tells apart by their tasks."""

    def __init__(self, estate: Estate) -> None:
        organization = estate.company.organization
        namespace = estate.company.namespace
        self._project = estate.company.failing_release.service.team.project
        self._agents = {
            "argocd": AgentScript(
                "argocd",
                Reading(
                    "get_application",
                    {"applicationName": "checkout"},
                    r'"health":\{"status":"(\w+)"',
                    "health",
                ),
                Reading(
                    "get_application", {"applicationName": "checkout"}, r'/checkout:(v[\d.]+)"', "version"
                ),
            ),
            "github": AgentScript(
                "github",
                Reading(
                    "list_pull_requests",
                    {"owner": organization, "repo": "checkout", "state": "all"},
                    r'"title": ?"([^"]+)"',
                    "change",
                ),
            ),
            "kubernetes": AgentScript(
                "kubernetes",
                Reading(
                    "pods_list_in_namespace",
                    {"namespace": namespace},
                    r"\b(checkout-[0-9a-f]{9}-[0-9a-f]{5})\b",
                    "pod",
                ),
                Reading(
                    "pods_log",
                    {"name": "{pod}", "namespace": namespace},
                    r"required setting (\w+) is not set",
                    "setting",
                ),
            ),
        }

    def choose(self, request: Request) -> Script:
        if "task" in request.tools:
            return Script(self._supervise)
        agent = request.last_user.split()[0]  # the task begins with it
        return Script(self._agents[agent].step if agent in self._agents else self._create_ticket)

    def _supervise(self, request: Request) -> Turn:
        results = {agent: request.tool_results.get(agent, [""])[-1] for agent in (*LOCAL, *REMOTE)}
        if request.position == 0:
            tasks = [
                Call("task", {"subagent_type": name, "description": f"{name} Look at checkout."})
                for name in ("argocd", "github", "kubernetes")
            ]
            return Turn(Say("I look at three systems."), *tasks)
        if request.position == 1:
            cause = " ".join(results[name] for name in ("argocd", "github", "kubernetes"))
            task = {"subagent_type": "jira", "description": f"jira Create a bug. Cause: {cause}"}
            return Turn(Call("task", task))
        parts = [results[name] or f"MISSING[{name}: answer]" for name in (*LOCAL, *REMOTE)]
        return Turn(Say("checkout: " + " / ".join(parts)))

    def _create_ticket(self, request: Request) -> Turn:
        cause = request.last_user.partition("Cause: ")[2]
        issue = {
            "project_key": self._project,
            "summary": "checkout fails",
            "issue_type": "Bug",
            "description": cause,
        }
        reading = Reading("jira_create_issue", issue, rf"\b({self._project}-\d+)\b", "ticket")
        value = reading.find(request)
        if value is not None:
            return Turn(Say(f"ticket=<{value}>"))
        if reading.tool in request.tools and len(request.tool_results.get(reading.tool, ())) < _TRIES:
            return Turn(Call(reading.tool, issue))
        return Turn(Say("MISSING[jira: ticket]"))


# --- the processes ----------------------------------------------------------------------------------


class Stage:
    """A supervisor on the estate; two of its agents are services in processes of their own."""

    def __init__(self, client: A2AClient, control: ControlAddress, model: OpenAIServer) -> None:
        self.model = model
        self._client = client
        self._control = control

    async def ask(self, question: str) -> Transcript:
        """The run to its end; every tool call that asks is approved."""
        conversation = ClientConversation()
        async with asyncio.timeout(_CONVERSATION_SECONDS):
            transcript = await self._fold(self._client.ask(question, conversation))
            while transcript.state == "input-required":
                assert all(isinstance(request.asked, Approval) for request in transcript.requests)
                answers = {request.request_id: {"type": "approve"} for request in transcript.requests}
                transcript = await self._fold(self._client.answer(answers, conversation))
        return transcript

    async def set_faults(self, **faults: Faults) -> None:
        for name, values in faults.items():
            await self._call("PUT", f"/faults/{name}", json=values.model_dump())

    async def reset(self) -> None:
        await self._call("POST", "/reset")

    async def read_state(self) -> EstateState:
        return EstateState.model_validate((await self._call("GET", "/state")).json())

    async def _fold(self, events: AsyncIterator[Any]) -> Transcript:
        transcript = Transcript()
        async for event in events:
            transcript = transcript.apply(event)
        return transcript

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._control.token}"}
        async with httpx.AsyncClient(verify=PLAIN) as http:
            response = await http.request(method, f"{self._control.url}{path}", headers=headers, **options)
        return response.raise_for_status()


@contextlib.asynccontextmanager
async def run_stage(folder: Path) -> AsyncIterator[Stage]:
    estate = build_estate(SEED)
    async with (
        serve_openai(Company(estate)) as model,
        serve_demo(STAND_INS, SEED, folder / "estate") as demo,
        contextlib.AsyncExitStack() as stack,
    ):
        systems = {name: demo.variables[name] for name in (*LOCAL, *REMOTE)}
        addresses: dict[str, str] = {}
        for name in REMOTE:
            variables = _process_variables(folder / name, {name: systems[name]}, model)
            _, client = await stack.enter_async_context(
                run_server_process("caipe", "agent", name, **variables)
            )
            addresses[f"{name.upper()}_AGENT_URL"] = client.url
        own_systems: dict[str, Mapping[str, str]] = {name: systems[name] for name in LOCAL}
        variables = _process_variables(folder / "supervisor", own_systems, model)
        variables |= {f"ENABLE_{name.upper()}": "true" for name in REMOTE}
        variables |= {**addresses, "DISTRIBUTED_AGENTS": ",".join(REMOTE)}
        _, client = await stack.enter_async_context(run_server_process("caipe", "serve", **variables))
        control = ControlAddress.load(folder / "estate")
        assert control is not None
        yield Stage(A2AClient(client.url, client.http), control, model)


def _process_variables(
    home: Path, systems: Mapping[str, Mapping[str, str]], model: OpenAIServer
) -> dict[str, str]:
    home.mkdir(parents=True)
    link_agents_folder(SERVERS_HOME, home)
    variables = build_environment({}, home, systems, 0)
    return {**variables, **model_of(model), "ASK_ON_UNTRUSTED_CONTENT": "true", "LLM_ATTEMPTS": "1"}


def need_servers() -> None:
    catalog = load_catalog({}, agents_config=None)
    for name in (*LOCAL, *REMOTE):
        entry = catalog.get(name)
        assert entry is not None
        missing = missing_commands(entry.definition, SERVERS_HOME)
        need(", ".join(missing), not missing, "`make servers` installs it")


def list_new_tickets(before: EstateState, after: EstateState) -> dict[str, dict[str, str]]:
    old_keys = before.records[TICKETS].keys()
    return {key: ticket for key, ticket in after.records[TICKETS].items() if key not in old_keys}


def read_facts(answer: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=<([^>]*)>", answer))


# --- the conversations ------------------------------------------------------------------------------


async def test_four_agents_find_the_cause_and_create_a_ticket_also_when_systems_fail(tmp_path: Path) -> None:
    need_servers()
    estate = build_estate(SEED)
    release = estate.company.failing_release
    facts = {
        "health": "Degraded",
        "version": release.service.version,
        "change": release.pull_request_title,
        "setting": release.new_setting,
    }
    async with run_stage(tmp_path) as stage:
        before = await stage.read_state()
        calm = await stage.ask(QUESTION)
        calm_tickets = list_new_tickets(before, await stage.read_state())

        await stage.reset()
        faults = Faults(errors=0.2, latency=2.0)
        await stage.set_faults(**{stand_in.name: faults for stand_in in STAND_INS})
        stormy = await stage.ask(QUESTION)
        stormy_tickets = list_new_tickets(before, await stage.read_state())

        await stage.reset()
        await stage.set_faults(github=Faults(errors=1.0))
        partial = await stage.ask(QUESTION)
        refusals = stage.model.player.refusals

    assert refusals == []
    assert calm.state == "completed", calm.error
    told = read_facts(calm.answer or "")
    (key,) = calm_tickets
    assert {name: told.get(name) for name in facts} == facts
    assert told["ticket"] == key
    assert names(calm_tickets[key]["description"], release.new_setting)
    assert "MISSING" not in (calm.answer or "")
    assert {call.tool for call in calm.calls if call.delegates} == {*LOCAL, *REMOTE}

    assert stormy.state == "completed", stormy.error
    _check_account(stormy.answer or "", {**facts, "ticket": None}, stormy_tickets)

    assert partial.state == "completed", partial.error
    assert "MISSING[github: change]" in (partial.answer or "")
    assert read_facts(partial.answer or "")["setting"] == release.new_setting


def _check_account(
    answer: str, facts: Mapping[str, str | None], tickets: Mapping[str, Mapping[str, str]]
) -> None:
    """Each fact is in the answer, or its agent is named with what is missing. No fact is wrong."""
    agents = {
        "health": "argocd",
        "version": "argocd",
        "change": "github",
        "setting": "kubernetes",
        "ticket": "jira",
    }
    told = read_facts(answer)
    for name, value in facts.items():
        if name not in told:
            assert f"MISSING[{agents[name]}: " in answer, (name, answer)
        elif value is not None:
            assert told[name] == value
    if "ticket" in told:
        assert told["ticket"] in tickets
