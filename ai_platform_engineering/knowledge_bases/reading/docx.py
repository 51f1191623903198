"""Word documents (docx): headings, lists and tables, without headers, footers and deleted text."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.office_archive import (
    OfficeArchive,
    Relationships,
    attribute,
    child,
    local_name,
)
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DEPTH
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

_TITLE_LEVEL = 0
_CONTAINERS = frozenset({"sdt", "sdtContent", "customXml", "smartTag", "ins", "moveTo", "body"})
_SKIPPED = frozenset(
    {"pPr", "rPr", "sdtPr", "sdtEndPr", "del", "moveFrom", "instrText", "delText", "Fallback", "pict"}
)
_CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}


@dataclass(frozen=True, slots=True)
class _Style:
    """What a paragraph inherits from its style: the level of a heading, and the list that it is in."""

    level: int | None = None
    list_id: str = ""


def parse(detected: DetectedDocument) -> ParsedDocument:
    archive = OfficeArchive(detected.raw.content)
    main_part = archive.find_main_part()
    root = archive.read_main_xml(main_part)
    reader = _WordReader(archive, main_part)
    reader.read_blocks(root, 0)
    reader.end_list()
    for relation in ("footnotes", "endnotes"):
        for part in archive.find_related(main_part, relation):
            reader.read_notes(relation, archive.read_xml(part))
    title = reader.title or archive.read_title("docProps/core.xml") or reader.builder.first_heading
    return reader.builder.build_document(title or detected.name)


class _WordReader:
    """Reads the paragraphs and tables of a document in order."""

    def __init__(self, archive: OfficeArchive, main_part: str) -> None:
        self.builder = SectionBuilder()
        self.title = ""
        self._relationships: Relationships = archive.read_relationships(main_part)
        self._styles: dict[str, _Style] = {}
        for part in archive.find_related(main_part, "styles"):
            self._styles = _read_styles(archive.read_xml(part))
        self._bullets: set[tuple[str, str]] = set()
        for part in archive.find_related(main_part, "numbering"):
            self._bullets = _read_bullets(archive.read_xml(part))
        self._items: list[str] = []
        self._numbers: defaultdict[tuple[str, int], int] = defaultdict(int)

    def read_blocks(self, node: etree._Element, depth: int) -> None:
        for block in node.iterchildren():
            name = local_name(block)
            if name == "p":
                self._read_paragraph(block)
            elif name == "tbl":
                self._read_table(block, depth)
            elif name == "AlternateContent" and depth < MAX_DEPTH:
                choice = child(block, "Choice")
                if choice is not None:
                    self.read_blocks(choice, depth + 1)
            elif name in _CONTAINERS and depth < MAX_DEPTH:
                self.read_blocks(block, depth + 1)

    def end_list(self) -> None:
        self.builder.add_text("\n".join(self._items), "list")
        self._items.clear()

    def read_notes(self, heading: str, root: etree._Element | None) -> None:
        if root is None:
            return
        texts = [self._join_paragraphs(note) for note in root]
        notes = [f"- {text}" for text in texts if text]
        if notes:
            self.builder.add_heading(1, heading.capitalize())
            self.builder.add_text("\n".join(notes), "list")

    def _read_paragraph(self, node: etree._Element) -> None:
        text = self._render_inline(node, 0).strip()
        if not text:
            return
        style = self._find_style(node)
        if style.level is not None:
            self.end_list()
            if style.level == _TITLE_LEVEL and not self.title:
                self.title = text
            self.builder.add_heading(style.level, text)
        elif style.list_id:
            self._add_item(node, style.list_id, text)
        else:
            self.end_list()
            self.builder.add_text(text)

    def _find_style(self, node: etree._Element) -> _Style:
        """The style of a paragraph, with what the paragraph says itself."""
        style = self._styles.get(attribute(child(node, "pPr", "pStyle"), "val"), _Style())
        level = _parse_outline_level(child(node, "pPr"))
        list_id = attribute(child(node, "pPr", "numPr", "numId"), "val")
        if style.level is not None or level is not None:
            return _Style(level=style.level if level is None else level)
        if list_id == "0":  # taken out of the list
            return _Style()
        return _Style(list_id=list_id or style.list_id)

    def _add_item(self, node: etree._Element, list_id: str, text: str) -> None:
        level_name = attribute(child(node, "pPr", "numPr", "ilvl"), "val") or "0"
        level = min(_parse_number(level_name) or 0, 8)
        for number_key in [key for key in self._numbers if key[0] == list_id and key[1] > level]:
            del self._numbers[number_key]
        mark = "- "
        if (list_id, level_name) not in self._bullets:
            self._numbers[list_id, level] += 1
            mark = f"{self._numbers[list_id, level]}. "
        indent = "   " * level
        self._items.append(indent + mark + text.replace("\n", f"\n{indent}   "))

    def _read_table(self, node: etree._Element, depth: int) -> None:
        self.end_list()
        rows = [list(_iterate(row, "tc")) for row in _iterate(node, "tr")]
        if max(map(len, rows), default=0) < 2 and depth < MAX_DEPTH:  # a frame around text
            for cells in rows:
                for cell in cells:
                    self.read_blocks(cell, depth + 1)
            return
        texts: list[list[str]] = []
        for cells in rows:
            texts.append([text for cell in cells for text in self._render_cell(cell)])
        self.builder.add_table(texts)

    def _render_cell(self, cell: etree._Element) -> Iterator[str]:
        """The text of a cell, and empty cells for the columns that it spans."""
        yield self._join_paragraphs(cell)
        span = _parse_number(attribute(child(cell, "tcPr", "gridSpan"), "val")) or 1
        for _ in range(min(span, MAX_DEPTH) - 1):
            yield ""

    def _join_paragraphs(self, node: etree._Element) -> str:
        paragraphs = (self._render_inline(paragraph, 0).strip() for paragraph in node.iter("{*}p"))
        return "\n".join(filter(None, paragraphs))

    def _render_inline(self, node: etree._Element, depth: int) -> str:
        """The text of a paragraph, with what is in its text boxes."""
        parts: list[str] = []
        for inner in node.iterchildren():
            name = local_name(inner)
            if name == "t":
                parts.append(inner.text or "")
            elif name in _CHARACTERS:
                parts.append(_CHARACTERS[name])
            elif name in _SKIPPED or depth > MAX_DEPTH:
                continue
            elif name == "hyperlink":
                parts.append(self._render_link(inner, depth))
            elif name == "docPr":
                parts.append(inner.get("descr") or "")
            else:
                text = self._render_inline(inner, depth + 1)
                parts.append(f"{text}\n" if name == "p" else text)
        return "".join(parts)

    def _render_link(self, node: etree._Element, depth: int) -> str:
        text = self._render_inline(node, depth + 1)
        target, _ = self._relationships.get(attribute(node, "id"), ("", ""))
        if target.startswith(("http://", "https://")) and text.strip() and text != target:
            return f"[{text.strip()}]({target})"
        return text


def _read_styles(root: etree._Element | None) -> dict[str, _Style]:
    if root is None:
        return {}
    nodes = {attribute(node, "styleId"): node for node in root.iterchildren("{*}style")}
    return {style_id: _resolve_style(nodes, style_id) for style_id in nodes}


def _resolve_style(nodes: dict[str, etree._Element], style_id: str) -> _Style:
    """A style with what it inherits from those that it is based on."""
    level: int | None = None
    list_id = ""
    for _ in range(MAX_DEPTH):
        node = nodes.get(style_id)
        if node is None:
            break
        if level is None:
            level = _parse_style_name(attribute(child(node, "name"), "val"))
        if level is None:
            level = _parse_outline_level(child(node, "pPr"))
        list_id = list_id or attribute(child(node, "pPr", "numPr", "numId"), "val")
        style_id = attribute(child(node, "basedOn"), "val")
    return _Style(level, list_id)


def _parse_style_name(name: str) -> int | None:
    """The level of a built-in style for headings, whose names are English in every language."""
    name = name.lower()
    if name == "title":
        return _TITLE_LEVEL
    word, _, number = name.partition(" ")
    if word == "heading":
        return _parse_number(number)
    return None


def _parse_outline_level(properties: etree._Element | None) -> int | None:
    number = _parse_number(attribute(child(properties, "outlineLvl"), "val"))
    if number is None or number > 8:  # 9 is text
        return None
    return number + 1


def _read_bullets(root: etree._Element | None) -> set[tuple[str, str]]:
    """The lists and their levels that have bullets; the others have numbers."""
    if root is None:
        return set()
    levels: dict[str, list[str]] = {}
    for definition in root.iterchildren("{*}abstractNum"):
        levels[attribute(definition, "abstractNumId")] = [
            attribute(level, "ilvl")
            for level in definition.iterchildren("{*}lvl")
            if attribute(child(level, "numFmt"), "val") in {"bullet", "none"}
        ]
    bullets: set[tuple[str, str]] = set()
    for number in root.iterchildren("{*}num"):
        list_id = attribute(number, "numId")
        for level in levels.get(attribute(child(number, "abstractNumId"), "val"), ()):
            bullets.add((list_id, level))
    return bullets


def _iterate(node: etree._Element, name: str, depth: int = 0) -> Iterator[etree._Element]:
    """Rows of a table or cells of a row, also those inside content controls."""
    for inner in node.iterchildren():
        if local_name(inner) == name:
            yield inner
        elif local_name(inner) in _CONTAINERS and depth < MAX_DEPTH:
            yield from _iterate(inner, name, depth + 1)


def _parse_number(text: str) -> int | None:
    if text.isdecimal() and len(text) < 10:
        return int(text)
    return None
