"""Finds the workflow that a text means: exactly by its name, title or phrase, or by all words of a phrase."""

import re
from collections.abc import Callable, Iterable, Iterator

from ai_platform_engineering.core.workflows import Workflow

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_PREFIXES = ("please", "run", "start")
_SUFFIXES = ("please",)
_ARTICLES = frozenset({"a", "an", "the"})
_NEGATIONS = frozenset({"not", "never", "don't", "don’t", "dont"})

Words = tuple[str, ...]


def match_exactly(workflows: Iterable[Workflow], text: str) -> Workflow | None:
    """The workflow whose name, title or phrase the text is; "please run" before and "please" after it do not
    count."""
    candidates = tuple(workflows)
    for words in _strip_courtesies(_split_words(text)):
        for read_words in (_read_name, _read_title, _read_phrases):
            matches = _find_equal(candidates, words, read_words)
            if matches:
                return _only_item(matches)
    return None


def match_words(workflows: Iterable[Workflow], text: str) -> Workflow | None:
    """The workflow of which all words of the title or of a phrase occur in the text: the longest match, None
    when two are as long."""
    text_words = frozenset(_split_words(text))
    if text_words & _NEGATIONS:
        return None
    longest_length = 0
    matches: list[Workflow] = []
    for workflow in workflows:
        length = _longest_match(workflow, text_words)
        if length > longest_length:
            longest_length = length
            matches = []
        if length == longest_length:
            matches.append(workflow)
    if not longest_length:
        return None
    return _only_item(matches)


def _find_equal(
    workflows: Iterable[Workflow], words: Words, read_words: Callable[[Workflow], tuple[Words, ...]]
) -> list[Workflow]:
    return [workflow for workflow in workflows if words in read_words(workflow)]


def _only_item(workflows: list[Workflow]) -> Workflow | None:
    """None when the text could mean several."""
    if len(workflows) != 1:
        return None
    return workflows[0]


def _longest_match(workflow: Workflow, text_words: frozenset[str]) -> int:
    """The number of words of the longest title or phrase that occurs in the text."""
    longest_length = 0
    for phrase in (*_read_title(workflow), *_read_phrases(workflow)):
        phrase_words = frozenset(phrase) - _ARTICLES
        if phrase_words <= text_words:
            longest_length = max(longest_length, len(phrase_words))
    return longest_length


def _strip_courtesies(words: Words) -> Iterator[Words]:
    """The words as they are, then without "please" and "run" around them: a title may itself begin with
    "Run"."""
    while words:
        yield words
        if words[0] in _PREFIXES:
            words = words[1:]
        elif words[-1] in _SUFFIXES:
            words = words[:-1]
        else:
            return


def _split_words(text: str) -> Words:
    return tuple(_WORD.findall(text.casefold()))


def _read_name(workflow: Workflow) -> tuple[Words, ...]:
    return (_split_words(workflow.name),)


def _read_title(workflow: Workflow) -> tuple[Words, ...]:
    return (_split_words(workflow.title),)


def _read_phrases(workflow: Workflow) -> tuple[Words, ...]:
    return tuple(map(_split_words, workflow.phrases))
