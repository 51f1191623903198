"""The progress of a workflow, read from the messages of its run: which one runs, and how its steps ended."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolCall, ToolMessage
from pydantic import JsonValue

from ai_platform_engineering.core.message_metadata import WorkflowStart, WorkflowStepNote
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.core.workflow_actions import StepOutcome
from ai_platform_engineering.core.workflows import Workflow
from ai_platform_engineering.multi_agents.platform_engineer.middleware.user_input import DECLINED


@dataclass(frozen=True, slots=True)
class RunningWorkflow:
    """A workflow in progress, with its definition from the start: the file may have changed since.

    `values` are those that the user gave for its form, `start` is the index of its first message in the turn.
    """

    workflow: Workflow
    values: Mapping[str, JsonValue]
    start: int = 0

    def to_metadata(self) -> dict[str, Any]:
        return WorkflowStart(self.workflow, self.values).to_metadata()


def find_running_workflow(turn: Sequence[AnyMessage]) -> RunningWorkflow | None:
    """The workflow that began last in the turn."""
    for index in range(len(turn) - 1, -1, -1):
        start = WorkflowStart.of(turn[index])
        if start is not None:
            return RunningWorkflow(start.workflow, start.values, index)
    return None


def read_outcomes(running: RunningWorkflow, turn: Sequence[AnyMessage]) -> Iterator[StepOutcome]:
    """The outcomes of the steps so far, from the messages since the workflow began."""
    results = {message.tool_call_id: message for message in turn if isinstance(message, ToolMessage)}
    for message in turn[running.start :]:
        if not isinstance(message, AIMessage):
            continue
        note = WorkflowStepNote.of(message)
        for failed_step, reason in note.failed_steps.items():
            yield StepOutcome(failed_step, ok=False, value=reason)
        if note.step is None:
            continue
        if message.text:
            yield StepOutcome(note.step, ok=True, value=message.text)
            continue
        for call in message.tool_calls:
            result = results.get(call["id"] or "")
            traits = ToolTraits.from_name(call["name"])
            if (traits.asks_person or traits.delegates) and result is not None:
                yield _read_outcome(note.step, call, result)


def _read_outcome(step: str, call: ToolCall, result: ToolMessage) -> StepOutcome:
    if result.status == "error":
        return StepOutcome(step, ok=False, value=result.text)
    if not ToolTraits.from_name(call["name"]).asks_person:
        return StepOutcome(step, ok=True, value=result.text)
    values = json.loads(result.text)
    field_names = {field["field_name"] for field in call["args"].get("input_fields") or ()}
    if DECLINED in values and DECLINED not in field_names:
        return StepOutcome(step, ok=False, value=values[DECLINED])
    return StepOutcome(step, ok=True, value=values)
