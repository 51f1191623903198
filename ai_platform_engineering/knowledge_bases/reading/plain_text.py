"""Text without any markup."""

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import split_paragraphs


def parse(detected: DetectedDocument) -> ParsedDocument:
    return ParsedDocument(detected.name, tuple(Section(part) for part in split_paragraphs(detected.text)))
