"""What the web page is built on: the types of the events, and event lists with their transcripts."""

import json
from pathlib import Path

import pytest

from ai_platform_engineering.core.events import EVENT_ADAPTER
from ai_platform_engineering.core.transcript import fold
from tests.conftest import ROOT
from tests.support.golden_transcripts import FOLDER, transcript_to_json
from tests.support.typescript_types import render_types


def test_the_types_of_the_page_are_those_of_the_events() -> None:
    generated = (ROOT / "ui/src/generated/events.ts").read_text(encoding="utf-8")
    assert generated == render_types(), "run: python -m tests.support.typescript_types"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_golden_transcripts_are_what_the_fold_gives(path: Path) -> None:
    cases = json.loads(path.read_text(encoding="utf-8"))
    assert len(cases) >= 100
    for case in cases:
        events = [EVENT_ADAPTER.validate_python(event) for event in case["events"]]
        assert json.loads(json.dumps(transcript_to_json(fold(events)))) == case["transcript"]
