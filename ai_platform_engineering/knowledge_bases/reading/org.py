"""Org files: headings without their keywords and tags, lists, tables and source blocks."""

import re
from collections.abc import Iterator

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.markup_lines import LineCollector

_HEADING = re.compile(r"(\*{1,30})\s+(\S.*)")
_KEYWORD = re.compile(r"(?:TODO|DONE|NEXT|WAITING|CANCELLED|CANCELED|HOLD|STARTED)\s+")
_PRIORITY = re.compile(r"\[#[A-Z0-9]\]\s*")
_TAGS = re.compile(r"\s:[\w@#%:]{1,200}:$")
_BEGIN = re.compile(r"\s*#\+begin_(\w{1,30})(?:\s+([\w+-]{1,30}))?", re.IGNORECASE)
_SETTING = re.compile(r"\s*#\+(\w{1,40})(?:\[[^\]]{0,80}\])?:\s*(.*)", re.IGNORECASE)
_DRAWER = re.compile(r"\s*:[\w-]{1,40}:\s*$")
_PLANNING = re.compile(r"\s*(?:CLOSED|SCHEDULED|DEADLINE|CLOCK):\s*[\[<]")
_ITEM = re.compile(r"(\s*)(?:[-+]|\d{1,4}[.)])\s+\S")
_TABLE = re.compile(r"\s*\|")
_RULE = re.compile(r"\s*\|[-+|]{2,}\s*$")
_LINK = re.compile(r"\[\[([^\[\]]{1,500})\](?:\[([^\[\]]{1,300})\])?\]")
_CODE_BLOCKS = frozenset({"src", "example", "export", "verbatim"})


def parse(detected: DetectedDocument) -> ParsedDocument:
    reader = _OrgReader()
    reader.read(iter(detected.text.split("\n")))
    title = reader.title or reader.lines.builder.first_heading or detected.name
    return reader.lines.builder.build_document(title)


class _OrgReader:
    """Reads line by line."""

    def __init__(self) -> None:
        self.lines = LineCollector()
        self.title = ""

    def read(self, source: Iterator[str]) -> None:
        for line in source:
            if begin := _BEGIN.match(line):
                self._read_block(source, begin[1].lower(), begin[2] or "")
            elif _DRAWER.match(line):
                _take_until(source, ":end:")
            else:
                self._read_line(line)
        self.lines.end_block()

    def _read_line(self, line: str) -> None:
        if not line.strip():
            self.lines.end_block()
        elif heading := _HEADING.match(line):
            text = _PRIORITY.sub("", _KEYWORD.sub("", heading[2], count=1), count=1)
            self.lines.add_heading(min(len(heading[1]), 9), _render(_TAGS.sub("", text.rstrip())))
        elif setting := _SETTING.match(line):
            self._read_setting(setting[1].lower(), setting[2])
        elif _PLANNING.match(line) or _RULE.match(line) or line.lstrip().startswith("# "):
            return
        elif _TABLE.match(line):
            cells = line.strip().strip("|").split("|")
            self.lines.add_row([_render(cell.strip()) for cell in cells])
        elif _ITEM.match(line) or (self.lines.kind == "list" and line[:1].isspace()):
            self.lines.add_line(_render(line), "list")
        else:
            self.lines.add_line(_render(line.strip()))

    def _read_setting(self, name: str, value: str) -> None:
        if name == "title":
            self.title = f"{self.title} {_render(value)}".strip()
        elif name in {"caption", "description"}:
            self.lines.end_block()
            self.lines.add_line(_render(value))
            self.lines.end_block()

    def _read_block(self, source: Iterator[str], name: str, language: str) -> None:
        block = _take_until(source, f"#+end_{name}")
        if name in _CODE_BLOCKS:
            self.lines.add_code(block, language if name == "src" else "")
        elif name != "comment":
            self.lines.end_block()
            for line in block:
                self._read_line(line)
            self.lines.end_block()


def _render(text: str) -> str:
    return _LINK.sub(_render_link, text)


def _render_link(link: re.Match[str]) -> str:
    target, text = link[1], link[2]
    if not text:
        return target
    if target.startswith(("http://", "https://")):
        return f"[{text}]({target})"
    return text


def _take_until(source: Iterator[str], end: str) -> list[str]:
    """The lines up to the end, all taken from the source."""
    lines: list[str] = []
    for line in source:
        if line.strip().lower() == end:
            break
        lines.append(line)
    return lines
