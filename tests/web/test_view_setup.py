"""The views of a server that nobody has configured: what is missing, what is set, and signing out."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import SECONDS, Tabs, open_tabs
from tests.support.view_stage import serve_unconfigured

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=SECONDS * 1000)

KEY = "the-key-of-this-server"
TOKEN = "the-token-of-github"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    variables = {"A2A_AUTH_SHARED_KEY": KEY, "GITHUB_TOKEN": TOKEN}
    async with serve_unconfigured(tmp_path_factory.mktemp("home"), variables) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, url: str) -> AsyncIterator[Tabs]:
    async with open_tabs(browser, url) as tabs:
        tabs.expect("status of 401")  # before the sign-in
        yield tabs


async def open_signed_in(tabs: Tabs, path: str) -> Page:
    page = await tabs.open(path)
    await page.get_by_label("Key", exact=True).fill(KEY)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("navigation").first).to_be_visible()
    await expect(page).to_have_url(f"{tabs.origin}{path}")
    return page


@pytest.mark.full
async def test_an_agent_says_which_variables_are_missing(tabs: Tabs) -> None:
    page = await open_signed_in(tabs, "/c/-/agents")
    await page.get_by_role("button", name="Needs setup").click()
    agent = page.get_by_role("list", name="Agents").get_by_role("listitem").filter(has_text="Argo CD")
    await agent.locator("summary").click()
    await expect(agent).to_contain_text("ARGOCD_TOKEN=")
    await tabs.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await agent.get_by_role("button", name="Copy").click()
    await expect(agent.get_by_role("button", name="Copy")).to_have_text("Copied")
    assert "ARGOCD_TOKEN=" in await page.evaluate("navigator.clipboard.readText()")


@pytest.mark.full
async def test_the_first_start_says_how_to_choose_a_model(tabs: Tabs) -> None:
    page = await open_signed_in(tabs, "/")
    card = page.get_by_role("complementary", name="Getting started")
    await card.get_by_role("link", name="Show me how").click()
    step = page.get_by_role("listitem").filter(has_text="Choose a language model")
    await step.get_by_role("combobox", name="Provider").select_option("anthropic")
    await expect(step).to_contain_text("ANTHROPIC_API_KEY=")


async def test_settings_show_where_a_value_is_from_and_never_a_secret(tabs: Tabs) -> None:
    page = await open_signed_in(tabs, "/c/-/settings")
    settings = page.get_by_role("region", name="Configuration")
    await expect(settings).to_contain_text("A2A_AUTH_SHARED_KEY")
    await expect(settings).to_contain_text("GITHUB_TOKEN")
    await settings.get_by_role("button", name="All").click()
    await settings.get_by_role("searchbox", name="Search settings").fill("a2a_port")
    await expect(settings.locator("dt")).to_have_count(1)
    await expect(settings).to_contain_text("default")
    await settings.get_by_role("searchbox", name="Search settings").fill("")
    await expect(settings).to_contain_text("set, not shown")
    content = await page.content()
    assert KEY not in content
    assert TOKEN not in content


@pytest.mark.full
async def test_the_theme_is_kept(tabs: Tabs) -> None:
    page = await open_signed_in(tabs, "/c/-/settings")
    await page.get_by_role("region", name="This browser").get_by_role("button", name="Dark").click()
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.full
async def test_signing_out_asks_for_the_key_again(tabs: Tabs) -> None:
    page = await open_signed_in(tabs, "/c/-/settings")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Key", exact=True)).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Key", exact=True)).to_be_visible()
