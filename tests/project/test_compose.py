"""The image and the compose file without a Docker engine.

Their contents are checked, and their commands are run as they would be in a container.
"""

import asyncio
import contextlib
import fnmatch
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import httpx
import jsonschema
import pytest
import yaml

from ai_platform_engineering.agents.agent_catalog import AgentEntry, load_catalog
from ai_platform_engineering.agents.installed_commands import find_command
from ai_platform_engineering.core.settings import Settings, describe_settings
from tests.conftest import ROOT
from tests.support.database_servers import free_port
from tests.support.dialects import V03, artifact, text_of
from tests.support.harness import PLAIN, Client
from tests.support.processes import Program, run_command, start_command

COMPOSE = ROOT / "docker-compose.yaml"
SUPERVISOR, BOT = "caipe-supervisor", "caipe-slack"
KEY = "a-long-random-text"
NOBODY = "http://127.0.0.1:9/"
# Read by libraries, not by us.
LIBRARY_VARIABLES = {
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "HTTPS_PROXY",
    "NO_PROXY",
}

SHIPPED: dict[str, AgentEntry] = {entry.name: entry for entry in load_catalog({}, agents_config=None)}


def prefix(name: str) -> str:
    return name.upper().replace("-", "_")


def own_variables(name: str) -> set[str]:
    return {f"ENABLE_{prefix(name)}", f"{prefix(name)}_LLM_MODEL", *SHIPPED[name].variables}


# A small reader of both files


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """`${NAME}` with `:-`, `:+` and `:?`, also one within another, as Compose fills them in."""
    out, at = "", 0
    while at < len(text):
        if text.startswith("$$", at):
            out, at = out + "$", at + 2
        elif text.startswith("${", at):
            end = _find_closing_brace(text, at + 2)
            out, at = out + _evaluate(text[at + 2 : end], variables), end + 1
        else:
            out, at = out + text[at], at + 1
    return out


def _find_closing_brace(text: str, at: int) -> int:
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at - 1


def _evaluate(expression: str, variables: Mapping[str, str]) -> str:
    match = re.fullmatch(r"([A-Z][A-Z0-9_]*)(?::([-+?])(.*))?", expression)
    assert match, f"not understood: {expression}"
    name, kind, rest = match.groups()
    value = variables.get(name, "")
    if kind == "?" and not value:
        raise LookupError(rest)
    if kind == "+":
        return interpolate(rest, variables) if value else ""
    return value or (interpolate(rest, variables) if kind == "-" else "")


def interpolate_tree(tree: Any, variables: Mapping[str, str]) -> Any:
    match tree:
        case str():
            return interpolate(tree, variables)
        case list():
            return [interpolate_tree(item, variables) for item in tree]
        case dict():
            return {name: interpolate_tree(item, variables) for name, item in tree.items()}
        case _:
            return tree


def read_services(variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The services, filled in; a variable without a value is passed on, or left out."""
    compose_services: dict[str, dict[str, Any]] = interpolate_tree(
        yaml.safe_load(COMPOSE.read_text()), variables
    )["services"]
    for service in compose_services.values():
        passed = {
            name: variables.get(name) if value is None else str(value)
            for name, value in service["environment"].items()
        }
        service["environment"] = {name: value for name, value in passed.items() if value is not None}
    return compose_services


def read_raw_services() -> dict[str, dict[str, Any]]:
    compose_services: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return compose_services


def read_dockerfile() -> list[tuple[str, str]]:
    """The Dockerfile as pairs of a word and the rest of its line."""
    lines = [
        line
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    joined = re.sub(r"\\\n", " ", "\n".join(lines)).splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined)]


def dockerfile_lines(word: str) -> list[str]:
    return [rest for instruction, rest in read_dockerfile() if instruction == word]


def last_stage_lines(word: str) -> list[str]:
    lines = read_dockerfile()
    start = max(at for at, (instruction, _) in enumerate(lines) if instruction == "FROM")
    return [rest for instruction, rest in lines[start:] if instruction == word]


def image_environment() -> dict[str, str]:
    pairs = [pair.partition("=") for line in last_stage_lines("ENV") for pair in shlex.split(line)]
    return {name: value for name, _, value in pairs if name != "PATH"}


def entrypoint() -> list[str]:
    (line,) = last_stage_lines("ENTRYPOINT")
    return [str(word) for word in json.loads(line)]


# What the compose file says


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
    addresses = {f"{prefix(name)}_AGENT_{part}" for name in SHIPPED for part in ("HOST", "PORT")}
    settings = {row.name for row in describe_settings(Settings(), {}, {})}
    agents = set().union(*map(own_variables, SHIPPED))
    assert named - settings - agents - addresses - LIBRARY_VARIABLES == {"AGENT_TOKEN"}


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


def test_the_bot_speaks_for_people_with_a_key_of_its_own_and_gets_no_other_secret_than_slacks() -> None:
    compose_services = read_services({"A2A_AUTH_SHARED_KEY": KEY, "A2A_AUTH_DELEGATE_KEY": "another-one"})
    holders = [
        name
        for name, service in compose_services.items()
        if "A2A_AUTH_DELEGATE_KEY" in service["environment"]
    ]
    assert holders == [SUPERVISOR, BOT]
    allowed = ("SLACK_INTEGRATION_", "A2A_AUTH_DELEGATE_KEY", "LOG_LEVEL", "HTTPS_PROXY", "NO_PROXY")
    assert [name for name in read_raw_services()[BOT]["environment"] if not name.startswith(allowed)] == []
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


# What the Dockerfile says


def test_the_image_is_made_of_named_bases_and_files_of_this_repository() -> None:
    bases = [line.split()[0] for line in dockerfile_lines("FROM")]
    assert {base.split(":")[0] for base in bases} == {"python"}
    assert len(set(bases)) == 1
    assert dockerfile_lines("ADD") == []
    assert not re.search(r"https?://(?!127\.0\.0\.1)", " ".join(rest for _, rest in read_dockerfile()))
    for source in copied_paths():
        assert (ROOT / source).exists(), source
        assert is_in_build_context(source), source


def copied_paths() -> Iterator[str]:
    for line in dockerfile_lines("COPY"):
        words = line.split()
        if not words[0].startswith("--from="):
            yield from words[:-1]


def is_in_build_context(path: str) -> bool:
    """Whether `.dockerignore` lets the file into the build.

    The last line that matches it or a folder above it decides.
    """
    parts = PurePosixPath(path)
    candidates = [str(parts), *(str(parent) for parent in parts.parents if str(parent) != ".")]
    inside = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().lstrip("!")
        if (
            pattern
            and not line.startswith("#")
            and any(_matches_ignore_pattern(candidate, pattern) for candidate in candidates)
        ):
            inside = line.startswith("!")
    return inside


def _matches_ignore_pattern(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern[3:])
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)


def test_the_build_sees_the_package_and_no_secret() -> None:
    package = [
        path
        for path in (ROOT / "ai_platform_engineering").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert len(package) > 100
    assert [path for path in package if not is_in_build_context(path.relative_to(ROOT).as_posix())] == []
    for path in (
        ".env",
        ".git/config",
        "ai_platform_engineering/.env",
        "ai_platform_engineering/core/.env.local",
        "tests/conftest.py",
    ):
        assert not is_in_build_context(path)


def test_what_is_installed_is_locked_with_hashes() -> None:
    installs = [
        command
        for line in dockerfile_lines("RUN")
        for command in re.split(r"&&|;", line)
        if re.search(r"\bpip\b", command)
    ]
    assert len(installs) == 2
    for command in installs:
        assert (
            "--require-hashes --no-deps -r requirements.lock" in command
            or "--no-index --find-links /wheels" in command
        )


def test_the_container_does_not_run_as_root() -> None:
    (user,) = last_stage_lines("USER")
    number = user.split(":")[0]
    assert number.isdigit()
    assert int(number) > 0
    assert [line for line in last_stage_lines("RUN") if f"useradd --uid {number} " in line]
    words = [word for word, _ in read_dockerfile()]
    assert max(at for at, word in enumerate(words) if word in ("RUN", "COPY")) < words.index("USER")


def test_the_base_has_the_python_that_tool_servers_need() -> None:
    versions = {entry.definition.install.python for entry in SHIPPED.values() if entry.definition.install} - {
        None
    }
    assert versions
    assert {f"python:{version}-slim" for version in versions} == {
        line.split()[0] for line in dockerfile_lines("FROM")
    }


def test_the_programs_of_built_in_tool_servers_are_on_the_path(tmp_path: Path) -> None:
    servers, path = tmp_path / "servers", tmp_path / "bin"
    path.mkdir()
    programs = []
    for name, entry in SHIPPED.items():
        if entry.definition.install:
            folder = (
                servers
                / "agents"
                / name
                / ("venv/bin" if entry.definition.install.pip else "node_modules/.bin")
            )
            folder.mkdir(parents=True)
            for server in entry.definition.mcp_servers.values():
                program = folder / str(server.command)
                program.write_text("#!/bin/sh\n")
                program.chmod(0o755)
                assert find_command(servers, name, program.name) == str(
                    program
                )  # where `caipe agents install` puts it
                programs.append(program.name)
    (line,) = [line for line in last_stage_lines("RUN") if "caipe agents install" in line]
    script = line.replace("/opt/servers", str(servers)).replace("/usr/local/bin", str(path))

    def build(agents: str) -> int:
        return subprocess.run(
            ["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin", "AGENTS": agents}, check=False
        ).returncode

    assert build("") == 0
    assert len(programs) >= 10
    assert [name for name in programs if shutil.which(name, path=str(path)) is None] == []
    assert (
        build("argocd") != 0
    )  # there is no `caipe` on that path: an agent that cannot be installed stops the build


# What runs


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service of the compose file as a process."""

    program: Program
    client: Client
    port: int

    async def get(self, path: str) -> dict[str, Any]:
        response = await self.client.http.get(self.client.url + path)
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
        httpx.AsyncClient(timeout=60, verify=PLAIN) as http,
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
    assert components["agent argocd"]["status"] == "ready"
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
    assert [row["status"] for row in rows] == ["ready"] * len(names)


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
