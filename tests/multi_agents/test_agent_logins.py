"""Signing in to a hosted tool server through the real supervisor: routes of the page, runs, keys, people."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.events import Notice, ToolFinished
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from tests.support.fakes.oauth_server import OAuthServer, allow, serve_oauth
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.oauth_stage import serve_protected
from tests.support.providers import OPENAI

KEY = "the-shared-key-of-this-server"
DELEGATE_KEY = "the-delegate-key-of-this-server"
LOGIN = "v1/agents/desk/login"

ASKS = Script(
    Turn(Call("task", {"description": "who am I there", "subagent_type": "desk"})),
    Turn(Say("{{tool:desk}}")),
)
WORKER = Script(Turn(Call("whoami", {})), Turn(Say("{{tool:whoami}}")))
WITHOUT_TOOLS = Script(Turn(Say("I cannot: a sign-in is needed.")))


@dataclass
class _Platform:
    """The supervisor with one agent whose tool server wants tokens."""

    client: Client
    authorization: OAuthServer
    book: Book

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        own_page = {"Origin": self.client.url.rstrip("/")}  # as a browser says of our page
        return await self.client.http.request(
            method, f"{self.client.url}{path}", json=body, headers={**own_page, **headers}
        )

    async def sign_in(self, user: str, **headers: str) -> httpx.Response:
        begun = await self.send("POST", LOGIN, {}, **headers)
        assert begun.status_code == 200, begun.text
        return await self.client.http.get(await allow(begun.json()["authorization_url"], user))

    async def login_state(self, **headers: str) -> Any:
        agents = (await self.send("GET", "v1/agents", **headers)).json()["agents"]
        [login] = next(agent for agent in agents if agent["name"] == "desk")["logins"]
        return login["signed_in_at"]


@contextlib.asynccontextmanager
async def _serve(
    tmp_path: Path, env: Mapping[str, str] | None = None, **auth: str
) -> AsyncIterator[_Platform]:
    book = Book({"^who am I there$": WORKER}, default=ASKS)
    async with (
        serve_oauth() as authorization,
        serve_protected(authorization.url) as url,
        OPENAI.serve(book) as model,
    ):
        definition = {
            "name": "desk",
            "description": "Knows the desk.",
            "mcpServers": {"desk": {"url": url, "auth": {"type": "oauth", **auth}}},
        }
        (tmp_path / "desk.json").write_text(json.dumps(definition))
        variables = {
            **FAST,
            **OPENAI.settings(model),
            "AGENTS_CONFIG": str(tmp_path / "desk.json"),
            "CAIPE_HOME": str(tmp_path / "home"),
            **(env or {}),
        }
        app = build_app(Settings.from_variables(variables), variables)
        async with serve_app(app) as own_url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
            yield _Platform(Client(own_url, http), authorization, book)


async def test_a_run_says_that_a_sign_in_is_needed_and_works_after_it(tmp_path: Path) -> None:
    async with _serve(tmp_path) as platform:
        platform.book.scripts["^who am I there$"] = WITHOUT_TOOLS
        stream = await platform.client.ask("Who am I?")
        notices = [event.text for event in stream.events if isinstance(event, Notice)]
        assert any("caipe agents login desk" in text for text in notices)
        assert "a sign-in is needed" in stream.answer
        assert await platform.login_state() is None

        page = await platform.sign_in("ada")
        assert (page.status_code, "You are signed in to desk" in page.text) == (200, True)
        assert page.headers["cache-control"] == "no-store"
        assert await platform.login_state() is not None
        platform.book.scripts["^who am I there$"] = WORKER
        stream = await platform.client.ask("Who am I?")
        assert stream.answer == "signed in as ada"

        # The tools are known now: a call without a login ends with a word to the model and one to the person.
        response = await platform.send("DELETE", LOGIN)
        assert response.json() == {"signed_out": ["desk"]}
        stream = await platform.client.ask("Who am I?")
        assert "has to sign in" in stream.answer
        notices = [event.text for event in stream.events if isinstance(event, Notice)]
        assert any("caipe agents login desk" in text for text in notices)
        assert any(isinstance(event, ToolFinished) and event.error for event in stream.events)
        raw = stream.raw.decode()
        assert not any(secret in raw for secret in platform.authorization.secrets)


async def test_the_answer_counts_only_in_the_browser_that_began(tmp_path: Path) -> None:
    async with _serve(tmp_path) as platform:
        begun = await platform.send("POST", LOGIN, {})
        cookie = begun.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        location = await allow(begun.json()["authorization_url"], "eve")
        async with httpx.AsyncClient(verify=PLAIN) as other_browser:
            page = await other_browser.get(location)
            assert (page.status_code, "begun elsewhere" in page.text) == (400, True)
            assert (await other_browser.get(location.replace("state=", "state=x"))).status_code == 400
        finish = await platform.send("POST", f"{LOGIN}/finish", {"state": begun.json()["state"], "code": "x"})
        assert finish.status_code == 400
        assert (await platform.client.http.get(location)).status_code == 200
        assert (await platform.client.http.get(location)).status_code == 400


async def test_what_a_person_is_shown_cannot_hold_markup(tmp_path: Path) -> None:
    async with _serve(tmp_path) as platform:
        begun = await platform.send("POST", LOGIN, {})
        query = f"state={begun.json()['state']}&error=<script>alert(1)</script>"
        page = await platform.send("GET", f"v1/oauth/callback?{query}")
        assert (page.status_code, "<script>" in page.text) == (400, False)
        assert "default-src 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    "uri",
    ["https://evil.example/callback", "http://10.0.0.1:80/", "http://127.0.0.1/", "http://u@127.0.0.1:1/"],
)
async def test_a_command_gets_its_answer_on_loopback_alone(tmp_path: Path, uri: str) -> None:
    async with _serve(tmp_path) as platform:
        response = await platform.send("POST", LOGIN, {"redirect_uri": uri})
        assert (response.status_code, "127.0.0.1" in response.json()["detail"]) == (400, True)


async def test_people_behind_a_delegate_have_logins_of_their_own(tmp_path: Path) -> None:
    env = {"A2A_AUTH_SHARED_KEY": KEY, "A2A_AUTH_DELEGATE_KEY": DELEGATE_KEY}
    ada = {"Authorization": f"Bearer {DELEGATE_KEY}", "X-CAIPE-User": "ada"}
    bob = {**ada, "X-CAIPE-User": "bob"}
    async with _serve(tmp_path, env) as platform:
        assert (await platform.send("POST", LOGIN, {})).status_code == 401
        assert (await platform.sign_in("Ada L.", **ada)).status_code == 200
        assert await platform.login_state(**ada) is not None
        assert await platform.login_state(**bob) is None
        assert await platform.login_state(Authorization=f"Bearer {KEY}") is None
        for headers, expected in ((ada, "signed in as Ada L."), (bob, "has to sign in")):
            stream = await platform.client.ask("Who am I?", headers=headers)
            assert expected in stream.answer


async def test_only_an_operator_signs_in_for_the_installation(tmp_path: Path) -> None:
    env = {"A2A_AUTH_SHARED_KEY": KEY, "A2A_AUTH_DELEGATE_KEY": DELEGATE_KEY}
    ada = {"Authorization": f"Bearer {DELEGATE_KEY}", "X-CAIPE-User": "ada"}
    async with _serve(tmp_path, env, owner="installation") as platform:
        assert (await platform.send("POST", LOGIN, {}, **ada)).status_code == 403
        assert (await platform.send("DELETE", LOGIN, **ada)).status_code == 403
        assert (await platform.sign_in("robot", Authorization=f"Bearer {KEY}")).status_code == 200
        assert await platform.login_state(**ada) is not None


async def test_an_agent_without_sign_in_is_told(tmp_path: Path) -> None:
    async with _serve(tmp_path) as platform:
        response = await platform.send("POST", "v1/agents/netutils/login", {})
        assert (response.status_code, "needs a sign-in" in response.json()["detail"]) == (404, True)
        response = await platform.send("POST", "v1/agents/nobody/login", {})
        assert (response.status_code, "desk" in response.json()["detail"]) == (404, True)
