"""A process with legacy variables alone: it answers with their model, and says what it does not use."""

import secrets

import pytest

from ai_platform_engineering.agents.agent_catalog import load_placed_catalog
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.runtime.server.authentication import check_exposure
from tests.support.agent_services import run_server_process
from tests.support.fakes.openai_server import AzureOpenAIServer, OpenAIServer, serve_azure, serve_openai
from tests.support.fakes.script import Say, Script, Turn
from tests.support.processes import invoke_caipe

ECHO = Script(Turn(Say("You said {{user}}.")))
NOT_USED = {
    "A2A_TRANSPORT": "slim",
    "LANGFUSE_SECRET_KEY": "secret-of-langfuse-7734",
    "ENABLE_TRACING": "false",
    "ARGOCD_MCP_HOST": "tools.example.invalid",
}
QUICK = {"ENABLE_RAG": "false", "ENABLE_SKILLS": "false"}


def openai_variables(server: OpenAIServer, key: str) -> dict[str, str]:
    return {
        "LLM_PROVIDER": "openai",
        "OPENAI_MODEL_NAME": "our-gpt",
        "OPENAI_ENDPOINT": server.url,
        "OPENAI_API_KEY": key,
    }


def azure_variables(server: AzureOpenAIServer, key: str) -> dict[str, str]:
    return {
        "LLM_PROVIDER": "azure-openai",
        "AZURE_OPENAI_DEPLOYMENT": "our-gpt",
        "AZURE_OPENAI_ENDPOINT": server.url,
        "AZURE_OPENAI_API_KEY": key,
        "AZURE_OPENAI_API_VERSION": "2025-03-01-preview",
    }


async def test_a_server_with_openais_legacy_variables_answers_and_names_what_it_does_not_use() -> None:
    key = f"corporate-{secrets.token_hex(12)}"
    async with (
        serve_openai(ECHO, api_key=key) as model,
        run_server_process("caipe", "serve", **openai_variables(model, key), **NOT_USED, **QUICK) as (
            process,
            client,
        ),
    ):
        stream = await client.ask("hello")
    assert stream.answer == "You said hello."
    assert [request.model for request in model.requests] == ["our-gpt"]
    assert model.targets == ["/v1/chat/completions"]
    assert process.err.count("set and not used") == 1
    for name in ("A2A_TRANSPORT: ", "LANGFUSE_SECRET_KEY: ", "ARGOCD_MCP_HOST: AGENTS_CONFIG"):
        assert process.err.count(name) == 1
    assert "ENABLE_TRACING" not in process.err
    for value in (key, NOT_USED["LANGFUSE_SECRET_KEY"], NOT_USED["ARGOCD_MCP_HOST"]):
        assert value not in process.err


@pytest.mark.full
async def test_a_server_with_azures_legacy_variables_answers() -> None:
    key = f"corporate-{secrets.token_hex(12)}"
    async with (
        serve_azure(ECHO, api_key=key) as model,
        run_server_process("platform-engineer", **azure_variables(model, key), **QUICK) as (process, client),
    ):
        stream = await client.ask("hello")
    assert stream.answer == "You said hello."
    target = "/openai/deployments/our-gpt/chat/completions?api-version=2025-03-01-preview"
    assert model.targets == [target]
    assert "not used" not in process.err


def test_an_agent_has_the_model_of_its_legacy_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAGENT_NETUTILS_MODEL", "openai:small")
    variables = read_environment()
    entry = load_placed_catalog(Settings.from_variables(variables), variables).get("netutils")
    assert entry is not None
    assert entry.definition.model == "openai:small"


async def test_doctor_says_what_is_read_what_conflicts_and_what_is_not_used() -> None:
    key = f"corporate-{secrets.token_hex(12)}"
    env = {
        "LLM_PROVIDER": "openai",
        "OPENAI_MODEL_NAME": "our-gpt",
        "OPENAI_ENDPOINT": "http://127.0.0.1:9/v1",
        "OPENAI_BASE_URL": "http://127.0.0.1:10/v1",
        "OPENAI_API_KEY": key,
        "SLACK_INTEGRATION_APP_NAME": "Ours",
        **NOT_USED,
        **QUICK,
    }
    done = await invoke_caipe("doctor", "--all", env=env)
    assert done.code == 0, done.out + done.err
    assert "LLM_MODEL is read from LLM_PROVIDER." in done.out
    assert "OPENAI_ENDPOINT and OPENAI_BASE_URL differ: OPENAI_BASE_URL is used." in done.out
    for name in ("A2A_TRANSPORT", "LANGFUSE_SECRET_KEY", "SLACK_INTEGRATION_APP_NAME"):
        assert f"{name} is set but not used." in done.out
    [row] = [line for line in done.out.splitlines() if line.startswith("  LLM_MODEL ")]
    assert row.split() == ["LLM_MODEL", "openai:our-gpt", "LLM_PROVIDER"]
    for value in (key, NOT_USED["LANGFUSE_SECRET_KEY"]):
        assert value not in done.out + done.err


@pytest.mark.parametrize("command", ["doctor", "serve"])
async def test_an_unknown_provider_stops_the_start_with_the_known_ones(command: str) -> None:
    done = await invoke_caipe(command, env={"LLM_PROVIDER": "nobody", "A2A_PORT": "0", **QUICK})
    output = done.out + done.err
    assert done.code == 1
    assert "LLM_PROVIDER: " in output
    for name in ("azure-openai", "aws-bedrock", "anthropic-claude", "google-gemini", "gcp-vertexai", "groq"):
        assert name in output
    for word in ("nobody", "Traceback", "serving on"):
        assert word not in output


async def test_doctor_names_what_azure_lacks() -> None:
    env = {"LLM_PROVIDER": "azure-openai", "AZURE_OPENAI_DEPLOYMENT": "our-gpt", **QUICK}
    done = await invoke_caipe("doctor", env=env)
    assert done.code == 1
    for name in ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "OPENAI_API_VERSION"):
        assert name in done.out


async def test_a_server_that_checked_tokens_does_not_start_without_a_check() -> None:
    done = await invoke_caipe("serve", env={"A2A_AUTH_OAUTH2": "true", "A2A_PORT": "0", **QUICK})
    output = done.out + done.err
    assert done.code == 1
    assert output.startswith("A2A_AUTH_OAUTH2 is on")
    assert "A2A_AUTH_SHARED_KEY" in output
    assert len(output.splitlines()) == 1
    with_key = Settings.from_variables({"A2A_AUTH_OAUTH2": "true", "A2A_AUTH_SHARED_KEY": "k" * 16})
    check_exposure(with_key.server)


async def test_a_bot_that_checked_roles_does_not_start_without_a_check(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = {"SLACK_RBAC_ENABLED": "true", "SLACK_INTEGRATION_PROMPT_DM": "Be kind.", "A2A_TRANSPORT": "slim"}
    done = await invoke_caipe("slack", env=env)
    assert done.code == 1
    assert done.err.startswith("SLACK_RBAC_ENABLED is on")
    [warning] = [record.getMessage() for record in caplog.records if "not used" in record.getMessage()]
    assert "SLACK_INTEGRATION_PROMPT_DM: `instructions`" in warning
    assert "A2A_TRANSPORT" not in warning  # the server says that
    assert "Be kind." not in warning + done.err
