"""Normal forms of events and screens: equal for the same agents in two placements.

Ids, times, numbers and the borders of pieces are left out. Agents that work at the same time are compared
one by one: the order within each counts, how they interleave does not.
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
from tests.support.server_starts import START_TEXT, is_server_start

Row = dict[str, Any]

_IDS = ("call_id", "message_id", "parent_call", "slot", "trace_id", "request_id", "digest")


class _EventRows:
    """Events in their order, as rows. Each id is replaced by its number of appearance: pairs stay pairs."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._id_names: dict[str, str] = {}
        self._next_delta: AnyEvent | None = None  # that continues the text of the last row, without its text

    def add(self, event: AnyEvent) -> None:
        if isinstance(event, TextDelta) and event.model_copy(update={"text": ""}) == self._next_delta:
            self.rows[-1]["text"] += event.text
        else:
            self.rows.append(self._replace_ids(event.model_dump(mode="json")))
        self._next_delta = None
        if isinstance(event, TextDelta):
            end = event.offset + len(event.text)
            self._next_delta = event.model_copy(update={"text": "", "offset": end})

    def add_row(self, row: Row) -> None:
        self.rows.append(row)
        self._next_delta = None

    def _replace_ids(self, row: Row) -> Row:
        if isinstance(row.get("usage"), dict):
            row["usage"].pop("cache_read_tokens")  # depends on what the provider was asked before
        for name in _IDS:
            if row.get(name) is not None:
                row[name] = self._id_names.setdefault(row[name], f"id {len(self._id_names) + 1}")
        for inner in ("asked", "value"):  # a request, and the answer to it
            if isinstance(row.get(inner), dict):
                self._replace_ids(row[inner])
        for part in row.get("parts") or ():  # the message that answers requests, by their ids
            resume = (part.get("data") or {}).get("resume") if part["type"] == "data" else None
            if isinstance(resume, dict):
                part["data"]["resume"] = {
                    self._id_names.get(key, "a request of an agent"): value for key, value in resume.items()
                }
        return row


@dataclass(slots=True)
class _ParallelDelegations:
    """Delegations between two events of the supervisor itself: rows by delegation, and the steps' states."""

    steps: dict[str, list[Row]]
    rows_by_call: dict[str, _EventRows] = field(default_factory=dict)
    plans: list[Row] = field(default_factory=list)

    def add(self, event: AnyEvent) -> None:
        if isinstance(event, PlanUpdated):
            self._add_plan(event)
            return
        call_id = self._find_top_call(_find_delegation(event) or event.parent_call or "")
        self.rows_by_call.setdefault(call_id, _EventRows()).add(event)

    def _find_top_call(self, call_id: str) -> str:
        for top_call in self.rows_by_call:
            if call_id == top_call or call_id.startswith(f"{top_call}/"):
                return top_call
        return call_id

    def _add_plan(self, event: PlanUpdated) -> None:
        self.plans.append({**event.model_dump(mode="json"), "steps": [step.step_id for step in event.steps]})
        for step in event.steps:
            states = self.steps.setdefault(step.step_id, [])
            state = step.model_dump(mode="json")
            if states[-1:] != [state]:
                states.append(state)

    def to_row(self) -> Row:
        delegations = sorted((events.rows for events in self.rows_by_call.values()), key=json.dumps)
        return {"delegations": delegations, "steps": self.steps, "plans": self.plans}


def normalize_events(events: Iterable[AnyEvent]) -> list[Row]:
    """A run in a form that is equal for equal runs."""
    supervisor_rows = _EventRows()
    delegations: _ParallelDelegations | None = None
    steps: Sequence[PlanStep] = ()
    for event in events:
        if is_server_start(event):  # a service that runs already has started its tool servers
            continue
        if isinstance(event, PlanUpdated):
            steps = event.steps
        is_delegated = _find_delegation(event) or event.parent_call
        if is_delegated or (delegations and isinstance(event, PlanUpdated)):
            if delegations is None:
                delegations = _ParallelDelegations(
                    {step.step_id: [step.model_dump(mode="json")] for step in steps}
                )
            delegations.add(event)
            continue
        if delegations:
            supervisor_rows.add_row(delegations.to_row())
            delegations = None
        supervisor_rows.add(event)
    if delegations:
        supervisor_rows.add_row(delegations.to_row())
    return supervisor_rows.rows


def _find_delegation(event: AnyEvent) -> str | None:
    """The id of the supervisor's delegation that begins or ends with the event."""
    if not isinstance(event, ToolStarted | ToolFinished):
        return None
    if not event.delegates or event.parent_call is not None:
        return None
    return event.call_id


_AGENT_LINE = re.compile(r"^ *[→✓✗–] +(\w+)")  # a delegation, a tool call or a step of the plan
_IDS_LINE = re.compile(r"^\(task [0-9a-f-]+, context [0-9a-f]+\)$")
_DURATION = re.compile(r" · [0-9.]+ (?:ms|s)$")


def normalize_screen(text: str) -> list[str | dict[str, list[str]]]:
    """The lines of a terminal without durations, grouped by agent: agents that work at the same time may be
    drawn in any order. The order of what happened is that of the events."""
    groups: dict[str, list[str]] = {}
    others: list[str] = []
    for line in text.splitlines():
        if START_TEXT in line:
            continue
        match = _AGENT_LINE.match(line)
        if match:
            groups.setdefault(match[1], []).append(_DURATION.sub("", line))
        elif _IDS_LINE.match(line):
            others.append("(task and context)")
        else:
            others.append(line)
    return [{agent: sorted(lines) for agent, lines in sorted(groups.items())}, *sorted(others)]


def difference(first: Any, second: Any) -> str:
    """A diff of two normal forms, for people; empty when they are equal."""
    lines = [
        json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
        for value in (first, second)
    ]
    return "\n".join(difflib.unified_diff(*lines, "one", "other", lineterm=""))
