"""Text search as JQL and CQL do it: all words, in any form, with phrases and wildcards."""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

_WORD = re.compile(r"\w+(?:\.\w+)*")
_QUERY_TERM = re.compile(r'"[^"]*"|[\w.*?]+')
_SUFFIXES = ("ing", "es", "ed", "s", "e")
_SHORTEST_STEM = 3
# Words that searches leave out, as Lucene does.
_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these"
    " they this to was will with".split()
)


def compile_text_match(query: str, share: float = 1.0) -> Callable[[str], bool]:
    """A function that says whether a text has what the query searches for; OR separates alternatives.

    `share` is the part of a query's terms that a text must have.
    """
    alternatives = [_split_terms(part) for part in re.split(r"\s+OR\s+", query)]

    def matches(text: str) -> bool:
        words = _WORD.findall(text.lower())
        stems = [_stem(word) for word in words]
        return any(_has_enough(words, stems, terms, share) for terms in alternatives)

    return matches


def count_matching_terms(query: str, text: str) -> int:
    """How many terms of a query a text has, for the order of results."""
    words = _WORD.findall(text.lower())
    stems = [_stem(word) for word in words]
    return sum(_has_term(words, stems, term) for term in _split_terms(query))


def _split_terms(query: str) -> list[list[str]]:
    """Terms of stemmed words; a phrase is a term of several words."""
    terms: list[list[str]] = []
    for match in _QUERY_TERM.finditer(query.lower()):
        term = match[0]
        if term in _STOP_WORDS:
            continue
        if "*" in term or "?" in term:
            terms.append([term.strip('"')])
            continue
        words = [_stem(word) for word in _WORD.findall(term)]
        if words:
            terms.append(words)
    return terms


def _has_enough(words: Sequence[str], stems: Sequence[str], terms: list[list[str]], share: float) -> bool:
    count = sum(_has_term(words, stems, term) for term in terms)
    return count > 0 and count >= len(terms) * share


def _has_term(words: Sequence[str], stems: Sequence[str], term: list[str]) -> bool:
    if len(term) > 1:
        starts = range(len(stems) - len(term) + 1)
        return any(list(stems[start : start + len(term)]) == term for start in starts)
    if "*" in term[0] or "?" in term[0]:
        return any(fnmatchcase(word, term[0]) for word in words)
    return term[0] in stems


def _stem(word: str) -> str:
    """The word without its ending, so that "fails" and "failing" are one."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST_STEM:
            return word.removesuffix(suffix)
    return word
