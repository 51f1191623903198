"""Events on the wire: what a client of ours reads back, and what a third-party client sees, in both protocol
versions."""

import json
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from a2a.types import Task
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ai_platform_engineering.a2a.codec import TaskRef, decode, decode_snapshot
from ai_platform_engineering.a2a.event_frames import encode
from ai_platform_engineering.a2a.frame_json import FrameRenderer, frame_to_json
from ai_platform_engineering.a2a.notification_text import title_case
from ai_platform_engineering.a2a.snapshots import encode_snapshot
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Approval,
    Cancelled,
    Citation,
    DataPart,
    Failed,
    FilePart,
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
    StoredEvent,
    TextDelta,
    TextDiscarded,
    TextEnded,
    TextPart,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    ends_turn,
)
from ai_platform_engineering.core.transcript import fold
from tests.support import strategies as given_by

REF = TaskRef("task-1", "context-1")
TRACE = "0af7651916cd43dd8448eb211c80319c"
BOTH = (True, False)  # is it protocol 0.3, else 1.0
VERSIONS = pytest.mark.parametrize("is_v03", BOTH, ids=["0.3", "1.0"])


def numbered(event: AnyEvent, seq: int = 7) -> StoredEvent:
    return given_by.numbered([event], seq)[0]


def results(event: AnyEvent, *, is_v03: bool) -> list[dict[str, Any]]:
    """The frames of an event as a client parses them."""
    return [json.loads(result) for result in FrameRenderer(REF, is_v03=is_v03).render_event(numbered(event))]


def body(result: dict[str, Any]) -> dict[str, Any]:
    """The update itself, whatever the version wraps around it."""
    payload = next(
        (result[key] for key in ("task", "statusUpdate", "artifactUpdate") if key in result), result
    )
    assert isinstance(payload, dict)
    return payload


def artifact(event: AnyEvent, *, is_v03: bool) -> dict[str, Any]:
    """The one artifact of an event."""
    artifacts = [
        body(result)["artifact"] for result in results(event, is_v03=is_v03) if "artifact" in body(result)
    ]
    assert len(artifacts) == 1
    return dict(artifacts[0])


def words(event: AnyEvent) -> str:
    return str(artifact(event, is_v03=True)["parts"][0]["text"])


def strictly_parsed(text: str) -> Any:
    """JSON as other languages read it: no NaN, no Infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


# --- there and back -----------------------------------------------------------------------------------------


def test_every_kind_has_a_strategy() -> None:
    kinds = {kind.model_fields["kind"].default: kind for kind in get_args(AnyEvent)}
    assert set(given_by.EVENTS) == set(kinds)
    assert all(isinstance(_example_of(kind), kinds[kind]) for kind in kinds)


def _example_of(kind: str) -> AnyEvent:
    events: list[AnyEvent] = []

    @settings(max_examples=1, database=None)
    @given(given_by.EVENTS[kind])
    def take(event: AnyEvent) -> None:
        events.append(event)

    take()
    return events[-1]


@pytest.mark.parametrize("kind", given_by.EVENTS)
@given_by.examples(30)
@given(data=st.data())
def test_what_is_decoded_is_what_was_encoded(kind: str, data: st.DataObject) -> None:
    event = data.draw(given_by.EVENTS[kind])
    item = numbered(event, data.draw(st.integers(1, 2**40)))
    for is_v03 in BOTH:
        sent = [frame_to_json(frame, is_v03=is_v03) for frame in encode(REF, item)]
        assert [numbered_event for one in sent for numbered_event in decode(json.loads(one))] == [
            (item.seq, event)
        ]


REAL_ARGUMENTS: dict[str, Any] = {
    "zeta": 2**64 + 1,
    "alpha": -(10**40),
    "nested": [[1, [2.5, None]], {"b": [True, {"z": 1, "a": 0}], "a": "1"}],
    "account": "012345678901",
    "float": 1.0,
    "tiny": 5e-324,
    "empty": [{}, [], ""],
    "": {"no name": None},
    "line": "a\u2028b\u0085c\u2029d\r\n",
    "emoji": "👩‍🚀 \N{GRINNING FACE}",
}


@VERSIONS
def test_tool_arguments_come_back_with_their_numbers_their_nesting_and_their_order(is_v03: bool) -> None:
    event = ToolStarted(call_id="c", tool="apply", arguments=REAL_ARGUMENTS)
    [(_, back)] = decode(results(event, is_v03=is_v03)[0])
    assert isinstance(back, ToolStarted)
    assert json.dumps(back.arguments) == json.dumps(REAL_ARGUMENTS)
    assert [type(value) for value in back.arguments.values()] == [
        type(value) for value in REAL_ARGUMENTS.values()
    ]


@VERSIONS
def test_what_no_database_holds_is_cleaned_before_it_is_sent(is_v03: bool) -> None:
    event = ToolStarted(
        call_id="c", tool="t", arguments={"nul\x00": "a\x00b", "lone": "\ud83d!", "pair": "\ud83d\ude00"}
    )
    expected = {"nul\ufffd": "a\ufffdb", "lone": "\ufffd!", "pair": "\N{GRINNING FACE}"}
    [(_, back)] = decode(results(event, is_v03=is_v03)[0])
    assert event.arguments == expected
    assert back == event


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_json_does_not_know_never_reaches_the_wire(number: float) -> None:
    odd: list[AnyEvent] = [
        ToolProgress(call_id="c", tool="t", done=number, total=number),
        ToolStarted(call_id="c", tool="t", arguments={"n": [number]}),
        InputRequested(
            request_id="r", asked=Form(fields=(InputField(field_name="n", minimum=number, value=number),))
        ),
    ]
    for event in odd:
        for result in FrameRenderer(REF, is_v03=False).render_event(numbered(event)):
            frame = body(strictly_parsed(result))
            metadata = frame.get("metadata") or frame["artifact"]["metadata"]
            strictly_parsed(metadata["caipe.event"])
            assert decode(strictly_parsed(result)) == [(7, event)]


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = {"deeper": [value]}
    return value


@VERSIONS
@pytest.mark.parametrize("depth", [10, 20, 45, 2000])
def test_deep_arguments_break_no_reader(depth: int, is_v03: bool) -> None:
    for event in (
        ToolStarted(call_id="c", tool="t", arguments=nested(depth)),
        InputRequested(request_id="r", asked=Approval(tool="t", arguments=nested(depth))),
        RunStarted(message_id="m", parts=(DataPart(data=nested(depth)),)),
        Answered(text="a", trace_id=TRACE, data=nested(depth)),
    ):
        decoded = [
            numbered_event for result in results(event, is_v03=is_v03) for numbered_event in decode(result)
        ]
        assert decoded == [(7, event)]
        assert ("bottom" in json.dumps(event.model_dump(mode="json"))) is (depth < 2000)


@VERSIONS
def test_an_integer_that_protobuf_would_round_is_shown_to_the_approver_digit_by_digit(is_v03: bool) -> None:
    event = InputRequested(
        request_id="r", asked=Approval(tool="t", arguments={"id": 2**53 + 1, "small": 2**53, "huge": 10**400})
    )
    arguments = artifact(event, is_v03=is_v03)["parts"][0]["data"]["arguments"]
    assert int(arguments["id"]) == 2**53 + 1
    assert int(arguments["huge"]) == 10**400
    assert arguments["small"] == 2**53
    assert decode(results(event, is_v03=is_v03)[0]) == [(7, event)]


@given_by.examples(50)
@given(event=given_by.any_event)
def test_the_wire_is_ascii(event: AnyEvent) -> None:
    for is_v03 in BOTH:
        for result in FrameRenderer(REF, is_v03=is_v03).render_event(numbered(event)):
            assert result.isascii()
            assert "\n" not in result


@given_by.examples(50)
@given(event=given_by.any_event)
def test_encoding_the_same_event_again_gives_the_same_bytes(event: AnyEvent) -> None:
    item = numbered(event)
    for is_v03 in BOTH:
        first, again = (
            [frame_to_json(frame, is_v03=is_v03) for frame in encode(REF, item)] for _ in range(2)
        )
        assert first == again


@given_by.examples(60)
@given(deltas=st.lists(given_by.EVENTS["text_delta"], min_size=1, max_size=5), first=st.integers(1, 2**50))
@example(deltas=[TextDelta(message_id="918273645546372", offset=3, text="a")], first=1)
@example(
    deltas=[TextDelta(message_id="m", offset=3, text="564738291192837", step_id="564738291192837")], first=1
)
@example(deltas=[TextDelta(message_id="m", offset=3, text="\x01text\x01", agent="\x01text\x01")], first=1)
@example(
    deltas=[
        TextDelta(message_id="m", offset=3, text="seq"),
        TextDelta(message_id="m", offset=6, text="offset"),
    ],
    first=918273645546372,
)
def test_the_prepared_envelope_of_a_delta_gives_the_same_json_as_the_slow_way(
    deltas: list[TextDelta], first: int
) -> None:
    for is_v03 in BOTH:
        renderer = FrameRenderer(REF, is_v03=is_v03)
        for item in given_by.numbered(deltas, first):
            [fast] = renderer.render_event(item)
            [frame] = encode(REF, item)
            assert json.loads(fast) == json.loads(frame_to_json(frame, is_v03=is_v03))


# --- frames: how many, in which order, with which numbers ---------------------------------------------------

STEP = PlanStep(step_id="step-1", title="Find tickets", agent="jira", status="in_progress")
FRAMES: list[tuple[AnyEvent, list[str]]] = [
    (RunStarted(message_id="m", parts=(TextPart(text="Hello"),)), ["task submitted", "status working event"]),
    (
        RunStarted(message_id="m", parts=(TextPart(text="Hello"),), queued=True),
        ["task submitted", "status submitted event"],
    ),
    (TextDelta(message_id="m", offset=0, text="a"), ["streaming_result event"]),
    (TextDelta(message_id="m", offset=1, text="b"), ["streaming_result append event"]),
    (
        TextDelta(message_id="m", offset=0, text="a", agent="argocd", parent_call="c"),
        ["subagent_result event"],
    ),
    (TextEnded(message_id="m", role="narration"), ["status working event"]),
    (TextEnded(message_id="m", role="answer"), ["streaming_result append event"]),
    (TextEnded(message_id="m", role="answer", agent="argocd", parent_call="c"), ["status working event"]),
    (MessageReceived(message_id="u", parts=(TextPart(text="Yes"),)), ["status working event"]),
    (TextDiscarded(message_id="m", reason="x"), ["streaming_result event"]),
    (TextDiscarded(message_id="m", reason="x", agent="argocd", parent_call="c"), ["subagent_result event"]),
    (ToolStarted(call_id="c", tool="search"), ["tool_notification_start event"]),
    (ToolProgress(call_id="c", tool="search", text="half"), ["status working event says"]),
    (ToolFinished(call_id="c", tool="search"), ["tool_notification_end event"]),
    (PlanUpdated(title="t", steps=(STEP,)), ["execution_plan_update event"]),
    (InputRequested(request_id="r", asked=Form(response="Which?")), ["UserInputMetaData event"]),
    (
        InputResolved(request_id="r", resolution="answered"),
        ["UserInputResolved event", "status working"],
    ),
    (InputResolved(request_id="r", resolution="expired"), ["UserInputResolved event"]),
    (Notice(code="info", text="Look"), ["status working event says"]),
    (Notice(code="queue", text="Queued", position=1), ["status submitted event says"]),
    (Paused(text="I need input.", requests=("r",)), ["status input-required final event says"]),
    (Answered(text="Done.", trace_id=TRACE), ["final_result last event", "status completed final"]),
    (Failed(message="It broke.", trace_id=TRACE), ["status failed final event says"]),
    (
        Failed(message="It broke.", trace_id=TRACE, partial="So f"),
        ["partial_result last event", "status failed final says"],
    ),
    (Cancelled(trace_id=TRACE), ["status canceled final event says"]),
    (
        Cancelled(trace_id=TRACE, by="me", partial="So f"),
        ["partial_result last event", "status canceled final says"],
    ),
]


def described(result: dict[str, Any]) -> str:
    """A frame of protocol 0.3 in words."""
    kind = result["kind"]
    if kind == "artifact-update":
        metadata = result["artifact"]["metadata"]
        flags = ["append" if result["append"] else "", "last" if result["lastChunk"] else ""]
        name = result["artifact"]["name"]
    else:
        metadata = result["metadata"]
        flags = ["final" if result.get("final") else ""]
        name = f"{'task' if kind == 'task' else 'status'} {result['status']['state']}"
    assert metadata["caipe.seq"] == "7"
    flags += [
        "event" if "caipe.event" in metadata else "",
        "says" if (result.get("status") or {}).get("message") else "",
    ]
    return " ".join([name, *(flag for flag in flags if flag)])


def test_the_table_of_frames_covers_every_kind() -> None:
    assert {type(event) for event, _ in FRAMES} == set(get_args(AnyEvent))


@pytest.mark.parametrize(("event", "expected"), FRAMES, ids=[" then ".join(frames) for _, frames in FRAMES])
def test_an_event_gives_these_frames_in_this_order(event: AnyEvent, expected: list[str]) -> None:
    assert [described(result) for result in results(event, is_v03=True)] == expected


@pytest.mark.parametrize(("event", "expected"), FRAMES, ids=[" then ".join(frames) for _, frames in FRAMES])
def test_protocol_1_0_carries_the_same_frames(event: AnyEvent, expected: list[str]) -> None:
    old, new = results(event, is_v03=True), results(event, is_v03=False)
    assert len(new) == len(expected)
    for before, result in zip(old, new, strict=True):
        [(wrapper, update)] = result.items()
        assert (
            wrapper
            == {"task": "task", "status-update": "statusUpdate", "artifact-update": "artifactUpdate"}[
                before["kind"]
            ]
        )
        if wrapper == "artifactUpdate":
            assert update.get("append", False) == before["append"]
            assert update.get("lastChunk", False) == before["lastChunk"]
            assert update["artifact"]["metadata"] == before["artifact"]["metadata"]
            assert update["artifact"].get("description") == before["artifact"].get("description")
        else:
            assert update["status"]["state"] == "TASK_STATE_" + before["status"]["state"].upper().replace(
                "-", "_"
            )
            assert update["metadata"] == before["metadata"]
        assert "final" not in update  # 1.0 has no such field: the stream closes


@given_by.examples(50)
@given(event=given_by.any_event)
def test_in_0_3_a_status_is_final_exactly_when_the_stream_closes_after_it(event: AnyEvent) -> None:
    final = [
        result.get("final") for result in results(event, is_v03=True) if result["kind"] == "status-update"
    ]
    assert final == ([True] if ends_turn(event) else [False] * len(final))


@given_by.examples(50)
@given(event=given_by.any_event)
def test_one_frame_of_an_event_carries_it_and_every_frame_its_number(event: AnyEvent) -> None:
    frames = [body(result) for result in results(event, is_v03=False)]
    metadata = [(frame.get("artifact") or frame)["metadata"] for frame in frames]
    assert [one["caipe.seq"] for one in metadata] == ["7"] * len(frames)
    [carried] = [json.loads(one["caipe.event"]) for one in metadata if "caipe.event" in one]
    assert carried["kind"] == event.kind


@VERSIONS
@pytest.mark.parametrize(
    "event",
    [
        TextDelta(message_id="m", offset=4, text="once-and-only"),
        TextDelta(message_id="m", offset=0, text="once-and-only", agent="argocd", parent_call="c"),
        Answered(text="once-and-only", trace_id=TRACE),
        Failed(message="It broke.", trace_id=TRACE, partial="once-and-only"),
    ],
    ids=["narration", "sub-agent", "answer", "partial"],
)
def test_a_text_is_in_the_text_part_alone(event: AnyEvent, is_v03: bool) -> None:
    sent = "".join(json.dumps(result) for result in results(event, is_v03=is_v03))
    assert sent.count("once-and-only") == 1
    assert artifact(event, is_v03=is_v03)["parts"][0]["text"] == "once-and-only"


def test_the_task_event_holds_the_question_as_it_was_asked() -> None:
    parts = (
        TextPart(text="Why?"),
        DataPart(data={"n": 3}),
        FilePart(name="a.yaml", media_type="text/yaml", text="a: é"),
    )
    [task, working] = results(RunStarted(message_id="user-1", parts=parts), is_v03=True)
    assert (task["id"], task["contextId"]) == ("task-1", "context-1")
    [message] = task["history"]
    assert (message["role"], message["messageId"], message["taskId"]) == ("user", "user-1", "task-1")
    kinds = [
        (part["kind"], part.get("text") or part.get("data") or part["file"]["name"])
        for part in message["parts"]
    ]
    assert kinds == [("text", "Why?"), ("data", {"n": 3}), ("file", "a.yaml")]
    assert (working["taskId"], working["contextId"]) == ("task-1", "context-1")


# --- words on the wire --------------------------------------------------------------------------------------

DELEGATED: dict[str, Any] = {"call_id": "c1", "tool": "argocd", "delegates": True}
INNER: dict[str, Any] = {
    "call_id": "c1/c2",
    "tool": "version_service__version",
    "agent": "argocd",
    "parent_call": "c1",
}
OWN: dict[str, Any] = {"call_id": "c3", "tool": "search", "knowledge": True}

WORDS: list[tuple[AnyEvent, str]] = [
    (ToolStarted(**DELEGATED), "🔧 Supervisor: Calling Agent Argocd...\n"),
    (ToolStarted(**INNER), "🔧 Argocd: Calling tool: Version_Service__Version\n"),
    (ToolFinished(**INNER), "✅ Argocd: Tool Version_Service__Version completed\n"),
    (ToolFinished(**DELEGATED), "✅ Supervisor: Argocd completed\n"),
    (ToolStarted(**OWN), "🔧 Supervisor: Calling tool: Search\n"),
    (ToolFinished(**OWN), "✅ Supervisor: Tool Search completed\n"),
    (
        ToolFinished(**INNER, outcome="error", error="boom"),
        "❌ Argocd: Tool Version_Service__Version failed\n",
    ),
    (ToolFinished(**DELEGATED, outcome="error", error="boom"), "❌ Supervisor: Argocd failed\n"),
    (ToolFinished(**OWN, outcome="error", error="boom"), "❌ Supervisor: Tool Search failed\n"),
]


@pytest.mark.parametrize(("event", "said"), WORDS, ids=[said.strip() for _, said in WORDS])
def test_a_notification_says_exactly(event: AnyEvent, said: str) -> None:
    assert words(event) == said


def test_a_call_whose_end_is_not_known_is_not_called_completed() -> None:
    assert (
        words(ToolFinished(**INNER, outcome="unknown")) == "❌ Argocd: Tool Version_Service__Version failed\n"
    )


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("version_service__version", "Version_Service__Version"),
        ("argocd", "Argocd"),
        ("aws-cost", "Aws-Cost"),
        ("list_k8s_pods", "List_K8s_Pods"),
        ("getHTTPRoute", "GetHTTPRoute"),
        ("x", "X"),
        ("", ""),
    ],
)
def test_names_are_in_title_form(name: str, title: str) -> None:
    assert title_case(name) == title


@pytest.mark.parametrize("title", ["", "  ", "\n"])
def test_a_plan_without_a_title_is_headed_without_a_place_for_it(title: str) -> None:
    for is_v03 in (True, False):
        drawn = str(artifact(PlanUpdated(title=title, steps=(STEP,)), is_v03=is_v03)["parts"][1]["text"])
        assert drawn == "⟦🎯 Execution Plan⟧\n🔄 [Jira] Find tickets\n"


@pytest.mark.parametrize("agent", ["argocd", "*bold*", "`code`"])
def test_a_notification_adds_no_markdown(agent: str) -> None:
    text = words(ToolStarted(call_id="c", tool=agent, delegates=True))
    assert text.count("*") == agent.count("*")
    assert text.count("`") == agent.count("`")


def test_the_plan_is_also_drawn_as_text() -> None:
    steps = (
        STEP,
        PlanStep(step_id="step-2", title="Sync", agent="argocd", status="failed"),
        PlanStep(step_id="step-3", title="Sum up", agent="supervisor"),
    )
    drawn = str(
        artifact(PlanUpdated(title="Release", steps=steps), is_v03=True)["parts"][1]["text"]
    ).splitlines()
    assert drawn[0] == "⟦🎯 Execution Plan: Release⟧"
    assert [line.partition(" ")[2] for line in drawn[1:]] == [
        "[Jira] Find tickets",
        "[Argocd] Sync",
        "Sum up",
    ]


# --- artifacts ----------------------------------------------------------------------------------------------


def open_metadata(found: dict[str, Any]) -> dict[str, Any]:
    """The metadata that third-party clients read."""
    return {key: value for key, value in found["metadata"].items() if not key.startswith("caipe.")}


@VERSIONS
@pytest.mark.parametrize(
    ("event", "description", "metadata"),
    [
        (
            ToolStarted(**DELEGATED),
            "Tool call started: argocd",
            {"source_agent": "argocd", "sourceAgent": "argocd", "tool_name": "argocd", "tool_call_id": "c1"},
        ),
        (
            ToolStarted(**DELEGATED, step_id="step-1"),
            "Tool call started: argocd",
            {
                "source_agent": "argocd",
                "sourceAgent": "argocd",
                "tool_name": "argocd",
                "tool_call_id": "c1",
                "plan_step_id": "step-1",
            },
        ),
        (
            ToolStarted(**INNER),
            "Tool call started: version_service__version",
            {
                "source_agent": "argocd",
                "sourceAgent": "argocd",
                "tool_name": "version_service__version",
                "tool_call_id": "c1/c2",
            },
        ),
        (
            ToolStarted(**OWN),
            "Tool call started: search",
            {
                "source_agent": "supervisor",
                "sourceAgent": "supervisor",
                "tool_name": "search",
                "tool_call_id": "c3",
            },
        ),
        (
            ToolFinished(**DELEGATED),
            "Tool call completed: argocd",
            {
                "source_agent": "argocd",
                "sourceAgent": "argocd",
                "tool_name": "argocd",
                "tool_call_id": "c1",
                "status": "completed",
            },
        ),
        (
            ToolFinished(**OWN, outcome="error", step_id="step-2"),
            "Tool call completed: search",
            {
                "source_agent": "supervisor",
                "sourceAgent": "supervisor",
                "tool_name": "search",
                "tool_call_id": "c3",
                "plan_step_id": "step-2",
                "status": "failed",
            },
        ),
        (
            ToolFinished(**OWN, outcome="unknown"),
            "Tool call completed: search",
            {
                "source_agent": "supervisor",
                "sourceAgent": "supervisor",
                "tool_name": "search",
                "tool_call_id": "c3",
                "status": "unknown",
            },
        ),
    ],
    ids=[
        "delegation",
        "delegation of a step",
        "inner tool",
        "own tool",
        "delegation ended",
        "own tool failed",
        "end unknown",
    ],
)
def test_a_notification_names_who_runs_what(
    event: AnyEvent, description: str, metadata: dict[str, Any], is_v03: bool
) -> None:
    result = artifact(event, is_v03=is_v03)
    assert result["description"] == description
    assert open_metadata(result) == metadata


def test_every_notification_has_an_artifact_of_its_own() -> None:
    events: list[AnyEvent] = [
        ToolStarted(**DELEGATED),
        ToolStarted(**INNER),
        ToolFinished(**INNER),
        ToolFinished(**DELEGATED),
    ]
    assert len({artifact(event, is_v03=True)["artifactId"] for event in events}) == 4


@VERSIONS
def test_narration_names_its_message_and_step(is_v03: bool) -> None:
    first = artifact(TextDelta(message_id="m", offset=0, text="a"), is_v03=is_v03)
    assert open_metadata(first) == {"source_agent": "supervisor", "message_id": "m"}
    stepped = artifact(TextDelta(message_id="m", offset=1, text="b", step_id="step-1"), is_v03=is_v03)
    assert open_metadata(stepped) == {
        "source_agent": "supervisor",
        "message_id": "m",
        "plan_step_id": "step-1",
    }


@VERSIONS
def test_a_sub_agents_text_names_its_delegation(is_v03: bool) -> None:
    result = artifact(
        TextDelta(message_id="m", offset=0, text="a", agent="argocd", parent_call="c1"), is_v03=is_v03
    )
    assert result["name"] == "subagent_result"
    assert open_metadata(result) == {"source_agent": "argocd", "message_id": "m", "tool_call_id": "c1"}


def test_a_message_is_one_artifact_and_another_message_another() -> None:
    ids = [
        artifact(TextDelta(message_id=m, offset=at, text="a"), is_v03=True)["artifactId"]
        for m, at in [("m", 0), ("m", 1), ("n", 0)]
    ]
    assert ids[0] == ids[1] != ids[2]


def test_what_follows_a_discarded_attempt_replaces_it_in_the_same_artifact() -> None:
    events: list[AnyEvent] = [
        TextDelta(message_id="first", offset=0, text="I lo"),
        TextDiscarded(message_id="first", reason="ConnectionError"),
        TextDelta(message_id="second", offset=0, text="I look", slot="first"),
        TextDelta(message_id="second", offset=6, text=" now.", slot="first"),
        TextDiscarded(message_id="second", reason="ConnectionError", slot="first"),
        TextDelta(message_id="third", offset=0, text="Third.", slot="first"),
    ]
    frames = [results(event, is_v03=True)[0] for event in events]
    assert len({frame["artifact"]["artifactId"] for frame in frames}) == 1
    assert [(frame["append"], frame["artifact"]["parts"][0]["text"]) for frame in frames] == [
        (False, "I lo"),
        (False, ""),
        (False, "I look"),
        (True, " now."),
        (False, ""),
        (False, "Third."),
    ]


@VERSIONS
def test_the_plan_is_always_whole_and_always_the_same_artifact(is_v03: bool) -> None:
    steps = (STEP, PlanStep(step_id="step-2", title="Sync", agent="argocd"))
    first, second = (
        artifact(PlanUpdated(title="Release", steps=some), is_v03=is_v03) for some in (steps[:1], steps)
    )
    assert first["artifactId"] == second["artifactId"]
    assert second["parts"][0]["data"] == {
        "title": "Release",
        "steps": [
            {
                "step_id": "step-1",
                "title": "Find tickets",
                "agent": "jira",
                "status": "in_progress",
                "order": 0,
            },
            {"step_id": "step-2", "title": "Sync", "agent": "argocd", "status": "pending", "order": 1},
        ],
    }
    assert open_metadata(second) == {}


@VERSIONS
def test_the_answer_has_its_text_its_data_its_citations_and_its_trace(is_v03: bool) -> None:
    cited = (
        Citation(title="Runbook", url="https://wiki.example/run"),
        Citation(title="Notes", document_id="d1"),
    )
    event = Answered(
        text="It is 3.", trace_id=TRACE, data={"content": "It is 3.", "citations": []}, citations=cited
    )
    [result, status] = [body(one) for one in results(event, is_v03=is_v03)]
    text, data = result["artifact"]["parts"]
    assert text["text"] == "It is 3."
    assert data["data"]["citations"] == [
        {"title": "Runbook", "url": "https://wiki.example/run"},
        {"title": "Notes", "document_id": "d1"},
    ]
    assert data["data"]["content"] == "It is 3."
    assert result["lastChunk"] is True
    assert open_metadata(result["artifact"]) == {"trace_id": TRACE}
    assert status["metadata"] == {"caipe.seq": "7", "trace_id": TRACE}


@VERSIONS
def test_a_plain_answer_is_one_text_part(is_v03: bool) -> None:
    assert len(artifact(Answered(text="It is 3.", trace_id=TRACE), is_v03=is_v03)["parts"]) == 1


@VERSIONS
@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Failed(message="The model is busy.", trace_id=TRACE, partial="So f"), "The model is busy."),
        (Cancelled(by="ann", trace_id=TRACE, partial="So f"), "Stopped by ann."),
        (Cancelled(trace_id=TRACE, partial="So f"), "Stopped."),
    ],
    ids=["failed", "stopped by somebody", "stopped"],
)
def test_what_was_said_before_the_end_is_a_partial_result(event: AnyEvent, said: str, is_v03: bool) -> None:
    [result, status] = [body(one) for one in results(event, is_v03=is_v03)]
    assert result["artifact"]["name"] == "partial_result"
    assert result["artifact"]["parts"][0]["text"] == "So f"
    assert open_metadata(result["artifact"]) == {"trace_id": TRACE}
    assert status["metadata"]["trace_id"] == TRACE
    assert status["status"]["message"]["parts"][0]["text"] == said


@VERSIONS
def test_a_pause_says_what_is_asked(is_v03: bool) -> None:
    [status] = [
        body(one) for one in results(Paused(text="Which repository?", requests=("r",)), is_v03=is_v03)
    ]
    assert status["status"]["message"]["parts"][0]["text"] == "Which repository?"


# --- forms and approvals ------------------------------------------------------------------------------------

REPO = InputField(
    field_name="repo",
    field_label="Repository",
    field_description="Its name",
    pattern="[a-z0-9-]+",
    min_length=1,
    max_length=80,
)
SIZE = InputField(
    field_name="size",
    field_type="select",
    field_values=("s", "m"),
    default_value="s",
    required=False,
    minimum=1,
    value=3,
)


@VERSIONS
def test_a_form_has_the_shape_that_clients_know(is_v03: bool) -> None:
    form = Form(
        title="Create GitHub Repo",
        description="A new one",
        response="I need a few details.",
        fields=(REPO, SIZE),
    )
    request = artifact(InputRequested(request_id="r1", asked=form), is_v03=is_v03)
    assert request["parts"][0]["data"] == {
        "user_input": True,
        "request_id": "r1",
        "input_title": "Create GitHub Repo",
        "input_description": "A new one",
        "response": "I need a few details.",
        "input_fields": [
            {
                "field_name": "repo",
                "field_label": "Repository",
                "field_description": "Its name",
                "field_type": "text",
                "required": True,
                "pattern": "[a-z0-9-]+",
                "min_length": 1,
                "max_length": 80,
            },
            {
                "field_name": "size",
                "field_type": "select",
                "field_values": ["s", "m"],
                "default_value": "s",
                "required": False,
                "minimum": 1,
                "value": 3,
            },
        ],
    }
    assert open_metadata(request) == {}


@VERSIONS
def test_an_approval_has_the_shape_that_clients_know(is_v03: bool) -> None:
    approval = Approval(
        tool="delete_pod",
        arguments={"name": "web", "grace": 3},
        reason="It deletes.",
        expires_at=datetime(2026, 1, 2, tzinfo=UTC),
    )
    request = artifact(
        InputRequested(request_id="r1", asked=approval, agent="k8s", parent_call="c1"), is_v03=is_v03
    )
    assert request["parts"][0]["data"] == {
        "approval": True,
        "request_id": "r1",
        "agent": "k8s",
        "tool": "delete_pod",
        "arguments": {"name": "web", "grace": 3},
        "reason": "It deletes.",
        "allowed": ["approve", "edit", "reject"],
        "expires_at": "2026-01-02T00:00:00Z",
    }


def test_every_request_has_an_artifact_of_its_own() -> None:
    one, other = (
        artifact(InputRequested(request_id=name, asked=Form()), is_v03=True)["artifactId"]
        for name in ("r1", "r2")
    )
    assert one != other


# --- snapshots ----------------------------------------------------------------------------------------------


def reread(events: list[AnyEvent], *, is_v03: bool) -> list[AnyEvent]:
    """The events that a client finds in a snapshot of the task."""
    task = encode_snapshot(REF, given_by.numbered(events))
    return [event for _, event in decode(json.loads(FrameRenderer(REF, is_v03=is_v03).render_snapshot(task)))]


@given_by.examples(80)
@given(events=given_by.any_events)
@example(events=[TextDelta(message_id="m", offset=0, text="a"), TextDiscarded(message_id="m")])
@example(events=[Answered(text="", trace_id=TRACE)])
@example(
    events=[
        TextDelta(message_id="a", offset=0, text="one"),
        TextDiscarded(message_id="a"),
        TextDelta(message_id="b", offset=0, text="two", slot="a"),
        TextEnded(message_id="b", role="answer"),
    ]
)
def test_a_snapshot_reads_like_the_events_behind_it(events: list[AnyEvent]) -> None:
    for is_v03 in BOTH:
        assert fold(reread(events, is_v03=is_v03)) == fold(events)


def task_alone(task: Task, *, is_v03: bool) -> Any:
    """A task as `tasks/get` returns it."""
    result = json.loads(frame_to_json(task, is_v03=is_v03))
    return result if is_v03 else result["task"]


@given_by.examples(40)
@given(events=given_by.run_events())
def test_a_task_alone_reads_like_the_run(events: list[AnyEvent]) -> None:
    for is_v03 in BOTH:
        task = task_alone(encode_snapshot(REF, given_by.numbered(events)), is_v03=is_v03)
        assert task["id"] == "task-1"
        assert fold(event for _, event in decode(task)) == fold(events)


@given_by.examples(25)
@given(events=given_by.run_events(), first=st.integers(1, 1000))
def test_a_snapshot_names_its_number_and_those_of_its_events(events: list[AnyEvent], first: int) -> None:
    items = given_by.numbered(events, first)
    result = json.loads(FrameRenderer(REF, is_v03=False).render_snapshot(encode_snapshot(REF, items)))
    assert body(result)["metadata"]["caipe.seq"] == str(items[-1].seq)
    numbers = [seq for seq, _ in decode(result)]
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= {item.seq for item in items}


@given_by.examples(25)
@given(events=given_by.run_events())
def test_a_snapshot_keeps_when_its_events_happened(events: list[AnyEvent]) -> None:
    items = given_by.numbered(events)
    times = {item.seq: item.stored_at for item in items}
    for is_v03 in BOTH:
        task = task_alone(encode_snapshot(REF, items), is_v03=is_v03)
        assert [item.stored_at for item in decode_snapshot(task)] == [
            times[item.seq] for item in decode_snapshot(task)
        ]
        assert [(item.seq, item.event) for item in decode_snapshot(task)] == decode(task)


@given_by.examples(25)
@given(events=given_by.run_events())
def test_a_snapshot_sends_no_text_of_a_message_twice(events: list[AnyEvent]) -> None:
    marked = [
        event.model_copy(update={"text": "x" * 40 + event.text})
        if isinstance(event, TextDelta) and event.offset == 0
        else event
        for event in events
    ]
    alive = [span for span in fold(marked).spans if "x" * 40 in span.text]
    assert FrameRenderer(REF, is_v03=False).render_snapshot(
        encode_snapshot(REF, given_by.numbered(marked))
    ).count("x" * 40) == len(alive)


@VERSIONS
@pytest.mark.parametrize(
    "result",
    [
        {},
        {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}},
        {"kind": "status-update", "taskId": "t", "status": {"state": "working"}, "final": False},
        {
            "kind": "artifact-update",
            "taskId": "t",
            "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]},
        },
        {"kind": "message", "messageId": "m", "role": "agent", "parts": []},
    ],
    ids=["nothing", "task", "status", "artifact", "message"],
)
def test_a_third_party_result_holds_no_event_of_ours(result: dict[str, Any], is_v03: bool) -> None:
    wrapped = {
        "task": "task",
        "status-update": "statusUpdate",
        "artifact-update": "artifactUpdate",
        "message": "message",
    }
    bare = {key: value for key, value in result.items() if key != "kind"}
    assert decode(result if is_v03 or not result else {wrapped[result["kind"]]: bare}) == []
