"""Finds characters that people do not see and a model reads: with them a text says different things to
both."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

_ZERO_WIDTH = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb"
)
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_JOINERS = "\u200c\u200d"
_TAGS = "\U000e0000-\U000e007f"
_HIDDEN = re.compile(
    rf"(?P<zero>[{_ZERO_WIDTH}])|(?P<bidi>[{_BIDI}])|(?P<selectors>[{_SELECTORS}]{{2,}})"
    rf"|(?P<joiner>[{_JOINERS}])|(?P<tags>[{_TAGS}]+)"
)
# A flag of a region, such as Scotland's, is a black flag with a few tags.
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_CASELESS_CATEGORIES = {"Lo", "Mn", "Mc"}
_NAMES = {
    "zero": "a character without width",
    "bidi": "a character that turns the direction of text",
    "selectors": "a run of variation selectors",
    "joiner": "a joiner between characters that are not joined",
    "tags": "tag characters, which spell invisible text",
}


@dataclass(frozen=True, slots=True)
class HiddenCharacter:
    position: int
    description: str


def find_hidden_characters(text: str) -> Iterator[HiddenCharacter]:
    """The hidden characters of a text; those that emoji and scripts other than Latin need do not count."""
    if text.isascii():
        return
    flags = [match.span() for match in _FLAG.finditer(text)]
    for match in _HIDDEN.finditer(text):
        kind = match.lastgroup or "zero"
        position = match.start()
        if kind == "joiner" and _joins(text, position):
            continue
        if kind == "tags" and any(first < position < last for first, last in flags):
            continue
        yield HiddenCharacter(position, f"{_NAMES[kind]} (U+{ord(text[position]):04X})")


def _joins(text: str, position: int) -> bool:
    """Whether a joiner stands between two emoji, or between letters of a script that has no case."""
    before = text[position - 1 : position]
    after = text[position + 1 : position + 2]
    if not before or not after:
        return False
    if text[position] == "\u200d" and unicodedata.category(after) == "So":
        return unicodedata.category(before) in ("So", "Sk") or before == "\ufe0f"
    categories = {unicodedata.category(before), unicodedata.category(after)}
    return categories <= _CASELESS_CATEGORIES
