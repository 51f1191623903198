"""What is done with a stored result in a process of its own: its shape, a JMESPath query, or a search.

They cost time and memory that depend on what a model asks for, so no other process does it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ai_platform_engineering.core.text_patterns import UnsupportedPattern, check_pattern, finds
from ai_platform_engineering.runtime.results.result_shape import (
    ResultNotJson,
    describe_shape,
    list_lines,
    parse_json,
)

MAX_EXPRESSION_CHARS = 2_000
_NOT_JSON = "The result is no JSON: use result_grep or result_page."
_NOTHING = "The expression gives null. The result is {shape}."
_CUT = "\n[Cut after {chars:,} characters. Select less: fewer keys, a filter, or a slice such as [0:50].]"
_NO_MATCH = "No line matches. The result is {shape}."


class CommandRefused(ValueError):
    """A query or pattern that cannot be used; the text is for the model."""


def run_command(command: Mapping[str, Any], text: str) -> str:
    """The output of a command for the model. Raises CommandRefused."""
    return _COMMANDS[command["name"]](command, text)


def _describe(command: Mapping[str, Any], text: str) -> str:
    return describe_shape(text)


def _query(command: Mapping[str, Any], text: str) -> str:
    # Imported here: the other commands do without.
    import jmespath  # type: ignore[import-untyped]
    from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]

    expression = str(command["expression"])
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise CommandRefused(f"The expression has more than {MAX_EXPRESSION_CHARS:,} characters.")
    try:
        value = jmespath.search(expression, parse_json(text))
    except ResultNotJson:
        raise CommandRefused(_NOT_JSON) from None
    except (JMESPathError, ValueError, TypeError, RecursionError) as error:
        raise CommandRefused(f"The JMESPath expression cannot be used: {error}") from None
    if value is None:
        return _NOTHING.format(shape=describe_shape(text))
    return _encode(value, int(command["max_chars"]))


def _encode(value: Any, max_chars: int) -> str:
    """The value as JSON; no more of it is encoded than is shown."""
    parts: list[str] = []
    chars = 0
    for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        parts.append(part)
        chars += len(part)
        if chars > max_chars:
            return "".join(parts)[:max_chars] + _CUT.format(chars=max_chars)
    heading = f"Array of {len(value):,}:\n" if isinstance(value, list) else ""
    return heading + "".join(parts)


def _grep(command: Mapping[str, Any], text: str) -> str:
    pattern = f"(?i){command['pattern']}"
    try:
        check_pattern(pattern)
    except UnsupportedPattern as error:
        raise CommandRefused(f"The pattern cannot be used: {error}.") from None
    skip = int(command["skip"])
    remaining_chars = int(command["max_chars"])
    count = 0
    lines: list[str] = []
    for line in list_lines(text):
        if not finds(pattern, f"{line.place}: {line.text}"):
            continue
        count += 1
        output = f"{line.place}: {line.text}"
        if count > skip and remaining_chars >= len(output):
            lines.append(output)
            remaining_chars -= len(output) + 1
        elif count > skip:
            remaining_chars = 0
    if not count:
        return _NO_MATCH.format(shape=describe_shape(text))
    if not lines:
        return f"Matching lines: {count:,}. There are none after the first {skip:,}."
    heading = f"Matching lines: {count:,}. Shown: {skip + 1:,} to {skip + len(lines):,}."
    footer: list[str] = []
    if skip + len(lines) < count:
        footer = [f"[{count - skip - len(lines):,} more: skip={skip + len(lines)}]"]
    return "\n".join([heading, *lines, *footer])


_COMMANDS: Mapping[str, Callable[[Mapping[str, Any], str], str]] = {
    "describe": _describe,
    "query": _query,
    "grep": _grep,
}
