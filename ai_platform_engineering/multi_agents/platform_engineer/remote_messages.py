"""A2A messages to remote agents: a delegation, or the answers of people to the agent's requests.

A third-party agent understands text only: no direct tool calls, no scope, no typed answers.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.a2a.client import OutgoingMessage
from ai_platform_engineering.a2a.message_parts import (
    ANSWER_PART,
    CALL_PART,
    NEW_QUESTION_KEY,
    TIMEOUT_KEY,
    named_part,
)
from ai_platform_engineering.core.decisions import DECISION_KEY, MESSAGE_KEY, REJECT
from ai_platform_engineering.core.named_targets import NamedTargets
from ai_platform_engineering.multi_agents.platform_engineer.delegation import AgentFailed, Delegation


def build_delegation_message(delegation: Delegation, named: NamedTargets) -> OutgoingMessage:
    """The delegation for a service of ours, with its direct tool call, its scope, its budget and what people
    named."""
    data = {CALL_PART: dict(delegation.call)} if delegation.call else None
    scope = {"tools": list(delegation.tools)} if delegation.tools is not None else None
    return OutgoingMessage(
        delegation.message_id,
        delegation.text,
        data,
        delegation.context_id,
        metadata=_question_metadata(delegation),
        scope=scope,
        untrusted=delegation.untrusted,
        budget=delegation.budget,
        named=named_part(delegation.run_id, named, delegation.text),
    )


def build_third_party_message(delegation: Delegation, context_id: str | None) -> OutgoingMessage:
    """The delegation for a third-party agent. Raises AgentFailed when the delegation restricts its tools.

    Such an agent chooses its own context ids: the conversation goes on under the one that it gave.
    """
    if delegation.tools is not None:
        raise AgentFailed(
            "It is a third-party service and cannot be limited to single tools, as the skill in use requires."
        )
    metadata = _question_metadata(delegation)
    return OutgoingMessage(delegation.message_id, delegation.text, None, context_id, metadata=metadata)


def build_answer_message(
    delegation: Delegation,
    answers: Mapping[str, Any],
    *,
    number: int,
    context_id: str | None,
    task_id: str | None,
    as_text: bool,
) -> OutgoingMessage:
    """The answers to a task that waits, by its request ids. `number`: how often it has been answered."""
    message_id = str(uuid.uuid5(uuid.UUID(delegation.message_id), str(number)))
    text = ""
    data: dict[str, Any] | None = {ANSWER_PART: answers}
    if as_text:
        text = "\n\n".join(_render_answer(answer) for answer in answers.values())
        data = None
    metadata = {TIMEOUT_KEY: delegation.remaining_seconds()}
    return OutgoingMessage(message_id, text, data, context_id, task_id, metadata)


def _question_metadata(delegation: Delegation) -> dict[str, Any]:
    return {TIMEOUT_KEY: delegation.remaining_seconds(), NEW_QUESTION_KEY: True}


def _render_answer(answer: Any) -> str:
    """An answer in words."""
    if not isinstance(answer, Mapping):
        return str(answer)
    if answer.get(DECISION_KEY) == REJECT:
        return f"No. {answer.get(MESSAGE_KEY) or ''}".strip()
    values = list(answer.values())
    if len(values) == 1:
        return str(values[0])
    return "\n".join(f"{name}: {value}" for name, value in answer.items())
