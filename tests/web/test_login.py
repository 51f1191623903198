"""The sign-in of the page: the key once, then the session, also in another tab and after a reload."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.support.accessibility import find_violations
from tests.support.browser import Tabs, open_tabs
from tests.support.client_stage import VERSION
from tests.support.page_stage import PageStage, ask, conversation, serve_page_stage

pytestmark = pytest.mark.asyncio(loop_scope="session")
KEY = "the-key-of-this-server"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[PageStage]:
    async with serve_page_stage({"A2A_AUTH_SHARED_KEY": KEY}) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, stage: PageStage) -> AsyncIterator[Tabs]:
    async with open_tabs(browser, stage.url) as tabs:
        tabs.expect("status of 401")
        yield tabs


async def test_the_key_is_asked_for_once(tabs: Tabs, stage: PageStage) -> None:
    page = await tabs.open()
    key = page.get_by_label("Key", exact=True)
    await expect(key).to_be_focused()
    assert await find_violations(page) == []
    await key.fill("not the key")
    await key.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("does not accept this key")
    await key.fill(KEY)
    await key.press("Enter")
    await ask(page, VERSION)
    await expect(conversation(page)).to_contain_text(stage.stage.version.answer)
    await page.reload()
    await expect(conversation(page)).to_contain_text(stage.stage.version.answer)
    other = await tabs.open()
    await expect(other.get_by_role("textbox", name="Message")).to_be_visible()
    # No script can read it: neither from the cookie nor from anywhere else in the browser.
    kept = await page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})")
    assert "caipe_session" not in kept
    assert KEY not in kept
    [cookie] = await tabs.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")


@pytest.mark.full
async def test_a_session_that_ended_leads_back_to_the_key_and_on(tabs: Tabs, stage: PageStage) -> None:
    page = await tabs.open()
    await page.get_by_label("Key", exact=True).fill(KEY)
    await page.keyboard.press("Enter")
    await ask(page, VERSION)
    await expect(conversation(page)).to_contain_text(stage.stage.version.answer)
    address = page.url
    await tabs.context.clear_cookies()
    await page.reload()
    await page.get_by_label("Key", exact=True).fill(KEY)
    await page.keyboard.press("Enter")
    await expect(conversation(page)).to_contain_text(stage.stage.version.answer)
    assert page.url == address
