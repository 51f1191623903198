"""The model providers as strict fakes, and the supervisor that is configured for one of them."""

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool

from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from tests.support.fakes.anthropic_server import AnthropicServer, serve_anthropic
from tests.support.fakes.bedrock_server import MODEL_PREFIX, serve_bedrock
from tests.support.fakes.openai_responses_server import serve_openai_responses
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Casting
from tests.support.fakes.serving import ModelServer
from tests.support.harness import Client, supervisor

_COUNT = itertools.count()
_SERVERS: Mapping[str, Callable[..., contextlib.AbstractAsyncContextManager[Any]]] = {
    "openai": serve_openai,
    "responses": serve_openai_responses,
    "anthropic": serve_anthropic,
    "bedrock": serve_bedrock,
}


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
        return _SERVERS[self.name](casting, max_context_tokens=max_context_tokens)

    def model(self, name: str) -> str:
        """The full name of a model, under which the fake finds its script."""
        prefix = MODEL_PREFIX if self.name == "bedrock" else ""
        return f"{self._family}:{prefix}{name}"

    @property
    def _family(self) -> str:
        return "openai" if self.name == "responses" else self.name

    def settings(self, server: ModelServer, **more: str) -> dict[str, str]:
        os.environ.update(self._credentials(server))
        # LangChain keeps one HTTP client per timeout for the whole process, and each test has an event loop
        # of its own.
        model = self.model("scripted")
        values = {"LLM_MODEL": model, "LLM_TIMEOUT_SECONDS": f"90.{next(_COUNT):06}"}
        if self.name == "responses":
            values["LLM_RESPONSES_API"] = "on"
        return {**values, **more}

    def _credentials(self, server: ModelServer) -> dict[str, str]:
        """The variables that the provider's library reads by itself."""
        if self.name == "bedrock":
            return {
                "AWS_REGION": "eu-west-3",
                "AWS_ACCESS_KEY_ID": "scripted",
                "AWS_SECRET_ACCESS_KEY": "scripted",
                "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url,
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        prefix = self._family.upper()
        return {f"{prefix}_API_KEY": "scripted", f"{prefix}_BASE_URL": server.url}


OPENAI, ANTHROPIC, BEDROCK = Provider("openai"), Provider("anthropic"), Provider("bedrock")
RESPONSES = Provider("responses")  # OpenAI's Responses API
PROVIDERS = (OPENAI, ANTHROPIC)
DIALECTS = (OPENAI, ANTHROPIC, BEDROCK, RESPONSES)


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
