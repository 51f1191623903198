"""What two placements of the same agents must have in common: the events and the screen without ids,
times, numbers and chunk borders.

Agents that work at the same time are compared one by one: the order within each is kept, how they
interleave is not.
"""

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.core.events import (
    AnyEvent,
    PlanStep,
    PlanUpdated,
    TextDelta,
    ToolFinished,
    ToolStarted,
)

Row = dict[str, Any]

_IDS = ("call_id", "message_id", "parent_call", "slot", "trace_id", "request_id")


class _Lane:
    """Events in the order they came; ids are replaced by the order in which they were first seen, so that
    pairs stay pairs.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._ids: dict[str, str] = {}
        self._next: AnyEvent | None = (
            None  # the piece that would go on with the message in the last row, without its text
        )

    def add(self, event: AnyEvent) -> None:
        if isinstance(event, TextDelta) and event.model_copy(update={"text": ""}) == self._next:
            self.rows[-1]["text"] += event.text
        else:
            self.rows.append(self._named(event.model_dump(mode="json")))
        self._next = None
        if isinstance(event, TextDelta):
            self._next = event.model_copy(update={"text": "", "offset": event.offset + len(event.text)})

    def put(self, row: Row) -> None:
        self.rows.append(row)
        self._next = None

    def _named(self, row: Row) -> Row:
        for name in _IDS:
            if row.get(name) is not None:
                row[name] = self._ids.setdefault(row[name], f"id {len(self._ids) + 1}")
        return row


@dataclass(slots=True)
class _Work:
    """Delegations between two things that the supervisor itself does: a lane for each, and what becomes of
    each step of the plan.
    """

    steps: dict[str, list[Row]]
    lanes: dict[str, _Lane] = field(default_factory=dict)
    plans: list[Row] = field(default_factory=list)

    def add(self, event: AnyEvent) -> None:
        if isinstance(event, PlanUpdated):
            self._plan(event)
        else:
            top = _delegation(event) or event.parent_call or ""
            lane = next(
                (call_id for call_id in self.lanes if top == call_id or top.startswith(f"{call_id}/")), top
            )
            self.lanes.setdefault(lane, _Lane()).add(event)

    def _plan(self, event: PlanUpdated) -> None:
        self.plans.append({**event.model_dump(mode="json"), "steps": [step.step_id for step in event.steps]})
        for step in event.steps:
            seen, now = self.steps.setdefault(step.step_id, []), step.model_dump(mode="json")
            if seen[-1:] != [now]:
                seen.append(now)

    def told(self) -> Row:
        lanes = sorted((lane.rows for lane in self.lanes.values()), key=json.dumps)
        return {"delegations": lanes, "steps": self.steps, "plans": self.plans}


def normalize_events(events: Iterable[AnyEvent]) -> list[Row]:
    """A run in a form that is equal for equal runs."""
    own = _Lane()
    work: _Work | None = None
    steps: Sequence[PlanStep] = ()
    for event in events:
        steps = event.steps if isinstance(event, PlanUpdated) else steps
        if _delegation(event) or event.parent_call or (work and isinstance(event, PlanUpdated)):
            work = work or _Work({step.step_id: [step.model_dump(mode="json")] for step in steps})
            work.add(event)
            continue
        if work:
            own.put(work.told())
            work = None
        own.add(event)
    if work:
        own.put(work.told())
    return own.rows


def _delegation(event: AnyEvent) -> str | None:
    """The id of the supervisor's delegation that begins or ends with the event."""
    mine = isinstance(event, ToolStarted | ToolFinished) and event.delegates and event.parent_call is None
    return event.call_id if mine and isinstance(event, ToolStarted | ToolFinished) else None


_MARKED = re.compile(r"^(?:(?:🔧|✅|❌|⏳|🔄|⏭️) |\()")
_CALLED = re.compile(r"Supervisor: Calling Agent (\w+)")
_NAMED = re.compile(r"Supervisor: (?:Calling Agent )?(\w+)|(\w+): |\[(\w+)\] ")


def normalize_screen(text: str) -> list[str | dict[str, list[str]]]:
    """What a terminal shows, line by line; the lines of agents at work at the same time are sorted out by
    agent.
    """
    shown: list[str | dict[str, list[str]]] = []
    work: list[str] = []
    for line in [*text.splitlines(), ""]:
        if _MARKED.match(line):
            work.append(line)
            continue
        shown += [_by_agent(work)] if _CALLED.search("\n".join(work)) else work
        shown.append(line)
        work = []
    return shown


def _by_agent(lines: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        name = _NAMED.search(line)
        found.setdefault(next(filter(None, name.groups())) if name else "", []).append(line)
    called = _CALLED.findall("\n".join(lines))
    # Nothing in a line tells two calls to the same agent apart, and a notice does not say whose it is.
    return {agent: said if called.count(agent) == 1 else sorted(said) for agent, said in found.items()}


def difference(one: Any, other: Any) -> str:
    """Where two of them differ, for people; empty when they are equal."""
    lines = [
        json.dumps(given, indent=1, ensure_ascii=False, sort_keys=True).splitlines() for given in (one, other)
    ]
    return "\n".join(difflib.unified_diff(*lines, "one", "other", lineterm=""))
