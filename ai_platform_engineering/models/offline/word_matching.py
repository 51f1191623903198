"""Word matching: light stems, groups of synonyms, and scores of how well words fit a tool or an agent."""

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

_LONGEST_PHRASE_FIRST = sorted(PHRASES, key=len, reverse=True)
_PHRASE = re.compile(r"\b(?:" + "|".join(map(re.escape, _LONGEST_PHRASE_FIRST)) + r")\b")
_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]{1,2})?")
_MAX_WORD_LENGTH = 40
_SYNONYM_SHARE = 0.55  # of a word's weight, when only a synonym of it is found
_GENERIC_SHARE = 0.3
_AMBIGUOUS_SHARE = 0.5


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """The word without its commonest endings.

    Both sides of a comparison go through here, so the stem need not be a real word.
    """
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
            word = _remove_doubled_consonant(word[: -len(ending)])
            break
    if word.endswith("e") and len(word) > 4:
        return word[:-1]
    return word


def _remove_doubled_consonant(word: str) -> str:
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        return word[:-1]
    return word


def split_words(text: str) -> list[str]:
    """The words as written, in lower case; names such as `dnsLookup` and `dns_lookup` fall apart."""
    lower = _CAMEL_CASE_BOUNDARY.sub(" ", text).lower().replace("’", "'")
    joined_phrases = _PHRASE.sub(lambda phrase: PHRASES[phrase[0]], lower)
    return [word for word in _WORD.findall(joined_phrases) if len(word) <= _MAX_WORD_LENGTH]


def stem_words(text: str) -> list[str]:
    """The stems of all words of the text that are not stop words, in order."""
    return [stem(word) for word in split_words(text) if word not in STOP_WORDS]


@cache
def _synonym_groups_by_stem() -> Mapping[str, frozenset[str]]:
    groups_by_stem: dict[str, set[str]] = {}
    for group, words in SYNONYMS.items():
        for word in words.split():
            groups_by_stem.setdefault(stem(word), set()).add(group)
    return {word: frozenset(groups) for word, groups in groups_by_stem.items()}


def synonym_groups(word: str) -> frozenset[str]:
    """The groups of synonyms that a stem belongs to."""
    return _synonym_groups_by_stem().get(word, frozenset())


def are_synonyms(first: str, second: str) -> bool:
    """Whether two stems are the same word or share a group of synonyms."""
    return first == second or bool(synonym_groups(first) & synonym_groups(second))


_GENERIC_STEMS = frozenset(map(stem, GENERIC_WORDS))
_AMBIGUOUS_STEMS = frozenset(map(stem, AMBIGUOUS_WORDS))


def is_generic(word: str) -> bool:
    """Whether the stem fits nearly every tool."""
    return word in _GENERIC_STEMS


def _weight_share(word: str) -> float:
    if word in _GENERIC_STEMS:
        return _GENERIC_SHARE
    if word in _AMBIGUOUS_STEMS:
        return _AMBIGUOUS_SHARE
    return 1.0


@dataclass(frozen=True, slots=True)
class ProfileField:
    """The words of one text about a tool or an agent: its name counts more than its description."""

    weight: float
    words: frozenset[str]
    groups: frozenset[str]

    @classmethod
    def from_texts(cls, weight: float, texts: Iterable[str], max_chars: int = 4000) -> "ProfileField":
        words = set[str]()
        groups = set[str]()
        for text in texts:
            words.update(stem_words(text[:max_chars]))
        for word in words:
            groups.update(synonym_groups(word))
        return cls(weight, frozenset(words), frozenset(groups))

    def match(self, word: str) -> float:
        if word in self.words:
            return self.weight
        if synonym_groups(word) & self.groups:
            return self.weight * _SYNONYM_SHARE
        return 0.0


Profile = tuple[ProfileField, ...]


def match_word(profile: Profile, word: str) -> float:
    """The weight of the best field of the profile that has the word."""
    return max((field.match(word) for field in profile), default=0.0)


@dataclass(frozen=True, slots=True)
class FitScore:
    """How well words fit a profile.

    `absolute` looks at this profile alone. `rank` compares profiles: a word that fits many decides little.
    """

    absolute: float = 0.0
    rank: float = 0.0


def score_profiles(profiles: Sequence[Profile], word_weights: Mapping[str, float]) -> list[FitScore]:
    """How well weighted words fit each profile."""
    totals = [FitScore()] * len(profiles)
    for word, weight in word_weights.items():
        fits = [match_word(profile, word) * weight * _weight_share(word) for profile in profiles]
        match_count = sum(fit > 0 for fit in fits)
        if not match_count:
            continue
        for index, fit in enumerate(fits):
            total = totals[index]
            totals[index] = FitScore(total.absolute + fit, total.rank + fit / sqrt(match_count))
    return totals
