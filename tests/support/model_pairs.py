"""One model with both of its clients, ours and the stock one, on a server that answers both with the same
bytes."""

import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.graph.failures import describe_error, is_overflow, is_transient, retry_after
from ai_platform_engineering.models.chat_model import create_chat_model
from tests.support.fakes.raw_http import RawAnswer, RawServer, serve_raw, whole

_COUNT = itertools.count()
_RUN_ID = uuid.UUID(int=7)  # the id of the message follows from it
_ERROR_FIELDS = ("status_code", "code", "type", "body", "request_id")


@tool
def look(city: str) -> str:
    """Looks."""
    return city


@dataclass(frozen=True)
class Outcome:
    """What a model's user gets of an answer: the joined message, and the error that ended it."""

    message: dict[str, Any] | None
    error: dict[str, Any] | None


def build_model(provider: str, client: str, *, seconds: float = 60, **variables: str) -> BaseChatModel:
    """The model as the product makes it.

    The timeout differs a little each time, since LangChain keeps an HTTP client for each, and each test has
    an event loop of its own.
    """
    settings = Settings.from_variables(
        {
            "LLM_MODEL": f"{provider}:scripted-1",
            "LLM_STREAM_CLIENT": client,
            "LLM_TIMEOUT_SECONDS": f"{seconds + next(_COUNT) / 1_000_000:f}",
            **variables,
        }
    )
    return create_chat_model(settings.model)


async def read_outcome(model: Any, *, tools: bool = False) -> Outcome:
    """Asks the model and joins what it streams."""
    asked = model.bind_tools([look]) if tools else model
    joined: AIMessageChunk | None = None
    error: Exception | None = None
    try:
        async for chunk in asked.astream("Well?", {"run_id": _RUN_ID}):
            assert isinstance(chunk, AIMessageChunk)
            joined = chunk if joined is None else joined + chunk
    except Exception as raised:  # noqa: BLE001 - compared with that of the other client
        error = raised
    return Outcome(joined.model_dump() if joined else None, describe(error) if error else None)


def describe(error: Exception) -> dict[str, Any]:
    """Everything of an error that retries and the words for people depend on."""
    return {
        "types": [kind.__name__ for kind in type(error).__mro__],
        # A position in a line, or in the data of the line.
        "text": None if isinstance(error, UnicodeError) else str(error),
        **{name: getattr(error, name, None) for name in _ERROR_FIELDS},
        "is transient": is_transient(error),
        "is overflow": is_overflow(error),
        "retry after": retry_after(error),
        "for people": describe_error(error),
    }


@dataclass(slots=True)
class ModelPair:
    """Both clients of a model, and their server: it answers with `script`, one after the other, then with
    `answer`."""

    stock: BaseChatModel
    fast: BaseChatModel
    server: RawServer
    answer: RawAnswer = field(default_factory=lambda: whole(b"{}"))
    script: list[RawAnswer] = field(default_factory=list)

    def next_answer(self) -> RawAnswer:
        return self.script.pop(0) if self.script else self.answer

    async def read(self, answer: RawAnswer, *, tools: bool = False) -> tuple[Outcome, Outcome]:
        """What ours and the stock client make of the same answer."""
        self.answer = answer
        return await read_outcome(self.fast, tools=tools), await read_outcome(self.stock, tools=tools)


@contextlib.asynccontextmanager
async def serve_pair(
    provider: str, *, url: str | None = None, seconds: float = 60, **variables: str
) -> AsyncIterator[ModelPair]:
    """The pair while its server runs; `url` is another server that it asks instead."""
    pair: ModelPair | None = None
    async with serve_raw(lambda _: pair.next_answer() if pair else whole(b"{}")) as server:
        with pytest.MonkeyPatch.context() as environment:
            prefix = provider.upper()
            environment.setenv(f"{prefix}_API_KEY", "scripted-key")
            environment.setenv(f"{prefix}_BASE_URL", base_url(provider, url or server.url))
            stock = build_model(provider, "stock", seconds=seconds, **variables)
            fast = build_model(provider, "fast", seconds=seconds, **variables)
            pair = ModelPair(stock, fast, server)
            async with provider_client(stock):
                yield pair


def provider_client(model: Any) -> Any:
    """The client of the provider's library in a model, which closes its connections at the end of a block."""
    return getattr(model, "root_async_client", None) or model._async_client


def base_url(provider: str, url: str) -> str:
    return f"{url}/v1" if provider == "openai" else url
