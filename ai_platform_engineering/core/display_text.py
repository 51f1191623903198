"""Text as people see it: characters that nobody can see are made visible before a decision, or left out.

A person decides on forms and approvals, so nothing in them may hide: `reveal` writes `⟨U+202E⟩` in the place
of such a character. An answer may hold any language and emoji; `remove_controls` takes from it only what
reorders the text or controls a terminal.
"""

import json
import re
import unicodedata
from typing import Any

# Control characters, and those that override or isolate the direction of text.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# Format, control, private, unassigned and surrogate characters; separators of lines, paragraphs and words.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Letters, marks and symbols that are drawn as nothing: fillers, vowels without a shape, variation selectors.
_BLANK = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_VISIBLE_BREAKS = " \n\t"
_OPENING = "⟨"  # it opens the name of a hidden character, so a text that holds one has it named, too


def is_hidden(character: str) -> bool:
    """Whether the character cannot be seen, looks like a space, or changes how others are drawn."""
    if character in _VISIBLE_BREAKS:
        return False
    if unicodedata.category(character) in _HIDDEN_CATEGORIES:
        return True
    return _BLANK.match(character) is not None


def reveal(text: str) -> str:
    """The text with the name of each hidden character in its place; different texts stay different."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_reveal_character, text))


def reveal_line(text: str) -> str:
    """The text on one line, with the name of each hidden character in its place."""
    return " ".join(reveal(text).split())


def reveal_json(value: Any, indent: int | None = None) -> str:
    """JSON with each hidden character escaped; reading it gives the same value."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(map(_escape_character, text))


def remove_controls(text: str, replacement: str = "") -> str:
    """The text without characters that control a terminal or override its direction; line breaks stay.

    They go one by one, so an escape sequence that is split between two texts is harmless, too.
    """
    return _CONTROLS.sub(replacement, text)


def _reveal_character(character: str) -> str:
    if character == _OPENING or is_hidden(character):
        return f"⟨U+{ord(character):04X}⟩"
    return character


def _escape_character(character: str) -> str:
    if not is_hidden(character):
        return character
    return json.dumps(character)[1:-1].replace("\x7f", "\\u007f")
