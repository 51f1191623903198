"""Orders to change something: told from questions by their wording."""

import re

from ai_platform_engineering.models.offline.bound_tools import find_change_kinds
from ai_platform_engineering.models.offline.lexicon import ALSO_READ, NOUNS_AFTER, word_set
from ai_platform_engineering.models.offline.question_parser import ParsedRequest
from ai_platform_engineering.models.offline.word_matching import split_words

_POLITE_ORDER = re.compile(r"(?:can|could|would|will) you\b|please\b|kindly\b", re.IGNORECASE)
_WISH = re.compile(r"(?:i|we)(?: would|'d)? (?:want|need|like) to ", re.IGNORECASE)
_POLITE_WORDS = word_set("can could would will you please kindly")
_CREATING_VERBS = word_set("open file make")  # with an article after them: "open a ticket"
_ARTICLES = word_set("a an new")


def find_ordered_changes(request: ParsedRequest) -> frozenset[str]:
    """The kinds of change that a request orders by an imperative; in doubt it is no order."""
    text = request.text.strip()
    if text.endswith("?") and not _POLITE_ORDER.match(text):
        return frozenset()
    wish = _WISH.match(text)
    if wish:
        text = text[wish.end() :]
    words = [word for word in split_words(text) if word not in _POLITE_WORDS]
    if not words:
        return frozenset()
    verb = words[0]
    if not NOUNS_AFTER.isdisjoint(words[1:2]):
        return frozenset()
    # "open a ticket" changes something, "open ports on a host" does not.
    creates = verb in _CREATING_VERBS and not _ARTICLES.isdisjoint(words[1:3])
    if verb in ALSO_READ and not creates:
        return frozenset()
    return find_change_kinds(verb)
