"""`/v1/runs`: an owner's runs over HTTP, page by page, by state, agent and words."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.dialects import V10
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import Client, agent, supervisor
from tests.support.storages import KEY, in_folder, problem, supervisor_on

ANSWER = Script(Turn(Say("Yes.")))
DELEGATE = Script(
    Turn(Call("task", {"description": "look", "subagent_type": "shelf"})), Turn(Say("It is there."))
)
BOOK = Book({"^Look": DELEGATE}, default=ANSWER)


async def ask(client: Client, text: str, context_id: str = "talk") -> None:
    await client.call(V10.send, V10.message(text, contextId=context_id))


async def list_page(client: Client, **params: str) -> dict[str, Any]:
    response = await client.http.get(f"{client.url}v1/runs", params=params)
    assert response.status_code == 200, response.text
    return dict(response.json())


def questions(page: dict[str, Any]) -> list[str]:
    return [run["question"] for run in page["runs"]]


async def test_runs_are_listed_with_their_agents_on_disk(tmp_path: Path) -> None:
    model = ScriptedChatModel(script=BOOK)
    async with supervisor_on(in_folder(tmp_path), model, agents=[agent("shelf", ANSWER)]) as client:
        await ask(client, "Look there.")
        await ask(client, "Why?")
        both = await list_page(client)
        with_shelf = await list_page(client, agent="shelf")
        assert (await list_page(client, state="failed"))["runs"] == []
        assert questions(await list_page(client, state="completed", query="look")) == ["Look there."]
    assert questions(both) == ["Why?", "Look there."]
    assert questions(with_shelf) == ["Look there."]
    [run] = with_shelf["runs"]
    assert (run["context_id"], run["state"], run["agents"]) == ("talk", "completed", ["shelf"])
    assert run["started"] <= run["updated"]
    assert set(run["tokens"]) >= {"input_tokens", "output_tokens"}


async def test_pages_end_although_runs_are_added_meanwhile() -> None:
    async with supervisor(ANSWER) as client:
        for number in range(5):
            await ask(client, f"Question {number}?", f"talk-{number}")
        page = await list_page(client, page_size="2")
        listed = questions(page)
        while "next_page_token" in page:
            await ask(client, "Later?", "later")
            page = await list_page(client, page_size="2", page_token=page["next_page_token"])
            listed += questions(page)
    assert listed == [f"Question {number}?" for number in (4, 3, 2, 1, 0)]


async def test_runs_of_others_are_not_listed() -> None:
    async with supervisor(ANSWER, env={"A2A_AUTH_DELEGATE_KEY": KEY}) as client:
        assert (await client.http.get(f"{client.url}v1/runs")).status_code == 401
        client.http.headers.update({"Authorization": f"Bearer {KEY}", "X-CAIPE-User": "ann"})
        await ask(client, "Why?")
        assert questions(await list_page(client)) == ["Why?"]
        client.http.headers["X-CAIPE-User"] = "bob"
        assert (await list_page(client))["runs"] == []


@pytest.mark.parametrize(
    "params",
    [
        {"state": "done"},
        {"page_token": "x"},
        {"page_token": "9" * 30},
        {"page_size": "0"},
        {"page_size": "501"},
        {"query": "x" * 201},
        {"agent": "x" * 101},
    ],
)
async def test_a_wrong_parameter_is_refused(params: dict[str, str]) -> None:
    async with supervisor(ANSWER) as client:
        answer = await client.http.get(f"{client.url}v1/runs", params=params)
    assert next(iter(params)) in problem(answer, 400)
