"""Exact terms: the identifiers, error codes and file names of a query, which a chunk holds or does not."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ai_platform_engineering.knowledge_bases.search.tokens import (
    MAX_QUERY,
    extract_identifiers,
    find_camel_case_words,
    find_punctuated_identifiers,
    split_camel_case,
)

MAX_EXACT_TERMS = 4  # of a query: each costs a look-up
# A term that more chunks hold says little: `read-only` is written like `kube-system`.
MAX_HOLDERS = 20

_MIN_CHARS = 4  # `e.g` is no identifier
_MIN_CAMEL_CASE_PARTS = 3  # two have `GitHub` and other names that are in every document about it
_ERROR_CODE = re.compile(r"\b[A-Za-z]+\d{3,}\b")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class ExactTerm:
    """An identifier in lower case. `punctuated`: it has more than letters and digits."""

    text: str
    punctuated: bool


def find_exact_terms(query: str) -> list[ExactTerm]:
    """The first identifiers of a query, each once."""
    query = query[:MAX_QUERY]
    terms: list[ExactTerm] = []
    for identifier in find_punctuated_identifiers(query):
        if len(identifier) >= _MIN_CHARS:
            terms.append(ExactTerm(identifier, punctuated=True))
    for word in find_camel_case_words(query):
        if len(split_camel_case(word).split()) >= _MIN_CAMEL_CASE_PARTS:
            terms.append(ExactTerm(word.lower(), punctuated=False))
    for word in _ERROR_CODE.findall(query):
        terms.append(ExactTerm(word.lower(), punctuated=False))
    return list(dict.fromkeys(terms))[:MAX_EXACT_TERMS]


def find_held_terms(terms: Collection[ExactTerm], text: str) -> list[ExactTerm]:
    """The terms that a text holds as a whole, and not as a part of a longer identifier."""
    lowered = text.lower()
    present = [term for term in terms if term.text in lowered]
    if not present:
        return []
    tokens = {*extract_identifiers(text).split(), *_WORD.findall(lowered)}
    return [term for term in present if term.text in tokens]


def weigh_holders(holders: Mapping[ExactTerm, Collection[int]]) -> dict[int, float]:
    """The share of the terms that each chunk holds; terms of too many chunks do not count."""
    weights: dict[int, float] = {}
    for chunks in holders.values():
        if len(chunks) <= MAX_HOLDERS:
            for chunk in chunks:
                weights[chunk] = weights.get(chunk, 0.0) + 1 / len(holders)
    return weights
