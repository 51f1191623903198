"""Notes beside messages: each is read back as it was written, in the form that checkpoints store."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from ai_platform_engineering.core.message_metadata import (
    ActiveSkill,
    DirectCallNote,
    RepeatedCallNote,
    SkillFileNote,
    ToolResultNote,
    WorkflowRequest,
    WorkflowStart,
    WorkflowStepNote,
    direct_calls_metadata,
    find_direct_call,
    read_scope,
    scope_metadata,
)
from ai_platform_engineering.core.run_scope import RunScope
from ai_platform_engineering.core.workflow_actions import DirectToolCall

CALL = DirectCallNote(DirectToolCall("look", {"at": "it"}))


@pytest.mark.parametrize(
    ("note", "stored"),
    [
        (CALL, {"call": {"tool": "look", "arguments": {"at": "it"}}}),
        (DirectCallNote(), {"call": {"words": True}}),
        (WorkflowRequest("create", {"a": 1}), {"workflow": {"name": "create", "values": {"a": 1}}}),
        (WorkflowStepNote("ask"), {"workflow_step": "ask"}),
        (WorkflowStepNote(None, {"send": "No."}), {"workflow_failed": {"send": "No."}}),
        (ToolResultNote("unknown", "Nobody knows."), {"outcome": "unknown", "plain": "Nobody knows."}),
        (ActiveSkill("a", "1", ("b",)), {"skill": {"name": "a", "version": "1", "allowed": ["b"]}}),
        (
            SkillFileNote("a", "1", "b.md", 5),
            {"skill_file": {"name": "a", "version": "1", "path": "b.md", "offset": 5}},
        ),
        (RepeatedCallNote("f", 3), {"same_call": {"mark": "f", "count": 3}}),
    ],
)
def test_a_note_is_read_as_it_was_stored(note: Any, stored: dict[str, Any]) -> None:
    assert note.to_metadata() == stored
    message = ToolMessage("", tool_call_id="c", additional_kwargs=stored)
    assert type(note).of(message) == note


@pytest.mark.parametrize("kind", [DirectCallNote, WorkflowRequest, WorkflowStart, ActiveSkill, SkillFileNote])
@pytest.mark.parametrize("value", [None, "text", 7])
def test_a_message_without_a_note_has_none(kind: Any, value: Any) -> None:
    keys = ("call", "workflow", "skill", "skill_file")
    assert kind.of(HumanMessage("")) is None
    assert kind.of(HumanMessage("", additional_kwargs=dict.fromkeys(keys, value))) is None


def test_a_requested_workflow_is_not_a_started_one() -> None:
    request = HumanMessage("", additional_kwargs=WorkflowRequest("create", {}).to_metadata())
    assert WorkflowStart.of(request) is None


def test_direct_calls_belong_to_their_delegations() -> None:
    metadata = direct_calls_metadata({"c1": CALL})
    assert metadata == {"ordered_calls": {"c1": {"tool": "look", "arguments": {"at": "it"}}}}
    message = AIMessage("", additional_kwargs=metadata)
    assert find_direct_call(message, "c1") == CALL
    assert find_direct_call(message, "c2") is None
    assert find_direct_call(AIMessage(""), "c1") is None


def test_a_scope_may_allow_no_tool_at_all() -> None:
    assert scope_metadata(RunScope(tools=())) == {"scope": {"tools": []}}
    for scope in (RunScope(), RunScope(tools=()), RunScope(agents=("a",), instructions="Be brief.")):
        assert read_scope(HumanMessage("", additional_kwargs=scope_metadata(scope))) == scope
    assert read_scope(HumanMessage("")) == RunScope()
