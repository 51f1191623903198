"""Who may speak to the server, under which name, and whose tasks they see."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.authentication import SimpleUser
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.server.authentication import check_exposure
from ai_platform_engineering.runtime.server.rate_limits import WrongKeyCounter
from tests.runtime.server.test_a2a_input_required import form_tool
from tests.support.dialects import V03, V10, Dialect, both_versions
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, ReceivedStream, agent, serve_app, supervisor
from tests.support.processes import invoke_caipe

YES = Script(Turn(Say("Yes.")))
CARDS = (".well-known/agent-card.json", ".well-known/agent.json", "v1/.well-known/agent-card.json")

# --- listening ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.7", "10.0.0.1", "platform.example.com", "localhost.example.com"]
)
def test_the_network_is_refused_without_authentication(host: str) -> None:
    with pytest.raises(ConfigurationError, match=f"A2A_HOST={host}.*A2A_AUTH_SHARED_KEY"):
        check_exposure(Settings.from_variables({"A2A_HOST": host}).server)
    with pytest.raises(ConfigurationError):
        create_app(Settings.from_variables({"A2A_HOST": host}), model=ScriptedChatModel(script=YES))


@pytest.mark.parametrize(
    "more", [{"A2A_AUTH_SHARED_KEY": "k" * 16}, {"A2A_ALLOW_UNAUTHENTICATED": "true"}], ids=["key", "told so"]
)
def test_the_network_is_served_with_a_key_or_when_told_so(more: dict[str, str]) -> None:
    check_exposure(Settings.from_variables({"A2A_HOST": "0.0.0.0", **more}).server)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LOCALHOST"])
def test_this_machine_needs_no_key(host: str) -> None:
    check_exposure(Settings.from_variables({"A2A_HOST": host}).server)


@pytest.mark.parametrize("value", ["false", "0", "no", ""])
def test_only_a_clear_yes_opens_the_network(value: str) -> None:
    with pytest.raises(ConfigurationError):
        check_exposure(
            Settings.from_variables({"A2A_HOST": "0.0.0.0", "A2A_ALLOW_UNAUTHENTICATED": value}).server
        )


async def test_the_command_refuses_the_network_in_a_sentence() -> None:
    done = await invoke_caipe("serve", env={"A2A_HOST": "0.0.0.0", "A2A_PORT": "0", "ENABLE_RAG": "false"})
    output = done.out + done.err  # of a process all of it would be on stderr
    assert done.code == 1
    assert output.startswith("A2A_HOST=0.0.0.0")
    assert "A2A_AUTH_SHARED_KEY" in output
    assert len(output.splitlines()) == 1


# --- the key ------------------------------------------------------------------------------------------------


async def test_with_a_key_a_call_needs_it() -> None:
    key = secrets.token_urlsafe()
    async with supervisor(YES, env={"A2A_AUTH_SHARED_KEY": key}) as client:
        body = {"jsonrpc": "2.0", "id": 1, "method": V03.send, "params": V03.message("Well?")}
        wrong = {
            "none": None,
            "empty": "",
            "bare": key,
            "other": f"Bearer {key}x",
            "half": f"Bearer {key[:-1]}",
            "basic": f"Basic {key}",
        }
        for name, header in wrong.items():
            for method, path in (("POST", ""), ("GET", "tools")):
                headers = {} if header is None else {"Authorization": header}
                response = await client.http.request(
                    method, client.url + path, json=body if method == "POST" else None, headers=headers
                )
                assert (name, response.status_code, response.headers["www-authenticate"]) == (
                    name,
                    401,
                    "Bearer",
                )
                assert key not in response.text
        for header in (f"Bearer {key}", f"bearer {key}", f"Bearer  {key}"):
            right = await client.http.post(client.url, json=body, headers={"Authorization": header})
            assert V03.state(right.json()["result"]) == "completed"
        client.headers["Authorization"] = f"Bearer {key}"
        listed = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert len(listed) == 3  # nothing was started without the key


async def test_cards_and_probes_are_open_and_the_card_declares_the_key() -> None:
    key = secrets.token_urlsafe()
    async with supervisor(YES, env={"A2A_AUTH_SHARED_KEY": key}) as client:
        answers = {path: await client.http.get(client.url + path) for path in (*CARDS, "health", "ready")}
    assert {response.status_code for response in answers.values()} == {200}
    assert key not in "".join(response.text for response in answers.values())
    merged, strict = answers[CARDS[0]].json(), answers[CARDS[2]].json()
    assert strict["securitySchemes"]["bearer"] == {"httpAuthSecurityScheme": {"scheme": "bearer"}}
    assert [list(one["schemes"]) for one in strict["securityRequirements"]] == [["bearer"]]
    assert merged["security"] == [{"bearer": []}]
    assert (merged["securitySchemes"]["bearer"]["type"], merged["securitySchemes"]["bearer"]["scheme"]) == (
        "http",
        "bearer",
    )


async def test_without_the_key_probes_and_cards_say_no_more_than_the_protocol_needs() -> None:
    key = secrets.token_urlsafe()
    agents = [agent("argocd", YES), agent("jira", YES)]
    async with supervisor(YES, agents=agents, env={"A2A_AUTH_SHARED_KEY": key}) as client:
        anybody = {path: await client.http.get(client.url + path) for path in (*CARDS, "ready")}
        wrong = await client.http.get(client.url + "ready", headers={"Authorization": "Bearer wrong"})
        client.headers["Authorization"] = f"Bearer {key}"
        paths = (*CARDS, "ready")
        people = {path: await client.http.get(client.url + path, headers=client.headers) for path in paths}
        extended = (await client.call("GetExtendedAgentCard", {}))["result"]
        extended_03 = (await client.call("agent/getAuthenticatedExtendedCard", {}))["result"]
    assert anybody["ready"].json() == wrong.json() == {"status": "ok"}
    assert "components" in people["ready"].json()
    for path in CARDS:
        assert "argocd" not in anybody[path].text
        assert [skill["id"] for skill in anybody[path].json()["skills"]] == ["chat"]
        assert [skill["id"] for skill in people[path].json()["skills"]][1:] == ["argocd", "jira"]
        assert anybody[path].headers["vary"] == "Authorization"
        assert anybody[path].json()["capabilities"]["streaming"] is True
    assert anybody[CARDS[0]].json()["supportsAuthenticatedExtendedCard"] is True
    assert anybody[CARDS[2]].json()["capabilities"]["extendedAgentCard"] is True
    for card in (extended, extended_03):
        assert [skill["id"] for skill in card["skills"]][1:] == ["argocd", "jira"]


# --- wrong keys and many requests ---------------------------------------------------------------------------


class From:
    """Puts the address of the client, as a proxy would, in front of an application."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.connection_limits = app.connection_limits
        self.streams = app.streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (address := Headers(scope=scope).get("x-address")):
            scope["client"] = (address, 1)
        await self._app(scope, receive, send)


async def test_wrong_keys_are_counted_delayed_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    key = secrets.token_urlsafe()
    guesses = [secrets.token_urlsafe() for _ in range(30)]
    env = {"A2A_AUTH_SHARED_KEY": key, "A2A_MAX_WRONG_KEYS": "5"}
    app = create_app(Settings.from_variables({**FAST, **env}), model=ScriptedChatModel(script=YES))
    async with serve_app(From(app)) as url, httpx.AsyncClient(timeout=30, verify=PLAIN) as http:

        async def attempt(address: str, token: str) -> httpx.Response:
            headers = {"X-Address": address, "Authorization": f"Bearer {token}"}
            return await http.get(url + "tools", headers=headers)

        first = [await attempt("192.0.2.1", guess) for guess in guesses[:5]]
        then = [await attempt("192.0.2.1", guess) for guess in guesses[5:]]
        right = await attempt("192.0.2.1", key)
        elsewhere = await attempt("192.0.2.2", key)
        old_key = [await attempt("192.0.2.3", "the key of last year") for _ in range(20)]
        neighbours = [await attempt(f"2001:db8::{number:x}", guess) for number, guess in enumerate(guesses)]
        far = await attempt("2001:db8:0:1::1", key)
        probe = await http.get(url + "ready", headers={"X-Address": "192.0.2.1"})
    assert {response.status_code for response in first} == {401}
    assert {response.status_code for response in then} == {429}
    assert (right.status_code, elsewhere.status_code) == (429, 200)
    assert int(right.headers["retry-after"]) >= 1
    assert {response.status_code for response in old_key} == {401}
    assert {response.status_code for response in neighbours[6:]} == {429}
    assert (far.status_code, probe.status_code) == (200, 200)
    warnings = [record.getMessage() for record in caplog.records if "wrong key" in record.getMessage()]
    assert warnings[:2] == [
        "a wrong key from 192.0.2.1",
        "5 wrong keys from 192.0.2.1: it is refused for 10 s",
    ]
    assert not any(secret in caplog.text for secret in (key, *guesses))


def test_each_further_wrong_key_doubles_the_time() -> None:
    now = 0.0
    counter = WrongKeyCounter(limit=2, max_seconds=50, clock=lambda: now)
    waits = []
    for guess in range(6):
        counter.record("192.0.2.1", str(guess).encode())
        waits.append(counter.seconds_to_wait("192.0.2.1"))
        now += waits[-1]
    assert waits == [0, 10, 20, 40, 50, 50]
    assert counter.seconds_to_wait("192.0.2.1") == 0
    for number in range(20_000):  # whoever has many addresses fills no memory
        counter.record(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", b"x")
    assert len(counter._addresses) == 10_000


async def test_requests_are_limited_for_each_person() -> None:
    key = secrets.token_urlsafe()
    env = {"A2A_AUTH_DELEGATE_KEY": key, "A2A_MAX_REQUESTS_PER_MINUTE": "5"}
    async with supervisor(YES, env=env) as client:
        token = {"Authorization": f"Bearer {key}"}
        ann = {**token, **on_behalf_of_headers("ann")}
        answers = [await client.http.get(client.url + "tools", headers=ann) for _ in range(7)]
        bob = await client.http.get(client.url + "tools", headers={**token, **on_behalf_of_headers("bob")})
        probe = await client.http.get(client.url + "health", headers=ann)
    assert [response.status_code for response in answers[:5]] == [200] * 5
    assert answers[-1].status_code == 429
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 12
    assert "A2A_MAX_REQUESTS_PER_MINUTE" in answers[-1].json()["message"]
    assert (bob.status_code, probe.status_code) == (200, 200)


def test_a_wrong_setting_is_reported_without_the_key() -> None:
    key = secrets.token_urlsafe()
    with pytest.raises(ConfigurationError) as error:
        Settings.from_variables({"A2A_AUTH_SHARED_KEY": key, "A2A_PORT": "abc", "A2A_MAX_FILE_BYTES": "-1"})
    assert "A2A_PORT" in str(error.value)
    assert "A2A_MAX_FILE_BYTES" in str(error.value)
    assert key not in repr(Settings.from_variables({"A2A_AUTH_SHARED_KEY": key}))


# --- names --------------------------------------------------------------------------------------------------

REFUSED_HOSTS = [
    "evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0:8000",
    "192.168.0.7",
    "[2001:db8::1]:80", "localhost@evil.example", "[::1", "1270.0.0.1",
]  # fmt: skip
OUR_HOSTS = [
    "localhost",
    "localhost:8000",
    "LocalHost:1",
    "localhost.",
    "127.0.0.1",
    "127.0.0.1:99",
    "127.9.9.9",
    "[::1]",
    "[::1]:8000",
]


async def status(client: Client, path: str = "health", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await client.http.get(client.url + path, headers=named)).status_code


async def test_on_this_machine_only_its_own_names_are_served() -> None:
    async with supervisor(YES) as client:
        assert {host: await status(client, Host=host) for host in REFUSED_HOSTS} == dict.fromkeys(
            REFUSED_HOSTS, 403
        )
        assert {host: await status(client, Host=host) for host in OUR_HOSTS} == dict.fromkeys(OUR_HOSTS, 200)
        for path in (*CARDS, "ready", "tools"):
            assert await status(client, path, Host="evil.example") == 403
        body = {"jsonrpc": "2.0", "id": 1, "method": V03.send, "params": V03.message("Well?")}
        refused = await client.http.post(client.url, json=body, headers={"Host": "evil.example"})
        listed = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert refused.status_code == 403
    assert "A2A_ALLOWED_HOSTS" in refused.text
    assert listed == []


async def test_the_name_of_the_external_address_and_allowed_names_are_served() -> None:
    env = {
        "EXTERNAL_URL": "https://agents.example.com/platform",
        "A2A_ALLOWED_HOSTS": "box.example, Other.Example",
    }
    async with supervisor(YES, env=env) as client:
        for host in (
            "agents.example.com",
            "AGENTS.example.com:443",
            "box.example",
            "other.example:8000",
            "localhost",
        ):
            assert (host, await status(client, Host=host)) == (host, 200)
        for host in ("evil.example", "example.com", "xbox.example"):
            assert (host, await status(client, Host=host)) == (host, 403)


REFUSED_ORIGINS = [
    "https://evil.example",
    "http://localhost.evil.example",
    "null",
    "file://",
    "http://192.168.0.7",
    "chrome-extension://abc",
    "",
    # Pages of other servers on this machine.
    "http://localhost:3000",
    "http://127.0.0.1:1",
    "http://127.0.0.1",
    "https://localhost",
    "http://[::1]:5173",
]


async def test_on_this_machine_pages_from_elsewhere_are_refused() -> None:
    async with supervisor(YES) as client:
        assert {one: await status(client, Origin=one) for one in REFUSED_ORIGINS} == dict.fromkeys(
            REFUSED_ORIGINS, 403
        )
        own_origin = client.url.rstrip("/")
        port = own_origin.rpartition(":")[2]
        assert await status(client, Origin=own_origin) == 200
        assert await status(client, Origin=f"http://localhost:{port}", Host=f"LocalHost:{port}") == 200
        assert await status(client, Origin=f"http://localhost:{port}") == 403
        assert await status(client, Origin=own_origin.replace("http:", "https:")) == 403
        body = {"jsonrpc": "2.0", "id": 1, "method": V03.send, "params": V03.message("Well?")}
        refused = await client.http.post(client.url, json=body, headers={"Origin": "https://evil.example"})
    assert refused.status_code == 403
    assert "A2A_ALLOWED_ORIGINS" in refused.text
    assert "access-control-allow-origin" not in refused.headers


async def test_on_this_machine_what_another_page_loads_is_refused() -> None:
    async with supervisor(YES) as client:
        for site in ("cross-site", "same-site"):
            assert await status(client, "tools", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors") == 403
            assert await status(client, "tools", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate") == 200
        for site in ("same-origin", "none"):
            assert await status(client, "tools", Sec_Fetch_Site=site, Sec_Fetch_Mode="cors") == 200
    async with supervisor(YES, env={"A2A_ALLOWED_ORIGINS": "https://page.example"}) as client:
        page = {"Origin": "https://page.example", "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"}
        assert await status(client, "tools", **page) == 200


async def test_an_allowed_origin_is_served_exactly() -> None:
    env = {
        "A2A_ALLOWED_ORIGINS": "https://page.example,https://other.example:8443",
        "EXTERNAL_URL": "https://agents.example.com/",
    }
    async with supervisor(YES, env=env) as client:
        for origin in ("https://page.example", "https://other.example:8443", "https://agents.example.com"):
            assert (origin, await status(client, Origin=origin)) == (origin, 200)
        for origin in ("http://page.example", "https://other.example", "https://page.example.evil.example"):
            assert (origin, await status(client, Origin=origin)) == (origin, 403)


async def test_beyond_this_machine_the_key_decides_and_names_only_when_they_are_given() -> None:
    key = secrets.token_urlsafe()
    open_names = {"A2A_HOST": "0.0.0.0", "A2A_AUTH_SHARED_KEY": key}
    async with supervisor(YES, env=open_names) as client:
        assert await status(client, "tools", Host="anything.example", Authorization=f"Bearer {key}") == 200
        assert await status(client, "tools", Host="anything.example") == 401
    async with supervisor(YES, env={**open_names, "A2A_ALLOWED_HOSTS": "box.example"}) as client:
        assert await status(client, "tools", Host="box.example", Authorization=f"Bearer {key}") == 200
        assert await status(client, "tools", Host="anything.example", Authorization=f"Bearer {key}") == 403
        assert await status(client, "tools", Host="localhost", Authorization=f"Bearer {key}") == 403


# --- owners -------------------------------------------------------------------------------------------------


class Named:
    """Stands where an identity provider will: the user is in a header."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (name := Headers(scope=scope).get("x-user")):
            scope["user"] = SimpleUser(name)
        await self._app(scope, receive, send)


@asynccontextmanager
async def two_users(model: ScriptedChatModel, *tools: Any) -> AsyncIterator[tuple[Client, Client]]:
    app = create_app(Settings.from_variables({"SHUTDOWN_SECONDS": "0"}), model=model, tools=tools)
    async with serve_app(Named(app)) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        yield Client(url, http, {"X-User": "ann"}), Client(url, http, {"X-User": "bob"})


@both_versions
async def test_the_task_of_somebody_else_is_not_found(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with two_users(ScriptedChatModel(script=waiting.script), waiting.tool) as (ann, bob):
        task = dialect.sent(await ann.call(dialect.send, {**dialect.message("Wait."), **dialect.at_once}))
        await waiting.started.wait()
        refusals = []
        for method, params in (
            (dialect.get, {"id": task["id"]}),
            (dialect.cancel, {"id": task["id"]}),
            (dialect.send, dialect.message("More.", taskId=task["id"])),
        ):
            refusals.append((await bob.call(method, params))["error"]["code"])
        for method, params in (
            (dialect.subscribe, {"id": task["id"]}),
            (dialect.stream, dialect.message("More.", taskId=task["id"])),
        ):
            frames = (
                [frame.body async for frame in bob.open(method, params)]
                if dialect.old
                else [await bob.call(method, params)]
            )
            refusals += [frame["error"]["code"] for frame in frames]
        listed = (await bob.call("ListTasks", {}))["result"]
        own = (await ann.call("ListTasks", {}))["result"]["tasks"]
        assert not waiting.cancelled.is_set()
    assert refusals == [-32001] * 5
    assert (listed["tasks"], listed["totalSize"]) == ([], 0)
    assert [one["id"] for one in own] == [task["id"]]


async def test_a_context_id_opens_no_door_to_a_conversation() -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("You said {{user}}."))))
    async with two_users(model) as (ann, bob):
        more = {"contextId": "shared", "messageId": "same"}
        first = await ann.ask("my secret", **more)
        second = await bob.ask("my secret", **more)
        third = await bob.ask("what was said?", contextId="shared")
        listed = (await bob.call("ListTasks", {"contextId": "shared"}))["result"]["tasks"]
    assert len({first.task_id, second.task_id, third.task_id}) == 3
    assert [task["id"] for task in listed] == [third.task_id, second.task_id]
    assert [message.text for message in model.requests[-1].messages] == [
        "my secret",
        "You said my secret.",
        "what was said?",
    ]


async def test_a_pending_request_is_not_answered_by_somebody_else() -> None:
    script = Script(
        lambda request: (
            Turn(Call("ask_form")) if "Create" in request.last_user else Turn(Say("You said {{user}}"))
        )
    )
    async with two_users(ScriptedChatModel(script=script), form_tool()) as (ann, bob):
        stream = await ann.ask("Create a repo.", contextId="shared")
        assert stream.last.state == "input-required"
        answer = ReceivedStream(
            [
                frame
                async for frame in bob.open(
                    V10.stream, V10.message(V10.data({"repo": "evil"}), contextId="shared")
                )
            ]
        )
        still = (await ann.call(V10.get, {"id": stream.task_id}))["result"]
    assert answer.task_id != stream.task_id
    assert json.loads(answer.answer.removeprefix("You said ")) == {"repo": "evil"}
    assert V10.state(still) == "input-required"
