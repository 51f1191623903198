"""A small notation for sentences, so that rules about texts can be read: words, `<classes>` of words, and
gaps.

`send ..40 <secret> to` is the word, at most 40 characters of the same sentence, a word of the class, and the word. `a|b` is one of two,
`<class>?` stands there up to four times or not at all.
"""

import re
from collections.abc import Mapping

_BETWEEN = r"[\s,]{1,6}"


def word_class(text: str, endings: str = "") -> str:
    """A class of words, each with an ending or without; a word that ends with `*` goes on as it likes, `_`
    is a space."""
    tails = f"(?:{'|'.join(endings.split())})?" if endings else ""
    found = [
        re.escape(word.rstrip("*")).replace("_", r"[\s-]+") + (r"\w*" if word.endswith("*") else tails)
        for word in text.split()
    ]
    return "(?:" + "|".join(found) + ")"


def compile_phrase(text: str, classes: Mapping[str, str]) -> re.Pattern[str]:
    pattern, follows = "", False
    for token in text.split():
        if token.startswith(".."):
            pattern += rf"(?:[^.!?\n]|\.(?=\S)){{0,{int(token[2:])}}}?"
            follows = False
            continue
        piece = _piece(token.rstrip("?"), classes)
        pattern += _BETWEEN if follows else ""
        follows = not token.endswith("?")
        pattern += piece if follows else rf"(?:{piece}{_BETWEEN}){{0,4}}"
    return re.compile(pattern, re.IGNORECASE)


def _piece(token: str, classes: Mapping[str, str]) -> str:
    inner = "|".join(
        classes[one[1:-1]] if one.startswith("<") else re.escape(one).replace("_", r"[\s-]+")
        for one in token.split("|")
    )
    return rf"(?<!\w)(?:{inner})(?!\w)"
