"""Tokens of a text beside its plain words: identifiers as a whole, their parts, and pairs of characters where
no spaces separate words."""

import re
from collections.abc import Iterator

MAX_QUERY = 2_000  # characters
MAX_TERMS = 64

# Possessive quantifiers, and only from the start of a word: plain words, nearly all of a text, fail at once.
_IDENTIFIER = re.compile(r"(?<![^\W_])[^\W_]++(?:[-_./:@+]++[^\W_]++)+")
_SEPARATORS = re.compile(r"[/:@+]+")
_PUNCTUATION = re.compile(r"[-_.]")
_CAMEL_CASE_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_CAMEL_CASE = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
# Scripts that are written without spaces: Chinese, Japanese, Thai.
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_WORD = re.compile(r"[^\W_]+")
_MAX_IDENTIFIER_CHARS = 120

STOP_WORDS = frozenset(
    """a about after again all also am an and any are aren as at be because been before being both but by can
    cannot could couldn d did didn do does doesn doing don during each few for from further get gets
    getting had has hasn have haven having he her here hers him his how i if in into is isn it its
    itself just ll m me more most my myself no nor not now of on once only or other our ours out over
    own please re s same shall she should shouldn so some such t than that the their theirs them then
    there these they this those through to too under until up us ve very was wasn we were weren what
    when where which while who whom whose why will with won would wouldn you your yours yourself""".split()
)


def extract_identifiers(text: str) -> str:
    """The identifiers of a text in lower case, separated by spaces: `kube-apiserver`, `v1.2.3`,
    `max_calls`."""
    return " ".join(_find_identifiers(text))


def split_camel_case(text: str) -> str:
    """The words that `CrashLoopBackOff` and the like are made of."""
    parts: list[str] = []
    for word in find_camel_case_words(text):
        parts += _CAMEL_CASE_PART.findall(word)
    return " ".join(parts)


def parse_query(query: str) -> tuple[list[str], list[str]]:
    """The words of a query without stop words (all when it has no others), and its identifiers; each once, in
    order."""
    query = query[:MAX_QUERY]
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(f"{query} {split_camel_case(query)}")))
    significant = [word for word in words if word not in STOP_WORDS]
    identifiers = list(dict.fromkeys(_find_identifiers(query)))
    return (significant or words)[:MAX_TERMS], identifiers[:MAX_TERMS]


def find_punctuated_identifiers(text: str) -> Iterator[str]:
    """The identifiers with punctuation inside, in lower case, and their parts that are such themselves."""
    for identifier in _IDENTIFIER.findall(text):
        yield from _split_identifier(identifier.lower())


def _find_identifiers(text: str) -> Iterator[str]:
    yield from find_punctuated_identifiers(text)
    for run in _UNSPACED.findall(text):
        for start in range(max(1, len(run) - 1)):
            yield run[start : start + 2]


def _split_identifier(identifier: str) -> Iterator[str]:
    """The identifier, and its parts between slashes, colons and the like that are identifiers themselves."""
    if len(identifier) <= _MAX_IDENTIFIER_CHARS:
        yield identifier
    for part in _SEPARATORS.split(identifier):
        if part != identifier and len(part) <= _MAX_IDENTIFIER_CHARS and _PUNCTUATION.search(part):
            yield part


def find_camel_case_words(text: str) -> Iterator[str]:
    """The words with a capital letter inside."""
    end = 0
    for match in _CAMEL_CASE.finditer(text):
        start = match.start()
        if start < end:
            continue
        while start > end and text[start - 1].isalnum():
            start -= 1
        word = _WORD.match(text, start)
        if word is not None:
            end = word.end()
            yield word.group()
