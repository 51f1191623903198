"""The gaps of an answer's tokens beside an ingest with embeddings, against the same answer alone.

    .venv/bin/python -m benchmarks.ingest_stream [--rounds 3] [--documents 200]

`caipe serve` streams over A2A what a scripted model says at 50 tokens a second. Each round asks once while
nothing else runs, then has a folder of documents ingested over REST and asks again. Alone and beside take
turns in one run, so read the ratio. Tokens that arrive together count as one arrival.
"""

import argparse
import asyncio
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import httpx

from benchmarks.embedding import read_chunks
from benchmarks.load.a2a_streams import Question, at_quantile, open_streams
from benchmarks.load.processes import Server, run_model, run_supervisor

QUESTION = Question(tokens=600, rate=50.0)
QUANTILES = (0.5, 0.95, 0.99)
TARGET = 1.5  # times the p95 of the stream alone
CHUNKS_OF_A_DOCUMENT = 3
WAIT_SECONDS = 240
SAME_ARRIVAL_MS = 0.5


def write_documents(folder: Path, count: int, number: int) -> None:
    """Documents that no other round has: the same text would keep its vectors."""
    folder.mkdir()
    texts = read_chunks(CHUNKS_OF_A_DOCUMENT * count)
    for at in range(count):
        parts = texts[CHUNKS_OF_A_DOCUMENT * at : CHUNKS_OF_A_DOCUMENT * (at + 1)]
        text = "\n\n".join(parts)
        title = f"Round {number}, document {at}"
        (folder / f"{at}.md").write_text(f"# {title}\n\n{text}\n", encoding="utf-8")


def list_datasources(server: Server) -> dict[str, dict[str, int]]:
    answer = httpx.get(f"http://127.0.0.1:{server.port}/v1/datasources")
    answer.raise_for_status()
    return {datasource["name"]: datasource for datasource in answer.json()["datasources"]}


def wait_until_embedded(server: Server) -> None:
    """Waits until every chunk has its vector, so that nothing runs beside the next answer."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        datasources = list_datasources(server).values()
        if datasources and all(item["chunks"] == item["embedded"] for item in datasources):
            return
        time.sleep(1)
    raise SystemExit("The documents did not get their vectors in time.")


def measure_gaps(server: Server) -> list[float]:
    """The milliseconds between two arrivals of tokens of one answer."""
    result = asyncio.run(open_streams(server.port, [QUESTION]))
    if result.failures:
        raise SystemExit(result.failures[0])
    gaps: list[float] = []
    for earlier, later in pairwise(result.streams[0].lateness):
        gap = 1000 * (1 / QUESTION.rate + later - earlier)
        if gap > SAME_ARRIVAL_MS:
            gaps.append(gap)
    return gaps


def measure_round(server: Server, folder: Path, documents: int, number: int) -> float:
    """How many times the p95 of the gaps is beside an ingest."""
    wait_until_embedded(server)
    alone = measure_gaps(server)
    write_documents(folder, documents, number)
    url = f"http://127.0.0.1:{server.port}/v1/datasources"
    httpx.post(url, json={"location": str(folder)}).raise_for_status()
    beside = measure_gaps(server)
    datasource = list_datasources(server).get(folder.name, {"documents": 0, "embedded": 0, "chunks": 0})
    for name, gaps in (("alone", alone), ("beside", beside)):
        values = "/".join(f"{at_quantile(gaps, quantile):.1f}" for quantile in QUANTILES)
        print(f"{name:7} p50/p95/p99 {values} ms", flush=True)
    is_over = datasource["documents"] == documents and datasource["embedded"] == datasource["chunks"]
    print(
        f"        meanwhile {datasource['documents']} documents read, {datasource['embedded']} vectors"
        f"{'; the ingest was over before the answer' if is_over else ''}",
        flush=True,
    )
    return at_quantile(beside, 0.95) / at_quantile(alone, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, run_model() as model_url:
        variables = {"ENABLE_RAG": "true", "RAG_INGEST_FOLDERS": home}
        with run_supervisor(model_url, variables) as server:
            ratios: list[float] = []
            for number in range(arguments.rounds):
                folder = Path(home) / f"round-{number}"
                ratios.append(measure_round(server, folder, arguments.documents, number))
    print(
        f"p95 beside / alone: median {median(ratios):.2f} times, most {max(ratios):.2f} (to reach: {TARGET})"
    )


if __name__ == "__main__":
    main()
