"""Documents that only some people may see: the same question of two people has two answers."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool

from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.core.events import Answered
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.knowledge_bases.results import compute_document_id, format_citation
from tests.support.agent_services import Where, place_agent
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, agent, supervisor
from tests.support.knowing_supervisor import KnowledgeFolder
from tests.support.runaway_loops import delegate

KEY = "the-delegate-key-of-tests"
QUESTION = "What does the migration budget say?"
PLAN = compute_document_id("finance", "plan")
SEARCH = Turn(Call("search", {"query": "migration budget"}))
GUESS = Turn(Call("fetch_document", {"document_id": PLAN}))
ANSWER = Turn(Say(f"It says this {format_citation(PLAN)}."))


@pytest.fixture
async def folder(tmp_path: Path) -> KnowledgeFolder:
    folder = await KnowledgeFolder.of(
        tmp_path / "library", budget="# Budget\n\nThe migration budget is public.\n"
    )
    async with folder.open_knowledge_base() as kb:
        await kb.add_pushed_datasource("finance")
        await kb.groups.put("controllers", ["ann@example.org"])
        results = await kb.push.push(
            "finance",
            [
                {
                    "id": "plan",
                    "title": "Plan",
                    "text": "The migration budget is 7 million.",
                    "visible_to": ["group:controllers"],
                }
            ],
        )
        assert [(result.status, result.document_id) for result in results] == [("stored", PLAN)]
    return folder


def acting(client: Client, user: str | None) -> Client:
    headers = {"Authorization": f"Bearer {KEY}"}
    if user is not None:
        headers |= on_behalf_of_headers(user)
    return Client(client.url, client.http, headers)


def tool_output(model: ScriptedChatModel) -> str:
    """What the model read last."""
    return str(model.requests[-1].messages[-1].text)


def cited(stream: ReceivedStream) -> list[str]:
    (answered,) = [event for event in stream.events if isinstance(event, Answered)]
    return [citation.title for citation in answered.citations]


async def ask(
    folder: KnowledgeFolder, user: str | None, *turns: Turn, elsewhere: bool
) -> tuple[str, list[str]]:
    """What the model read, and what the answer cites."""
    model = ScriptedChatModel(script=Script(*turns, ANSWER))
    env: dict[str, Any] = {"A2A_AUTH_DELEGATE_KEY": KEY, "RAG_SERVER_TOKEN": KEY}
    async with folder.run_supervisor(model, env=env, elsewhere=elsewhere) as client:
        stream = await acting(client, user).ask(QUESTION)
    return tool_output(model), cited(stream)


@pytest.mark.sample(1)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in this process", "at RAG_SERVER_URL"])
async def test_the_same_question_of_two_people(folder: KnowledgeFolder, elsewhere: bool) -> None:
    anns, anns_citations = await ask(folder, "ann@example.org", SEARCH, elsewhere=elsewhere)
    bobs, bobs_citations = await ask(folder, "bob@example.org", SEARCH, elsewhere=elsewhere)
    strangers, _ = await ask(folder, None, SEARCH, elsewhere=elsewhere)
    assert "7 million" in anns
    assert anns_citations == ["Plan"]
    for output in (bobs, strangers):
        assert "public" in output
        assert "7 million" not in output
    assert bobs_citations == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in this process", "at RAG_SERVER_URL"])
async def test_a_guessed_id_is_refused_like_an_unknown_one(folder: KnowledgeFolder, elsewhere: bool) -> None:
    guess, _ = await ask(folder, "bob@example.org", GUESS, elsewhere=elsewhere)
    unknown_id = compute_document_id("finance", "nothing")
    unknown, _ = await ask(
        folder,
        "bob@example.org",
        Turn(Call("fetch_document", {"document_id": unknown_id})),
        elsewhere=elsewhere,
    )
    assert guess.replace(PLAN, unknown_id) == unknown
    assert "There is no document" in guess


async def test_a_model_cannot_say_who_asks(folder: KnowledgeFolder) -> None:
    query = {"query": "migration budget"}
    for argument in ("principal", "viewer", "config", "metadata"):
        forged = {**query, argument: {"metadata": {"principal": "ann@example.org"}}}
        output, _ = await ask(folder, "bob@example.org", Turn(Call("search", forged)), elsewhere=False)
        assert "7 million" not in output


async def test_the_list_of_datasources_counts_what_one_may_see(folder: KnowledgeFolder) -> None:
    turn = Turn(Call("list_datasources", {}))
    anns, _ = await ask(folder, "ann@example.org", turn, elsewhere=False)
    bobs, _ = await ask(folder, "bob@example.org", turn, elsewhere=False)
    assert anns.count('"documents": 1') == 2
    assert bobs.count('"documents": 1') == 1


@pytest.mark.parametrize(("where", "expected"), [("in-process", "ann@example.org"), ("remote", "")])
async def test_a_delegation_carries_the_person_within_the_process_only(where: Where, expected: str) -> None:
    principals: list[str] = []

    @tool
    async def look(config: RunnableConfig) -> str:
        """Looks."""
        principals.append(RunContext.from_config(config).principal or "")
        return "Seen."

    librarian = agent("librarian", Script(Turn(Call("look", {})), Turn(Say("Seen."))), look)
    model = ScriptedChatModel(script=Script(Turn(delegate("Look", "librarian")), Turn(Say("Done."))))
    async with (
        place_agent(librarian, where) as placed,
        supervisor(model, agents=[placed], env={"A2A_AUTH_DELEGATE_KEY": KEY}) as client,
    ):
        stream = await acting(client, "ann@example.org").ask("Look")
    assert stream.answer == "Done."
    assert principals == [expected]
