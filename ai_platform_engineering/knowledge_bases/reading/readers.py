"""Which reader reads which kind; readers are imported when they are needed."""

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
_READERS = {
    "markdown": "markdown",
    "html": "html",
    "pdf": "pdf",
    "text": "plain_text",
    "rst": "rst",
    "openapi": "openapi",
    "code": "source_code",
    "csv": "tabular",
}
# A document that its own reader cannot make sense of is still text.
_SECOND_CHOICE = {
    "openapi": "code",
    "rst": "text",
    "csv": "text",
    "code": "text",
    "markdown": "text",
    "html": "text",
}


def read_in_process(raw: RawDocument) -> tuple[str, ParsedDocument]:
    """Reads in this process, without limits on time and memory."""
    found = detect_kind(raw)
    while True:
        try:
            parsed = _finished(_reader(found.kind)(found), cut=found.truncated)
        except UnreadableDocument:
            raise
        except (
            Exception
        ) as error:  # parsers answer hostile input with anything, RecursionError and MemoryError included
            if found.kind not in _SECOND_CHOICE:
                raise UnreadableDocument(
                    f"The document looks like {found.kind} but cannot be read."
                ) from error
            found = replace(found, kind=_SECOND_CHOICE[found.kind])
            continue
        if not any(section.text.strip() or section.headings for section in parsed.sections):
            raise UnreadableDocument("The document holds no text.")
        return found.kind, parsed


def _reader(kind: str) -> Callable[[DetectedDocument], ParsedDocument]:
    reader: Callable[[DetectedDocument], ParsedDocument] = import_module(f"{_PACKAGE}.{_READERS[kind]}").parse
    return reader


def _finished(parsed: ParsedDocument, *, cut: bool) -> ParsedDocument:
    """Entities and escapes bring back what the decoder removed, so every text is cleaned once more, and counted."""
    return ParsedDocument(
        to_single_line(parsed.title) or "Untitled", tuple(_bounded(parsed.sections, cut)), parsed.language
    )


def _bounded(sections: Iterable[Section], cut: bool) -> Iterable[Section]:
    room = MAX_TEXT_CHARS
    for section in sections:
        text = normalise_text(section.text)
        headings = tuple(filter(None, map(to_single_line, section.headings)))
        yield Section(text[:room], headings, section.kind)
        room -= len(text)
        if room < 0:
            cut = True
            break
    if cut:
        yield Section("[The rest of the document is left out: it is too long.]")
