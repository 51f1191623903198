"""Passages of a knowledge base search: those about the question, quoted with their sources."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ai_platform_engineering.core.untrusted_text import unwrap_untrusted
from ai_platform_engineering.models.offline.word_matching import are_synonyms, is_generic, stem_words

_EXPLANATION_QUESTION = re.compile(
    r"^(please\s+)?(how\s+(do|does|can|could|should|to|is|are)\b|what('s|\s+(is|are|does|do))\b|why\b"
    r"|explain\b|describe\b|tell\s+me\s+(about|how)\b|where\s+(is|are|do|can)\b|(can|could)\s+you\s+explain\b"
    r"|search\s+(the\s+)?(docs|documents|knowledge))",
    re.IGNORECASE,
)
_HOW_TO_QUESTION = re.compile(
    r"^(please\s+)?(how\s+(do|can|could|should)\s+(i|we|you|one)\b|how\s+to\b|explain\b|search\s)",
    re.IGNORECASE,
)
_MAX_PASSAGE_CHARS = 500
# The relevance floor: the share of the question's words that a passage holds. A search always finds
# something, and only a language model could tell whether a loosely related passage answers.
_MIN_SHARE = 0.75
_GENERIC_WEIGHT = 0.3

Passage = Mapping[str, Any]


def asks_for_explanation(question: str) -> bool:
    return bool(_EXPLANATION_QUESTION.match(question.strip()))


def asks_how_to(question: str) -> bool:
    """Whether it asks for an explanation and can hardly be an order or a look at a system."""
    return bool(_HOW_TO_QUESTION.match(question.strip()))


def read_passages(value: Any) -> list[Passage] | None:
    """The passages of a search result; None when it is something else."""
    rows = value.get("results") if isinstance(value, Mapping) else None
    if not isinstance(rows, list):
        return None
    passages = [row for row in rows if isinstance(row, Mapping) and "snippet" in row]
    return passages if len(passages) == len(rows) else None


def find_relevant(passages: Sequence[Passage], question: str) -> list[Passage]:
    """The passages that hold enough of the question's words; when some have them in a heading, only those."""
    weights = {word: _GENERIC_WEIGHT if is_generic(word) else 1.0 for word in stem_words(question)}
    has_one_subject = sum(weight == 1.0 for weight in weights.values()) < 2
    relevant = list[tuple[float, Passage]]()
    for passage in passages:
        location = _locate(passage)
        # A single word is found in passages about anything: it has to be what the passage is about.
        text = location if has_one_subject else f"{location} {passage['snippet']}"
        if _share(weights, text) >= _MIN_SHARE:
            relevant.append((_share(weights, location), passage))
    best = max((share for share, _ in relevant), default=0.0)
    relevant = [pair for pair in relevant if pair[0] >= best / 2]
    return [passage for _, passage in sorted(relevant, key=lambda pair: -pair[0])]


def _share(weights: Mapping[str, float], text: str) -> float:
    """The share of the weighted words that the text holds, or a synonym of them."""
    text_words = set(stem_words(text))
    total = 0.0
    for word, weight in weights.items():
        if any(are_synonyms(word, other) for other in text_words):
            total += weight
    return total / sum(weights.values()) if weights else 0.0


def render_passages(passages: Sequence[Passage]) -> str:
    return "This is what the documents say:\n\n" + "\n\n".join(map(_render_passage, passages))


def _render_passage(passage: Passage) -> str:
    text = unwrap_untrusted(str(passage["snippet"])).strip()
    if len(text) > _MAX_PASSAGE_CHARS:
        text = f"{text[:_MAX_PASSAGE_CHARS].rstrip()}…"
    quoted = "\n".join(f"> {line}".rstrip() for line in text.splitlines())
    return f"**{_locate(passage)}** {passage.get('cite') or ''}\n\n{quoted}"


def _locate(passage: Passage) -> str:
    """The title of the document and the headings above the passage."""
    headings = map(str, passage.get("headings") or ())
    return " › ".join(dict.fromkeys([str(passage.get("title") or ""), *headings]))
