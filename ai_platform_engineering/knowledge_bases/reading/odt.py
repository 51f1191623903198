"""OpenDocument texts (odt): headings, lists and tables, without deleted text and comments."""

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
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_COLUMNS, MAX_DEPTH
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

_MAX_SPACES = 100
_SKIPPED = frozenset({"tracked-changes", "annotation", "table-of-content", "sequence-decls", "forms"})
_HEADER_ROWS = frozenset({"table-header-rows", "table-rows", "table-row-group"})


def parse(detected: DetectedDocument) -> ParsedDocument:
    archive = OfficeArchive(detected.raw.content)
    root = archive.read_main_xml("content.xml")
    body = child(root, "body", "text")
    reader = _TextReader(_find_numbered_lists(root))
    if body is not None:
        reader.read_blocks(body, 0)
    title = archive.read_title("meta.xml") or reader.builder.first_heading or detected.name
    return reader.builder.build_document(title)


class _TextReader:
    """Reads the paragraphs, lists and tables of a document in order."""

    def __init__(self, numbered_lists: frozenset[str]) -> None:
        self.builder = SectionBuilder()
        self._numbered_lists = numbered_lists

    def read_blocks(self, node: etree._Element, depth: int) -> None:
        for block in node.iterchildren():
            name = local_name(block)
            if name == "h":
                level = attribute(block, "outline-level")
                self.builder.add_heading(
                    int(level) if level in set("123456789") else 1, _render_inline(block)
                )
            elif name == "p":
                self.builder.add_text(_render_inline(block).strip())
            elif name == "list":
                self.builder.add_text("\n".join(self._render_items(block, "", depth)), "list")
            elif name == "table":
                self._read_table(block)
            elif name not in _SKIPPED and depth < MAX_DEPTH:
                self.read_blocks(block, depth + 1)

    def _render_items(self, node: etree._Element, style: str, depth: int) -> Iterator[str]:
        """The lines of a list; an inner list without a style of its own has that of the outer one."""
        style = attribute(node, "style-name") or style
        for number, item in enumerate(node.iterchildren("{*}list-item", "{*}list-header"), start=1):
            mark = f"{number}. " if style in self._numbered_lists else "- "
            paragraphs = [_render_inline(inner).strip() for inner in item.iterchildren("{*}p", "{*}h")]
            text = "\n".join(filter(None, paragraphs))
            indent = " " * len(mark)
            if text:
                yield mark + text.replace("\n", f"\n{indent}")
            if depth < MAX_DEPTH:
                for inner_list in item.iterchildren("{*}list"):
                    for line in self._render_items(inner_list, style, depth + 1):
                        yield indent + line.replace("\n", f"\n{indent}")

    def _read_table(self, node: etree._Element) -> None:
        rows = [list(_render_cells(row)) for row in _find_rows(node, 0)]
        if max(map(len, rows), default=0) < 2:  # a frame around text
            for (text,) in filter(None, rows):
                self.builder.add_text(text)
        else:
            self.builder.add_table(rows)


def _find_rows(node: etree._Element, depth: int) -> Iterator[etree._Element]:
    for inner in node.iterchildren():
        if local_name(inner) == "table-row":
            yield inner
        elif local_name(inner) in _HEADER_ROWS and depth < MAX_DEPTH:
            yield from _find_rows(inner, depth + 1)


def _render_cells(row: etree._Element) -> Iterator[str]:
    for cell in row.iterchildren("{*}table-cell", "{*}covered-table-cell"):
        repeated = attribute(cell, "number-columns-repeated")
        text = "\n".join(filter(None, (_render_inline(node).strip() for node in cell.iter("{*}p", "{*}h"))))
        count = int(repeated) if repeated.isdecimal() and len(repeated) < 6 else 1
        for _ in range(min(count, MAX_COLUMNS)):
            yield text


def _render_inline(node: etree._Element, depth: int = 0) -> str:
    """The text of a paragraph, with what is in its notes and text boxes."""
    parts = [node.text or ""]
    for inner in node.iterchildren():
        name = local_name(inner)
        if name == "s":
            count = attribute(inner, "c")
            parts.append(" " * (min(int(count), _MAX_SPACES) if count.isdecimal() and len(count) < 6 else 1))
        elif name in {"tab", "line-break"}:
            parts.append("\t" if name == "tab" else "\n")
        elif name == "note-citation":
            parts.append(" (")
        elif name not in _SKIPPED and depth < MAX_DEPTH:
            text = _render_inline(inner, depth + 1)
            target = attribute(inner, "href")
            if name == "a" and target.startswith(("http://", "https://")) and text not in {"", target}:
                text = f"[{text}]({target})"
            parts.append(f"{text.strip()})" if name == "note-body" else text)
        parts.append(inner.tail or "")
    return "".join(parts)


def _find_numbered_lists(root: etree._Element) -> frozenset[str]:
    """The names of the list styles whose first level has numbers."""
    names: set[str] = set()
    for style in root.iterfind("{*}automatic-styles/{*}list-style"):
        first = next(style.iterchildren(), None)
        if first is not None and local_name(first) == "list-level-style-number":
            names.add(attribute(style, "name"))
    return frozenset(names)
