"""Requests as data parts: a form or an approval as the JSON that clients know, and back."""

from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.core.events import Approval, Form, InputRequested


def request_to_data(event: InputRequested) -> dict[str, Any]:
    """A form or an approval as the JSON that clients know."""
    form_or_approval = event.asked
    match form_or_approval:
        case Form():
            fields = [field.model_dump(mode="json", exclude_none=True) for field in form_or_approval.fields]
            texts = {
                "input_title": form_or_approval.title,
                "input_description": form_or_approval.description,
                "response": form_or_approval.response,
            }
            return {
                "user_input": True,
                "request_id": event.request_id,
                **{name: text for name, text in texts.items() if text},
                "input_fields": fields,
            }
        case Approval():
            # The schema is for whoever checks an edit; people and clients decide on the call.
            body = form_or_approval.model_dump(mode="json", exclude={"type", "arguments_schema"})
            for name in ("digest", "reason", "expires_at"):
                if not body[name]:  # an agent that is not ours may ask without them
                    del body[name]
            return {"approval": True, "request_id": event.request_id, "agent": event.agent, **body}


def request_from_data(data: Mapping[str, Any]) -> Form | Approval:
    """The form or approval in the JSON of `request_to_data`. Raises ValueError."""
    if data.get("approval"):
        return Approval.model_validate({**data, "type": "approval"})
    fields = {
        "title": data.get("input_title"),
        "description": data.get("input_description"),
        "response": data.get("response") or "",
        "fields": data.get("input_fields") or (),
        "expires_at": data.get("expires_at"),  # the REST API adds it
    }
    return Form.model_validate(fields)
