"""Markdown for a terminal: no text is left out, tables keep every cell, links show their address."""

from collections.abc import Sequence
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

_CODE_INDENT = 2
_SEPARATOR_WIDTH = 2  # between two columns
_MAX_HEADING_SHARE = 3  # a stacked row's headings take a third of the width at most
_LIST_OPENINGS = ("bullet_list_open", "ordered_list_open")
_LIST_ENDS = ("bullet_list_close", "ordered_list_close")

# Raw HTML stays text: a model writes `<name>` for a placeholder. An image is a link, whose address is shown.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("image")


class TerminalMarkdown(Markdown):
    """Markdown with wrapped or stacked tables, plain code blocks, and the addresses of links."""

    elements: ClassVar[dict[str, type[MarkdownElement]]]

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)  # the real address is printed, so a link cannot lie
        self.parsed = _PARSER.parse(text)


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _PlainCodeBlock(CodeBlock):
    """Code in the terminal's own colours, without a background that would be copied as spaces."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        syntax = Syntax(
            code, self.lexer_name, theme="ansi_dark", background_color="default", word_wrap=True, padding=0
        )
        yield Padding(syntax, (0, 0, 0, _CODE_INDENT))


class _NumberedItem(ListItem):
    """An item whose number keeps its full stop."""

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        width = len(str(last_number)) + 2
        lines = console.render_lines(
            self.elements, options.update(width=options.max_width - width), style=self.style
        )
        for line_number, line in enumerate(lines):
            opening = " " * width if line_number else f"{number}.".rjust(width - 1) + " "
            yield Segment(opening, console.get_style("markdown.item.number", default="none"))
            yield from line
            yield Segment("\n")


class _WholeTable(TableElement):
    """A table whose words are never cut: cells wrap, and where that does not fit, rows are stacked."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        headings = self._read_headings()
        rows = self._read_rows(len(headings))
        widths = [_longest_word(column) for column in zip(headings, *rows, strict=False)]
        needed_width = sum(widths) + _SEPARATOR_WIDTH * (len(widths) + 1)
        if needed_width <= options.max_width:
            yield _build_table(headings, rows, widths)
        else:
            yield from _stack_rows(headings, rows, options.max_width)

    def _read_headings(self) -> list[Text]:
        if self.header is None or self.header.row is None:
            return []
        return [cell.content for cell in self.header.row.cells]

    def _read_rows(self, column_count: int) -> list[list[Text]]:
        rows: list[list[Text]] = []
        for row in self.body.rows if self.body is not None else ():
            cells = [cell.content for cell in row.cells[:column_count]]
            cells += [Text()] * (column_count - len(cells))
            rows.append(cells)
        return rows


TerminalMarkdown.elements = {
    **Markdown.elements,
    "heading_open": _LeftHeading,
    "fence": _PlainCodeBlock,
    "code_block": _PlainCodeBlock,
    "list_item_open": _NumberedItem,
    "table_open": _WholeTable,
}


def _longest_word(cells: Sequence[Text]) -> int:
    """The width below which a column would break a word."""
    words = [word for cell in cells for word in cell.plain.split()]
    return max(map(cell_len, words), default=1)


def _build_table(headings: Sequence[Text], rows: Sequence[Sequence[Text]], widths: Sequence[int]) -> Table:
    table = Table(
        box=box.SIMPLE, pad_edge=False, show_edge=False, style="markdown.table.border", collapse_padding=True
    )
    for heading, width in zip(headings, widths, strict=True):
        title = heading.copy()
        title.stylize("markdown.table.header")
        table.add_column(title, min_width=width, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _stack_rows(headings: Sequence[Text], rows: Sequence[Sequence[Text]], max_width: int) -> RenderResult:
    """Each row as lines of heading and value, with an empty line between rows."""
    widest_heading = max((cell_len(heading.plain) for heading in headings), default=1)
    heading_width = min(widest_heading, max(1, max_width // _MAX_HEADING_SHARE))
    for number, row in enumerate(rows):
        if number:
            yield Text()
        grid = Table.grid(padding=(0, _SEPARATOR_WIDTH, 0, 0))
        grid.add_column(width=heading_width, overflow="fold")
        grid.add_column(overflow="fold")
        for heading, cell in zip(headings, row, strict=True):
            title = heading.copy()
            title.stylize("markdown.table.header")
            grid.add_row(title, cell)
        yield grid


def find_block_starts(text: str) -> list[int]:
    """The line numbers at which top-level blocks, and items of top-level lists, begin."""
    starts = set[int]()
    for token in _PARSER.parse(text):
        if token.map and _begins_block(token):
            starts.add(token.map[0])
    return sorted(starts)


def _begins_block(token: Token) -> bool:
    return token.level == 0 or (token.level == 1 and token.type == "list_item_open")


def find_outer_items(text: str) -> tuple[bool, bool]:
    """Whether the text begins, and whether it ends, with an item of a top-level list."""
    outer_types = [token.type for token in _PARSER.parse(text) if token.level == 0]
    if not outer_types:
        return False, False
    return outer_types[0] in _LIST_OPENINGS, outer_types[-1] in _LIST_ENDS


def shorten_open_code(text: str, max_lines: int) -> str:
    """The last lines of an open code block as a code block; other text as it is.

    Drawing a long block anew for each piece would take longer and longer.
    """
    lines = text.split("\n")
    tokens = _PARSER.parse(text)
    if len(lines) <= max_lines or len(tokens) != 1 or tokens[0].type != "fence":
        return text
    return "\n".join([lines[0], *lines[-max_lines:]])
