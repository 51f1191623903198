"""From the bytes of a document to its text, in order and under its headings."""

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import needs_limits
from ai_platform_engineering.knowledge_bases.reading.reader_process import read_in_subprocess
from ai_platform_engineering.knowledge_bases.reading.readers import read_in_process
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DOCUMENT_BYTES


def read_document(raw: RawDocument) -> tuple[str, ParsedDocument]:
    """The document's kind and its text; blocks, so not for an event loop. Raises nothing but
    UnreadableDocument."""
    if len(raw.content) > MAX_DOCUMENT_BYTES:
        raise UnreadableDocument(f"The document is larger than {MAX_DOCUMENT_BYTES // 1_000_000} MB.")
    if needs_limits(raw):
        return read_in_subprocess(raw)
    return read_in_process(raw)
