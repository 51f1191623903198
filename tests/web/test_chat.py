"""Conversations in the browser: the model sends its next piece only after the page shows the one before."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import SECONDS, Tabs, open_tabs
from tests.support.client_stage import ClientStage, serve_stage

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=SECONDS * 1000)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[ClientStage]:
    async with serve_stage() as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, stage: ClientStage) -> AsyncIterator[Tabs]:
    async with open_tabs(browser, stage.url) as tabs:
        yield tabs


async def ask(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.keyboard.press("Enter")


async def test_a_question_is_answered(tabs: Tabs, stage: ClientStage) -> None:
    page = await tabs.open()
    await ask(page, "Which version?")
    await expect(page.get_by_role("log")).to_contain_text(stage.version.answer)
    await expect(page).to_have_url(f"{tabs.origin}/c/" + page.url.rpartition("/")[2])
