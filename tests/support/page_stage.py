"""A supervisor for tests of the web page: the questions of `client_stage`, and scripts that a test adds."""

import contextlib
import random
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from playwright.async_api import Locator, Page, expect

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.browser import SECONDS
from tests.support.client_stage import ClientStage
from tests.support.fakes.gate import Gate, unique_pieces
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Casting, Say, Script, Turn
from tests.support.harness import FAST, serve_app

expect.set_options(timeout=SECONDS * 1000)


@dataclass
class PageStage(Casting):
    """The server behind a page. Each question has a script: one that was added, or one of the stage's."""

    stage: ClientStage = field(default_factory=ClientStage)
    scripts: dict[str, Script] = field(default_factory=dict)
    url: str = ""

    def choose(self, request: Request) -> Script:
        for question, script in self.scripts.items():
            if question in request.last_user:
                return script
        return self.stage.book.choose(request)

    def add(self, question: str, *turns: Turn) -> None:
        self.scripts[question] = Script(*turns)

    def add_gated(self, question: str, count: int = 4) -> "GatedAnswer":
        """A question whose answer comes in pieces, each after the one before was seen."""
        gated = GatedAnswer(question, unique_pieces("piece", count, random.Random(question)))
        self.scripts[question] = Script(Turn(Say(*(f"{piece} " for piece in gated.pieces))), gate=gated.gate)
        return gated


@dataclass
class GatedAnswer:
    """The pieces of an answer, which are let go one by one."""

    question: str
    pieces: tuple[str, ...]
    gate: Gate = field(default_factory=Gate)

    async def show(self, *places: Locator, until: int | None = None, since: int = 0) -> None:
        """Waits until each place shows the next piece, which lets the model send the one after it."""
        for piece in self.pieces[since:until]:
            for place in places:
                await expect(place).to_contain_text(piece)
            self.gate.seen(piece)

    @property
    def text(self) -> str:
        return " ".join(self.pieces)


@contextlib.asynccontextmanager
async def serve_page_stage(env: Mapping[str, str] | None = None) -> AsyncIterator[PageStage]:
    """The supervisor on a loopback port."""
    page_stage = PageStage()
    listener = socket.create_server(("127.0.0.1", 0))
    port = str(listener.getsockname()[1])
    settings = Settings.from_variables(
        {**FAST, "A2A_PORT": port, "STREAM_COALESCE_SECONDS": "0", **(env or {})}
    )
    stage = page_stage.stage
    model = ScriptedChatModel(script=page_stage)
    app = create_app(settings, agents=stage.agents, tools=stage.tools, model=model)
    async with serve_app(app, listener) as url:
        page_stage.url = url
        yield page_stage


# --- what a person does ----------------------------------------------------------------------------


async def ask(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")


def conversation(page: Page) -> Locator:
    return page.get_by_role("log")


async def expand_all(place: Locator) -> None:
    """Opens whatever can be unfolded, also what appears when something else is opened."""
    folded = place.locator("[aria-expanded=false], details:not([open]) > summary")
    for _ in range(50):
        if await folded.count() == 0:
            return
        await folded.first.click()
    raise AssertionError("something folds again when it is clicked")


async def fits_the_window(page: Page) -> bool:
    """Whether nothing makes the page wider than the window."""
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
