"""Arbitrary frames of a server that claims to be ours: events, or an error that the client answers for."""

import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_platform_engineering.a2a.codec import TaskRef, decode
from ai_platform_engineering.a2a.event_frames import encode
from tests.support.examples import scale_examples
from tests.support.fuzzing import json_values
from tests.support.strategies import numbered, run_events

KEYS = (
    *(
        "task",
        "statusUpdate",
        "artifactUpdate",
        "message",
        "kind",
        "id",
        "contextId",
        "status",
        "state",
        "parts",
    ),
    *("artifact", "artifacts", "artifactId", "metadata", "text", "data", "name", "append", "history"),
    *("caipe.event", "caipe.events", "caipe.seq"),
)
VALUES = json_values(*KEYS)
JSON_TEXT = (
    st.builds(json.dumps, json_values("kind", "text", "message_id", "offset", "asked", "fields")) | st.text()
)
DEEP = st.sampled_from(["[" * 100_000, '{"a":' * 100_000, "[" + "[]," * 300_000 + "[]]", "9" * 5_000])
METADATA = st.fixed_dictionaries(
    {}, optional={"caipe.event": JSON_TEXT | DEEP, "caipe.events": JSON_TEXT | DEEP, "caipe.seq": JSON_TEXT}
)
FRAME = st.builds(
    lambda key, value, metadata: {key: {**value, "metadata": metadata}},
    st.sampled_from(KEYS[:4]),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    METADATA | VALUES,
)
# What A2AClient turns into a refusal.
FORESEEN = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def decode_or_refuse(result: Any) -> None:
    try:
        decode(result)
    except FORESEEN:
        return


@given(FRAME | st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5))
@settings(max_examples=scale_examples(300), deadline=None)
def test_any_frame_is_events_or_a_foreseen_error(result: Any) -> None:
    decode_or_refuse(result)


@given(run_events(), st.data())
@settings(max_examples=scale_examples(100), deadline=None)
def test_a_frame_with_one_changed_value_is_events_or_a_foreseen_error(
    events: Any, data: st.DataObject
) -> None:
    frames = [
        MessageToDict(frame)
        for item in numbered(events)
        for frame in encode(TaskRef("task", "context"), item)
    ]
    frame = data.draw(st.sampled_from(frames))
    change(frame, data)
    decode_or_refuse(frame)


def change(value: Any, data: st.DataObject) -> None:
    """Replaces a value somewhere inside."""
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(value[key], dict | list) or not value[key] or data.draw(st.booleans()):
            value[key] = data.draw(VALUES | JSON_TEXT)
            return
        value = value[key]
