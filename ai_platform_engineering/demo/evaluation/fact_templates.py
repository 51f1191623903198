"""Facts of the estate in texts of cases: `{checkout.version}` stands for a value that differs by seed."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from ai_platform_engineering.demo.evaluation.answer_text import escape

FactTable = Mapping[str, str]

# Braces of regular expressions, such as `{2,3}`, are no facts.
_FACT = re.compile(r"\{([a-z][a-z0-9_]*(?:\.[a-z0-9_-]+)+)\}")


class UnknownFact(ValueError):
    """A text names a fact that the estate does not have."""


def fill_text(text: str, facts: FactTable, render: Callable[[str], str] = str) -> str:
    """The text with values in place of facts. Raises UnknownFact."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1]
        if name not in facts:
            similar = get_close_matches(name, facts, n=1)
            hint = f"; did you mean {{{similar[0]}}}?" if similar else ""
            raise UnknownFact(f"the estate has no fact {{{name}}}{hint}")
        return render(facts[name])

    return _FACT.sub(value_of, text)


def fill_data(data: Any, facts: FactTable) -> Any:
    """A copy of the data of a file with all its texts filled; patterns get values that match as they are.

    Raises UnknownFact.
    """
    if isinstance(data, str):
        return fill_text(data, facts)
    if isinstance(data, list):
        return [fill_data(item, facts) for item in data]
    if not isinstance(data, dict):
        return data
    filled: dict[str, Any] = {}
    for key, value in data.items():
        if key in ("matches", "not_matches") and isinstance(value, str):
            filled[key] = fill_text(value, facts, escape)
        else:
            filled[key] = fill_data(value, facts)
    return filled
