"""Tool calls with access tokens: owners apart, refreshed in time, a clear word when a sign-in is needed."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.mcp_client.mcp_errors import McpLoginRequired, McpUnavailable
from ai_platform_engineering.mcp_client.oauth.access_tokens import login_resource
from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from tests.support.fakes.mcp_servers import by_name, open_sessions, run_python_script, until
from tests.support.fakes.oauth_server import OAuthServer, allow, read_answer
from tests.support.oauth_stage import REDIRECT, OAuthStage, open_oauth_stage


@contextlib.asynccontextmanager
async def _open(
    tmp_path: Path, authorization: OAuthServer | None = None
) -> AsyncIterator[tuple[OAuthStage, McpSessionPool]]:
    home = tmp_path / "home"
    async with (
        open_oauth_stage(home, authorization) as stage,
        open_sessions(tmp_path, oauth=stage.oauth) as sessions,
    ):
        yield stage, sessions


async def _list_tools(
    sessions: McpSessionPool, server: McpServer, principal: str = ""
) -> dict[str, BaseTool]:
    return by_name(await sessions.tools("desk", server, principal=principal))


async def _call(tool: BaseTool, principal: str = "") -> str:
    return str(await tool.ainvoke({}, {"metadata": {"principal": principal}}))


async def test_people_call_tools_with_their_own_logins(tmp_path: Path) -> None:
    async with _open(tmp_path) as (stage, sessions):
        server = stage.server()
        with pytest.raises(McpLoginRequired, match="caipe agents login desk"):
            await _list_tools(sessions, server, "ada")
        await stage.sign_in("Ada L.", "ada")
        whoami = (await _list_tools(sessions, server, "ada"))["whoami"]
        assert await _call(whoami, "ada") == "signed in as Ada L."
        with pytest.raises(McpLoginRequired, match="has to sign in"):
            await _call(whoami, "bob")
        await stage.sign_in("Bob M.", "bob")
        answers = await asyncio.gather(*(_call(whoami, name) for name in ("ada", "bob") * 5))
        assert answers == ["signed in as Ada L.", "signed in as Bob M."] * 5


async def test_a_login_of_the_installation_serves_everybody(tmp_path: Path) -> None:
    async with _open(tmp_path) as (stage, sessions):
        server = stage.server(owner="installation")
        await stage.sign_in("robot", "operator", server)
        whoami = (await _list_tools(sessions, server))["whoami"]
        assert await _call(whoami, "ada") == await _call(whoami, "bob") == "signed in as robot"


async def test_an_expired_token_is_refreshed_once_for_all_who_wait(tmp_path: Path) -> None:
    other_process = OAuthAccess(tmp_path / "home", OAuthSettings())
    other_sessions = McpSessionPool(environment={}, oauth=other_process)
    async with _open(tmp_path, OAuthServer(lifetime=5)) as (stage, sessions):
        await stage.sign_in("ada")
        stage.authorization.lifetime = 3600
        pools = (sessions, other_sessions)
        tools = await asyncio.gather(*(_list_tools(pool, stage.server()) for pool in pools * 3))
        assert stage.authorization.refreshes == 1
        answers = await asyncio.gather(*(_call(tool["whoami"]) for tool in tools))
        assert set(answers) == {"signed in as ada"}
        assert stage.authorization.refreshes == 1
        await other_sessions.aclose()
        await other_process.aclose()


async def test_a_token_that_the_server_refuses_is_replaced_in_the_middle_of_a_call(tmp_path: Path) -> None:
    async with _open(tmp_path) as (stage, sessions):
        await stage.sign_in("ada")
        whoami = (await _list_tools(sessions, stage.server()))["whoami"]
        stage.authorization.expire_access_tokens()
        assert await _call(whoami) == "signed in as ada"
        assert stage.authorization.refreshes == 1


async def test_a_revoked_login_means_signing_in_again(tmp_path: Path) -> None:
    async with _open(tmp_path) as (stage, sessions):
        await stage.sign_in("ada")
        whoami = (await _list_tools(sessions, stage.server()))["whoami"]
        stage.authorization.revoke_all()
        for _ in range(2):
            with pytest.raises(McpLoginRequired, match="has to sign in") as failure:
                await _call(whoami)
            assert not any(secret in str(failure.value) for secret in stage.authorization.secrets)
        assert await stage.oauth.find_login(stage.server(), "") is None
        await stage.sign_in("ada")
        assert await _call(whoami) == "signed in as ada"


async def test_after_a_refresh_by_a_client_that_is_not_known_the_page_registers_again(tmp_path: Path) -> None:
    async with _open(tmp_path) as (stage, sessions):
        await stage.sign_in_on_page("ada")
        whoami = (await _list_tools(sessions, stage.server()))["whoami"]
        stage.authorization.clients.clear()
        stage.authorization.expire_access_tokens()
        with pytest.raises(McpLoginRequired, match="has to sign in"):
            await _call(whoami)
        await stage.sign_in_on_page("ada")
        assert await _call(whoami) == "signed in as ada"


async def test_a_token_for_another_audience_is_told(tmp_path: Path) -> None:
    async with _open(tmp_path) as (stage, sessions):
        await stage.sign_in("ada")
        whoami = (await _list_tools(sessions, stage.server()))["whoami"]
        stage.authorization.audience = "http://127.0.0.1:1/other"
        with pytest.raises(McpLoginRequired, match="another audience"):
            await _call(whoami)
        refreshes = stage.authorization.refreshes
        with pytest.raises(McpLoginRequired, match="another audience"):
            await _call(whoami)
        assert stage.authorization.refreshes == refreshes  # a token that was refused is not sent again


async def test_an_authorization_server_that_fails_costs_no_login(tmp_path: Path) -> None:
    async with _open(tmp_path, OAuthServer(lifetime=5)) as (stage, sessions):
        await stage.sign_in("ada")
        stage.authorization.lifetime = 3600
        stage.authorization.token_status = 503
        with pytest.raises(McpUnavailable, match="cannot be refreshed") as failure:
            await _list_tools(sessions, stage.server())
        assert not isinstance(failure.value, McpLoginRequired)
        stage.authorization.token_status = 0
        assert await _call((await _list_tools(sessions, stage.server()))["whoami"]) == "signed in as ada"


async def test_a_cancelled_call_does_not_lose_the_new_refresh_token(tmp_path: Path) -> None:
    async with _open(tmp_path, OAuthServer(lifetime=5)) as (stage, sessions):
        await stage.sign_in("ada")
        stage.authorization.lifetime = 3600
        call = asyncio.create_task(_list_tools(sessions, stage.server()))
        await until(lambda: stage.authorization.refreshes)
        call.cancel()
        await asyncio.wait({call})
        assert await _call((await _list_tools(sessions, stage.server()))["whoami"]) == "signed in as ada"
        assert stage.authorization.refreshes == 1


async def test_another_account_gets_another_session_and_signing_out_ends_it(tmp_path: Path) -> None:
    async with _open(tmp_path) as (stage, sessions):
        await stage.sign_in("ada")
        whoami = (await _list_tools(sessions, stage.server()))["whoami"]
        assert await _call(whoami) == "signed in as ada"
        await stage.sign_in("ada's other account")
        assert await _call(whoami) == "signed in as ada's other account"
        sign_ins = await stage.oauth.load_sign_ins()
        await sign_ins.sign_out(stage.target())
        with pytest.raises(McpLoginRequired):
            await _call(whoami)


async def test_tokens_reach_neither_results_nor_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with _open(tmp_path, OAuthServer(lifetime=5)) as (stage, sessions):
        await stage.sign_in("ada")
        leak = (await _list_tools(sessions, stage.server()))["leak"]
        assert await _call(leak) == "your token is ***"
        ours = [record.getMessage() for record in caplog.records if not record.name.startswith("mcp.server")]
        assert ours
        for secret in stage.authorization.secrets:
            assert not any(secret in message for message in ours)


async def test_sessions_of_many_people_are_limited(tmp_path: Path) -> None:
    async with (
        open_oauth_stage(tmp_path / "home", max_sessions=2) as stage,
        open_sessions(tmp_path, oauth=stage.oauth) as sessions,
    ):
        for name in ("ada", "bob", "cid"):
            await stage.sign_in(name, name)
        whoami = (await _list_tools(sessions, stage.server(), "ada"))["whoami"]
        for _ in range(2):
            for name in ("ada", "bob", "cid"):
                assert await _call(whoami, name) == f"signed in as {name}"


_DIES_BEFORE_STORING = """
import asyncio, os, sys
from pathlib import Path
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess
from ai_platform_engineering.mcp_client.oauth.token_store import TokenStore

async def die(*_):
    Path(sys.argv[5]).write_text("about to store")
    os.kill(os.getpid(), 9)

async def main():
    oauth = OAuthAccess(Path(sys.argv[1]), OAuthSettings())
    oauth.store.save_login = die
    sign_ins = await oauth.load_sign_ins()
    await sign_ins.finish_browser(*sys.argv[2:5], principal="ada")

asyncio.run(main())
"""


async def test_a_crash_between_exchange_and_store_leaves_nothing_half_done(tmp_path: Path) -> None:
    async with _open(tmp_path) as (stage, sessions):
        sign_ins = await stage.oauth.load_sign_ins()
        begun = await sign_ins.begin_browser(stage.target("ada"), REDIRECT, browser_secret=None)
        answer = read_answer(await allow(begun.authorization_url, "ada"))
        arguments = (answer["state"], answer["code"], answer["iss"])
        mark = tmp_path / "mark"
        with run_python_script(_DIES_BEFORE_STORING, tmp_path, str(stage.home), *arguments, str(mark)):
            await until(mark.exists, "the exchange")
        assert stage.authorization.access_tokens
        assert await stage.oauth.store.find_login("ada", login_resource(stage.server())) is None
        with pytest.raises(Exception, match="Begin again"):
            await sign_ins.finish_browser(*arguments, principal="ada")
        await stage.sign_in("ada", "ada")
        whoami = (await _list_tools(sessions, stage.server(), "ada"))["whoami"]
        assert await _call(whoami, "ada") == "signed in as ada"
