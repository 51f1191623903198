"""Lines of a lightweight markup, collected into paragraphs, lists, tables and code blocks."""

from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder, fence_code


class LineCollector:
    """Collects lines of one kind until a line of another kind, or an end, makes a section of them."""

    def __init__(self) -> None:
        self.builder = SectionBuilder()
        self._kind = ""
        self._lines: list[str] = []
        self._rows: list[list[str]] = []

    @property
    def kind(self) -> str:
        """prose, list or table; empty when nothing is collected."""
        return self._kind

    def add_line(self, line: str, kind: str = "prose") -> None:
        self._begin(kind)
        self._lines.append(line)

    def add_row(self, cells: list[str]) -> None:
        self._begin("table")
        self._rows.append(cells)

    def add_heading(self, level: int, text: str) -> None:
        self.end_block()
        self.builder.add_heading(level, text)

    def add_code(self, lines: list[str], language: str = "") -> None:
        self.end_block()
        if any(line.strip() for line in lines):
            self.builder.add_text(fence_code("\n".join(lines), language), "code")

    def end_block(self) -> None:
        if self._rows:
            self.builder.add_table(self._rows)
        else:
            self.builder.add_text("\n".join(self._lines), self._kind or "prose")
        self._kind = ""
        self._lines = []
        self._rows = []

    def _begin(self, kind: str) -> None:
        if self._kind != kind:
            self.end_block()
            self._kind = kind
