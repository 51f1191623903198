"""Arguments that are words of the request: one of the listed choices, a yes or no, a count, a name, a search text."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from ai_platform_engineering.models.offline.entities import is_label
from ai_platform_engineering.models.offline.lexicon import (
    CHANGES,
    CLAUSE_STARTS,
    GREETINGS,
    NEGATIONS,
    NOUNS_AFTER,
    PRODUCTS,
    SERVICES,
    STOP_WORDS,
    SYNONYMS,
    VALUE_WORDS,
    word_set,
)
from ai_platform_engineering.models.offline.schemas import ArgumentSlot
from ai_platform_engineering.models.offline.words import akin, groups_of, is_generic, plain_words, stem

_TOKEN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_./-]{0,98}[A-Za-z0-9_])?")
_PREPOSITIONS = word_set("in of for on at from named called about to with")
_PLACES = word_set("on of for at to from host server machine node against")
_LINKS = word_set("named called is")
_CAPITALS = re.compile(r"\b[A-Z]{1,10}\b")
_SEARCH_FOR = re.compile(
    r"(?:search|find|look|lookup|query|ask)\b[^\n]{0,200}?\b(?:for|about|on)\s(.+)", re.IGNORECASE
)
_SEARCH = re.compile(r"(?:search|find|look up|lookup|query)\s(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WordToken:
    """A word as it was written."""

    text: str
    start: int

    @property
    def stem(self) -> str:
        return stem(self.text.lower())


@dataclass(frozen=True, slots=True)
class ArgumentValue:
    """A value for an argument, where it was found, and how sure that is."""

    value: Any
    start: int
    sure: float


@lru_cache(maxsize=64)
def tokens(text: str) -> tuple[WordToken, ...]:
    return tuple(WordToken(found[0], found.start()) for found in _TOKEN.finditer(text))


def chosen(slot: ArgumentSlot, text: str) -> list[ArgumentValue]:
    """The listed choices that the text names, or means."""
    options = slot.options or _described(slot)
    words = tokens(text)
    found = [
        ArgumentValue(option, word.start, 1.0)
        for option in options
        for word in words
        if _names(str(option), word, words, slot)
    ]
    if not found:
        said = plain_words(text)
        found = [ArgumentValue(option, 0, 0.8) for option in options if _means(str(option), said)]
    return list({str(value.value): value for value in sorted(found, key=lambda value: value.start)}.values())


def _described(slot: ArgumentSlot) -> tuple[str, ...]:
    """Choices that only the description lists: "A, AAAA, MX or TXT"."""
    listed = tuple(dict.fromkeys(_CAPITALS.findall(slot.description)))
    if slot.type == "string" and not slot.kinds and not slot.is_free_text and len(listed) >= 3:
        return listed
    return ()


def _names(option: str, word: WordToken, words: Sequence[WordToken], slot: ArgumentSlot) -> bool:
    if word.text.lower() != option.lower():
        return False
    at = words.index(word)
    # "A and MX records": the word for the argument may stand after the whole list.
    listed = {str(one).lower() for one in slot.options} | {"and", "or"}
    after = next((token for token in words[at + 1 :] if token.text.lower() not in listed), None)
    before = words[at - 1] if at else None
    if {token.stem for token in (before, after) if token} & set(slot.words):
        return True
    if len(option) == 1 or option.lower() in STOP_WORDS:
        return False
    return len(option) > 2 or word.text == option


def _means(option: str, said: Sequence[str]) -> bool:
    words = plain_words(option)
    if len(words) > 1:
        return any(list(said[at : at + len(words)]) == words for at in range(len(said)))
    meant = {stem(word) for word in VALUE_WORDS.get(option.lower(), "").split()} | (
        {stem(option.lower())} if len(option) > 3 else set()
    )
    return bool(meant & {stem(word) for word in said if word not in STOP_WORDS})


def yes_or_no(slot: ArgumentSlot, text: str) -> bool | None:
    """True when the text names the flag, False when it names it with a "no"; otherwise nothing is known."""
    said = [stem(word) if word not in NEGATIONS else "not" for word in plain_words(text)]
    names = [word for word in slot.things if not is_generic(word)]
    if not names or not all(word in said for word in names):
        return None
    at = said.index(names[0])
    return "not" not in said[max(0, at - 2) : at]


def is_beside(slot: ArgumentSlot, start: int, text: str) -> bool:
    """A number at `start` stands next to a word for the argument: "limit 5", "the first 5", "timeout of 3"."""
    words = tokens(text)
    at = next((index for index, word in enumerate(words) if word.start >= start), len(words))
    before = [word.stem for word in words[max(0, at - 2) : at]]
    after = words[at + 1 : at + 3]
    if any(
        akin(word, name) for word in (*before, *(word.stem for word in after[:1])) for name in slot.things
    ):
        return True
    # "find 5 open issues"
    return "limit" in {group for name in slot.things for group in groups_of(name)} and any(
        word.text.endswith("s") for word in after
    )


def service_port(text: str) -> ArgumentValue | None:
    """The port of a service that is called by its name: "is ssh open on ...?"."""
    for word in tokens(text):
        if (port := SERVICES.get(word.text.lower())) is not None:
            return ArgumentValue(port, word.start, 0.6)
    return None


def short_host(text: str) -> ArgumentValue | None:
    """A host with a short name, known only by its place: "on db01"."""
    for word in _after(text, _PLACES):
        if is_label(word.text) and not word.text.isdigit() and not is_known(word.text):
            return ArgumentValue(word.text, word.start, 0.6)
    return None


def named(
    slot: ArgumentSlot, things: Sequence[str], text: str, taken: Collection[int], known: Collection[str]
) -> ArgumentValue | None:
    """The name of a thing: beside the word for it, after a preposition, or the one word that nothing else explains.

    What stands at a `taken` place serves another argument, and `known` words name arguments or the tool.
    """

    def is_name(word: WordToken) -> bool:
        return word.start not in taken and word.stem not in known and not is_known(word.text)

    words = tokens(text)
    for at, word in enumerate(words):
        if word.stem in things or any(akin(word.stem, thing) for thing in things):
            follow = words[at + 1 : at + 3]
            if len(follow) == 2 and follow[0].text.lower() in _LINKS:
                follow = follow[1:]
            if follow and is_name(follow[0]):
                return ArgumentValue(_whole_name(text, follow[0]), follow[0].start, 0.9)
            if at and not word.text.lower().endswith("s") and is_name(words[at - 1]):
                return ArgumentValue(words[at - 1].text, words[at - 1].start, 0.7)
    if not slot.required:
        return None
    for word in _after(text, _PREPOSITIONS):
        if is_name(word):
            return ArgumentValue(_whole_name(text, word), word.start, 0.6)
    unknown = [word for word in words if is_name(word)]
    if len(unknown) == 1:
        return ArgumentValue(unknown[0].text, unknown[0].start, 0.4)
    return None


def searched(text: str) -> str:
    """What to search for: the request without the order to search."""
    plain = text.strip().rstrip("?!. ")
    for pattern in (_SEARCH_FOR, _SEARCH):
        if found := pattern.match(plain):
            return found[1].strip()
    return plain


def _after(text: str, places: frozenset[str]) -> Iterator[WordToken]:
    words = tokens(text)
    for before, word in pairwise(words):
        if before.text.lower() in places:
            yield word


def _whole_name(text: str, first: WordToken) -> str:
    """The name with the capitalised words that follow it: "New York"."""
    if not first.text[0].isupper():
        return first.text
    more = re.match(r"(?: [A-Z][A-Za-z-]{0,40}){0,3}", text[first.start + len(first.text) :])
    return first.text + (more[0] if more else "")


@cache
def _vocabulary() -> frozenset[str]:
    tables = (*SYNONYMS.values(), *CHANGES.values(), *PRODUCTS.values())
    words = (
        {word for table in tables for word in table.split()}
        | CLAUSE_STARTS
        | PRODUCTS.keys()
        | GREETINGS
        | SERVICES.keys()
        | NOUNS_AFTER
    )
    return frozenset(stem(word) for word in words)


def is_known(word: str) -> bool:
    """A word of the trade or of the language, so hardly anybody's name for a thing."""
    lower = word.lower()
    return lower in STOP_WORDS or stem(lower) in _vocabulary() or is_generic(stem(lower)) or len(lower) < 2
