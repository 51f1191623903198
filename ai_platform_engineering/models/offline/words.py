"""Words of a text: light stems, groups of synonyms, and how well a text fits what is offered."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import sqrt

from ai_platform_engineering.models.offline.lexicon import (
    AMBIGUOUS_WORDS,
    GENERIC_WORDS,
    PHRASES,
    STOP_WORDS,
    SYNONYMS,
)

_PHRASE = re.compile(
    r"\b(?:" + "|".join(re.escape(phrase) for phrase in sorted(PHRASES, key=len, reverse=True)) + r")\b"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]{1,2})?")
_LONGEST_WORD = 40
_BY_SYNONYM = 0.55  # of a word's weight, when only a synonym of it is found
_GENERIC, _AMBIGUOUS = 0.3, 0.5


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """The word without its commonest endings; both sides of a comparison go through here, so it need not be a real word."""
    if len(word) <= 3:
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "ches", "shes", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            word = _undoubled(word[: -len(ending)])
            break
    if word.endswith("e") and len(word) > 4:
        return word[:-1]
    return word


def _undoubled(word: str) -> str:
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        return word[:-1]
    return word


def plain_words(text: str) -> list[str]:
    """The words as written, in lower case; names such as `dnsLookup` and `dns_lookup` fall apart."""
    lower = _PHRASE.sub(lambda found: PHRASES[found[0]], _CAMEL.sub(" ", text).lower().replace("’", "'"))
    return [word for word in _WORD.findall(lower) if len(word) <= _LONGEST_WORD]


def stems(text: str) -> list[str]:
    """The stems of the words that say something, in order."""
    return [stem(word) for word in plain_words(text) if word not in STOP_WORDS]


@cache
def _groups() -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for group, words in SYNONYMS.items():
        for word in words.split():
            found.setdefault(stem(word), set()).add(group)
    return {word: frozenset(groups) for word, groups in found.items()}


def groups_of(word: str) -> frozenset[str]:
    """The groups of synonyms that a stem belongs to."""
    return _groups().get(word, frozenset())


def akin(one: str, other: str) -> bool:
    """Two stems that are the same word or synonyms."""
    return one == other or bool(groups_of(one) & groups_of(other))


_GENERIC_STEMS = frozenset(stem(word) for word in GENERIC_WORDS)
_AMBIGUOUS_STEMS = frozenset(stem(word) for word in AMBIGUOUS_WORDS)


def is_generic(word: str) -> bool:
    return word in _GENERIC_STEMS


def _share(word: str) -> float:
    if word in _GENERIC_STEMS:
        return _GENERIC
    if word in _AMBIGUOUS_STEMS:
        return _AMBIGUOUS
    return 1.0


@dataclass(frozen=True, slots=True)
class ProfileField:
    """One text of something offered: the name of a tool counts more than its description."""

    weight: float
    words: frozenset[str]
    groups: frozenset[str]

    @classmethod
    def of(cls, weight: float, texts: Iterable[str], most: int = 4000) -> "ProfileField":
        words = frozenset(word for text in texts for word in stems(text[:most]))
        return cls(weight, words, frozenset(group for word in words for group in groups_of(word)))

    def match(self, word: str) -> float:
        if word in self.words:
            return self.weight
        if groups_of(word) & self.groups:
            return self.weight * _BY_SYNONYM
        return 0.0


Profile = tuple[ProfileField, ...]


def match(profile: Profile, word: str) -> float:
    return max((field.match(word) for field in profile), default=0.0)


@dataclass(frozen=True, slots=True)
class FitScore:
    """How well words fit something: `plain` for itself, `rank` beside the others, where a word that fits many decides little."""

    plain: float = 0.0
    rank: float = 0.0


def scores(profiles: Sequence[Profile], words: Mapping[str, float]) -> list[FitScore]:
    """How well weighted words fit each profile."""
    total = [FitScore()] * len(profiles)
    for word, weight in words.items():
        fits = [match(profile, word) * weight * _share(word) for profile in profiles]
        matched = sum(fit > 0 for fit in fits)
        if matched:
            total = [
                FitScore(one.plain + fit, one.rank + fit / sqrt(matched))
                for one, fit in zip(total, fits, strict=True)
            ]
    return total
