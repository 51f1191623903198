"""Clauses of a question: where one request ends and the next begins."""

import re
from collections.abc import Iterator

from ai_platform_engineering.models.offline.entities import find_quotes
from ai_platform_engineering.models.offline.lexicon import (
    ALSO_READ,
    CHANGES,
    CLAUSE_STARTS,
    DETERMINERS,
    POLITE,
)
from ai_platform_engineering.models.offline.word_matching import split_words

# A hard separator always ends a clause, a soft one only when a new clause begins after it.
_SEPARATOR = re.compile(
    # Tried once for each run of marks, not once for each mark.
    r"(?P<hard>\n|;|(?<![?!])[?!]++(?=\s|$)|(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\betc)(?<!\.)\.++(?=\s|$)"
    r"|(?:(?<=\s)|^)(?:\d{1,2}[.)]|[-*•])(?= ))"
    r"|(?P<soft>,? (?:and then|and also|and|then|as well as|plus|&) |, )",
    re.IGNORECASE,
)
_CHANGE_VERBS = frozenset(" ".join(CHANGES.values()).split())
_TWO_SUBJECT_WORDS = ("between", "both")


def split_clauses(text: str) -> list[str]:
    """The clauses that ask something of their own; never inside quotes, addresses or "between a and b"."""
    clauses = list[str]()
    start = 0
    for separator in _iterate_separators(text):
        if separator["soft"] and not _separates_clauses(text, start, separator):
            continue
        end = separator.start()
        if separator[0][0] in "?!":
            end = separator.end()
        clauses.append(text[start:end])
        start = separator.end()
    clauses.append(text[start:])
    return list(filter(None, map(_trim, clauses)))


def split_enumeration(text: str) -> list[str]:
    """The parts of an enumeration: what stands between commas and "and"."""
    parts = list[str]()
    start = 0
    for separator in _iterate_separators(text):
        if separator["soft"] and not _expects_second_subject(text[start : separator.start()]):
            parts.append(text[start : separator.start()])
            start = separator.end()
    parts.append(text[start:])
    return list(filter(None, map(_trim, parts)))


def _separates_clauses(text: str, clause_start: int, separator: re.Match[str]) -> bool:
    if _expects_second_subject(text[clause_start : separator.start()]):
        return False
    return _starts_clause(text[separator.end() :])


def _iterate_separators(text: str) -> Iterator[re.Match[str]]:
    """The separators that do not touch a quote."""
    quote_spans = iter([*find_quotes(text), (len(text) + 1, len(text) + 1)])
    span = next(quote_spans)
    for separator in _SEPARATOR.finditer(text):
        while separator.start() >= span[1]:
            span = next(quote_spans)
        if separator.end() <= span[0]:
            yield separator


def _starts_clause(rest: str) -> bool:
    words = list[str]()
    for written_word in rest[:80].split():
        word = written_word.strip(",:").lower().removesuffix("'s")
        if word not in POLITE:
            words.append(word)
    if not words or words[0] not in CLAUSE_STARTS:
        return False
    # A verb of change may be a noun here ("the state and sync history"): only with a determiner it surely is
    # an order.
    is_surely_verb = words[0] not in _CHANGE_VERBS or (words[0] in ALSO_READ and words[0] != "open")
    if is_surely_verb:
        return True
    return len(words) > 1 and words[1] in DETERMINERS


def _expects_second_subject(before: str) -> bool:
    """Whether the "and" after this text joins two subjects: "between a"."""
    words = split_words(before[-200:])
    for word in reversed(words):
        if word == "and":
            return False
        if word in _TWO_SUBJECT_WORDS:
            return True
    return False


def _trim(clause: str) -> str:
    return clause.strip(" \n\t,;:-*•").removesuffix(".").strip()
