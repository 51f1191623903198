"""Signing in to a stock MCP server with OAuth: browser, device, refusals, and what is stored."""

import sqlite3
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import ConfigurationError, Refused
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.mcp_client.oauth.access_tokens import login_resource
from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess
from ai_platform_engineering.mcp_client.oauth.oauth_errors import SignInFailed
from ai_platform_engineering.mcp_client.oauth.sign_ins import SignedIn
from tests.support.fakes.oauth_server import OAuthServer, allow, read_answer
from tests.support.oauth_stage import REDIRECT, OAuthStage, open_oauth_stage


async def _has_login(stage: OAuthStage, principal: str = "") -> bool:
    return await stage.oauth.find_login(stage.server(), principal) is not None


async def test_a_browser_signs_in_and_the_file_holds_no_token(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        await stage.sign_in("ada")
        assert await _has_login(stage)
        [form] = [form for path, form in stage.authorization.forms if path == "/token"]
        assert form["resource"] == stage.url
        assert len(form["code_verifier"]) >= 43
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        for secret in (*stage.authorization.secrets, form["code"], form["code_verifier"]):
            assert secret.encode() not in stored
        assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


async def test_a_device_signs_in_when_the_person_has_entered_the_code(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        sign_ins = await stage.oauth.load_sign_ins()
        begun = await sign_ins.begin_device(stage.target("ada"))
        assert begun.verification_uri == f"{stage.authorization.url}/device"
        assert await sign_ins.poll_device(begun.state, principal="ada") == begun.interval
        with pytest.raises(SignInFailed, match="elsewhere"):
            await sign_ins.poll_device(begun.state, principal="eve")
        stage.authorization.approve_device(begun.user_code, "ada")
        assert await sign_ins.poll_device(begun.state, principal="ada") == SignedIn("desk", "desk")
        assert await _has_login(stage, "ada")
        with pytest.raises(SignInFailed, match="not known"):
            await sign_ins.poll_device(begun.state, principal="ada")


async def test_a_device_is_registered_again_with_a_server_that_has_lost_its_clients(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        sign_ins = await stage.oauth.load_sign_ins()
        await sign_ins.begin_device(stage.target("ada"))
        [first_client] = stage.authorization.clients
        stage.authorization.clients.clear()
        begun = await sign_ins.begin_device(stage.target("ada"))
        [second_client] = stage.authorization.clients
        assert first_client != second_client
        stage.authorization.approve_device(begun.user_code, "ada")
        assert await sign_ins.poll_device(begun.state, principal="ada") == SignedIn("desk", "desk")


async def test_after_a_refusal_of_our_client_a_browser_is_registered_again(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        sign_ins = await stage.oauth.load_sign_ins()
        begun = await sign_ins.begin_browser(stage.target("ada"), REDIRECT, browser_secret="of ada")
        answer = read_answer(await allow(begun.authorization_url, "ada"))
        stage.authorization.clients.clear()
        with pytest.raises(SignInFailed, match="invalid_client"):
            await sign_ins.finish_browser(
                answer["state"], answer["code"], answer["iss"], browser_secret="of ada"
            )
        await stage.sign_in_on_page("ada", "ada")
        assert await _has_login(stage, "ada")


async def test_a_device_flow_that_is_not_offered_is_told(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path, OAuthServer(has_device_flow=False)) as stage:
        sign_ins = await stage.oauth.load_sign_ins()
        with pytest.raises(SignInFailed, match="no device flow"):
            await sign_ins.begin_device(stage.target())


async def test_an_answer_is_used_once_and_by_its_own_person_or_browser(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        sign_ins = await stage.oauth.load_sign_ins()
        begun = await sign_ins.begin_browser(stage.target("ada"), REDIRECT, browser_secret="of this browser")
        answer = read_answer(await allow(begun.authorization_url, "ada"))
        state, code, issuer = answer["state"], answer["code"], answer["iss"]
        for secret in (None, "of another browser"):
            with pytest.raises(SignInFailed, match="elsewhere"):
                await sign_ins.finish_browser(state, code, issuer, principal="ada", browser_secret=secret)
        await sign_ins.finish_browser(state, code, issuer, browser_secret="of this browser")
        with pytest.raises(SignInFailed, match="finished already"):
            await sign_ins.finish_browser(state, code, issuer, browser_secret="of this browser")
        with pytest.raises(SignInFailed, match="not known"):
            await sign_ins.finish_browser("made up", code, issuer, principal="ada")


async def test_an_answer_of_another_authorization_server_is_refused(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        sign_ins = await stage.oauth.load_sign_ins()
        for issuer in (None, "http://127.0.0.1:1"):
            begun = await sign_ins.begin_browser(stage.target(), REDIRECT, browser_secret=None)
            answer = read_answer(await allow(begun.authorization_url, "ada"))
            with pytest.raises(SignInFailed, match="another authorization server"):
                await sign_ins.finish_browser(answer["state"], answer["code"], issuer, principal="")
        assert not await _has_login(stage)
        assert stage.authorization.secrets == []


async def test_a_person_who_denies_is_not_signed_in(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        sign_ins = await stage.oauth.load_sign_ins()
        begun = await sign_ins.begin_browser(stage.target(), REDIRECT, browser_secret=None)
        answer = read_answer(await allow(begun.authorization_url, "ada", "no"))
        with pytest.raises(SignInFailed, match="access_denied"):
            await sign_ins.refuse(answer["state"], answer["error"], principal="")
        assert not await _has_login(stage)


async def test_a_token_for_another_audience_is_refused_told_and_revoked(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path, OAuthServer(audience="http://127.0.0.1:1/other")) as stage:
        with pytest.raises(SignInFailed, match="another audience") as failure:
            await stage.sign_in("ada")
        assert not any(secret in str(failure.value) for secret in stage.authorization.secrets)
        assert not await _has_login(stage)
        assert all(token.grant.is_revoked for token in stage.authorization.access_tokens.values())


async def test_signing_out_revokes_and_deletes(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        await stage.sign_in("ada", "ada")
        await stage.sign_in("bob", "bob")
        sign_ins = await stage.oauth.load_sign_ins()
        assert await sign_ins.sign_out(stage.target("ada"))
        assert not await sign_ins.sign_out(stage.target("ada"))
        assert not await _has_login(stage, "ada")
        assert await _has_login(stage, "bob")
        revoked = {t.grant.subject for t in stage.authorization.access_tokens.values() if t.grant.is_revoked}
        assert revoked == {"ada"}


async def test_a_client_is_registered_once_for_browsers_of_the_page(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        sign_ins = await stage.oauth.load_sign_ins()
        for _ in range(2):
            await sign_ins.begin_browser(stage.target(), REDIRECT, browser_secret="secret")
        assert len(stage.authorization.clients) == 1


async def test_without_registration_a_client_id_has_to_be_configured(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path, OAuthServer(has_registration=False)) as stage:
        with pytest.raises(SignInFailed, match="set `client_id`"):
            await stage.sign_in("ada")
        stage.authorization.clients["ours"] = {"redirect_uris": [REDIRECT]}
        await stage.sign_in("ada", server=stage.server(client_id="ours"))
        assert await _has_login(stage)


async def test_pending_sign_ins_are_limited_and_expire(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path, max_pending_per_user=2) as stage:
        sign_ins = await stage.oauth.load_sign_ins()
        for _ in range(2):
            begun = await sign_ins.begin_browser(stage.target("ada"), REDIRECT, browser_secret=None)
        with pytest.raises(Refused, match="not finished"):
            await sign_ins.begin_browser(stage.target("ada"), REDIRECT, browser_secret=None)
        answer = read_answer(await allow(begun.authorization_url, "ada"))
        with sqlite3.connect(tmp_path / "mcp-oauth.db") as db:
            db.execute("UPDATE pending_sign_ins SET ends_at = 0")
        with pytest.raises(SignInFailed, match="took too long"):
            await sign_ins.finish_browser(answer["state"], answer["code"], answer["iss"], principal="ada")
        await sign_ins.begin_browser(stage.target("ada"), REDIRECT, browser_secret=None)


async def test_stored_logins_are_limited(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path, max_logins=1) as stage:
        await stage.sign_in("ada", "ada")
        await stage.sign_in("ada", "ada")
        with pytest.raises(Refused, match="MCP_OAUTH_MAX_LOGINS"):
            await stage.sign_in("bob", "bob")


async def test_rows_cannot_be_exchanged_and_a_lost_key_means_signing_in_again(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path) as stage:
        await stage.sign_in("ada", "ada")
        resource = login_resource(stage.server())
        with sqlite3.connect(tmp_path / "mcp-oauth.db") as db:
            db.execute(
                "INSERT INTO logins SELECT 'eve', resource, sealed, version, signed_in_at, 0 FROM logins"
            )
        assert await stage.oauth.store.find_login("ada", resource) is not None
        assert await stage.oauth.store.find_login("eve", resource) is None
        (tmp_path / "mcp-oauth.key").unlink()
        reopened = OAuthAccess(tmp_path, OAuthSettings())
        assert await reopened.store.find_login("ada", resource) is None
        await reopened.aclose()


async def test_a_key_file_without_a_key_is_told(tmp_path: Path) -> None:
    (tmp_path / "mcp-oauth.key").write_text("nonsense")
    async with open_oauth_stage(tmp_path) as stage:
        with pytest.raises(ConfigurationError, match="holds no key"):
            await stage.sign_in("ada")


async def test_a_configured_key_needs_no_file(tmp_path: Path) -> None:
    async with open_oauth_stage(tmp_path, encryption_key="a key of sixteen characters") as stage:
        await stage.sign_in("ada")
        assert await _has_login(stage)
        assert not (tmp_path / "mcp-oauth.key").exists()
