"""Lists of tasks on a server with many stored ones, and what they do to a stream beside them.

    .venv/bin/python -m benchmarks.task_lists [--tasks 100000] [--seconds 15]

The tasks are written by the run log itself, each with a question, some text and an answer. The server is a
process of its own, with a scripted model; nothing leaves loopback. Afterwards the lists are read from the
application in this process, for the longest turn of its event loop: in CPU time, so that no other program
counts.
"""

import argparse
import asyncio
import itertools
import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.events import Answered, AnyEvent, RunStarted, TextDelta, TextEnded, TextPart
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.storage_settings import StorageSettings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.log.log_rows import EventBatch, NewRun
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from ai_platform_engineering.runtime.server.app import App
from ai_platform_engineering.runtime.storage import Storage
from benchmarks.load.a2a_streams import LoadResult, Question, at_quantile, open_streams
from benchmarks.load.processes import Server, run_model, run_supervisor

_BATCH = 500  # runs that are stored together
_RATE = 50.0  # tokens a second of the stream beside the lists
_OWNER = ""  # of everybody on a server without keys


async def store_tasks(path: Path, count: int) -> None:
    log = SqliteLog.open(path)
    for start in range(0, count, _BATCH):
        numbers = range(start, min(count, start + _BATCH))
        rows = await asyncio.gather(*(log.create(_new_run(number)) for number in numbers))
        batches = [EventBatch(row.run_id, row.epoch, _events(row.run_id)) for row, _ in rows]
        await log.append_all(batches)
    await log.close()


def _new_run(number: int) -> NewRun:
    started = RunStarted(message_id=f"m{number}", parts=(TextPart(text=f"Question {number}?"),))
    return NewRun(
        f"task-{number:07}",
        f"context-{number // 5}",
        _OWNER,
        f"m{number}",
        "digest",
        started,
        lasting_id=True,
    )


def _events(run_id: str) -> list[AnyEvent]:
    deltas = [TextDelta(message_id=run_id, offset=20 * piece, text="x" * 20) for piece in range(10)]
    return [
        *deltas,
        TextEnded(message_id=run_id, role="answer"),
        Answered(text="x" * 200, trace_id=run_id),
    ]


def list_tasks(server: Server, **params: Any) -> tuple[float, dict[str, Any]]:
    """The milliseconds that a page took, and the page."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/", json.dumps(call).encode(), headers)
    start = time.perf_counter()
    with urllib.request.urlopen(request, timeout=120) as response:
        body = json.load(response)
    return 1000 * (time.perf_counter() - start), body["result"]


def measure_pages(server: Server, middle: str) -> None:
    list_tasks(server)  # the first request of all loads what it needs
    cases: dict[str, dict[str, Any]] = {
        "first page": {},
        "first page, completed ones": {"status": "TASK_STATE_COMPLETED"},
        "first page, of one conversation": {"contextId": "context-0"},
        "first page with artifacts": {"includeArtifacts": True},
        "page of 100": {"pageSize": 100},
        "page in the middle": {"pageToken": middle},
    }
    for name, params in cases.items():
        times = [list_tasks(server, **params)[0] for _ in range(15)]
        print(f"{name}: p50 {at_quantile(times, 0.5):.1f} ms, worst {max(times):.1f} ms")


def find_middle(server: Server, tasks: int) -> str:
    """The token of the page in the middle of all."""
    token = ""
    for _ in range(tasks // 200):
        token = list_tasks(server, pageSize=100, pageToken=token, historyLength=0)[1]["nextPageToken"]
    return token


async def measure_stream(server: Server, seconds: float, *, listing: bool) -> LoadResult:
    """One paced stream, and as many pages beside it as one client gets."""
    is_done = asyncio.Event()

    async def list_pages() -> None:
        while listing and not is_done.is_set():
            await asyncio.to_thread(list_tasks, server)

    pages = asyncio.create_task(list_pages())
    result = await open_streams(server.port, [Question(int(seconds * _RATE), _RATE)])
    is_done.set()
    await pages
    return result


class TurnTimer:
    """The CPU time of each turn of the event loop, while it is entered."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []

    def __enter__(self) -> "TurnTimer":
        self._run = asyncio.Handle._run
        original = self._run
        milliseconds = self.milliseconds

        def run(handle: asyncio.Handle) -> None:
            start = time.thread_time()
            original(handle)
            milliseconds.append(1000 * (time.thread_time() - start))

        asyncio.Handle._run = run  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]


async def measure_turns(path: Path, middle: str) -> None:
    """The longest turn of the event loop for each list, without what a client does."""
    storage = Storage.from_settings(StorageSettings(), path.parent.parent, path.parent.name)
    app = create_app(Settings.from_variables({"ENABLE_RAG": "false"}), storage=storage)
    paths = {
        "first page": "/tasks",
        "page of 100 with artifacts": "/tasks?pageSize=100&includeArtifacts=true",
        "page in the middle": f"/tasks?pageToken={middle}",
        "tasks since a time": "/tasks?statusTimestampAfter=2020-01-01T00:00:00Z",
        "conversations": "/v1/conversations?page_size=500",
        "conversations with a word": "/v1/conversations?query=49999",
        "open requests": "/v1/requests",
    }
    async with app.router.lifespan_context(app):
        for name, url in paths.items():
            await get(app, url)
            with TurnTimer() as timer:
                for _ in range(5):
                    await get(app, url)
            print(f"{name}: longest turn of the event loop {max(timer.milliseconds):.1f} ms of CPU")


async def get(app: App, url: str) -> None:
    """One request to the application, without a connection."""
    path, _, query = url.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1"), (b"a2a-version", b"1.0")],
    }
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    await app(scope, receive, send)
    assert statuses[0] == 200, (url, statuses)


def gaps_ms(result: LoadResult) -> list[float]:
    lateness = result.streams[0].lateness
    arrivals = [late + number / _RATE for number, late in enumerate(lateness)]
    return [1000 * (later - earlier) for earlier, later in itertools.pairwise(arrivals)]


def print_gaps(name: str, result: LoadResult) -> None:
    gaps = gaps_ms(result)
    print(
        f"{name}: gaps between tokens p50 {at_quantile(gaps, 0.5):.1f}, p95 {at_quantile(gaps, 0.95):.1f}, "
        f"p99 {at_quantile(gaps, 0.99):.1f}, worst {max(gaps):.1f} ms {result.failures or ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, run_model() as model_url:
        home = Path(folder)
        with run_supervisor(model_url, {"ENABLE_RAG": "false"}, home=home):
            pass  # it creates its database
        [path] = (home / "caipe").rglob("runs.db")
        start = time.perf_counter()
        asyncio.run(store_tasks(path, arguments.tasks))
        print(
            f"{arguments.tasks} tasks stored in {time.perf_counter() - start:.0f} s, "
            f"{path.stat().st_size / 1e6:.0f} MB"
        )
        with run_supervisor(model_url, {"ENABLE_RAG": "false"}, home=home) as server:
            middle = find_middle(server, arguments.tasks)
            measure_pages(server, middle)
            alone = asyncio.run(measure_stream(server, arguments.seconds, listing=False))
            beside = asyncio.run(measure_stream(server, arguments.seconds, listing=True))
            print_gaps("one stream alone", alone)
            print_gaps("beside a client that lists all the time", beside)
        asyncio.run(measure_turns(path, middle))


if __name__ == "__main__":
    main()
