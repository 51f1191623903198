"""Text search as JQL and CQL do it: all words, in any form, with phrases and wildcards."""

import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_TERMS = 30

_QUERY_TERM = re.compile(r'"[^"]*"|[\w.*?]+')
_WORD = re.compile(r"\w+(?:\.\w+)*")
_WORD_START = r"(?<!\w)(?<!\w\.)"
_WORD_REST = r"\w*(?:\.\w+)*"
_SUFFIXES = ("ing", "es", "ed", "s", "e")
_SHORTEST_STEM = 3
# Words that searches leave out, as Lucene does.
_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these"
    " they this to was will with".split()
)


class TooManyTerms(ValueError):
    """A search for more words than the stand-ins look for."""


def compile_text_match(query: str, share: float = 1.0) -> Callable[[str], bool]:
    """A function that says whether a text has what the query searches for; OR separates alternatives.

    `share` is the part of a query's terms that a text must have. Raises TooManyTerms.
    """
    alternatives = [_split_terms(part) for part in re.split(r"\s+OR\s+", query)]
    if sum(len(terms) for terms in alternatives) > MAX_TERMS:
        raise TooManyTerms(f"A text search has at most {MAX_TERMS} words.")

    def matches(text: str) -> bool:
        lowered = text.lower()
        return any(_has_enough(lowered, terms, share) for terms in alternatives)

    return matches


def count_matching_terms(query: str, text: str) -> int:
    """How many terms of a query a text has, for the order of results."""
    lowered = text.lower()
    return sum(term.is_in(lowered) for term in _split_terms(query)[:MAX_TERMS])


@dataclass(frozen=True, slots=True)
class _Term:
    """A word, several words of a phrase, or a word with wildcards, which has no stems."""

    pattern: re.Pattern[str]
    stems: tuple[str, ...] = ()

    def is_in(self, text: str) -> bool:
        if any(stem not in text for stem in self.stems):  # far cheaper than the pattern
            return False
        for match in self.pattern.finditer(text):
            if not self.stems or tuple(_stem(word) for word in match.groups()) == self.stems:
                return True
        return False


def _split_terms(query: str) -> list[_Term]:
    terms: list[_Term] = []
    for match in _QUERY_TERM.finditer(query.lower()):
        term = match[0]
        if term in _STOP_WORDS:
            continue
        if "*" in term or "?" in term:
            terms.append(_wildcard_term(term.strip('"')))
            continue
        stems = tuple(_stem(word) for word in _WORD.findall(term))
        if stems:
            words = r"\W+".join(f"({re.escape(stem)}{_WORD_REST})" for stem in stems)
            terms.append(_Term(re.compile(_WORD_START + words), stems))
    return terms


def _wildcard_term(term: str) -> _Term:
    first, *others = (re.escape(part).replace(r"\?", r"\w") for part in re.split(r"\*+", term))
    pattern = first
    for part in others[:-1]:
        # Atomic, as in fnmatch: a term with many wildcards is not tried in all ways.
        pattern += rf"(?>[\w.]*?{part})"
    if others:
        pattern += rf"[\w.]*{others[-1]}"
    return _Term(re.compile(rf"{_WORD_START}{pattern}(?!\w)"))


def _has_enough(text: str, terms: list[_Term], share: float) -> bool:
    count = sum(term.is_in(text) for term in terms)
    return count > 0 and count >= len(terms) * share


def _stem(word: str) -> str:
    """The word without its ending, so that "fails" and "failing" are one."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST_STEM:
            return word.removesuffix(suffix)
    return word
