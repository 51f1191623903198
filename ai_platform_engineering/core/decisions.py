"""A person's decision on an approval, or the refusal of a form, as the JSON that is sent and stored."""

from collections.abc import Mapping
from typing import Any, Final

from ai_platform_engineering.core.call_digest import edit_digest

DECISION_KEY = "type"  # one of the decisions below
ARGUMENTS_KEY = "arguments"  # of an edit: all arguments, the changed and the others
MESSAGE_KEY = "message"  # of a rejection: the person's reason
ALWAYS_KEY = "always"  # of an approval: the tool needs none any more in the conversation
PERSON_KEY = "by"  # who decided; set by the server
DIGEST_KEY = "digest"  # of the call that the person saw
EDIT_DIGEST_KEY = "edit_digest"  # of an edit: of the call with the person's arguments

APPROVE: Final = "approve"
EDIT: Final = "edit"
REJECT: Final = "reject"
CANCEL: Final = "cancel"  # of a form: dismissed without a decision


def answer_approve(digest: str = "", *, always: bool = False) -> dict[str, Any]:
    """The answer that lets a tool call run; `digest` is that of the call which the person saw."""
    answer: dict[str, Any] = {DECISION_KEY: APPROVE}
    if digest:
        answer[DIGEST_KEY] = digest
    if always:
        answer[ALWAYS_KEY] = True
    return answer


def answer_edit(arguments: Mapping[str, Any], digest: str = "") -> dict[str, Any]:
    """The answer that lets a tool call run with other arguments; `digest` is that of the call before."""
    answer: dict[str, Any] = {DECISION_KEY: EDIT, ARGUMENTS_KEY: dict(arguments)}
    if digest:
        answer[DIGEST_KEY] = digest
        answer[EDIT_DIGEST_KEY] = edit_digest(digest, arguments)
    return answer


def answer_reject(reason: str = "") -> dict[str, Any]:
    """The answer that refuses a tool call or declines a form."""
    answer: dict[str, Any] = {DECISION_KEY: REJECT}
    if reason:
        answer[MESSAGE_KEY] = reason
    return answer
