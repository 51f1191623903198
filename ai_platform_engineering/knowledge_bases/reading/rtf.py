"""Rich Text Format: paragraphs under their headings, lists and tables."""

import re

from striprtf.striprtf import rtf_to_text

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.markup_lines import LineCollector

# The library gives text alone. Where a paragraph begins that is a heading or an item, a mark is put into the
# text; characters of a private use area stand in no document.
_HEADING_MARK = "\ue3a0"
_ITEM_MARK = "\ue3a1"
_OUTLINE = re.compile(r"\\outlinelevel([0-8])(?![0-9]) ?")
_ITEM = re.compile(
    r"\{\s?(?:\\\*)?\\(?:listtext|pntext)\b[^{}]{0,300}(?:\{[^{}]{0,300}\}[^{}]{0,300}){0,4}\}"
)
_HEADING = re.compile(f"{_HEADING_MARK}([0-8])")
_PICTURE = re.compile(r"[0-9a-fA-F\r\n]{500,}")  # its bytes; the library would go through each digit
_TITLE = re.compile(r"\{\\title ([^{}\\]{1,300})\}")


def parse(detected: DetectedDocument) -> ParsedDocument:
    # Bytes are escaped in this format, so that the charset does not matter here.
    source = _PICTURE.sub("", detected.raw.content.decode("latin-1"))
    title = _TITLE.search(source[:100_000])
    source = _OUTLINE.sub(lambda level: f"{level[0].rstrip()} {_HEADING_MARK}{level[1]}", source)
    source = _ITEM.sub(_ITEM_MARK, source)
    lines = LineCollector()
    text: str = rtf_to_text(source, errors="replace")  # type: ignore[no-untyped-call]
    for line in text.split("\n"):
        _add_line(lines, line.strip())
    lines.end_block()
    name = title[1].strip() if title else ""
    return lines.builder.build_document(name or lines.builder.first_heading or detected.name)


def _add_line(lines: LineCollector, line: str) -> None:
    heading = _HEADING.search(line)
    text = _HEADING.sub("", line).replace(_ITEM_MARK, "").strip()
    if not text:
        lines.end_block()
    elif heading:
        lines.add_heading(int(heading[1]) + 1, text)
    elif text.endswith("|"):  # the end of a row
        lines.add_row([cell.strip() for cell in text[:-1].split("|")])
    elif _ITEM_MARK in line:
        lines.add_line(f"- {text}", "list")
    else:
        lines.end_block()
        lines.add_line(text)
