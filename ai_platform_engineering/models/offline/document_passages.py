"""Passages of a knowledge base search with their sources, quoted and not interpreted."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ai_platform_engineering.core.untrusted_text import unwrap_untrusted

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


def asks_for_explanation(question: str) -> bool:
    return bool(_EXPLANATION_QUESTION.match(question.strip()))


def asks_how_to(question: str) -> bool:
    """Whether it asks for an explanation and can hardly be an order or a look at a system."""
    return bool(_HOW_TO_QUESTION.match(question.strip()))


def render_passages(value: Any) -> str | None:
    """The passages of a search with the marks of their documents; None when it is something else."""
    rows = value.get("results") if isinstance(value, Mapping) else None
    if not isinstance(rows, list) or not all(map(_is_passage, rows)):
        return None
    if not rows:
        return "Nothing about this was found in the knowledge base."
    return "This is what the documents say:\n\n" + "\n\n".join(map(_render_passage, rows))


def _is_passage(row: Any) -> bool:
    return isinstance(row, Mapping) and "snippet" in row


def _render_passage(row: Mapping[str, Any]) -> str:
    text = unwrap_untrusted(str(row["snippet"])).strip()
    if len(text) > _MAX_PASSAGE_CHARS:
        text = f"{text[:_MAX_PASSAGE_CHARS].rstrip()}…"
    quoted_lines = _quote_lines(text.splitlines())
    headings = map(str, row.get("headings") or ())
    location = " › ".join(dict.fromkeys([str(row.get("title") or ""), *headings]))
    return f"**{location}** {row.get('cite') or ''}\n\n{quoted_lines}"


def _quote_lines(lines: Sequence[str]) -> str:
    return "\n".join(f"> {line}".rstrip() for line in lines)
