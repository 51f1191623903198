"""Latency of listing a thousand skills: pages of 50, with and without words to search for.

    .venv/bin/python -m benchmarks.skills [--skills 1000] [--rounds 400] [--url http://127.0.0.1:8000]

First at the catalogue in this process: skills in a folder, read and scanned once, and looked at again
once a second as in a server. Then over HTTP: a server with the same folder, as a process, on a loopback
port; with `--url` one that runs already.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx

from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.skills_middleware.api.pagination import find_page
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog
from ai_platform_engineering.skills_middleware.skill_store import SkillStore
from ai_platform_engineering.skills_middleware.sources.folder_source import SkillFolder
from ai_platform_engineering.skills_middleware.sources.hub_reader import HubReader

SERVER = str(Path(sys.executable).parent / "platform-engineer")
MAX_P95_MS = 50.0  # ms at p95
SENTENCE = (
    "Look at the events of the last hour, compare them with the deployments, and say what changed first. "
)
TOPICS = ("Argo CD sync", "AWS costs", "Kubernetes nodes", "an incident", "a certificate", "a database")
Ask = Callable[[int, str], Awaitable[int]]


def write_skills(folder: Path, count: int) -> None:
    for number in range(count):
        skill = folder / f"skill-{number}"
        (skill / "references").mkdir(parents=True)
        topic = TOPICS[number % len(TOPICS)]
        top = f"---\nname: skill-{number}\ndescription: Looks at {topic}, variant {number}.\n---\n\n"
        (skill / "SKILL.md").write_text(top + "# Steps\n\n" + f"{SENTENCE}\n" * 40, encoding="utf-8")
        (skill / "references" / "guide.md").write_text(
            f"# Guide {number}\n\n" + f"{SENTENCE}\n" * 20, encoding="utf-8"
        )


async def measure(name: str, ask: Ask, rounds: int, pages: int) -> None:
    """Pages in turn, and the first page of a search."""
    for kind, words in (("", ("",)), (", searched", TOPICS)):
        times = []
        for number in range(rounds):
            began = time.perf_counter()
            await ask(1 if kind else number % pages + 1, words[number % len(words)])
            times.append((time.perf_counter() - began) * 1000)
        times.sort()
        p50, p95 = times[len(times) // 2], times[int(len(times) * 0.95)]
        print(
            f"{name + kind:24} p50 {p50:6.2f} ms   p95 {p95:6.2f} ms   max {times[-1]:6.2f} ms"
            f"   (asked: p95 below {MAX_P95_MS:g})"
        )


async def measure_catalogue(count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        write_skills(Path(home) / "skills", count)
        reader = HubReader(Path(home) / "hubs", {"PATH": os.defpath}, UrlChecker())
        catalog = SkillCatalog(
            SkillStore(Path(home) / "skills.db"), reader, [SkillFolder(Path(home) / "skills")]
        )
        began = time.perf_counter()
        await catalog.open()
        print(
            f"{count} skills read and scanned in {time.perf_counter() - began:.2f} s;"
            f" {len(await catalog.list_usable())} usable"
        )

        async def ask(page: int, words: str) -> int:
            return len(find_page(await catalog.entries(), words=words, page=page).entries)

        pages = max(1, count // 50)
        await measure("entries, page", ask, rounds, pages)
        await catalog.close()


async def measure_http(url: str, rounds: int) -> None:
    async with httpx.AsyncClient(base_url=url) as http:

        async def ask(page: int, words: str) -> int:
            answer = await http.get(
                "/skills", params={"page": page, "page_size": 50, **({"q": words} if words else {})}
            )
            return len(answer.raise_for_status().json()["skills"])

        await http.get("/skills")  # the first request imports the API
        total = (
            (await http.get("/skills", params={"page": 1, "page_size": 50}))
            .raise_for_status()
            .json()["meta"]["total"]
        )
        await measure("GET /skills", ask, rounds, max(1, total // 50))


async def measure_server(count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "skills"
        write_skills(folder, count)
        with server(home, SKILLS_DIR=str(folder), ENABLE_RAG="false") as url:
            await measure_http(url, rounds)


@contextlib.contextmanager
def server(home: str, **variables: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "CAIPE_HOME": home,
        "A2A_PORT": str(port),
        "LOG_LEVEL": "ERROR",
    }
    process = subprocess.Popen([SERVER], env={**own, **variables})
    try:
        for _ in range(6000):
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/health")
                break
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


async def measure_both(count: int, rounds: int) -> None:
    await measure_catalogue(count, rounds)
    await measure_server(count, rounds)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--skills", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=400)
    options.add_argument("--url", help="a server that has the skills already")
    arguments = options.parse_args()
    asyncio.run(
        measure_http(arguments.url, arguments.rounds)
        if arguments.url
        else measure_both(arguments.skills, arguments.rounds)
    )
