"""Conversations in the browser: the model sends its next piece only after the page shows the one before."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import Tabs, open_tabs
from tests.support.client_stage import APPROVAL, FORM_QUESTION, HOLD
from tests.support.fakes.script import Call, Say, Turn
from tests.support.page_stage import PageStage, ask, conversation, expand_all, serve_page_stage
from tests.support.tcp_relay import relay_to

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[PageStage]:
    async with serve_page_stage() as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, stage: PageStage) -> AsyncIterator[Tabs]:
    async with open_tabs(browser, stage.url) as tabs:
        yield tabs


async def path_of(page: Page) -> str:
    """The path of the conversation, once it has one."""
    await page.wait_for_url("**/c/*")
    return page.url.partition("/c/")[1] + page.url.partition("/c/")[2]


async def test_an_answer_is_shown_while_it_is_written(tabs: Tabs, stage: PageStage) -> None:
    gated = stage.add_gated("Tell me piece by piece.")
    page = await tabs.open()
    await ask(page, gated.question)
    await gated.show(conversation(page))
    await expect(conversation(page)).to_contain_text(gated.text)
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert (await conversation(page).inner_text()).count(gated.pieces[-1]) == 1


@pytest.mark.full
async def test_a_reload_in_the_middle_goes_on_without_a_gap(tabs: Tabs, stage: PageStage) -> None:
    gated = stage.add_gated("Tell me across a reload.")
    page = await tabs.open()
    await ask(page, gated.question)
    await gated.show(conversation(page), until=2)
    await path_of(page)
    await page.reload()
    await gated.show(conversation(page), since=0)
    await expect(conversation(page)).to_contain_text(gated.text)
    assert (await conversation(page).inner_text()).count(gated.pieces[0]) == 1


@pytest.mark.full
async def test_two_tabs_show_the_same_run(tabs: Tabs, stage: PageStage) -> None:
    gated = stage.add_gated("Tell both of us.")
    first = await tabs.open()
    await ask(first, gated.question)
    await gated.show(conversation(first), until=1)
    second = await tabs.open(await path_of(first))
    # From here on a piece counts as seen when both tabs show it.
    await gated.show(conversation(first), conversation(second), since=0)
    for page in (first, second):
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        await expect(conversation(page)).to_contain_text(gated.text)


async def test_a_lost_connection_is_told_and_found_again(browser: Browser, stage: PageStage) -> None:
    gated = stage.add_gated("Tell me across a gap.", 6)
    port = urlsplit(stage.url).port
    assert port is not None
    async with relay_to(port) as (relay, url), open_tabs(browser, url) as tabs:
        tabs.expect("ERR_")
        page = await tabs.open()
        await ask(page, gated.question)
        await gated.show(conversation(page), until=3)
        relay.cut()
        await relay.refused.wait()
        await expect(page.get_by_text("Connection lost").first).to_be_visible()
        relay.mend()
        await gated.show(conversation(page), since=3)
        await expect(conversation(page)).to_contain_text(gated.text)
        await expect(page.get_by_text("Connection lost")).to_have_count(0)
        text = await conversation(page).inner_text()
    assert [text.count(piece) for piece in gated.pieces] == [1] * len(gated.pieces)


async def test_a_plan_shows_its_steps_and_the_calls_below_them(tabs: Tabs, stage: PageStage) -> None:
    todos = [
        {"id": "s1", "agent": "argocd", "title": "Look it up", "status": "in_progress"},
        {"id": "s2", "title": "Report back", "status": "pending"},
    ]
    stage.add(
        "Plan it.",
        Turn(Call("write_todos", {"title": "Look and report", "todos": todos})),
        Turn(Say("I ask. "), Call("task", {"description": "look", "subagent_type": "argocd"})),
        Turn(Say("It runs {{tool:argocd}}")),
    )
    page = await tabs.open()
    await ask(page, "Plan it.")
    turn = conversation(page)
    await expect(turn).to_contain_text(stage.stage.version.value)
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    await expand_all(turn)
    await expect(turn.get_by_text("Look it up").first).to_be_visible()
    await expect(turn.get_by_text("Report back").first).to_be_visible()
    await expect(turn.get_by_text("agent_version").first).to_be_visible()


async def test_a_form_is_checked_while_one_types_and_resumes_the_run(tabs: Tabs, stage: PageStage) -> None:
    page = await tabs.open()
    await ask(page, FORM_QUESTION)
    form = page.get_by_role("form", name="Create GitHub Repo")
    repository = form.get_by_role("textbox", name="Repository")
    await expect(repository).to_be_focused()
    await repository.fill("Not Allowed!")
    await form.get_by_role("button", name="Submit").click()
    await expect(form.get_by_role("alert").first).to_be_visible()
    await expect(repository).to_have_attribute("aria-invalid", "true")
    await repository.fill("my-repo")
    await expect(form.get_by_role("alert")).to_have_count(0)
    await form.get_by_role("button", name="Submit").click()
    await expect(conversation(page)).to_contain_text("Made my-repo.")


@pytest.mark.full
async def test_of_two_tabs_that_approve_at_once_one_wins_and_the_other_is_told(
    tabs: Tabs, stage: PageStage
) -> None:
    before = len(stage.stage.repos.made)
    first = await tabs.open()
    await ask(first, APPROVAL)
    await expect(first.get_by_role("button", name="Approve")).to_be_visible()
    second = await tabs.open(await path_of(first))
    await expect(second.get_by_role("button", name="Approve")).to_be_visible()
    for page, name in ((first, "first-name"), (second, "second-name")):
        await page.get_by_role("button", name="Edit arguments").click()
        await page.get_by_role("textbox", name="name").fill(name)
        await expect(page.get_by_text("Changed", exact=True)).to_be_visible()
    buttons = [page.get_by_role("button", name="Approve with changes") for page in (first, second)]
    for button in buttons:  # neither tab hears of the other before it has sent its own
        await button.evaluate("button => setTimeout(() => button.click(), 0)")
    for page in (first, second):
        await expect(conversation(page)).to_contain_text("is there.")
        await expect(page.get_by_role("button", name="Approve with changes")).to_have_count(0)
    made = [call["name"] for call in stage.stage.repos.made[before:]]
    assert made in (["first-name"], ["second-name"])
    for page in (first, second):
        await expect(conversation(page)).to_contain_text(f"{made[0]} is there.")
        await expect(conversation(page)).to_contain_text("Approved with changes")


async def test_stopping_ends_the_run(tabs: Tabs, stage: PageStage) -> None:
    page = await tabs.open()
    await ask(page, HOLD)
    await expect(conversation(page)).to_contain_text("Please hold.")
    await stage.stage.holding.started.wait()
    await page.get_by_role("button", name="Stop").click()
    await expect(conversation(page)).to_contain_text("Stopped")
    await stage.stage.holding.cancelled.wait()
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
