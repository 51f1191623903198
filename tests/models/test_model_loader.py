"""Models are loaded in a thread, once, and the event loop goes on meanwhile."""

import asyncio
import json
import sys

import pytest

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.model_loader import ModelLoader
from tests.conftest import ROOT
from tests.support.anthropic_streams import ANTHROPIC_STREAMS
from tests.support.fakes.raw_http import chunked, serve_raw
from tests.support.model_pairs import base_url
from tests.support.openai_streams import MULTIBYTE, OPENAI_STREAMS
from tests.support.processes import process_environment

ANSWERS = {"openai": chunked(OPENAI_STREAMS["text"]), "anthropic": chunked(ANTHROPIC_STREAMS["text"])}
PROVIDER_PACKAGES = {"aiohttp", "anthropic", "httpx2", "langchain_anthropic", "langchain_openai", "openai"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("provider", ANSWERS)
async def test_a_providers_package_is_never_imported_in_the_event_loop(provider: str) -> None:
    async with serve_raw(lambda _: ANSWERS[provider]) as server:
        settings = {"LLM_MODEL": f"{provider}:m-1"}
        prefix = provider.upper()
        variables = {f"{prefix}_API_KEY": "k", f"{prefix}_BASE_URL": base_url(provider, server.url)}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.import_witness",
            json.dumps(settings),
            cwd=ROOT,
            env={**process_environment(variables), "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
    report = json.loads(output)
    assert report["answer"] == "".join(MULTIBYTE)
    assert [model["status"] for model in report["ready"]] == ["ok", "ok"]
    assert packages(report["elsewhere"]) >= {provider, f"langchain_{provider}"}
    assert packages(report["loop"]) == set(), sorted(report["loop"])


def packages(names: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in names} & PROVIDER_PACKAGES


def build_loader(**variables: str) -> ModelLoader:
    return ModelLoader(Settings.from_variables(variables).model)


async def test_all_who_ask_get_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    loader = build_loader(LLM_MODEL="openai:m-1")
    loader.start()
    first, *others = await asyncio.gather(*(loader.load() for _ in range(5)))
    assert all(model is first for model in others)
    assert loader.get() is first
    assert await loader.load("openai:m-2") is not first


async def test_one_who_stops_waiting_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    loader = build_loader(LLM_MODEL="openai:m-1")
    impatient = asyncio.create_task(loader.load())
    patient = asyncio.create_task(loader.load())
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient is loader.get()


async def test_a_failure_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = build_loader(LLM_MODEL="openai:m-1")
    loader.start()
    with pytest.raises(ConfigurationError, match="LLM_MODEL=openai:m-1"):
        await loader.load()
    assert not await loader.is_loading()
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert await loader.load() is not None
