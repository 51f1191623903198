"""Results of tools: parsed from text, told from failures, and written as Markdown lists and tables."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAX_JSON_CHARS = 500_000
_MAX_INTRODUCTION_CHARS = 1000
_MAX_FACT_CHARS = 160  # a longer text is prose, not a fact
_MAX_TEXT_CHARS = 6000
_MAX_BLOCK_CHARS = 2000
_MAX_CELL_CHARS = 120
_MAX_ITEMS = 20
_MAX_FACTS = 40
_MAX_TABLES = 4
_MAX_ROWS = 30
_MAX_COLUMNS = 7
_USUAL_KEYS = frozenset("name key id title status state version value result open ok valid count url".split())


@dataclass(frozen=True, slots=True)
class ParsedResult:
    """What a tool returned: data when the text is JSON."""

    value: Any
    failed: bool = False
    introduction: str = ""  # the sentence with which a tool introduces its data

    @property
    def is_flat(self) -> bool:
        """Whether it is an object of scalars, which can be a row of a table."""
        if self.introduction or not isinstance(self.value, Mapping) or not self.value:
            return False
        return all(map(_is_scalar, self.value.values()))


def parse_result(text: str, failed: bool) -> ParsedResult:
    """The text as data when it is JSON; a result that only holds an error is a failure."""
    introduction, data = _split_introduction(text.strip())
    if failed:
        return ParsedResult(introduction or text.strip(), failed=True)
    value = _parse_json(data)
    if isinstance(value, Mapping) and list(value) == ["result"]:
        value = value["result"]
    if isinstance(value, Mapping) and len(value) <= 3 and isinstance(value.get("error"), str):
        return ParsedResult(value["error"], failed=True)
    if isinstance(value, str):
        return ParsedResult(text.strip())
    return ParsedResult(value, False, introduction)


def _split_introduction(text: str) -> tuple[str, str]:
    """A sentence for people and the data after it, as some tools return both; else all is data."""
    head, _, rest = text.partition("\n")
    has_introduction = not head.startswith(("{", "[")) and len(head) <= _MAX_INTRODUCTION_CHARS
    if has_introduction and rest.lstrip().startswith(("{", "[")):
        return head.strip(), rest.strip()
    return "", text


def _parse_json(text: str) -> Any:
    """The JSON value, a list of them when several follow each other, or the text itself."""
    if not text.startswith(("{", "[", '"')) or len(text) > _MAX_JSON_CHARS:
        return text
    decoder = json.JSONDecoder()
    values = list[Any]()
    position = 0
    try:
        # A server that returns a list may send one text per item, one after the other.
        while position < len(text):
            value, position = decoder.raw_decode(text, position)
            values.append(value)
            while position < len(text) and text[position] in " \t\r\n":
                position += 1
    except (ValueError, RecursionError):
        return text
    return values[0] if len(values) == 1 else values


# --- Markdown -------------------------------------------------------------------------------------


def render_result(result: ParsedResult, arguments: Mapping[str, Any]) -> str:
    """The tool's own sentence when it has one, then its data."""
    value = result.value
    if result.introduction:
        # The sentence says what matters of the facts; it cannot hold a table.
        facts = _flatten(value) if isinstance(value, Mapping) else {}
        tables = _render_tables(
            {key: rows for key, rows in facts.items() if _is_table(rows) and len(rows) > 1}
        )
        return "\n\n".join([result.introduction, *tables])
    if value in ("", [], {}):
        return f"No results for {format_arguments(arguments)}." if arguments else "No results."
    if isinstance(value, Mapping):
        facts = _flatten(value)
        return "\n\n".join(filter(None, [_render_facts(facts, arguments), *_render_tables(facts)]))
    if isinstance(value, list):
        return _render_list(value)
    return truncate_text(value if isinstance(value, str) else format_value(value))


def _flatten(value: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Nested objects as one level of facts: `metadata name`."""
    facts = dict[str, Any]()
    for key, inner_value in list(value.items())[:_MAX_FACTS]:
        name = f"{prefix}{key}"
        if isinstance(inner_value, Mapping) and inner_value and depth < 2:
            facts |= _flatten(inner_value, f"{name} ", depth + 1)
        else:
            facts[name] = inner_value
    return dict(list(facts.items())[:_MAX_FACTS])


def _render_facts(facts: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """The facts as a list, without tables, prose and what only repeats an argument."""
    lines = list[str]()
    for key, value in facts.items():
        if not _is_table(value) and not _is_prose(value) and str(arguments.get(key)) != str(value):
            lines.append(f"- {humanize_key(key)}: {_format_cell(value)}")
    return "\n".join(lines) or f"The result only repeats {format_arguments(arguments) or 'the call'}."


def _render_tables(facts: Mapping[str, Any]) -> list[str]:
    """The lists of objects as tables, and the prose as blocks."""
    parts = list[str]()
    for key, value in facts.items():
        title = humanize_key(key).capitalize()
        if _is_table(value):
            parts.append(f"{title} ({len(value)}):\n\n{render_table(value)}")
        elif _is_prose(value):
            parts.append(f"{title}:\n\n{_render_block(value)}")
    return parts[:_MAX_TABLES]


def _render_list(values: Sequence[Any]) -> str:
    if _is_table(values):
        ending = "" if len(values) == 1 else "s"
        return f"{len(values)} result{ending}:\n\n{render_table(values)}"
    lines = [f"- {_format_cell(value)}" for value in values[:_MAX_ROWS]]
    if len(values) > _MAX_ROWS:
        lines.append(f"- … and {len(values) - _MAX_ROWS} more")
    return "\n".join(lines)


def render_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Objects as a table; of many columns those that usually matter, in their own order."""
    flat_rows = list(map(_flatten, rows[:_MAX_ROWS]))
    names = list(dict.fromkeys(name for row in flat_rows for name in row))
    filled = [name for name in names if any(row.get(name) not in (None, "", [], {}) for row in flat_rows)]
    chosen = sorted(filled or names, key=lambda name: name.split(" ")[-1] not in _USUAL_KEYS)[:_MAX_COLUMNS]
    columns = [name for name in names if name in chosen]
    lines = [_render_row(map(humanize_key, columns)), f"|{'---|' * len(columns)}"]
    for row in flat_rows:
        lines.append(_render_row(_format_cell(row.get(name)) for name in columns))
    if len(rows) > _MAX_ROWS:
        lines.append(f"\n… and {len(rows) - _MAX_ROWS} more.")
    return "\n".join(lines)


def _render_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _render_block(text: str) -> str:
    block = truncate_text(text, _MAX_BLOCK_CHARS)
    if "\n" not in text:
        return block
    fence = "~~~~" if "```" in text else "```"
    return f"{fence}\n{block}\n{fence}"


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call, for people: host `localhost`, port `8000`."""
    return ", ".join(
        f"{humanize_key(name)} `{_format_cell(value).replace('`', '')}`" for name, value in arguments.items()
    )


def humanize_key(key: str) -> str:
    return _format_cell(key.replace("_", " ").replace("-", " ").strip() or key)


def format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "–"
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list) and all(map(_is_scalar, value)):
        more = f", … ({len(value)} in all)" if len(value) > _MAX_ITEMS else ""
        return (", ".join(map(format_value, value[:_MAX_ITEMS])) or "none") + more
    return json.dumps(value, ensure_ascii=False, default=str)


def _format_cell(value: Any) -> str:
    text = format_value(value)
    if len(text) > _MAX_CELL_CHARS:
        text = f"{text[: _MAX_CELL_CHARS - 1]}…"
    return text.replace("|", "\\|").replace("\n", " ")


def truncate_text(text: str, max_chars: int = _MAX_TEXT_CHARS) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars].rstrip()} … ({len(text) - max_chars} more characters)"


def _is_scalar(value: Any) -> bool:
    return value is None or (isinstance(value, bool | int | float | str) and not _is_prose(value))


def _is_prose(value: Any) -> bool:
    return isinstance(value, str) and len(value) > _MAX_FACT_CHARS


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)
