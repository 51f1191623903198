"""`/v1/shares` and `/v1/shared`: a conversation that others read by its link, until it ends."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ai_platform_engineering.a2a.codec import decode
from ai_platform_engineering.core.transcript import fold
from tests.support.dialects import V10
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import Client, supervisor
from tests.support.storages import KEY, in_folder, problem, supervisor_on

ANSWER = Script(Turn(Say("Yes.")))
NAMES = {"A2A_AUTH_DELEGATE_KEY": KEY, "SHARES_MAX_PER_PERSON": "2"}


def as_user(client: Client, name: str) -> None:
    client.http.headers.update({"Authorization": f"Bearer {KEY}", "X-CAIPE-User": name})


@pytest_asyncio.fixture(params=["memory", "disk"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A server with names, on which Ann has asked three questions."""
    if request.param == "memory":
        opened = supervisor(ANSWER, env=NAMES)
    else:
        opened = supervisor_on(in_folder(tmp_path), ScriptedChatModel(script=ANSWER), env=NAMES)
    async with opened as running:
        as_user(running, "ann")
        for number in range(3):
            await running.call(V10.send, V10.message(f"Question {number}?", contextId="talk/1"))
        yield running


async def share(client: Client, context_id: str = "talk/1") -> dict[str, Any]:
    response = await client.http.post(f"{client.url}v1/shares", json={"context_id": context_id})
    assert response.status_code == 201, response.text
    return dict(response.json())


async def list_shares(client: Client, **params: str) -> list[dict[str, Any]]:
    response = await client.http.get(f"{client.url}v1/shares", params=params)
    return list(response.json()["shares"])


async def test_somebody_else_reads_what_is_shared_page_by_page(client: Client) -> None:
    shared = await share(client)
    assert shared["path"] == f"/c/-/shared/{shared['token']}"
    as_user(client, "bob")
    url = f"{client.url}v1/shared/{shared['token']}"
    pages: list[dict[str, Any]] = []
    params = {"page_size": "2"}
    while True:
        page = (await client.http.get(url, params=params)).json()
        pages.append(page)
        if "next_page_token" not in page:
            break
        params["page_token"] = page["next_page_token"]
        as_user(client, "ann")
        await client.call(V10.send, V10.message("Later?", contextId="talk/1"))
        as_user(client, "bob")
    transcripts = [
        fold(event for _, event in decode({"task": task})) for page in pages for task in page["tasks"]
    ]
    assert [page["title"] for page in pages] == ["Question 0?", "Question 0?"]
    asked = [transcript.question[0].text for transcript in transcripts]  # type: ignore[union-attr]
    assert asked == ["Question 2?", "Question 1?", "Question 0?"]
    assert {transcript.answer for transcript in transcripts} == {"Yes."}
    # The link is for reading: Bob neither finds nor changes anything of Ann's.
    task_id = pages[0]["tasks"][0]["id"]
    assert "error" in await client.call("GetTask", {"id": task_id})
    assert (await client.http.delete(f"{client.url}v1/conversations/talk/1")).status_code == 404


async def test_shares_are_listed_without_tokens_and_ended(client: Client) -> None:
    first, second = await share(client), await share(client)
    listed = await list_shares(client, context_id="talk/1")
    assert {entry["id"] for entry in listed} == {first["id"], second["id"]}
    assert all("token" not in entry for entry in listed)
    assert await list_shares(client, context_id="other") == []
    as_user(client, "bob")
    assert await list_shares(client) == []
    assert (await client.http.delete(f"{client.url}v1/shares/{first['token']}")).status_code == 404
    # The id that lists show opens nothing.
    assert (await client.http.get(f"{client.url}v1/shared/{first['id']}")).status_code == 404
    as_user(client, "ann")
    assert (await client.http.delete(f"{client.url}v1/shares/{first['token']}")).status_code == 204
    assert (await client.http.delete(f"{client.url}v1/shares/{second['id']}")).status_code == 204
    assert "not shared" in problem(await client.http.get(f"{client.url}v1/shared/{first['token']}"), 404)
    assert await list_shares(client) == []


async def test_deleting_the_conversation_ends_what_is_shared_of_it(client: Client) -> None:
    shared = await share(client)
    assert (await client.http.delete(f"{client.url}v1/conversations/talk/1")).status_code == 204
    await client.call(V10.send, V10.message("Again?", contextId="talk/1"))
    assert await list_shares(client) == []
    problem(await client.http.get(f"{client.url}v1/shared/{shared['token']}"), 404)


async def test_only_so_many_and_only_ones_own_are_shared(client: Client) -> None:
    as_user(client, "bob")
    response = await client.http.post(f"{client.url}v1/shares", json={"context_id": "talk/1"})
    assert "talk/1" in problem(response, 404)
    as_user(client, "ann")
    for _ in range(2):
        await share(client)
    response = await client.http.post(f"{client.url}v1/shares", json={"context_id": "talk/1"})
    assert "2 conversations" in problem(response, 400)


@pytest.mark.parametrize("body", [{}, {"context_id": ""}, {"context_id": 1}, [], {"context_id": "x" * 5000}])
async def test_a_body_that_is_none_is_refused(body: Any) -> None:
    async with supervisor(ANSWER) as running:
        problem(await running.http.post(f"{running.url}v1/shares", json=body), 400)


async def test_a_key_is_needed_and_a_link_replaces_none(client: Client) -> None:
    shared = await share(client)
    del client.http.headers["Authorization"]
    assert (await client.http.get(f"{client.url}v1/shared/{shared['token']}")).status_code == 401
    assert (await client.http.post(f"{client.url}v1/shares", json={})).status_code == 401


async def test_a_link_expires_and_its_token_is_not_stored(tmp_path: Path) -> None:
    model = ScriptedChatModel(script=ANSWER)
    async with supervisor_on(in_folder(tmp_path), model) as running:
        await running.call(V10.send, V10.message("Why?", contextId="talk/1"))
        shared = await share(running)
        url = f"{running.url}v1/shared/{shared['token']}"
        assert (await running.http.get(url)).status_code == 200
    database = tmp_path / "supervisor" / "runs.db"
    assert shared["token"].encode() not in database.read_bytes()
    with sqlite3.connect(database) as db:
        db.execute("UPDATE shares SET expires_at = 1")
    async with supervisor_on(in_folder(tmp_path), ScriptedChatModel(script=ANSWER)) as running:
        problem(await running.http.get(f"{running.url}v1/shared/{shared['token']}"), 404)
        assert await list_shares(running) == []


async def test_nothing_new_is_shared_where_nothing_may_be_changed(tmp_path: Path) -> None:
    async with supervisor_on(in_folder(tmp_path), ScriptedChatModel(script=ANSWER)) as running:
        await running.call(V10.send, V10.message("Why?", contextId="talk/1"))
        shared = await share(running)
    env = {"READ_ONLY": "true"}
    model = ScriptedChatModel(script=ANSWER)
    async with supervisor_on(in_folder(tmp_path), model, env=env) as running:
        refused = await running.http.post(f"{running.url}v1/shares", json={"context_id": "talk/1"})
        assert "READ_ONLY" in problem(refused, 403)
        assert (await running.http.get(f"{running.url}v1/shared/{shared['token']}")).status_code == 200
        assert (await running.http.delete(f"{running.url}v1/shares/{shared['id']}")).status_code == 204


async def test_sharing_can_be_switched_off() -> None:
    async with supervisor(ANSWER, env={"SHARES_MAX_PER_PERSON": "0"}) as running:
        response = await running.http.post(f"{running.url}v1/shares", json={"context_id": "x"})
        assert "SHARES_MAX_PER_PERSON" in problem(response, 400)
