"""How fast documents get vectors, what that costs in memory, and what a stream beside it feels.

    .venv/bin/python -m benchmarks.embedding [--chunks 300] [--rounds 3] [--against FOLDER]

Chunks of this product's documentation are embedded by the worker, as an ingest does it; then a stream of
tokens over loopback is read in the process of a knowledge base, alone and beside an ingest with embeddings.
`--against`: a checkout of an earlier version, measured in turns with this one; the rounds alternate.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
TOKEN_SECONDS = 0.02
STREAM_SECONDS = 12.0
STREAM_DOCUMENTS = 400
SHARES = (50, 95, 99)  # percentiles of the gaps


async def embed_chunks(count: int, cache: Path) -> None:
    """Prints chunks a second, and the memory of the worker, as JSON."""
    from ai_platform_engineering.knowledge_bases.indexing.embedding_process import EmbeddingProcess

    try:
        from ai_platform_engineering.knowledge_bases.indexing.embedded_models import choose_model

        embedder = EmbeddingProcess(choose_model(None), cache)
    except ImportError:  # before there was a choice
        embedder = EmbeddingProcess(cache)  # type: ignore[call-arg, arg-type]
    chunks = read_chunks(count)
    await embedder.embed(chunks[:8])  # the model is loaded
    (worker,) = list_children()
    start, cpu = time.perf_counter(), read_cpu_seconds(worker)
    for first in range(0, len(chunks), 64):
        await embedder.embed(chunks[first : first + 64])
    seconds, cpu = time.perf_counter() - start, read_cpu_seconds(worker) - cpu
    peak, after = read_memory(worker, "VmHWM"), read_memory(worker, "VmRSS")
    print(
        json.dumps(
            {
                "chunks_a_second": len(chunks) / seconds,
                "cpu_ms": 1000 * cpu / len(chunks),
                "peak": peak,
                "after": after,
            }
        )
    )
    await embedder.close()


def read_chunks(count: int) -> list[str]:
    """Texts to embed from the documentation, as often as it takes."""
    from ai_platform_engineering.knowledge_bases.documents import RawDocument
    from ai_platform_engineering.knowledge_bases.indexing.chunking import chunk_document
    from ai_platform_engineering.knowledge_bases.reading.document_reader import read_document
    from ai_platform_engineering.knowledge_bases.stores.knowledge_store import build_embedding_text

    texts: list[str] = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        _, parsed = read_document(RawDocument(path.name, path.read_bytes()))
        _, chunks = chunk_document(parsed)
        texts += [build_embedding_text(parsed.title, chunk.headings, chunk.text) for chunk in chunks]
    return (texts * (1 + count // len(texts)))[:count]


def list_children() -> list[int]:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(child) for child in children]


def read_memory(process: int, field: str) -> float:
    """In MiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


def read_cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_once(folder: Path, arguments: Sequence[str]) -> dict[str, float]:
    """Runs this script with the product of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


# --- a stream beside an ingest


async def send_tokens() -> None:
    """A far end that prints its port, and sends a line every 20 ms to whoever connects."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        due = time.perf_counter()
        try:
            while True:
                writer.write(b'data: {"choices": [{"delta": {"content": "token "}}]}\n')
                await writer.drain()
                due += TOKEN_SECONDS
                await asyncio.sleep(due - time.perf_counter())
        except ConnectionError:
            return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def read_gaps(port: int, seconds: float) -> list[float]:
    """The time between two tokens, each parsed and encoded again as a server does it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    gaps: list[float] = []
    end = time.perf_counter() + seconds
    last = time.perf_counter()
    while last < end:
        line = await reader.readline()
        json.dumps(json.loads(line.removeprefix(b"data: ")))
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    writer.close()
    return gaps[5:]


def percentile(values: Sequence[float], share: float) -> float:
    return 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))]


def write_documents(folder: Path) -> None:
    folder.mkdir()
    texts = read_chunks(STREAM_DOCUMENTS * 3)
    for number in range(STREAM_DOCUMENTS):
        text = "\n\n".join(texts[3 * number : 3 * number + 3])
        (folder / f"{number}.md").write_text(f"# Document {number}\n\n{text}\n", encoding="utf-8")


async def measure_stream(port: int, home: Path) -> None:
    """Prints the gaps of the stream alone and beside an ingest, as JSON."""
    from ai_platform_engineering.core.settings import Settings
    from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_knowledge_base

    kb = create_knowledge_base(Settings.from_variables({"CAIPE_HOME": str(home)}), {})
    try:
        alone = await read_gaps(port, STREAM_SECONDS)
        await kb.open()
        await kb.add_datasource(str(home / "docs"))
        beside = await read_gaps(port, STREAM_SECONDS)
        result: dict[str, float] = {"vectors": (await kb.find_datasource("docs")).embedded}
        for name, gaps in (("alone", alone), ("beside", beside)):
            for share in SHARES:
                result[f"{name}_{share}"] = percentile(gaps, share / 100)
        print(json.dumps(result))
    finally:
        await kb.aclose()


# --- both


def compare(arguments: argparse.Namespace) -> None:
    folders = {"now": ROOT}
    if arguments.against:
        folders = {"before": arguments.against.resolve(), "now": ROOT}
    rates: dict[str, list[float]] = {name: [] for name in folders}
    slowdowns: dict[str, list[float]] = {name: [] for name in folders}
    far_end_command = [sys.executable, str(Path(__file__).resolve()), "--far-end"]
    with (
        tempfile.TemporaryDirectory() as cache,
        subprocess.Popen(far_end_command, stdout=subprocess.PIPE, text=True) as far_end,
    ):
        assert far_end.stdout is not None
        port = far_end.stdout.readline().strip()
        try:
            for _ in range(arguments.rounds):
                for name, folder in folders.items():
                    rates[name].append(print_rate(name, folder, arguments.chunks, Path(cache)))
                    slowdowns[name].append(print_gaps(folder, port, Path(cache)))
        finally:
            far_end.terminate()
    for name in folders:
        print(
            f"{name}: median {median(rates[name]):.1f} chunks a second; p95 of the gaps beside an ingest:"
            f" {median(slowdowns[name]):.2f} times"
        )
    if arguments.against:
        print(f"now / before: {median(rates['now']) / median(rates['before']):.2f} times the chunks a second")


def print_rate(name: str, folder: Path, chunks: int, cache: Path) -> float:
    result = run_once(folder, ["--embed", str(chunks), "--cache", str(cache)])
    print(
        f"{name:6} {result['chunks_a_second']:5.1f} chunks a second, {result['cpu_ms']:.0f} ms of CPU each,"
        f" worker {result['peak']:.0f} MiB at most, {result['after']:.0f} afterwards",
        flush=True,
    )
    return result["chunks_a_second"]


def print_gaps(folder: Path, port: str, cache: Path) -> float:
    """How many times the p95 of the gaps is beside an ingest."""
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "cache").symlink_to(cache)
        write_documents(Path(home) / "docs")
        gaps = run_once(folder, ["--stream", port, "--home", home])
    alone, beside = (
        "/".join(f"{gaps[f'{name}_{share}']:.1f}" for share in SHARES) for name in ("alone", "beside")
    )
    print(
        f"       stream p50/p95/p99 alone {alone} ms, beside an ingest {beside} ms,"
        f" {gaps['vectors']:.0f} vectors meanwhile",
        flush=True,
    )
    return gaps["beside_95"] / gaps["alone_95"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chunks", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path)
    for name in ("--embed", "--cache", "--stream", "--home"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--far-end", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.far_end:
        asyncio.run(send_tokens())
    elif arguments.embed:
        asyncio.run(embed_chunks(int(arguments.embed), Path(arguments.cache)))
    elif arguments.stream:
        asyncio.run(measure_stream(int(arguments.stream), Path(arguments.home)))
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
