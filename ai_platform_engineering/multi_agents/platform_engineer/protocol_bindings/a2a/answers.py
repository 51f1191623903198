"""What a message answers of the pending requests: every shape that clients send, checked against what was asked and stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.core.events import Approval, DataPart, Form, Resolution, TextPart
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.core.transcript import Request
from ai_platform_engineering.utils.a2a_common.parts import UserPart

_RESOLUTIONS: Mapping[str, Resolution] = {"approve": "approved", "edit": "edited", "reject": "rejected"}
_DECISIONS = {"accept": "approve", "response": "reject"}  # what older clients say


@dataclass(frozen=True, slots=True)
class Answers:
    """Values by request id, and what is wrong with the others; a request with a wrong answer stays open."""

    values: Mapping[str, Any] = field(default_factory=dict)
    wrong: Sequence[str] = ()


def read_answers(parts: Sequence[UserPart], pending: Sequence[Request]) -> Answers:
    values: dict[str, Any] = {}
    wrong: list[str] = []
    asked = {request.request_id: request.asked for request in pending}
    for request_id, given in _given(parts, pending):
        value, problems = _checked(asked[request_id], given)
        if problems:
            wrong += problems
        else:
            values[request_id] = value
    return Answers(values, wrong)


def asked_for(pending: Sequence[Request]) -> str:
    """What is still to be answered, in a few words."""
    return "; ".join(
        f"a decision on {request.asked.tool}" if isinstance(request.asked, Approval) else request.asked.title or request.asked.response
        for request in pending
    )


def resolution_of(value: Any) -> Resolution:
    return _RESOLUTIONS.get(str(value.get("type")), "answered") if isinstance(value, Mapping) else "answered"


def _given(parts: Sequence[UserPart], pending: Sequence[Request]) -> Iterator[tuple[str, Any]]:
    """What the message says to which request: by its id, by what existing clients send, or bare when one form is open alone."""
    known = {request.request_id for request in pending}
    [only] = pending if len(pending) == 1 and isinstance(pending[0].asked, Form) else [None]
    for part in parts:
        if not isinstance(part, DataPart) or not isinstance(part.data, dict):
            continue
        named = part.data.get("resume")
        if isinstance(named, dict) and isinstance(decisions := named.get("decisions"), list):
            yield from _decided(decisions, pending)
            return
        if isinstance(named, dict):
            yield from ((request_id, value) for request_id, value in named.items() if request_id in known)
            return
        if only is not None:
            yield only.request_id, part.data
            return
    if only is not None and isinstance(only.asked, Form) and (values := _in_text(parts, only.asked)):
        yield only.request_id, values


def _decided(decisions: Sequence[Any], pending: Sequence[Request]) -> Iterator[tuple[str, Any]]:
    """Decisions in a list: each for the first open request of its name, else for the first one of its kind."""
    left = list(pending)
    for decision in decisions:
        if not isinstance(decision, dict) or not left:
            continue
        values = _user_inputs(decision)
        name = str(decision.get("action_name") or _edited(decision).get("name") or "")
        kind = Form if values is not None else Approval
        named = [request for request in left if isinstance(request.asked, Approval) and request.asked.tool == name]
        request = next(iter([*named, *(request for request in left if isinstance(request.asked, kind)), left[0]]))
        left.remove(request)
        if isinstance(request.asked, Form):
            yield request.request_id, values if values is not None else {}
        else:
            said = str(decision.get("type") or "")
            arguments = _edited(decision).get("args") or _inner(decision.get("args"))
            yield request.request_id, {"type": _DECISIONS.get(said, said), "arguments": arguments, "message": decision.get("message")}


def _user_inputs(decision: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of a form: by name, else those that stand beside its fields."""
    inner = _inner(decision.get("args")) or _edited(decision).get("args") or {}
    if not isinstance(inner, dict):
        return None
    if isinstance(values := inner.get("user_inputs"), dict):
        return values
    fields = (inner.get("metadata") or {}).get("input_fields") if isinstance(inner.get("metadata"), dict) else None
    if not isinstance(fields, list):
        return None
    return {str(one.get("field_name")): one.get("value") for one in fields if isinstance(one, dict)}


def _inner(given: Any) -> Any:
    return given["args"] if isinstance(given, dict) and isinstance(given.get("args"), dict) else given


def _edited(decision: Mapping[str, Any]) -> Mapping[str, Any]:
    edited = decision.get("edited_action")
    return edited if isinstance(edited, dict) else {}


def _in_text(parts: Sequence[UserPart], form: Form) -> dict[str, Any]:
    """A form's values in plain words: the whole text for a single text field, else lines `name: value`."""
    text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart)).strip()
    if not text:
        return {}
    if len(form.fields) == 1 and form.fields[0].field_type in ("text", "textarea"):
        return {form.fields[0].field_name: text}
    names = {field.field_name for field in form.fields}
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    found = {name.strip(): value.strip() for name, colon, value in lines if colon and name.strip() in names}
    return found if len(found) == len(lines) else {}


def _checked(asked: Form | Approval, given: Any) -> tuple[Any, list[str]]:
    if isinstance(asked, Form):
        if not isinstance(given, Mapping):
            return None, ["The answer to a form holds a value for each field by its name."]
        values, wrong = check_form(asked, given)
        return values, list(wrong.values())
    if not isinstance(given, Mapping):
        return None, [f"The decision on {asked.tool} is one of {', '.join(asked.allowed)}, as `type`."]
    decision = _DECISIONS.get(str(given.get("type")), str(given.get("type")))
    if decision not in asked.allowed:
        return None, [f"The decision on {asked.tool} is one of {', '.join(asked.allowed)}."]
    if decision == "edit" and not isinstance(given.get("arguments"), Mapping):
        return None, [f"An edit of {asked.tool} needs its `arguments`."]
    return {**given, "type": decision}, []
