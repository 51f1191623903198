"""The agents that come with the product are right, safe by default, and documented."""

import json
import re
import sys
from pathlib import Path

import pytest

from ai_platform_engineering.agents.agent_catalog import SHIPPED_FOLDER, AgentCatalog, load_catalog
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.policy import decide_permission
from ai_platform_engineering.core.tool_traits import ToolTraits
from tests.conftest import ROOT
from tests.support.agent_files import load_files

# The shipped agents


def everything(catalog: AgentCatalog) -> dict[str, str]:
    return {
        variable: "true" if variable.endswith("READ_ONLY") else f"value-of-{variable.lower()}"
        for entry in catalog
        for variable in entry.variables
        if not variable.startswith("ENABLE_")
    }


@pytest.fixture(scope="module")
def shipped() -> AgentCatalog:
    return load_catalog({}, agents_config=None)


def test_all_agents_are_shipped_in_a_file_of_their_name(shipped: AgentCatalog) -> None:
    expected = (
        "argocd aws backstage confluence github gitlab jira komodor kubernetes netutils pagerduty"
        " slack splunk victorops weather webex"
    )
    assert [entry.name for entry in shipped] == expected.split()
    assert [entry.source.split(":")[0] for entry in shipped] == [
        f"agents/{entry.name}.yaml" for entry in shipped
    ]


def test_without_any_variable_only_what_needs_none_is_offered(shipped: AgentCatalog) -> None:
    assert [definition.name for definition in shipped.ready] == ["netutils"]
    assert all(entry.missing for entry in shipped if entry.status != "ready")


def test_with_all_variables_every_shipped_agent_is_ready(shipped: AgentCatalog) -> None:
    catalog = load_catalog({**everything(shipped), "ENABLE_WEATHER": "true"}, agents_config=None)
    assert {entry.status for entry in catalog} == {"ready"}
    assert {entry.missing for entry in catalog} == {()}
    texts = json.dumps([entry.definition.model_dump(mode="json") for entry in catalog])
    assert "${" not in texts


def test_shipped_agents_say_what_they_do_how_and_with_what(shipped: AgentCatalog) -> None:
    for entry in shipped:
        definition = entry.definition
        assert definition.title, entry.source
        assert 40 < len(definition.description) < 500, entry.source
        assert 200 < len(definition.prompt) < 2000, entry.source
        assert 3 <= len(definition.examples) <= 6, entry.source
        assert definition.mcp_servers, entry.source


def test_a_program_that_is_not_ours_says_where_it_comes_from_with_its_version(shipped: AgentCatalog) -> None:
    for entry in shipped:
        foreign = [
            server.command
            for server in entry.definition.mcp_servers.values()
            if server.command not in (None, sys.executable)
        ]
        install = entry.definition.install
        assert bool(foreign) == (install is not None), entry.source
        if install:
            assert all(re.fullmatch(r"@?[\w./-]+@\d[\w.]*", package) for package in install.npm)
            assert all(re.fullmatch(r"[\w.-]+==\d[\w.]*|mcp<2", package) for package in install.pip)


@pytest.mark.parametrize(
    ("agent", "tool", "permission"),
    [
        ("argocd", "list_applications", "allow"),
        ("argocd", "sync_application", "ask"),
        ("argocd", "delete_application", "deny"),
        ("aws", "get_pod_logs", "allow"),
        ("aws", "manage_k8s_resource", "deny"),
        ("aws", "add_inline_policy", "deny"),
        ("jira", "jira_search", "allow"),
        ("jira", "jira_create_issue", "ask"),
        ("jira", "jira_delete_issue", "deny"),
        ("confluence", "confluence_get_page", "allow"),
        ("confluence", "confluence_delete_page", "deny"),
        ("github", "get_issue", "allow"),
        ("github", "create_repository", "ask"),
        ("github", "merge_pull_request", "ask"),
        ("github", "delete_file", "deny"),
        ("gitlab", "gitlab_list_mrs", "allow"),
        ("gitlab", "gitlab_list_variables", "deny"),
        ("gitlab", "gitlab_list_group_variables", "deny"),
        ("gitlab", "gitlab_delete_project", "deny"),
        ("pagerduty", "list_oncalls", "allow"),
        ("pagerduty", "create_incident", "deny"),
        ("kubernetes", "pods_log", "allow"),
        ("kubernetes", "pods_exec", "ask"),
        ("kubernetes", "configuration_view", "deny"),
        ("backstage", "catalog.get-catalog-entity", "allow"),
        ("backstage", "catalog.register-entity", "ask"),
        ("backstage", "catalog.unregister-entity", "deny"),
        ("splunk", "splunk_run_query", "allow"),
        ("splunk", "splunk_get_user_list", "deny"),
        ("komodor", "trigger_klaudia_rca", "ask"),
        ("slack", "conversations_history", "allow"),
        ("slack", "conversations_add_message", "ask"),
        ("slack", "usergroups_create", "deny"),
        ("webex", "webex-search-messages", "allow"),
        ("webex", "webex-create-message", "ask"),
        ("webex", "webex-delete-message", "deny"),
        ("victorops", "who_is_on_call", "allow"),
        ("victorops", "resolve_incidents", "ask"),
        ("weather", "get_current_weather", "allow"),
    ],
)
def test_shipped_agents_read_and_ask_before_they_write(
    shipped: AgentCatalog, agent: str, tool: str, permission: str
) -> None:
    entry = shipped.get(agent)
    assert entry
    assert entry.definition.tools.permission(tool) == permission


@pytest.mark.parametrize(
    ("agent", "tool", "reads"),
    [
        ("argocd", "get_application", True),
        ("argocd", "sync_application", False),
        ("aws", "list_k8s_resources", True),
        ("aws", "get_pod_logs", True),
        ("aws", "describe_log_groups", True),
        ("aws", "execute_log_insights_query", True),
        ("aws", "analyze_metric", True),
        ("komodor", "get_health_risks", True),
        ("komodor", "trigger_klaudia_rca", False),
        ("splunk", "splunk_get_indexes", True),
        ("splunk", "splunk_run_query", False),  # a search can write
        ("splunk", "splunk_run_saved_search", False),
        ("weather", "get_air_quality", True),
        ("weather", "convert_time", True),
        ("webex", "webex-search-messages", True),
        ("webex", "webex-create-message", False),
    ],
)
def test_reading_tools_of_servers_without_annotations_run_when_nothing_may_be_changed(
    shipped: AgentCatalog, agent: str, tool: str, reads: bool
) -> None:
    entry = shipped.get(agent)
    assert entry
    policy = entry.definition.tools
    traits = ToolTraits(
        permission=policy.find_permission(tool), annotations={}, defined_effect=policy.effect(tool)
    )
    assert (decide_permission(traits, read_only=True).permission == "allow") == reads


@pytest.mark.parametrize(
    ("agent", "server", "variables", "expected"),
    [
        (
            "argocd",
            "argocd",
            {"ARGOCD_TOKEN": "t", "ARGOCD_API_URL": "https://cd"},
            {"ARGOCD_BASE_URL": "https://cd", "ARGOCD_API_TOKEN": "t", "MCP_READ_ONLY": "true"},
        ),
        (
            "jira",
            "jira",
            {"ATLASSIAN_TOKEN": "t", "ATLASSIAN_EMAIL": "e", "ATLASSIAN_API_URL": "https://a"},
            {
                "JIRA_URL": "https://a",
                "JIRA_USERNAME": "e",
                "JIRA_API_TOKEN": "t",
                "READ_ONLY_MODE": "true",
                "FASTMCP_CHECK_FOR_UPDATES": "off",
                "PYTHONHASHSEED": "0",
                "TOOLSETS": "default",
            },
        ),
        (
            "jira",
            "jira",
            {"JIRA_PERSONAL_TOKEN": "t", "ATLASSIAN_API_URL": "https://a", "JIRA_READ_ONLY": "false"},
            {
                "JIRA_URL": "https://a",
                "JIRA_PERSONAL_TOKEN": "t",
                "READ_ONLY_MODE": "false",
                "FASTMCP_CHECK_FOR_UPDATES": "off",
                "PYTHONHASHSEED": "0",
                "TOOLSETS": "default",
            },
        ),
        (
            "confluence",
            "confluence",
            {"ATLASSIAN_TOKEN": "t", "ATLASSIAN_EMAIL": "e", "ATLASSIAN_API_URL": "https://a/"},
            {
                "CONFLUENCE_URL": "https://a/wiki",
                "CONFLUENCE_USERNAME": "e",
                "CONFLUENCE_API_TOKEN": "t",
                "READ_ONLY_MODE": "true",
                "FASTMCP_CHECK_FOR_UPDATES": "off",
                "PYTHONHASHSEED": "0",
            },
        ),
        (
            "github",
            "github",
            {"GITHUB_PERSONAL_ACCESS_TOKEN": "t"},
            {"GITHUB_TOKEN": "t", "GITHUB_API_URL": "https://api.github.com"},
        ),
        (
            "github",
            "github",
            {
                "GITHUB_TOKEN": "u",
                "GITHUB_PERSONAL_ACCESS_TOKEN": "t",
                "GITHUB_API_URL": "https://git.example/api/v3",
            },
            {"GITHUB_TOKEN": "u", "GITHUB_API_URL": "https://git.example/api/v3"},
        ),
        (
            "gitlab",
            "gitlab",
            {"GITLAB_TOKEN": "t", "GITLAB_HOST": "git.example"},
            {"GITLAB_URL": "https://git.example", "GITLAB_TOKEN": "t", "MCP_READ_ONLY": "true"},
        ),
        (
            "pagerduty",
            "pagerduty",
            {"PAGERDUTY_API_KEY": "t"},
            {"PAGERDUTY_USER_API_KEY": "t", "PAGERDUTY_API_HOST": "https://api.pagerduty.com"},
        ),
        (
            "komodor",
            "komodor",
            {"KOMODOR_TOKEN": "t"},
            {"KOMODOR_API_KEY": "t", "KOMODOR_API_BASE_URL": "https://api.komodor.com"},
        ),
        (
            "slack",
            "slack",
            {"SLACK_BOT_TOKEN": "t"},
            {"SLACK_MCP_XOXB_TOKEN": "t", "SLACK_MCP_LOG_LEVEL": "warn"},
        ),
        (
            "kubernetes",
            "kubernetes",
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
        ),
        (
            "aws",
            "cloudwatch",
            {"AWS_REGION": "eu-west-1", "AWS_ROLE_ARN": "r", "AWS_WEB_IDENTITY_TOKEN_FILE": "f"},
            {
                "AWS_REGION": "eu-west-1",
                "AWS_ROLE_ARN": "r",
                "AWS_WEB_IDENTITY_TOKEN_FILE": "f",
                "FASTMCP_LOG_LEVEL": "ERROR",
            },
        ),
    ],
)
def test_names_of_existing_deployments_reach_the_servers(
    agent: str, server: str, variables: dict[str, str], expected: dict[str, str]
) -> None:
    entry = load_catalog(variables, agents_config=None).get(agent)
    assert entry
    assert (entry.status, entry.definition.mcp_servers[server].env) == ("ready", expected)


@pytest.mark.parametrize(
    ("agent", "variables", "url", "authorization"),
    [
        (
            "backstage",
            {"BACKSTAGE_URL": "https://b/", "BACKSTAGE_API_TOKEN": "t"},
            "https://b/api/mcp-actions/v1",
            "Bearer t",
        ),
        (
            "splunk",
            {"SPLUNK_API_URL": "https://s:8089", "SPLUNK_TOKEN": "t"},
            "https://s:8089/services/mcp",
            "Bearer t",
        ),
        ("webex", {"WEBEX_TOKEN": "t"}, "https://mcp.webexapis.com/mcp/webex-messaging", "Bearer t"),
    ],
)
def test_hosted_servers_get_the_token_in_a_header(
    agent: str, variables: dict[str, str], url: str, authorization: str
) -> None:
    entry = load_catalog(variables, agents_config=None).get(agent)
    assert entry
    [server] = entry.definition.mcp_servers.values()
    assert (entry.status, server.url, server.headers["Authorization"]) == ("ready", url, authorization)


def test_the_kubernetes_server_runs_beside_the_file_that_denies_secrets() -> None:
    entry = load_catalog({"KUBECONFIG": "k"}, agents_config=None).get("kubernetes")
    assert entry
    server = entry.definition.mcp_servers["kubernetes"]
    assert "--config=kubernetes.toml" in server.args
    assert server.cwd
    assert Path(server.cwd) == SHIPPED_FOLDER
    assert 'kind = "Secret"' in (SHIPPED_FOLDER / "kubernetes.toml").read_text(encoding="utf-8")


# The documentation


def documentation() -> str:
    return (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")


def test_every_variable_of_shipped_agents_is_documented_with_its_agents(shipped: AgentCatalog) -> None:
    table = re.findall(r"^\| `([A-Z0-9_]+)` \| ([a-z, ]+) \| \S", documentation(), re.MULTILINE)
    used: dict[str, set[str]] = {}
    for entry in shipped:
        for variable in entry.variables:
            used.setdefault(variable, set()).add(entry.name)
    assert {variable: set(agents.split(", ")) for variable, agents in table} == used


def test_every_key_is_documented() -> None:
    keys = {field.alias or name for name, field in AgentDefinition.model_fields.items()}
    assert keys == set(re.findall(r"^\| `(\w+)` \| (?:yes|no) \|", documentation(), re.MULTILINE))


def test_the_examples_of_the_documentation_work() -> None:
    blocks = re.findall(r"^```(yaml|json)\n(.*?)^```$", documentation(), re.MULTILINE | re.DOTALL)
    assert {kind for kind, _ in blocks} == {"yaml", "json"}
    catalog = load_files({f"{number}.{kind}": text for number, (kind, text) in enumerate(blocks)})
    assert len(catalog.entries) >= len(blocks)
