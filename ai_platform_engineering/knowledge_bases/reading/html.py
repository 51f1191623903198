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
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder, fence_code
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import to_single_line

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(
    "address article aside blockquote body center dd details dialog div dl dt fieldset figcaption figure "
    "footer form header hgroup hr html "
    "legend li main nav ol p pre section summary table tbody td tfoot th thead tr ul".split()
) | frozenset(_HEADINGS)
_IN_HEAD = frozenset("base link meta noscript script style template title".split())
_SPACE = re.compile(r"[ \t\r\n\f]+")
_ANCHOR_SIGNS = frozenset({"", "#", "¶", "§", "🔗", "link", "permalink", "copy"})
_CODE_CLASSES = ("language-", "lang-", "highlight-source-", "highlight-")


def parse(detected: DetectedDocument) -> ParsedDocument:
    builder = SectionBuilder()
    tree = _parse_page(detected.text)
    _add_content(builder, tree, _find_base_url(tree, detected))
    return builder.build_document(_find_title(tree) or builder.first_heading or detected.name)


def add_page(builder: SectionBuilder, text: str) -> None:
    """Adds the main content of a page that is inside another document."""
    _add_content(builder, _parse_page(text), "")


def _parse_page(text: str) -> HtmlElement:
    tree = document_fromstring(
        text.encode(), parser=HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    )
    _move_content_to_body(tree)
    return tree


def _add_content(builder: SectionBuilder, tree: HtmlElement, base_url: str) -> None:
    reader = _PageReader(builder, base_url)
    reader.read_children(find_main_content(tree), 0)
    reader.end_paragraph()


def _move_content_to_body(tree: HtmlElement) -> None:
    """Adds the `<body>` that a page left out: the parser does not know `main` and the like, and leaves them
    in the head."""
    head = tree.find("head")
    if head is None or tree.find("body") is not None:
        return
    content = list(itertools.dropwhile(lambda node: node.tag in _IN_HEAD, head))
    if content:
        etree.SubElement(tree, "body").extend(content)


def _find_title(tree: HtmlElement) -> str:
    for path in ("//head/title", "//title", "//h1"):
        for node in tree.xpath(path)[:1]:
            title = to_single_line(node.text_content())
            if title:
                return title
    return ""


def _find_base_url(tree: HtmlElement, detected: DetectedDocument) -> str:
    """The URL that links are relative to; empty for a file on disk."""
    page_url = ""
    for address in (detected.raw.address, detected.raw.link or ""):
        if address.startswith(("http://", "https://")):
            page_url = address
            break
    base_urls = tree.xpath("//base/@href")
    if base_urls:
        return _join_url(page_url, str(base_urls[0])) or page_url
    return page_url


def _join_url(base: str, target: str) -> str:
    """The target as a URL of the web, or nothing."""
    try:
        address = urljoin(base, target.strip())
        if urlsplit(address).scheme in {"http", "https"}:
            return address
        return ""
    except ValueError:
        return ""


class _PageReader:
    """Reads the blocks of a page in order; `_words` is the paragraph so far."""

    def __init__(self, builder: SectionBuilder, base: str) -> None:
        self.builder = builder
        self._base = base
        self._words: list[str] = []

    def read_children(self, node: HtmlElement, depth: int) -> None:
        """Reads everything inside the element."""
        if depth > MAX_DEPTH:
            self._words.append(_collapse_spaces(node.text_content()))
            return
        self._words.append(_collapse_spaces(node.text))
        for child in node.iterchildren(tag=etree.Element):
            if self.builder.is_full:
                self.builder.leave_out(len(child.text_content()))
            elif not is_hidden(child):
                self._read_element(child, depth + 1)
            self._words.append(_collapse_spaces(child.tail))

    def end_paragraph(self) -> None:
        self.builder.add_text(_tidy_lines("".join(self._words)))
        self._words.clear()

    def _read_element(self, node: HtmlElement, depth: int) -> None:
        tag = node.tag
        if tag not in _BLOCKS and not (tag == "code" and "\n" in node.text_content().strip()):
            self._words.append(self._render_inline(node, depth))
            return
        self.end_paragraph()
        if tag in _HEADINGS:
            self.builder.add_heading(_HEADINGS[tag], self._render_inline(node, depth, links=False))
        elif tag in {"pre", "code"}:
            self.builder.add_text(fence_code(node.text_content().expandtabs(4), _find_language(node)), "code")
        elif tag == "table":
            self._read_table(node, depth)
        elif tag in {"ul", "ol"} and next(node.iter("pre", "table"), None) is None:
            self.builder.add_text("\n".join(self._render_items(node, depth)), "list")
        elif tag == "blockquote":
            quote = _tidy_lines(self._render_inline(node, depth))
            self.builder.add_text("> " + quote.replace("\n", "\n> "))
        else:
            if tag == "li":
                self._words.append("- ")
            self.read_children(node, depth)
            self.end_paragraph()

    def _read_table(self, node: HtmlElement, depth: int) -> None:
        rows = [list(row.iterchildren("td", "th")) for row in node.iter("tr") if _table_of(row) is node]
        is_layout = node.xpath("(.//table | .//h1 | .//h2 | .//h3 | .//ul//ul)[1]")
        if is_layout or max(map(len, rows), default=0) < 2:  # it may have line numbers beside code
            self.read_children(node, depth)
            self.end_paragraph()
            return
        for caption in node.iterchildren("caption"):
            self.builder.add_text(_tidy_lines(self._render_inline(caption, depth)))
        texts: list[list[str]] = []
        for cells in filter(None, rows):
            texts.append([self._render_inline(cell, depth) for cell in cells])
        self.builder.add_table(texts)

    def _render_items(self, node: HtmlElement, depth: int) -> Iterator[str]:
        for number, item in enumerate(node.iterchildren("li"), start=1):
            if is_hidden(item):
                continue
            mark = "- "
            if node.tag == "ol":
                mark = f"{number}. "
            indent = " " * len(mark)
            text = _tidy_lines(self._render_inline(item, depth, leave_out=("ul", "ol")))
            if text:
                yield mark + text.replace("\n", f"\n{indent}")
            if depth < MAX_DEPTH:
                for inner_list in item.iterchildren("ul", "ol"):
                    for inner_item in self._render_items(inner_list, depth + 1):
                        yield from (indent + line for line in inner_item.split("\n"))

    def _render_inline(
        self, node: HtmlElement, depth: int, *, links: bool = True, leave_out: tuple[str, ...] = ()
    ) -> str:
        """The text inside an element, on as many lines as it has blocks."""
        tag = node.tag
        if tag == "br":
            return "\n"
        if tag == "img":
            return to_single_line(node.get("alt") or "")
        if depth > MAX_DEPTH:
            return _collapse_spaces(node.text_content())
        parts = [_collapse_spaces(node.text)]
        for child in node.iterchildren(tag=etree.Element):
            if child.tag not in leave_out and not is_hidden(child):
                inner = self._render_inline(child, depth + 1, links=links)
                if child.tag in _BLOCKS:
                    inner = f"\n{inner}\n"
                parts.append(inner)
            parts.append(_collapse_spaces(child.tail))
        text = "".join(parts)
        if tag == "a":
            return self._render_link(node, text, links)
        if tag in {"code", "kbd", "samp"} and text.strip() and "`" not in text:
            return f"`{text.strip()}`"
        return text

    def _render_link(self, node: HtmlElement, text: str, links: bool) -> str:
        target = node.get("href") or ""
        if target.startswith("#") or not target:
            if text.strip().lower() in _ANCHOR_SIGNS:
                return ""
            return text
        address = _join_url(self._base, target)
        if links and address and text.strip() and len(address) < 2_000:
            return f"[{to_single_line(text)}]({address})"
        return text


def _collapse_spaces(text: str | None) -> str:
    """Line ends of the source mean nothing."""
    if text:
        return _SPACE.sub(" ", text)
    return ""


def _tidy_lines(text: str) -> str:
    """One line per block, single spaces."""
    return "\n".join(line for part in text.split("\n") if (line := " ".join(part.split())))


def _table_of(row: HtmlElement) -> HtmlElement | None:
    return next(row.iterancestors("table"), None)


def _find_language(node: HtmlElement) -> str:
    """As highlighters write it into a class, on the element, inside or around it."""
    around = (node, *node.iterchildren("code"), *itertools.islice(node.iterancestors(), 2))
    for name in " ".join(element.get("class") or "" for element in around).split():
        for prefix in _CODE_CLASSES:
            if name.startswith(prefix) and name != prefix + "text":
                return name.removeprefix(prefix)[:20]
    return ""
