"""Workers start with the first call, end when idle, are started again when they die, and never outlive the
process that started them; nothing is lost meanwhile."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.core.errors import CaipeError, Refused
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.documents import RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_worker_options
from ai_platform_engineering.knowledge_bases.reading import document_readers
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.workers.worker_errors import (
    WorkerDied,
    WorkerTimeout,
    WorkerUnavailable,
)
from ai_platform_engineering.knowledge_bases.workers.worker_process import WorkerOptions
from tests.conftest import ROOT
from tests.knowledge_bases.stores.test_store import MODEL, a_document, embedded, filled, found, turned
from tests.support.knowledge import (
    add_datasource,
    job_counts,
    open_knowledge_base,
    search_titles,
    wait_until,
    write_files,
)
from tests.support.processes import process_environment
from tests.support.worker_processes import (
    kill,
    list_workers,
    pause,
    wait_for_no_worker,
    wait_for_worker,
)

NOBODY = 65534
DOCS = {
    "rollback": "# Rolling back\n\nRevert the deployment with the pipeline.\n",
    "paging": "# Paging\n\nThe secondary is paged after ten minutes.\n",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return write_files(tmp_path / "docs", **DOCS)


# --- the index


async def test_nothing_is_started_before_it_is_needed(tmp_path: Path, docs: Path) -> None:
    async with open_knowledge_base(tmp_path) as kb:
        await add_datasource(kb, docs)
    await wait_for_no_worker("index")
    async with open_knowledge_base(tmp_path) as kb:
        assert await kb.has_documents()
        (datasource,) = await kb.list_datasources()
        assert datasource.documents == 2
        assert await kb.list_jobs()
        assert list_workers("index") == list_workers("reader") == list_workers("embedding") == []


async def test_a_search_whose_worker_is_killed_is_made_again(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "kb")
    await store.open()
    await filled(store, a_document("one", "about volumes"))
    first = await wait_for_worker("index")
    pause(first)
    searches = [asyncio.create_task(found(store, "volumes")) for _ in range(3)]
    await asyncio.sleep(0)
    kill(first)
    assert await asyncio.gather(*searches) == [["one"]] * 3
    second = await wait_for_worker("index")
    assert second != first
    await store.close()
    await wait_for_no_worker("index")


async def test_an_update_whose_worker_is_killed_loses_nothing(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "kb")
    await store.open()
    await filled(store, a_document("one", "about volumes"))
    await embedded(store, lambda ref: turned(10))
    first = await wait_for_worker("index")
    pause(first)
    await store.put_document(a_document("two", "volumes as well"))
    await store.delete_documents(["one"])
    committing = asyncio.create_task(store.commit())
    await wait_until(lambda: _has_stored(store, "two"))
    kill(first)
    await committing
    assert await found(store, "volumes") == ["two"]

    second = await wait_for_worker("index")
    pause(second)
    embedding = asyncio.create_task(embedded(store, lambda ref: turned(40)))
    await wait_until(lambda: _has_embedded_all(store))
    kill(second)
    await embedding
    near = await store.search("", turned(40), model=MODEL, mode="vectors")
    assert [hit.document_id for hit in near] == ["two"]
    await store.close()
    with closing(sqlite3.connect(tmp_path / "kb" / "knowledge.db")) as db:
        assert db.execute("SELECT count(*) FROM gone").fetchone() == (0,)


async def _has_stored(store: EmbeddedStore, *names: str) -> bool:
    return [document.document_id for document in await store.list_documents("docs")] == list(names)


async def _has_embedded_all(store: EmbeddedStore) -> bool:
    return not await store.list_chunks_without_vector(MODEL, 1)


async def test_an_ingest_whose_workers_are_killed_goes_on(tmp_path: Path) -> None:
    docs = write_files(tmp_path / "docs", **{f"d{number}": f"# D\n\nword{number}\n" for number in range(40)})
    async with open_knowledge_base(tmp_path) as kb:
        await add_datasource(kb, write_files(tmp_path / "first", **DOCS))
        reader = await wait_for_worker("reader")
        index = await wait_for_worker("index")
        pause(reader)
        pause(index)
        adding = asyncio.create_task(add_datasource(kb, docs))
        await asyncio.sleep(0.1)
        kill(reader)
        kill(index)
        assert job_counts(await adding) == ("done", 40, 0, 0, 0)
        assert len(await search_titles(kb, "word0 word39", limit=10)) == 2


async def test_an_idle_worker_ends_and_the_next_search_starts_another(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "kb", WorkerOptions(idle_seconds=0.1))
    await store.open()
    await filled(store, a_document("one", "about volumes"))
    await embedded(store, lambda ref: turned(10))
    await wait_for_no_worker("index")
    assert list((tmp_path / "kb").glob("vectors-*.usearch"))  # saved on the way out
    near = await store.search("volumes", turned(10), model=MODEL)
    assert [hit.document_id for hit in near] == ["one"]
    await store.close()


async def test_an_index_that_kills_its_worker_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the broken file is there."""
    in_workers(
        tmp_path,
        monkeypatch,
        """
        import os
        from ai_platform_engineering.knowledge_bases.stores.embedded import vector_index
        load = vector_index.load_index
        def load_or_die(dimensions, saved):
            if saved.exists() and saved.read_bytes() == b"poison":
                os.abort()
            return load(dimensions, saved)
        vector_index.load_index = load_or_die
        """,
    )
    store = EmbeddedStore(tmp_path / "kb")
    await store.open()
    await filled(store, a_document("one", "about volumes"))
    await embedded(store, lambda ref: turned(10))
    await store.close()
    next((tmp_path / "kb").glob("vectors-*")).write_bytes(b"poison")
    await store.open()
    with pytest.raises(WorkerDied, match="ended unexpectedly"):
        await store.search("", turned(10), model=MODEL, mode="vectors")
    near = await store.search("", turned(10), model=MODEL, mode="vectors")
    assert [hit.document_id for hit in near] == ["one"]
    assert await found(store, "volumes") == ["one"]
    await store.close()


# --- bounds


async def test_a_worker_that_cannot_be_started_is_an_error_and_is_not_started_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path / "kb")
    await store.open()
    python = sys.executable
    monkeypatch.setattr(sys, "executable", "/bin/false")
    problems: list[str] = []
    for _ in range(6):
        with pytest.raises(CaipeError) as caught:
            await store.search("volumes")
        problems.append(str(caught.value))
    assert "has ended unexpectedly" in problems[0]
    assert "fails again and again" in problems[-1]
    monkeypatch.setattr(sys, "executable", python)
    await filled(store, a_document("one", "about volumes"))  # this waits until one may be started
    assert await found(store, "volumes") == ["one"]
    await store.close()


async def test_a_search_that_takes_too_long_is_an_error_and_the_next_one_has_a_new_worker(
    tmp_path: Path,
) -> None:
    store = EmbeddedStore(tmp_path / "kb", search_seconds=3.0)
    await store.open()
    await filled(store, a_document("one", "about volumes"))
    first = await wait_for_worker("index")
    pause(first)
    with pytest.raises(WorkerTimeout, match="within 3 seconds"):
        await store.search("volumes")
    await store.commit()
    await filled(store, a_document("two", "about quotas"))  # without a limit of seconds
    assert await found(store, "quotas") == ["two"]
    assert first not in list_workers("index")
    await store.close()


async def test_more_calls_than_may_wait_are_refused(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "kb", WorkerOptions(max_calls=2))
    await store.open()
    await filled(store, a_document("one", "about volumes"))
    worker = await wait_for_worker("index")
    pause(worker)
    searches = [asyncio.create_task(found(store, "volumes")) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(WorkerUnavailable, match="too much to do"):
        await store.search("volumes")
    os.kill(worker, signal.SIGCONT)
    assert await asyncio.gather(*searches) == [["one"]] * 4
    await store.close()


async def test_what_cannot_be_searched_is_said_as_it_is(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "kb")
    await store.open()
    with pytest.raises(Refused, match="There is no filter 'colour'"):
        await store.search("volumes", filters={"colour": "red"})
    await store.close()


# --- hostile documents


def in_workers(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Runs code in every worker before anything else: it stands for what a native library may do."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(textwrap.dedent(code), encoding="utf-8")
    monkeypatch.syspath_prepend(site)


HOSTILE = """
import os, sys, time
from ai_platform_engineering.knowledge_bases.reading import read_documents, readers
read = readers.read_in_process
def read_hostile(raw):
    if b"CRASH" in raw.content:
        print("the key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789", file=sys.stderr, flush=True)
        os.abort()
    if b"HANG" in raw.content:
        time.sleep(3600)
    if b"GARBAGE" in raw.content:
        for descriptor in range(3, 20):
            try:
                os.write(descriptor, b"\\xff" * 100)
            except OSError:
                pass
        time.sleep(3600)
    return read(raw)
readers.read_in_process = read_hostile
"""


def a_page(text: str) -> RawDocument:
    return RawDocument("a.md", f"# A\n\n{text}\n".encode())


@pytest.mark.parametrize("word", ["CRASH", "GARBAGE"])
async def test_a_document_that_crashes_its_reader_is_unreadable_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, word: str
) -> None:
    in_workers(tmp_path, monkeypatch, HOSTILE)
    docs = write_files(tmp_path / "docs", **DOCS, hostile=f"# Hostile\n\n{word}\n")
    async with open_knowledge_base(tmp_path) as kb:
        job = await add_datasource(kb, docs)
        assert job_counts(job) == ("done", 2, 0, 0, 1)
        assert job.failed == (
            (
                "hostile.md",
                "The document cannot be read: it is corrupt, or reading it takes too much time or memory.",
            ),
        )
        assert await search_titles(kb, "pipeline") == ["Rolling back"]
    ends = [message for message in caplog.messages if "has ended" in message]
    assert len(ends) == 2
    if word == "CRASH":
        assert "by signal 6; the key is ***" in ends[0]
    else:
        assert "not what was agreed on" in ends[0]


async def test_a_document_that_hangs_is_unreadable_and_its_reader_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_workers(tmp_path, monkeypatch, HOSTILE)
    readers = DocumentReaders(count=1)
    assert (await readers.read(a_page("harmless"))).title == "A"
    first = await wait_for_worker("reader")
    with monkeypatch.context() as limits:
        limits.setattr(document_readers, "_READ_SECONDS", 1.0)
        with pytest.raises(UnreadableDocument, match="too long"):
            await readers.read(a_page("HANG"))
    assert (await readers.read(a_page("harmless"))).title == "A"
    assert first not in list_workers("reader")
    await readers.aclose()


async def test_a_page_for_a_question_does_not_wait_for_documents_of_an_ingest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_workers(tmp_path, monkeypatch, HOSTILE)
    readers = DocumentReaders(count=1)
    reading = asyncio.create_task(readers.read(a_page("HANG")))
    await wait_for_worker("reader")
    page = await readers.read(a_page("for a question"), for_question=True)
    assert page.text == "# A\n\nfor a question"
    assert not reading.done()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await readers.aclose()
    await wait_for_no_worker("reader")


# --- what a worker is given, and its end

PARENT = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.knowledge_bases.stores.test_store import a_document, filled, found
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore

async def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    store = EmbeddedStore(Path(sys.argv[1]))
    await store.open()
    await filled(store, a_document("one", "about volumes"))
    await DocumentReaders().read(RawDocument("a.md", b"# A"))
    print(await found(store, "volumes"), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[Any]]:
    """A process with an index worker and a reader, which ignores and blocks SIGTERM and has a secret."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "kb")],
        cwd=ROOT,
        env=process_environment({"SOME_API_KEY": "hush-hush-hush"}),
        stdout=subprocess.PIPE,
        text=True,
        group=NOBODY if os.getuid() == 0 else None,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "['one']\n"
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_no_worker_outlives_a_process_that_is_killed(parent: subprocess.Popen[Any]) -> None:
    assert list_workers("index", parent.pid)
    assert list_workers("reader", parent.pid)
    parent.kill()
    await wait_for_no_worker("index", parent.pid)
    await wait_for_no_worker("reader", parent.pid)


async def test_a_worker_is_not_dumpable_has_no_secrets_and_default_signals(
    parent: subprocess.Popen[Any],
) -> None:
    (reader,) = list_workers("reader", parent.pid)
    environment = Path(f"/proc/{reader}/environ")
    owner = environment.stat()
    assert (owner.st_uid, owner.st_gid) == (0, 0)  # of one that is dumpable they are its own
    with suppress(PermissionError):
        assert "hush" not in environment.read_text(encoding="utf-8")
    os.kill(reader, signal.SIGTERM)
    await wait_for_no_worker("reader", parent.pid)


def test_settings_decide_how_workers_are_run() -> None:
    variables = {
        "RAG_WORKER_IDLE_SECONDS": "5",
        "RAG_WORKER_MAX_CALLS": "3",
        "SOME_API_KEY": "an-uncommon-value",
    }
    options = create_worker_options(Settings.from_variables(variables))
    assert (options.idle_seconds, options.max_calls) == (5.0, 3)
    assert options.redactor.redact("it is an-uncommon-value") == "it is ***"
