"""Results of tools, parsed: data when the text is JSON, failures told from successes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MAX_JSON_CHARS = 500_000
_MAX_INTRODUCTION_CHARS = 1000
MAX_FACT_CHARS = 160  # a longer text is prose, not a fact


@dataclass(frozen=True, slots=True)
class ParsedResult:
    """What a tool returned."""

    value: Any
    failed: bool = False
    introduction: str = ""  # the sentence with which a tool introduces its data

    @property
    def is_flat(self) -> bool:
        """Whether it is an object of scalars, which can be a row of a table."""
        if self.introduction or not isinstance(self.value, Mapping) or not self.value:
            return False
        return all(map(is_scalar, self.value.values()))


def is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_FACT_CHARS
    return value is None or isinstance(value, bool | int | float)


def parse_result(text: str, failed: bool) -> ParsedResult:
    """The text as data when it is JSON; a result that only holds an error is a failure."""
    introduction, data = _split_introduction(text.strip())
    if failed:
        return ParsedResult(introduction or text.strip(), failed=True)
    value = _parse_json(data)
    if isinstance(value, Mapping) and list(value) == ["result"]:
        value = value["result"]
    error = _read_error(value)
    if error:
        return ParsedResult(error, failed=True)
    if isinstance(value, str):
        return ParsedResult(text.strip())
    return ParsedResult(value, False, introduction)


def _read_error(value: Any) -> str:
    if not isinstance(value, Mapping) or len(value) > 3:
        return ""
    error = value.get("error")
    if isinstance(error, str):
        return error
    return ""


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
    if len(values) == 1:
        return values[0]
    return values
