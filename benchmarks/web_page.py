"""What the web page costs in the browser, against a real server with a scripted model.

    .venv/bin/python -m benchmarks.web_page [--turns 500] [--questions 200] [--answer-kb 50]

Prints the size of the scripts, the time to the first view, script time per frame while a long answer
streams, the time to open a long conversation, and the heap and the elements of the page over many questions.
It needs Chromium (Debian's package, or `CHROMIUM=`) and the built page (`make page`).
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Browser, CDPSession, Page, async_playwright

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.fakes.model import ScriptedChatModel
from tests.support.harness import FAST, Client, serve_app
from tests.support.platform_stage import LONG, ROLLOUT, SHORT, PlatformStage

STATIC = Path(__file__).parents[1] / "ai_platform_engineering" / "web" / "static"
_PACE = 0.004  # seconds between two pieces of 20 characters: a fast model
_SCRIPT = (
    "FunctionCall",
    "RunMicrotasks",
    "FireAnimationFrame",
    "TimerFire",
    "EvaluateScript",
    "v8.callFunction",
)
_TIMEOUT = 180_000  # milliseconds

_SECTION = """## Part {number}

The rollout of **service-{number}** waited for `{number}` pods, see [the runbook](https://runbooks.example.com/{number}).

- the limit was 256 MiB, and it is 640 MiB now
- the probe answered after {number} s
- nobody outside of the team noticed it

| Pod | Restarts | Reason |
|---|---:|---|
| `service-{number}-a` | {number} | OOMKilled |
| `service-{number}-b` | 0 | none |

```yaml
resources:
  limits:
    memory: {number}Mi  # raised
```

"""


def write_answer(size: int) -> str:
    """Markdown of about this many characters, with everything that answers have."""
    text = ""
    number = 0
    while len(text) < size:
        number += 1
        text += _SECTION.format(number=number)
    return text[:size]


async def main(turns: int, questions: int, answer_kb: int) -> None:
    _print_sizes()
    writing = PlatformStage(pace=_PACE, long_answer=write_answer(answer_kb * 1000))
    async with _serve(writing) as url, _launch() as browser:
        await _measure_start(browser, url)
        await _measure_stream(browser, url)
    async with _serve(PlatformStage()) as url:
        context_id = await _fill_conversation(url, turns)
        async with _launch() as browser:
            await _measure_opening(browser, f"{url}c/{context_id}", turns)
            await _measure_memory(browser, url, questions)


@contextlib.asynccontextmanager
async def _serve(stage: PlatformStage) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory() as home:
        listener = socket.create_server(("127.0.0.1", 0))
        variables = {**FAST, "A2A_PORT": str(listener.getsockname()[1]), "CAIPE_HOME": home}
        model = ScriptedChatModel(script=stage.book)
        app = create_app(
            Settings.from_variables(variables), agents=stage.agents, tools=stage.tools, model=model
        )
        async with serve_app(app, listener) as url:
            yield url


@contextlib.asynccontextmanager
async def _launch() -> AsyncIterator[Browser]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


def _print_sizes() -> None:
    for suffix in (".js.br", ".js.gz", ".css.br"):
        size = sum(
            path.stat().st_size for path in (STATIC / "assets").iterdir() if path.name.endswith(suffix)
        )
        print(f"size  {suffix:8} {size / 1000:7.1f} kB")


async def _measure_start(browser: Browser, url: str) -> None:
    """From the request for the page until one can write, with an empty cache."""
    for _ in range(3):
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(url, wait_until="commit")
        await page.wait_for_selector("#message")
        ready = await page.evaluate("performance.now()")
        print(f"first view interactive     {ready:6.0f} ms")
        await context.close()


async def _measure_stream(browser: Browser, url: str) -> None:
    page = await browser.new_page()
    await page.goto(url)
    client = await page.context.new_cdp_session(page)
    events = await _record(client)
    await _ask(page, LONG)
    await page.get_by_role("group", name="Feedback").wait_for(timeout=_TIMEOUT)
    trace = await events()
    frames = _script_per_frame(trace)
    length = await page.locator(".answer").last.evaluate("element => element.textContent.length")
    print(
        f"streamed answer, {length} characters in {len(frames)} frames: script per frame"
        f" median {_quantile(frames, 0.5):.1f} ms, 95th {_quantile(frames, 0.95):.1f} ms,"
        f" longest {max(frames):.0f} ms"
    )
    await page.close()


async def _record(client: CDPSession) -> Any:
    """Starts a trace; what is returned ends it and gives its events."""
    events: list[dict[str, Any]] = []
    ended = asyncio.Event()
    client.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    client.on("Tracing.tracingComplete", lambda _: ended.set())
    categories = "devtools.timeline,devtools.timeline.frame,disabled-by-default-devtools.timeline,v8"
    await client.send("Tracing.start", {"categories": categories, "transferMode": "ReportEvents"})

    async def end() -> list[dict[str, Any]]:
        await client.send("Tracing.end")
        await ended.wait()
        return events

    return end


def _script_per_frame(events: list[dict[str, Any]]) -> list[float]:
    """Milliseconds of script between one frame and the next, on the main thread of the page."""
    frames = [event for event in events if event["name"] == "Commit"]
    thread = max({(event["pid"], event["tid"]) for event in frames}, key=lambda key: _count(frames, key))
    starts = sorted(event["ts"] for event in frames if (event["pid"], event["tid"]) == thread)
    script = _merge(
        (event["ts"], event["ts"] + event.get("dur", 0))
        for event in events
        if event["name"] in _SCRIPT and (event["pid"], event["tid"]) == thread and event.get("ph") == "X"
    )
    times: list[float] = []
    position = 0
    for start, end in itertools.pairwise(starts):
        total = 0
        while position < len(script) and script[position][0] < end:
            if script[position][0] >= start:
                total += script[position][1] - script[position][0]
            position += 1
        times.append(total / 1000)
    return times


def _count(frames: list[dict[str, Any]], key: tuple[int, int]) -> int:
    return sum((event["pid"], event["tid"]) == key for event in frames)


def _merge(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def _fill_conversation(url: str, turns: int) -> str:
    """A conversation of so many turns; each fifth with a plan, agents and tools."""
    async with httpx.AsyncClient(timeout=120) as http:
        client = Client(url, http)
        context_id = ""
        for number in range(turns):
            question = ROLLOUT if number % 5 == 0 else f"{SHORT} ({number})"
            more = {"contextId": context_id} if context_id else {}
            context_id = (await client.ask(question, version="1.0", **more)).context_id
    return context_id


async def _measure_opening(browser: Browser, url: str, turns: int) -> None:
    for _ in range(3):
        context = await browser.new_context()
        page = await context.new_page()
        start = time.perf_counter()
        await page.goto(url, wait_until="commit")
        await page.locator(".answer").last.wait_for(timeout=_TIMEOUT)
        seconds = time.perf_counter() - start
        print(f"conversation of {turns} turns opens in {seconds * 1000:6.0f} ms")
        await context.close()


async def _measure_memory(browser: Browser, url: str, questions: int) -> None:
    page = await browser.new_page()
    await page.goto(url)
    client = await page.context.new_cdp_session(page)
    await client.send("Performance.enable")
    step = max(1, questions // 4)
    for number in range(1, questions + 1):
        await _ask(page, ROLLOUT)
        await (
            page.locator(".turn")
            .nth(number - 1)
            .get_by_role("group", name="Feedback")
            .wait_for(timeout=_TIMEOUT)
        )
        if number % step == 0:
            await client.send("HeapProfiler.collectGarbage")
            metrics = (await client.send("Performance.getMetrics"))["metrics"]
            found = {metric["name"]: metric["value"] for metric in metrics}
            print(
                f"after {number:4} questions: heap {found['JSHeapUsedSize'] / 1e6:5.1f} MB,"
                f" {found['Nodes']:.0f} nodes"
            )
    await page.close()


async def _ask(page: Page, text: str) -> None:
    await page.get_by_label("Message").fill(text)
    await page.keyboard.press("Enter")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--answer-kb", type=int, default=50)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.turns, arguments.questions, arguments.answer_kb))
