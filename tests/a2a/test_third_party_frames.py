"""Frames of servers that differ in small things: what is harmless costs nobody an answer."""

from typing import Any

import pytest
from a2a.types import Role, StreamResponse, TaskState
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.a2a.third_party_frames import parse_frame
from ai_platform_engineering.a2a.third_party_reader import ThirdPartyReader
from tests.support.strategies import awkward_text, examples


def status_frame(status: dict[str, Any], **more: Any) -> StreamResponse:
    return parse_frame({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, **more}})


@pytest.mark.parametrize(
    ("timestamp", "seconds"),
    [
        ("2026-11-17T03:56:35Z", 1794887795),
        ("2026-11-17T03:56:35.333304", 1794887795),
        ("2026-11-17T05:56:35+02:00", 1794887795),
        ("2026-11-17", 1794873600),
        ("yesterday", 0),
        ("9999-12-31T23:59:59-12:00", 0),
        (1794887795, 0),
        (None, 0),
    ],
)
def test_a_time_is_utc_unless_it_says_otherwise(timestamp: Any, seconds: int) -> None:
    status = status_frame({"state": "TASK_STATE_WORKING", "timestamp": timestamp}).status_update.status
    assert (status.state, status.timestamp.seconds) == (TaskState.TASK_STATE_WORKING, seconds)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("TASK_STATE_INPUT_REQUIRED", TaskState.TASK_STATE_INPUT_REQUIRED),
        ("input-required", TaskState.TASK_STATE_INPUT_REQUIRED),
        ("Completed", TaskState.TASK_STATE_COMPLETED),
        ("cancelled", TaskState.TASK_STATE_CANCELED),
        ("unknown", TaskState.TASK_STATE_UNSPECIFIED),
        ("dreaming", TaskState.TASK_STATE_UNSPECIFIED),
        (7, TaskState.TASK_STATE_UNSPECIFIED),
        (None, TaskState.TASK_STATE_UNSPECIFIED),
    ],
)
def test_a_state_in_any_spelling(state: Any, expected: TaskState) -> None:
    assert status_frame({"state": state}).status_update.status.state == expected


def test_an_end_in_a_state_that_nobody_knows_is_a_failure_that_names_it() -> None:
    status = status_frame({"state": "expired"}, final=True).status_update.status
    assert status.state == TaskState.TASK_STATE_FAILED
    assert status.message.parts[0].text == "It ended in the state expired."


@pytest.mark.parametrize(
    ("result", "payload"),
    [
        ({"task": {"id": "t"}}, "task"),
        ({"kind": "task", "id": "t", "status": {"state": "working"}}, "task"),
        ({"id": "t", "status": {"state": "working"}}, "task"),
        ({"statusUpdate": {"taskId": "t"}}, "status_update"),
        ({"status_update": {"task_id": "t"}}, "status_update"),
        ({"kind": "status-update", "taskId": "t", "status": {"state": "working"}}, "status_update"),
        ({"taskId": "t", "status": {"state": "working"}, "final": False}, "status_update"),
        ({"artifactUpdate": {"taskId": "t", "artifact": {}}}, "artifact_update"),
        ({"taskId": "t", "artifact": {"parts": []}}, "artifact_update"),
        ({"message": {"parts": [{"text": "Yes."}]}}, "message"),
        ({"messageId": "m", "parts": [{"kind": "text", "text": "Yes."}]}, "message"),
        ({"kind": "heartbeat"}, None),
        ({}, None),
    ],
)
def test_the_kind_of_a_frame(result: dict[str, Any], payload: str | None) -> None:
    assert parse_frame(result).WhichOneof("payload") == payload


@pytest.mark.parametrize("result", [None, 7, "hello", [1]])
def test_what_is_no_object_is_no_frame(result: Any) -> None:
    with pytest.raises(ValueError, match="object"):
        parse_frame(result)


def test_parts_in_both_forms_and_of_unknown_kinds() -> None:
    parts = [
        {"kind": "text", "text": "One."},
        {"text": "Two.", "metadata": {"adk_thought": True}},
        {"kind": "file", "file": {"bytes": "not base64!", "name": "a.pdf", "mimeType": "application/pdf"}},
        {"raw": 7, "filename": "b.txt", "mediaType": "text/plain"},
        {"url": "https://files.example/c", "metadata": "none"},
        {"kind": "data", "data": {"pods": 3, "share": float("nan"), "id": 2**70}},
        {"kind": "hologram", "shape": "round"},
        "text",
        None,
    ]
    read_parts = parse_frame({"message": {"parts": parts}}).message.parts
    kinds = [part.WhichOneof("content") for part in read_parts]
    assert kinds == ["text", "text", "raw", "raw", "raw", "data"]
    assert [part.filename for part in read_parts[2:5]] == ["a.pdf", "b.txt", ""]
    assert read_parts[1].metadata["adk_thought"] is True
    assert dict(read_parts[5].data.struct_value)["pods"] == 3


def test_ids_and_roles_may_be_missing_or_numbers() -> None:
    task = parse_frame(
        {
            "task": {
                "id": 7,
                "status": None,
                "artifacts": [{"parts": [{"text": "Yes."}]}, None],
                "history": [{"role": "user"}, {"role": "assistant"}, {"role": "ROLE_AGENT"}, {}],
                "metadata": "none",
            }
        }
    ).task
    assert (task.id, task.context_id, len(task.artifacts)) == ("7", "", 1)
    assert [message.role for message in task.history] == [Role.ROLE_USER] + [Role.ROLE_AGENT] * 3


KEYS = st.sampled_from(
    "task message statusUpdate artifactUpdate status state timestamp artifact artifacts history parts text "
    "data file raw url kind role id taskId contextId messageId artifactId metadata append lastChunk".split()
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | awkward_text
VALUES = st.recursive(
    SCALARS | st.sampled_from(["task", "status-update", "working"]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(KEYS, children, max_size=5),
    max_leaves=20,
)


@examples(300)
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_object_is_a_frame_and_is_read(result: dict[str, Any]) -> None:
    reader = ThirdPartyReader("argocd")
    reader.read(parse_frame(result))
    reader.closing_events()
