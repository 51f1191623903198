"""Limits of a JSON text from elsewhere, checked on its bytes before anything is built from it.

Each value costs a Python object, and a hundred times that where it becomes protobuf: a few megabytes of
brackets would stop the process for minutes. Counting bytes takes milliseconds.
"""

from dataclasses import dataclass

from ai_platform_engineering.core.errors import Refused

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_OPENING = frozenset(b"[{")


class JsonTooLarge(Refused):
    """A JSON text with more values, or deeper, than the limits allow."""

    code = "json_too_large"


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """How many values (with the keys of objects) a JSON text may have, and how deep they may be nested."""

    values: int
    depth: int = 100

    def check(self, text: bytes) -> None:
        """Raises JsonTooLarge. What is no JSON may pass: the parser finds out."""
        unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")
        quotes = unescaped.count(b'"')
        if quotes > 4 * self.values:  # a key and a value, each in two quotes
            raise self._too_many()
        outside_strings = b"".join(unescaped.split(b'"')[::2])
        brackets = outside_strings.count(b"[") + outside_strings.count(b"{")
        separators = outside_strings.count(b",") + outside_strings.count(b":")
        if brackets + separators > self.values:
            raise self._too_many()
        depth = 0
        for bracket in outside_strings.translate(None, _NOT_BRACKETS):
            depth += 1 if bracket in _OPENING else -1
            if depth > self.depth:
                raise JsonTooLarge(f"It is nested too deep: {self.depth} levels are the most.")

    def _too_many(self) -> JsonTooLarge:
        return JsonTooLarge(f"It has too many values: {self.values} are the most, with keys counted.")
