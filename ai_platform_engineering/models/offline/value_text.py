"""Values, keys and arguments of tools as text for people."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ai_platform_engineering.models.offline.tool_results import MAX_FACT_CHARS, is_scalar

_MAX_TEXT_CHARS = 6000
_MAX_CELL_CHARS = 120
_MAX_LIST_ITEMS = 20
_MAX_BLOCK_CHARS = 2000


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call, for people: host `localhost`, port `8000`."""
    parts = list[str]()
    for name, value in arguments.items():
        text = format_cell(format_value(value)).replace("`", "")
        parts.append(f"{humanize_key(name)} `{text}`")
    return ", ".join(parts)


def humanize_key(key: str) -> str:
    return key.replace("_", " ").replace("-", " ").strip() or key


def format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "–"
    if isinstance(value, str):
        return " ".join(value.split())
    if is_scalar_list(value):
        return _format_list(value)
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _format_list(values: Sequence[Any]) -> str:
    if not values:
        return "none"
    text = ", ".join(map(format_value, values[:_MAX_LIST_ITEMS]))
    if len(values) > _MAX_LIST_ITEMS:
        text += f", … ({len(values)} in all)"
    return text or "none"


def truncate_text(text: str, max_chars: int = _MAX_TEXT_CHARS) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars].rstrip()} … ({len(text) - max_chars} more characters)"


def format_cell(text: str) -> str:
    if len(text) > _MAX_CELL_CHARS:
        text = f"{text[: _MAX_CELL_CHARS - 1]}…"
    return text.replace("|", "\\|").replace("\n", " ")


def render_block(text: str) -> str:
    block = truncate_text(text, _MAX_BLOCK_CHARS)
    if "\n" not in text:
        return block
    fence = "~~~~" if "```" in text else "```"
    return f"{fence}\n{block}\n{fence}"


def is_scalar_list(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_scalar, value))


def is_prose(value: Any) -> bool:
    return isinstance(value, str) and len(value) > MAX_FACT_CHARS


def is_object_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_object, value))


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)
