"""Markdown, kept as it was written: only its blocks are told apart."""

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.json_yaml import load_yaml
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

# Blocks only: what stands inside a line is for the reader of the text.
_BLOCKS = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])
_KINDS = {
    "fence": "code",
    "code_block": "code",
    "table_open": "table",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
}
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,2000}>")
_HTML_HEADING = re.compile(r"\s{0,3}<h([1-6])\b", re.IGNORECASE)
_LINK = re.compile(r"!?\[([^\[\]]{0,300})\](?:\([^()\s]{0,500}(?:\s[^()]{0,200})?\)|\[[^\[\]]{0,200}\])")
_ATTRIBUTES = re.compile(r"\s\{[#.:][^{}]{0,200}\}$")
_MARKS = str.maketrans("", "", "*`")


def parse(found: DetectedDocument) -> ParsedDocument:
    front, text = _front_matter(found.text)
    outline = SectionBuilder()
    title, description = front.get("title"), front.get("description")
    if isinstance(description, str):
        outline.add_text(description)
    lines = text.split("\n")
    for token, block in _blocks(text, lines):
        _add(outline, token, block)
    return ParsedDocument(
        title if isinstance(title, str) and title.strip() else outline.first_heading or found.name,
        outline.build(),
    )


def _front_matter(text: str) -> tuple[dict[str, object], str]:
    if not text.startswith("---\n"):
        return {}, text
    end = text.find("\n---\n", 3)
    if end < 0:
        return {}, text
    front = load_yaml(text[4 : end + 1])
    # A page may just as well begin with a rule.
    if isinstance(front, dict):
        return (front, text[end + 5 :])
    return ({}, text)


def _blocks(text: str, lines: list[str]) -> Iterator[tuple[Token | None, str]]:
    """The blocks and, as None, the lines between them: definitions of links have no token."""
    at = 0
    for token in _BLOCKS.parse(text):
        if token.level or not token.map or token.nesting < 0:
            continue
        begin, end = token.map
        if begin > at:
            yield None, "\n".join(lines[at:begin])
        yield token, "\n".join(lines[begin:end])
        at = max(at, end)
    if at < len(lines):
        yield None, "\n".join(lines[at:])


def _add(outline: SectionBuilder, token: Token | None, block: str) -> None:
    if token is not None and token.type == "heading_open":
        outline.add_heading(int(token.tag[1:]), heading_text(block, setext=token.markup in {"=", "-"}))
    elif token is not None and token.type == "html_block":
        _add_html(outline, block)
    elif token is not None and token.type == "hr":
        return
    else:
        kind = _KINDS.get(token.type, "prose") if token else "prose"
        outline.add_text(block if kind == "code" else _without_comments(block), kind)


def _without_comments(text: str) -> str:
    kept: list[str] = []
    at = 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin)) >= 0:
        kept.append(text[at:begin])
        at = end + 3
    return "".join((*kept, text[at:]))


def _add_html(outline: SectionBuilder, block: str) -> None:
    heading = _HTML_HEADING.match(block)
    text = "\n".join(line for line in _TAG.sub("", _without_comments(block)).split("\n") if line.strip())
    if heading and len(text) < 300:
        outline.add_heading(int(heading[1]), text)
    else:
        outline.add_text(text)


def heading_text(block: str, *, setext: bool) -> str:
    """A heading without its marks; the text of its links."""
    if setext:
        block = block.rpartition("\n")[0]
    else:
        block = block.strip().lstrip("#").strip()
        block = (
            block.rstrip("#").rstrip() if block.endswith(" #") or block.rstrip("#").endswith(" ") else block
        )
    block = _LINK.sub(r"\1", _TAG.sub("", block[:2_000]))
    return _ATTRIBUTES.sub("", block.translate(_MARKS).strip())
