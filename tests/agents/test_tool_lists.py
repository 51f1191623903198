"""The definitions of shipped agents on the real tool lists of their servers, recorded and, in full, live."""

import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import pytest

from ai_platform_engineering.agents.agent_catalog import AgentEntry, load_catalog
from ai_platform_engineering.agents.installed_commands import missing_commands
from ai_platform_engineering.core.policy import decide_permission
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.mcp_client.feature_tools import FeatureKind
from tests.conftest import ROOT, need
from tests.support.fakes.mcp_servers import list_processes
from tests.support.real_servers import SERVERS_HOME, find_isolation, run_isolated
from tests.support.tool_lists import AgentRecord, RecordedTool, list_recorded_agents, load_record

ENTRIES = {entry.name: entry for entry in load_catalog({}, agents_config=None)}
# Slack's server asks Slack for the account before it answers anybody.
NEEDS_ACCOUNT = {"slack"}
INSTALLED = sorted(name for name, entry in ENTRIES.items() if entry.definition.install)
RECORDED = list_recorded_agents()

READING_VERBS = {"get", "list", "search", "describe", "log", "top"}
# Readers by their documentation, of servers that send no annotations.
READERS = {
    "aws": {"execute_log_insights_query", "analyze_metric"},
    "weather": {"convert_time"},
}
# Agents whose offered tools are longer than others', with the characters that they may have; see their files.
LARGE = {"aws": 42_000, "gitlab": 36_000}
USUAL_SIZE = 20_000


def is_reader(agent: str, tool: RecordedTool) -> bool:
    """Whether a tool only reads: its server says so, or, where servers say nothing, its name does."""
    hint = tool.hints.get("readOnlyHint")
    if hint is not None:
        return hint
    words = tool.name.split("_")
    return bool(READING_VERBS.intersection(words[:1])) or tool.name in READERS.get(agent, ())


def decide(entry: AgentEntry, tool: RecordedTool, *, read_only: bool = False) -> str:
    policy = entry.definition.tools
    traits = ToolTraits(
        permission=policy.find_permission(tool.name),
        annotations=tool.hints,
        defined_effect=policy.effect(tool.name),
    )
    return decide_permission(traits, read_only=read_only).permission


def list_patterns(entry: AgentEntry) -> Iterator[str]:
    policy = entry.definition.tools
    yield from (*policy.allow, *policy.ask, *policy.deny, *policy.read, *policy.idempotent, *policy.poll)
    if entry.definition.check:
        yield entry.definition.check.tool


def list_unmatched_patterns(entry: AgentEntry, record: AgentRecord) -> list[str]:
    names = [tool.name for tool in record.list_tools()]
    return [
        pattern for pattern in list_patterns(entry) if not any(fnmatchcase(name, pattern) for name in names)
    ]


def test_every_server_that_is_installed_has_a_recorded_list() -> None:
    assert sorted(set(INSTALLED) - NEEDS_ACCOUNT) == RECORDED


@pytest.mark.parametrize("agent", RECORDED)
def test_the_list_was_recorded_from_the_packages_that_the_definition_names(agent: str) -> None:
    install = ENTRIES[agent].definition.install
    assert install is not None
    assert load_record(agent).packages == (*install.pip, *install.npm)
    assert set(load_record(agent).servers) == set(ENTRIES[agent].definition.mcp_servers)


@pytest.mark.parametrize("agent", RECORDED)
def test_every_pattern_of_a_policy_matches_a_real_tool(agent: str) -> None:
    assert list_unmatched_patterns(ENTRIES[agent], load_record(agent)) == []


@pytest.mark.parametrize("agent", RECORDED)
def test_readers_run_and_the_rest_asks_or_is_not_offered(agent: str) -> None:
    decisions = {tool.name: decide(ENTRIES[agent], tool) for tool in load_record(agent).list_tools()}
    readers = {tool.name for tool in load_record(agent).list_tools() if is_reader(agent, tool)}
    running = {name for name, decision in decisions.items() if decision == "allow"}
    asking = {name for name, decision in decisions.items() if decision == "ask"}
    assert running
    assert running <= readers
    assert not asking & readers


@pytest.mark.parametrize("agent", RECORDED)
def test_what_runs_also_runs_when_nothing_may_be_changed_and_nothing_else_does(agent: str) -> None:
    entry = ENTRIES[agent]
    for tool in load_record(agent).list_tools():
        expected = "allow" if decide(entry, tool) == "allow" else "deny"
        assert decide(entry, tool, read_only=True) == expected, tool.name


@pytest.mark.parametrize("agent", ["argocd", "confluence", "gitlab", "jira", "kubernetes"])
def test_a_read_only_switch_removes_the_tools_that_ask(agent: str) -> None:
    entry = ENTRIES[agent]
    record = load_record(agent)
    asking = {tool.name for tool in record.list_tools() if decide(entry, tool) == "ask"}
    running = {tool.name for tool in record.list_tools() if decide(entry, tool) == "allow"}
    left = {name for names in record.read_only.values() for name in names}
    assert asking
    assert not asking & left
    assert running <= left


@pytest.mark.parametrize("agent", RECORDED)
def test_what_is_offered_to_the_model_is_bounded(agent: str) -> None:
    entry = ENTRIES[agent]
    size = sum(tool.size for tool in load_record(agent).list_tools() if decide(entry, tool) != "deny")
    assert size < LARGE.get(agent, USUAL_SIZE)


def test_ci_secrets_of_gitlab_are_not_offered_though_their_tools_only_read() -> None:
    tools = {tool.name: tool for tool in load_record("gitlab").list_tools()}
    for name in ("gitlab_list_variables", "gitlab_list_group_variables"):
        assert tools[name].hints["readOnlyHint"]
        assert decide(ENTRIES["gitlab"], tools[name]) == "deny"


# --- the servers themselves -----------------------------------------------------------------------


def need_isolation() -> None:
    need("bwrap", find_isolation() is not None, "a network namespace without a way out")


@pytest.mark.full
def test_a_connection_beyond_loopback_is_counted() -> None:
    need_isolation()
    script = (
        "import socket, tests.support.real_servers as servers\n"
        "before = servers.count_refused_packets()\n"
        "code = socket.socket().connect_ex(('127.0.0.1', 9))\n"
        "between = servers.count_refused_packets()\n"
        "code = socket.socket().connect_ex(('192.0.2.1', 443))\n"
        "print(between - before, servers.count_refused_packets() - between)\n"
    )
    # Not our guard's work: it would refuse in Python already, and no tool server but ours has it.
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'tests/support/guard')!r})\n{script}"
    command = [*(find_isolation() or []), sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env={"PATH": ""})
    assert done.stdout.split() == ["0", "1"]


@pytest.mark.full
@pytest.mark.parametrize("agent", sorted(set(INSTALLED) - NEEDS_ACCOUNT))
def test_a_real_server_offers_what_was_recorded_and_stays_on_this_machine(agent: str, tmp_path: Path) -> None:
    need_isolation()
    missing = missing_commands(ENTRIES[agent].definition, SERVERS_HOME)
    if missing and agent == "pagerduty":
        pytest.skip("pagerduty-mcp needs Python 3.12, and `make servers` found none that runs")
    need(", ".join(missing), not missing, "`make servers` installs it")
    live = run_isolated(agent, tmp_path, writes=True)
    assert live.refused == 0
    assert list_unmatched_patterns(ENTRIES[agent], live) == []
    recorded = load_record(agent)
    for server, tools in live.servers.items():
        # Without the tools of ours for the server's resources and prompts.
        by_name = {tool.name: tool for tool in tools if tool.name not in get_args(FeatureKind)}
        assert by_name == {tool.name: tool for tool in recorded.servers[server]}
    assert list_processes(tmp_path) == {}
