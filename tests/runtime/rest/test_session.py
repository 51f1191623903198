"""The login of a page over HTTP: the key is sent once, and a cookie stands for it afterwards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from starlette.responses import Response

from ai_platform_engineering.a2a.on_behalf_of import USER_HEADER
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.server.sessions import Sessions
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import FAST

KEY = "the-key-of-this-server"
DELEGATE = "the-key-that-speaks-for-others"
ORIGIN = "http://127.0.0.1"
PAGE = {"Origin": ORIGIN}
ONE_TASK = {"jsonrpc": "2.0", "id": "1", "method": "tasks/get", "params": {"id": "none"}}


@asynccontextmanager
async def open_server(**env: str) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings.from_variables({**FAST, "A2A_AUTH_SHARED_KEY": KEY, **env})
    app = create_app(settings, model=ScriptedChatModel(script=Script(Turn(Say("Yes.")))))
    # The middleware and the routes alone: what starts and stops with the server is not needed here.
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as http:
        yield http


async def sign_in(http: httpx.AsyncClient, key: str = KEY, **headers: str) -> httpx.Response:
    return await http.post("/v1/session", json={"key": key}, headers={**PAGE, **headers})


def cookie_of(response: httpx.Response) -> Any:
    [morsel] = SimpleCookie(response.headers["set-cookie"]).values()
    return morsel


async def test_the_key_opens_a_session_that_authenticates() -> None:
    async with open_server() as http:
        before = (await http.get("/v1/session")).json()
        assert before == {"authenticated": False, "login": "key", "user": None}
        opened = await sign_in(http)
        assert (opened.status_code, opened.content) == (204, b"")
        cookie = cookie_of(opened)
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
        assert (cookie["secure"], cookie["max-age"]) == ("", str(7 * 86400))
        assert KEY not in opened.headers["set-cookie"]
        after = await http.get("/v1/session")
        assert after.json() == {"authenticated": True, "login": "key", "user": "shared-key"}
        assert after.headers["cache-control"] == "no-store"
        answer = await http.post("/", json=ONE_TASK, headers=PAGE)
        assert answer.json()["error"]["code"] == -32001
        assert "components" in (await http.get("/ready")).json()


async def test_signing_out_ends_it() -> None:
    async with open_server() as http:
        await sign_in(http)
        closed = await http.delete("/v1/session", headers=PAGE)
        assert closed.status_code == 204
        assert (await http.get("/v1/session")).json()["authenticated"] is False
        assert (await http.post("/", json=ONE_TASK, headers=PAGE)).status_code == 401


async def test_behind_tls_the_cookie_is_for_tls_alone() -> None:
    async with open_server(A2A_HOST="0.0.0.0") as http:
        opened = await sign_in(http, Origin="https://127.0.0.1")
    assert cookie_of(opened)["secure"] is True


@pytest.mark.parametrize("key", ["wrong", DELEGATE])
async def test_another_key_is_refused_in_words(key: str) -> None:
    """The delegate key, too: a page never speaks for others."""
    async with open_server(A2A_AUTH_DELEGATE_KEY=DELEGATE) as http:
        refused = await sign_in(http, key)
    assert refused.status_code == 401
    assert refused.json()["detail"] == "The server does not accept this key."
    assert "set-cookie" not in refused.headers


async def test_wrong_keys_are_counted_with_those_of_other_clients() -> None:
    async with open_server(A2A_MAX_WRONG_KEYS="2") as http:
        assert (await sign_in(http, "first")).status_code == 401
        bearer = {"Authorization": "Bearer second"}
        assert (await http.post("/", json=ONE_TASK, headers=bearer)).status_code == 401
        blocked = await sign_in(http)
    assert (blocked.status_code, blocked.headers["retry-after"]) == (429, "10")
    assert "Too many wrong keys" in blocked.json()["detail"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"key": ""}', b'{"key": 1}', b"{" * 10, b"x" * 20_000])
async def test_a_malformed_login_is_refused(body: bytes) -> None:
    async with open_server() as http:
        json_type = {**PAGE, "Content-Type": "application/json"}
        assert (await http.post("/v1/session", content=body, headers=json_type)).status_code == 400
        form = {**PAGE, "Content-Type": "application/x-www-form-urlencoded"}
        assert (await http.post("/v1/session", content=f"key={KEY}", headers=form)).status_code == 400


OTHERS: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "http://127.0.0.1:9999"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {},
]


@pytest.mark.parametrize("headers", OTHERS, ids=str)
async def test_a_page_of_another_origin_cannot_use_the_cookie(headers: dict[str, str]) -> None:
    """Reached over the network, where Host and Origin are not checked for everybody."""
    async with open_server(A2A_HOST="0.0.0.0") as http:
        await sign_in(http)
        refused = await http.post("/", json=ONE_TASK, headers=headers)
        assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
        if headers:
            assert (await http.get("/v1/conversations", headers=headers)).status_code == 403
            assert (await sign_in(http, KEY, Origin="http://evil.example")).status_code == 403
            assert (await http.delete("/v1/session", headers=headers)).status_code == 403


async def test_a_session_names_nobody_else() -> None:
    async with open_server(A2A_AUTH_DELEGATE_KEY=DELEGATE) as http:
        await sign_in(http)
        refused = await http.get("/v1/conversations", headers={**PAGE, USER_HEADER: "ann"})
    assert refused.status_code == 403
    assert "may not speak for others" in refused.json()["message"]


async def test_an_older_key_of_the_server_opens_nothing() -> None:
    async with open_server() as http:
        opened = await sign_in(http)
        token = opened.headers["set-cookie"].partition(";")[0]
    async with open_server(A2A_AUTH_SHARED_KEY="another-key-since-today") as http:
        answer = await http.get("/v1/conversations", headers={**PAGE, "Cookie": token})
        assert answer.status_code == 401
    async with open_server() as http:  # a restart, or another replica
        assert (await http.get("/v1/session", headers={"Cookie": token})).json()["authenticated"] is True


def test_a_token_ends_and_cannot_be_changed() -> None:
    settings = Settings.from_variables({"A2A_SESSION_SECONDS": "60"}).server
    now = 1_000_000.0
    sessions = Sessions(KEY.encode(), settings, lambda: now)
    response = Response()
    sessions.open(response, Headers({}))
    cookie = response.headers["set-cookie"].partition(";")[0]

    def is_valid(cookie: str) -> bool:
        return sessions.is_valid(Headers({"cookie": cookie}))

    assert is_valid(cookie)
    name, _, token = cookie.partition("=")
    ends, nonce, signature = token.split(".")
    assert not is_valid(f"{name}={int(ends) + 1}.{nonce}.{signature}")
    assert not is_valid(f"{name}={ends}.{nonce}x.{signature}")
    assert not is_valid(f"{name}={ends}.{nonce}.")
    assert not is_valid(f"{name}=")
    assert not is_valid(f"{name}=..é")
    assert not is_valid(f"other={token}")
    now += 61
    assert not is_valid(cookie)


async def test_without_keys_everybody_is_known() -> None:
    settings = Settings.from_variables(FAST)
    app = create_app(settings, model=ScriptedChatModel(script=Script(Turn(Say("Yes.")))))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as http:
        session = (await http.get("/v1/session")).json()
        assert session == {"authenticated": True, "login": "none", "user": None}
        assert (await sign_in(http)).status_code == 204


async def test_with_the_delegate_key_alone_nobody_can_sign_in() -> None:
    settings = Settings.from_variables({**FAST, "A2A_AUTH_DELEGATE_KEY": DELEGATE})
    app = create_app(settings, model=ScriptedChatModel(script=Script(Turn(Say("Yes.")))))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as http:
        refused = await sign_in(http, DELEGATE)
    assert (refused.status_code, "A2A_AUTH_SHARED_KEY" in refused.json()["detail"]) == (401, True)


async def test_a_server_that_changes_nothing_lets_people_sign_in() -> None:
    async with open_server(READ_ONLY="true") as http:
        assert (await sign_in(http)).status_code == 204
        assert (await http.delete("/v1/session", headers=PAGE)).status_code == 204
