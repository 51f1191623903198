"""Reads documents in this process: a parser for each kind, imported when it is needed."""

from collections.abc import Callable, Iterable
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
}
# A document that its parser cannot read is still text.
_FALLBACK_KINDS = {
    "openapi": "code",
    "rst": "text",
    "csv": "text",
    "code": "text",
    "markdown": "text",
    "html": "text",
}


def read_in_process(raw: RawDocument) -> tuple[str, ParsedDocument]:
    """Reads in this process, without limits on time and memory."""
    detected = detect_kind(raw)
    while True:
        try:
            document = _normalise_document(_find_parser(detected.kind)(detected), detected.truncated)
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
            raise UnreadableDocument("The document holds no text.")
        return detected.kind, document


def _find_parser(kind: str) -> Callable[[DetectedDocument], ParsedDocument]:
    module = import_module(f"{_PACKAGE}.{_PARSER_MODULES[kind]}")
    parse: Callable[[DetectedDocument], ParsedDocument] = module.parse
    return parse


def _normalise_document(document: ParsedDocument, truncated: bool) -> ParsedDocument:
    """Normalises every text again, since entities and escapes bring back what decoding removed, and limits
    its length."""
    title = to_single_line(document.title) or "Untitled"
    return ParsedDocument(title, tuple(_limit_sections(document.sections, truncated)), document.language)


def _limit_sections(sections: Iterable[Section], truncated: bool) -> Iterable[Section]:
    room = MAX_TEXT_CHARS
    for section in sections:
        text = normalise_text(section.text)
        headings = tuple(filter(None, map(to_single_line, section.headings)))
        yield Section(text[:room], headings, section.kind)
        room -= len(text)
        if room < 0:
            truncated = True
            break
    if truncated:
        yield Section("[The rest of the document is left out: it is too long.]")
