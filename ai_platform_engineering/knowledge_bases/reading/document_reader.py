"""From the bytes of a document to its text, in order and under its headings."""

from dataclasses import replace

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import needs_limits
from ai_platform_engineering.knowledge_bases.reading.reader_process import read_in_subprocess
from ai_platform_engineering.knowledge_bases.reading.readers import read_in_process
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DOCUMENT_BYTES
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import to_single_line

_MAX_HEADINGS = 8  # above a document
_MAX_HEADING_CHARS = 200


def read_document(raw: RawDocument) -> tuple[str, ParsedDocument]:
    """The document's kind and its text; blocks, so not for an event loop. Raises nothing but
    UnreadableDocument."""
    if len(raw.content) > MAX_DOCUMENT_BYTES:
        raise UnreadableDocument(f"The document is larger than {MAX_DOCUMENT_BYTES // 1_000_000} MB.")
    if needs_limits(raw):
        kind, parsed = read_in_subprocess(raw)
    else:
        kind, parsed = read_in_process(raw)
    return kind, _add_source_headings(parsed, raw)


def _add_source_headings(parsed: ParsedDocument, raw: RawDocument) -> ParsedDocument:
    """The document with the title and the headings that its source knows."""
    title = to_single_line(raw.title) or parsed.title
    lines = (to_single_line(heading)[:_MAX_HEADING_CHARS] for heading in raw.headings[-_MAX_HEADINGS:])
    headings = tuple(filter(None, lines))
    if not headings:
        return replace(parsed, title=title)
    sections = [replace(section, headings=(*headings, *section.headings)) for section in parsed.sections]
    return replace(parsed, title=title, sections=tuple(sections))
