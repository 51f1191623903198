"""A person's decision on an approval, or the refusal of a form, as the JSON that is sent and stored."""

from collections.abc import Mapping
from typing import Any, Final

DECISION_KEY = "type"  # one of the decisions below
ARGUMENTS_KEY = "arguments"  # of an edit: all arguments, the changed and the others
MESSAGE_KEY = "message"  # of a rejection: the person's reason
ALWAYS_KEY = "always"  # of an approval: the tool needs none any more in the conversation
PERSON_KEY = "by"  # who decided; set by the server

APPROVE: Final = "approve"
EDIT: Final = "edit"
REJECT: Final = "reject"


def answer_approve(*, always: bool = False) -> dict[str, Any]:
    """The answer that lets a tool call run."""
    answer: dict[str, Any] = {DECISION_KEY: APPROVE}
    if always:
        answer[ALWAYS_KEY] = True
    return answer


def answer_edit(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The answer that lets a tool call run with other arguments."""
    return {DECISION_KEY: EDIT, ARGUMENTS_KEY: dict(arguments)}


def answer_reject(reason: str = "") -> dict[str, Any]:
    """The answer that refuses a tool call or declines a form."""
    answer: dict[str, Any] = {DECISION_KEY: REJECT}
    if reason:
        answer[MESSAGE_KEY] = reason
    return answer
