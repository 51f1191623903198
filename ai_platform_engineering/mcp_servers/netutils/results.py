"""Results of the tools: typed data and one sentence for people, or an error that says what to do."""

import json
import re
from abc import ABC, abstractmethod
from typing import Any

from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict

from ai_platform_engineering.core.errors import CaipeError

LINE_LIMIT = 600
_EXACT_IN_JAVASCRIPT = 2**53 - 1


class ResultModel(BaseModel):
    """A frozen model that is part of a result."""

    model_config = ConfigDict(frozen=True)


class CheckResult(ResultModel, ABC):
    """The result of one tool call; keys without a value are left out of its JSON."""

    @property
    @abstractmethod
    def line(self) -> str:
        """The result in one sentence."""

    def as_result(self) -> CallToolResult:
        return _build_tool_result(self.line, self)


class NetError(CaipeError):
    """A check that failed; `result` is what was learnt before that."""

    code = "netutils"

    def __init__(self, text: str, result: CheckResult | None = None) -> None:
        super().__init__(text)
        self.result = result

    def as_result(self) -> CallToolResult:
        return _build_tool_result(str(self), self.result, failed=True)


def _build_tool_result(line: str, result: CheckResult | None, *, failed: bool = False) -> CallToolResult:
    texts = [printable(line, LINE_LIMIT)]
    data: dict[str, Any] | None = None
    if result is not None:
        data = result.model_dump(mode="json", exclude_none=True)
        # ASCII only: what a far end wrote must not smuggle control characters into a terminal or a prompt.
        texts.append(json.dumps(data, separators=(",", ":"), ensure_ascii=True))
    return CallToolResult(
        content=[TextContent(type="text", text=text) for text in texts],
        structured_content=data,
        is_error=failed,
    )


def printable(text: str, limit: int) -> str:
    """One line without control or direction characters, cut at the limit."""
    one_line = re.sub(r"\s+", " ", "".join(map(_replace_unprintable, text))).strip()
    if len(one_line) <= limit:
        return one_line
    return one_line[: limit - 1] + "…"


def _replace_unprintable(character: str) -> str:
    if character.isprintable() or character.isspace():
        return character
    return "\N{REPLACEMENT CHARACTER}"


def quote_input(text: str) -> str:
    """Someone's input, short enough for an error."""
    return repr(printable(text, 80))


def to_json_number(number: int) -> int | str:
    """A number as JSON can carry it: decimal digits in a string where common readers would round."""
    if abs(number) <= _EXACT_IN_JAVASCRIPT:
        return number
    return str(number)


def format_count(number: int) -> str:
    """A count as people read it; the huge ones of IPv6 as a power of two."""
    if number < 10**15:
        return f"{number:,}"
    bits = number.bit_length()
    if number.bit_count() == 1:
        return f"2^{bits - 1}"
    return f"2^{bits} - {2**bits - number:,}"


def to_milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)


def pluralize(count: int, noun: str) -> str:
    if count == 1:
        return f"{format_count(count)} {noun}"
    if noun.endswith("s"):
        return f"{format_count(count)} {noun}es"
    return f"{format_count(count)} {noun}s"
