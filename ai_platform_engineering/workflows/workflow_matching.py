"""Which workflow a text means: by its name or phrase exactly, or by all of its words."""

import re
from collections.abc import Iterable, Iterator

from ai_platform_engineering.core.workflows import Workflow

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_BEFORE = ("please", "run", "start")
_AFTER = ("please",)
_ARTICLES = frozenset({"a", "an", "the"})
_NEGATIONS = frozenset({"not", "never", "don't", "don’t", "dont"})

Words = tuple[str, ...]


def named(workflows: Iterable[Workflow], text: str) -> Workflow | None:
    """The workflow whose name, title or phrase the text is; "please run" before and "please" after it count for nothing."""
    all_workflows = tuple(workflows)
    for said in _readings(_words(text)):
        for names in (_by_name, _by_title, _by_phrase):
            found = [workflow for workflow in all_workflows if said in names(workflow)]
            if found:
                if len(found) == 1:
                    return found[0]
                return None
    return None


def spoken_of(workflows: Iterable[Workflow], text: str) -> Workflow | None:
    """The workflow of which all words of the title or of a phrase occur in the text; the longest match, None when two are as long."""
    heard = frozenset(_words(text))
    if heard & _NEGATIONS:
        return None
    lengths = [(_longest(workflow, heard), workflow) for workflow in workflows]
    best = max((length for length, _ in lengths), default=0)
    found = [workflow for length, workflow in lengths if length == best]
    if best and len(found) == 1:
        return found[0]
    return None


def _longest(workflow: Workflow, heard: frozenset[str]) -> int:
    wanted = (frozenset(words) - _ARTICLES for words in (*_by_title(workflow), *_by_phrase(workflow)))
    return max((len(words) for words in wanted if words <= heard), default=0)


def _readings(words: Words) -> Iterator[Words]:
    """The words as they are, then without what politeness puts around them: a title may itself begin with "Run"."""
    while words:
        yield words
        if words[0] in _BEFORE:
            words = words[1:]
        elif words[-1] in _AFTER:
            words = words[:-1]
        else:
            return


def _words(text: str) -> Words:
    return tuple(_WORD.findall(text.casefold()))


def _by_name(workflow: Workflow) -> tuple[Words, ...]:
    return (_words(workflow.name),)


def _by_title(workflow: Workflow) -> tuple[Words, ...]:
    return (_words(workflow.title),)


def _by_phrase(workflow: Workflow) -> tuple[Words, ...]:
    return tuple(map(_words, workflow.phrases))
