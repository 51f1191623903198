"""What people do with conversations in the browser: find, rename, share, export, delete, rate, ask again."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.support.browser import Tabs, open_tabs
from tests.support.fakes.script import Say, Turn
from tests.support.page_stage import PageStage, ask, conversation, serve_page_stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[PageStage]:
    async with serve_page_stage() as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, stage: PageStage) -> AsyncIterator[Tabs]:
    async with open_tabs(browser, stage.url) as tabs:
        yield tabs


async def ask_and_read(page: Page, stage: PageStage, question: str, answer: str) -> None:
    stage.add(question, Turn(Say(answer)))
    await ask(page, question)
    await expect(conversation(page)).to_contain_text(answer)


async def open_menu(page: Page, title: str) -> Locator:
    """The menu of a conversation in the list."""
    button = page.get_by_role("navigation").get_by_role("button", name=f"Actions for {title}")
    await button.click()
    return page.get_by_role("menu")


async def test_a_conversation_is_renamed_found_and_deleted(tabs: Tabs, stage: PageStage) -> None:
    page = await tabs.open()
    await ask_and_read(page, stage, "Which zebra is it?", "The third zebra.")
    menu = await open_menu(page, "Which zebra is it?")
    await menu.get_by_role("menuitem", name="Rename").click()
    title = page.get_by_role("textbox", name="Rename")
    await title.fill("All about zebras")
    await title.press("Enter")
    sidebar = page.get_by_role("navigation")
    entry = sidebar.get_by_role("link", name="All about zebras")
    await expect(entry).to_be_visible()
    search = page.get_by_role("searchbox", name="Filter conversations")
    await search.fill("nothing of the kind")
    await expect(entry).to_have_count(0)
    await search.fill("zebras")
    await expect(entry).to_be_visible()
    menu = await open_menu(page, "All about zebras")
    await menu.get_by_role("menuitem", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(entry).to_have_count(0)
    other = await tabs.open()
    await expect(other.get_by_role("textbox", name="Message")).to_be_visible()
    await expect(other.get_by_text("All about zebras")).to_have_count(0)


async def test_a_link_shares_a_conversation_until_sharing_stops(tabs: Tabs, stage: PageStage) -> None:
    page = await tabs.open()
    await ask_and_read(page, stage, "What do we share?", "We share this.")
    menu = await open_menu(page, "What do we share?")
    await menu.get_by_role("menuitem", name="Share").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Create link").click()
    url = await dialog.get_by_role("textbox", name="Link").input_value()
    reader = await tabs.open(url.removeprefix(stage.url.rstrip("/")))
    await expect(reader.get_by_role("main")).to_contain_text("We share this.")
    await dialog.get_by_role("button", name="Stop sharing").click()
    await expect(dialog.get_by_role("button", name="Create link")).to_be_visible()
    tabs.expect("status of 404")
    await reader.reload()
    await expect(reader.get_by_text("This conversation is not shared.")).to_be_visible()


@pytest.mark.full
async def test_a_conversation_is_exported_with_all_its_turns(
    tabs: Tabs, stage: PageStage, tmp_path: Path
) -> None:
    page = await tabs.open()
    await ask_and_read(page, stage, "What comes first?", "This first answer.")
    await ask_and_read(page, stage, "What comes second?", "The other answer.")
    files: dict[str, str] = {}
    for label in ("Export as Markdown", "Export as JSON"):
        menu = await open_menu(page, "What comes first?")
        async with page.expect_download() as waiting:
            await menu.get_by_role("menuitem", name=label).click()
        download = await waiting.value
        path = tmp_path / download.suggested_filename
        await download.save_as(path)
        files[path.suffix] = path.read_text()
    order = ["What comes first?", "This first answer.", "What comes second?", "The other answer."]
    places = [files[".md"].index(text, files[".md"].index("\n")) for text in order]
    assert places == sorted(places)
    turns = json.loads(files[".json"])["turns"]
    assert [turn["transcript"]["answer"] for turn in turns] == ["This first answer.", "The other answer."]


@pytest.mark.full
async def test_a_question_is_edited_and_asked_again(tabs: Tabs, stage: PageStage) -> None:
    page = await tabs.open()
    await ask_and_read(page, stage, "How many nodes has staging?", "Staging has three.")
    stage.add("How many nodes has production?", Turn(Say("Production has nine.")))
    await conversation(page).get_by_role("button", name="Edit and ask again").click()
    editor = conversation(page).get_by_role("textbox", name="Edit and ask again")
    await editor.fill("How many nodes has production?")
    await editor.press("Enter")
    await expect(conversation(page)).to_contain_text("Production has nine.")


@pytest.mark.full
async def test_feedback_with_a_reason_is_kept_with_the_run(tabs: Tabs, stage: PageStage) -> None:
    page = await tabs.open()
    await ask_and_read(page, stage, "Is it good?", "It is bad.")
    group = conversation(page).get_by_role("group", name="Feedback")
    await group.get_by_role("button", name="Bad answer").click()
    reason = group.get_by_role("textbox")
    await reason.fill("It names no source.")
    await reason.press("Enter")
    await expect(group).to_contain_text("Thank you.")
    async with httpx.AsyncClient(base_url=stage.url) as http:
        runs = (await http.get("/v1/runs", params={"query": "Is it good?"})).json()["runs"]
        stored = (await http.get(f"/v1/tasks/{runs[0]['task_id']}/feedback")).json()
    assert "It names no source." in json.dumps(stored)


@pytest.mark.full
async def test_the_palette_opens_a_conversation_and_a_view(tabs: Tabs, stage: PageStage) -> None:
    page = await tabs.open()
    await ask_and_read(page, stage, "Where is the heron?", "At the pond.")
    await page.keyboard.press("Control+k")
    palette = page.get_by_role("combobox", name="Search commands")
    await palette.fill("workfl")
    await palette.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Workflows")
    await page.keyboard.press("Control+k")
    await palette.fill("heron")
    await expect(page.get_by_role("option").filter(has_text="Where is the heron?")).to_be_visible()
    await palette.press("Enter")
    await expect(conversation(page)).to_contain_text("At the pond.")


@pytest.mark.full
async def test_a_notification_tells_of_an_answer_only_when_asked_for(
    browser: Browser, stage: PageStage
) -> None:
    """The page is taken for hidden: a browser without a window has no tab that nobody looks at."""
    async with open_tabs(browser, stage.url) as tabs:
        await tabs.context.grant_permissions(["notifications"])
        page = await tabs.open()
        await page.evaluate(
            """() => {
              window.told = [];
              window.Notification = class {
                static permission = "granted";
                static requestPermission() { return Promise.resolve("granted"); }
                constructor(title, options) { window.told.push(`${title}: ${options.body}`); }
                close() {}
              };
              Object.defineProperty(document, "visibilityState", { get: () => "hidden" });
            }"""
        )
        await ask_and_read(page, stage, "Is anybody there?", "Nobody is told.")
        assert await page.evaluate("window.told") == []
        await page.get_by_role("button", name="Turn on notifications").click()
        await expect(page.get_by_role("button", name="Turn off notifications")).to_be_visible()
        await ask_and_read(page, stage, "Is anybody here?", "Somebody is told.")
        await page.wait_for_function("window.told.length === 1")
        assert await page.evaluate("window.told") == ["Answered: Is anybody here?"]
