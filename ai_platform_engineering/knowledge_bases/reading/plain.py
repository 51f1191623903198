"""Text without any markup."""

from ai_platform_engineering.knowledge_bases.documents import Parsed, Section
from ai_platform_engineering.knowledge_bases.reading.document_kind import Found
from ai_platform_engineering.knowledge_bases.reading.text import paragraphs


def parsed(found: Found) -> Parsed:
    return Parsed(found.name, tuple(Section(part) for part in paragraphs(found.text)))
