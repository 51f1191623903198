"""A small notation for sentences that compiles to regular expressions, so that rules about texts can be read.

`send ..40 <secret> to` is the word, at most 40 characters of the same sentence, a word of the class, and the
word. `a|b` is one of two, `<class>?` stands there up to four times or not at all.
"""

import re
from collections.abc import Mapping

_BETWEEN_WORDS = r"[\s,]{1,6}"


def word_class(text: str, endings: str = "") -> str:
    """A regular expression for a class of words, each with an ending or without; `*` at the end of a word
    is any ending, `_` is a space."""
    optional_ending = ""
    if endings:
        optional_ending = f"(?:{'|'.join(endings.split())})?"
    patterns: list[str] = []
    for word in text.split():
        ending = r"\w*" if word.endswith("*") else optional_ending
        patterns.append(_escape_word(word.rstrip("*")) + ending)
    return "(?:" + "|".join(patterns) + ")"


def compile_phrase(text: str, classes: Mapping[str, str]) -> re.Pattern[str]:
    """The regular expression of a phrase in this notation."""
    pattern = ""
    needs_separator = False
    for token in text.split():
        if token.startswith(".."):
            pattern += rf"(?:[^.!?\n]|\.(?=\S)){{0,{int(token[2:])}}}?"
            needs_separator = False
            continue
        token_pattern = _compile_token(token.rstrip("?"), classes)
        if needs_separator:
            pattern += _BETWEEN_WORDS
        needs_separator = not token.endswith("?")
        if needs_separator:
            pattern += token_pattern
        else:
            pattern += rf"(?:{token_pattern}{_BETWEEN_WORDS}){{0,4}}"
    return re.compile(pattern, re.IGNORECASE)


def _compile_token(token: str, classes: Mapping[str, str]) -> str:
    alternatives: list[str] = []
    for word in token.split("|"):
        if word.startswith("<"):
            alternatives.append(classes[word[1:-1]])
        else:
            alternatives.append(_escape_word(word))
    return rf"(?<!\w)(?:{'|'.join(alternatives)})(?!\w)"


def _escape_word(word: str) -> str:
    return re.escape(word).replace("_", r"[\s-]+")
