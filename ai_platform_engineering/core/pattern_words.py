"""Regular expressions in words: "lowercase letters and digits", "like ABC-1", "dev, staging or prod".

For people who fill in a form. Only the common kinds are put in words: a set of characters, an example that
matches, a choice of texts.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ai_platform_engineering.core.text_patterns import LONGEST_PATTERN, UnsupportedPattern, matches

_MANY = 10**9  # a repetition without an end
_MAX_EXAMPLE_CHARS = 40
_MAX_CHOICES = 12
_SAMPLE_CHARS = 3  # of a set that may be repeated

_TOKEN = re.compile(
    r"(?P<class>\[(?:\\.|[^\]\\])+\]|\\[dws])|(?P<literal>\\[^A-Za-z0-9]|[^\\\[\](){}|*+?.^$])"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)",
    re.DOTALL,
)
_QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(?:(,)(\d*))?\}")
_RANGE = re.compile(r"\\?(?P<first>.)-\\?(?P<last>.)|\\(?P<escape>[dws])|\\?(?P<single>.)", re.DOTALL)
_QUANTITIES = {"*": (0, _MANY), "+": (1, _MANY), "?": (0, 1)}

_LOWERCASE = frozenset("abcdefghijklmnopqrstuvwxyz")
_UPPERCASE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_ESCAPES = {"d": _DIGITS, "w": _LOWERCASE | _UPPERCASE | _DIGITS | {"_"}, "s": frozenset(" ")}
_NAMES = {
    "-": ("hyphen", "hyphens"),
    "_": ("underscore", "underscores"),
    ".": ("dot", "dots"),
    "/": ("slash", "slashes"),
    " ": ("space", "spaces"),
    ":": ("colon", "colons"),
    ",": ("comma", "commas"),
    "@": ("at sign", "at signs"),
    "+": ("plus sign", "plus signs"),
    "#": ("hash sign", "hash signs"),
}
_ALPHABETS = (
    (_LOWERCASE | _UPPERCASE, "a letter", "letters"),
    (_LOWERCASE, "a lowercase letter", "lowercase letters"),
    (_UPPERCASE, "an uppercase letter", "uppercase letters"),
    (_DIGITS, "a digit", "digits"),
)
_EXAMPLES = ((_UPPERCASE, "ABCDEFGH"), (_LOWERCASE, "abcdefgh"), (_DIGITS, "12345678"))

Characters = frozenset[str]


@dataclass(frozen=True, slots=True)
class _Set:
    """One of some characters, repeated."""

    characters: Characters
    least: int = 1
    most: int = 1
    is_literal: bool = False


@dataclass(frozen=True, slots=True)
class _Group:
    """One of several sequences, repeated."""

    choices: tuple[tuple["_Item", ...], ...]
    least: int = 1
    most: int = 1


_Item = _Set | _Group


class _NotInWords(Exception):
    """The pattern is none of the kinds that are put in words."""


def describe_pattern(pattern: str) -> str | None:
    """What a text of the pattern consists of, in a few words; None when the pattern has no simple words."""
    words = _find_words(pattern)
    return words[1] if words else None


def describe_mismatch(pattern: str) -> str | None:
    """The end of a sentence about a text that does not fit, such as "must look like ABC-1"."""
    words = _find_words(pattern)
    return " ".join(words) if words else None


@functools.lru_cache(maxsize=256)
def _find_words(pattern: str) -> tuple[str, str] | None:
    """A verb and its object, such as ("must consist of", "digits")."""
    if len(pattern) > LONGEST_PATTERN:
        return None
    try:
        choices = _PatternParser(pattern.removeprefix("^").removesuffix("$")).parse()
        texts = _read_choices(choices)
        if texts:
            return "must be", _join_words(texts, "or")
        words = _describe_set(choices[0]) if len(choices) == 1 else None
        if words:
            return "must consist of", words
        example = _make_example(choices[0])
        if matches(pattern, example):
            return "must look", f"like {example}"
    except (_NotInWords, UnsupportedPattern, RecursionError):
        pass
    return None


class _PatternParser:
    """Reads sets, literals, groups, alternatives and repetitions. Raises _NotInWords for everything else."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0

    def parse(self) -> tuple[tuple[_Item, ...], ...]:
        choices = self._read_choices()
        if self._position < len(self._pattern):
            raise _NotInWords
        return choices

    def _read_choices(self) -> tuple[tuple[_Item, ...], ...]:
        choices: list[tuple[_Item, ...]] = []
        items: list[_Item] = []
        while self._position < len(self._pattern):
            token = _TOKEN.match(self._pattern, self._position)
            if token is None:
                raise _NotInWords
            if token["close"]:
                break
            self._position = token.end()
            if token["or"]:
                choices.append(tuple(items))
                items = []
            elif token["open"]:
                items.append(self._read_group())
            else:
                characters = _read_set(token["class"]) if token["class"] else frozenset(token["literal"][-1])
                least, most = self._read_quantity()
                items.append(_Set(characters, least, most, is_literal=not token["class"]))
        choices.append(tuple(items))
        return tuple(choices)

    def _read_group(self) -> _Group:
        choices = self._read_choices()
        if not self._pattern.startswith(")", self._position):
            raise _NotInWords
        self._position += 1
        return _Group(choices, *self._read_quantity())

    def _read_quantity(self) -> tuple[int, int]:
        match = _QUANTIFIER.match(self._pattern, self._position)
        if match is None:
            return 1, 1
        self._position = match.end()
        if match[0] in _QUANTITIES:
            return _QUANTITIES[match[0]]
        least = int(match[1])
        if match[2] is None:
            return least, least
        return least, int(match[3]) if match[3] else _MANY


def _read_set(text: str) -> Characters:
    if not text.startswith("["):
        return _ESCAPES[text[1]]
    if text.startswith("[^"):
        raise _NotInWords
    characters = set[str]()
    for part in _RANGE.finditer(text[1:-1]):
        if part["escape"]:
            characters |= _ESCAPES[part["escape"]]
        elif part["single"]:
            characters.add(part["single"])
        else:
            characters |= set(map(chr, range(ord(part["first"]), ord(part["last"]) + 1)))
    if not characters or not characters <= _LOWERCASE | _UPPERCASE | _DIGITS | _NAMES.keys():
        raise _NotInWords
    return frozenset(characters)


def _read_choices(choices: Sequence[Sequence[_Item]]) -> list[str]:
    """The texts that the pattern is a choice of; none when it is something else."""
    if len(choices) == 1 and len(choices[0]) == 1:
        only = choices[0][0]
        if isinstance(only, _Group) and (only.least, only.most) == (1, 1):
            return _read_choices(only.choices)
    texts: list[str] = []
    for items in choices:
        if not all(
            isinstance(item, _Set) and item.is_literal and item.least == item.most == 1 for item in items
        ):
            return []
        texts.append("".join(next(iter(item.characters)) for item in items if isinstance(item, _Set)))
    if len(texts) > _MAX_CHOICES or not all(texts):
        return []
    return texts


def _describe_set(items: Sequence[_Item]) -> str | None:
    """The characters of a text that is made of one set; how it begins and ends, where that is narrower."""
    sets = _flatten(items)
    if not sets:
        return None
    union = frozenset[str]().union(*(item.characters for item in sets))
    if not any(item.characters == union and item.most > 1 for item in sets):
        return None
    if not all(item.characters == union or item.most == 1 for item in sets):
        return None
    words = _name_characters(union, plural=True, conjunction="and")
    limits: list[str] = []
    first, last = sets[0], sets[-1]
    if first.characters != union and first.least:
        limits.append(f"beginning with {_name_characters(first.characters, plural=False, conjunction='or')}")
    if last.characters != union:
        limits.append(f"ending with {_name_characters(last.characters, plural=False, conjunction='or')}")
    if limits:
        words = f"{words}, {' and '.join(limits)}"
    if len(sets) == 1 and (sets[0].least > 1 or sets[0].most < _MANY):
        noun = f"characters: {words}" if " " in words else words
        words = f"{_count(sets[0])} {noun}"
    return words


def _flatten(items: Sequence[_Item]) -> list[_Set]:
    """The sets of the items and of groups that occur at most once; none when there are other groups."""
    sets: list[_Set] = []
    for item in items:
        if isinstance(item, _Set):
            sets.append(item)
            continue
        inner_sets = _flatten(item.choices[0])
        if len(item.choices) > 1 or item.most > 1 or not inner_sets:
            return []
        sets += inner_sets
    return sets


def _count(item: _Set) -> str:
    if item.least == item.most:
        return str(item.least)
    if item.most == _MANY:
        return f"at least {item.least}"
    if item.least == 0:
        return f"at most {item.most}"
    return f"{item.least} to {item.most}"


def _name_characters(characters: Characters, *, plural: bool, conjunction: str) -> str:
    names: list[str] = []
    rest = characters
    for alphabet, singular, plural_name in _ALPHABETS:
        if rest >= alphabet:
            names.append(plural_name if plural else singular)
            rest = rest - alphabet
    for character, (singular, plural_name) in _NAMES.items():
        if character in rest:
            names.append(plural_name if plural else f"a {singular}")
    letters = sorted(rest - _NAMES.keys())
    if len(letters) > 2 and ord(letters[-1]) - ord(letters[0]) == len(letters) - 1:
        names.append(f"{letters[0]} to {letters[-1]}")
    else:
        names += letters
    return _join_words(names, conjunction)


def _make_example(items: Sequence[_Item]) -> str:
    """A short text that the items match. Raises _NotInWords when it is not short."""
    example = ""
    for item in items:
        if item.least > _MAX_EXAMPLE_CHARS:
            raise _NotInWords
        if isinstance(item, _Group):
            example += _make_example(item.choices[0]) * max(item.least, 1)
        elif item.is_literal:
            example += min(item.characters) * max(item.least, 1)
        else:
            example += _pick_characters(item)
        if len(example) > _MAX_EXAMPLE_CHARS:
            raise _NotInWords
    return example


def _pick_characters(item: _Set) -> str:
    count = max(item.least, min(item.most, _SAMPLE_CHARS))
    if item.characters == _DIGITS and item.most == _MANY:
        count = max(item.least, 1)
    for alphabet, sample in _EXAMPLES:
        if item.characters >= alphabet:
            return (sample * (1 + count // len(sample)))[:count]
    return min(item.characters) * count


def _join_words(words: Sequence[str], conjunction: str) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"
