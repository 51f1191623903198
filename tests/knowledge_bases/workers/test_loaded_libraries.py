"""Which process loads which libraries: the server none of the engines, and those that crash together never
the same one."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from ai_platform_engineering.knowledge_bases.indexing.embedded_models import GRANITE
from tests.conftest import ROOT, need
from tests.support.knowledge import wait_until, write_files
from tests.support.processes import TIMEOUT, process_environment
from tests.support.worker_processes import list_workers

ENGINES = {"tantivy", "usearch", "numpy", "onnxruntime", "onnx", "tokenizers", "safetensors"}
PARSERS = {"lxml", "pypdfium2", "docutils", "markdown_it", "openpyxl", "et_xmlfile", "defusedxml", "striprtf"}
LATE = {"fastapi"}  # loaded with the first request to the skills API

# The real server, with a thread that tells on request what its process has loaded.
SERVER = """
import sys, threading, time
from pathlib import Path
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import main

def tell(folder):
    while not (folder / "tell").exists():
        time.sleep(0.02)
    modules = sorted({name.partition(".")[0] for name in sys.modules})
    files = Path("/proc/self/maps").read_text()
    (folder / "told.new").write_text("\\n".join(modules) + "\\n\\n" + files)
    (folder / "told.new").rename(folder / "told")

threading.Thread(target=tell, args=(Path(sys.argv.pop()),), daemon=True).start()
main()
"""


@pytest.mark.full
async def test_a_server_that_has_ingested_embedded_and_searched_has_loaded_no_engine_and_no_parser(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    need("the embedding model", GRANITE.is_installed(), "its packages are not installed")
    docs = write_files(
        tmp_path / "zoo",
        page__html="<h1>Zoo</h1><p>The giraffes are fed at noon.</p>",
        manual__rst="Manual\n======\n\nThe zebras come later.\n",
    )
    variables = {"A2A_PORT": str(unused_tcp_port), "ENABLE_RAG": "true", "RAG_INGEST_FOLDERS": str(docs)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(tmp_path), env=process_environment(variables), cwd=ROOT
    )
    try:
        url = f"http://127.0.0.1:{unused_tcp_port}"
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as http:
            await wait_until(lambda: _is_open(http))
            added = await http.post("/v1/datasources", json={"location": str(docs)})
            assert added.status_code == 202, added.text
            await wait_until(lambda: _is_brought_in(http, "zoo"))
            await wait_until(lambda: _can_search(http, "vectors"))  # the model is loaded meanwhile
            assert await _can_search(http, "lexical")
            assert await _can_search(http, "hybrid")
            assert list_workers("index", process.pid)
            assert list_workers("embedding", process.pid)
            assert list_workers("reader", process.pid)
        (tmp_path / "tell").touch()
        await wait_until((tmp_path / "told").exists)
    finally:
        process.kill()
        await process.wait()
    modules, files = (tmp_path / "told").read_text(encoding="utf-8").split("\n\n")
    assert set(modules.splitlines()) & (ENGINES | PARSERS | LATE) == set()
    libraries = {line.split()[-1].rpartition("site-packages/")[2] for line in files.splitlines()}
    assert {library for library in libraries if library.startswith(tuple(ENGINES | PARSERS))} == set()


async def _is_open(http: httpx.AsyncClient) -> bool:
    try:
        report = (await http.get("/ready")).json()
    except httpx.TransportError:  # it has just been started
        return False
    return report["components"].get("knowledge", {}).get("status") == "ok"


async def _is_brought_in(http: httpx.AsyncClient, name: str) -> bool:
    answer = await http.get(f"/v1/datasources/{name}")
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["documents"] == 2)


async def _can_search(http: httpx.AsyncClient, mode: str) -> bool:
    answer = await http.post("/v1/query", json={"query": "feeding of giraffes", "mode": mode})
    return answer.status_code == 200


INDEX = """
import struct, sys
from pathlib import Path
from ai_platform_engineering.knowledge_bases.stores.embedded.index_service import create_service

service = create_service()
call = lambda name, arguments, body=b"": service.handlers[name].run(arguments, body)
call("open", {"folder": sys.argv[1], "writes": True, "rebuild": False})
call("update", {"model": "three", "removed_vectors": [], "dropped_models": []})
question = {"query": "volumes", "model": "three", "datasources": [], "filters": {}, "limit": 3}
question |= {"viewer_names": [], "sees_all": False}
assert call("search", question | {"mode": "hybrid"}, struct.pack("<3f", 1, 0, 0)).result["hits"]
"""
EMBEDDING = """
import json, sys
from ai_platform_engineering.knowledge_bases.indexing.embedding_service import create_service

service = create_service()
arguments = {"model": "granite-embedding-30m-english", "cache": sys.argv[1], "threads": 1}
service.handlers["open"].run(arguments, b"")
texts = json.dumps([f"text {number}" for number in range(20)]).encode()
assert len(service.handlers["embed"].run({}, texts).body) == 20 * 384 * 4
"""
READING = """
from ai_platform_engineering.knowledge_bases.reading.reader_service import create_service

service = create_service()
arguments = {"address": "a.html", "media_type": "text/html", "link": None, "title": "", "headings": []}
assert service.handlers["read"].run(arguments, b"<h1>A</h1><p>text</p>").result["kind"] == "html"
"""


def _run_and_list_engines(code: str, *arguments: str) -> set[str]:
    listing = f"\nimport json; print(json.dumps([name for name in {sorted(ENGINES)} if name in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}{listing}", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(json.loads(done.stdout))


async def test_the_index_is_searched_without_the_library_that_crashes_with_its_own(tmp_path: Path) -> None:
    from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
    from tests.knowledge_bases.stores.test_store import a_document, embedded, filled, turned

    store = EmbeddedStore(tmp_path / "kb")
    await store.open()
    await filled(store, a_document("one", "about volumes"))
    await embedded(store, lambda ref: turned(0))
    await store.close()
    loaded = await asyncio.to_thread(_run_and_list_engines, INDEX, str(tmp_path / "kb"))
    assert loaded == {"tantivy", "usearch", "numpy"}


@pytest.mark.full
def test_the_model_runs_without_the_library_that_crashes_with_its_own(tmp_path: Path) -> None:
    need("the embedding model", GRANITE.is_installed(), "its packages are not installed")
    _run_and_list_engines(EMBEDDING, str(tmp_path))  # builds the graph of the model
    assert _run_and_list_engines(EMBEDDING, str(tmp_path)) == {"numpy", "onnxruntime", "tokenizers"}


def test_documents_are_read_without_any_engine() -> None:
    assert _run_and_list_engines(READING) == set()
