"""One browser for all tests of a worker. They share an event loop, which outlives the servers of a module."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.support.browser import launch_browser, need_browser


@pytest.fixture(scope="session")
def chromium() -> str:
    return need_browser()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with launch_browser(chromium) as browser:
        yield browser
