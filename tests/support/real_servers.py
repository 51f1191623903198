"""The third-party tool servers of the shipped agents, as `make servers` installs them, without any network.

    PYTHONPATH=tests/support/guard .venv/bin/python -m tests.support.real_servers [AGENT ...]

Starts each server with made-up credentials through our own client, in a network namespace that has loopback
alone, and records what it offers in `tests/fixtures/tool_lists`, for the tests that run without the servers.
"""

import asyncio
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ai_platform_engineering.agents.agent_catalog import AgentEntry, load_catalog
from ai_platform_engineering.agents.installed_commands import missing_commands, resolve_commands
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from tests.conftest import ROOT
from tests.support.tool_lists import AgentRecord, RecordedTool, store_record

SERVERS_HOME = ROOT / ".venv" / "servers"
_MODULE = "tests.support.real_servers"
_GUARD = ROOT / "tests" / "support" / "guard"
_START_SECONDS = 120.0  # a loaded machine takes long to import a server's packages
_RUN_SECONDS = 400.0
_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: made-up, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: made-up, user: {token: made-up}}]
contexts: [{name: made-up, context: {cluster: made-up, user: made-up}}]
current-context: made-up
"""
# Left out: alternatives of variables that are set.
_ALTERNATIVES = (
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY",
    "AWS_CONTAINER",
    "CONFLUENCE_PERSONAL_TOKEN",
    "GITLAB_HOST",
    "JIRA_PERSONAL_TOKEN",
    "KUBERNETES_SERVICE",
)


def find_isolation() -> list[str] | None:
    """The command that runs another one with loopback as its only network; None where there is none."""
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        return None
    command = [bubblewrap, "--unshare-net", "--dev-bind", "/", "/", "--die-with-parent", "--"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode != 0:
        return None
    return command


def run_isolated(agent: str, folder: Path, *, writes: bool, home: Path = SERVERS_HOME) -> AgentRecord:
    """What the servers of an agent offer without a network. Raises CalledProcessError."""
    isolation = find_isolation()
    assert isolation is not None
    mode = "writes" if writes else "read-only"
    command = [*isolation, sys.executable, "-m", _MODULE, "--inside", agent, mode, str(folder), str(home)]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{_GUARD}",
    }
    done = subprocess.run(
        command, check=True, capture_output=True, env=environment, cwd=ROOT, timeout=_RUN_SECONDS, text=True
    )
    return AgentRecord.model_validate_json(done.stdout)


def load_agent(agent: str, folder: Path, api_url: str, *, writes: bool) -> AgentEntry:
    """A shipped agent with made-up credentials for APIs on this machine."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(_KUBECONFIG, encoding="utf-8")
    variables = {"KUBECONFIG": str(kubeconfig), "AWS_REGION": "eu-central-1"}
    for entry in load_catalog({}, agents_config=None):
        for variable in entry.variables:
            if variable in variables or variable.startswith(_ALTERNATIVES):
                continue
            variables[variable] = _make_up(variable, api_url, writes=writes)
    configured = load_catalog(variables, agents_config=None).get(agent)
    assert configured is not None
    return configured


def _make_up(variable: str, api_url: str, *, writes: bool) -> str:
    if variable.startswith("ENABLE_"):
        return "true"
    if variable.endswith("READ_ONLY"):
        return str(not writes).lower()
    if variable == "SLACK_MCP_ADD_MESSAGE_TOOL":
        return str(writes).lower()
    if variable.endswith("_URL"):
        return api_url
    return f"made-up-{variable.lower()}"


# --- inside the network namespace -----------------------------------------------------------------


async def list_tools(definition: AgentDefinition, folder: Path) -> dict[str, tuple[RecordedTool, ...]]:
    """What the servers of an agent offer now. Raises McpUnavailable."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
    pool = McpSessionPool(connect_timeout=_START_SECONDS, environment=environment)
    servers = dict[str, tuple[RecordedTool, ...]]()
    try:
        for name, server in definition.mcp_servers.items():
            tools = await pool.tools(name, server)
            servers[name] = tuple(RecordedTool.from_tool(tool) for tool in tools)
    finally:
        await pool.aclose()
    return servers


def count_refused_packets() -> int:
    """How often somebody in this network namespace wanted to leave it: there was no route."""
    names, values = (line.split() for line in _read_lines("/proc/net/snmp") if line.startswith("Ip:"))
    count = int(dict(zip(names, values, strict=True))["OutNoRoutes"])
    for line in _read_lines("/proc/net/snmp6"):
        name, value = line.split()
        if name == "Ip6OutNoRoutes":
            count += int(value)
    return count


def _read_lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


class _Refusal(http.server.BaseHTTPRequestHandler):
    """An API that knows no credentials: some servers ask theirs before they answer us."""

    def do_GET(self) -> None:
        body = b'{"error": {"message": "Unauthorized", "code": 2010}}'
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve_refusals() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _run_inside(agent: str, mode: str, folder: Path, home: Path) -> None:
    with serve_refusals() as api_url:
        entry = load_agent(agent, folder, api_url, writes=mode == "writes")
        before = count_refused_packets()
        servers = asyncio.run(list_tools(resolve_commands(entry.definition, home), folder))
        refused = count_refused_packets() - before
    sys.stdout.write(AgentRecord(servers=servers, refused=refused).model_dump_json())


def _record(agents: list[str]) -> None:
    for entry in load_catalog({}, agents_config=None):
        install = entry.definition.install
        if install is None or (agents and entry.name not in agents):
            continue
        if missing_commands(entry.definition, SERVERS_HOME):
            sys.stdout.write(f"{entry.name}: not installed\n")
            continue
        with tempfile.TemporaryDirectory() as folder:
            record = run_isolated(entry.name, Path(folder), writes=True)
            read_only = run_isolated(entry.name, Path(folder), writes=False)
        names = {
            server: tuple(sorted(tool.name for tool in tools)) for server, tools in read_only.servers.items()
        }
        packages = (*install.pip, *install.npm)
        store_record(entry.name, record.model_copy(update={"packages": packages, "read_only": names}))
        sys.stdout.write(
            f"{entry.name}: {len(record.list_tools())} tools, {record.refused} packets refused\n"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        _run_inside(sys.argv[2], sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5]))
    else:
        _record(sys.argv[1:])
