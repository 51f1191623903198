"""Texts become vectors: the model in this process, and servers that speak the OpenAI embeddings API."""

import asyncio
import contextlib
import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.indexing import embedded_models
from ai_platform_engineering.knowledge_bases.indexing.embedded_models import (
    EMBEDDED_MODELS,
    GRANITE,
    MINILM,
    EmbeddedModel,
)
from ai_platform_engineering.knowledge_bases.indexing.embedding_process import EmbeddingProcess
from ai_platform_engineering.knowledge_bases.indexing.embeddings import (
    EmbeddingsEndpoint,
    EmbeddingsFailed,
    create_embedder,
)
from ai_platform_engineering.knowledge_bases.indexing.model_graph import GRAPH_VERSION
from ai_platform_engineering.knowledge_bases.indexing.text_encoder import TextEncoder
from tests.conftest import need
from tests.support.harness import serve_app
from tests.support.ports import closed_port
from tests.support.processes import process_environment

KEY = "sk-never-in-an-error"
Answer = Callable[[dict[str, Any]], Response]


def vectors(request: dict[str, Any]) -> Response:
    """A vector that tells the text's length, in another order than asked."""
    rows = [{"index": at, "embedding": [float(len(text)), 1.0]} for at, text in enumerate(request["input"])]
    return JSONResponse({"data": rows[::-1]})


@contextlib.asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[tuple[str, list[tuple[dict[str, Any], str]]]]:
    """The address of a server that gives one answer after the other, then the last one; and what it was
    asked."""
    requests: list[tuple[dict[str, Any], str]] = []

    async def embeddings(request: Request) -> Response:
        body = json.loads(await request.body())
        requests.append((body, request.headers.get("authorization", "")))
        return answers[min(len(requests), len(answers)) - 1](body)

    async with serve_app(Starlette(routes=[Route("/v1/embeddings", embeddings, methods=["POST"])])) as url:
        yield f"{url.rstrip('/')}/v1/", requests


def status(code: int, **headers: str) -> Answer:
    return lambda _: Response(f"{KEY} is wrong", code, headers=headers)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("the embedding model", GRANITE.is_installed(), "its packages are not installed")
    return tmp_path_factory.mktemp("cache")


# --- a server


async def test_vectors_come_in_the_order_of_the_texts_and_in_batches() -> None:
    async with serving(vectors) as (url, requests):
        endpoint = EmbeddingsEndpoint(url, "small", KEY)
        texts = ["x" * length for length in range(1, 131)]
        embedded = await endpoint.embed(texts)
        await endpoint.close()
    assert [vector[0] for vector in embedded] == [float(len(text)) for text in texts]
    assert [len(body["input"]) for body, _ in requests] == [64, 64, 2]
    assert {(body["model"], key) for body, key in requests} == {("small", f"Bearer {KEY}")}
    assert (endpoint.name, endpoint.dimensions) == ("small", 2)


async def test_without_a_key_no_header_is_sent_and_long_or_empty_texts_are_made_fit() -> None:
    async with serving(vectors) as (url, requests):
        endpoint = EmbeddingsEndpoint(url, "small")
        await endpoint.embed(["", "y" * 20_000])
        await endpoint.close()
    body, key = requests[0]
    assert key == ""
    assert [len(text) for text in body["input"]] == [len("(empty)"), 8_000]


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_busy_server_is_asked_again(code: int) -> None:
    async with serving(status(code, **{"retry-after": "0"}), status(code), vectors) as (url, requests):
        endpoint = EmbeddingsEndpoint(url, "small", KEY, wait=0.01)
        assert await endpoint.embed(["abc"]) == [[3.0, 1.0]]
        await endpoint.close()
    assert len(requests) == 3


@pytest.mark.parametrize(
    ("answer", "attempts", "words"),
    [
        (status(401), 1, "it answered 401"),
        (status(503), 4, "it answered 503"),
        (lambda _: JSONResponse({"data": []}), 1, "0 vectors for 1 texts"),
        (lambda _: JSONResponse({"data": [{"index": 0, "embedding": []}]}), 1, "different lengths"),
        (lambda _: JSONResponse({"error": "no"}), 1, "not one of the OpenAI embeddings API"),
        (lambda _: Response("<html>"), 1, "not one of the OpenAI embeddings API"),
    ],
)
async def test_what_goes_wrong_is_said_without_the_key(answer: Answer, attempts: int, words: str) -> None:
    async with serving(answer) as (url, requests):
        endpoint = EmbeddingsEndpoint(url, "small", KEY, wait=0.01)
        with pytest.raises(EmbeddingsFailed, match=words) as caught:
            await endpoint.embed(["abc"])
        await endpoint.close()
    assert len(requests) == attempts
    assert KEY not in str(caught.value)


async def test_a_server_that_is_not_there() -> None:
    endpoint = EmbeddingsEndpoint(f"http://127.0.0.1:{closed_port()}", "small", KEY, wait=0.001)
    with pytest.raises(EmbeddingsFailed, match="cannot be reached"):
        await endpoint.embed(["abc"])
    await endpoint.close()


async def test_vectors_of_another_length_than_before_are_refused() -> None:
    def longer(request: dict[str, Any]) -> Response:
        return JSONResponse({"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}]})

    async with serving(vectors, longer) as (url, _):
        endpoint = EmbeddingsEndpoint(url, "small")
        await endpoint.embed(["abc"])
        with pytest.raises(EmbeddingsFailed, match=r"different lengths: \[2, 3\]"):
            await endpoint.embed(["abc"])
        await endpoint.close()


# --- which one


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"RAG_EMBEDDINGS": "off", "EMBEDDINGS_BASE_URL": "http://localhost/v1"}, "none"),
        ({"EMBEDDINGS_BASE_URL": "http://localhost/v1", "EMBEDDINGS_MODEL": "m"}, "m"),
        (
            {"RAG_EMBEDDINGS": "endpoint", "EMBEDDINGS_BASE_URL": "http://localhost/v1"},
            "text-embedding-3-small",
        ),
        ({"RAG_EMBEDDINGS": "embedded", "EMBEDDINGS_BASE_URL": "http://localhost/v1"}, GRANITE.index_name),
        ({}, GRANITE.index_name),
        ({"RAG_EMBEDDED_MODEL": "all-MiniLM-L6-v2"}, MINILM.index_name),
    ],
)
async def test_settings_choose(env: dict[str, str], expected: str, tmp_path: Path) -> None:
    for model in EMBEDDED_MODELS:
        if expected == model.index_name:
            need("the embedding model", model.is_installed(), "its packages are not installed")
    chosen = create_embedder(Settings.from_variables(env).knowledge, tmp_path)
    assert (chosen.name if chosen else "none") == expected
    if chosen is not None:
        await chosen.close()


def test_an_endpoint_without_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="EMBEDDINGS_BASE_URL"):
        create_embedder(Settings.from_variables({"RAG_EMBEDDINGS": "endpoint"}).knowledge, tmp_path)


def test_without_its_packages_the_embedded_model_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_models, "_LIBRARIES", ("a_package_that_is_not_there",))
    assert create_embedder(Settings.from_variables({}).knowledge, tmp_path) is None
    with pytest.raises(ConfigurationError, match="caipe kb embeddings install"):
        create_embedder(Settings.from_variables({"RAG_EMBEDDINGS": "embedded"}).knowledge, tmp_path)


# --- the model in its worker, and by itself


async def test_texts_that_mean_the_same_are_near(cache: Path) -> None:
    model = EmbeddingProcess(GRANITE, cache)
    cat, feline, pods, empty = await model.embed(
        ["The cat sits on the mat", "A feline rests on a rug", "Pods crash at night", ""]
    )
    await model.close()
    assert len(cat) == model.dimensions == 384
    assert all(
        math.isclose(math.fsum(number * number for number in vector), 1, rel_tol=1e-5)
        for vector in (cat, feline, pods, empty)
    )
    assert similarity(cat, feline) > 0.7 > 0.6 > similarity(cat, pods)


def test_the_vectors_are_those_of_the_published_model(cache: Path) -> None:
    """The first numbers that the original gives for this sentence."""
    need("the embedding model before", MINILM.is_installed(), "its packages are not installed")
    vector = TextEncoder(MINILM, cache).embed("This is an example sentence")
    assert vector[:4].tolist() == pytest.approx([0.0676569, 0.0634959, 0.0487131, 0.0793049], abs=1e-5)


def test_the_end_of_a_long_text_counts_as_far_as_the_model_reads(cache: Path) -> None:
    encoder = TextEncoder(GRANITE, cache)
    start = "deploy " * 400
    short, read, unread = (
        encoder.embed(start + end) for end in ("", "cat " * 100, "deploy " * 109 + "cat " * 100)
    )
    assert similarity(short.tolist(), read.tolist()) < 0.98
    assert similarity(encoder.embed("deploy " * 510).tolist(), unread.tolist()) > 0.99


async def test_a_text_has_the_same_vector_alone_and_among_others(cache: Path) -> None:
    model = EmbeddingProcess(GRANITE, cache)
    texts = [f"{'word ' * (number % 7)}number {number}" for number in range(20)]
    together = await model.embed(texts)
    alone = await asyncio.gather(*(model.embed([text]) for text in texts[:4]))
    await model.close()
    assert all(similarity(together[at], vectors[0]) > 0.9999 for at, vectors in enumerate(alone))


def test_what_is_built_once_is_used_again(cache: Path) -> None:
    TextEncoder(GRANITE, cache).embed("x")
    built = next(cache.glob("granite*.onnx"))
    before = built.stat().st_mtime_ns
    assert len(TextEncoder(GRANITE, cache).embed("x")) == 384
    assert built.stat().st_mtime_ns == before


@pytest.mark.parametrize("model", EMBEDDED_MODELS, ids=lambda model: model.name)
def test_other_weights_are_refused_although_the_graph_was_built(model: EmbeddedModel, tmp_path: Path) -> None:
    need("the embedding model", model.is_installed(), "its packages are not installed")
    (tmp_path / f"{model.name}-000000000000-{GRAPH_VERSION}.onnx").touch()
    with pytest.raises(ConfigurationError, match="not the published ones"):
        TextEncoder(replace(model, sha256="0" * 64), tmp_path).embed("x")


def similarity(first: list[float], second: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(first, second, strict=True))


def test_the_library_of_the_model_makes_no_id_of_this_machine_and_has_nothing_to_report(
    tmp_path: Path,
) -> None:
    need("embedding model", GRANITE.is_installed(), "its packages are not installed")
    code = (
        "from ai_platform_engineering.core.environment import export_variables\n"
        "export_variables({})\n"
        "import onnxruntime\n"
    )
    subprocess.run([sys.executable, "-c", code], env=process_environment({"HOME": str(tmp_path)}), check=True)
    assert list(tmp_path.iterdir()) == []
