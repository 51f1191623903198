"""Web pages: the main content as Markdown-like text."""

import itertools
import re
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.html_content import find_main_content, is_hidden
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DEPTH
from ai_platform_engineering.knowledge_bases.reading.section_builder import (
    SectionBuilder,
    fence_code,
    render_table,
)
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import to_single_line

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(
    "address article aside blockquote body center dd details dialog div dl dt fieldset figcaption figure footer form header hgroup hr html "
    "legend li main nav ol p pre section summary table tbody td tfoot th thead tr ul".split()
) | frozenset(_HEADINGS)
_IN_HEAD = frozenset("base link meta noscript script style template title".split())
_SPACE = re.compile(r"[ \t\r\n\f]+")
_ANCHOR_SIGNS = frozenset({"", "#", "¶", "§", "🔗", "link", "permalink", "copy"})
_CODE_CLASSES = ("language-", "lang-", "highlight-source-", "highlight-")


def parse(found: DetectedDocument) -> ParsedDocument:
    tree = document_fromstring(
        found.text.encode(), parser=HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    )
    _give_body(tree)
    page = _Page(_base(tree, found))
    page.walk(find_main_content(tree), 0)
    page.end_paragraph()
    return ParsedDocument(_title(tree) or page.outline.first_heading or found.name, page.outline.build())


def _give_body(tree: HtmlElement) -> None:
    """A page may leave `<body>` out. The parser does not know `main` and the like, and has left them in the head then."""
    head = tree.find("head")
    if head is None or tree.find("body") is not None:
        return
    if content := list(itertools.dropwhile(lambda node: node.tag in _IN_HEAD, head)):
        etree.SubElement(tree, "body").extend(content)


def _title(tree: HtmlElement) -> str:
    for path in ("//head/title", "//title", "//h1"):
        for node in tree.xpath(path)[:1]:
            if title := to_single_line(node.text_content()):
                return title
    return ""


def _base(tree: HtmlElement, found: DetectedDocument) -> str:
    """What relative links are relative to; nothing for a file on disk."""
    address = next(
        (
            text
            for text in (found.raw.address, found.raw.link or "")
            if text.startswith(("http://", "https://"))
        ),
        "",
    )
    declared = tree.xpath("//base/@href")
    if declared:
        return _joined(address, str(declared[0])) or address
    return address


def _joined(base: str, target: str) -> str:
    """The target as an address of the web, or nothing."""
    try:
        address = urljoin(base, target.strip())
        if urlsplit(address).scheme in {"http", "https"}:
            return address
        return ""
    except ValueError:
        return ""


class _Page:
    """Blocks of a page as they are met; `words` is the paragraph that is being written."""

    def __init__(self, base: str) -> None:
        self.outline = SectionBuilder()
        self._base = base
        self._words: list[str] = []

    def walk(self, node: HtmlElement, depth: int) -> None:
        """Everything inside the element."""
        if depth > MAX_DEPTH:
            self._words.append(_flat(node.text_content()))
            return
        self._words.append(_flat(node.text))
        for child in node.iterchildren(tag=etree.Element):
            if not is_hidden(child) and not self.outline.is_full:
                self._element(child, depth + 1)
            self._words.append(_flat(child.tail))

    def end_paragraph(self) -> None:
        self.outline.add_text(_tidy("".join(self._words)))
        self._words.clear()

    def _element(self, node: HtmlElement, depth: int) -> None:
        tag = node.tag
        if tag not in _BLOCKS and not (tag == "code" and "\n" in node.text_content().strip()):
            self._words.append(self._inline(node, depth))
            return
        self.end_paragraph()
        if tag in _HEADINGS:
            self.outline.add_heading(_HEADINGS[tag], self._inline(node, depth, links=False))
        elif tag in {"pre", "code"}:
            self.outline.add_text(fence_code(node.text_content().expandtabs(4), _language(node)), "code")
        elif tag == "table":
            self._table(node, depth)
        elif tag in {"ul", "ol"} and next(node.iter("pre", "table"), None) is None:
            self.outline.add_text("\n".join(self._items(node, depth)), "list")
        elif tag == "blockquote":
            self.outline.add_text(
                "\n".join(f"> {line}" for line in _tidy(self._inline(node, depth)).split("\n"))
            )
        else:
            self._words.append("- " if tag == "li" else "")
            self.walk(node, depth)
            self.end_paragraph()

    def _table(self, node: HtmlElement, depth: int) -> None:
        rows = [list(row.iterchildren("td", "th")) for row in node.iter("tr") if _table_of(row) is node]
        if max(map(len, rows), default=0) < 2 or node.xpath(
            "(.//table | .//h1 | .//h2 | .//h3 | .//ul//ul)[1]"
        ):
            self.walk(node, depth)  # it places things, or has line numbers beside code
            self.end_paragraph()
            return
        for caption in node.iterchildren("caption"):
            self.outline.add_text(_tidy(self._inline(caption, depth)))
        self.outline.add_text(
            render_table([[self._inline(cell, depth) for cell in cells] for cells in rows if cells]), "table"
        )

    def _items(self, node: HtmlElement, depth: int) -> Iterator[str]:
        for number, item in enumerate(node.iterchildren("li"), start=1):
            if is_hidden(item):
                continue
            mark = f"{number}. " if node.tag == "ol" else "- "
            text = _tidy(self._inline(item, depth, leave_out=("ul", "ol")))
            if text:
                yield mark + text.replace("\n", "\n" + " " * len(mark))
            if depth < MAX_DEPTH:
                for inner in item.iterchildren("ul", "ol"):
                    yield from (
                        " " * len(mark) + line
                        for part in self._items(inner, depth + 1)
                        for line in part.split("\n")
                    )

    def _inline(
        self, node: HtmlElement, depth: int, *, links: bool = True, leave_out: tuple[str, ...] = ()
    ) -> str:
        """The text inside an element, on as many lines as it has blocks."""
        tag = node.tag
        if tag == "br":
            return "\n"
        if tag == "img":
            return to_single_line(node.get("alt") or "")
        if depth > MAX_DEPTH:
            return _flat(node.text_content())
        parts = [_flat(node.text)]
        for child in node.iterchildren(tag=etree.Element):
            if child.tag not in leave_out and not is_hidden(child):
                inner = self._inline(child, depth + 1, links=links)
                parts.append(f"\n{inner}\n" if child.tag in _BLOCKS else inner)
            parts.append(_flat(child.tail))
        text = "".join(parts)
        if tag == "a":
            return self._link(node, text, links)
        if tag in {"code", "kbd", "samp"} and text.strip() and "`" not in text:
            return f"`{text.strip()}`"
        return text

    def _link(self, node: HtmlElement, text: str, links: bool) -> str:
        target = node.get("href") or ""
        if target.startswith("#") or not target:
            if text.strip().lower() in _ANCHOR_SIGNS:
                return ""
            return text
        address = _joined(self._base, target)
        if links and address and text.strip() and len(address) < 2_000:
            return f"[{to_single_line(text)}]({address})"
        return text


def _flat(text: str | None) -> str:
    """Line ends of the source mean nothing."""
    if text:
        return _SPACE.sub(" ", text)
    return ""


def _tidy(text: str) -> str:
    """One line per block, single spaces."""
    return "\n".join(line for part in text.split("\n") if (line := " ".join(part.split())))


def _table_of(row: HtmlElement) -> HtmlElement | None:
    return next(row.iterancestors("table"), None)


def _language(node: HtmlElement) -> str:
    """As highlighters write it into a class, on the element, inside or around it."""
    around = (node, *node.iterchildren("code"), *itertools.islice(node.iterancestors(), 2))
    for name in " ".join(element.get("class") or "" for element in around).split():
        for prefix in _CODE_CLASSES:
            if name.startswith(prefix) and name != prefix + "text":
                return name.removeprefix(prefix)[:20]
    return ""
