"""Markdown: split into its blocks, each kept as it was written."""

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.json_yaml import load_yaml
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

# Blocks only: what stands inside a line is for the reader of the text.
_BLOCK_PARSER = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])
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


def parse(detected: DetectedDocument) -> ParsedDocument:
    front_matter, text = _split_front_matter(detected.text)
    builder = SectionBuilder()
    title = front_matter.get("title")
    description = front_matter.get("description")
    if isinstance(description, str):
        builder.add_text(description)
    add_markdown(builder, text)
    if not isinstance(title, str) or not title.strip():
        title = builder.first_heading or detected.name
    return builder.build_document(title)


def add_markdown(builder: SectionBuilder, text: str) -> None:
    """Adds the blocks of a text without front matter."""
    for token, block in _split_blocks(text, text.split("\n")):
        _add_block(builder, token, block)


def _split_front_matter(text: str) -> tuple[dict[str, object], str]:
    if not text.startswith("---\n"):
        return {}, text
    end = text.find("\n---\n", 3)
    if end < 0:
        return {}, text
    front_matter = load_yaml(text[4 : end + 1])
    if not isinstance(front_matter, dict):  # a page may just as well begin with a rule
        return {}, text
    return front_matter, text[end + 5 :]


def _split_blocks(text: str, lines: list[str]) -> Iterator[tuple[Token | None, str]]:
    """The blocks and, as None, the lines between them: definitions of links have no token."""
    at = 0
    for token in _BLOCK_PARSER.parse(text):
        if token.level or not token.map or token.nesting < 0:
            continue
        begin, end = token.map
        if begin > at:
            yield None, "\n".join(lines[at:begin])
        yield token, "\n".join(lines[begin:end])
        at = max(at, end)
    if at < len(lines):
        yield None, "\n".join(lines[at:])


def _add_block(builder: SectionBuilder, token: Token | None, block: str) -> None:
    if token is None:
        builder.add_text(_strip_comments(block))
    elif token.type == "heading_open":
        builder.add_heading(int(token.tag[1:]), extract_heading(block, setext=token.markup in {"=", "-"}))
    elif token.type == "html_block":
        _add_html(builder, block)
    elif token.type != "hr":
        kind = _KINDS.get(token.type, "prose")
        if kind != "code":
            block = _strip_comments(block)
        builder.add_text(block, kind)


def _strip_comments(text: str) -> str:
    pieces: list[str] = []
    position = 0
    while True:
        begin = text.find("<!--", position)
        end = text.find("-->", begin)
        if begin < 0 or end < 0:
            break
        pieces.append(text[position:begin])
        position = end + 3
    return "".join((*pieces, text[position:]))


def _add_html(builder: SectionBuilder, block: str) -> None:
    heading = _HTML_HEADING.match(block)
    text = "\n".join(line for line in _TAG.sub("", _strip_comments(block)).split("\n") if line.strip())
    if heading and len(text) < 300:
        builder.add_heading(int(heading[1]), text)
    else:
        builder.add_text(text)


def extract_heading(block: str, *, setext: bool) -> str:
    """A heading without its marks; the text of its links."""
    if setext:
        block = block.rpartition("\n")[0]
    else:
        block = block.strip().lstrip("#").strip()
        without_closing = block.rstrip("#")
        if without_closing.endswith(" "):  # `# Heading ##`, but not `# C#`
            block = without_closing.rstrip()
    block = _LINK.sub(r"\1", _TAG.sub("", block[:2_000]))
    return _ATTRIBUTES.sub("", block.translate(_MARKS).strip())
