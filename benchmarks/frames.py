"""CPU of rendering a run's frames: microseconds an event, for each shape and protocol version.

    .venv/bin/python -m benchmarks.frames [--rounds 40]

The least of all rounds; the run has 400 text deltas of about 30 characters, a delegation and an answer.
"""

import argparse
import json
import sys
import time
from datetime import UTC, datetime

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.a2a.frame_json import FrameRenderer
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    RunStarted,
    StoredEvent,
    TextDelta,
    TextEnded,
    TextPart,
    ToolFinished,
    ToolStarted,
)

REF = TaskRef("task-1", "context-1")
DELTAS = 400


def write_run() -> list[StoredEvent]:
    events: list[AnyEvent] = [
        RunStarted(message_id="q", parts=(TextPart(text="Which version?"),)),
        ToolStarted(call_id="c", tool="argocd", delegates=True, arguments={"subagent_type": "argocd"}),
        ToolFinished(call_id="c", tool="argocd", delegates=True),
    ]
    answer = ""
    for number in range(DELTAS):
        text = f"word{number} and more text of a model, "
        events.append(TextDelta(message_id="m", offset=len(answer), text=text))
        answer += text
    events.append(TextEnded(message_id="m", role="answer"))
    events.append(Answered(text=answer, trace_id="0" * 32, message_id="m"))
    now = datetime.now(UTC)
    return [StoredEvent(seq, now, event) for seq, event in enumerate(events, 1)]


def measure(items: list[StoredEvent], shape: ClientShape, rounds: int, *, is_v03: bool) -> float:
    """Microseconds an event."""
    best = sys.maxsize
    for _ in range(rounds):
        renderer = FrameRenderer(REF, is_v03=is_v03, shape=shape)
        start = time.process_time_ns()
        for item in items:
            renderer.render_event(item)
        best = min(best, time.process_time_ns() - start)
    return round(best / len(items) / 1000, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    items = write_run()
    figures: dict[str, float] = {}
    for name in ("rich", "plain"):
        for is_v03 in (True, False):
            version = "0.3" if is_v03 else "1.0"
            shape = ClientShape("rich" if name == "rich" else "plain")
            figures[f"{name} {version}"] = measure(items, shape, rounds, is_v03=is_v03)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
