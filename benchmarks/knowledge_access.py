"""What it costs a search that documents are for some people only, beside a search over all of them.

    .venv/bin/python -m benchmarks.knowledge_access [--chunks 20000]

Viewers take turns with the same questions in one run; the ratio is that of a viewer to the operator, who sees
everything without a condition.
"""

import argparse
import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ai_platform_engineering.knowledge_bases.access import OPERATOR, Viewer
from ai_platform_engineering.knowledge_bases.documents import Document
from ai_platform_engineering.knowledge_bases.search.evaluation import percentile
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from benchmarks.knowledge import MODEL, TOP, SyntheticData, index_chunks

SHARES = {"most": 90, "half": 50, "few": 1}  # percent of the documents that a viewer may see
QUERIES = 100


class RestrictedData(SyntheticData):
    """Documents that each viewer sees a share of."""

    def document(self, number: int) -> Document:
        names = tuple(name for name, share in SHARES.items() if number % 100 < share)
        return replace(super().document(number), visible_to=names)


async def measure(chunks: int, folder: Path) -> None:
    store = EmbeddedStore(folder / "knowledge")
    await store.open()
    try:
        data = RestrictedData()
        vectors = await index_chunks(store, data, chunks)
        viewers = {"operator": OPERATOR, **{name: Viewer((name,)) for name in SHARES}}
        times: dict[str, list[float]] = {name: [] for name in viewers}
        found = dict.fromkeys(viewers, 0)
        for at in data.numbers.integers(len(vectors), size=QUERIES):
            query, vector = data.query(), (vectors[at] + 0.03 * data.vectors(1)[0]).tolist()
            for name, viewer in viewers.items():
                began = time.perf_counter()
                hits = await store.search(query, vector, model=MODEL, limit=TOP, viewer=viewer)
                times[name].append(1e3 * (time.perf_counter() - began))
                found[name] += len(hits)
        base = percentile(times["operator"], 0.5)
        for name, values in times.items():
            p50, p95 = percentile(values, 0.5), percentile(values, 0.95)
            share = SHARES.get(name, 100)
            print(
                f"{name:9} sees {share:3} %: p50 {p50:6.2f} ms ({p50 / base:.2f} times), p95 {p95:6.2f} ms, "
                f"{found[name] / QUERIES:.1f} results"
            )
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chunks", type=int, default=20_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(arguments.chunks, Path(folder)))


if __name__ == "__main__":
    main()
