"""Snippets: the part of a text that shows why a search found it."""

import re

from ai_platform_engineering.knowledge_bases.search.tokens import parse_query

MAX_SNIPPET_CHARS = 600

_WORD = re.compile(r"\w+")
_STEM_CHARS = 5  # that two forms of a word share
_MAX_WORDS_IN_WINDOW = 200


def extract_snippet(text: str, query: str, max_chars: int = MAX_SNIPPET_CHARS) -> str:
    """The text, or its part with the most words of the query, cut between words."""
    text = text.strip()
    if len(text) <= max_chars:
        return text
    length = max_chars - 2  # without the two ellipses
    begin = _find_word_start(text, _find_best_window(text, query, length))
    end = min(len(text), begin + length)
    prefix = ""
    if begin:
        prefix = "…"
    if end == len(text):
        return prefix + text[begin:].strip()
    space = max(text.rfind(" ", begin, end), text.rfind("\n", begin, end))
    if space > begin + max_chars // 2:
        end = space
    return f"{prefix}{text[begin:end].strip()}…"


def find_shared_words(text: str, query: str) -> tuple[str, ...]:
    """The words of the query that the text has in some form."""
    words, _ = parse_query(query)
    stems = {match[0].lower()[:_STEM_CHARS] for match in _WORD.finditer(text)}
    return tuple(word for word in words if word[:_STEM_CHARS] in stems)


def _find_best_window(text: str, query: str, length: int) -> int:
    """Where a window begins that has the most different words of the query; the first of equals, with a
    little text before it."""
    words, _ = parse_query(query)
    query_stems = {word[:_STEM_CHARS] for word in words}
    matches: list[tuple[int, str]] = []
    for match in _WORD.finditer(text):
        stem = match[0].lower()[:_STEM_CHARS]
        if stem in query_stems:
            matches.append((match.start(), stem))
    best_start = 0
    most_stems = 0
    for index, (start, _) in enumerate(matches):
        window = matches[index : index + _MAX_WORDS_IN_WINDOW]
        stems = {stem for position, stem in window if position < start + length}
        if len(stems) > most_stems:
            best_start = start
            most_stems = len(stems)
    return max(0, min(best_start - length // 6, len(text) - length))


def _find_word_start(text: str, begin: int) -> int:
    """The start of a line or a word shortly before the position."""
    if not begin:
        return 0
    line = text.rfind("\n", max(0, begin - 80), begin)
    if line >= 0:
        return line + 1
    space = text.rfind(" ", max(0, begin - 40), begin)
    if space >= 0:
        return space + 1
    return begin
