"""What a knowledge base returned, for people: passages with their sources, quoted and not interpreted."""

import re
from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.core.untrusted_text import unwrap_untrusted

_ASKS = re.compile(
    r"^(please\s+)?(how\s+(do|does|can|could|should|to|is|are)\b|what('s|\s+(is|are|does|do))\b|why\b|explain\b|describe\b"
    r"|tell\s+me\s+(about|how)\b|where\s+(is|are|do|can)\b|(can|could)\s+you\s+explain\b|search\s+(the\s+)?(docs|documents|knowledge))",
    re.IGNORECASE,
)
_TEACHES = re.compile(
    r"^(please\s+)?(how\s+(do|can|could|should)\s+(i|we|you|one)\b|how\s+to\b|explain\b|search\s)",
    re.IGNORECASE,
)
_MOST = 500


def wants_documents(question: str, *, surely: bool = False) -> bool:
    """The question asks for an explanation; `surely` when it can hardly be an order or a look at a system."""
    return bool((_TEACHES if surely else _ASKS).match(question.strip()))


def passages(value: Any) -> str | None:
    """The passages of a search with the marks of their documents; None when it is something else."""
    rows = value.get("results") if isinstance(value, Mapping) else None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and "snippet" in row for row in rows):
        return None
    if not rows:
        return "Nothing about this was found in the knowledge base."
    return "This is what the documents say:\n\n" + "\n\n".join(_passage(row) for row in rows)


def _passage(row: Mapping[str, Any]) -> str:
    text = unwrap_untrusted(str(row["snippet"])).strip()
    lines = (text if len(text) <= _MOST else f"{text[:_MOST].rstrip()}…").splitlines()
    where = " › ".join(dict.fromkeys([str(row.get("title") or ""), *map(str, row.get("headings") or ())]))
    return f"**{where}** {row.get('cite') or ''}\n\n" + "\n".join(f"> {line}".rstrip() for line in lines)
