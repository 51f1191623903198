"""A client that speaks for others: who may, whose conversations they see, and under whose name what they do
is kept."""

import secrets
from typing import Any

import httpx
import pytest

from ai_platform_engineering.a2a.client import (
    A2AClient,
    ClientConversation,
    CredentialsRefused,
    OutgoingMessage,
    RequestRefused,
)
from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.events import Answered, Cancelled, InputResolved, RunStarted
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.server.authentication import check_exposure
from ai_platform_engineering.runtime.storage import Storage
from tests.runtime.server.test_authentication import Named
from tests.runtime.test_facts import notes
from tests.support.asking_agent import ask_until_paused, form_tool, request_ids, send_answers
from tests.support.dialects import V10, Dialect, both_versions
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import PLAIN, Client, ReceivedStream, serve_app, supervisor
from tests.support.storages import problem, supervisor_on

KEY, SHARED = "the-delegate-key", "the-shared-key-of-tests"
ONLY = {"A2A_AUTH_DELEGATE_KEY": KEY}
BOTH = {**ONLY, "A2A_AUTH_SHARED_KEY": SHARED}
THREAD = "slack/T1/C1/171.0001"
ECHO = Script(Turn(Say("You said {{user}}.")))
FORM = form_tool("repo", [{"field_name": "name", "field_label": "Name"}])
FORM_SCRIPT = Script(Turn(Call("repo")), Turn(Say("Made {{tool:repo.name}}.")))
OPEN = ("health", "ready", ".well-known/agent-card.json")


def acting(client: Client, user: str, owner: str | None = THREAD, key: str | None = KEY) -> Client:
    token = {"Authorization": f"Bearer {key}"} if key else {}
    return Client(client.url, client.http, {**token, **on_behalf_of_headers(user, owner)})


def started(seen: ReceivedStream) -> RunStarted:
    (event,) = [one for one in seen.events if isinstance(one, RunStarted)]
    return event


async def tasks(client: Client, **more: Any) -> list[str]:
    return [task["id"] for task in (await client.call("ListTasks", more))["result"]["tasks"]]


async def get(client: Client, path: str) -> httpx.Response:
    return await client.http.get(client.url + path, headers=client.headers)


# --- one conversation, several people -----------------------------------------------------------------------


@both_versions
async def test_people_in_one_thread_have_one_history_and_each_run_has_its_person(dialect: Dialect) -> None:
    model = ScriptedChatModel(script=ECHO)
    async with supervisor(model, env=ONLY) as client:
        ann, bob = acting(client, "ann"), acting(client, "bob")
        first = await ann.ask("I like tea", version=dialect.version, contextId="talk")
        second = await bob.ask("What do I like?", version=dialect.version, contextId="talk")
        task = (await bob.call(dialect.get, {"id": first.task_id}))["result"]
        assert await tasks(ann) == await tasks(bob) == [second.task_id, first.task_id]
        assert await tasks(acting(client, "ann", owner=None)) == []
    assert dialect.state(task) == "completed"
    assert [(started(one).owner, started(one).principal) for one in (first, second)] == [
        (THREAD, "ann"),
        (THREAD, "bob"),
    ]
    assert [message.text for message in model.requests[-1].messages] == [
        "I like tea",
        "You said I like tea.",
        "What do I like?",
    ]


@both_versions
async def test_what_belongs_to_another_owner_is_not_found(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool], env=ONLY) as client:
        ann, elsewhere = acting(client, "ann"), acting(client, "ann", owner="another thread")
        task = dialect.sent(await ann.call(dialect.send, {**dialect.message("Wait."), **dialect.at_once}))
        await waiting.started.wait()
        codes = [
            (await elsewhere.call(method, {"id": task["id"]}))["error"]["code"]
            for method in (dialect.get, dialect.cancel)
        ]
        codes.append(
            (await elsewhere.call(dialect.send, dialect.message("More.", taskId=task["id"])))["error"]["code"]
        )
        assert await tasks(elsewhere) == []
        problem(await get(elsewhere, f"v1/tasks/{task['id']}/calls"), 404)
        assert not waiting.cancelled.is_set()
    assert codes == [-32001] * 3


async def test_without_an_owner_the_conversation_is_the_persons_own() -> None:
    async with supervisor(ECHO, env=ONLY) as client:
        mine = await acting(client, "ann", owner=None).ask("Well?")
        assert await tasks(acting(client, "bob", owner="ann")) == [mine.task_id]
    assert (started(mine).owner, started(mine).principal) == ("ann", "ann")


@pytest.mark.parametrize("name", ["Zoë Ünlü", "a/b?c=d&e", "100%", "日本", "ü" * 300, "ann@example.org"])
async def test_any_name_comes_through(name: str) -> None:
    async with supervisor(ECHO, env=ONLY) as client:
        stream = await acting(client, name, f"{name}"[::-1]).ask("Well?")
    assert (started(stream).principal, started(stream).owner) == (name, name[::-1])


# --- under whose name ---------------------------------------------------------------------------------------


async def test_a_stop_names_who_stopped() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool], env=ONLY) as client:
        ann, bob = acting(client, "ann"), acting(client, "bob")
        task = V10.sent(await ann.call(V10.send, {**V10.message("Wait."), **V10.at_once}))
        await waiting.started.wait()
        await bob.call(V10.cancel, {"id": task["id"]})
        stream = ReceivedStream(
            [frame async for frame in ann.open(V10.subscribe, {"id": task["id"]}, Last_Event_ID="0")]
        )
    assert [event.by for event in stream.events if isinstance(event, Cancelled)] == ["bob"]
    assert stream.last.status_text == "Stopped by bob."


async def test_an_answer_is_of_who_gave_it_and_a_later_one_is_told_so() -> None:
    async with supervisor(FORM_SCRIPT, tools=[FORM], env=ONLY) as client:
        ann, bob = acting(client, "ann"), acting(client, "bob")
        stream = await ask_until_paused(ann)
        (request_id,) = request_ids(stream)
        done = await send_answers(bob, stream, {request_id: {"name": "cai"}})
        late = await ann.call(
            V10.send, V10.message(V10.data({"resume": {request_id: {"name": "x"}}}), taskId=stream.task_id)
        )
        request = (await get(ann, f"v1/requests/{request_id}")).json()
        elsewhere = acting(client, "bob", owner="another thread")
        assert (
            problem(await get(elsewhere, f"v1/requests/{request_id}"), 404)
            == f"There is no request {request_id}."
        )
    assert done.answer == "Made cai."
    assert [event.by for event in done.events if isinstance(event, InputResolved)] == ["bob"]
    assert request["by"] == "bob"
    assert "was already answered by bob at " in late["error"]["message"]


async def test_a_word_on_an_unknown_outcome_is_of_who_said_it() -> None:
    storage = Storage.in_memory()
    async with supervisor_on(
        storage, ScriptedChatModel(script=FORM_SCRIPT), tools=[FORM], env=ONLY
    ) as client:
        stream = await ask_until_paused(acting(client, "ann"))
        row = await storage.log.get(stream.task_id)
        assert row is not None
        for _ in range(2):  # begun twice, as after a crash
            await storage.log.begin(row.run_id, row.epoch, "k", "create_repo", {}, idempotent=False)
        url, headers = f"{client.url}v1/tasks/{stream.task_id}/calls/k/outcome", acting(client, "bob").headers
        settled_call = (await client.http.post(url, json={"outcome": "done"}, headers=headers)).json()
    assert settled_call["settled_by"] == "bob"
    assert settled_call["outcome"]["content"] == "bob says that create_repo took effect."


REMEMBER = Script(Turn(Call("remember_fact", {"fact": "{{user}}"})), Turn(Say("Kept.")))


async def test_facts_are_the_persons_and_not_the_threads() -> None:
    model = ScriptedChatModel(script=Book({"likes": REMEMBER, "": ECHO}))
    async with supervisor(model, env=ONLY) as client:
        ann, bob = acting(client, "ann"), acting(client, "bob")
        await ann.ask("Ann likes tea.", contextId="talk")
        await bob.ask("Who?", contextId="talk")
        assert notes(model.requests[-1]) == []
        await acting(client, "ann", owner="another thread").ask("Who?")
        assert [line.split(" (id")[0] for line in notes(model.requests[-1])] == ["- Ann likes tea."]
        (fact,) = (await get(acting(client, "ann", owner=None), "v1/facts")).json()["facts"]
        assert (await get(bob, "v1/facts")).json() == {"facts": []}
        assert (
            await client.http.delete(f"{client.url}v1/facts/{fact['id']}", headers=bob.headers)
        ).status_code == 404
        assert (
            await client.http.delete(f"{client.url}v1/facts/{fact['id']}", headers=ann.headers)
        ).status_code == 204


async def test_a_run_that_somebody_else_answers_keeps_the_facts_of_who_asked() -> None:
    script = Script(
        Turn(Call("repo")),
        Turn(Call("remember_fact", {"fact": "{{tool:repo.name}} is ours."})),
        Turn(Say("Made.")),
    )
    model = ScriptedChatModel(script=Book({"likes": REMEMBER, "": script}))
    async with supervisor(model, tools=[FORM], env=ONLY) as client:
        ann, bob = acting(client, "ann"), acting(client, "bob")
        await ann.ask("Ann likes tea.")
        await bob.ask("Bob likes toast.")
        stream = await ask_until_paused(ann)
        done = await send_answers(bob, stream, {request_ids(stream)[0]: {"name": "cai"}})
        facts = [fact["fact"] for fact in (await get(ann, "v1/facts")).json()["facts"]]
    assert isinstance(done.events[-1], Answered)
    assert facts == ["Ann likes tea.", "cai is ours."]
    assert all("toast" not in "".join(notes(request)) for request in model.requests[-2:])
    assert "tea" in notes(model.requests[-1])[0]


# --- who may ------------------------------------------------------------------------------------------------


async def test_the_shared_key_does_not_speak_for_others() -> None:
    model = ScriptedChatModel(script=ECHO)
    async with supervisor(model, env=BOTH) as client:
        body = {"jsonrpc": "2.0", "id": 1, "method": V10.send, "params": V10.message("Well?")}
        for names in (
            on_behalf_of_headers("ann", THREAD),
            on_behalf_of_headers("ann"),
            {"X-CAIPE-Owner": "ann"},
            {"x-caipe-user": ""},
        ):
            headers = {"Authorization": f"Bearer {SHARED}", "A2A-Version": "1.0", **names}
            for refused in (
                await client.http.post(client.url, json=body, headers=headers),
                await client.http.get(f"{client.url}v1/facts", headers=headers),
                await client.http.get(f"{client.url}tools", headers=headers),
            ):
                assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
                assert "A2A_AUTH_DELEGATE_KEY" in refused.json()["message"]
                assert "token" in refused.json()["message"]
            for token in (None, f"Bearer {KEY}x", KEY, f"Basic {KEY}"):
                unknown = {**names, **({"Authorization": token} if token else {})}
                assert (await client.http.post(client.url, json=body, headers=unknown)).status_code == 401
        for own in (acting(client, "ann"), acting(client, "ann", owner=None)):
            assert await tasks(own) == []
        assert await tasks(Client(client.url, client.http, {"Authorization": f"Bearer {SHARED}"})) == []
    assert model.requests == []


async def test_both_keys_are_logins_of_their_own() -> None:
    async with supervisor(ECHO, env=BOTH) as client:
        bot, plain = (
            Client(client.url, client.http, {"Authorization": f"Bearer {key}"}) for key in (KEY, SHARED)
        )
        streams = [await bot.ask("Well?"), await plain.ask("Well?")]
        assert (await tasks(bot), await tasks(plain)) == ([streams[0].task_id], [streams[1].task_id])
    assert [(started(one).owner, started(one).principal) for one in streams] == [
        ("delegate", "delegate"),
        ("shared-key", "shared-key"),
    ]


async def test_with_the_delegate_key_alone_everything_but_cards_and_probes_needs_it() -> None:
    async with supervisor(ECHO, env=ONLY) as client:
        for path in OPEN:
            assert (
                await client.http.get(client.url + path, headers=on_behalf_of_headers("ann"))
            ).status_code == 200
        card = (await client.http.get(f"{client.url}.well-known/agent-card.json")).json()
        for path in ("tools", "v1/facts", "v1/requests"):
            refused = await client.http.get(client.url + path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert KEY not in refused.text
            assert (
                await client.http.get(client.url + path, headers={"Authorization": f"Bearer {KEY}"})
            ).status_code == 200
    assert "bearer" in card["securitySchemes"]


@pytest.mark.parametrize(
    "env", [{}, {"A2A_HOST": "0.0.0.0", "A2A_ALLOW_UNAUTHENTICATED": "true"}], ids=["here", "told so"]
)
async def test_where_nobody_is_verified_anybody_may_say_who_they_are(env: dict[str, str]) -> None:
    async with supervisor(ECHO, env=env) as client:
        stream = await acting(client, "ann", key=None).ask("Well?")
        assert await tasks(client) == []
    assert (started(stream).owner, started(stream).principal) == (THREAD, "ann")


async def test_who_was_verified_around_the_server_is_nobody_else() -> None:
    app = create_app(Settings.from_variables({"SHUTDOWN_SECONDS": "0"}), model=ScriptedChatModel(script=ECHO))
    async with serve_app(Named(app)) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        refused = await http.get(f"{url}v1/facts", headers={"X-User": "eve", **on_behalf_of_headers("ann")})
        allowed = await http.get(f"{url}v1/facts", headers={"X-User": "eve"})
    assert (refused.status_code, allowed.status_code) == (403, 200)


BAD = {
    "empty": "",
    "blank": "%20",
    "no UTF-8": "%ff",
    "half a character": "%C3",
    "no code": "a%zz",
    "cut off": "a%2",
    "a line": "a%0Ab",
    "a separator": "a%E2%80%A8b",
    "a bell": "%07",
    "long": "a" * 301,
    "long when decoded": "%C3%BC" * 301,
    "not encoded": b"Zo\xc3\xab",
    "a key's name": "shared-key",
    "the own name": "delegate",
    "the own name with a blank": "delegate%20",
}


@pytest.mark.pairwise
@pytest.mark.parametrize("header", ["X-CAIPE-User", "X-CAIPE-Owner"])
@pytest.mark.parametrize("value", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("env", [ONLY, {}], ids=["key", "no key"])
async def test_a_name_that_cannot_be_one_is_refused_in_a_sentence(
    header: str, value: Any, env: dict[str, str]
) -> None:
    model = ScriptedChatModel(script=ECHO)
    async with supervisor(model, env=env) as client:
        body = {"jsonrpc": "2.0", "id": 1, "method": V10.send, "params": V10.message("Well?")}
        headers = {
            "Authorization": f"Bearer {KEY}",
            "A2A-Version": "1.0",
            "X-CAIPE-User": "ann",
            header: value,
        }
        refused = await client.http.post(client.url, json=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")
    assert refused.json()["message"].startswith(header)
    assert refused.json()["message"].endswith(".")
    assert model.requests == []


async def test_an_owner_alone_and_a_name_given_twice_are_refused() -> None:
    async with supervisor(ECHO, env=ONLY) as client:
        token = ("Authorization", f"Bearer {KEY}")
        alone = await client.http.get(f"{client.url}v1/facts", headers=[token, ("X-CAIPE-Owner", "ann")])
        twice = await client.http.get(
            f"{client.url}v1/facts", headers=[token, ("X-CAIPE-User", "ann"), ("x-caipe-user", "bob")]
        )
    assert (alone.status_code, "X-CAIPE-User" in alone.json()["message"]) == (400, True)
    assert (twice.status_code, "once" in twice.json()["message"]) == (400, True)


def test_the_delegate_key_is_authentication_and_is_not_the_shared_one() -> None:
    check_exposure(Settings.from_variables({"A2A_HOST": "0.0.0.0", **ONLY}).server)
    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(ConfigurationError, match=r"A2A_AUTH_DELEGATE_KEY is the same.*Use two keys"):
            check_exposure(
                Settings.from_variables(
                    {"A2A_HOST": host, "A2A_AUTH_DELEGATE_KEY": SHARED, "A2A_AUTH_SHARED_KEY": SHARED}
                ).server
            )


def test_the_key_is_in_no_text() -> None:
    key = secrets.token_urlsafe()
    assert key not in repr(Settings.from_variables({"A2A_AUTH_DELEGATE_KEY": key}))


# --- the client ---------------------------------------------------------------------------------------------


async def test_a_client_acts_for_people_over_a2a_and_rest() -> None:
    async with supervisor(FORM_SCRIPT, tools=[FORM], env=ONLY) as client:
        bot = A2AClient(client.url, client.http, token=KEY)
        ann, talk = bot.on_behalf_of("Zoë", THREAD), ClientConversation()
        events = [event async for event in ann.ask("Go.", talk)]
        (request,) = (await rest_api_for_client(ann)("GET", "/v1/requests"))["requests"]
        assert (await rest_api_for_client(bot)("GET", "/v1/requests")) == {"requests": []}
        assert (await rest_api_for_client(bot.on_behalf_of("Zoë"))("GET", "/v1/requests")) == {"requests": []}
        with pytest.raises(RequestRefused, match="There is no task"):
            await bot.cancel(request["task_id"])
        done = [
            event
            async for event in bot.on_behalf_of("bob", THREAD).answer(
                {request["request_id"]: {"name": "cai"}}, talk
            )
        ]
    assert isinstance(events[0], RunStarted)
    assert (events[0].principal, events[0].owner) == ("Zoë", THREAD)
    assert [event.by for event in done if isinstance(event, InputResolved)] == ["bob"]


async def test_a_client_is_told_why_it_may_not_and_what_is_wrong() -> None:
    async with supervisor(ECHO, env=BOTH) as client:
        plain = A2AClient(client.url, client.http, token=SHARED).on_behalf_of("ann")
        with pytest.raises(CredentialsRefused, match="A2A_AUTH_DELEGATE_KEY") as refused:
            await plain.cancel("x")
        with pytest.raises(RequestRefused, match="A2A_AUTH_DELEGATE_KEY"):
            await rest_api_for_client(plain)("GET", "/v1/facts")
        bad = A2AClient(client.url, client.http, token=KEY).on_behalf_of("a\nb")
        with pytest.raises(RequestRefused, match="control characters"):
            await bad.cancel("x")
        with pytest.raises(RequestRefused, match="control characters"):
            [event async for event in bad.send(OutgoingMessage("m", "Well?"), ClientConversation())]
    assert SHARED not in str(refused.value)
