"""Reads documents in this process: a parser for each kind, imported when it is needed."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

from ai_platform_engineering.knowledge_bases.documents import (
    ParsedDocument,
    RawDocument,
    Section,
    UnreadableDocument,
)
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument, detect_kind
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_TEXT_CHARS
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import normalise_text, to_single_line

_PACKAGE = "ai_platform_engineering.knowledge_bases.reading"
_PARSER_MODULES = {
    "markdown": "markdown",
    "html": "html",
    "pdf": "pdf",
    "text": "plain_text",
    "rst": "rst",
    "openapi": "openapi",
    "code": "source_code",
    "csv": "tabular",
    "docx": "docx",
    "pptx": "pptx",
    "xlsx": "xlsx",
    "odt": "odt",
    "rtf": "rtf",
    "notebook": "notebook",
    "asciidoc": "asciidoc",
    "org": "org",
    "confluence": "confluence",
    "email": "mail",
}
# A document that its parser cannot read is still text.
_FALLBACK_KINDS = {
    "openapi": "code",
    "rst": "text",
    "csv": "text",
    "code": "text",
    "markdown": "text",
    "html": "text",
    "notebook": "code",
    "asciidoc": "text",
    "org": "text",
    "confluence": "html",
    "email": "text",
}


def read_in_process(raw: RawDocument) -> tuple[str, ParsedDocument]:
    """Reads in this process, without limits on time and memory."""
    detected = detect_kind(raw)
    while True:
        try:
            document = _normalise_document(_find_parser(detected.kind)(detected), detected.missing_chars)
        except UnreadableDocument:
            raise
        except Exception as error:  # on hostile input anything, also RecursionError and MemoryError
            if detected.kind not in _FALLBACK_KINDS:
                raise UnreadableDocument(
                    f"The document looks like {detected.kind} but cannot be read."
                ) from error
            detected = replace(detected, kind=_FALLBACK_KINDS[detected.kind])
            continue
        if not any(section.text.strip() or section.headings for section in document.sections):
            raise UnreadableDocument("The document contains no text.")
        return detected.kind, document


def _find_parser(kind: str) -> Callable[[DetectedDocument], ParsedDocument]:
    module = import_module(f"{_PACKAGE}.{_PARSER_MODULES[kind]}")
    parse: Callable[[DetectedDocument], ParsedDocument] = module.parse
    return parse


def _normalise_document(document: ParsedDocument, missing_chars: int) -> ParsedDocument:
    """Normalises every text again, since entities and escapes bring back what decoding removed, limits its
    length, and ends it with a sentence about what is missing."""
    title = to_single_line(document.title) or "Untitled"
    sections: list[Section] = []
    room = MAX_TEXT_CHARS
    missing_chars += document.missing_chars
    for section in document.sections:
        text = normalise_text(section.text)
        if room > 0 or not text:
            headings = tuple(filter(None, map(to_single_line, section.headings)))
            sections.append(Section(text[:room], headings, section.kind))
        missing_chars += max(0, len(text) - max(room, 0))
        room = max(0, room - len(text))
    missing_parts = document.missing_parts
    if missing_chars:
        read_chars = sum(len(section.text) for section in sections)
        part = f"the last {missing_chars:,} of {read_chars + missing_chars:,} characters"
        missing_parts = (part, *missing_parts)
    if missing_parts:
        sections.append(Section(f"[Too long to be read as a whole. Missing: {'; '.join(missing_parts)}.]"))
    return ParsedDocument(
        title, tuple(sections), document.language, missing_chars=missing_chars, missing_parts=missing_parts
    )
