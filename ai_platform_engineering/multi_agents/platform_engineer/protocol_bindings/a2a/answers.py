"""What a message answers of the pending requests."""

from collections.abc import Mapping, Sequence
from typing import Any

from ai_platform_engineering.core.events import DataPart, Form, Resolution, TextPart
from ai_platform_engineering.core.transcript import Request
from ai_platform_engineering.utils.a2a_common.parts import UserPart

_DECISIONS: Mapping[str, Resolution] = {"approve": "approved", "edit": "edited", "reject": "rejected"}


def read_answers(parts: Sequence[UserPart], pending: Sequence[Request]) -> dict[str, Any]:
    """Values by request id: named ones, or the bare values or the text when exactly one form is open."""
    forms = [request for request in pending if isinstance(request.asked, Form)]
    for part in parts:
        if isinstance(part, DataPart) and isinstance(part.data, dict):
            named = part.data.get("resume")
            if isinstance(named, dict):
                known = {request.request_id for request in pending}
                return {request_id: value for request_id, value in named.items() if request_id in known}
            if len(forms) == 1 == len(pending):
                return {forms[0].request_id: part.data}
    text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart)).strip()
    if text and len(forms) == 1 == len(pending) and isinstance(forms[0].asked, Form):
        fields = forms[0].asked.fields
        if len(fields) == 1 and fields[0].field_type in ("text", "textarea"):
            return {forms[0].request_id: {fields[0].field_name: text}}
    return {}


def resolution_of(value: Any) -> Resolution:
    return _DECISIONS.get(str(value.get("type")), "answered") if isinstance(value, Mapping) else "answered"
