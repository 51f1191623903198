"""The guard of the browser itself: what a page wants from elsewhere is refused, and fails its test."""

import pytest
from playwright.async_api import Browser
from playwright.async_api import Error as BrowserError

from tests.conftest import take_violations
from tests.support.browser import open_tabs

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def leave_this_machine(browser: Browser) -> None:
    async with open_tabs(browser, "http://127.0.0.1:9") as tabs:
        tabs.expect("ERR_")
        page = await tabs.context.new_page()
        tabs.watch(page)
        with pytest.raises(BrowserError):
            await page.goto("http://192.0.2.7/")


async def test_a_page_that_leaves_this_machine_is_refused_and_told(browser: Browser) -> None:
    with pytest.raises(AssertionError, match=r"request of another origin: http://192\.0\.2\.7/"):
        await leave_this_machine(browser)
    assert any("192.0.2.7" in attempt for attempt in take_violations())


async def write_an_error(browser: Browser) -> None:
    async with open_tabs(browser, "http://127.0.0.1:9") as tabs:
        page = await tabs.context.new_page()
        tabs.watch(page)
        async with page.expect_console_message():
            await page.evaluate("console.error('something is wrong')")


async def test_an_error_in_the_console_fails_the_test(browser: Browser) -> None:
    with pytest.raises(AssertionError, match="console: something is wrong"):
        await write_an_error(browser)
