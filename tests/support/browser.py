"""Chromium for tests: one browser, whose every way out of this machine ends at the guard, and tabs that are
watched for errors."""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright

import network_guard
from tests.conftest import ROOT, need

STATIC = ROOT / "ai_platform_engineering" / "web" / "static"
SECONDS = 60.0  # for a condition that does not come; a loaded machine is slow
# What Chromium would look up or fetch by itself, and its sandbox, which a container has no rights for.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # These are asked whatever the flags above say: a closed port of this machine stands for them.
    "--autofill-server-url=http://127.0.0.1:9/",
    "--gaia-url=http://127.0.0.1:9/",
    "--component-updater=url-source=http://127.0.0.1:9/",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
# Dictionaries, updates, hints: they change with each version, and no flag switches all of them off.
_OWN_SERVICES = re.compile(r"[/. ](google|googleapis|gstatic|gvt1)\.com[:/]")
_REPORT_VIOLATIONS = """addEventListener("securitypolicyviolation", event =>
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`))"""


def find_chromium() -> str | None:
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def need_browser() -> str:
    """The path of the browser; a test without one, or without a built page, is skipped, and fails in CI."""
    path = find_chromium()
    need("Chromium", path is not None, "install Debian's package chromium, or name it with CHROMIUM=")
    need("the web page", (STATIC / "index.html").is_file(), "`make page` builds it")
    assert path is not None
    return path


@contextlib.asynccontextmanager
async def launch_browser(path: str) -> AsyncIterator[Browser]:
    """The browser. What it sends to another machine goes to a proxy of ours, which refuses and tells it."""
    proxy = await asyncio.start_server(_refuse, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    async with proxy, async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=list(FLAGS), proxy={"server": address, "bypass": "127.0.0.1,localhost"}
        )
        try:
            yield browser
        finally:
            await browser.close()


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Refuses whatever is asked for, and writes it down, unless the browser asks for itself.

    A page that asks for the same hosts is noticed in its tab."""
    line = (await reader.readline()).decode("latin-1").strip()
    writer.close()
    # Chromium opens connections ahead of need, and closes them without a request.
    if not line or _OWN_SERVICES.search(line):
        return
    with Path(os.environ[network_guard.GUARD_FILE]).open("a", encoding="utf-8") as file:
        file.write(f"the browser asked for {line!r}: tests stay on this machine\n")


@dataclass
class Tabs:
    """The tabs of one person, with one set of cookies, and what went wrong in any of them."""

    context: BrowserContext
    origin: str
    problems: list[str] = field(default_factory=list)
    expected: list[re.Pattern[str]] = field(default_factory=list)

    async def open(self, path: str = "/") -> Page:
        page = await self.context.new_page()
        self.watch(page)
        await page.goto(f"{self.origin}{path}")
        return page

    def watch(self, page: Page) -> None:
        page.set_default_timeout(SECONDS * 1000)
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("console", self._note_message)
        page.on("request", self._note_request)

    def expect(self, pattern: str) -> None:
        """Errors of the console that belong to the test, such as those of a server that was stopped."""
        self.expected.append(re.compile(pattern))

    @property
    def unexpected(self) -> list[str]:
        return [
            problem
            for problem in self.problems
            if not any(pattern.search(problem) for pattern in self.expected)
        ]

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _note_request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme in ("data", "blob") or f"{url.scheme}://{url.netloc}" == self.origin:
            return
        self.problems.append(f"request of another origin: {request.url}")


@contextlib.asynccontextmanager
async def open_tabs(browser: Browser, url: str, **options: Any) -> AsyncIterator[Tabs]:
    """A person's tabs on the server at the address. What went wrong in them fails the test at the end."""
    context = await browser.new_context(reduced_motion="reduce", **options)
    await context.add_init_script(_REPORT_VIOLATIONS)
    tabs = Tabs(context, url.rstrip("/"))
    try:
        yield tabs
    finally:
        await context.close()
    if tabs.unexpected:
        raise AssertionError("\n".join(["in the browser:", *tabs.unexpected]))
