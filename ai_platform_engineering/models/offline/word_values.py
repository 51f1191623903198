"""Argument values that are words of a request: one of the listed choices, a flag, a name, a search text."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from ai_platform_engineering.models.offline.argument_slots import ArgumentSlot
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
from ai_platform_engineering.models.offline.word_matching import (
    are_synonyms,
    is_generic,
    split_words,
    stem,
    synonym_groups,
)

_TOKEN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_./-]{0,98}[A-Za-z0-9_])?")
_PREPOSITIONS = word_set("in of for on at from named called about to with")
_HOST_PREPOSITIONS = word_set("on of for at to from host server machine node against")
_LINKING_WORDS = word_set("named called is")
_MORE_CAPITALISED_WORDS = re.compile(r"(?: [A-Z][A-Za-z-]{0,40}){0,3}")
_SEARCH_FOR = re.compile(
    r"(?:search|find|look|lookup|query|ask)\b[^\n]{0,200}?\b(?:for|about|on)\s(.+)", re.IGNORECASE
)
_SEARCH = re.compile(r"(?:search|find|look up|lookup|query)\s(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WordToken:
    """A word as it was written, and where."""

    text: str
    start: int

    @property
    def stem(self) -> str:
        return stem(self.text.lower())


@dataclass(frozen=True, slots=True)
class ArgumentValue:
    """A value for an argument, its place in the text, and how sure it is."""

    value: Any
    start: int
    confidence: float


@lru_cache(maxsize=64)
def tokenize(text: str) -> tuple[WordToken, ...]:
    return tuple(WordToken(match[0], match.start()) for match in _TOKEN.finditer(text))


# --- choices and flags ----------------------------------------------------------------------------


def find_choices(slot: ArgumentSlot, text: str) -> list[ArgumentValue]:
    """The listed choices that the text names, or means."""
    options = slot.options
    values = _find_named_options(slot, options, tokenize(text))
    if not values:
        text_words = split_words(text)
        values = [
            ArgumentValue(option, 0, 0.8) for option in options if _means_option(str(option), text_words)
        ]
    values.sort(key=lambda value: value.start)
    return list({str(value.value): value for value in values}.values())


def _find_named_options(
    slot: ArgumentSlot, options: Sequence[Any], tokens: Sequence[WordToken]
) -> list[ArgumentValue]:
    values = list[ArgumentValue]()
    for option in options:
        for token in tokens:
            if _names_option(str(option), token, tokens, slot):
                values.append(ArgumentValue(option, token.start, 1.0))
    return values


def _names_option(option: str, token: WordToken, tokens: Sequence[WordToken], slot: ArgumentSlot) -> bool:
    if token.text.lower() != option.lower():
        return False
    if _is_beside_slot_name(token, tokens, slot):
        return True
    return len(option) > 1 and option.lower() not in STOP_WORDS


def _is_beside_slot_name(token: WordToken, tokens: Sequence[WordToken], slot: ArgumentSlot) -> bool:
    index = tokens.index(token)
    if index and tokens[index - 1].stem in slot.words:
        return True
    # "A and MX records": the word for the argument may stand after the whole list.
    list_words = {"and", "or"}
    list_words.update(str(option).lower() for option in slot.options)
    for later_token in tokens[index + 1 :]:
        if later_token.text.lower() not in list_words:
            return later_token.stem in slot.words
    return False


def _means_option(option: str, text_words: Sequence[str]) -> bool:
    option_words = split_words(option)
    if len(option_words) > 1:
        return _contains_sequence(text_words, option_words)
    meanings = set(map(stem, VALUE_WORDS.get(option.lower(), "").split()))
    if len(option) > 3:
        meanings.add(stem(option.lower()))
    return any(stem(word) in meanings for word in text_words if word not in STOP_WORDS)


def _contains_sequence(words: Sequence[str], sequence: Sequence[str]) -> bool:
    length = len(sequence)
    return any(list(words[start : start + length]) == sequence for start in range(len(words)))


def read_flag(slot: ArgumentSlot, text: str) -> bool | None:
    """True when the text names the flag, False when it names it with a "no", None when it does not."""
    text_words = list[str]()
    for word in split_words(text):
        text_words.append("not" if word in NEGATIONS else stem(word))
    flag_words = [word for word in slot.subject_words if not is_generic(word)]
    if not flag_words or not set(flag_words) <= set(text_words):
        return None
    index = text_words.index(flag_words[0])
    return "not" not in text_words[max(0, index - 2) : index]


def is_near_slot_name(slot: ArgumentSlot, start: int, text: str) -> bool:
    """Whether the number at `start` stands next to a word for the argument: "limit 5", "timeout of 3"."""
    tokens = tokenize(text)
    index = next((index for index, token in enumerate(tokens) if token.start >= start), len(tokens))
    following = tokens[index + 1 : index + 3]
    for token in (*tokens[max(0, index - 2) : index], *following[:1]):
        if _is_synonym_of_any(token.stem, slot.subject_words):
            return True
    # "find 5 open issues"
    is_limit = any("limit" in synonym_groups(word) for word in slot.subject_words)
    return is_limit and any(token.text.endswith("s") for token in following)


def _is_synonym_of_any(word: str, others: Sequence[str]) -> bool:
    return any(are_synonyms(word, other) for other in others)


# --- names ----------------------------------------------------------------------------------------


def find_service_port(text: str) -> ArgumentValue | None:
    """The port of a service that is called by its name: "is ssh open on ...?"."""
    for token in tokenize(text):
        port = SERVICES.get(token.text.lower())
        if port is not None:
            return ArgumentValue(port, token.start, 0.6)
    return None


def find_short_host(text: str) -> ArgumentValue | None:
    """A host with a short name, known only by its place: "on db01"."""
    for token in _tokens_after(text, _HOST_PREPOSITIONS):
        if is_label(token.text) and not token.text.isdigit() and not is_known_word(token.text):
            return ArgumentValue(token.text, token.start, 0.6)
    return None


def find_name(
    slot: ArgumentSlot,
    subject_words: Sequence[str],
    text: str,
    used_starts: Collection[int],
    slot_words: Collection[str],
) -> ArgumentValue | None:
    """The name of a subject: beside the word for it, after a preposition, or the only unknown word.

    What stands at one of `used_starts` serves another argument, and `slot_words` name arguments.
    """

    def is_name(token: WordToken) -> bool:
        if token.start in used_starts or token.stem in slot_words:
            return False
        return not is_known_word(token.text)

    tokens = tokenize(text)
    for index, token in enumerate(tokens):
        if not _is_synonym_of_any(token.stem, subject_words):
            continue
        following = tokens[index + 1 : index + 3]
        if len(following) == 2 and following[0].text.lower() in _LINKING_WORDS:
            following = following[1:]
        if following and is_name(following[0]):
            return ArgumentValue(_read_whole_name(text, following[0]), following[0].start, 0.9)
        if index and not token.text.lower().endswith("s") and is_name(tokens[index - 1]):
            return ArgumentValue(tokens[index - 1].text, tokens[index - 1].start, 0.7)
    if not slot.required:
        return None
    for token in _tokens_after(text, _PREPOSITIONS):
        if is_name(token):
            return ArgumentValue(_read_whole_name(text, token), token.start, 0.6)
    names = list(filter(is_name, tokens))
    if len(names) == 1:
        return ArgumentValue(names[0].text, names[0].start, 0.4)
    return None


def extract_search_text(text: str) -> str:
    """What to search for: the request without the order to search. A question keeps its mark."""
    request_text = text.strip().rstrip("!. ")
    for pattern in (_SEARCH_FOR, _SEARCH):
        match = pattern.match(request_text.rstrip("?!. "))
        if match:
            return match[1].strip()
    return request_text


def _tokens_after(text: str, words_before: frozenset[str]) -> Iterator[WordToken]:
    for before, token in pairwise(tokenize(text)):
        if before.text.lower() in words_before:
            yield token


def _read_whole_name(text: str, first: WordToken) -> str:
    """The name with the capitalised words that follow it: "New York"."""
    if not first.text[0].isupper():
        return first.text
    rest = text[first.start + len(first.text) :]
    match = _MORE_CAPITALISED_WORDS.match(rest)
    if match:
        return first.text + match[0]
    return first.text


@cache
def _vocabulary() -> frozenset[str]:
    words = set[str]()
    for table in (*SYNONYMS.values(), *CHANGES.values(), *PRODUCTS.values()):
        words.update(table.split())
    words.update(CLAUSE_STARTS, PRODUCTS, GREETINGS, SERVICES, NOUNS_AFTER)
    return frozenset(map(stem, words))


def is_known_word(word: str) -> bool:
    """Whether it is a word of the trade or of the language, so hardly anybody's name for a thing."""
    lower = word.lower()
    if len(lower) < 2 or lower in STOP_WORDS:
        return True
    return stem(lower) in _vocabulary() or is_generic(stem(lower))
