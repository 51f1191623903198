"""Lists of a tool's result as Markdown tables, or as titled texts when they hold prose."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ai_platform_engineering.models.offline.question_parser import ParsedRequest
from ai_platform_engineering.models.offline.tool_results import is_scalar
from ai_platform_engineering.models.offline.value_text import (
    format_cell,
    format_value,
    humanize_key,
    is_object_list,
    is_prose,
    is_scalar_list,
    truncate_text,
)
from ai_platform_engineering.models.offline.word_matching import is_generic, stem_words

_MAX_FACTS = 40
_MAX_ROWS = 30
_MAX_COLUMNS = 7
_MAX_PROSE_CHARS = 600
USUAL_KEYS = (
    *("name", "key", "id", "title", "status", "state", "version", "value", "result"),
    *("open", "ok", "valid", "count", "total", "url"),
)
_TITLE_KEYS = ("title", "name", "key", "document_id", "id", "url")
_LINK_KEYS = ("url", "link", "source")
Facts = dict[str, Any]


def flatten_object(value: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Facts:
    """Nested objects as one level of facts: `metadata name`."""
    facts: Facts = {}
    for key, inner_value in list(value.items())[:_MAX_FACTS]:
        name = f"{prefix}{key}"
        if isinstance(inner_value, Mapping) and inner_value and depth < 2:
            facts |= flatten_object(inner_value, f"{name} ", depth + 1)
        else:
            facts[name] = inner_value
    return dict(list(facts.items())[:_MAX_FACTS])


def is_named_in(key: str, request: ParsedRequest) -> bool:
    """Whether the request asks for the fact by its name."""
    request_words = set(stem_words(request.wording))
    return any(word in request_words and not is_generic(word) for word in stem_words(key))


def render_list(values: Sequence[Any], request: ParsedRequest) -> str:
    if is_object_list(values):
        if _has_prose(values):
            return _render_prose_rows(values)
        ending = "" if len(values) == 1 else "s"
        return f"{len(values)} result{ending}:\n\n{render_table(values, request)}"
    lines = list[str]()
    for value in values[:_MAX_ROWS]:
        lines.append(f"- {format_cell(format_value(value))}")
    if len(values) > _MAX_ROWS:
        lines.append(f"- … and {len(values) - _MAX_ROWS} more")
    return "\n".join(lines)


def render_objects(rows: Sequence[Mapping[str, Any]], request: ParsedRequest) -> str:
    if _has_prose(rows):
        return _render_prose_rows(rows)
    return render_table(rows, request)


def _has_prose(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(any(map(is_prose, row.values())) for row in rows)


def render_table(rows: Sequence[Mapping[str, Any]], request: ParsedRequest, max_rows: int = _MAX_ROWS) -> str:
    """Objects as a table: the columns that the request asks for and those that name things first."""
    flat_rows = list(map(flatten_object, rows[:max_rows]))
    columns = _choose_columns(flat_rows, request)
    lines = [_render_row(map(humanize_key, columns)), f"|{'---|' * len(columns)}"]
    for row in flat_rows:
        lines.append(_render_row(map(format_value, map(row.get, columns))))
    if len(rows) > max_rows:
        lines.append(f"\n… and {len(rows) - max_rows} more.")
    return "\n".join(lines)


def _render_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(format_cell, cells))} |"


def _choose_columns(rows: Sequence[Facts], request: ParsedRequest) -> list[str]:
    names = dict[str, None]()  # in the order of their first use
    for row in rows:
        names.update(dict.fromkeys(row))
    filled = [name for name in names if not _is_empty_column(name, rows)] or list(names)
    plain = [name for name in filled if _is_plain_column(name, rows)] or filled
    preferred = list[str]()
    others = list[str]()
    for name in plain:
        if name.split(" ")[-1] in USUAL_KEYS or is_named_in(name, request):
            preferred.append(name)
        else:
            others.append(name)
    chosen = set((preferred + others)[:_MAX_COLUMNS])
    return [name for name in plain if name in chosen]


def _is_empty_column(name: str, rows: Sequence[Facts]) -> bool:
    return all(row.get(name) in (None, "", [], {}) for row in rows)


def _is_plain_column(name: str, rows: Sequence[Facts]) -> bool:
    for row in rows:
        value = row.get(name)
        if not is_scalar(value) and not is_scalar_list(value):
            return False
    return True


def _render_prose_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Objects with prose in them, such as search results: a name and the text, not a table."""
    lines = list[str]()
    for row in rows[:_MAX_ROWS]:
        facts = flatten_object(row)
        texts = list(filter(is_prose, facts.values()))
        text = _render_prose(texts[:2]) if texts else _render_first_facts(facts)
        head = _render_prose_head(facts)
        lines.append(f"- {': '.join(filter(None, (head, text)))}")
    return "\n".join(lines)


def _render_prose_head(facts: Facts) -> str:
    """The title and the link of a row."""
    title = ""
    for key in _TITLE_KEYS:
        if facts.get(key):
            title = str(facts[key])
            break
    head = f"**{format_cell(title)}**" if title else ""
    for key in _LINK_KEYS:
        link = str(facts.get(key) or "")
        if link.startswith("http"):
            if link != title:
                head += f" ({link})"
            break
    return head


def _render_prose(texts: Sequence[str]) -> str:
    return " ".join(truncate_text(" ".join(text.split()), _MAX_PROSE_CHARS) for text in texts)


def _render_first_facts(facts: Facts) -> str:
    first_facts = list[str]()
    for key, value in list(facts.items())[:4]:
        first_facts.append(f"{humanize_key(key)}: {format_cell(format_value(value))}")
    return "; ".join(first_facts)
