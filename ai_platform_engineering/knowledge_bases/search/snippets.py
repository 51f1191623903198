"""The part of a text that shows why it was found."""

import re

from ai_platform_engineering.knowledge_bases.search.tokens import parse_query

MAX_SNIPPET_CHARS = 600

_WORD = re.compile(r"\w+")
_STEM = 5  # letters that two forms of a word share


def extract_snippet(text: str, query: str, longest: int = MAX_SNIPPET_CHARS) -> str:
    """The text, or its stretch with the most words of the query, cut at words."""
    text = text.strip()
    if len(text) <= longest:
        return text
    begin = _best_place(text, query, longest - 2)
    begin = _word_start(text, begin)
    end = min(len(text), begin + longest - 2)
    if (
        end < len(text)
        and (space := max(text.rfind(" ", begin, end), text.rfind("\n", begin, end))) > begin + longest // 2
    ):
        end = space
    return f"{'…' if begin else ''}{text[begin:end].strip()}{'…' if end < len(text) else ''}"


def _best_place(text: str, query: str, length: int) -> int:
    """Where a window begins that holds the most different words of the query; the first of equals, with a little room before it."""
    wanted = {word[:_STEM] for word in parse_query(query)[0]}
    places = [
        (match.start(), stem)
        for match in _WORD.finditer(text)
        if (stem := match[0].lower()[:_STEM]) in wanted
    ]
    best, most = 0, 0
    for index, (place, _) in enumerate(places):
        inside = {stem for at, stem in places[index : index + 200] if at < place + length}
        if len(inside) > most:
            best, most = place, len(inside)
    return max(0, min(best - length // 6, len(text) - length))


def _word_start(text: str, begin: int) -> int:
    """The beginning of a line or a word near the place."""
    if not begin:
        return 0
    line = text.rfind("\n", max(0, begin - 80), begin)
    if line >= 0:
        return line + 1
    space = text.rfind(" ", max(0, begin - 40), begin)
    if space >= 0:
        return space + 1
    return begin
