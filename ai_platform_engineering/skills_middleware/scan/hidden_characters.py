"""Characters that people do not see and a model reads: a text may say one thing to one and another to the
other."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

_ZERO_WIDTH = "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_JOINERS = "\u200c\u200d"
_TAGS = "\U000e0000-\U000e007f"
_HIDDEN = re.compile(
    rf"(?P<zero>[{_ZERO_WIDTH}])|(?P<bidi>[{_BIDI}])|(?P<selectors>[{_SELECTORS}]{{2,}})|(?P<joiner>[{_JOINERS}])|(?P<tags>[{_TAGS}]+)"
)
# A flag of a region, such as Scotland's, is a black flag with a few tags.
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
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
    """Every place with hidden characters. Those that emoji and scripts other than Latin need are not
    hidden."""
    if text.isascii():
        return
    flags = [match.span() for match in _FLAG.finditer(text)]
    for match in _HIDDEN.finditer(text):
        kind, at = match.lastgroup or "zero", match.start()
        if kind == "joiner" and _joins(text, at):
            continue
        if kind == "tags" and any(first < at < last for first, last in flags):
            continue
        yield HiddenCharacter(at, f"{_NAMES[kind]} (U+{ord(text[at]):04X})")


def _joins(text: str, at: int) -> bool:
    """Between two emoji, or after a letter of a script that has no case."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if not before or not after:
        return False
    if text[at] == "\u200d" and unicodedata.category(after) == "So":
        return unicodedata.category(before) in ("So", "Sk") or before == "\ufe0f"
    return unicodedata.category(before) in ("Lo", "Mn", "Mc") and unicodedata.category(after) in (
        "Lo",
        "Mn",
        "Mc",
    )
