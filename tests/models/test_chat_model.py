"""Chat models of the settings at the wire: where each provider is asked, for which model, with which key."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pytest
from langchain_core.messages import AIMessage

from ai_platform_engineering.core.environment import export_variables, read_environment
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import ModelSettings, Settings
from ai_platform_engineering.models.chat_model import create_chat_model
from tests.support.fakes.provider_recorder import ANSWER, ProviderRecorder, RecordedRequest, record_provider

KEY = "key-of-the-provider-7734"
_COUNT = itertools.count()


async def ask(variables: Mapping[str, str]) -> AIMessage:
    """Asks the model of an environment, as a process that starts with it does."""
    os.environ.update(variables)
    # LangChain keeps one HTTP client for each time limit, and each test has an event loop of its own.
    os.environ["LLM_TIMEOUT_SECONDS"] = f"80.{next(_COUNT):06}"
    environment = read_environment()
    export_variables(environment)
    answer = await create_chat_model(Settings.from_variables(environment).model).ainvoke("Who?")
    assert isinstance(answer, AIMessage)
    assert answer.text == ANSWER
    return answer


def only(recorder: ProviderRecorder) -> RecordedRequest:
    [request] = recorder.requests
    return request


async def test_openai_with_legacy_variables() -> None:
    async with record_provider() as provider:
        await ask(
            {
                "LLM_PROVIDER": "openai",
                "OPENAI_MODEL_NAME": "gpt-4o",
                "OPENAI_ENDPOINT": f"{provider.url}/v1",
                "OPENAI_API_KEY": KEY,
                "OPENAI_TEMPERATURE": "0.4",
                # Of another provider, as its example had them side by side.
                "AZURE_OPENAI_DEPLOYMENT": "other",
                "AZURE_OPENAI_ENDPOINT": "https://example.invalid",
            }
        )
        request = only(provider)
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    body = json.loads(request.body)
    assert (body["model"], body["temperature"]) == ("gpt-4o", 0.4)


async def test_azure_openai_with_legacy_variables() -> None:
    async with record_provider() as provider:
        await ask(
            {
                "LLM_PROVIDER": "azure-openai",
                "AZURE_OPENAI_DEPLOYMENT": "our-gpt",
                "AZURE_OPENAI_ENDPOINT": provider.url,
                "AZURE_OPENAI_API_KEY": KEY,
                "AZURE_OPENAI_API_VERSION": "2025-03-01-preview",
                "OPENAI_ENDPOINT": "https://example.invalid/v1",
                "OPENAI_API_KEY": "key-of-another-provider",
            }
        )
        request = only(provider)
    assert request.path == "/openai/deployments/our-gpt/chat/completions"
    assert request.query == "api-version=2025-03-01-preview"
    assert request.headers["api-key"] == KEY
    assert "temperature" not in json.loads(request.body)


async def test_anthropic_with_legacy_variables() -> None:
    async with record_provider() as provider:
        await ask(
            {
                "LLM_PROVIDER": "anthropic-claude",
                "ANTHROPIC_MODEL_NAME": "claude-sonnet",
                "ANTHROPIC_API_KEY": KEY,
                "ANTHROPIC_BASE_URL": provider.url,
            }
        )
        request = only(provider)
    assert request.path == "/v1/messages"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(request.body)["model"] == "claude-sonnet"


@pytest.mark.parametrize(
    ("model", "provider_name"),
    [
        ("us.amazon.nova-pro-v1:0", "anthropic"),  # the id says whose it is
        ("arn:aws:bedrock:eu-west-3:123456789012:provisioned-model/x", "amazon"),
    ],
)
async def test_bedrock_with_legacy_variables(model: str, provider_name: str) -> None:
    async with record_provider() as provider:
        await ask(
            {
                "LLM_PROVIDER": "aws-bedrock",
                "AWS_BEDROCK_MODEL_ID": model,
                "AWS_BEDROCK_PROVIDER": provider_name,
                "AWS_REGION": "eu-west-3",
                "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE7734",
                "AWS_SECRET_ACCESS_KEY": KEY,
                "BEDROCK_TEMPERATURE": "0",
                "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": provider.url,
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        )
        request = only(provider)
    assert unquote(request.path) == f"/model/{model}/converse"
    assert "Credential=AKIAEXAMPLE7734/" in request.headers["authorization"]
    assert "/eu-west-3/bedrock/aws4_request" in request.headers["authorization"]
    assert json.loads(request.body)["inferenceConfig"] == {"temperature": 0.0}
    configured: Any = create_chat_model(Settings.load().model)
    assert configured.provider == "amazon"


async def test_gemini_with_legacy_variables() -> None:
    async with record_provider() as provider:
        await ask(
            {
                "LLM_PROVIDER": "google-gemini",
                "GOOGLE_GEMINI_MODEL_NAME": "gemini-flash",
                "GOOGLE_API_KEY": KEY,
                "GOOGLE_GEMINI_BASE_URL": provider.url,
            }
        )
        request = only(provider)
    assert request.path == "/v1beta/models/gemini-flash:generateContent"
    assert request.headers["x-goog-api-key"] == KEY


def test_vertex_ai_with_legacy_variables() -> None:
    """Without a request: behind another address Google's library sends neither project nor credentials."""
    os.environ.update(
        {
            "LLM_PROVIDER": "gcp-vertexai",
            "VERTEXAI_MODEL_NAME": "gemini-pro",
            "GOOGLE_CLOUD_PROJECT": "our-project",
            "GOOGLE_CLOUD_LOCATION": "europe-west4",
            "GOOGLE_API_KEY": KEY,  # of Gemini, and not for here
            "VERTEXAI_TEMPERATURE": "0.5",
        }
    )
    model: Any = create_chat_model(Settings.load().model)
    assert (model.model, model.temperature) == ("gemini-pro", 0.5)
    client = model.client._api_client
    assert (client.vertexai, client.project, client.location) == (True, "our-project", "europe-west4")
    assert client._http_options.base_url == "https://europe-west4-aiplatform.googleapis.com/"
    assert client.api_key is None


async def test_groq_with_legacy_variables() -> None:
    async with record_provider() as provider:
        await ask(
            {
                "LLM_PROVIDER": "groq",
                "GROQ_MODEL_NAME": "llama",
                "GROQ_API_KEY": KEY,
                "GROQ_TEMPERATURE": "1",
                "GROQ_API_BASE": provider.url,
            }
        )
        request = only(provider)
    assert request.path == "/openai/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    body = json.loads(request.body)
    assert (body["model"], body["temperature"]) == ("llama", 1)


# In a process of its own: LangChain remembers the packages that it has found.
_WITHOUT_PACKAGES = """
import sys
for package in ("aws", "google_genai", "groq", "ollama", "litellm"):
    sys.modules["langchain_" + package] = None
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.chat_model import create_chat_model
for variables in sys.argv[1:]:
    try:
        create_chat_model(Settings.from_variables(dict(pair.split("=") for pair in variables.split())).model)
    except ConfigurationError as error:
        print(error)
"""


def test_a_provider_that_is_not_installed_names_its_extra() -> None:
    extras = {
        "LLM_MODEL=bedrock:x": "bedrock",
        "LLM_MODEL=google:x": "google",
        "LLM_MODEL=vertexai:x": "google",
        "LLM_MODEL=groq:x": "groq",
        "LLM_MODEL=ollama:x": "ollama",
        "LLM_MODEL=litellm:x": "litellm",
        "LLM_PROVIDER=groq GROQ_MODEL_NAME=x": "groq",
        "LLM_PROVIDER=aws-bedrock AWS_BEDROCK_MODEL_ID=x": "bedrock",
    }
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PACKAGES, *extras],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(extras)
    for line, extra in zip(lines, extras.values(), strict=True):
        assert f"caipe extras install {extra}" in line


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("openai:x", ["OPENAI_API_KEY"]),
        ("azure:x", ["AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "OPENAI_API_VERSION"]),
        ("google:x", ["GOOGLE_API_KEY"]),
        ("groq:x", ["GROQ_API_KEY"]),
    ],
)
def test_a_model_without_what_its_provider_needs_says_what_that_is(name: str, variables: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=f"LLM_MODEL={name}") as refused:
        create_chat_model(Settings.from_variables({"LLM_MODEL": name}).model)
    assert [variable for variable in variables if variable not in str(refused.value)] == []


@pytest.mark.parametrize("name", ["gpt", "openai:", ":gpt", "nobody:x"])
def test_a_model_that_cannot_be_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"LLM_MODEL: (the form is|there is no provider)"):
        Settings.from_variables({"LLM_MODEL": name})
    with pytest.raises(ConfigurationError, match=f"LLM_MODEL={name}"):  # of an agent, for example
        create_chat_model(ModelSettings(), name)
