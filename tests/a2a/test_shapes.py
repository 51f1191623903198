"""The two shapes of a run: what a client that knows nothing of us holds after the stream and in the task."""

import json
from typing import Any

import pytest
from hypothesis import given

from ai_platform_engineering.a2a.client_shape import EVENTS_EXTENSION, ClientShape, choose_shape
from ai_platform_engineering.a2a.codec import TaskRef, decode
from ai_platform_engineering.a2a.frame_json import FrameRenderer
from ai_platform_engineering.a2a.snapshots import encode_snapshot
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Approval,
    Cancelled,
    Failed,
    Form,
    InputField,
    InputRequested,
    InputResolved,
    MessageReceived,
    Notice,
    Paused,
    PlanStep,
    PlanUpdated,
    RunStarted,
    TextDelta,
    TextDiscarded,
    TextEnded,
    TextPart,
    ToolFinished,
    ToolStarted,
)
from tests.support import strategies as given_by

REF = TaskRef("task-1", "context-1")
TRACE = "0af7651916cd43dd8448eb211c80319c"
RICH = ClientShape("rich")
PLAIN = ClientShape("plain", text_decisions=True)
VERSIONS = pytest.mark.parametrize("is_v03", [True, False], ids=["0.3", "1.0"])
SHAPES = pytest.mark.parametrize("shape", [RICH, PLAIN], ids=["rich", "plain"])


def frames_of(events: list[AnyEvent], shape: ClientShape, *, is_v03: bool) -> list[dict[str, Any]]:
    """The updates of a stream, without what the version wraps around them."""
    renderer = FrameRenderer(REF, is_v03=is_v03, shape=shape)
    requests: list[InputRequested] = []
    updates: list[dict[str, Any]] = []
    for item in given_by.numbered(events):
        if isinstance(item.event, InputRequested):
            requests.append(item.event)
        for result in renderer.render_event(item, requests):
            updates.append(unwrapped(json.loads(result)))
    return updates


def unwrapped(result: dict[str, Any]) -> dict[str, Any]:
    for key in ("task", "statusUpdate", "artifactUpdate"):
        if key in result:
            return dict(result[key])
    return result


def task_of(events: list[AnyEvent], shape: ClientShape, *, is_v03: bool) -> dict[str, Any]:
    task = encode_snapshot(REF, given_by.numbered(events), shape)
    renderer = FrameRenderer(REF, is_v03=is_v03, shape=shape)
    return unwrapped(json.loads(renderer.render_snapshot(task)))


def folded(updates: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client has after the updates: artifacts by append and replace, and the last status."""
    artifacts: dict[str, dict[str, Any]] = {}
    status: Any = None
    for update in updates:
        if "artifact" not in update:
            status = update["status"]
            continue
        new = update["artifact"]
        key = new["artifactId"]
        if update.get("append") and key in artifacts:
            before = artifacts[key]
            metadata = {**before.get("metadata", {}), **new.get("metadata", {})}
            artifacts[key] = {**before, "parts": [*before["parts"], *new["parts"]], "metadata": metadata}
        else:
            artifacts[key] = new
    seen = [shown(artifact) for artifact in artifacts.values()]
    return {"artifacts": [artifact for artifact in seen if artifact], "status": status}


def shown(artifact: dict[str, Any]) -> dict[str, Any] | None:
    text = "".join(part.get("text") or "" for part in artifact["parts"])
    data = [part["data"] for part in artifact["parts"] if "data" in part]
    if not text and not data:
        return None
    fields = {key: artifact.get(key) for key in ("artifactId", "name", "description")}
    metadata = {
        key: value for key, value in artifact.get("metadata", {}).items() if not key.startswith("caipe.")
    }
    return {**fields, "text": text, "data": data, "metadata": metadata}


def texts_of(updates: list[dict[str, Any]]) -> list[str]:
    """The texts of all artifact updates, as a client that prints each of them shows them."""
    return [
        "".join(part.get("text") or "" for part in update["artifact"]["parts"])
        for update in updates
        if "artifact" in update
    ]


def said(update: dict[str, Any]) -> str:
    parts = update["status"].get("message", {}).get("parts", [])
    return "".join(part.get("text") or "" for part in parts)


def messages_of(events: list[AnyEvent], shape: ClientShape) -> list[tuple[str, str]]:
    """The ids of the messages of both sides, except the agent's last one, which is the task's status."""
    messages: list[tuple[str, str]] = []
    for item in given_by.numbered(events):
        match item.event:
            case RunStarted() | MessageReceived():
                messages.append(("user", item.event.message_id))
            case Paused():
                messages.append(("agent", f"task-1-{item.seq}"))
            case InputResolved() if shape is PLAIN:
                messages.append(("agent", f"task-1-{item.seq}"))
            case _:
                pass
    return messages


# --- what the stream gave is what the task holds ------------------------------------------------------------


@pytest.mark.sample(2)
@SHAPES
@VERSIONS
@given_by.examples(40)
@given(events=given_by.run_events())
def test_a_task_holds_what_the_stream_gave(shape: ClientShape, is_v03: bool, events: list[AnyEvent]) -> None:
    task = task_of(events, shape, is_v03=is_v03)
    held = {"artifacts": [shown(one) for one in task.get("artifacts", [])], "status": task["status"]}
    assert held == folded(frames_of(events, shape, is_v03=is_v03))


@SHAPES
@given_by.examples(30)
@given(events=given_by.run_events())
def test_a_task_holds_all_messages_of_both_sides(shape: ClientShape, events: list[AnyEvent]) -> None:
    task = task_of(events, shape, is_v03=True)
    history = [(message["role"], message["messageId"]) for message in task["history"]]
    last = [("agent", (task["status"].get("message") or {}).get("messageId"))]
    expected = messages_of(events, shape)
    is_question = task["status"]["state"] == "input-required"
    assert history == (expected[:-1] if is_question and expected[-1:] == last else expected)


@VERSIONS
@given_by.examples(40)
@given(events=given_by.run_events())
def test_the_plain_shape_has_one_artifact_and_nothing_of_ours(is_v03: bool, events: list[AnyEvent]) -> None:
    updates = frames_of(events, PLAIN, is_v03=is_v03)
    ids = {update["artifact"]["artifactId"] for update in updates if "artifact" in update}
    assert ids <= {"answer-task-1"}
    assert "caipe." not in json.dumps(updates)
    assert "caipe." not in json.dumps(task_of(events, PLAIN, is_v03=is_v03))
    assert not any(decode(update) for update in updates)
    if isinstance(events[-1], Answered):
        [answer] = folded(updates)["artifacts"]
        assert answer["text"] == events[-1].text
        assert answer["metadata"]["trace_id"] == updates[-1]["metadata"]["trace_id"]


# --- the answer once ----------------------------------------------------------------------------------------

STEP = PlanStep(step_id="s1", title="Look", agent="argocd", status="in_progress")
DELEGATED: dict[str, Any] = {"call_id": "c1", "tool": "argocd", "delegates": True}
INNER: dict[str, Any] = {"agent": "argocd", "parent_call": "c1"}
RUN: list[AnyEvent] = [
    RunStarted(message_id="q", parts=(TextPart(text="Which version?"),)),
    PlanUpdated(title="Releases", steps=(STEP,)),
    TextDelta(message_id="m1", offset=0, text="Let me "),
    TextDelta(message_id="m1", offset=7, text="look."),
    TextEnded(message_id="m1", role="narration"),
    ToolStarted(**DELEGATED),
    TextDelta(message_id="m2", offset=0, text="It is 2.9, says Argo CD.", **INNER),
    TextEnded(message_id="m2", role="delegated", **INNER),
    ToolFinished(**DELEGATED),
    TextDelta(message_id="m3", offset=0, text="Version 3"),
    TextDiscarded(message_id="m3", reason="retry"),
    TextDelta(message_id="m4", offset=0, text="Version", slot="m3"),
    TextDelta(message_id="m4", offset=7, text=" 2.9 runs.", slot="m3"),
    TextEnded(message_id="m4", role="answer", slot="m3"),
    Answered(text="Version 2.9 runs.", trace_id=TRACE, message_id="m4", slot="m3"),
]


@VERSIONS
def test_a_plain_client_gets_the_answer_in_chunks_and_never_again(is_v03: bool) -> None:
    updates = frames_of(RUN, PLAIN, is_v03=is_v03)
    assert texts_of(updates) == ["Let me ", "look.", "", "Version 3", "", "Version", " 2.9 runs.", ""]
    last = [update for update in updates if "artifact" in update][-1]
    assert (last["append"], last["lastChunk"]) == (True, True)
    progress = [said(update) for update in updates if "artifact" not in update]
    assert [text for text in progress if text] == [
        "⟦🎯 Execution Plan: Releases⟧\n🔄 [Argocd] Look",
        "🔧 Supervisor: Calling Agent Argocd...",
        "✅ Supervisor: Argocd completed",
    ]


def test_an_answer_that_was_not_streamed_is_sent_whole() -> None:
    events = [*RUN[:-1], Answered(text="Something else.", trace_id=TRACE, data={"n": 1})]
    updates = frames_of(events, PLAIN, is_v03=False)
    [answer] = folded(updates)["artifacts"]
    assert (answer["text"], answer["data"]) == ("Something else.", [{"n": 1}])


def test_the_data_of_a_streamed_answer_follows_its_text() -> None:
    events = [*RUN[:-1], RUN[-1].model_copy(update={"data": {"n": 1}})]
    updates = frames_of(events, PLAIN, is_v03=False)
    assert "".join(texts_of(updates)).count("Version 2.9 runs.") == 1
    [answer] = folded(updates)["artifacts"]
    assert (answer["text"], answer["data"]) == ("Version 2.9 runs.", [{"n": 1}])


@VERSIONS
def test_a_rich_client_that_folds_by_id_holds_the_answer_once(is_v03: bool) -> None:
    held = folded(frames_of(RUN, RICH, is_v03=is_v03))["artifacts"]
    answers = [(artifact["name"], artifact["text"]) for artifact in held if "2.9 runs" in artifact["text"]]
    assert answers == [("final_result", "Version 2.9 runs.")]


@VERSIONS
def test_the_end_of_the_answers_text_is_marked_for_older_clients(is_v03: bool) -> None:
    updates = frames_of(RUN, RICH, is_v03=is_v03)
    marked = [
        update
        for update in updates
        if (update.get("artifact") or {}).get("metadata", {}).get("is_final_answer")
    ]
    [mark] = marked
    assert mark["artifact"]["metadata"]["is_final_answer"] is True
    assert (mark["artifact"]["name"], mark["append"]) == ("streaming_result", True)
    assert texts_of(marked) == [""]
    chunk_ids = {
        update["artifact"]["artifactId"]
        for update in updates
        if "artifact" in update and "Version" in json.dumps(update["artifact"]["parts"])
    }
    assert chunk_ids == {mark["artifact"]["artifactId"]}  # its chunks, the mark and the final result


@VERSIONS
@pytest.mark.parametrize(
    "end",
    [Failed(message="It broke.", trace_id=TRACE, partial="So f"), Cancelled(trace_id=TRACE, partial="So f")],
    ids=["failed", "cancelled"],
)
def test_a_plain_client_keeps_what_there_was_of_an_answer(end: AnyEvent, is_v03: bool) -> None:
    events = [*RUN[:5], TextDelta(message_id="m9", offset=0, text="So f"), end]
    held = folded(frames_of(events, PLAIN, is_v03=is_v03))
    assert [artifact["text"] for artifact in held["artifacts"]] == ["So f"]


# --- requests -----------------------------------------------------------------------------------------------

FORM = InputRequested(
    request_id="r1",
    asked=Form(
        title="Create repo",
        fields=(
            InputField(field_name="repo", field_description="Its name"),
            InputField(field_name="size", field_type="select", field_values=("s", "m"), default_value="s"),
        ),
    ),
)
CALL = InputRequested(
    request_id="r2",
    agent="argocd",
    asked=Approval(tool="sync", arguments={"app": "web", "n": 3}, reason="It changes production"),
)
ASKED: list[AnyEvent] = [
    RUN[0],
    FORM,
    CALL,
    Paused(text="I need your input to go on.", requests=("r1", "r2")),
]


@VERSIONS
def test_a_plain_client_reads_what_is_asked_and_how_to_answer(is_v03: bool) -> None:
    last = frames_of(ASKED, PLAIN, is_v03=is_v03)[-1]
    text = said(last)
    for line in (
        "1. Create repo",
        "- repo (required): Its name.",
        "- size (select, optional): One of: s, m. Default: s.",
        '"answer 1" and a line for each field, such as "repo: value", or with "reject 1 <reason>"',
        "2. argocd wants to call sync.",
        "Why: It changes production.",
        '- app: "web"',
        "- n: 3",
        '"approve 2", or "reject 2 <reason>", or "edit 2" and a line "name: value"',
    ):
        assert line in text
    data = [part["data"] for part in last["status"]["message"]["parts"] if "data" in part]
    assert [one["request_id"] for one in data] == ["r1", "r2"]


def test_one_request_is_answered_without_a_number() -> None:
    events = [RUN[0], CALL, Paused(text="I need your input.", requests=("r2",))]
    text = said(frames_of(events, PLAIN, is_v03=False)[-1])
    assert 'Answer with "approve", or "reject <reason>", or a line "name: value"' in text


def test_a_client_whose_texts_decide_nothing_is_not_told_to_approve() -> None:
    events = [RUN[0], CALL, Paused(text="I need your input.", requests=("r2",))]
    text = said(frames_of(events, RICH, is_v03=False)[-1])
    assert "approve" not in text
    assert "argocd wants to call sync." in text


def test_a_number_stays_with_its_request() -> None:
    events: list[AnyEvent] = [
        *ASKED,
        InputResolved(request_id="r1", resolution="answered", by="me"),
        InputRequested(request_id="r3", asked=Approval(tool="delete", arguments={})),
        Paused(text="Still.", requests=("r2", "r3")),
    ]
    text = said(frames_of(events, PLAIN, is_v03=False)[-1])
    assert "2. argocd wants to call sync." in text
    assert "3. supervisor wants to call delete." in text
    assert "Create repo" not in text


@VERSIONS
@pytest.mark.parametrize("resolution", ["answered", "rejected", "expired", "withdrawn"])
def test_a_request_that_is_over_is_marked_and_not_listed_as_open(resolution: str, is_v03: bool) -> None:
    resolved = InputResolved(request_id="r1", resolution=resolution, by="me")
    task = task_of([*ASKED, resolved], RICH, is_v03=is_v03)
    data = [part["data"] for artifact in task["artifacts"] for part in artifact["parts"] if "data" in part]
    [over] = [one for one in data if one["request_id"] == "r1"]
    assert (over["resolution"], over["input_title"]) == (resolution, "Create repo")
    assert [one["request_id"] for one in data if one.get("user_input") or one.get("approval")] == ["r2"]


def test_a_plain_task_says_what_became_of_a_request() -> None:
    answered = InputResolved(request_id="r2", resolution="rejected", by="me")
    last = frames_of([*ASKED, answered], PLAIN, is_v03=False)[-1]
    assert said(last) == "A decision on sync: rejected by me."
    task = task_of([*ASKED, answered, RUN[-1]], PLAIN, is_v03=True)
    assert task["history"][-1]["parts"][0]["text"] == "A decision on sync: rejected by me."
    assert task["history"][-1]["parts"][1]["data"] == {
        "request_id": "r2",
        "resolution": "rejected",
        "by": "me",
        "tool": "sync",
    }


# --- queues -------------------------------------------------------------------------------------------------


@SHAPES
@VERSIONS
def test_a_queued_task_is_submitted_with_its_position_until_work_begins(
    shape: ClientShape, is_v03: bool
) -> None:
    events: list[AnyEvent] = [
        RUN[0].model_copy(update={"queued": True}),
        Notice(code="queue", text="Queued: 1 question before this one.", position=1),
        Notice(code="queue", text="It begins."),
    ]
    states = [
        update["status"]["state"].removeprefix("TASK_STATE_").lower()
        for update in frames_of(events, shape, is_v03=is_v03)
    ]
    assert states == ["submitted", "submitted", "submitted", "working"]
    waiting = task_of(events[:2], shape, is_v03=is_v03)
    assert said(waiting) == "Queued: 1 question before this one."


# --- who gets which -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extensions", "is_v03", "v03_shape", "expected"),
    [
        ((), True, "rich", ClientShape("rich", text_decisions=True)),
        ((), True, "plain", ClientShape("plain", text_decisions=True)),
        ((), False, "rich", ClientShape("plain", text_decisions=True)),
        ((EVENTS_EXTENSION,), True, "plain", ClientShape("rich")),
        ((EVENTS_EXTENSION, "urn:other"), False, "rich", ClientShape("rich")),
        (("urn:other",), False, "rich", ClientShape("plain", text_decisions=True)),
    ],
)
def test_the_shape_follows_the_extension_and_the_version(
    extensions: tuple[str, ...], is_v03: bool, v03_shape: Any, expected: ClientShape
) -> None:
    chosen = choose_shape(extensions, is_v03=is_v03, v03_shape=v03_shape, text_decisions=True)
    assert chosen == expected
