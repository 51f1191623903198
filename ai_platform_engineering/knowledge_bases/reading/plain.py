"""Text without any markup."""

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.text import paragraphs


def parsed(found: DetectedDocument) -> ParsedDocument:
    return ParsedDocument(found.name, tuple(Section(part) for part in paragraphs(found.text)))
