"""Conversations dark, narrow, by keyboard, and for screen readers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.accessibility import find_violations
from tests.support.browser import open_tabs
from tests.support.client_stage import APPROVAL, FORM_QUESTION, VERSION
from tests.support.page_stage import PageStage, ask, conversation, fits_the_window, serve_page_stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 375, "height": 720}, "has_touch": True, "is_mobile": True}
STYLES: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {**PHONE, "color_scheme": "light"},
    "dark phone": {**PHONE, "color_scheme": "dark"},
}
# A colour and a width at once: each occurs without the two others.
every_style = pytest.mark.parametrize(
    "style",
    ["dark", "phone", *(pytest.param(name, marks=pytest.mark.full) for name in ("light", "dark phone"))],
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[PageStage]:
    async with serve_page_stage() as stage:
        yield stage


@pytest.mark.sample(1)
@every_style
async def test_a_conversation_has_no_serious_violation(
    browser: Browser, stage: PageStage, style: str
) -> None:
    async with open_tabs(browser, stage.url, **STYLES[style]) as tabs:
        page = await tabs.open()
        await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        empty = await find_violations(page)
        await ask(page, VERSION)
        await expect(conversation(page)).to_contain_text(stage.stage.version.answer)
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        answered = await find_violations(page)
        await ask(page, FORM_QUESTION)
        await expect(page.get_by_role("form", name="Create GitHub Repo")).to_be_visible()
        with_form = await find_violations(page)
        other = await tabs.open()
        await ask(other, APPROVAL)
        await other.get_by_role("button", name="Edit arguments").click()
        with_approval = await find_violations(other)
        assert await fits_the_window(page)
        assert await fits_the_window(other)
    assert (empty, answered, with_form, with_approval) == ([], [], [], [])


@pytest.mark.full
async def test_dark_is_dark_and_light_is_light(browser: Browser, stage: PageStage) -> None:
    brightness = {}
    for style in ("light", "dark"):
        async with open_tabs(browser, stage.url, **STYLES[style]) as tabs:
            page = await tabs.open()
            colors = await page.evaluate(
                "(({backgroundColor, color}) => [backgroundColor, color])(getComputedStyle(document.body))"
            )
            brightness[style] = [await measure_brightness(page, color) for color in colors]
    light_background, light_text = brightness["light"]
    dark_background, dark_text = brightness["dark"]
    assert light_background > 0.8 > 0.4 > light_text
    assert dark_background < 0.3 < 0.6 < dark_text


async def measure_brightness(page: Page, color: str) -> float:
    """Between 0 and 1, whatever the notation of the colour."""
    pixel = await page.evaluate(
        """color => {
          const context = new OffscreenCanvas(1, 1).getContext("2d");
          context.fillStyle = color;
          context.fillRect(0, 0, 1, 1);
          return Array.from(context.getImageData(0, 0, 1, 1).data);
        }""",
        color,
    )
    return float(sum(pixel[:3])) / (3 * 255)


async def test_everything_is_reached_by_keyboard(browser: Browser, stage: PageStage) -> None:
    """Asking, a form and an approval without a mouse; what has the focus is always outlined."""
    async with open_tabs(browser, stage.url) as tabs:
        page = await tabs.open()
        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
        await page.keyboard.type(FORM_QUESTION)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("textbox", name="Repository")).to_be_focused()
        await page.keyboard.type("by-keyboard")
        await press_until(page, "Tab", "Submit")
        await page.keyboard.press("Enter")
        await expect(conversation(page)).to_contain_text("Made by-keyboard.")
        await press_until(page, "Tab", "Message")
        await page.keyboard.type(APPROVAL)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        await press_until(page, "Shift+Tab", "Approve")
        await page.keyboard.press("Enter")
        await expect(conversation(page)).to_contain_text("blog is there.")


async def press_until(page: Page, key: str, name: str) -> None:
    """Goes from control to control to the one with this name, as a person does."""
    for _ in range(80):
        focused = await page.evaluate(
            """(() => {
              const element = document.activeElement;
              const label = element.getAttribute("aria-label") ?? element.labels?.[0]?.innerText;
              const {outlineStyle, boxShadow} = getComputedStyle(element);
              const isMarked = outlineStyle !== "none" || boxShadow !== "none";
              return {name: (label ?? element.innerText ?? "").trim(), isMarked, tag: element.tagName};
            })()"""
        )
        if focused["tag"] in ("BUTTON", "A", "SUMMARY"):
            assert focused["isMarked"], f"{focused} has the focus and does not show it"
        if focused["name"] == name:
            return
        await page.keyboard.press(key)
    raise AssertionError(f"{name} is not reached with {key}")
