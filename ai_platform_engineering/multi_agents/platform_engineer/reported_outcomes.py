"""What people said about calls with an unknown outcome, told to the model in the next question of the conversation."""

import json
from collections.abc import Mapping

from langchain_core.messages import HumanMessage

from ai_platform_engineering.runtime.log.run_log import JournalEntry, RunLog, RunRow

_NOTE = (
    "[A note, not a question] About the call {call} of an earlier question, whose outcome was unknown: {said}"
)
_MOST_OF_ARGUMENTS = 300


async def told(log: RunLog, row: RunRow) -> list[HumanMessage]:
    """The notes of the conversation. Their ids are those of the calls: one that the graph's state has already stays where it is."""
    found = await log.find_settled_calls(row.owner, row.context_id)
    return [HumanMessage(_note(entry), id=f"{run_id}:{entry.key}:outcome") for run_id, entry in found]


def _note(entry: JournalEntry) -> str:
    arguments = json.dumps(entry.arguments, ensure_ascii=False)
    shown = arguments if len(arguments) <= _MOST_OF_ARGUMENTS else f"{arguments[:_MOST_OF_ARGUMENTS]}…"
    said = entry.outcome.get("content") if isinstance(entry.outcome, Mapping) else None
    return _NOTE.format(call=f"{entry.tool} {shown}", said=said or f"{entry.settled_by} has settled it.")
