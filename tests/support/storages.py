"""The supervisor on a storage that outlives it, and more than one owner of what is in it."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.storage import Storage
from tests.support.harness import FAST, PLAIN, Client, serve_app

KEY = "the-shared-key-of-tests"


def in_folder(folder: Path, **env: str) -> Storage:
    """The storage of a server in a folder, opened anew."""
    return Storage.from_settings(Settings.from_variables(env).storage, folder, "supervisor")


@contextlib.asynccontextmanager
async def supervisor_on(
    storage: Storage,
    model: BaseChatModel | None,
    *,
    tools: Sequence[BaseTool] = (),
    agents: Sequence[PlacedAgent] = (),
    env: Mapping[str, str] | None = None,
    key: str | None = None,
    router: BaseChatModel | None = None,
) -> AsyncIterator[Client]:
    """With a key its user is another one than without."""
    variables = {**FAST, **(env or {}), **({"A2A_AUTH_SHARED_KEY": key} if key else {})}
    app = create_app(
        Settings.from_variables(variables),
        agents=agents,
        tools=tools,
        model=model,
        router=router,
        storage=storage,
    )
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN, headers=headers) as http:
        yield Client(url, http)


def problem(response: httpx.Response, status: int) -> str:
    """The sentence of an error."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    body = response.json()
    assert (body["status"], body["type"]) == (status, "about:blank")
    assert body["title"]
    return str(body["detail"])
