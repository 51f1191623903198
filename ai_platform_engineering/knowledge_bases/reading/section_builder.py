"""Builds the sections of a document: readers add headings, texts and tables in order."""

from collections.abc import Iterable, Sequence
from itertools import islice

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_ROWS, MAX_TEXT_CHARS
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import to_single_line


class SectionBuilder:
    """Collects sections; when it `is_full`, it only counts what is left out."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []
        self._sections: list[Section] = []
        self._heading_is_empty = False  # the last heading has nothing under it yet
        self._length = 0
        self._missing_chars = 0
        self._missing_parts: list[str] = []

    @property
    def is_full(self) -> bool:
        return self._length > MAX_TEXT_CHARS

    @property
    def has_text(self) -> bool:
        return self._length > 0

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(text for _, text in self._path)

    @property
    def first_heading(self) -> str:
        """The first heading of all, or nothing."""
        for section in self._sections:
            if section.headings:
                return section.headings[0]
        return next(iter(self.headings), "")

    def add_heading(self, level: int, text: str) -> None:
        text = to_single_line(text)
        if not text or self.is_full:
            return
        if self._heading_is_empty and self._path and level <= self._path[-1][0]:
            self._sections.append(Section("", self.headings))
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, text))
        self._heading_is_empty = True

    def add_text(self, text: str, kind: str = "prose") -> None:
        if self.is_full:
            self.leave_out(len(text))
        elif text.strip():
            self._sections.append(Section(text.strip("\n").rstrip(), self.headings, kind))
            self._heading_is_empty = False
            self._length += len(text)

    def add_table(self, rows: Iterable[Sequence[str]]) -> None:
        """The rows as a Markdown table; the first row is its header."""
        remaining = iter(rows)
        self.add_text(render_table(islice(remaining, MAX_ROWS + 1)), "table")
        missing_rows = sum(1 for _ in remaining)
        if missing_rows:
            where = f" under {self.headings[-1]}" if self.headings else ""
            self.leave_out_part(
                f"the last {missing_rows:,} of {MAX_ROWS + missing_rows:,} rows of the table{where}"
            )

    def leave_out(self, chars: int) -> None:
        """Counts characters that were not added."""
        self._missing_chars += chars

    def leave_out_part(self, part: str) -> None:
        """Names something that was not added, with its extent: `the last 200 of 5,200 pages`."""
        self._missing_parts.append(part)

    def build(self) -> tuple[Section, ...]:
        sections = list(self._sections)
        if self._heading_is_empty:
            sections.append(Section("", self.headings))
        return tuple(sections)

    def build_document(self, title: str) -> ParsedDocument:
        return ParsedDocument(
            title,
            self.build(),
            missing_chars=self._missing_chars,
            missing_parts=tuple(self._missing_parts),
        )


def render_table(rows: Iterable[Sequence[str]]) -> str:
    """The rows as a Markdown table; the first row is its header."""
    lines: list[str] = []
    for number, cells in enumerate(rows):
        lines.append(
            f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"
        )
        if number == 0:
            lines.append("|" + " --- |" * len(cells))
    return "\n".join(lines)


def fence_code(text: str, language: str = "") -> str:
    """The code between fences that do not occur in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"
