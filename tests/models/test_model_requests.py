"""Our client sends the requests of the stock client and finds the same way to the server."""

import base64
import itertools
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import AzureChatOpenAI, ChatOpenAI

from ai_platform_engineering.core.model_streams import ModelStreamSettings
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.anthropic_models import MergedChatAnthropic
from ai_platform_engineering.models.openai_models import MergedAzureChatOpenAI, MergedChatOpenAI
from ai_platform_engineering.models.streaming_models import create_streaming_model
from tests.support.anthropic_streams import ANTHROPIC_STREAMS
from tests.support.fakes.raw_http import RawRequest, chunked, serve_raw, whole
from tests.support.harness import supervisor
from tests.support.model_pairs import build_model, look, provider_client, read_outcome
from tests.support.openai_streams import MULTIBYTE, OPENAI_STREAMS

_SECONDS = itertools.count(50)
ANSWERS = {"openai": chunked(OPENAI_STREAMS["text"]), "anthropic": chunked(ANTHROPIC_STREAMS["text"])}
HISTORY: list[BaseMessage] = [
    SystemMessage("Be brief. Grüße 🚀"),
    HumanMessage([{"type": "text", "text": "Look at \u2028 this"}]),
    AIMessage("", tool_calls=[{"name": "look", "args": {"city": "Zürich", "days": 3.5}, "id": "call_1"}]),
    ToolMessage("sunny", tool_call_id="call_1"),
    HumanMessage("And now?"),
]
UNLIKE = frozenset({"content-length"})  # JSON can be written in more than one way


async def ask_for_key() -> str:
    return "key-of-the-moment"


@dataclass(frozen=True)
class Case:
    """A model of both kinds with the same options; `{url}` is the server."""

    fast: type[BaseChatModel]
    stock: type[BaseChatModel]
    options: dict[str, Any]
    answer: str = "openai"

    def build(self, model_class: type[BaseChatModel], url: str, **more: Any) -> BaseChatModel:
        options = {
            name: value.format(url=url) if isinstance(value, str) else value
            for name, value in deepcopy(self.options).items()  # LangChain takes entries out of them
        }
        return model_class(**options, max_retries=0, **more)


def openai(**options: Any) -> Case:
    common = {"model": "m-1", "base_url": "{url}/v1", "api_key": "k", "stream_usage": True}
    return Case(MergedChatOpenAI, ChatOpenAI, {**common, "use_responses_api": False, **options})


def azure(**options: Any) -> Case:
    common = {"model": "m-1", "azure_endpoint": "{url}", "api_version": "2025-01-01", "stream_usage": True}
    return Case(MergedAzureChatOpenAI, AzureChatOpenAI, {**common, "api_key": "k", **options})


def anthropic(**options: Any) -> Case:
    common = {"model": "m-1", "base_url": "{url}", "api_key": "k"}
    return Case(MergedChatAnthropic, ChatAnthropic, {**common, **options}, "anthropic")


CASES = {
    "openai": openai(),
    "openai with everything": openai(
        organization="org-1",
        default_headers={"X-Team": "platform", "User-Agent": "ours/1"},
        default_query={"api-version": "1", "list": ["a", "b"]},
        extra_body={"ttl": 300, "nested": {"a": [1, None]}, "temperature": 0.7},
        temperature=0.2,
        max_tokens=77,
        logit_bias={"50256": -100},
        model_kwargs={"user": "ann"},
        stop=["END"],
    ),
    "openai with a key that is asked for": openai(api_key=ask_for_key),
    "openai with options of the request": openai(
        model_kwargs={"extra_headers": {"X-One": "1"}, "extra_query": {"q": "ü"}}
    ),
    "openai without usage": openai(stream_usage=False),
    "azure": azure(),
    "azure with a deployment": azure(azure_deployment="d-1", extra_body={"ttl": 300}),
    "azure with a token": azure(api_key=None, azure_ad_token="t-1"),
    "anthropic": anthropic(),
    "anthropic with everything": anthropic(
        default_headers={"X-Team": "platform"},
        temperature=0.2,
        max_tokens=77,
        stop_sequences=["END"],
        model_kwargs={"extra_body": {"ttl": 300}},
    ),
    "anthropic with betas": anthropic(betas=["context-1m-2025-08-07"]),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_both_clients_send_the_same_request(case: Case) -> None:
    seconds = next(_SECONDS)  # LangChain keeps an HTTP client for each timeout, for one event loop
    async with serve_raw(lambda _: ANSWERS[case.answer]) as server:
        fast = case.build(case.fast, server.url, timeout=seconds, stream_settings=ModelStreamSettings())
        stock = case.build(case.stock, server.url, timeout=seconds)
        async with provider_client(stock):
            for model in (fast, stock, fast, stock):
                async for _ in model.bind_tools([look], tool_choice="auto").astream(HISTORY):
                    pass
    assert len(server.requests) == 4
    for ours, theirs in (server.requests[:2], server.requests[2:]):
        assert (ours.method, ours.target) == (theirs.method, theirs.target)
        assert ours.json == theirs.json
        assert describe_headers(ours) == describe_headers(theirs)


def describe_headers(request: RawRequest) -> dict[str, str]:
    assert request.headers["content-length"] == str(len(request.body))
    return {name: value for name, value in request.headers.items() if name not in UNLIKE}


async def test_a_payload_that_orjson_cannot_write_is_left_to_the_library() -> None:
    case = openai(extra_body={"large": 2**70, "spaced": "\ud83d".encode("utf-8", "replace").decode()})
    async with serve_raw(lambda _: ANSWERS["openai"]) as server:
        model = case.build(MergedChatOpenAI, server.url, stream_settings=ModelStreamSettings())
        assert (await read_outcome(model)).error is None
    assert server.requests[0].json["large"] == 2**70


# --- the way there --------------------------------------------------------------------------------


@pytest.fixture(params=ANSWERS)
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setenv(f"{name.upper()}_API_KEY", "scripted-key")
    monkeypatch.setenv(f"{name.upper()}_BASE_URL", "http://model.test/v1")
    return name


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "all_proxy", "own"])
async def test_a_proxy_is_asked_with_its_password(
    provider: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_raw(lambda _: ANSWERS[provider]) as proxy:
        address = f"http://ann:s%40crt@{urlsplit(proxy.url).netloc}"
        monkeypatch.setenv(f"{provider.upper()}_PROXY" if variable == "own" else variable, address)
        outcome = await read_outcome(build_model(provider, "fast"))
    assert outcome.error is None
    [request] = proxy.requests
    assert request.target.startswith("http://model.test/v1/")
    assert request.headers["host"] == "model.test"
    assert base64.b64decode(request.headers["proxy-authorization"].removeprefix("Basic ")) == b"ann:s@crt"


async def test_a_proxy_that_refuses_is_named_without_its_password(
    provider: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = chunked([b"no"], status="407 Proxy Authentication Required")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "https://model.test/v1")
    async with serve_raw(lambda _: refused) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://ann:s3cret@{urlsplit(proxy.url).netloc}")
        outcome = await read_outcome(build_model(provider, "fast"))
    assert outcome.error is not None
    assert outcome.error["is transient"]
    assert "s3cret" not in str(outcome.error) + caplog.text


def test_behind_socks_the_stock_client_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.from_variables({"LLM_MODEL": "openai:m-1"}).model
    options = {"api_key": "k"}
    assert isinstance(create_streaming_model("openai", "m-1", options, settings), MergedChatOpenAI)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    assert create_streaming_model("openai", "m-1", options, settings) is None


# --- which client ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "is_merged"),
    [({}, True), ({"LLM_STREAM_CLIENT": "Stock"}, False)],
    ids=["default", "stock"],
)
async def test_the_supervisor_reads_with_our_client_unless_it_is_told_not_to(
    variables: dict[str, str], is_merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = whole(b"".join(OPENAI_STREAMS["text"]), headers=["content-type: text/event-stream"])
    async with serve_raw(lambda _: together) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "scripted-key")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        env = {"LLM_MODEL": "openai:m-1", "LLM_TIMEOUT_SECONDS": f"{next(_SECONDS)}.5", **variables}
        async with supervisor(None, env=env) as client:
            stream = await client.ask("Well?")
    first = stream.named("streaming_result")[0].text
    assert stream.answer == "".join(MULTIBYTE)
    # The stock client makes a delta of each event, and the first delta is not held back.
    assert first == ("".join(MULTIBYTE) if is_merged else MULTIBYTE[0])
