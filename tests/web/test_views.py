"""The views beside the conversation, on a server with agents, a workflow, skills and documents."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import SECONDS, Tabs, open_tabs
from tests.support.client_stage import APPROVAL, FORM_QUESTION, VERSION
from tests.support.dialects import V10
from tests.support.fakes.site import Page as WebPage
from tests.support.fakes.site import serve_site
from tests.support.harness import PLAIN, Client, ReceivedStream
from tests.support.knowledge import wait_until
from tests.support.skill_files import BLOCKED, skill_md
from tests.support.view_stage import ViewStage, serve_views

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=SECONDS * 1000)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ViewStage]:
    async with serve_views(tmp_path_factory.mktemp("views")) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, stage: ViewStage) -> AsyncIterator[Tabs]:
    async with open_tabs(browser, stage.url) as tabs:
        yield tabs


async def test_an_approval_is_answered_from_the_inbox(tabs: Tabs, stage: ViewStage) -> None:
    context_id = await stage.ask_until_paused(APPROVAL)
    page = await tabs.open("/c/-/inbox")
    await expect(page).to_have_title("(1) AI platform engineer")
    request = page.get_by_role("region", name="asks to run create_repo").last
    await expect(page.get_by_text("Expires in")).to_be_visible()
    await request.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("The run continues with your answer.")).to_be_visible()
    await wait_until(lambda: stage.repos.made)
    assert stage.repos.made == [{"name": "blog", "private": False, "stars": 1}]
    await expect(page).to_have_title("AI platform engineer")
    await page.get_by_role("link", name="Follow it in the conversation").click()
    await expect(page).to_have_url(f"{tabs.origin}/c/{context_id}")


@pytest.mark.full
async def test_a_wrong_value_of_a_form_is_told_in_the_inbox_and_a_right_one_is_taken(
    tabs: Tabs, stage: ViewStage
) -> None:
    await stage.ask_until_paused(FORM_QUESTION)
    page = await tabs.open("/c/-/inbox")
    form = page.get_by_role("form", name="Create GitHub Repo")
    await form.get_by_role("textbox", name="Repository").fill("Not a name!")
    await form.get_by_role("button", name="Submit").click()
    await expect(form.get_by_role("alert")).to_be_visible()
    await form.get_by_role("textbox", name="Repository").fill("blog")
    await form.get_by_role("button", name="Submit").click()
    await expect(page.get_by_role("status").get_by_text("Answered")).to_be_visible()


@pytest.mark.full
async def test_nothing_waits(tabs: Tabs) -> None:
    page = await tabs.open("/c/-/inbox")
    await expect(page.get_by_text("Nothing is waiting for you.")).to_be_visible()


async def test_agents_show_their_tools_and_which_ask_first(tabs: Tabs) -> None:
    page = await tabs.open("/c/-/agents")
    agents = page.get_by_role("list", name="Agents")
    await expect(agents.get_by_role("listitem")).to_have_count(2)
    await page.get_by_role("searchbox", name="Search agents and tools").fill("creates a repository")
    await expect(agents.locator("summary")).to_have_count(1)
    await agents.locator("summary").click()
    tool = agents.get_by_role("listitem").filter(has=page.get_by_text("create_repo", exact=True)).last
    await expect(tool).to_contain_text("asks first")
    await expect(tool).to_contain_text("Creates a repository.")


async def test_a_workflow_is_started_from_its_form_and_asks_nothing_twice(
    tabs: Tabs, stage: ViewStage
) -> None:
    page = await tabs.open("/c/-/workflows")
    await page.get_by_role("link", name="Start Create a repository").click()
    await page.get_by_role("textbox", name="Repository").fill("Wrong name")
    await page.get_by_role("button", name="Submit").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.get_by_role("textbox", name="Repository").fill("site")
    await page.get_by_role("button", name="Submit").click()
    await expect(page).not_to_have_url(f"{tabs.origin}/c/-/workflows/create-repository")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("Made site.").first).to_be_visible()
    await expect(page.get_by_role("link", name="Create a repository")).to_be_visible()  # its title
    assert stage.repos.made[-1]["name"] == "site"


@pytest.mark.full
async def test_a_skill_is_read_and_switched_off_and_on(tabs: Tabs) -> None:
    page = await tabs.open("/c/-/skills")
    await page.get_by_role("link", name="triage").click()
    detail = page.get_by_role("region", name="triage")
    await expect(detail.get_by_role("heading", name="Triage", exact=True)).to_be_visible()
    await detail.get_by_text("guide.md").click()
    await expect(detail.get_by_text("Be calm.")).to_be_visible()
    switch = detail.get_by_role("switch", name="Enabled")
    await switch.click()
    await expect(detail.get_by_text("Disabled", exact=True)).to_be_visible()
    await page.reload()
    await expect(switch).not_to_be_checked()
    await switch.click()
    await expect(detail.get_by_text("In use", exact=True)).to_be_visible()


@pytest.mark.full
async def test_a_skill_is_added_after_its_findings_are_shown_and_deleted(tabs: Tabs) -> None:
    page = await tabs.open("/c/-/skills")
    await page.get_by_role("button", name="Add skill").click()
    dialog = page.get_by_role("dialog", name="Add skill")
    text = dialog.get_by_role("textbox", name="SKILL.md")
    await text.fill("No front matter")
    await dialog.get_by_role("button", name="Check").click()
    await expect(dialog.get_by_text("This is not a skill yet")).to_be_visible()
    await text.fill(skill_md("helper", BLOCKED))
    await dialog.get_by_role("button", name="Check").click()
    await expect(dialog.get_by_role("list", name="What the scan found")).to_contain_text("Blocks.")
    await expect(page.get_by_role("link", name="helper")).to_have_count(0)
    await dialog.get_by_role("button", name="Add skill").click()
    await expect(dialog).to_have_count(0)
    await page.get_by_role("link", name="helper").click()
    detail = page.get_by_role("region", name="helper")
    await expect(detail.get_by_text("Disabled", exact=True)).to_be_visible()
    await detail.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("link", name="helper")).to_have_count(0)


async def test_a_folder_is_added_and_a_search_finds_it(tabs: Tabs, stage: ViewStage) -> None:
    folder = stage.folder / "handbook"
    folder.mkdir()
    (folder / "rota.md").write_text("# Rota\n\nThe pager is answered by the gardener.\n")
    tabs.expect("status of 400")  # of a folder that is not there
    page = await tabs.open("/c/-/knowledge")
    await page.get_by_role("button", name="Add", exact=True).click()
    dialog = page.get_by_role("dialog", name="Add")
    await dialog.get_by_role("button", name="Folder").click()
    await dialog.get_by_role("textbox", name="Folder on the server").fill("/no/such/folder")
    await dialog.get_by_role("button", name="Add").click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await dialog.get_by_role("textbox", name="Folder on the server").fill(str(folder))
    await dialog.get_by_role("button", name="Add").click()
    source = page.get_by_role("list", name="Datasources").get_by_role("listitem").filter(has_text="handbook")
    await expect(source).to_contain_text("Ready")
    await search(page, "who answers the pager")
    passage = page.get_by_role("list", name="Passages").get_by_role("listitem").first
    await expect(passage).to_contain_text("The pager is answered by the gardener.")
    await passage.get_by_role("link", name="Rota").click()
    document = page.get_by_role("dialog", name="Rota")
    await expect(document).to_contain_text("answered by the gardener")
    await page.keyboard.press("Escape")
    await expect(document).to_have_count(0)
    await source.locator("summary").click()
    await source.get_by_role("button", name="Remove").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(page.get_by_text("There are no datasources yet.")).to_be_visible()


@pytest.mark.full
async def test_a_job_shows_its_progress_and_is_stopped(tabs: Tabs) -> None:
    start = WebPage('<title>Start</title><p>Welcome</p><a href="/slow">slow</a>')
    async with serve_site({"/": start, "/slow": WebPage(endless=True)}) as site:
        page = await tabs.open("/c/-/knowledge")
        await page.get_by_role("button", name="Add", exact=True).click()
        dialog = page.get_by_role("dialog", name="Add")
        await dialog.get_by_role("button", name="Web site").click()
        await dialog.get_by_role("textbox", name="Address of the site").fill(site.url)
        await dialog.get_by_role("textbox", name="Name (optional)").fill("slow")
        await dialog.get_by_role("button", name="Add").click()
        source = page.get_by_role("list", name="Datasources").get_by_role("listitem").filter(has_text="slow")
        await expect(source.get_by_role("progressbar")).to_be_visible()
        await source.get_by_role("button", name="Stop").click()
        await expect(source.get_by_role("progressbar")).to_have_count(0)
        await source.locator("summary").click()
        await source.get_by_role("button", name="Remove").click()
        await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        await expect(source).to_have_count(0)


@pytest.mark.full
async def test_an_uploaded_file_is_found_and_the_page_says_why(tabs: Tabs, tmp_path: Path) -> None:
    file = tmp_path / "runbook.md"
    file.write_text("# Runbook\n\nRestart the carburettor before the ignition.\n")
    page = await tabs.open("/c/-/knowledge")
    await page.get_by_role("button", name="Add", exact=True).click()
    dialog = page.get_by_role("dialog", name="Add")
    await dialog.get_by_label("Choose files").set_input_files(file)
    await expect(dialog.get_by_role("list", name="Uploads")).to_contain_text("uploaded")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("list", name="Datasources")).to_contain_text("Ready")
    await search(page, "carburettor")
    passage = page.get_by_role("list", name="Passages").get_by_role("listitem").first
    await expect(passage.locator("mark")).to_have_text("carburettor")
    await expect(passage).to_contain_text("the word carburettor")
    await passage.get_by_role("link", name="Runbook").click()
    await page.get_by_role("dialog", name="Runbook").get_by_role("button", name="Delete").click()
    uploads = page.get_by_role("list", name="Datasources").get_by_role("listitem").filter(has_text="Uploaded")
    await expect(uploads).to_contain_text("0 documents")


async def search(page: Page, words: str) -> None:
    await page.get_by_role("searchbox", name="Try a search").fill(words)
    await page.keyboard.press("Enter")


@pytest.mark.full
async def test_runs_are_filtered_and_open_at_their_place(tabs: Tabs, stage: ViewStage) -> None:
    context_id = await stage.ask_until_paused(APPROVAL)
    page = await tabs.open("/c/-/runs")
    waiting = page.get_by_role("row").filter(has_text="Waiting for you")
    await expect(waiting).to_have_count(1)
    await page.get_by_role("combobox", name="State").select_option("Failed")
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()
    await page.get_by_role("combobox", name="State").select_option("Waiting for you")
    await page.get_by_role("combobox", name="Agent").select_option("github")
    await page.get_by_role("searchbox", name="Search questions").fill("repo now")
    await expect(waiting).to_have_count(1)
    await waiting.get_by_role("link", name=APPROVAL).click()
    await expect(page).to_have_url(f"{tabs.origin}/c/{context_id}#task-" + page.url.rpartition("#task-")[2])


async def test_a_shared_conversation_is_read_only(tabs: Tabs, stage: ViewStage) -> None:
    async with httpx.AsyncClient(base_url=stage.url, timeout=SECONDS, verify=PLAIN) as http:
        client = Client(stage.url, http)
        stream = ReceivedStream([frame async for frame in client.open(V10.stream, V10.message(VERSION))])
        share = (await http.post("/v1/shares", json={"context_id": stream.context_id})).json()
        page = await tabs.open(share["path"])
        conversation = page.get_by_role("main")
        await expect(conversation).to_contain_text(stage.clients.version.answer)
        await expect(conversation).to_contain_text(VERSION)
        await expect(conversation.get_by_role("textbox")).to_have_count(0)
        await http.delete(f"/v1/shares/{share['token']}")
    tabs.expect("status of 404")
    await page.reload()
    await expect(page.get_by_text("This conversation is not shared.")).to_be_visible()
