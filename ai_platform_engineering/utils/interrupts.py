"""What an interrupt of a graph asks of people."""

import hashlib
from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.core.events import Approval, Form, InputField


def request_id_of(run_id: str, interrupt_id: str) -> str:
    """Our own id of a pending request; LangGraph's ids are no guard and never leave the process."""
    return hashlib.sha256(f"{run_id}\n{interrupt_id}".encode()).hexdigest()[:20]


def asked_of(value: Any) -> Form | Approval:
    """A form, an approval, or a question in plain words."""
    if isinstance(value, Form | Approval):
        return value
    if isinstance(value, Mapping):
        if value.get("type") == "approval":
            return Approval.model_validate(value)
        if value.get("type") == "form":
            return Form.model_validate(value)
        if requests := value.get("action_requests"):
            first = requests[0]
            return Approval(tool=first["name"], arguments=first.get("args") or {}, reason=first.get("description") or "")
    return Form(response=str(value), fields=(InputField(field_name="answer", field_label="Answer", field_type="textarea"),))
