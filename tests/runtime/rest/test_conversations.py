"""`/v1/conversations`: an owner's conversations, listed, searched, renamed and deleted."""

from typing import Any

import pytest

from tests.support.dialects import V10
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import Client, supervisor
from tests.support.storages import KEY

ANSWER = Script(Turn(Say("Yes.")))


async def ask(client: Client, text: str, context_id: str) -> None:
    await client.call(V10.send, V10.message(text, contextId=context_id))


async def list_page(client: Client, **params: str) -> dict[str, Any]:
    response = await client.http.get(f"{client.url}v1/conversations", params=params)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_conversations_are_listed_page_by_page_and_searched() -> None:
    async with supervisor(ANSWER) as client:
        for number in range(3):
            await ask(client, f"Question {number}?", f"talk/{number}")
        first = await list_page(client, page_size="2")
        second = await list_page(client, page_size="2", page_token=first["next_page_token"])
        searched = await list_page(client, query="question 1")
    titles = [entry["title"] for entry in first["conversations"] + second["conversations"]]
    assert titles == ["Question 2?", "Question 1?", "Question 0?"]
    assert "next_page_token" not in second
    assert [(entry["context_id"], entry["state"]) for entry in searched["conversations"]] == [
        ("talk/1", "completed")
    ]


async def test_a_conversation_is_renamed_and_deleted() -> None:
    async with supervisor(ANSWER) as client:
        await ask(client, "Why?", "talk/1")
        url = f"{client.url}v1/conversations/talk/1"
        renamed = await client.http.patch(url, json={"title": " The \n outage "})
        assert renamed.json() == {"context_id": "talk/1", "title": "The outage"}
        deleted = await client.http.delete(url)
        assert deleted.status_code == 204
        assert (await list_page(client))["conversations"] == []
        assert (await client.call("ListTasks", {}))["result"]["tasks"] == []
        assert (await client.http.delete(url)).status_code == 404
        assert (await client.http.patch(url, json={"title": "x"})).status_code == 404


async def test_deleting_a_conversation_stops_what_works_in_it() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        stream = client.stream("Wait.", contextId="talk")
        await anext(stream)
        deleted = await client.http.delete(f"{client.url}v1/conversations/talk")
        assert deleted.status_code == 204
        assert (await client.call("ListTasks", {}))["result"]["tasks"] == []
        await stream.aclose()


async def test_conversations_of_others_are_not_there() -> None:
    async with supervisor(ANSWER, env={"A2A_AUTH_DELEGATE_KEY": KEY}) as client:
        headers = {"Authorization": f"Bearer {KEY}", "X-CAIPE-User": "ann"}
        client.http.headers.update(headers)
        await ask(client, "Why?", "talk")
        client.http.headers["X-CAIPE-User"] = "bob"
        assert (await list_page(client))["conversations"] == []
        url = f"{client.url}v1/conversations/talk"
        assert (await client.http.patch(url, json={"title": "Mine"})).status_code == 404
        assert (await client.http.delete(url)).status_code == 404


@pytest.mark.parametrize(
    "token", ["x", "W10=", "WyJ4IiwgInkiXQ==", "WyIyMDI2LTAxLTAxVDAwOjAwOjAwIiwgIngiXQ=="]
)
async def test_a_page_token_that_is_none_is_refused(token: str) -> None:
    async with supervisor(ANSWER) as client:
        answer = await client.http.get(f"{client.url}v1/conversations", params={"page_token": token})
    assert answer.status_code == 400
    assert "next_page_token" in answer.json()["detail"]


@pytest.mark.parametrize("body", [{}, {"title": ""}, {"title": 1}, {"title": "x" * 121}, []])
async def test_a_title_that_is_none_is_refused(body: Any) -> None:
    async with supervisor(ANSWER) as client:
        await ask(client, "Why?", "talk")
        answer = await client.http.patch(f"{client.url}v1/conversations/talk", json=body)
    assert answer.status_code == 400
