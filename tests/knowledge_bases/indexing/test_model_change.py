"""An index changes its embedding model in the background: the old vectors answer until the new ones are
complete, then they are purged; on both stores."""

import asyncio
import contextlib
import hashlib
import json
import re
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.datasources import DatasourceResolver
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.indexing.embedded_models import GRANITE, MINILM
from ai_platform_engineering.knowledge_bases.indexing.embedding_models import EmbeddingModels
from ai_platform_engineering.knowledge_bases.indexing.embedding_worker import EmbeddingWorker
from ai_platform_engineering.knowledge_bases.indexing.embeddings import (
    Embedder,
    create_embedder,
    create_embedder_of_index,
)
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, FetchLimits
from ai_platform_engineering.knowledge_bases.sources.source_factory import SourceContext
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore, VectorModel
from tests.conftest import need
from tests.support.database_servers import DatabaseServers
from tests.support.fakes.embedding import WordVectors
from tests.support.harness import serve_app
from tests.support.knowledge import add_datasource, refresh_datasource, search_titles, wait_until, write_files
from tests.support.processes import start_command

# Words of one line mean the same, and no document has the word that is asked for.
TOPICS = (("kitten", "feline"), ("rollback", "undo"), ("certificate", "credential"), ("pager", "alarm"))
DIMENSIONS = {"old": 8, "new": 12}
FILLERS = 70  # with the other documents more than one batch


@dataclass
class EmbeddingsServer:
    """An OpenAI-compatible server with several models. `permits`: batches of documents that a model may still
    embed, more of them wait; `gone`: models that it does not have any more."""

    url: str = ""
    asked: list[tuple[str, int]] = field(default_factory=list)  # model, number of texts
    permits: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def allow(self, model: str, batches: int) -> None:
        self.permits[model] = asyncio.Semaphore(batches)

    def release(self, model: str, batches: int = 1_000) -> None:
        for _ in range(batches):
            self.permits[model].release()

    def count_texts(self, model: str) -> int:
        return sum(count for name, count in self.asked if name == model)

    def count_batches(self, model: str) -> int:
        return sum(1 for name, count in self.asked if name == model and count > 1)

    def find_last_asked(self) -> str:
        """The model that was asked the last question; documents come in batches."""
        return [name for name, count in self.asked if count == 1][-1]

    async def answer(self, request: Request) -> Response:
        body = json.loads(await request.body())
        model, texts = body["model"], body["input"]
        if model in self.gone:
            return Response("no such model", 404)
        self.asked.append((model, len(texts)))
        if len(texts) > 1 and model in self.permits:
            await self.permits[model].acquire()
        rows = [{"index": at, "embedding": _embed(text, DIMENSIONS[model])} for at, text in enumerate(texts)]
        return JSONResponse({"data": rows})


def _embed(text: str, dimensions: int) -> list[float]:
    noise = hashlib.sha256(text.encode()).digest()
    vector = [0.01] * len(TOPICS) + [byte / 1_000 for byte in noise[: dimensions - len(TOPICS)]]
    text_words = set(re.findall(r"\w+", text.lower()))
    for topic, words in enumerate(TOPICS):
        if not text_words.isdisjoint(words):
            vector[topic] = 1.0
    return vector


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    scripted = EmbeddingsServer()
    async with serve_app(
        Starlette(routes=[Route("/v1/embeddings", scripted.answer, methods=["POST"])])
    ) as url:
        scripted.url = f"{url.rstrip('/')}/v1"
        yield scripted
        for model in scripted.permits:
            scripted.release(model)


@pytest.fixture(scope="module")
def databases() -> Iterator[DatabaseServers]:
    with DatabaseServers() as running:
        yield running


StoreFactory = Callable[[], KnowledgeStore]


@pytest.fixture(params=["embedded", "postgres"])
async def create_store(
    request: pytest.FixtureRequest, tmp_path: Path, databases: DatabaseServers
) -> StoreFactory:
    if request.param == "embedded":
        return lambda: EmbeddedStore(tmp_path / "knowledge")
    import psycopg

    from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_store import PostgresStore

    address = databases.postgres_with_vectors

    def drop_schema() -> None:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS caipe_kb CASCADE")

    await asyncio.to_thread(drop_schema)
    return lambda: PostgresStore(address, unused_seconds=0)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    fillers = {f"filler{number}": f"# Filler {number}\n\nNothing of note.\n" for number in range(FILLERS)}
    return write_files(
        tmp_path / "docs",
        pets="# Pets\n\nThe kitten sits on the mat.\n",
        deploys="# Deploys\n\nA rollback takes a minute.\n",
        **fillers,
    )


@contextlib.asynccontextmanager
async def opened(
    store: KnowledgeStore, server: EmbeddingsServer, model: str, home: Path
) -> AsyncIterator[KnowledgeBase]:
    """A knowledge base with this model of the server configured."""
    variables = {"EMBEDDINGS_BASE_URL": server.url, "EMBEDDINGS_MODEL": model}
    settings = Settings.from_variables(variables).knowledge
    create_other = partial(create_embedder_of_index, settings=settings, home=home)
    async with opened_with(store, create_embedder(settings, home), create_other, home) as kb:
        yield kb


@contextlib.asynccontextmanager
async def opened_with(
    store: KnowledgeStore,
    embedder: Embedder | None,
    create_other: Callable[[str], Embedder | None],
    home: Path,
) -> AsyncIterator[KnowledgeBase]:
    readers = DocumentReaders(count=1)
    context = SourceContext(Fetcher(FetchLimits()), home / "cache", {}, read_links=readers.read_links)
    kb = KnowledgeBase(store, embedder, DatasourceResolver(context), readers, create_embedder=create_other)
    await kb.open()
    try:
        yield kb
    finally:
        await kb.aclose()


async def find_best(kb: KnowledgeBase, query: str) -> str:
    titles = await search_titles(kb, query)
    return titles[0] if titles else ""


async def build_old_index(
    create_store: StoreFactory, server: EmbeddingsServer, docs: Path, home: Path
) -> None:
    async with opened(create_store(), server, "old", home) as kb:
        await add_datasource(kb, docs)
        await kb.wait_for_embeddings()
        assert await find_best(kb, "feline") == "Pets"


@pytest.mark.sample(1)
async def test_old_vectors_answer_until_the_new_ones_are_complete(
    create_store: StoreFactory, server: EmbeddingsServer, docs: Path, tmp_path: Path
) -> None:
    await build_old_index(create_store, server, docs, tmp_path)
    server.allow("new", 1)
    store = create_store()
    async with opened(store, server, "new", tmp_path) as kb:
        await wait_until(lambda: server.count_batches("new") == 2)
        # In the middle: some chunks have new vectors, and everything is found by meaning.
        assert VectorModel("new", complete=False) in await store.list_models()
        assert await find_best(kb, "feline") == "Pets"
        assert await find_best(kb, "undo") == "Deploys"
        assert server.find_last_asked() == "old"
        write_files(docs, certificates="# Certificates\n\nA certificate lasts a year.\n")
        await refresh_datasource(kb, "docs")
        server.release("new")
        await wait_until(lambda: _finds(kb, "credential", "Certificates"))
        await kb.wait_for_embeddings()
        assert await store.list_models() == [VectorModel("new", complete=True)]
        assert await find_best(kb, "feline") == "Pets"
        assert await find_best(kb, "credential") == "Certificates"
        assert server.find_last_asked() == "new"
        (datasource,) = await kb.list_datasources()
        assert datasource.embedded == datasource.chunks == FILLERS + 3


async def _finds(kb: KnowledgeBase, query: str, title: str) -> bool:
    return await find_best(kb, query) == title


@pytest.mark.sample(1)
async def test_a_document_that_comes_in_during_the_change_is_found_by_meaning_before_its_end(
    create_store: StoreFactory, server: EmbeddingsServer, docs: Path, tmp_path: Path
) -> None:
    await build_old_index(create_store, server, docs, tmp_path)
    write_files(
        docs,
        certificates="# Certificates\n\nA certificate lasts a year.\n",
        alerts="# Alerts\n\nThe pager rings.\n",
    )
    server.allow("new", 0)
    store = create_store()
    async with opened(store, server, "new", tmp_path) as kb:
        await refresh_datasource(kb, "docs")
        await wait_until(lambda: server.count_batches("new") == 1)
        server.release("new", 1)
        await wait_until(lambda: _finds(kb, "credential", "Certificates"))
        assert server.find_last_asked() == "old"
        assert VectorModel("new", complete=False) in await store.list_models()
        server.release("new")
        await kb.wait_for_embeddings()
        assert await find_best(kb, "alarm") == "Alerts"
        assert await store.list_models() == [VectorModel("new", complete=True)]


@pytest.mark.sample(1)
async def test_every_search_during_a_change_finds_by_meaning(
    create_store: StoreFactory, server: EmbeddingsServer, docs: Path, tmp_path: Path
) -> None:
    await build_old_index(create_store, server, docs, tmp_path)
    store = create_store()
    async with opened(store, server, "new", tmp_path) as kb:
        results: list[str] = []

        async def keep_asking(stop: asyncio.Event) -> None:
            while not stop.is_set():
                results.append(await find_best(kb, "feline"))

        stop = asyncio.Event()
        askers = [asyncio.create_task(keep_asking(stop)) for _ in range(3)]
        await kb.wait_for_embeddings()
        assert await store.list_models() == [VectorModel("new", complete=True)]
        await asyncio.sleep(0.1)
        stop.set()
        await asyncio.gather(*askers)
        assert set(results) == {"Pets"}
        assert {"old", "new"} <= {name for name, count in server.asked if count == 1}


@pytest.mark.sample(1)
async def test_a_model_that_can_no_longer_be_asked_does_not_stop_the_change(
    create_store: StoreFactory, server: EmbeddingsServer, docs: Path, tmp_path: Path
) -> None:
    await build_old_index(create_store, server, docs, tmp_path)
    server.gone = {"old"}
    server.allow("new", 1)
    store = create_store()
    async with opened(store, server, "new", tmp_path) as kb:
        await wait_until(lambda: server.count_batches("new") == 2)
        assert await search_titles(kb, "undo")  # the new vectors as far as they go
        assert server.find_last_asked() == "new"
        server.release("new")
        await kb.wait_for_embeddings()
        assert await find_best(kb, "feline") == "Pets"
        assert await store.list_models() == [VectorModel("new", complete=True)]


@pytest.mark.sample(1)
async def test_going_back_in_the_middle_purges_the_new_vectors_and_makes_none(
    create_store: StoreFactory, server: EmbeddingsServer, docs: Path, tmp_path: Path
) -> None:
    await build_old_index(create_store, server, docs, tmp_path)
    texts_before = server.count_texts("old")
    server.allow("new", 1)
    async with opened(create_store(), server, "new", tmp_path):
        await wait_until(lambda: server.count_batches("new") == 2)
    store = create_store()
    async with opened(store, server, "old", tmp_path) as kb:
        assert await find_best(kb, "feline") == "Pets"
        await kb.wait_for_embeddings()
        assert await store.list_models() == [VectorModel("old", complete=True)]
        assert await find_best(kb, "feline") == "Pets"
    assert server.count_texts("old") == texts_before + 2  # the two questions


async def test_a_killed_process_leaves_an_index_that_answers_and_is_finished_by_the_next(
    server: EmbeddingsServer, docs: Path, tmp_path: Path
) -> None:
    home = tmp_path / "caipe-home"
    await build_old_index(lambda: EmbeddedStore(home / "knowledge"), server, docs, home)
    server.allow("new", 1)
    variables = {"EMBEDDINGS_BASE_URL": server.url, "EMBEDDINGS_MODEL": "new"}
    async with start_command("caipe", "kb", "refresh", "docs", env=variables) as program:
        await wait_until(lambda: server.count_batches("new") == 2)
        program.send_signal(signal.SIGKILL)
        await program.wait_for_exit()
    server.release("new")
    server.allow("new", 0)
    embedded_before = server.count_texts("new")
    store = EmbeddedStore(home / "knowledge")
    async with opened(store, server, "new", home) as kb:
        assert await find_best(kb, "feline") == "Pets"
        assert server.find_last_asked() == "old"
        server.release("new")
        await kb.wait_for_embeddings()
        assert await store.list_models() == [VectorModel("new", complete=True)]
        assert await find_best(kb, "feline") == "Pets"
        chunks = sum(datasource.chunks for datasource in await kb.list_datasources())
    # The first batch was stored before the kill and is not made again.
    assert server.count_texts("new") - embedded_before < chunks


async def test_a_purge_that_was_interrupted_goes_on_and_leaves_nothing(
    server: EmbeddingsServer, docs: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "knowledge"
    await build_old_index(lambda: EmbeddedStore(folder), server, docs, tmp_path)
    async with opened(EmbeddedStore(folder), server, "new", tmp_path) as kb:
        await kb.wait_for_embeddings()
    assert read_vectors(folder) == {"new": FILLERS + 2}
    assert [path.name for path in folder.glob("*.usearch")] == ["vectors-2.usearch"]
    with contextlib.closing(sqlite3.connect(folder / "knowledge.db")) as db, db:
        # As a kill leaves it that comes after some of the old vectors were deleted.
        db.execute("UPDATE models SET state = 'purging' WHERE name = 'old'")
        db.execute("INSERT INTO vectors(model, chunk, vector) SELECT 1, number, x'00' FROM chunks LIMIT 5")
    store = EmbeddedStore(folder)
    async with opened(store, server, "new", tmp_path) as kb:
        assert await find_best(kb, "feline") == "Pets"
        await kb.wait_for_embeddings()
        await wait_until(lambda: read_vectors(folder) == {"new": FILLERS + 2})
        assert await store.list_models() == [VectorModel("new", complete=True)]


def read_vectors(folder: Path) -> dict[str, Any]:
    """The number of stored vectors by model."""
    with contextlib.closing(sqlite3.connect(folder / "knowledge.db")) as db:
        rows = db.execute(
            "SELECT m.name, count(*) FROM vectors v JOIN models m USING (model) GROUP BY m.name"
        )
        return dict(rows.fetchall())


async def test_postgres_drops_the_table_of_a_model_only_when_no_process_uses_it(
    server: EmbeddingsServer, docs: Path, tmp_path: Path, databases: DatabaseServers
) -> None:
    import psycopg

    from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_store import PostgresStore

    address = databases.postgres_with_vectors

    def list_tables() -> list[str]:
        with psycopg.connect(address, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'caipe_kb' "
                "AND table_name LIKE 'vectors%' ORDER BY 1"
            )
            return [row[0] for row in rows]

    def drop_schema() -> None:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS caipe_kb CASCADE")

    await asyncio.to_thread(drop_schema)
    await build_old_index(lambda: PostgresStore(address), server, docs, tmp_path)
    # Another server with the old model was seen a moment ago.
    async with opened(PostgresStore(address), server, "new", tmp_path) as kb:
        await kb.wait_for_embeddings()
        old_table, new_table = await asyncio.to_thread(list_tables)
        assert old_table == "vectors_1"
        assert await find_best(kb, "feline") == "Pets"
        async with opened(PostgresStore(address), server, "old", tmp_path) as other:
            assert await find_best(other, "feline") == "Pets"
    async with opened(PostgresStore(address, unused_seconds=0), server, "new", tmp_path) as kb:
        await kb.wait_for_embeddings()
        assert await asyncio.to_thread(list_tables) == [new_table]


# --- what is embedded last


@pytest.mark.sample(2)
@pytest.mark.parametrize("somebody_asks", [False, True])
async def test_the_documentation_of_the_product_waits_for_others_and_for_idle_time(
    somebody_asks: bool, create_store: StoreFactory
) -> None:
    store = create_store()
    embedder = WordVectors()
    await store.open()
    for datasource, name in (("caipe-docs", "shipped"), ("team", "own")):
        text = f"The {name} text."
        chunks = (Chunk(0, text, (), 0, len(text)),)
        await store.put_document(Document(name, datasource, name, name, text, name, chunks=chunks))
    await store.commit()
    worker = EmbeddingWorker(
        store, EmbeddingModels(store, embedder), last_datasource="caipe-docs", idle_seconds=1_000_000
    )
    if somebody_asks:
        worker.note_question()
    worker.start()
    try:
        waiting = await store.list_chunks_without_vector(embedder.name, 10)
        while len(waiting) > somebody_asks:  # a vector is stored some time after it was made
            await asyncio.sleep(0.01)
            waiting = await store.list_chunks_without_vector(embedder.name, 10)
    finally:
        await worker.aclose()
        await store.close()
    assert [text.split()[0] for text in embedder.texts] == ["own", "shipped"][: 2 - somebody_asks]
    assert [chunk.document_id for chunk in waiting] == ["shipped"] * somebody_asks


@pytest.mark.full
async def test_an_index_of_an_earlier_version_gets_the_vectors_of_the_new_model(
    docs: Path, tmp_path: Path
) -> None:
    """With both real models: what people who upgrade have."""
    for model in (MINILM, GRANITE):
        need("the embedding model", model.is_installed(), "its packages are not installed")
    for number in range(10, FILLERS):
        (docs / f"filler{number}.md").unlink()
    for name in (MINILM.name, GRANITE.name):
        settings = Settings.from_variables({"RAG_EMBEDDED_MODEL": name}).knowledge
        store = EmbeddedStore(tmp_path / "knowledge")
        embedder = create_embedder(settings, tmp_path)
        create_other = partial(create_embedder_of_index, settings=settings, home=tmp_path)
        async with opened_with(store, embedder, create_other, tmp_path) as kb:
            if name == MINILM.name:
                await add_datasource(kb, docs)
            assert await find_best(kb, "feline") == "Pets" or name == MINILM.name
            await kb.wait_for_embeddings()
            assert await find_best(kb, "feline") == "Pets"
    assert list(read_vectors(tmp_path / "knowledge")) == [GRANITE.index_name]
