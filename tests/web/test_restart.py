"""A server that is killed under an open page: it goes on by itself when the server is back."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.agent_services import model_of, run_server_process
from tests.support.browser import open_tabs
from tests.support.fakes.openai_server import serve_openai
from tests.support.page_stage import PageStage, ask, conversation
from tests.support.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_killed_server_is_waited_for_and_nothing_is_lost_or_repeated(
    browser: Browser, tmp_path: Path
) -> None:
    stage = PageStage()
    gated = stage.add_gated("Tell me across a crash.", 6)
    port = str(free_port())
    async with serve_openai(stage) as model, open_tabs(browser, f"http://127.0.0.1:{port}") as tabs:
        tabs.expect("ERR_|Failed to load resource")  # what the browser says of a server that is gone
        env = {**model_of(model), "A2A_PORT": port, "STREAM_COALESCE_SECONDS": "0"}
        async with run_server_process("caipe", "serve", **env) as (server, _):
            page = await tabs.open()
            await ask(page, gated.question)
            await gated.show(conversation(page), until=3)
            server.process.kill()
            await server.process.wait()
            await expect(page.get_by_text("Connection lost").first).to_be_visible()
            await expect(conversation(page)).to_contain_text(gated.pieces[2])  # what was there stays
        gated.gate.seen(gated.pieces[3])  # it was on its way when the server died, and will be sent again
        async with run_server_process("caipe", "serve", **env):
            await gated.show(conversation(page), since=0)
            await expect(conversation(page)).to_contain_text(gated.text)
            await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
            await expect(page.get_by_text("Connection lost")).to_have_count(0)
            text = await conversation(page).inner_text()
    assert [text.count(piece) for piece in gated.pieces] == [1] * len(gated.pieces)
