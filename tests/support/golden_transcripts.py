"""Event lists with their transcripts as golden files, which the fold of the web page must agree with:
`python -m tests.support.golden_transcripts`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from pydantic import BaseModel

from ai_platform_engineering.core.events import EVENT_ADAPTER, AnyEvent
from ai_platform_engineering.core.transcript import Transcript, fold
from tests.support.strategies import Strategy, any_events, run_events

FOLDER = Path(__file__).parents[1] / "fixtures" / "transcripts"
_EXAMPLES = 120
_FILES: dict[str, Strategy] = {"any_order.json": any_events, "runs.json": run_events()}


def transcript_to_json(transcript: Transcript) -> dict[str, Any]:
    """The transcript as JSON; the ids of void messages are sorted."""
    fields = {
        field.name: _to_json(getattr(transcript, field.name)) for field in dataclasses.fields(transcript)
    }
    fields["discarded"] = sorted(transcript.discarded)
    return fields


def _to_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value):
        return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list | frozenset):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    return value


def render_case(events: Sequence[AnyEvent]) -> dict[str, Any]:
    return {
        "events": [EVENT_ADAPTER.dump_python(event, mode="json") for event in events],
        "transcript": transcript_to_json(fold(events)),
    }


def _collect(strategy: Strategy) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = []

    @seed(20260101)
    @settings(max_examples=_EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(events: list[AnyEvent]) -> None:
        cases.append(render_case(events))

    collect()
    return cases


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, strategy in _FILES.items():
        lines = [json.dumps(case) for case in _collect(strategy)]
        (FOLDER / name).write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
