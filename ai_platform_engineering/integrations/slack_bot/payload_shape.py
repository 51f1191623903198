"""The shape of a signed payload, checked before Bolt reads it: Bolt takes members for objects unseen."""

import json
from typing import Any
from urllib.parse import parse_qs

# Slack sends some of them as ids, too.
_OBJECTS_OR_IDS = ("user", "team", "channel", "enterprise")
_OBJECTS = ("event", "view", "message", "previous_message", "container", "state", "item", "assistant_thread")
_LISTS_OF_OBJECTS = ("actions", "authorizations", "response_urls")


def has_expected_shape(body: bytes) -> bool:
    """Whether the members of a JSON payload, or of the one in a form, are of the kinds that Slack sends."""
    text = body.decode(errors="replace")
    try:
        if text.lstrip().startswith(("{", "[")):
            return _is_payload(json.loads(text))
        return all(_is_payload(json.loads(payload)) for payload in parse_qs(text).get("payload", []))
    except (ValueError, RecursionError):
        return False


def _is_payload(payload: Any) -> bool:
    if not isinstance(payload, dict):
        return False
    event = payload.get("event")
    return _has_expected_members(payload) and (event is None or _has_expected_members(event))


def _has_expected_members(payload: dict[str, Any]) -> bool:
    return (
        all(isinstance(payload.get(name), dict | None) for name in _OBJECTS)
        and all(isinstance(payload.get(name), dict | str | None) for name in _OBJECTS_OR_IDS)
        and all(_is_list_of_objects(payload.get(name)) for name in _LISTS_OF_OBJECTS)
    )


def _is_list_of_objects(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
