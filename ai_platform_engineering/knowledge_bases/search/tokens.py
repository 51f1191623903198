"""What of a text can be looked for beside its plain words: identifiers as a whole, their parts, and pairs of characters where no
spaces separate words."""

import re
from collections.abc import Iterator

MAX_QUERY = 2_000  # characters
MAX_TERMS = 64

# Possessive, and only from where a word begins: plain words, nearly all of a text, cost one look.
_JOINED = re.compile(r"(?<![^\W_])[^\W_]++(?:[-_./:@+]++[^\W_]++)+")
_WITHIN = re.compile(r"[/:@+]+")
_PUNCTUATION = re.compile(r"[-_.]")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
# Scripts that are written without spaces: Chinese, Japanese, Thai.
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_WORD = re.compile(r"[^\W_]+")
_LONGEST = 120

STOP_WORDS = frozenset(
    """a about after again all also am an and any are aren as at be because been before being both but by can cannot could couldn d did
    didn do does doesn doing don during each few for from further get gets getting had has hasn have haven having he her here hers him
    his how i if in into is isn it its itself just ll m me more most my myself no nor not now of on once only or other our ours out over
    own please re s same shall she should shouldn so some such t than that the their theirs them then there these they this those
    through to too under until up us ve very was wasn we were weren what when where which while who whom whose why will with won would
    wouldn you your yours yourself""".split()
)


def extract_identifiers(text: str) -> str:
    """The identifiers of a text in lower case, separated by spaces: `kube-apiserver`, `v1.2.3`, `max_calls`."""
    return " ".join(_names(text))


def split_camel_case(text: str) -> str:
    """The words that `CrashLoopBackOff` and the like are made of."""
    return " ".join(part for token in _humped(text) for part in _HUMPS.findall(token))


def parse_query(query: str) -> tuple[list[str], list[str]]:
    """The words of a query that say something (all of them when none does), and its identifiers; each once, in order."""
    query = query[:MAX_QUERY]
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(f"{query} {split_camel_case(query)}")))
    telling = [word for word in words if word not in STOP_WORDS]
    return (telling or words)[:MAX_TERMS], list(dict.fromkeys(_names(query)))[:MAX_TERMS]


def _names(text: str) -> Iterator[str]:
    for found in _JOINED.findall(text):
        yield from _pieces(found.lower())
    for run in _UNSPACED.findall(text):
        yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))


def _pieces(whole: str) -> Iterator[str]:
    """The whole of it, and what stands between slashes, colons and the like when that is an identifier itself."""
    if len(whole) <= _LONGEST:
        yield whole
    for piece in _WITHIN.split(whole):
        if piece != whole and len(piece) <= _LONGEST and _PUNCTUATION.search(piece):
            yield piece


def _humped(text: str) -> Iterator[str]:
    """The words with a capital letter inside."""
    end = 0
    for hump in _HUMP.finditer(text):
        start = hump.start()
        if start < end:
            continue
        while start > end and text[start - 1].isalnum():
            start -= 1
        if word := _WORD.match(text, start):
            end = word.end()
            yield word.group()
