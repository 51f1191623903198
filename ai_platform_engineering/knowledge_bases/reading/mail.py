"""E-mail (eml): subject, people and date, and the text of the message; attachments are named, not read."""

from email import policy
from email.message import EmailMessage
from email.parser import BytesParser

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.html import add_page
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import (
    decode_text,
    split_paragraphs,
    to_single_line,
)

_HEADERS = ("From", "To", "Cc", "Date")
_MAX_PARTS = 1_000


def parse(detected: DetectedDocument) -> ParsedDocument:
    message = BytesParser(_class=EmailMessage, policy=policy.default).parsebytes(detected.raw.content)
    builder = SectionBuilder()
    subject = _read_header(message, "Subject")
    builder.add_heading(1, subject)
    lines = [f"{name}: {value}" for name in _HEADERS if (value := _read_header(message, name))]
    attachments = [
        to_single_line(part.get_filename() or "")
        for number, part in enumerate(message.walk())
        if number < _MAX_PARTS
    ]
    if any(attachments):
        lines.append(f"Attachments: {', '.join(filter(None, attachments))}")
    builder.add_text("\n".join(lines))
    body = message.get_body(("plain", "html"))
    if isinstance(body, EmailMessage):
        _add_body(builder, body)
    return builder.build_document(subject or detected.name)


def _read_header(message: EmailMessage, name: str) -> str:
    try:
        return to_single_line(str(message.get(name) or ""))
    except (ValueError, IndexError, AttributeError, LookupError):  # what the library raises for broken ones
        return ""


def _add_body(builder: SectionBuilder, body: EmailMessage) -> None:
    content = body.get_payload(decode=True)
    if not isinstance(content, bytes):
        return
    text = decode_text(content, f"charset={body.get_content_charset() or ''}")
    if body.get_content_type() == "text/html":
        add_page(builder, text)
        return
    for paragraph in split_paragraphs(text):
        builder.add_text(paragraph)
