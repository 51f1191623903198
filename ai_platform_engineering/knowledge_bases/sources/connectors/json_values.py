"""Values of JSON that an API sent: what has another type than expected counts as empty."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def read_text(value: Any, key: str) -> str:
    """A text, or a number as text; empty if there is none."""
    item = value.get(key) if isinstance(value, dict) else None
    if isinstance(item, int) and not isinstance(item, bool):
        return str(item)
    return item if isinstance(item, str) else ""


def read_mapping(value: Any, key: str) -> Mapping[str, Any]:
    item = value.get(key) if isinstance(value, dict) else None
    return item if isinstance(item, dict) else {}


def read_list(value: Any, key: str) -> list[Mapping[str, Any]]:
    """A list of objects; what is no object is left out."""
    items = value.get(key) if isinstance(value, dict) else None
    if not isinstance(items, list):
        return []
    return [item for item in items if isinstance(item, dict)]


def read_names(value: Any, key: str) -> list[str]:
    """A list of texts."""
    items = value.get(key) if isinstance(value, dict) else None
    if not isinstance(items, list):
        return []
    return [item for item in items if isinstance(item, str)]


def read_time(value: Any, key: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(read_text(value, key))
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC)
