"""The demo's supervisor gets the user's model, and neither credentials nor storage of the user."""

from pathlib import Path

from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.cli.demo_environment import build_environment, link_agents_folder
from ai_platform_engineering.core.settings import Settings

SYSTEMS = {
    "argocd": {"ARGOCD_API_URL": "http://127.0.0.1:1", "ARGOCD_TOKEN": "demo"},
    "jira": {"ATLASSIAN_API_URL": "http://127.0.0.1:2", "JIRA_PERSONAL_TOKEN": "demo"},
}


def test_only_the_model_of_the_user_is_used_and_no_agent_reaches_a_real_system(tmp_path: Path) -> None:
    variables = {
        "PATH": "/bin",
        "HTTPS_PROXY": "http://proxy:1",
        "NO_PROXY": "intern.example",
        "LLM_MODEL": "bedrock:model",
        "AWS_REGION": "eu-central-1",
        "OPENAI_API_KEY": "key",
        "CAIPE_HOME": "real-home",
        "CAIPE_ENV_FILE": "real-home/.env",
        "DATABASE_URL": "postgresql://real",
        "POSTGRES_DSN": "postgresql://legacy",
        "DISTRIBUTED_AGENTS": "all",
        "AGENTS_CONFIG": "real-home/agents.yaml",
        "A2A_AUTH_SHARED_KEY": "k" * 40,
        "ARGOCD_TOKEN": "real",
        "ATLASSIAN_TOKEN": "real",
        "GITHUB_TOKEN": "real",
        "SLACK_BOT_TOKEN": "xoxb-real",
        "ENABLE_AWS": "true",
    }
    environment = build_environment(variables, tmp_path, SYSTEMS, 8123)
    settings = Settings.from_variables(environment)
    ready = [entry.name for entry in load_catalog(environment, agents_config=None) if entry.status == "ready"]

    assert sorted(ready) == ["argocd", "jira", "netutils"]
    assert not [value for value in environment.values() if "real" in value or "legacy" in value]
    assert (settings.model.name, environment["AWS_REGION"]) == ("bedrock:model", "eu-central-1")
    assert environment["OPENAI_API_KEY"] == "key"
    assert (settings.agent.home, settings.server.port) == (tmp_path, 8123)
    assert not settings.placement.distributed
    assert environment["NO_PROXY"] == "intern.example,127.0.0.1,localhost"
    assert environment["ARGOCD_TOKEN"] == "demo"


def test_tool_servers_are_those_of_the_user_also_after_a_move(tmp_path: Path) -> None:
    home = tmp_path / "home"
    demo_home = home / "demo"
    demo_home.mkdir(parents=True)
    (demo_home / "agents").symlink_to(tmp_path / "elsewhere")
    link_agents_folder(home, demo_home)
    link_agents_folder(home, demo_home)
    (demo_home / "agents" / "argocd").mkdir()
    assert [path.name for path in (home / "agents").iterdir()] == ["argocd"]
