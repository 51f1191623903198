"""PDF: the text of each page, under the entries of the outline and the page's number. Native code: run it
apart."""

from collections import defaultdict
from typing import Any

import pypdfium2  # type: ignore[import-untyped]
import pypdfium2.raw  # type: ignore[import-untyped]

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_PAGES
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import normalise_text, to_single_line

_PAGE_LEVEL = 9  # below every entry of an outline
_DEEPEST_ENTRY = 4
_MOST_ENTRIES = 5_000
_CUT_WORD = ("\ufffe", "\x02", "\xad")  # what stands for a hyphen at the end of a line


def parse(detected: DetectedDocument) -> ParsedDocument:
    pdf = _open_pdf(detected.raw.content)
    try:
        return _read_pages(pdf, detected)
    finally:
        pdf.close()


def _open_pdf(content: bytes) -> Any:
    try:
        return pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise UnreadableDocument(
                "The PDF is password-protected. Save a copy without a password and add that."
            ) from error
        raise UnreadableDocument("The PDF is corrupt.") from error


def _read_pages(pdf: Any, detected: DetectedDocument) -> ParsedDocument:
    builder = SectionBuilder()
    entries = _read_outline(pdf)
    count = len(pdf)
    read_pages = 0
    while read_pages < min(count, MAX_PAGES) and not builder.is_full:
        _add_page(builder, read_pages, _read_lines(pdf, read_pages), entries[read_pages])
        read_pages += 1
    if not builder.has_text:
        raise UnreadableDocument(
            "The PDF has no text layer: its pages are scanned images. "
            "Run OCR on it (for example with ocrmypdf) and add the result."
        )
    if read_pages < count:
        builder.leave_out_part(f"the last {count - read_pages:,} of {count:,} pages")
    return builder.build_document(to_single_line(pdf.get_metadata_dict().get("Title") or "") or detected.name)


def _read_outline(pdf: Any) -> dict[int, list[tuple[int, str]]]:
    """Levels and titles of the outline by the page they point to."""
    entries: dict[int, list[tuple[int, str]]] = defaultdict(list)
    try:
        for count, item in enumerate(pdf.get_toc(max_depth=_DEEPEST_ENTRY)):
            target = item.get_dest()
            title = to_single_line(item.get_title())
            page = None
            if target:
                page = target.get_index()
            if page is not None and title:
                entries[page].append((item.level + 1, title))
            if count > _MOST_ENTRIES:
                break
    except (pypdfium2.PdfiumError, UnicodeError):
        pass  # the text is worth having without its outline
    return entries


def _read_lines(pdf: Any, number: int) -> list[str]:
    try:
        page = pdf[number]
        text_page = page.get_textpage()
    except pypdfium2.PdfiumError:
        return []  # one broken page
    try:
        text = text_page.get_text_bounded(errors="replace")
    finally:
        text_page.close()
        page.close()
    for mark in _CUT_WORD:
        text = text.replace(mark + "\r\n", "").replace(mark, "")
    return [line for line in normalise_text(text).split("\n") if line.strip()]


def _add_page(builder: SectionBuilder, number: int, lines: list[str], entries: list[tuple[int, str]]) -> None:
    """An entry begins at the line that says it, or where the one before it began."""
    at = 0
    for level, title in entries:
        begin = _find_line(title, lines, at)
        _add_part(builder, number, lines[at:begin])
        builder.add_heading(level, title)
        at = begin
    _add_part(builder, number, lines[at:])


def _find_line(title: str, lines: list[str], at: int) -> int:
    """The first line from `at` on that ends with the title, or `at`."""
    folded_title = title.casefold()
    for number in range(at, len(lines)):
        if " ".join(lines[number].split()).casefold().endswith(folded_title):
            return number
    return at


def _add_part(builder: SectionBuilder, number: int, lines: list[str]) -> None:
    if lines:
        builder.add_heading(_PAGE_LEVEL, f"Page {number + 1}")
        builder.add_text("\n".join(lines))
