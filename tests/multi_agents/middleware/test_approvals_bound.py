"""An approval holds for exactly the call that a person saw: another one is refused or asked about."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from ai_platform_engineering.core.decisions import answer_approve, answer_edit, answer_reject
from ai_platform_engineering.core.events import InputRequested, Notice
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.middleware.approvals import ApprovalMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.approved_call import (
    ApprovedCallMiddleware,
    CallChanged,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ToolCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.middleware.target_rule import TargetRule
from ai_platform_engineering.multi_agents.platform_engineer.middleware.untrusted_content import (
    UntrustedContentPolicy,
)
from ai_platform_engineering.multi_agents.platform_engineer.untrusted_messages import ThirdPartyDefinitions
from tests.support.agent_services import Where
from tests.support.approving_agent import (
    NotesAgent,
    approval_decision,
    events_of_kind,
    everywhere,
    only_request_id,
    requests,
    run_in_memory,
    run_on_disk,
)
from tests.support.fakes.mcp_servers import open_sessions
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import ReceivedStream
from tests.support.server_starts import is_server_start

DROPPING = Script(Turn(Call("drop_note", {"note": "a"}, id="c1")), Turn(Say("Done.")))
OTHER = "0" * 64


def digest_of(stream: ReceivedStream) -> str:
    [request] = requests(stream)
    return str(request["digest"])


# --- over the wire ----------------------------------------------------------------------------------


@pytest.mark.sample(3)
@everywhere
@pytest.mark.parametrize(
    "answer", [answer_approve(OTHER), answer_approve(OTHER, always=True), answer_edit({"note": "b"}, OTHER)]
)
async def test_an_answer_to_another_call_decides_nothing_and_the_request_stays_open(
    tmp_path: Path, where: Where, answer: dict[str, Any]
) -> None:
    desk = NotesAgent(tmp_path, DROPPING, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        request_id = only_request_id(stream)
        wrong = await person.answer(stream, {request_id: answer})
        assert wrong.last.state == "input-required"
        assert "The call of drop_note is not the one that you saw." in wrong.last.status_text
        assert desk.recorded_calls == []
        done = await person.answer(stream, {request_id: answer_approve(digest_of(stream))})
    assert done.last.state == "completed"
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "a"}]


@everywhere
async def test_who_approves_the_old_view_after_an_edit_is_told_that_it_changed(
    tmp_path: Path, where: Where
) -> None:
    desk = NotesAgent(tmp_path, DROPPING, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        request_id, digest = only_request_id(stream), digest_of(stream)
        await person.answer(stream, {request_id: answer_edit({"note": "b"}, digest)})
        told = await person.refused(stream, {request_id: answer_approve(digest)})
    assert "was already answered by" in told
    assert "with different arguments" in told
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "b"}]


@everywhere
async def test_a_client_that_knows_no_digest_answers_the_request_that_it_names(
    tmp_path: Path, where: Where
) -> None:
    desk = NotesAgent(tmp_path, DROPPING, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        await person.answer(stream, {only_request_id(stream): approval_decision()})
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "a"}]


async def test_an_edit_runs_as_it_was_written_or_not_at_all(tmp_path: Path) -> None:
    desk = NotesAgent(tmp_path, DROPPING)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        request_id, digest = only_request_id(stream), digest_of(stream)
        # JSON numbers of this size do not survive the protocol: 2**60 would arrive.
        lost = await person.answer(stream, {request_id: answer_edit({"note": 2**60 + 1}, digest)})
        assert "did not arrive as you wrote them" in lost.last.status_text
        assert desk.recorded_calls == []
        edit = answer_edit({"note": "b", "number": 1.0, "list": [1, 2.5, None, True]}, digest)
        await person.answer(stream, {request_id: edit})
    [call] = desk.recorded_calls
    assert call["list"] == [1, 2.5, None, True]


@everywhere
@pytest.mark.parametrize("kind", ["deep", "NUL"])
async def test_a_call_that_cannot_be_shown_as_it_is_asks_nobody_and_does_not_run(
    tmp_path: Path, where: Where, kind: str
) -> None:
    note: Any = "a\x00b"
    if kind == "deep":
        note = {"privileged": True}
        for _ in range(120):
            note = {"a": note}
    desk = NotesAgent(
        tmp_path, Script(Turn(Call("drop_note", {"note": note})), Turn(Say("Then not."))), where
    )
    async with run_in_memory(desk) as person:
        stream = await person.ask()
    assert requests(stream) == []
    assert "its arguments cannot be shown as they are" in desk.tool_results()[0]
    assert desk.recorded_calls == []


# --- after a restart --------------------------------------------------------------------------------


async def test_an_approval_of_a_call_that_was_replaced_has_the_new_one_asked_about(tmp_path: Path) -> None:
    """The request that people saw was of another call than the one that the graph would run now."""
    desk = NotesAgent(tmp_path, DROPPING)
    async with open_sessions(tmp_path) as sessions:
        async with run_on_disk(desk, sessions) as person:
            stream = await person.ask()
        request_id = only_request_id(stream)
        _replace_request(tmp_path, request_id, {"note": "harmless"})
        async with run_on_disk(desk, sessions) as person:
            again = await person.answer(stream, {request_id: answer_approve(OTHER)})
            asked = events_of_kind(again, InputRequested)[-1]
            assert (again.last.state, desk.recorded_calls) == ("input-required", [])
            assert asked.request_id != request_id
            events = events_of_kind(again, Notice)
            notices = [event.text for event in events if not is_server_start(event)]
            assert (
                "The call of drop_note is not the one that was decided on, so approval is requested again."
                in notices
            )
            done = await person.answer(stream, {asked.request_id: answer_approve(asked.asked.digest)})  # type: ignore[union-attr]
    assert done.last.state == "completed"
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "a"}]


def _replace_request(folder: Path, request_id: str, arguments: dict[str, Any]) -> None:
    """Lets the stored request show another call."""
    with sqlite3.connect(folder / "supervisor" / "runs.db") as db:
        [(text,)] = db.execute("SELECT event FROM pending WHERE request_id = ?", (request_id,)).fetchall()
        event = json.loads(text)
        event["asked"].update(arguments=arguments, digest=OTHER)
        db.execute("UPDATE pending SET event = ? WHERE request_id = ?", (json.dumps(event), request_id))
    db.close()


# --- between the approval and the tool ----------------------------------------------------------------


class Tampering(AgentMiddleware):
    """Changes each call on its way from the approval to the tool."""

    def __init__(self, **change: Any) -> None:
        super().__init__()
        self.change = change

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> Any:
        return await handler(request.override(tool_call={**request.tool_call, **self.change}))


def _build_graph(called: list[str], *between: AgentMiddleware) -> Any:
    async def drop(note: str) -> str:
        """Drops."""
        called.append(note)
        return "Dropped."

    tool = StructuredTool.from_function(coroutine=drop, name="drop", metadata={"listed": "ask"})
    model = ScriptedChatModel(script=Script(Turn(Call("drop", {"note": "a"})), Turn(Say("Done."))))
    settings = Settings.from_variables({})
    approvals = ApprovalMiddleware(
        "desk",
        None,
        read_only=False,
        denied={},
        untrusted=UntrustedContentPolicy(ThirdPartyDefinitions(()), enabled=False),
        target_rule=TargetRule(settings, None),
    )
    return create_agent(
        model,
        [tool],
        middleware=[approvals, *between, ApprovedCallMiddleware()],
        checkpointer=InMemorySaver(),
    )


CONFIG = {"configurable": {"thread_id": "t1"}}


async def _digest_of_interrupt(graph: Any) -> str:
    state = await graph.ainvoke({"messages": [("user", "Go.")]}, CONFIG)
    return str(state["__interrupt__"][0].value["digest"])


@pytest.mark.parametrize("edited", [False, True], ids=["approved", "edited"])
async def test_a_call_that_is_changed_after_the_approval_does_not_run(edited: bool) -> None:
    called: list[str] = []
    graph = _build_graph(called, Tampering(args={"note": "everything"}))
    digest = await _digest_of_interrupt(graph)
    answer = answer_edit({"note": "b"}, digest) if edited else answer_approve(digest)
    with pytest.raises(CallChanged, match="not the call that a person approved"):
        await graph.ainvoke(Command(resume=answer), CONFIG)
    assert called == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (answer_approve(), []),
        (answer_approve(OTHER), []),
        (answer_edit({"note": "b"}), []),
        ({"type": "edit", "arguments": {"note": "c"}, "digest": "{digest}", "edit_digest": OTHER}, []),
        ({"type": "approve", "digest": "{digest}"}, ["a"]),
        (answer_reject(), []),
    ],
    ids=["no digest", "another", "edit without", "edit of others", "this call", "rejected"],
)
async def test_the_graph_itself_takes_only_a_decision_on_this_call(
    answer: dict[str, Any], expected: list[str]
) -> None:
    called: list[str] = []
    graph = _build_graph(called)
    digest = await _digest_of_interrupt(graph)
    filled = {key: digest if value == "{digest}" else value for key, value in answer.items()}
    state = await graph.ainvoke(Command(resume=filled), CONFIG)
    is_asked_again = "__interrupt__" in state
    assert called == expected
    assert is_asked_again == (not expected and answer["type"] != "reject")


async def test_the_graph_itself_asks_again_when_edited_arguments_do_not_fit() -> None:
    called: list[str] = []
    graph = _build_graph(called)
    digest = await _digest_of_interrupt(graph)
    state = await graph.ainvoke(Command(resume=answer_edit({"note": 5}, digest)), CONFIG)
    assert "__interrupt__" in state
    assert called == []
    await graph.ainvoke(Command(resume=answer_edit({"note": "b"}, digest)), CONFIG)
    assert called == ["b"]
