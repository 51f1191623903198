"""What a message answers of the pending requests: every shape that clients send, checked against what was asked and stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.a2a.message_parts import UserPart, is_scope_part
from ai_platform_engineering.core.events import Approval, DataPart, Form, InputRequested, Resolution, TextPart
from ai_platform_engineering.core.forms import REJECT, check_form, is_declined
from ai_platform_engineering.core.tool_traits import USER_INPUT_TOOL

_RESOLUTIONS: Mapping[str, Resolution] = {"approve": "approved", "edit": "edited", "reject": "rejected"}
_DECISIONS = {"accept": "approve", "response": "reject"}  # what older clients say
_WHOLE = ""  # in the place of a field: the answer as a whole is wrong

FieldErrors = dict[str, str]  # a sentence by field


@dataclass(slots=True)
class ParsedAnswers:
    """Values by request id, what is wrong by request id, and what is meant for nobody. A request with a wrong answer stays open."""

    values: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, FieldErrors] = field(default_factory=dict)
    stray: list[str] = field(default_factory=list)

    def complaints(self) -> str:
        return " ".join(
            [*(sentence for fields in self.wrong.values() for sentence in fields.values()), *self.stray]
        )


def is_answer(parts: Sequence[UserPart]) -> bool:
    """The message says itself that it answers a request: it is never a question."""
    return any(
        isinstance(part, DataPart)
        and isinstance(part.data, dict)
        and isinstance(part.data.get("resume"), dict)
        for part in parts
    )


def read_request_ids(parts: Sequence[UserPart]) -> list[str]:
    """The ids of the requests that the message names."""
    named = [
        part.data["resume"]
        for part in parts
        if isinstance(part, DataPart) and is_answer([part]) and isinstance(part.data, dict)
    ]
    return [
        key for resume in named if isinstance(resume, dict) and "decisions" not in resume for key in resume
    ]


def plain_text(parts: Sequence[UserPart]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart)).strip()


def read_answers(parts: Sequence[UserPart], pending: Sequence[InputRequested]) -> ParsedAnswers:
    found = ParsedAnswers()
    asked = {request.request_id: request.asked for request in pending}
    for request_id, given in _given(parts, pending, found.stray):
        value, wrong = _checked(asked[request_id], given)
        if wrong:
            found.wrong[request_id] = wrong
        else:
            found.values[request_id] = value
    return found


def describe_requests(pending: Sequence[InputRequested]) -> str:
    """What is still to be answered, in a few words."""
    return "; ".join(request.asked.describe() for request in pending)


def find_resolution(asked: Form | Approval, value: Any) -> Resolution:
    if not isinstance(value, Mapping) or (isinstance(asked, Form) and not is_declined(asked, value)):
        return "answered"
    return _RESOLUTIONS.get(str(value.get("type")), "answered")


def _given(
    parts: Sequence[UserPart], pending: Sequence[InputRequested], stray: list[str]
) -> Iterator[tuple[str, Any]]:
    """What the message says to which request: by its id, by what existing clients send, or bare when one form is open alone."""
    known = {request.request_id for request in pending}
    forms = [request for request in pending if isinstance(request.asked, Form)]
    for part in parts:
        if not isinstance(part, DataPart) or not isinstance(part.data, dict) or is_scope_part(part):
            continue
        named = part.data.get("resume")
        if isinstance(named, dict) and isinstance(decisions := named.get("decisions"), list):
            yield from _decided(decisions, pending, stray)
            return
        if isinstance(named, dict):
            yield from ((request_id, value) for request_id, value in named.items() if request_id in known)
            return
        if len(forms) == 1:
            yield forms[0].request_id, part.data
            return
    yield from _said(plain_text(parts), pending)


def _said(text: str, pending: Sequence[InputRequested]) -> Iterator[tuple[str, Any]]:
    """An answer in plain words: the text for the one request that takes one, or lines `name: value` for the one form."""
    speaking = [request for request in pending if request.asked.takes_text]
    forms = [request for request in pending if isinstance(request.asked, Form)]
    if not text:
        return
    if len(forms) == 1 and isinstance(forms[0].asked, Form) and (values := _lines(text, forms[0].asked)):
        yield forms[0].request_id, values
    elif len(speaking) == 1 and isinstance(speaking[0].asked, Form):
        yield speaking[0].request_id, {speaking[0].asked.fields[0].field_name: text}


def _lines(text: str, form: Form) -> dict[str, str]:
    names = {field.field_name for field in form.fields}
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    found = {name.strip(): value.strip() for name, colon, value in lines if colon and name.strip() in names}
    if len(found) == len(lines) and not form.takes_text:
        return found
    return {}


def _decided(
    decisions: Sequence[Any], pending: Sequence[InputRequested], stray: list[str]
) -> Iterator[tuple[str, Any]]:
    """Decisions in a list: each for the first open request of its name; without a name only where nothing else can be meant."""
    left = list(pending)
    for decision in decisions:
        if not isinstance(decision, dict):
            stray.append("A decision is an object with a `type`.")
            continue
        request = _meant(decision, left, in_order=len(decisions) == len(pending))
        if request is None:
            stray.append(
                f"No open request is called {_name(decision)}."
                if _name(decision)
                else "Say which request each decision is for."
            )
            continue
        left.remove(request)
        if isinstance(request.asked, Form):
            values = _user_inputs(decision)
            says_no = (
                values is None and _DECISIONS.get(str(decision.get("type")), decision.get("type")) == REJECT
            )
            yield (
                request.request_id,
                {"type": REJECT, "message": decision.get("message")} if says_no else values or {},
            )
        else:
            said = str(decision.get("type") or "")
            arguments = _edited(decision).get("args") or _inner(decision.get("args"))
            yield (
                request.request_id,
                {
                    "type": _DECISIONS.get(said, said),
                    "arguments": arguments,
                    "message": decision.get("message"),
                },
            )


def _meant(
    decision: Mapping[str, Any], left: Sequence[InputRequested], *, in_order: bool
) -> InputRequested | None:
    name = _name(decision)
    is_form = name == USER_INPUT_TOOL or _user_inputs(decision) is not None
    same_kind = [request for request in left if isinstance(request.asked, Form) == is_form]
    if name and not is_form:
        return next(
            (
                request
                for request in same_kind
                if isinstance(request.asked, Approval) and request.asked.tool == name
            ),
            None,
        )
    if in_order and not name:
        if left and (not is_form or left[0] in same_kind):
            return left[0]
        return None
    if len(same_kind) == 1 or (in_order and same_kind):
        return same_kind[0]
    return None


def _name(decision: Mapping[str, Any]) -> str:
    return str(decision.get("action_name") or _edited(decision).get("name") or "")


def _user_inputs(decision: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of a form: by name, else those that stand beside its fields."""
    inner = _inner(decision.get("args")) or _edited(decision).get("args") or {}
    if not isinstance(inner, dict):
        return None
    if isinstance(values := inner.get("user_inputs"), dict):
        return values
    fields = (
        (inner.get("metadata") or {}).get("input_fields") if isinstance(inner.get("metadata"), dict) else None
    )
    if not isinstance(fields, list):
        return None
    return {str(one.get("field_name")): one.get("value") for one in fields if isinstance(one, dict)}


def _inner(given: Any) -> Any:
    if isinstance(given, dict) and isinstance(given.get("args"), dict):
        return given["args"]
    return given


def _edited(decision: Mapping[str, Any]) -> Mapping[str, Any]:
    edited = decision.get("edited_action")
    if isinstance(edited, dict):
        return edited
    return {}


def _checked(asked: Form | Approval, given: Any) -> tuple[Any, FieldErrors]:
    if isinstance(asked, Form):
        if not isinstance(given, Mapping):
            return None, {_WHOLE: "The answer to a form holds a value for each field by its name."}
        if is_declined(asked, given):
            return {
                "type": REJECT,
                **({"message": str(given["message"])} if given.get("message") else {}),
            }, {}
        return check_form(asked, given)
    if not isinstance(given, Mapping):
        return None, {
            _WHOLE: f"The decision on {asked.tool} is one of {', '.join(asked.allowed)}, as `type`."
        }
    decision = _DECISIONS.get(str(given.get("type")), str(given.get("type")))
    if decision not in asked.allowed:
        return None, {"type": f"The decision on {asked.tool} is one of {', '.join(asked.allowed)}."}
    if decision == "edit" and not isinstance(given.get("arguments"), Mapping):
        return None, {"arguments": f"An edit of {asked.tool} needs its `arguments`."}
    if decision == "approve" and given.get("arguments") not in (None, {}, asked.arguments):
        # An approval is of what was shown. To drop the changes silently would run what nobody decided.
        return None, {
            "arguments": f"An approval of {asked.tool} changes no arguments: to change them, send the type `edit`."
        }
    kept: dict[str, Any] = {"type": decision}
    if decision == "edit":
        kept["arguments"] = dict(given["arguments"])
    if given.get("message"):
        kept["message"] = str(given["message"])
    if given.get("always") is True and decision == "approve":
        kept["always"] = True
    return kept, {}
