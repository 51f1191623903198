"""The first questions of a platform engineer, asked of the server as it is installed: without a model."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ai_platform_engineering.core.events import Answered, ToolStarted
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.processes import TIMEOUT

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTIONS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("first_questions.yaml").read_text("utf-8")
)


@dataclass(frozen=True, slots=True)
class FreshInstallation:
    """The server with nothing set, and the port of a web server on this machine to ask about."""

    client: Client
    port: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FreshInstallation]:
    home = tmp_path_factory.mktemp("home")
    env = {**FAST, "ENABLE_RAG": "true", "CAIPE_HOME": str(home), "PATH": os.environ["PATH"]}

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok")

    async with (
        serve_app(Starlette(routes=[Route("/health", health)])) as site_url,
        serve_app(build_app(Settings.from_variables(env), env)) as url,
        httpx.AsyncClient(timeout=TIMEOUT, verify=PLAIN) as http,
    ):
        await _wait_for_documentation(http, url)
        yield FreshInstallation(Client(url, http), site_url.rstrip("/").rpartition(":")[2])


async def _wait_for_documentation(http: httpx.AsyncClient, url: str) -> None:
    async with asyncio.timeout(TIMEOUT):
        while True:
            answer = await http.get(f"{url}v1/jobs")
            jobs = answer.json().get("jobs") if answer.status_code == 200 else None
            if jobs and all(job["state"] == "done" for job in jobs):
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("expected", QUESTIONS, ids=lambda expected: expected["ask"])
async def test_it_is_answered_or_refused_with_the_next_step(
    installation: FreshInstallation, expected: dict[str, Any]
) -> None:
    stream = await installation.client.ask(expected["ask"].format(port=installation.port))

    assert stream.states[-1] == "completed"
    started = [event for event in stream.events if isinstance(event, ToolStarted)]
    tools = {event.tool for event in started if not event.delegates}
    if "search" not in expected.get("tools", ()):
        tools.discard("search")  # a look into the documents, before the refusal
    assert tools == set(expected.get("tools", ()))
    for text in expected["says"]:
        assert text.format(port=installation.port) in stream.answer
    ended = stream.events[-1]
    assert isinstance(ended, Answered)
    pages = [citation.title for citation in ended.citations]
    if "pages" in expected:
        assert pages[0] in expected["pages"]
    else:
        assert pages == []


async def test_decisions_about_the_code_are_not_part_of_the_shipped_knowledge(
    installation: FreshInstallation,
) -> None:
    stream = await installation.client.ask("search the docs for fewer commits in a run")

    ended = stream.events[-1]
    assert isinstance(ended, Answered)
    assert not [citation for citation in ended.citations if "Fewer commits" in citation.title]
