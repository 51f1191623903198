"""The JSON of frames is what the SDK makes of them: the guarantee when the SDK is upgraded."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.a2a.event_frames import encode
from ai_platform_engineering.a2a.frame_json import FrameRenderer, frame_to_json
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    DataPart,
    FilePart,
    InputRequested,
    RunStarted,
    StoredEvent,
    TextDelta,
    TextEnded,
    TextPart,
)
from ai_platform_engineering.core.storable_text import clean_text
from tests.support import strategies as given_by

REF = TaskRef("task-1", "context-1")
VERSIONS = pytest.mark.parametrize("is_v03", [True, False], ids=["0.3", "1.0"])
NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
TIMES = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 - hypothesis adds the time zone
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))]),
)
REFS = st.builds(TaskRef, given_by.text.map(clean_text), given_by.text.map(clean_text))


def exact(text: str) -> str:
    """JSON that is equal only with the same keys, numbers and types: 1 is not 1.0. Order does not matter."""
    return json.dumps(json.loads(text), sort_keys=True)


def check(ref: TaskRef, items: list[StoredEvent], *, is_v03: bool) -> None:
    for shape in (ClientShape("rich"), ClientShape("plain", text_decisions=True)):
        renderer = FrameRenderer(ref, is_v03=is_v03, shape=shape)
        requests: list[InputRequested] = []
        for item in items:
            if isinstance(item.event, InputRequested):
                requests.append(item.event)
            rendered = [exact(result) for result in renderer.render_event(item, requests)]
            frames = encode(ref, item, shape, requests)
            assert rendered == [exact(frame_to_json(frame, is_v03=is_v03)) for frame in frames]


@pytest.mark.sample(16)
@VERSIONS
@pytest.mark.parametrize("kind", given_by.EVENTS)
@given_by.examples(40)
@given(data=st.data(), seq=st.integers(1, 2**50), stored_at=TIMES, ref=REFS)
def test_every_kind_of_event_is_rendered_as_the_sdk_converts_it(
    kind: str, is_v03: bool, data: st.DataObject, seq: int, stored_at: datetime, ref: TaskRef
) -> None:
    event = data.draw(given_by.EVENTS[kind])
    check(ref, [StoredEvent(seq, stored_at, event)], is_v03=is_v03)


@VERSIONS
@given_by.examples(40)
@given(events=given_by.run_events())
def test_a_run_is_rendered_as_the_sdk_converts_it(is_v03: bool, events: list[AnyEvent]) -> None:
    check(REF, given_by.numbered(events), is_v03=is_v03)


@VERSIONS
def test_many_messages_at_once_are_rendered_as_the_sdk_converts_them(is_v03: bool) -> None:
    deltas = [
        TextDelta(message_id=f"m{message}", offset=offset, text=f"{message}.{offset}")
        for offset in range(3)
        for message in range(200)
    ]
    check(REF, given_by.numbered(deltas), is_v03=is_v03)


@VERSIONS
@given_by.examples(100)
@given(value=given_by.json_value)
@example(value=None)
@example(value={"none": None, "list": [None, {"none": None}]})
@example(value=[1, 1.0, True, -0.0, 0.5, 1e300, 5e-324])
@example(value=[2**53 - 1, 2**53, 2**53 + 1, -(2**53), -(2**53) - 1, 9007199254740991.0, 9007199254740992.0])
def test_data_is_rendered_as_the_sdk_converts_it(is_v03: bool, value: Any) -> None:
    check(
        REF,
        given_by.numbered(
            [
                RunStarted(message_id="m", parts=(DataPart(data=value),)),
                Answered(text="a", trace_id="t", data=value),
            ]
        ),
        is_v03=is_v03,
    )


@VERSIONS
@pytest.mark.parametrize("depth", [1, 11, 12, 13, 24, 40])
def test_deep_data_is_rendered_as_the_sdk_converts_it(depth: int, is_v03: bool) -> None:
    value: Any = 1.0
    for _ in range(depth):
        value = {"deeper": [value]}
    check(REF, given_by.numbered([Answered(text="a", trace_id="t", data=value)]), is_v03=is_v03)


@VERSIONS
@pytest.mark.parametrize("microseconds", [0, 1, 1_000, 10_000, 123_000, 123_456, 999_999])
def test_times_are_written_as_protobuf_writes_them(microseconds: int, is_v03: bool) -> None:
    stored_at = NOON + timedelta(microseconds=microseconds)
    check(REF, [StoredEvent(1, stored_at, TextEnded(message_id="m", role="answer"))], is_v03=is_v03)


@VERSIONS
@pytest.mark.parametrize(
    "part",
    [
        TextPart(text=""),
        FilePart(name="", media_type="", text=""),
        FilePart(name="a.txt", media_type="text/plain", text="é\u2028"),
    ],
    ids=["empty text", "empty file", "file"],
)
def test_parts_are_rendered_as_the_sdk_converts_them(part: TextPart | FilePart, is_v03: bool) -> None:
    check(REF, given_by.numbered([RunStarted(message_id="m", parts=(part,))]), is_v03=is_v03)
