"""AsciiDoc: headings, lists, tables and listings; other files that it includes are not read."""

import re
from collections.abc import Iterator

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.markup_lines import LineCollector

_HEADING = re.compile(r"(={1,6}|#{1,6})\s+(\S.*)")
_ATTRIBUTE = re.compile(r":(!?[\w][\w-]{0,60}!?):(?:\s+(.*))?$")
_REFERENCE = re.compile(r"\{([\w][\w-]{0,60})\}")
_BULLET = re.compile(r"\s*(\*{1,5}|-)\s+(\S.*)")
_NUMBERED = re.compile(r"\s*(\.{1,5}|\d{1,4}\.)\s+(\S.*)")
_TERM = re.compile(r"(\S.{0,300}?)(?:::|;;)(?:\s+(.*))?$")
_BLOCK_ATTRIBUTES = re.compile(r"\[([^\[\]]{0,300})\]\s*$")
_BLOCK_TITLE = re.compile(r"\.([^\s.].*)")
_LISTING = re.compile(r"(?:-{4,}|\.{4,}|\+{4,}|`{3,})(\w*)\s*$")
_CONTAINER = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--)\s*$")
_COMMENT_BLOCK = re.compile(r"/{4,}\s*$")
_TABLE = re.compile(r"[|,:!]={3,}\s*$")
_CELL_FORMAT = re.compile(r"(?:\d{1,3}(?:\.\d{1,3})?[+*]|\.\d{1,3}\+)?[<^>]?(?:\.[<^>])?[aehlmsd]?$")
_LINK = re.compile(r"(?:link:)?(https?://[^\s\[\]<>]{1,500})\[([^\[\]]{0,300})\]")
_CROSS_REFERENCE = re.compile(r"(?:xref|link|mailto):([^\s\[\]]{1,300})\[([^\[\]]{0,300})\]")
_ANGLE_REFERENCE = re.compile(r"<<([^<>,]{1,200})(?:,([^<>]{1,200}))?>>")
_IMAGE = re.compile(r"image::?[^\s\[\]]{1,300}\[([^\[\],]{0,300})[^\[\]]{0,300}\]")
_ANCHOR = re.compile(r"\[\[[^\[\]]{1,200}\]\]")
_DIRECTIVE = re.compile(r"(?:include|toc|ifdef|ifndef|ifeval|endif|video|audio)::")


def parse(detected: DetectedDocument) -> ParsedDocument:
    reader = _AsciiDocReader()
    reader.read(iter(detected.text.split("\n")))
    return reader.lines.builder.build_document(reader.title or detected.name)


class _AsciiDocReader:
    """Reads line by line; `_block` are the attributes in front of a block."""

    def __init__(self) -> None:
        self.lines = LineCollector()
        self.title = ""
        self._attributes: dict[str, str] = {}
        self._block: list[str] = []

    def read(self, source: Iterator[str]) -> None:
        for line in source:
            if listing := _LISTING.match(line):
                self._read_listing(source, line.rstrip(), listing[1])
            elif _COMMENT_BLOCK.match(line):
                _take_until(source, line.rstrip())
            elif _TABLE.match(line):
                self._read_table(_take_until(source, line.rstrip()))
            else:
                self._read_line(line)
        self.lines.end_block()

    def _read_line(self, line: str) -> None:
        if not line.strip():
            if self.lines.kind != "list":  # items may have blank lines between them
                self.lines.end_block()
        elif line.startswith("//") or _DIRECTIVE.match(line) or line.strip() in {"+", "'''", "<<<"}:
            return
        elif _CONTAINER.match(line):
            self.lines.end_block()
        elif attribute := _ATTRIBUTE.match(line):
            self._attributes[attribute[1]] = (attribute[2] or "").strip()
        elif heading := _HEADING.match(line):
            self._add_heading(len(heading[1]), self._render(heading[2]))
        elif block := _BLOCK_ATTRIBUTES.match(line):
            self._block = [part.strip() for part in block[1].split(",")]
        elif block_title := _BLOCK_TITLE.match(line):
            self.lines.end_block()
            self.lines.add_line(self._render(block_title[1]))
            self.lines.end_block()
        else:
            self._read_text(line)

    def _read_text(self, line: str) -> None:
        if bullet := _BULLET.match(line):
            self.lines.add_line(f"{'  ' * (len(bullet[1]) - 1)}- {self._render(bullet[2])}", "list")
        elif number := _NUMBERED.match(line):
            depth = 0 if number[1][0].isdigit() else len(number[1]) - 1
            self.lines.add_line(f"{'   ' * depth}1. {self._render(number[2])}", "list")
        elif term := _TERM.match(line):
            self.lines.add_line(f"- {self._render(term[1])}: {self._render(term[2] or '')}".rstrip(), "list")
        elif self.lines.kind == "list" and line[:1].isspace():
            self.lines.add_line(f"  {self._render(line.strip())}", "list")
        else:
            self.lines.add_line(self._render(line))

    def _add_heading(self, level: int, text: str) -> None:
        if level == 1 and not self.title:
            self.title = text
        self.lines.add_heading(level, text)

    def _read_listing(self, source: Iterator[str], fence: str, fence_language: str) -> None:
        delimiter = fence[: len(fence) - len(fence_language)]
        language = fence_language
        if len(self._block) > 1 and self._block[0] in {"source", ""}:
            language = self._block[1]
        self._block = []
        self.lines.add_code(list(_take_until(source, delimiter)), language)

    def _read_table(self, source: Iterator[str]) -> None:
        """A row is a line of cells, or as many lines as the first row has cells."""
        self._block = []
        self.lines.end_block()
        rows: list[list[str]] = []
        row_ended = True
        for line in source:
            if not line.strip():
                row_ended = True
            elif "|" not in line:
                if rows:
                    rows[-1][-1] += f" {self._render(line.strip())}"
            else:
                cells = _split_cells(line)
                rendered = [self._render(cell) for cell in cells]
                is_part = len(rendered) == 1 and rows and len(rows[0]) > 1 and len(rows[-1]) < len(rows[0])
                if is_part or (rows and not row_ended and len(rendered) == 1 and len(rows) == 1):
                    rows[-1] += rendered
                else:
                    rows.append(rendered)
                row_ended = False
        for row in rows:
            self.lines.add_row(row)
        self.lines.end_block()

    def _render(self, text: str) -> str:
        text = _REFERENCE.sub(lambda name: self._attributes.get(name[1], name[0]), text)
        text = _ANCHOR.sub("", _IMAGE.sub(r"\1", text))
        text = _LINK.sub(lambda link: f"[{link[2].rstrip('^')}]({link[1]})" if link[2] else link[1], text)
        text = _CROSS_REFERENCE.sub(lambda reference: reference[2] or reference[1], text)
        return _ANGLE_REFERENCE.sub(lambda reference: reference[2] or reference[1], text).removesuffix(" +")


def _split_cells(line: str) -> list[str]:
    """The cells of a line; what stands before a bar may be the format of the cell behind it."""
    pieces = line.strip().split("|")
    cells: list[str] = []
    for piece in pieces[1:]:
        cells.append(piece)
    for number, cell in enumerate(cells[:-1]):
        text, space, last = cell.rpartition(" ")
        if last and _CELL_FORMAT.match(last) and (space or not text):
            cells[number] = text
    return [cell.strip() for cell in cells]


def _take_until(source: Iterator[str], delimiter: str) -> Iterator[str]:
    """The lines up to the delimiter, all taken from the source."""
    lines: list[str] = []
    for line in source:
        if line.rstrip() == delimiter:
            break
        lines.append(line)
    return iter(lines)
