"""The two model providers as strict fakes, and the supervisor that is configured for one of them."""

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool

from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from tests.support.fakes.anthropic_server import AnthropicServer, serve_anthropic
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Casting
from tests.support.fakes.serving import ModelServer
from tests.support.harness import Client, supervisor

_COUNT = itertools.count()


@dataclass(frozen=True, slots=True)
class Provider:
    """`serve` runs the fake, `settings` makes it the configured model; the environment is restored after
    each test.
    """

    name: str

    def __str__(self) -> str:
        return self.name

    def serve(
        self, casting: Casting, *, max_context_tokens: int | None = None
    ) -> contextlib.AbstractAsyncContextManager[Any]:
        serve = serve_openai if self.name == "openai" else serve_anthropic
        return serve(casting, max_context_tokens=max_context_tokens)

    def settings(self, server: ModelServer, **more: str) -> dict[str, str]:
        prefix = self.name.upper()
        os.environ.update({f"{prefix}_API_KEY": "scripted", f"{prefix}_BASE_URL": server.url})
        # LangChain keeps one HTTP client per timeout for the whole process, and each test has an event loop
        # of its own.
        return {"LLM_MODEL": f"{self.name}:scripted", "LLM_TIMEOUT_SECONDS": f"90.{next(_COUNT):06}", **more}


OPENAI, ANTHROPIC = Provider("openai"), Provider("anthropic")
PROVIDERS = (OPENAI, ANTHROPIC)


@contextlib.asynccontextmanager
async def run_behind_provider(
    provider: Provider,
    casting: Casting,
    *,
    agents: Sequence[LocalAgent] = (),
    tools: Sequence[BaseTool] = (),
    max_context_tokens: int | None = None,
    **env: str,
) -> AsyncIterator[tuple[ModelServer, Client]]:
    """The supervisor with a scripted provider as its model: the provider's server and the client."""
    async with (
        provider.serve(casting, max_context_tokens=max_context_tokens) as server,
        supervisor(None, agents=agents, tools=tools, env=provider.settings(server, **env)) as client,
    ):
        yield server, client


def overflow_refusals(server: ModelServer) -> list[str]:
    """The refusals of prompts that were too long; any other refusal means that a broken request was sent."""
    words = "prompt is too long" if isinstance(server, AnthropicServer) else "maximum context length"
    return [refusal for refusal in server.refusals if words in refusal]
