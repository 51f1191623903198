"""Signing in to an agent's hosted tool server on the page: the button, the authorization server, and back."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from tests.support.accessibility import find_violations
from tests.support.browser import Tabs, open_tabs
from tests.support.fakes.oauth_server import OAuthServer, serve_oauth
from tests.support.harness import FAST, serve_app
from tests.support.oauth_stage import serve_protected

pytestmark = pytest.mark.asyncio(loop_scope="session")
KEY = "the-key-of-this-server"


@pytest_asyncio.fixture(loop_scope="session")
async def authorization() -> AsyncIterator[OAuthServer]:
    async with serve_oauth() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, authorization: OAuthServer, tmp_path: Path) -> AsyncIterator[Tabs]:
    async with serve_protected(authorization.url) as url:
        definition = {
            "name": "desk",
            "description": "Knows the desk.",
            "mcpServers": {"desk": {"url": url, "auth": "oauth"}},
        }
        (tmp_path / "desk.json").write_text(json.dumps(definition))
        variables = {
            **FAST,
            "AGENTS_CONFIG": str(tmp_path / "desk.json"),
            "CAIPE_HOME": str(tmp_path / "home"),
            "A2A_AUTH_SHARED_KEY": KEY,
        }
        app = build_app(Settings.from_variables(variables), variables)
        async with serve_app(app) as own_url, open_tabs(browser, own_url) as tabs:
            tabs.expect("status of 401")
            yield tabs


async def test_a_person_signs_in_with_a_page_of_the_authorization_server_and_out(
    tabs: Tabs, authorization: OAuthServer
) -> None:
    page = await tabs.open("/c/-/agents")
    await page.get_by_label("Key", exact=True).fill(KEY)
    await page.keyboard.press("Enter")
    row = page.get_by_role("listitem").filter(has=page.get_by_text("Knows the desk.")).first
    await expect(row.get_by_text("Sign-in needed")).to_be_visible()
    await row.locator("summary").click()
    await expect(row.get_by_text("You are not signed in.")).to_be_visible()
    assert await find_violations(page) == []

    async with page.context.expect_page() as opened:
        await row.get_by_role("button", name="Sign in to desk").click()
    sign_in = await opened.value
    await sign_in.get_by_label("Name").fill("ada")
    await sign_in.get_by_role("button", name="Allow").click()
    await expect(sign_in.get_by_role("heading", name="Signed in")).to_be_visible()
    assert await find_violations(sign_in) == []
    await sign_in.close()

    await page.get_by_role("button", name="Refresh").click()
    await expect(row.get_by_text("You are signed in.")).to_be_visible()
    [token] = authorization.access_tokens.values()
    assert token.grant.subject == "ada"
    kept = await page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})")
    assert not any(secret in kept for secret in authorization.secrets)

    await row.get_by_role("button", name="Sign out of desk").click()
    await expect(row.get_by_text("You are not signed in.")).to_be_visible()
    assert token.grant.is_revoked


@pytest.mark.full
async def test_a_person_who_denies_is_told(tabs: Tabs, authorization: OAuthServer) -> None:
    page = await tabs.open("/c/-/agents")
    await page.get_by_label("Key", exact=True).fill(KEY)
    await page.keyboard.press("Enter")
    row = page.get_by_role("listitem").filter(has=page.get_by_text("Knows the desk.")).first
    await row.locator("summary").click()
    async with page.context.expect_page() as opened:
        await row.get_by_role("button", name="Sign in to desk").click()
    sign_in = await opened.value
    await sign_in.get_by_role("button", name="Deny").click()
    await expect(sign_in.get_by_text("access_denied")).to_be_visible()
    assert authorization.access_tokens == {}
