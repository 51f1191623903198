"""Accessibility of the views beside the conversation: axe-core finds nothing serious, light and dark."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.accessibility import find_violations
from tests.support.browser import SECONDS, Tabs, open_tabs
from tests.support.client_stage import APPROVAL, FORM_QUESTION
from tests.support.view_stage import ViewStage, serve_views

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=SECONDS * 1000)

PHONE = {"width": 390, "height": 844}
# Each view, and a text that is there when it has loaded.
VIEWS = {
    "inbox": "Asked",
    "agents": "asks first",
    "workflows": "Creates a repository",
    "workflows/create-repository": "Steps",
    "skills": "Look first.",
    "knowledge": "There are no datasources yet.",
    "runs": APPROVAL,
    "settings": "Storage",
    "setup": "Connect an agent",
    "shared/nothing": "This conversation is not shared.",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ViewStage]:
    async with serve_views(tmp_path_factory.mktemp("views")) as stage:
        await stage.ask_until_paused(APPROVAL)
        await stage.ask_until_paused(FORM_QUESTION)
        yield stage


@pytest.mark.full
@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_view_has_a_serious_violation(browser: Browser, stage: ViewStage, scheme: str) -> None:
    async with open_tabs(browser, stage.url, color_scheme=scheme) as tabs:
        tabs.expect("status of 404")  # of what is not shared
        page = await tabs.open("/c/-/inbox")
        violations: dict[str, list[str]] = {}
        for name, text in VIEWS.items():
            await open_view(page, tabs, name)
            if name == "agents":
                await page.locator("summary").first.click()
                await page.locator("summary").last.click()
            await expect(page.get_by_role("main").get_by_text(text).first).to_be_visible()
            violations[name] = await find_violations(page)
        for view, button in (("skills", "Add skill"), ("knowledge", "Add")):
            await open_view(page, tabs, view)
            await page.get_by_role("button", name=button, exact=True).click()
            await expect(page.get_by_role("dialog")).to_be_visible()
            violations[f"{view} dialog"] = await find_violations(page)
    assert {name: found for name, found in violations.items() if found} == {}


@pytest.mark.full
async def test_no_view_is_wider_than_a_phone(browser: Browser, stage: ViewStage) -> None:
    async with open_tabs(browser, stage.url, viewport=PHONE) as tabs:
        tabs.expect("status of 404")
        page = await tabs.open("/c/-/inbox")
        widths: dict[str, int] = {}
        for name in VIEWS:
            await open_view(page, tabs, name)
            await expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
            widths[name] = await page.evaluate("document.querySelector('.view').scrollWidth")
    assert {name: width for name, width in widths.items() if width > PHONE["width"]} == {}


async def open_view(page: Page, tabs: Tabs, name: str) -> None:
    await page.goto(f"{tabs.origin}/c/-/{name}")
