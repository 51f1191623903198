"""Outcomes of calls that people reported after a crash, as notes for the model in the next question."""

import json
from collections.abc import Mapping

from langchain_core.messages import HumanMessage

from ai_platform_engineering.runtime.log.log_rows import JournalEntry, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog

_NOTE = (
    "[A note, not a question] About the call {call} of an earlier question, whose outcome was unknown: "
    "{outcome}"
)
_MAX_ARGUMENT_CHARS = 300


async def read_outcome_notes(log: RunLog, row: RunRow) -> list[HumanMessage]:
    """The notes of the conversation.

    Their ids are made from the calls: a note that the graph's state has already stays where it is.
    """
    settled_calls = await log.find_settled_calls(row.owner, row.context_id)
    return [
        HumanMessage(_render_note(entry), id=f"{run_id}:{entry.key}:outcome")
        for run_id, entry in settled_calls
    ]


def _render_note(entry: JournalEntry) -> str:
    arguments = json.dumps(entry.arguments, ensure_ascii=False)
    if len(arguments) > _MAX_ARGUMENT_CHARS:
        arguments = f"{arguments[:_MAX_ARGUMENT_CHARS]}…"
    reported = entry.outcome.get("content") if isinstance(entry.outcome, Mapping) else None
    outcome = reported or f"{entry.settled_by} has settled it."
    return _NOTE.format(call=f"{entry.tool} {arguments}", outcome=outcome)
