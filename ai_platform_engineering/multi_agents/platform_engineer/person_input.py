"""What people themselves wrote in a conversation: the hosts that they named, as the run log has them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ai_platform_engineering.a2a.message_parts import read_named_targets, read_origin_run
from ai_platform_engineering.core.events import Form
from ai_platform_engineering.core.forms import is_declined
from ai_platform_engineering.core.named_targets import NamedTargets, collect_texts
from ai_platform_engineering.runtime.log.log_rows import PersonInput, RunRow

_MAX_RUNS = 50  # of a conversation; what was named before them counts as not named


class PersonInputStore(Protocol):
    """Where the messages and answers of people are stored: the run log."""

    async def get(self, run_id: str) -> RunRow | None: ...

    async def list_person_input(self, owner: str, context_id: str, limit: int) -> list[PersonInput]: ...


@dataclass(frozen=True, slots=True)
class ConversationInput:
    """What people named in a conversation, and the run that they asked for.

    The run is the supervisor's for the service of an agent, so that all its delegations count as one.
    """

    named: NamedTargets
    origin_run: str


async def read_conversation_input(store: PersonInputStore | None, run_id: str) -> ConversationInput:
    """The input of people in the run's conversation; nothing outside of a run."""
    row = await store.get(run_id) if store is not None and run_id else None
    if store is None or row is None:
        return ConversationInput(NamedTargets(), run_id)
    inputs = await store.list_person_input(row.owner, row.context_id, _MAX_RUNS)
    # Long texts take long to search: not on the event loop.
    named = await asyncio.to_thread(_collect_named_targets, inputs)
    return ConversationInput(named, _find_origin_run(inputs, run_id))


def _collect_named_targets(inputs: Sequence[PersonInput]) -> NamedTargets:
    named = NamedTargets()
    for run_input in inputs:
        named |= read_named_targets(run_input.parts)
        named |= NamedTargets.from_texts(_read_form_answers(run_input))
    return named


def _read_form_answers(run_input: PersonInput) -> Iterator[str]:
    """The values that people filled into forms; an approval is about one call and names nothing."""
    for request in run_input.requests:
        form = request.event.asked
        if not isinstance(form, Form) or not isinstance(request.answer, Mapping):
            continue
        if request.status in ("claimed", "resolved") and not is_declined(form, request.answer):
            yield from collect_texts(request.answer)


def _find_origin_run(inputs: Sequence[PersonInput], run_id: str) -> str:
    for run_input in inputs:
        if run_input.run_id == run_id:
            return read_origin_run(run_input.parts) or run_id
    return run_id
