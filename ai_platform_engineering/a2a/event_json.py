"""Our event as the JSON that travels in the metadata of its frame."""

import functools
from typing import Any

from ai_platform_engineering.core.events import AnyEvent

# The field of an event that is sent in the frame's text part and not in its JSON: no text is sent twice.
TEXT_FIELD = {"text_delta": "text", "answered": "text", "failed": "partial", "cancelled": "partial"}


def event_to_json(event: AnyEvent, *, omit_text: bool) -> dict[str, Any]:
    """The event without defaults; `omit_text` leaves out the text that the frame carries in its text part."""
    omitted = {name for name, default in _read_defaults(type(event)) if getattr(event, name) == default}
    if omit_text and event.kind in TEXT_FIELD:
        omitted.add(TEXT_FIELD[event.kind])
    return {"kind": event.kind, **event.model_dump(mode="json", exclude=omitted)}


@functools.cache
def _read_defaults(kind: type[AnyEvent]) -> tuple[tuple[str, Any], ...]:
    """The optional fields of a kind of event with their defaults, which are only compared."""
    return tuple(
        (name, field.get_default(call_default_factory=True))
        for name, field in kind.model_fields.items()
        if not field.is_required()
    )
