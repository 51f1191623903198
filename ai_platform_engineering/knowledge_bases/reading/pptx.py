"""Slides (pptx): the title of each slide as heading, its text, tables and notes."""

from collections.abc import Iterator

from lxml import etree

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.office_archive import (
    OfficeArchive,
    attribute,
    child,
    local_name,
)
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DEPTH, MAX_PAGES
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

_TITLES = frozenset({"title", "ctrTitle"})
_NOT_CONTENT = frozenset({"dt", "ftr", "hdr", "sldNum", "sldImg"})
_SLIDE_LEVEL = 1


def parse(detected: DetectedDocument) -> ParsedDocument:
    archive = OfficeArchive(detected.raw.content)
    main_part = archive.find_main_part()
    slides = list(_find_slides(archive, main_part))
    builder = SectionBuilder()
    for number, part in enumerate(slides[:MAX_PAGES], start=1):
        if builder.is_full:
            builder.leave_out_part(f"the last {len(slides) - number + 1:,} of {len(slides):,} slides")
            break
        _read_slide(archive, part, number, builder)
    if len(slides) > MAX_PAGES:
        builder.leave_out_part(f"the last {len(slides) - MAX_PAGES:,} of {len(slides):,} slides")
    title = archive.read_title("docProps/core.xml")
    if not title or title == "PowerPoint Presentation":
        title = builder.first_heading or detected.name
    return builder.build_document(title)


def _find_slides(archive: OfficeArchive, main_part: str) -> Iterator[str]:
    """The parts of the slides in the order in which they are shown."""
    relationships = archive.read_relationships(main_part)
    for node in archive.read_main_xml(main_part).iterfind("{*}sldIdLst/{*}sldId"):
        for key, value in node.attrib.items():
            if str(key).endswith("}id") and value in relationships:
                yield relationships[str(value)][0]


def _read_slide(archive: OfficeArchive, part: str, number: int, builder: SectionBuilder) -> None:
    root = archive.read_xml(part)
    if root is None:
        return
    shapes = list(_find_shapes(root, 0))
    titles = [_join_paragraphs(shape) for shape in shapes if _placeholder(shape) in _TITLES]
    title = next(filter(None, titles), "")
    builder.add_heading(_SLIDE_LEVEL, title or f"Slide {number}")
    for shape in shapes:
        if _placeholder(shape) not in _TITLES:
            _read_shape(shape, builder)
    for notes_part in archive.find_related(part, "notesSlide"):
        notes = archive.read_xml(notes_part)
        if notes is not None:
            texts = [
                _join_paragraphs(shape) for shape in _find_shapes(notes, 0) if _placeholder(shape) == "body"
            ]
            text = "\n".join(filter(None, texts))
            builder.add_text(f"Notes: {text}" if text else "")


def _find_shapes(node: etree._Element, depth: int) -> Iterator[etree._Element]:
    """The shapes with text and the tables of a slide, also of groups, in their order."""
    for inner in node.iterchildren():
        name = local_name(inner)
        if name in {"sp", "graphicFrame"}:
            if _placeholder(inner) not in _NOT_CONTENT:
                yield inner
        elif name in {"cSld", "spTree", "grpSp", "AlternateContent", "Choice"} and depth < MAX_DEPTH:
            yield from _find_shapes(inner, depth + 1)


def _placeholder(shape: etree._Element) -> str:
    """What a shape is for: title, body, dt and so on; empty for a shape that is in no layout."""
    node = child(shape, "nvSpPr", "nvPr", "ph")
    if node is None:
        return ""
    return attribute(node, "type") or "body"


def _read_shape(shape: etree._Element, builder: SectionBuilder) -> None:
    for table in shape.iterfind(".//{*}tbl"):
        builder.add_table(
            [
                [_join_paragraphs(cell) for cell in row.iterchildren("{*}tc")]
                for row in table.iterfind("{*}tr")
            ]
        )
        return
    paragraphs = list(_find_paragraphs(shape))
    if len(paragraphs) > 1:
        lines = [f"{'  ' * level}- {text}" for level, text in paragraphs]
        builder.add_text("\n".join(lines), "list")
    elif paragraphs:
        builder.add_text(paragraphs[0][1])


def _join_paragraphs(node: etree._Element) -> str:
    return "\n".join(text for _, text in _find_paragraphs(node))


def _find_paragraphs(node: etree._Element) -> Iterator[tuple[int, str]]:
    """Indent and text of each paragraph that has any."""
    for paragraph in node.iterfind(".//{*}txBody/{*}p" if local_name(node) != "tc" else "{*}txBody/{*}p"):
        parts: list[str] = []
        for inner in paragraph.iter("{*}t", "{*}br"):
            parts.append(" " if local_name(inner) == "br" else inner.text or "")
        text = "".join(parts).strip()
        level = attribute(child(paragraph, "pPr"), "lvl")
        if text:
            yield min(int(level), 8) if level.isdecimal() and len(level) < 4 else 0, text
