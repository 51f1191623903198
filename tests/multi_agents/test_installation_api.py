"""`/v1/agents`, `/v1/settings` and `/v1/setup`: what is installed and configured, without a secret."""

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.setting_descriptions import DESCRIPTIONS
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.settings_report import describe_settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from tests.support.agent_services import eventually, write_agent_definition
from tests.support.fakes.mcp_servers import FAKES
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import FAST, PLAIN, agent, serve_app, supervisor
from tests.support.storages import KEY, problem

ANSWER = Script(Turn(Say("Yes.")))
RAW = {"command": sys.executable, "args": ["-S", str(FAKES / "mcp_raw.py")]}
SECRET = "a-secret-of-an-agent"
CHECKED = {"MCP_CHECK_SERVERS": "true", "MCP_CHECK_DELAY_SECONDS": "0", "ENABLE_NETUTILS": "false"}


async def read(http: httpx.AsyncClient, url: str, path: str) -> dict[str, Any]:
    response = await http.get(f"{url}v1/{path}")
    assert response.status_code == 200, response.text
    assert SECRET not in response.text
    return dict(response.json())


def by_name(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in entries}


async def test_agents_are_listed_with_their_health_and_tools(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    write_agent_definition(folder, "raw", RAW)
    write_agent_definition(folder, "broken", {**RAW, "args": [*RAW["args"], "--exit", "no"]})
    write_agent_definition(folder, "gone", {"command": "no-such-program"})
    variables = {
        **FAST,
        **CHECKED,
        "AGENTS_CONFIG": str(folder),
        "CAIPE_HOME": str(tmp_path / "home"),
        "DISTRIBUTED_AGENTS": "argocd,jira",
        "ARGOCD_AGENT_URL": "http://127.0.0.1:9/",
        "GITHUB_TOKEN": SECRET,
        "ENABLE_SLACK": "false",
    }
    app = build_app(Settings.from_variables(variables), variables)
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:

        async def look() -> dict[str, dict[str, Any]]:
            return by_name((await read(http, url, "agents"))["agents"])

        agents = await eventually(
            look,
            lambda now: (
                now["raw"]["tools_known"]
                and now["broken"]["status"] == "unavailable"
                and now["argocd"]["status"] == "unreachable"
            ),
        )
    assert (agents["raw"]["placement"], agents["raw"]["status"]) == ("in-process", "ready")
    tools = by_name(agents["raw"]["tools"])
    assert (tools["echo"]["read_only"], tools["echo"]["needs_approval"]) == (True, False)
    assert (tools["hang"]["read_only"], tools["hang"]["needs_approval"]) == (None, True)
    assert tools["hang"]["description"] == "Never answers."
    assert "code 3" in agents["broken"]["message"]
    assert agents["gone"]["status"] in ("not_installed", "unavailable")
    assert "no-such-program" in agents["gone"]["message"]
    assert (agents["argocd"]["placement"], agents["argocd"]["tools_known"]) == ("remote", False)
    assert (agents["jira"]["status"], agents["jira"]["missing_variables"]) == (
        "not_configured",
        ["JIRA_AGENT_URL"],
    )
    assert (agents["slack"]["placement"], agents["slack"]["status"]) == ("disabled", "disabled")
    assert (agents["gitlab"]["title"], agents["gitlab"]["status"]) == ("GitLab", "not_configured")
    assert agents["gitlab"]["missing_variables"] == ["GITLAB_TOKEN|GITLAB_PERSONAL_ACCESS_TOKEN"]


async def test_settings_have_a_source_and_no_secret(tmp_path: Path) -> None:
    home = tmp_path / "caipe-home"  # that of the test's environment
    home.mkdir()
    (home / ".env").write_text(f"LLM_MODEL=openai:scripted\nGITHUB_TOKEN={SECRET}\nARGOCD_TOKEN={SECRET}\n")
    variables = {
        **FAST,
        "CAIPE_HOME": str(home),
        "LLM_MODEL": "openai:scripted",
        "GITHUB_TOKEN": SECRET,
        "ARGOCD_TOKEN": SECRET,
        "EMBEDDINGS_BASE_URL": f"http://ann:{SECRET}@127.0.0.1/",
    }
    app = build_app(Settings.from_variables(variables), variables)
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        body = await read(http, url, "settings")

        async def look() -> dict[str, Any]:
            return await read(http, url, "setup")

        # Until the model is loaded nobody knows that its key is missing.
        setup = await eventually(look, lambda now: now["model"]["status"] != "ok")
    assert body["files"] == [str(home / ".env")]
    settings = by_name(body["settings"])
    assert (settings["LLM_MODEL"]["value"], settings["LLM_MODEL"]["source"]) == ("openai:scripted", ".env")
    assert (settings["ENABLE_RAG"]["value"], settings["ENABLE_RAG"]["source"]) == ("False", "environment")
    assert settings["A2A_PORT"] == {
        "name": "A2A_PORT",
        "value": "8000",
        "source": "default",
        "secret": False,
        "group": "server",
        "description": "The port to listen on.",
    }
    assert (settings["GITHUB_TOKEN"]["value"], settings["GITHUB_TOKEN"]["secret"]) == ("••••", True)
    assert (settings["ARGOCD_TOKEN"]["value"], settings["ARGOCD_TOKEN"]["group"]) == ("••••", "agents")
    assert settings["A2A_AUTH_SHARED_KEY"]["value"] is None
    assert "127.0.0.1" in settings["EMBEDDINGS_BASE_URL"]["value"]
    # A key is missing: the step says which.
    steps = {step["id"]: step for step in setup["steps"]}
    assert (setup["model"]["status"], steps["model"]["done"]) == ("unavailable", False)
    assert "OPENAI_API_KEY" in steps["model"]["how"]
    assert steps["agents"]["done"]  # GitHub has a token


def test_every_setting_has_a_description() -> None:
    names = [row.name for row in describe_settings(Settings(), {}, {})]
    assert sorted(DESCRIPTIONS) == sorted(names)
    assert all(text.endswith(".") for text in DESCRIPTIONS.values())


async def test_a_first_start_lacks_a_model_agents_and_documents(tmp_path: Path) -> None:
    variables = {**FAST, "ENABLE_RAG": "true", "CAIPE_HOME": str(tmp_path)}
    app = build_app(Settings.from_variables(variables), variables)
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        setup = await read(http, url, "setup")
    assert (setup["model"]["status"], setup["model"]["name"]) == ("degraded", "offline")
    providers = by_name(setup["model"]["providers"])
    assert providers["anthropic"]["variables"] == ["ANTHROPIC_API_KEY"]
    assert (providers["bedrock"]["extra"], "bedrock_converse" in providers) == ("bedrock", False)
    assert setup["agents"]["ready"] >= 1
    assert setup["agents"]["not_configured"] > 5
    assert [(step["id"], step["done"]) for step in setup["steps"]] == [
        ("model", False),
        ("agents", False),
        ("knowledge", False),
    ]


async def test_a_configured_installation_lacks_nothing() -> None:
    async with supervisor(ANSWER, agents=[agent("shelf", ANSWER)]) as client:
        setup = await read(client.http, client.url, "setup")
        [listed] = (await read(client.http, client.url, "agents"))["agents"]
    assert (setup["model"]["status"], setup["knowledge"]["status"]) == ("ok", "off")
    assert [(step["id"], step["done"]) for step in setup["steps"]] == [("model", True), ("agents", True)]
    assert (listed["name"], listed["status"], listed["tools_known"]) == ("shelf", "ready", True)


@pytest.mark.parametrize("path", ["agents", "settings", "setup"])
async def test_a_server_with_a_key_shows_nothing_without_it(path: str) -> None:
    async with supervisor(ANSWER, env={"A2A_AUTH_SHARED_KEY": KEY}) as client:
        refused = await client.http.get(f"{client.url}v1/{path}")
        client.http.headers["Authorization"] = f"Bearer {KEY}"
        shown = await client.http.get(f"{client.url}v1/{path}")
    assert (refused.status_code, shown.status_code) == (401, 200)
    assert KEY not in shown.text


async def test_whoever_is_not_trusted_sees_no_configuration() -> None:
    env = {"A2A_HOST": "0.0.0.0", "A2A_ALLOW_UNAUTHENTICATED": "true"}
    async with supervisor(ANSWER, agents=[agent("shelf", ANSWER)], env=env) as client:
        for path in ("settings", "setup"):
            assert "its key" in problem(await client.http.get(f"{client.url}v1/{path}"), 403)
        [listed] = (await read(client.http, client.url, "agents"))["agents"]
    assert (listed["name"], listed["message"]) == ("shelf", "")
