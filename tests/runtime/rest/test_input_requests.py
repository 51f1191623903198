"""`/v1/requests` and `/v1/conversations/…/allowances`: what waits for people, what became of it, and what
needs no approval any more."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from ai_platform_engineering.a2a.rest_client import read_all_pages, rest_api_for_client
from ai_platform_engineering.runtime.storage import Storage
from tests.support.asking_agent import (
    DELEGATING,
    Repos,
    ask_until_paused,
    form_tool,
    github,
    request_ids,
    send_answers,
)
from tests.support.dialects import V10
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import Client, supervisor
from tests.support.storages import KEY, problem, supervisor_on

FORM = form_tool("repo", [{"field_name": "name", "field_label": "Name"}])
FORM_SCRIPT = Script(Turn(Call("repo")), Turn(Say("Made {{tool:repo.name}}.")))
BOOK = Book({"^Form": FORM_SCRIPT, "": DELEGATING})


async def get(client: Client, path: str) -> httpx.Response:
    return await client.http.get(f"{client.url}v1/{path}")


async def found(client: Client, path: str) -> Any:
    response = await get(client, path)
    assert response.status_code == 200, response.text
    return response.json()


async def test_open_requests_of_all_conversations_are_listed_as_they_were_asked() -> None:
    repos = Repos()
    async with supervisor(
        ScriptedChatModel(script=BOOK), agents=[github(repos, {"name": "cai"})], tools=[FORM]
    ) as client:
        assert await found(client, "requests") == {"requests": []}
        before = datetime.now(UTC)
        form, call = await ask_until_paused(client, "Form."), await ask_until_paused(client, "Call.")
        first, second = (await found(client, "requests"))["requests"]
    for entry, stream, agent in ((first, form, "supervisor"), (second, call, "github")):
        (frame,) = stream.named("UserInputMetaData")
        assert entry.pop("asked") == frame.artifact["parts"][0]["data"]
        expires = datetime.fromisoformat(entry.pop("expires_at"))
        assert timedelta(hours=23) < expires - datetime.now(UTC) <= timedelta(hours=24)
        assert before <= datetime.fromisoformat(entry.pop("waiting_since")) <= datetime.now(UTC)
        assert entry == {
            "request_id": request_ids(stream)[0],
            "status": "pending",
            "task_id": stream.task_id,
            "context_id": stream.context_id,
            "agent": agent,
        }
    assert repos.made == []


async def test_an_answered_request_says_who_answered_what_and_when() -> None:
    async with supervisor(FORM_SCRIPT, tools=[FORM], env={"A2A_AUTH_SHARED_KEY": KEY}) as client:
        client.http.headers["Authorization"] = f"Bearer {KEY}"
        stream = await ask_until_paused(client)
        (request_id,) = request_ids(stream)
        open_before = await found(client, f"requests/{request_id}")
        before = datetime.now(UTC)
        done = await send_answers(client, stream, {request_id: {"name": "cai"}})
        after = await found(client, f"requests/{request_id}")
        remaining = await found(client, "requests")
    assert done.answer == "Made cai."
    assert open_before["status"] == "pending"
    assert not {"by", "at", "answer"} & open_before.keys()
    assert "waiting_since" not in after
    assert (after["status"], after["answer"], remaining) == ("answered", {"name": "cai"}, {"requests": []})
    assert after["by"]
    assert KEY not in after["by"]
    assert before <= datetime.fromisoformat(after["at"]) <= datetime.now(UTC)


async def test_what_expired_or_was_withdrawn_is_not_open_and_says_so() -> None:
    late = form_tool("repo", [{"field_name": "name"}], expires_at="2020-01-01T00:00:00Z")
    async with supervisor(FORM_SCRIPT, tools=[late]) as client:
        stream = await ask_until_paused(client)
        (request_id,) = request_ids(stream)
        assert await found(client, "requests") == {"requests": []}
        assert (await found(client, f"requests/{request_id}"))["status"] == "expired"
    async with supervisor(FORM_SCRIPT, tools=[FORM]) as client:
        stream = await ask_until_paused(client)
        (request_id,) = request_ids(stream)
        await client.call(V10.cancel, {"id": stream.task_id})
        withdrawn = await found(client, f"requests/{request_id}")
        assert (withdrawn["status"], "answer" in withdrawn) == ("withdrawn", False)
        assert await found(client, "requests") == {"requests": []}


async def test_only_the_owner_sees_requests_and_allowances() -> None:
    storage, model, repos = Storage.in_memory(), ScriptedChatModel(script=DELEGATING), Repos()
    agents = [github(repos, {"name": "cai"})]
    async with supervisor_on(storage, model, agents=agents) as mine:
        stream = await ask_until_paused(mine, contextId="talk")
        await send_answers(mine, stream, {request_ids(stream)[0]: {"type": "approve", "always": True}})
        (request_id,) = request_ids(await ask_until_paused(mine, contextId="other"))
        assert (await found(mine, "conversations/talk/allowances"))["allowances"]
        async with supervisor_on(storage, model, agents=agents, key=KEY) as theirs:
            assert await found(theirs, "requests") == {"requests": []}
            assert (
                problem(await get(theirs, f"requests/{request_id}"), 404)
                == f"There is no request {request_id}."
            )
            assert (
                problem(await get(theirs, "conversations/talk/allowances"), 404)
                == "There is no conversation talk."
            )
            refused = await theirs.http.delete(
                f"{theirs.url}v1/conversations/talk/allowances/github/create_repo"
            )
            assert "is not allowed without asking" in problem(refused, 404)
            anybody = await theirs.http.get(f"{theirs.url}v1/requests", headers={"Authorization": ""})
            assert anybody.status_code == 401
        assert (await found(mine, "conversations/talk/allowances"))["allowances"]
        assert [entry["request_id"] for entry in (await found(mine, "requests"))["requests"]] == [request_id]


async def test_what_is_not_there_is_a_problem_with_a_sentence() -> None:
    async with supervisor(FORM_SCRIPT, tools=[FORM]) as client:
        assert problem(await get(client, "requests/nothing"), 404) == "There is no request nothing."
        assert (
            problem(await get(client, "conversations/none/allowances"), 404)
            == "There is no conversation none."
        )


async def test_an_allowance_is_listed_and_can_be_taken_back() -> None:
    repos, context = Repos(), "team/talk 1"
    path = f"conversations/{quote(context, safe='')}/allowances"
    async with supervisor(DELEGATING, agents=[github(repos, {"name": "cai"})]) as client:
        stream = await ask_until_paused(client, contextId=context)
        assert await found(client, path) == {"allowances": []}
        done = await send_answers(
            client, stream, {request_ids(stream)[0]: {"type": "approve", "always": True}}
        )
        assert done.answer == "So: cai is there."
        (allowance,) = (await found(client, path))["allowances"]
        assert (allowance["tool"], set(allowance)) == ("github/create_repo", {"tool", "by", "at"})
        assert (await client.ask("Again.", version="1.0", contextId=context)).answer == "So: cai is there."

        removed = await client.http.delete(f"{client.url}v1/{path}/{quote('github/create_repo', safe='')}")
        assert (removed.status_code, removed.content) == (204, b"")
        assert await found(client, path) == {"allowances": []}
        again = await client.http.delete(f"{client.url}v1/{path}/github/create_repo")
        assert (
            problem(again, 404)
            == f"github/create_repo is not allowed without asking in the conversation {context}."
        )
        await ask_until_paused(client, contextId=context)
    assert len(repos.made) == 2


async def test_requests_are_listed_page_by_page() -> None:
    async with supervisor(FORM_SCRIPT, tools=[FORM]) as client:
        streams = [await ask_until_paused(client) for _ in range(3)]
        expected = [request_ids(stream)[0] for stream in streams]
        first = await found(client, "requests?page_size=2")
        second = await found(client, f"requests?page_size=2&page_token={first['next_page_token']}")
        whole = await read_all_pages(rest_api_for_client(client), "/v1/requests?page_size=1", "requests")
    assert [request["request_id"] for request in first["requests"] + second["requests"]] == expected
    assert "next_page_token" not in second
    assert [request["request_id"] for request in whole] == expected


@pytest.mark.parametrize(
    "query", ["page_size=0", "page_size=501", "page_size=x", "page_token=x", "page_token=-1", "page_token=²"]
)
async def test_a_page_that_cannot_be_asked_for_is_refused(query: str) -> None:
    async with supervisor(FORM_SCRIPT, tools=[FORM]) as client:
        answer = await client.http.get(f"{client.url}v1/requests?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["detail"]
