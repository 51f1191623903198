"""Collects what readers find, in order, under the headings that stand above it."""

from collections.abc import Iterable, Sequence

from ai_platform_engineering.knowledge_bases.documents import Section
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_ROWS, MAX_TEXT_CHARS
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import to_single_line


class SectionBuilder:
    """The sections so far; `full` when more would be left out anyway."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []
        self._sections: list[Section] = []
        self._bare = False  # the last heading has nothing under it yet
        self._length = 0

    @property
    def is_full(self) -> bool:
        return self._length > MAX_TEXT_CHARS

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(text for _, text in self._path)

    @property
    def first_heading(self) -> str:
        """The first heading of all, or nothing."""
        found = next((section.headings for section in self._sections if section.headings), self.headings)
        if found:
            return found[0]
        return ""

    def add_heading(self, level: int, text: str) -> None:
        text = to_single_line(text)
        if not text:
            return
        if self._bare and self._path and level <= self._path[-1][0]:
            self._sections.append(Section("", self.headings))
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, text))
        self._bare = True

    def add_text(self, text: str, kind: str = "prose") -> None:
        if text.strip() and not self.is_full:
            self._sections.append(Section(text.strip("\n").rstrip(), self.headings, kind))
            self._bare = False
            self._length += len(text)

    def build(self) -> tuple[Section, ...]:
        last = (Section("", self.headings),) if self._bare else ()
        return (*self._sections, *last)


def render_table(rows: Iterable[Sequence[str]]) -> str:
    """The rows as a Markdown table; the first row is its header."""
    lines: list[str] = []
    for number, cells in enumerate(rows):
        if number > MAX_ROWS:
            lines.append("| [more rows are left out] |")
            break
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
