"""Where each agent runs: every row of the resolution, from the variables to the requests that reach a
service or do not.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.agents.agent_catalog import (
    AgentCatalog,
    AgentEntry,
    load_placed_catalog,
    shipped_names,
)
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer import deep_agent
from ai_platform_engineering.multi_agents.platform_engineer.delegation import Delegation
from ai_platform_engineering.multi_agents.platform_engineer.placement import place_agents
from ai_platform_engineering.multi_agents.platform_engineer.prompts import PromptConfig
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from ai_platform_engineering.multi_agents.platform_engineer.remote_agents import RemoteSubAgent
from ai_platform_engineering.multi_agents.platform_engineer.subagent_definition import (
    SubAgentDef,
    SubAgentRunnable,
)
from tests.conftest import ROOT
from tests.support.agent_services import real_server
from tests.support.fakes.a2a_misbehaving import WHOLE, Fake, misbehaving
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.processes import invoke_caipe
from tests.support.providers import OPENAI

EVERY = {"__all__"}
SECRET = "p4ss-9b1c"
AGENTS, MODE = "DISTRIBUTED_AGENTS", "DISTRIBUTED_MODE"


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    async with misbehaving() as running:
        yield running


def catalog(**variables: str) -> AgentCatalog:
    return load_placed_catalog(Settings.from_variables(variables), variables)


def entry(name: str, **variables: str) -> AgentEntry:
    agent_entry = catalog(**variables).get(name)
    assert agent_entry is not None
    return agent_entry


# --- which agents are distributed -----------------------------------------------------------------

ROWS: list[tuple[dict[str, str], set[str]]] = [
    ({}, set()),
    ({AGENTS: ""}, set()),
    ({AGENTS: "   "}, set()),
    ({AGENTS: "argocd"}, {"argocd"}),
    ({AGENTS: "argocd,jira"}, {"argocd", "jira"}),
    ({AGENTS: "  argocd ,\tjira  "}, {"argocd", "jira"}),
    ({AGENTS: "ArgoCD,JIRA"}, {"argocd", "jira"}),
    ({AGENTS: "argocd,,jira,"}, {"argocd", "jira"}),
    ({AGENTS: "argocd,argocd"}, {"argocd"}),
    ({AGENTS: "all"}, EVERY),
    ({AGENTS: "ALL"}, EVERY),
    ({AGENTS: "argocd, All ,jira"}, EVERY),
    ({AGENTS: "allowed"}, {"allowed"}),
    ({AGENTS: "__all__"}, set()),
    ({AGENTS: "argocd, __ALL__ ", MODE: "true"}, {"argocd"}),
    ({AGENTS: ","}, set()),
    ({AGENTS: " , , "}, set()),
    ({AGENTS: ",", MODE: "true"}, set()),
    ({AGENTS: " , ", MODE: "true"}, set()),
    ({AGENTS: "", MODE: "true"}, EVERY),
    ({MODE: "true"}, EVERY),
    ({MODE: "TRUE"}, EVERY),
    ({MODE: " 1 "}, EVERY),
    ({MODE: "yes"}, EVERY),
    ({MODE: "false"}, set()),
    ({MODE: "0"}, set()),
    ({MODE: "no"}, set()),
    ({MODE: ""}, set()),
    ({AGENTS: "argocd", MODE: "true"}, {"argocd"}),
    ({AGENTS: "argocd", MODE: "false"}, {"argocd"}),
    ({AGENTS: "all", MODE: "false"}, EVERY),
]


@pytest.mark.parametrize(("variables", "expected"), ROWS, ids=[str(variables) for variables, _ in ROWS])
def test_a_row_of_the_resolution(
    variables: dict[str, str], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    distributed = deep_agent._get_distributed_agents()
    assert (type(distributed), distributed) == (set, expected)
    supervisor = deep_agent.PlatformEngineerDeepAgent(Settings.from_variables(variables))
    assert (supervisor._distributed_agents, supervisor.distributed_mode) == (expected, bool(expected))
    # And the same for the agents themselves.
    remote = {agent_entry.name for agent_entry in catalog(**variables) if agent_entry.placement == "remote"}
    assert remote == (set(shipped_names()) if expected == EVERY else expected & set(shipped_names()))


@pytest.mark.parametrize(
    ("attribute", "listed", "expected"),
    [
        (True, None, EVERY),
        (True, "", EVERY),
        (True, "jira", {"jira"}),
        (True, ",", set()),
        (False, None, set()),
        (False, "jira", {"jira"}),
    ],
)
def test_the_attribute_of_the_module_counts_at_each_call(
    attribute: bool, listed: str | None, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deep_agent.DISTRIBUTED_MODE is False
    with monkeypatch.context() as patch:
        patch.setattr(deep_agent, MODE, attribute)
        if listed is not None:
            patch.setenv(AGENTS, listed)
        assert deep_agent._get_distributed_agents() == expected
    assert deep_agent._get_distributed_agents() == set()


def test_a_reload_can_switch_off_what_was_on_when_the_module_was_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (MODE, "_LOADED_MODE"):
        monkeypatch.setattr(deep_agent, name, True)
    variables = {MODE: "false"}
    placed = deep_agent.place_catalog(Settings.from_variables(variables), variables)
    assert {agent_entry.placement for agent_entry in placed.catalog} == {"in-process"}


@pytest.mark.parametrize(
    ("name", "distributed", "expected"),
    [
        ("argocd", set(), False),
        ("argocd", {"argocd"}, True),
        ("argocd", {"jira"}, False),
        ("argo", {"argocd"}, False),
        ("argocd", EVERY, True),
        ("anything", EVERY | {"jira"}, True),
        ("__all__", EVERY, False),
    ],
)
def test_an_agent_is_distributed_by_name_or_with_all(
    name: str, distributed: set[str], expected: bool
) -> None:
    assert deep_agent._agent_is_distributed(name, distributed) is expected


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("nobody", ["jria, nosuch", "__all__"])
def test_a_name_that_no_agent_has_is_a_warning_with_the_known_ones(
    nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    at = {"ARGOCD_AGENT_URL": "http://argocd:8001"}
    catalog(DISTRIBUTED_AGENTS=f"argocd,{nobody}", **at)
    [text] = warnings_in(caplog)
    assert text.startswith(f"DISTRIBUTED_AGENTS names {nobody}, which no agent has. ")
    assert set(re.findall(r"\w+", text.partition("The agents are: ")[2])) == set(shipped_names())
    caplog.clear()
    catalog(DISTRIBUTED_AGENTS="argocd,all", **at)
    catalog(DISTRIBUTED_MODE="true", **at)
    assert caplog.records == []


# --- which agents are enabled ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variable", "value", "expected"),
    [
        ("argocd", "ENABLE_ARGOCD", None, True),
        ("argocd", "ENABLE_ARGOCD", "", True),
        ("argocd", "ENABLE_ARGOCD", "true", True),
        ("argocd", "ENABLE_ARGOCD", "1", True),
        ("argocd", "ENABLE_ARGOCD", "Yes", True),
        ("argocd", "ENABLE_ARGOCD", "false", False),
        ("argocd", "ENABLE_ARGOCD", " FALSE ", False),
        ("argocd", "ENABLE_ARGOCD", "0", False),
        ("argocd", "ENABLE_ARGOCD", "no", False),
        ("argocd", "ENABLE_JIRA", "false", True),
        ("my-agent", "ENABLE_MY_AGENT", "false", False),
        ("my_agent", "ENABLE_MY_AGENT", "false", False),
        ("my-agent", "ENABLE_MY-AGENT", "false", True),
    ],
)
def test_an_agent_is_enabled_unless_its_switch_says_no(
    name: str, variable: str, value: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv(variable, value)
    assert deep_agent._is_agent_enabled(name) is expected


@pytest.mark.parametrize("distributed", [{AGENTS: "argocd"}, {AGENTS: "all"}, {MODE: "true"}, {}], ids=str)
def test_a_switch_at_false_beats_all_else(distributed: dict[str, str]) -> None:
    variables = {
        **distributed,
        "ENABLE_ARGOCD": "false",
        "ARGOCD_AGENT_URL": "http://argocd:8001",
        **CREDENTIALS,
    }
    placed = place_agents(Settings.from_variables(variables), variables)
    agent_entry = placed.catalog.get("argocd")
    assert agent_entry is not None
    assert (agent_entry.status, agent_entry.note) == ("disabled", "switched off by ENABLE_ARGOCD")
    assert "argocd" not in [agent.definition.name for agent in placed.agents]
    assert "agent argocd" not in placed.report()


# --- where a distributed agent is -----------------------------------------------------------------

CREDENTIALS = {"ARGOCD_API_URL": "https://argocd.example", "ARGOCD_TOKEN": SECRET}
URL = "MY_AGENT_AGENT_URL"
HOST = "MY_AGENT_AGENT_HOST"
PORT = "MY_AGENT_AGENT_PORT"
DEFINED = "http://defined.example:7000"

ADDRESSES: list[tuple[dict[str, str], str | None, str]] = [
    ({URL: "http://one.example:9001"}, None, "http://one.example:9001/"),
    ({URL: "https://one.example/agents/my/"}, None, "https://one.example/agents/my/"),
    ({URL: "http://one.example", HOST: "two.example", PORT: "9002"}, DEFINED, "http://one.example/"),
    ({HOST: "two.example", PORT: "9002"}, DEFINED, "http://two.example:9002/"),
    ({HOST: "two.example"}, None, "http://two.example:8000/"),
    ({PORT: "9002"}, None, "http://localhost:9002/"),
    ({HOST: "::1", PORT: "9002"}, None, "http://[::1]:9002/"),
    ({URL: "  "}, DEFINED, f"{DEFINED}/"),
    ({}, DEFINED, f"{DEFINED}/"),
]


def my_agent(variables: Mapping[str, str], url: str | None) -> AgentEntry:
    definition = {
        "name": "my-agent",
        "description": "Mine.",
        "mcpServers": {"m": {"command": "no-such-program"}},
    }
    Path("my.json").write_text(json.dumps({**definition, **({"url": url} if url else {})}))
    return entry("my-agent", AGENTS_CONFIG="my.json", DISTRIBUTED_AGENTS="my-agent", **variables)


@pytest.mark.parametrize(("variables", "url", "expected"), ADDRESSES, ids=str)
def test_the_address_of_a_distributed_agent(
    variables: dict[str, str], url: str | None, expected: str
) -> None:
    agent_entry = my_agent(variables, url)
    assert (agent_entry.status, agent_entry.placement, agent_entry.address, agent_entry.note) == (
        "ready",
        "remote",
        expected,
        "",
    )


NOT_CONFIGURED: list[tuple[dict[str, str], str]] = [
    ({}, f"set {URL}, or {HOST} and {PORT}"),
    ({URL: "one.example:9001"}, f"{URL} gives no http or https address"),
    ({URL: "ftp://one.example"}, f"{URL} gives no http or https address"),
    ({URL: "http://"}, f"{URL} gives no http or https address"),
    ({URL: "http://one.example:port"}, f"{URL} gives no http or https address"),
    ({URL: "http://[::1"}, f"{URL} gives no http or https address"),
    ({HOST: "two.example", PORT: "99999"}, f"{HOST} and {PORT} gives no http or https address"),
    ({URL: f"http://me:{SECRET}@one.example"}, f"{URL} holds credentials; give them as <NAME>_AGENT_TOKEN"),
    ({URL: f"http://{SECRET}@one.example"}, f"{URL} holds credentials; give them as <NAME>_AGENT_TOKEN"),
]


@pytest.mark.parametrize(("variables", "note"), NOT_CONFIGURED, ids=range(len(NOT_CONFIGURED)))
def test_a_distributed_agent_without_a_good_address_is_not_configured(
    variables: dict[str, str], note: str
) -> None:
    agent_entry = my_agent(variables, None)
    assert (agent_entry.status, agent_entry.placement, agent_entry.address, agent_entry.note) == (
        "not_configured",
        "remote",
        None,
        note,
    )
    assert SECRET not in repr(agent_entry)


def test_a_distributed_agent_needs_no_credentials() -> None:
    here = entry("argocd")
    assert (here.placement, here.status) == ("in-process", "not_configured")
    assert {name for name, _ in here.missing} == set(CREDENTIALS)
    assert entry("argocd", **CREDENTIALS).status == "ready"
    there = entry(
        "argocd",
        DISTRIBUTED_AGENTS="argocd",
        ARGOCD_AGENT_URL="http://argocd:8001",
        ARGOCD_AGENT_TOKEN=SECRET,
    )
    assert (there.placement, there.status) == ("remote", "ready")
    assert there.token is not None
    assert (there.token.get_secret_value(), SECRET in repr(there)) == (SECRET, False)


# --- the names that others use --------------------------------------------------------------------


async def test_a_remote_definition_goes_to_the_service(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOCD_AGENT_URL", fake.at("third-party", "good"))
    definition = deep_agent._create_remote_a2a_subagent_def(
        "argocd", {"argocd": {"system_prompt": "Be short."}}
    )
    assert (definition["name"], "Argo CD" in definition["description"], set(definition)) == (
        "argocd",
        True,
        {"name", "description", "runnable"},
    )
    assert await fake.arrived(fake.url) == []  # nobody was asked for it
    work = Delegation(
        text="Look.", run_id="", epoch=0, key="k", call_id="call", context_id="c", seconds=20, deadline=4e9
    )
    after = await definition["runnable"].ainvoke(
        {"assignment": work.to_state(), "remembered": {"remote": {}}}
    )
    assert after["text"] == WHOLE
    assert [call["method"] for call in await fake.arrived(fake.at("third-party", "good"))] == [
        "card",
        "SendStreamingMessage",
    ]


@pytest.mark.parametrize(
    ("name", "variables", "said"),
    [
        (
            "argocd",
            {},
            "The agent argocd is not configured: set ARGOCD_AGENT_URL, "
            "or ARGOCD_AGENT_HOST and ARGOCD_AGENT_PORT.",
        ),
        (
            "argocd",
            {"ENABLE_ARGOCD": "false"},
            "The agent argocd is disabled: switched off by ENABLE_ARGOCD.",
        ),
        ("nosuch", {}, f"There is no agent nosuch. The agents are: {', '.join(shipped_names())}."),
    ],
)
def test_a_remote_definition_that_cannot_be_made_says_why(
    name: str, variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as raised:
        deep_agent._create_remote_a2a_subagent_def(name, {})
    assert str(raised.value) == said


async def test_every_shipped_agent_can_be_made_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = sorted(path.stem for path in (ROOT / "ai_platform_engineering" / "agents").glob("*.yaml"))
    assert [name for name, _ in deep_agent.SINGLE_NODE_AGENTS] == shipped
    for name, factory in deep_agent.SINGLE_NODE_AGENTS:
        monkeypatch.setenv(f"ENABLE_{name.upper()}", "true")  # also without its credentials
        definition = await factory({})
        assert (definition["name"], set(definition)) == (name, {"name", "description", "runnable"})
        assert definition["description"]


def is_remote(definition: SubAgentDef) -> bool:
    runnable = definition["runnable"]
    return isinstance(runnable, SubAgentRunnable) and isinstance(runnable.subagent, RemoteSubAgent)


async def test_a_supervisor_defines_each_agent_where_it_is_placed() -> None:
    variables = {**CREDENTIALS, AGENTS: "jira", "JIRA_AGENT_URL": "http://127.0.0.1:1/"}
    supervisor = deep_agent.PlatformEngineerDeepAgent(
        Settings.from_variables(variables),
        placed=deep_agent.place_catalog(Settings.from_variables(variables), variables),
    )
    assert (supervisor.distributed_mode, supervisor._distributed_agents) == (True, {"jira"})
    definitions = {
        definition["name"]: definition
        for definition in await supervisor._create_subagent_defs(PromptConfig())
    }
    assert {"argocd", "jira", "netutils"} <= set(definitions)  # jira: unreachable, and defined all the same
    remote = [name for name, definition in definitions.items() if is_remote(definition)]
    assert remote == ["jira"]
    again = {
        definition["name"]: definition
        for definition in await supervisor._create_subagent_defs({"additions": "Be short."})
    }
    assert {name: definition["description"] for name, definition in again.items()} == {
        name: definition["description"] for name, definition in definitions.items()
    }


def test_importing_the_supervisor_imports_no_agents_package_and_reads_the_older_switch(
    guarded_environment: dict[str, str],
) -> None:
    named = "('ai_platform_engineering.mcp_servers', 'dns', 'mcp.server.mcpserver')"
    code = (
        "import sys, ai_platform_engineering.multi_agents.platform_engineer.deep_agent as one; "
        "print(one.DISTRIBUTED_MODE, len(one.SINGLE_NODE_AGENTS), "
        f"[name for name in sys.modules if name.startswith({named})])"
    )
    env = {
        **guarded_environment,
        MODE: "yes",
        "A2A_PORT": "wrong",
    }  # what else is wrong is no reason not to be imported
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, f"True {len(shipped_names())} []"), done.stderr


def test_there_is_one_module_per_layer_and_both_commands_start_it() -> None:
    twin = re.compile(r"\w_" + r"single\b")
    places = [ROOT / "ai_platform_engineering", ROOT / "tests", ROOT / "docs"]
    files = [
        file
        for place in places
        for file in place.rglob("*")
        if file.suffix in (".py", ".md", ".yaml", ".json", ".toml")
    ]
    files += [file for file in ROOT.iterdir() if file.is_file() and file.name != ".env"]
    files = [file for file in files if file.name != "test_repository.py"]  # which looks for the same
    assert len(files) > 100
    assert [
        str(file)
        for file in files
        if twin.search(file.stem) or twin.search(file.read_text(encoding="utf-8", errors="replace"))
    ] == []
    commands = {
        entry_point.name: entry_point.value
        for entry_point in entry_points(group="console_scripts")
        if entry_point.name.startswith("platform-engineer")
    }
    assert set(commands) == {"platform-engineer", "platform-engineer-single"}
    assert len(set(commands.values())) == 1


# --- the running supervisor -----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def running(**variables: str) -> AsyncIterator[Client]:
    environment = {**FAST, "CAIPE_HOME": os.environ["CAIPE_HOME"], **variables}
    async with (
        serve_app(build_app(Settings.from_variables(environment), environment)) as url,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        yield Client(url, http)


async def components(client: Client) -> dict[str, Any]:
    report: dict[str, Any] = (await client.http.get(f"{client.url}ready")).json()["components"]
    return {name.removeprefix("agent "): row for name, row in report.items() if name.startswith("agent ")}


async def placements(client: Client) -> dict[str, str]:
    return {name: row["placement"] for name, row in (await components(client)).items()}


async def test_one_agent_is_a_service_and_the_others_are_here(fake: Fake) -> None:
    number = random.randint(10**6, 10**9)
    Path("sums.json").write_text(
        json.dumps({"name": "sums", "description": "Sums.", "mcpServers": {"sums": real_server()}})
    )
    requests = [
        Call("task", {"description": f"double {number}", "subagent_type": name})
        for name in ("sums", "argocd")
    ]
    worker = Script(Turn(Call("double", {"number": number})), Turn(Say("{{tool:double}}")))
    book = Book(
        {f"^double {number}$": worker},
        default=Script(Turn(*requests), Turn(Say("{{tool:sums}} / {{tool:argocd}}"))),
    )
    variables = {
        "AGENTS_CONFIG": "sums.json",
        AGENTS: " ArgoCD ",
        "ARGOCD_AGENT_URL": fake.at("ours", "good"),
        "ARGOCD_AGENT_TOKEN": SECRET,
    }
    async with OPENAI.serve(book) as model, running(**variables, **OPENAI.settings(model)) as client:
        before = await components(client)
        stream = await client.ask("Both?")
        tools = (await client.http.get(f"{client.url}tools")).json()["tools"]
    assert {name: row["placement"] for name, row in before.items()} == {
        **dict.fromkeys([*shipped_names(), "sums"], "in-process"),
        "argocd": "remote",
    }
    assert (before["argocd"]["reachable"], before["argocd"]["url"]) == ("reachable", fake.at("ours", "good"))
    assert stream.answer == f"{2 * number} / {WHOLE}"
    assert {
        "🔧 Sums: Calling tool: Double\n",
        "✅ Supervisor: Sums completed\n",
        "✅ Supervisor: Argocd completed\n",
    } <= set(stream.notifications)
    assert ("double" in tools["sums"], tools["argocd"]) == (True, [])
    arrived = await fake.arrived(fake.at("ours", "good"), "SendStreamingMessage")
    assert [call["authorization"] for call in arrived] == [f"Bearer {SECRET}"]


async def test_what_stands_for_all_agents_within_the_program_is_the_name_of_none(fake: Fake) -> None:
    asks_all = Script(
        Turn(Call("task", {"description": "Look.", "subagent_type": "__all__"})),
        Turn(Say("{{tool:__all__}}")),
    )
    at = {"ARGOCD_AGENT_URL": fake.at("ours", "good")}
    async with OPENAI.serve(asks_all) as model:
        async with running(DISTRIBUTED_AGENTS="__all__", **at, **OPENAI.settings(model)) as client:
            assert await placements(client) == dict.fromkeys(shipped_names(), "in-process")
            assert await fake.arrived(fake.url) == []
        async with running(DISTRIBUTED_AGENTS="all", **at, **OPENAI.settings(model)) as client:
            answer = (await client.ask("All?")).answer
    assert answer == "There is no agent __all__. The agents are: argocd."
    Path("all.yaml").write_text("name: __all__\ndescription: Everybody.\n")
    with pytest.raises(ConfigurationError, match=r"all\.yaml:1: an agent's name .* '__all__' is not"):
        catalog(AGENTS_CONFIG="all.yaml")


async def test_all_is_what_the_older_switch_says() -> None:
    answers = []
    for variables in ({AGENTS: "all"}, {MODE: "true"}):
        async with running(
            JIRA_AGENT_URL="http://127.0.0.1:1", SKIP_AGENT_CONNECTIVITY_CHECK="true", **variables
        ) as client:
            answers.append(await components(client))
    assert answers[0] == answers[1]
    assert {name: row["placement"] for name, row in answers[0].items()} == dict.fromkeys(
        shipped_names(), "remote"
    )
    assert answers[0]["jira"]["status"] == "ready"
    async with running() as client:
        assert await placements(client) == dict.fromkeys(shipped_names(), "in-process")


@pytest.mark.parametrize(
    ("variables", "checked"),
    [
        ({AGENTS: "argocd"}, True),
        ({MODE: "true"}, True),
        ({AGENTS: "argocd", "SKIP_AGENT_CONNECTIVITY_CHECK": "false"}, True),
        ({AGENTS: "argocd", "SKIP_AGENT_CONNECTIVITY_CHECK": "true"}, False),
        ({MODE: "true", "SKIP_AGENT_CONNECTIVITY_CHECK": "yes"}, False),
        ({AGENTS: "jira"}, False),
        ({}, False),
    ],
    ids=str,
)
async def test_distributed_agents_are_checked_unless_that_is_switched_off(
    fake: Fake, variables: dict[str, str], checked: bool
) -> None:
    async with running(ARGOCD_AGENT_URL=fake.at("ours", "good"), **variables) as client:
        row = (await components(client))["argocd"]
        arrived = await fake.arrived(fake.url)
    assert [call["method"] for call in arrived] == (["card"] if checked else [])
    assert row.get("reachable") == (
        "reachable" if checked else "unknown" if row["placement"] == "remote" else None
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("behaviour", ["hanging-card", "dripping-card"])
async def test_an_agent_that_hangs_does_not_hold_up_the_start(fake: Fake, behaviour: str) -> None:
    """The agent never answers: a start that waited for it would not come to an end."""
    at = fake.at("ours", behaviour)
    async with running(
        DISTRIBUTED_AGENTS="argocd", ARGOCD_AGENT_URL=at, AGENT_CHECK_TIMEOUT_SECONDS="3"
    ) as client:
        health = await client.http.get(f"{client.url}health")
        assert health.json() == {"status": "ok"}
        while (row := (await components(client))["argocd"])["reachable"] == "unknown":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert len(await fake.arrived(at)) == 1
    assert (row["status"], row["reachable"]) == ("degraded", "unreachable")  # reported, and still there
    assert row["message"].startswith(f"{at} cannot be reached")


ADDRESS = "set ARGOCD_AGENT_URL, or ARGOCD_AGENT_HOST and ARGOCD_AGENT_PORT"
NO_ADDRESS = "The agent argocd is to run as a service and has no address, so it is not offered: "


@pytest.mark.parametrize(
    ("variables", "needs"),
    [
        ({AGENTS: "argocd"}, ADDRESS),
        ({AGENTS: "all", "ENABLE_ARGOCD": "true", "JIRA_AGENT_URL": "http://127.0.0.1:1"}, ADDRESS),
        (
            {MODE: "true", "ARGOCD_AGENT_URL": "argocd:8001"},
            "ARGOCD_AGENT_URL gives no http or https address",
        ),
    ],
    ids=str,
)
async def test_a_service_without_an_address_is_told_at_the_start_in_ready_and_in_the_list(
    variables: dict[str, str], needs: str, caplog: pytest.LogCaptureFixture
) -> None:
    skip = {"SKIP_AGENT_CONNECTIVITY_CHECK": "true"}
    async with running(**variables, **skip) as client:
        assert f"{NO_ADDRESS}{needs}" in warnings_in(caplog)
        readiness = await client.http.get(f"{client.url}ready")
        row = (await components(client))["argocd"]
    assert (readiness.status_code, readiness.json()["status"]) == (200, "degraded")
    assert (row["status"], row["message"]) == ("degraded", f"{NO_ADDRESS}{needs}")
    listed = await invoke_caipe("agents", env={**variables, "COLUMNS": "300"})
    [line] = [line for line in listed.out.splitlines() if line.startswith("argocd")]
    assert re.fullmatch(rf"argocd +no address +{re.escape(needs)} +as a service *", line)


async def test_agents_that_nobody_named_may_have_no_address(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever distributes all agents uses those that have an address."""
    variables = {AGENTS: "all", "JIRA_AGENT_URL": "http://127.0.0.1:1"}
    async with running(SKIP_AGENT_CONNECTIVITY_CHECK="true", **variables) as client:
        row = (await components(client))["argocd"]
    assert warnings_in(caplog) == []
    assert (row["status"], row["message"]) == ("not_configured", ADDRESS)


async def test_if_all_agents_are_services_and_none_has_an_address_that_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(DISTRIBUTED_AGENTS="all") as client:
        ready = (await client.http.get(f"{client.url}ready")).json()["components"]["agents"]
    assert warnings_in(caplog) == [ready["message"]]
    assert ready["status"] == "degraded"
    assert "none has an address" in ready["message"]


async def test_the_start_says_where_the_agents_are_and_which_names_nobody_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="ai_platform_engineering")
    at = {"ARGOCD_AGENT_URL": "http://127.0.0.1:1", "ARGOCD_AGENT_TOKEN": SECRET}
    async with running(DISTRIBUTED_AGENTS="argocd,nosuch", **at) as client:
        rows = await components(client)
    records = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert (
        "WARNING",
        "agent argocd is unreachable: http://127.0.0.1:1/ cannot be reached: nothing listens at its address.",
    ) in records
    assert any(
        level == "WARNING" and text.startswith("DISTRIBUTED_AGENTS names nosuch") for level, text in records
    )
    [table] = [text for _, text in records if text.startswith("agents:")]
    assert re.search(r"\n  argocd +ready +http://127\.0\.0\.1:1/\n", table)
    assert (rows["argocd"]["placement"], rows["argocd"]["status"], rows["netutils"]["placement"]) == (
        "remote",
        "degraded",
        "in-process",
    )
    assert SECRET not in caplog.text
