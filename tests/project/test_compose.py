"""The compose file without a Docker engine.

Its contents are checked, and its commands are run as they would be in a container.
"""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import yaml

from ai_platform_engineering.core.legacy_variables import legacy_names
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.settings_report import describe_settings
from tests.conftest import ROOT
from tests.support.container_files import (
    BOT,
    COMPOSE,
    KEY,
    NOBODY,
    SHIPPED,
    SUPERVISOR,
    dockerfile_lines,
    entrypoint,
    image_environment,
    last_stage_lines,
    own_variables,
    prefix,
    read_raw_services,
    read_services,
)
from tests.support.dialects import V03, artifact, text_of
from tests.support.harness import PLAIN, Client
from tests.support.ports import free_port
from tests.support.processes import Program, run_command, start_command

# Read by libraries, not by us.
CONNECTION_VARIABLES = {
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
}
LIBRARY_VARIABLES = CONNECTION_VARIABLES | {
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_API_VERSION",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_ENDPOINT",
    "GOOGLE_API_KEY",
    "OLLAMA_HOST",
    "FORWARDED_ALLOW_IPS",
}
# Of commands that ask a server, not of a server.
COMMAND_VARIABLES = {"CAIPE_URL", "CAIPE_ENV_FILE"}


def test_the_compose_file_has_only_keys_that_we_know_to_be_right() -> None:
    schema = json.loads((ROOT / "tests/fixtures/compose_schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(COMPOSE.read_text()), schema)


def test_there_is_one_supervisor_one_bot_and_one_service_and_profile_for_each_shipped_agent() -> None:
    compose_services = read_raw_services()
    assert list(compose_services) == [SUPERVISOR, BOT, *(f"agent-{name}" for name in SHIPPED)]
    assert "profiles" not in compose_services[SUPERVISOR]
    assert compose_services[BOT]["profiles"] == ["slack-bot"]
    for name in SHIPPED:
        assert compose_services[f"agent-{name}"]["profiles"] == [name, "all-agents"]
        assert compose_services[f"agent-{name}"]["command"] == ["agent", name]


def test_all_services_run_one_image_that_one_of_them_builds() -> None:
    compose_services = read_raw_services()
    assert {service["image"] for service in compose_services.values()} == {"caipe"}
    assert [name for name, service in compose_services.items() if "build" in service] == [SUPERVISOR]
    assert set(compose_services[SUPERVISOR]["build"]["args"]) <= {
        line.partition("=")[0] for line in dockerfile_lines("ARG")
    }
    assert not [name for name, service in compose_services.items() if "entrypoint" in service]


def test_every_variable_of_the_compose_file_is_known() -> None:
    source = re.sub(r"#.*", "", COMPOSE.read_text())
    named = {name for service in read_raw_services().values() for name in service["environment"]} | set(
        re.findall(r"\$\{(\w+)", source)
    )
    parts = ("HOST", "PORT", "URL", "TOKEN")
    addresses = {f"{prefix(name)}_AGENT_{part}" for name in SHIPPED for part in parts}
    settings = {row.name for row in describe_settings(Settings(), {}, {})}
    agents = set().union(*map(own_variables, SHIPPED))
    assert named - settings - agents - addresses - LIBRARY_VARIABLES - legacy_names() == {"AGENT_TOKEN"}


def test_an_agent_gets_what_it_needs_and_nothing_of_another() -> None:
    compose_services = read_raw_services()
    common = set(compose_services["agent-netutils"]["environment"]) - own_variables("netutils")
    for name in SHIPPED:
        assert set(compose_services[f"agent-{name}"]["environment"]) == common | own_variables(name)
        assert not common & own_variables(name)


def test_the_supervisor_gets_what_the_agents_inside_it_need_and_the_address_of_each_outside() -> None:
    environment = read_raw_services()[SUPERVISOR]["environment"]
    for name in SHIPPED:
        assert own_variables(name) <= set(environment)
        assert (environment[f"{prefix(name)}_AGENT_HOST"], environment[f"{prefix(name)}_AGENT_PORT"]) == (
            f"agent-{name}",
            8000,
        )
    assert {"DISTRIBUTED_AGENTS", "DISTRIBUTED_MODE"} <= set(environment)


def test_the_variables_of_the_compose_file_are_those_that_make_compose_writes(tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, ROOT / ".ci/compose-variables", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    current = run("--check")
    assert current.returncode == 0, current.stderr
    forgotten = tmp_path / "compose.yaml"
    forgotten.write_text(COMPOSE.read_text().replace(" STORAGE_REQUIRED,", ""))
    assert run("--check", forgotten).returncode == 1
    assert run(forgotten).returncode == 0
    assert forgotten.read_text() == COMPOSE.read_text()


def test_every_setting_reaches_the_containers_that_read_it() -> None:
    raw = read_raw_services()
    groups = {
        name: {row.name for row in describe_settings(Settings(), {}, {})} & set(variables)
        for name, variables in setting_groups().items()
    }
    bot_only, not_for_agents = groups["slack"], {"placement", "knowledge", "sources", "skills", "git"}
    for name in groups.keys() - {"slack"}:
        assert groups[name] <= set(raw[SUPERVISOR]["environment"]), name
        for agent in SHIPPED:
            reached = groups[name] - {"A2A_AUTH_DELEGATE_KEY"} <= set(raw[f"agent-{agent}"]["environment"])
            assert reached == (name not in not_for_agents), (agent, name)
    assert bot_only <= set(raw[BOT]["environment"])


def setting_groups() -> dict[str, list[str]]:
    """The variables of each group of settings."""
    groups: dict[str, list[str]] = {}
    for name in Settings.model_fields:
        group = getattr(Settings(), name)
        groups[name] = [info.alias or field for field, info in type(group).model_fields.items()]
    return groups


def test_every_variable_that_the_documentation_names_reaches_a_container() -> None:
    rows = [
        line.split("|")[1]
        for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        if path.name != "migrating.md"  # it names variables of another program, too
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `")
    ]
    documented = {name for row in rows for name in re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", row)}
    passed = {name for service in read_raw_services().values() for name in service["environment"]}
    arguments = {"TASK_ID", "WITH_NODE"}  # of a command, and of the image's build
    assert len(documented) > 100
    assert documented - passed - COMMAND_VARIABLES - arguments == set()


def test_what_has_no_name_in_the_compose_file_reaches_the_supervisor_from_the_file() -> None:
    dotenv = {
        "A2A_AUTH_SHARED_KEY": KEY,
        "MY_AGENT_KEY": "secret",
        "CAIPE_HOME": "~/.caipe",
        "A2A_HOST": "::1",
    }
    services = read_services({}, dotenv)
    assert services[SUPERVISOR]["environment"]["MY_AGENT_KEY"] == "secret"
    assert [name for name, service in services.items() if "MY_AGENT_KEY" in service["environment"]] == [
        SUPERVISOR
    ]
    for name, service in services.items():
        assert service["environment"]["CAIPE_HOME"] == "/var/lib/caipe"
        assert name == BOT or service["environment"]["A2A_HOST"] == "0.0.0.0"


def test_an_agent_elsewhere_is_named_by_its_address_and_a_token_of_its_own() -> None:
    elsewhere = {"ARGOCD_AGENT_URL": "https://argocd.example/a2a", "ARGOCD_AGENT_TOKEN": "its-own-token"}
    services = read_services({"A2A_AUTH_SHARED_KEY": KEY, **elsewhere})
    assert elsewhere.items() <= services[SUPERVISOR]["environment"].items()
    assert "ARGOCD_AGENT_TOKEN" not in services["agent-argocd"]["environment"]


def test_a_variable_that_is_not_set_is_not_set_in_the_container() -> None:
    assert "OPENAI_BASE_URL" not in read_services({"A2A_AUTH_SHARED_KEY": KEY})[SUPERVISOR]["environment"]
    variables = {"A2A_AUTH_SHARED_KEY": KEY, "OPENAI_BASE_URL": NOBODY}
    assert read_services(variables)[SUPERVISOR]["environment"]["OPENAI_BASE_URL"] == NOBODY


def test_nothing_starts_without_the_shared_key() -> None:
    with pytest.raises(LookupError, match="Set A2A_AUTH_SHARED_KEY"):
        read_services({})
    for name, service in read_services({"A2A_AUTH_SHARED_KEY": KEY}).items():
        assert name == BOT or service["environment"]["A2A_AUTH_SHARED_KEY"] == KEY
        assert "A2A_ALLOW_UNAUTHENTICATED" not in service["environment"]
    assert read_services({"A2A_AUTH_SHARED_KEY": KEY})[SUPERVISOR]["environment"]["AGENT_TOKEN"] == KEY


def test_the_bot_speaks_for_people_with_a_key_of_its_own_and_has_besides_only_slacks_and_its_tables() -> None:
    compose_services = read_services(
        {"A2A_AUTH_SHARED_KEY": KEY, "A2A_AUTH_DELEGATE_KEY": "another-random-text"}
    )
    holders = [
        name
        for name, service in compose_services.items()
        if "A2A_AUTH_DELEGATE_KEY" in service["environment"]
    ]
    assert holders == [SUPERVISOR, BOT]
    settings = {row.name for row in describe_settings(Settings(), {}, {})}
    own = settings & set(setting_groups()["slack"])
    tables = {"DATABASE_URL", "STORAGE_TIMEOUT_SECONDS"}
    allowed = own | CONNECTION_VARIABLES | tables | {"A2A_AUTH_DELEGATE_KEY", "LOG_LEVEL", "CAIPE_HOME"}
    assert set(read_raw_services()[BOT]["environment"]) == allowed
    assert f"http://{SUPERVISOR}:8000/" in compose_services[BOT]["command"]


def test_only_the_supervisor_is_published_and_only_on_this_machine() -> None:
    assert [name for name, service in read_raw_services().items() if "ports" in service] == [SUPERVISOR]
    for variables, port in (({}, "8000"), ({"A2A_PORT": "9000"}, "9000")):
        supervisor = read_services({"A2A_AUTH_SHARED_KEY": KEY, **variables})[SUPERVISOR]
        assert supervisor["ports"] == [f"127.0.0.1:{port}:8000"]
        assert supervisor["environment"]["A2A_PORT"] == "8000"
        assert supervisor["environment"]["EXTERNAL_URL"] == f"http://localhost:{port}"


def test_every_service_has_a_volume_of_its_own_at_its_home() -> None:
    (home,) = last_stage_lines("VOLUME")
    assert image_environment()["CAIPE_HOME"] == home
    mounts = {name: service["volumes"] for name, service in read_raw_services().items()}
    assert mounts == {name: [f"{name}:{home}"] for name in mounts}
    assert list(yaml.safe_load(COMPOSE.read_text())["volumes"]) == list(mounts)


def test_the_usage_in_the_compose_file_names_profiles_that_exist() -> None:
    usage = re.findall(r"^#   (.*docker compose.*? up)\b", COMPOSE.read_text(), re.MULTILINE)
    profiles = {
        profile for service in read_raw_services().values() for profile in service.get("profiles", ())
    }
    assert len(usage) >= 3
    assert {name for line in usage for name in re.findall(r"--profile (\S+)", line)} <= profiles


# What runs


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service of the compose file as a process."""

    program: Program
    client: Client
    port: int

    async def get(self, path: str) -> dict[str, Any]:
        response = await self.client.http.get(self.client.url + path, headers=self.client.headers)
        assert response.status_code == 200, (path, response.text, self.program.err)
        body: dict[str, Any] = response.json()
        return body


@contextlib.asynccontextmanager
async def start_service(
    name: str, variables: Mapping[str, str], *, address: Mapping[str, str] | None = None
) -> AsyncIterator[RunningService]:
    """As a container would be started, but on loopback and on a free port, with a home of its own."""
    definition, port = read_services({"A2A_AUTH_SHARED_KEY": KEY, **variables})[name], free_port()
    here = {
        "A2A_HOST": "127.0.0.1",
        "A2A_PORT": str(port),
        "CAIPE_HOME": str(Path.cwd() / name),
        **(address or {}),
    }
    command = [*entrypoint(), *definition["command"]]
    async with (
        start_command(*command, env={**image_environment(), **definition["environment"], **here}) as program,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        await program.wait_for_stderr("serving on")
        yield RunningService(
            program, Client(f"http://127.0.0.1:{port}/", http, {"Authorization": f"Bearer {KEY}"}), port
        )


def dummy_credentials(names: Sequence[str]) -> dict[str, str]:
    """Something in every variable of these agents; addresses lead nowhere."""
    values = {variable: NOBODY for name in names for variable in SHIPPED[name].variables}
    switches = {name: "true" for name in values if name.startswith("ENABLE_") or name.endswith("_READ_ONLY")}
    return {**values, **switches}


async def test_the_supervisor_runs_with_all_agents_inside_and_its_health_check_sees_it() -> None:
    (line,) = last_stage_lines("HEALTHCHECK")
    check = json.loads(line.partition("CMD ")[2])
    assert {
        tuple(compose_service["healthcheck"].get("test", ()))
        for name, compose_service in read_raw_services().items()
        if name != BOT
    } == {("CMD", *check)}
    async with start_service(SUPERVISOR, dummy_credentials(["argocd"])) as supervisor:
        assert await supervisor.get("health") == {"status": "ok"}
        components = (await supervisor.get("ready"))["components"]
        stranger = await supervisor.client.http.get(supervisor.client.url + "tools")
        alive = await run_command(*check, env={"A2A_PORT": str(supervisor.port), "http_proxy": NOBODY})
    dead = await run_command(*check, env={"A2A_PORT": str(supervisor.port)})
    assert {name: components[f"agent {name}"]["placement"] for name in SHIPPED} == dict.fromkeys(
        SHIPPED, "in-process"
    )
    argocd = components["agent argocd"]  # configured; its program is not part of the image
    assert (argocd["status"], argocd["message"]) == ("degraded", "not on this machine: argocd-mcp")
    assert components["agent aws"]["status"] == "not_configured"
    assert stranger.status_code == 401
    assert (alive.code, dead.code) == (0, 1), alive.err
    assert KEY not in supervisor.program.err


async def test_the_image_alone_starts_the_supervisor_and_not_without_a_key() -> None:
    (line,) = last_stage_lines("CMD")
    assert json.loads(line) == read_raw_services()[SUPERVISOR]["command"]
    done = await run_command(
        *entrypoint(), *json.loads(line), env={**image_environment(), "CAIPE_HOME": str(Path.cwd())}
    )
    assert (done.code, done.out) == (1, "")
    assert "A2A_AUTH_SHARED_KEY" in done.err
    assert "Traceback" not in done.err


async def check_agent_service(name: str) -> dict[str, Any]:
    """Runs the service of an agent with credentials: it is healthy, is this agent, and needs the key."""
    async with start_service(f"agent-{name}", dummy_credentials([name])) as agent:
        assert await agent.get("health") == {"status": "ok"}
        components = (await agent.get("ready"))["components"]
        card = await agent.get(".well-known/agent-card.json")
        stranger = await agent.client.http.get(agent.client.url + "tools")
    assert [component for component in components if component.startswith("agent ")] == [f"agent {name}"]
    assert [skill["id"] for skill in card["skills"]] == [name]
    assert card["url"] == f"http://agent-{name}:8000/"
    assert stranger.status_code == 401
    assert KEY not in agent.program.err
    row: dict[str, Any] = components[f"agent {name}"]
    return row


async def test_an_agent_runs_from_its_service() -> None:
    assert (await check_agent_service("github"))["status"] == "ready"


@pytest.mark.full  # each start is a few seconds of work: some at a time
@pytest.mark.parametrize("names", [list(SHIPPED)[at::8] for at in range(8)], ids=" ".join)
async def test_every_agent_runs_from_its_service(names: list[str]) -> None:
    rows = await asyncio.gather(*map(check_agent_service, names))
    # Degraded: the program of its tool server is not installed here, and it says so.
    assert {row["status"] for row in rows} <= {"ready", "degraded"}
    assert all(row["message"] for row in rows if row["status"] == "degraded")


async def test_an_agent_without_its_tool_server_runs_and_says_so() -> None:
    async with start_service("agent-argocd", dummy_credentials(["argocd"])) as agent:
        task = V03.sent(await agent.client.call(V03.send, V03.message("Which applications are out of sync?")))
        components = (await agent.get("ready"))["components"]
    assert V03.state(task) in ("completed", "failed")
    assert components["agent argocd"]["status"] == "degraded"
    assert "argocd-mcp" in components["agent argocd"]["message"]


async def test_an_agent_without_its_credentials_says_which_and_ends() -> None:
    definition = read_services({"A2A_AUTH_SHARED_KEY": KEY})["agent-argocd"]
    done = await run_command(
        *entrypoint(),
        *definition["command"],
        env={**definition["environment"], "A2A_HOST": "127.0.0.1", "A2A_PORT": "0"},
    )
    assert done.code == 1
    assert "ARGOCD_TOKEN" in done.err
    assert "Traceback" not in done.err


async def test_the_bot_without_its_tokens_says_which_and_ends() -> None:
    definition = read_services({"A2A_AUTH_SHARED_KEY": KEY})[BOT]
    for variables, missing in (
        ({}, "SLACK_INTEGRATION_APP_TOKEN"),
        ({"SLACK_INTEGRATION_APP_TOKEN": "xapp-1"}, "SLACK_INTEGRATION_BOT_TOKEN"),
    ):
        done = await run_command(
            *entrypoint(),
            *definition["command"],
            env={**definition["environment"], **variables, "CAIPE_HOME": str(Path.cwd())},
        )
        assert done.code == 1
        assert missing in done.err
        assert "Traceback" not in done.err


async def test_the_same_supervisor_runs_with_an_agent_outside_and_asks_it() -> None:
    async with start_service("agent-netutils", {}) as agent:
        address = {"NETUTILS_AGENT_HOST": "127.0.0.1", "NETUTILS_AGENT_PORT": str(agent.port)}
        async with start_service(
            SUPERVISOR, {"DISTRIBUTED_AGENTS": "netutils"}, address=address
        ) as supervisor:
            task = V03.sent(
                await supervisor.client.call(V03.send, V03.message("What does 10.0.0.0/22 contain?"))
            )
            components = (await supervisor.get("ready"))["components"]
        assert "1,024 addresses" in text_of(artifact(task, "final_result"))
        await agent.program.wait_for_stderr("run .* started")
    placements = {name: components[f"agent {name}"]["placement"] for name in SHIPPED}
    assert placements == {**dict.fromkeys(SHIPPED, "in-process"), "netutils": "remote"}
    assert components["agent netutils"]["status"] == "ready"


@pytest.mark.full
@pytest.mark.parametrize("variables", [{"DISTRIBUTED_AGENTS": "all"}, {"DISTRIBUTED_MODE": "true"}], ids=str)
async def test_the_same_supervisor_runs_with_all_agents_outside(variables: dict[str, str]) -> None:
    nowhere = {
        f"{prefix(name)}_AGENT_{part}": value
        for name in SHIPPED
        for part, value in (("HOST", "127.0.0.1"), ("PORT", "9"))
    }
    async with start_service(SUPERVISOR, variables, address=nowhere) as supervisor:
        assert await supervisor.get("health") == {"status": "ok"}
        components = (await supervisor.get("ready"))["components"]
    assert {name: components[f"agent {name}"]["placement"] for name in SHIPPED} == dict.fromkeys(
        SHIPPED, "remote"
    )
