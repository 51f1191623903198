"""From the bytes of a document to its text, in order and under its headings."""

from ai_platform_engineering.knowledge_bases.documents import Parsed, Raw, Unreadable
from ai_platform_engineering.knowledge_bases.reading.document_kind import needs_limits
from ai_platform_engineering.knowledge_bases.reading.limits import LARGEST_DOCUMENT
from ai_platform_engineering.knowledge_bases.reading.reader_process import read_apart
from ai_platform_engineering.knowledge_bases.reading.readers import read_here


def read(raw: Raw) -> tuple[str, Parsed]:
    """The document's kind and its text; blocks for as long as that takes, so not for an event loop. Raises nothing but Unreadable."""
    if len(raw.content) > LARGEST_DOCUMENT:
        raise Unreadable(f"The document is larger than {LARGEST_DOCUMENT // 1_000_000} MB.")
    return read_apart(raw) if needs_limits(raw) else read_here(raw)
