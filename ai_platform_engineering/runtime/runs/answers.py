"""Reads answers to pending requests from a message, in every shape that clients send, and checks them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.a2a.message_parts import ANSWER_PART, DECISIONS_KEY, UserPart, bounds_run
from ai_platform_engineering.core.argument_schema import check_arguments
from ai_platform_engineering.core.call_digest import edit_digest, same_digest
from ai_platform_engineering.core.decisions import (
    ALWAYS_KEY,
    APPROVE,
    ARGUMENTS_KEY,
    CANCEL,
    DECISION_KEY,
    DIGEST_KEY,
    EDIT,
    EDIT_DIGEST_KEY,
    MESSAGE_KEY,
    REJECT,
    answer_reject,
)
from ai_platform_engineering.core.events import Approval, DataPart, Form, InputRequested, Resolution, TextPart
from ai_platform_engineering.core.forms import check_form, is_declined
from ai_platform_engineering.core.request_text import Requests, number_requests
from ai_platform_engineering.core.sentences import end_sentence
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.runtime.runs.text_answers import Answer, match_text

_RESOLUTIONS: Mapping[str, Resolution] = {
    APPROVE: "approved",
    EDIT: "edited",
    REJECT: "rejected",
    CANCEL: "rejected",
}
_DECISION_ALIASES = {"accept": APPROVE, "response": REJECT}  # what older clients send
_WHOLE_ANSWER = ""  # in the place of a field name: the answer as a whole is wrong

FieldErrors = dict[str, str]  # a sentence by field


@dataclass(slots=True)
class ParsedAnswers:
    """The answers of a message: values and errors by request id, and sentences about what fits no request.

    A request with a wrong answer stays open.
    """

    values: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, FieldErrors] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)

    def describe_problems(self) -> str:
        sentences: list[str] = []
        for errors in self.wrong.values():
            sentences += errors.values()
        return " ".join([*sentences, *self.unmatched])


def is_answer(parts: Sequence[UserPart]) -> bool:
    """Whether the message has a `resume` part: then it answers a request and is never a question."""
    return any(_read_resume(part) is not None for part in parts)


def read_request_ids(parts: Sequence[UserPart]) -> list[str]:
    """The ids of the requests that the message names."""
    request_ids: list[str] = []
    for part in parts:
        resume = _read_resume(part)
        if resume is not None and DECISIONS_KEY not in resume:
            request_ids += resume
    return request_ids


def join_text(parts: Sequence[UserPart]) -> str:
    """The text parts of a message as one text."""
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart)).strip()


def read_answers(
    parts: Sequence[UserPart],
    pending: Sequence[InputRequested],
    numbered: Requests | None = None,
    *,
    text_decisions: bool = False,
) -> ParsedAnswers:
    """The answers of a message to the pending requests, each one checked.

    `numbered` are all requests of the run by number, for texts that name one; `text_decisions`: texts may
    decide on approvals."""
    answers = ParsedAnswers()
    requests = {request.request_id: request.asked for request in pending}
    matched = [*_match_data(parts, pending, answers.unmatched)]
    if not matched and not answers.unmatched and not _has_answer_data(parts, pending):
        text = join_text(parts)
        numbered = numbered or number_requests(pending)
        matched = [*match_text(text, pending, numbered, answers.unmatched, text_decisions=text_decisions)]
    for request_id, sent_value in matched:
        value, errors = _check_answer(requests[request_id], sent_value)
        if errors:
            answers.wrong[request_id] = errors
        else:
            answers.values[request_id] = value
    return answers


def describe_requests(pending: Sequence[InputRequested]) -> str:
    """What is still to be answered, as the end of a sentence."""
    return end_sentence("; ".join(request.asked.describe() for request in pending))


def find_resolution(request: Form | Approval, value: Any) -> Resolution:
    """How a checked answer resolves its request."""
    if not isinstance(value, Mapping):
        return "answered"
    if isinstance(request, Form) and not is_declined(request, value):
        return "answered"
    return _RESOLUTIONS.get(str(value.get(DECISION_KEY)), "answered")


# --- which answer is for which request ----------------------------------------------------------------------


def _read_resume(part: UserPart) -> dict[str, Any] | None:
    if not isinstance(part, DataPart) or not isinstance(part.data, dict):
        return None
    resume = part.data.get(ANSWER_PART)
    if not isinstance(resume, dict):
        return None
    return resume


def _forms_in(pending: Sequence[InputRequested]) -> list[InputRequested]:
    return [request for request in pending if isinstance(request.asked, Form)]


def _has_answer_data(parts: Sequence[UserPart], pending: Sequence[InputRequested]) -> bool:
    """Whether the message answers by data, so that its text is none."""
    if is_answer(parts):
        return True
    if len(_forms_in(pending)) != 1:
        return False
    return any(_is_object(part) and not bounds_run(part) for part in parts)


def _is_object(part: UserPart) -> bool:
    return isinstance(part, DataPart) and isinstance(part.data, dict)


def _match_data(
    parts: Sequence[UserPart], pending: Sequence[InputRequested], unmatched: list[str]
) -> Iterator[Answer]:
    """The values by request: named by id, as a list of decisions, or bare when only one form is open."""
    pending_ids = {request.request_id for request in pending}
    forms = _forms_in(pending)
    for part in parts:
        if not isinstance(part, DataPart) or not isinstance(part.data, dict) or bounds_run(part):
            continue
        resume = _read_resume(part)
        if resume is not None:
            decisions = resume.get(DECISIONS_KEY)
            if isinstance(decisions, list):
                yield from _match_decisions(decisions, pending, unmatched)
                return
            for request_id, value in resume.items():
                if request_id in pending_ids:
                    yield request_id, value
            return
        if len(forms) == 1:
            yield forms[0].request_id, part.data
            return


# --- a list of decisions, as clients of LangGraph's human-in-the-loop send it -------------------------------


def _match_decisions(
    decisions: Sequence[Any], pending: Sequence[InputRequested], unmatched: list[str]
) -> Iterator[Answer]:
    """Gives each decision to the first open request of its name; without a name only if one can be meant."""
    open_requests = list(pending)
    for decision in decisions:
        if not isinstance(decision, dict):
            unmatched.append("A decision is an object with a `type`.")
            continue
        request = _find_request(decision, open_requests, in_order=len(decisions) == len(pending))
        if request is not None:
            open_requests.remove(request)
            yield request.request_id, _read_decision(request.asked, decision)
            continue
        name = _action_name(decision)
        if name:
            unmatched.append(f"No open request is called {name}.")
        else:
            unmatched.append("Say which request each decision is for.")


def _read_decision(request: Form | Approval, decision: Mapping[str, Any]) -> dict[str, Any]:
    """A decision as the answer that is sent under the request's id."""
    message = decision.get("message")
    if isinstance(request, Form):
        values = _user_inputs(decision)
        if (
            values is None
            and _DECISION_ALIASES.get(str(decision.get("type")), decision.get("type")) == REJECT
        ):
            return {DECISION_KEY: REJECT, MESSAGE_KEY: message}
        return values or {}
    decision_type = str(decision.get("type") or "")
    arguments = _edited_action(decision).get("args")
    if arguments is None:
        arguments = _unwrap_args(decision.get("args"))
    return {
        DECISION_KEY: _DECISION_ALIASES.get(decision_type, decision_type),
        ARGUMENTS_KEY: arguments,
        MESSAGE_KEY: message,
    }


def _find_request(
    decision: Mapping[str, Any], open_requests: Sequence[InputRequested], *, in_order: bool
) -> InputRequested | None:
    name = _action_name(decision)
    is_form = ToolTraits.from_name(name).asks_person or _user_inputs(decision) is not None
    same_kind = [request for request in open_requests if isinstance(request.asked, Form) == is_form]
    if name and not is_form:
        return _find_approval(name, same_kind)
    if in_order and not name:
        if open_requests and (not is_form or open_requests[0] in same_kind):
            return open_requests[0]
        return None
    if len(same_kind) == 1 or (in_order and same_kind):
        return same_kind[0]
    return None


def _find_approval(tool: str, requests: Sequence[InputRequested]) -> InputRequested | None:
    for request in requests:
        if isinstance(request.asked, Approval) and request.asked.tool == tool:
            return request
    return None


def _action_name(decision: Mapping[str, Any]) -> str:
    return str(decision.get("action_name") or _edited_action(decision).get("name") or "")


def _user_inputs(decision: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of a form: `user_inputs`, else the values inside `metadata.input_fields`."""
    args = _unwrap_args(decision.get("args")) or _edited_action(decision).get("args") or {}
    if not isinstance(args, dict):
        return None
    values = args.get("user_inputs")
    if isinstance(values, dict):
        return values
    metadata = args.get("metadata")
    if not isinstance(metadata, dict):
        return None
    fields = metadata.get("input_fields")
    if not isinstance(fields, list):
        return None
    return {str(field.get("field_name")): field.get("value") for field in fields if isinstance(field, dict)}


def _unwrap_args(args: Any) -> Any:
    """The arguments themselves: some clients send them inside another `args`."""
    if isinstance(args, dict) and isinstance(args.get("args"), dict):
        return args["args"]
    return args


def _edited_action(decision: Mapping[str, Any]) -> Mapping[str, Any]:
    action = decision.get("edited_action")
    if isinstance(action, dict):
        return action
    return {}


# --- checks -------------------------------------------------------------------------------------------------


def _check_answer(request: Form | Approval, answer: Any) -> tuple[Any, FieldErrors]:
    """The value to store, or what is wrong by field."""
    if isinstance(request, Approval):
        return _check_decision(request, answer)
    if not isinstance(answer, Mapping):
        return None, {_WHOLE_ANSWER: "The answer to a form holds a value for each field by its name."}
    if not is_declined(request, answer):
        return check_form(request, answer)
    refusal = answer_reject(str(answer.get(MESSAGE_KEY) or ""))
    return {**refusal, DECISION_KEY: answer[DECISION_KEY]}, {}


def _check_decision(approval: Approval, answer: Any) -> tuple[Any, FieldErrors]:
    choices = f"The decision on {approval.tool} is one of {', '.join(approval.allowed)}"
    if not isinstance(answer, Mapping):
        return None, {_WHOLE_ANSWER: f"{choices}, as `type`."}
    decision = _DECISION_ALIASES.get(str(answer.get(DECISION_KEY)), str(answer.get(DECISION_KEY)))
    if decision not in approval.allowed:
        return None, {DECISION_KEY: f"{choices}."}
    if decision == EDIT and not isinstance(answer.get(ARGUMENTS_KEY), Mapping):
        return None, {ARGUMENTS_KEY: f"An edit of {approval.tool} needs its `arguments`."}
    if decision == APPROVE and answer.get(ARGUMENTS_KEY) not in (None, {}, approval.arguments):
        # An approval is of what was shown. To drop the changes silently would run what nobody decided.
        sentence = (
            f"An approval of {approval.tool} changes no arguments: to change them, send the type `edit`."
        )
        return None, {ARGUMENTS_KEY: sentence}
    errors: FieldErrors = {}
    if decision != REJECT:
        errors = _check_digests(approval, answer)
    if decision == EDIT and not errors and approval.arguments_schema is not None:
        errors = check_arguments(approval.arguments_schema, answer[ARGUMENTS_KEY])
    if errors:
        return None, errors
    value: dict[str, Any] = {DECISION_KEY: decision}
    if approval.digest:
        value[DIGEST_KEY] = approval.digest
    if decision == EDIT:
        value[ARGUMENTS_KEY] = dict(answer[ARGUMENTS_KEY])
        if approval.digest:
            value[EDIT_DIGEST_KEY] = edit_digest(approval.digest, value[ARGUMENTS_KEY])
    if answer.get(MESSAGE_KEY):
        value[MESSAGE_KEY] = str(answer[MESSAGE_KEY])
    if answer.get(ALWAYS_KEY) is True and decision == APPROVE:
        value[ALWAYS_KEY] = True
    return value, {}


def _check_digests(approval: Approval, answer: Mapping[str, Any]) -> FieldErrors:
    """What is wrong when the person saw another call, or other arguments arrived than were sent.

    An answer without a digest is of the request that it names.
    """
    if DIGEST_KEY in answer and not same_digest(answer[DIGEST_KEY], approval.digest):
        sentence = f"The call of {approval.tool} is not the one that you saw. Look at it again, then decide."
        return {DIGEST_KEY: sentence}
    if EDIT_DIGEST_KEY not in answer:
        return {}
    arrived = edit_digest(approval.digest, answer.get(ARGUMENTS_KEY) or {})
    if same_digest(answer[EDIT_DIGEST_KEY], arrived):
        return {}
    sentence = (
        f"The arguments of {approval.tool} did not arrive as you wrote them, so nothing was decided. "
        "Write numbers of more than 15 digits as strings."
    )
    return {ARGUMENTS_KEY: sentence}
