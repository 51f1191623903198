"""Texts of Jira as Markdown: the Atlassian document format (Cloud) and wiki markup (Data Center)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ai_platform_engineering.knowledge_bases.reading.section_builder import fence_code, render_table
from ai_platform_engineering.knowledge_bases.sources.connectors.json_values import (
    read_list,
    read_mapping,
    read_text,
)

_MAX_DEPTH = 60
_NOT_IN_LANGUAGES = re.compile(r"[^\w+#-]")


def render_text(value: Any) -> str:
    """A description or comment as Markdown, whichever of the two forms it has."""
    if isinstance(value, str):
        return convert_wiki_markup(value)
    if isinstance(value, dict):
        return convert_document(value)
    return ""


# --- the Atlassian document format


def convert_document(node: Mapping[str, Any]) -> str:
    """A document of JSON nodes. What is nested too deep, and attachments, are left out."""
    return _render_blocks(read_list(node, "content"), 0).strip()


def _render_blocks(nodes: Iterable[Mapping[str, Any]], depth: int) -> str:
    if depth > _MAX_DEPTH:
        return ""
    blocks = (_render_block(node, depth + 1) for node in nodes)
    return "\n\n".join(block for block in blocks if block.strip())


def _render_block(node: Mapping[str, Any], depth: int) -> str:
    kind = read_text(node, "type")
    renderer = _BLOCKS.get(kind)
    if renderer is not None:
        return renderer(node, depth)
    if kind in _INLINE:
        return _INLINE[kind](node)
    return _render_blocks(read_list(node, "content"), depth)


def _render_paragraph(node: Mapping[str, Any], depth: int) -> str:
    return _render_inline(read_list(node, "content"))


def _render_heading(node: Mapping[str, Any], depth: int) -> str:
    level = read_mapping(node, "attrs").get("level")
    marks = "#" * (level if isinstance(level, int) and 1 <= level <= 6 else 3)
    return f"{marks} {' '.join(_render_inline(read_list(node, 'content')).split())}"


def _render_code(node: Mapping[str, Any], depth: int) -> str:
    code = "".join(read_text(child, "text") for child in read_list(node, "content"))
    language = read_text(read_mapping(node, "attrs"), "language")
    return fence_code(code, _NOT_IN_LANGUAGES.sub("", language))


def _render_quote(node: Mapping[str, Any], depth: int) -> str:
    text = _render_blocks(read_list(node, "content"), depth)
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _render_expand(node: Mapping[str, Any], depth: int) -> str:
    title = read_text(read_mapping(node, "attrs"), "title")
    text = _render_blocks(read_list(node, "content"), depth)
    return "\n\n".join(filter(None, (title, text)))


def _render_bullets(node: Mapping[str, Any], depth: int) -> str:
    items = [_render_item(item, "- ", depth) for item in read_list(node, "content")]
    return "\n".join(items)


def _render_numbers(node: Mapping[str, Any], depth: int) -> str:
    items = enumerate(read_list(node, "content"), start=1)
    return "\n".join(_render_item(item, f"{number}. ", depth) for number, item in items)


def _render_tasks(node: Mapping[str, Any], depth: int) -> str:
    lines: list[str] = []
    for item in read_list(node, "content"):
        if read_text(item, "type") == "taskList":
            lines.append(_indent(_render_tasks(item, depth + 1), 2) if depth < _MAX_DEPTH else "")
            continue
        is_done = read_text(read_mapping(item, "attrs"), "state") == "DONE"
        lines.append(f"- [{'x' if is_done else ' '}] {_render_inline(read_list(item, 'content'))}")
    return "\n".join(lines)


def _render_item(item: Mapping[str, Any], bullet: str, depth: int) -> str:
    text = _render_blocks(read_list(item, "content"), depth).replace("\n\n", "\n")
    return bullet + _indent(text, len(bullet)).lstrip()


def _indent(text: str, width: int) -> str:
    return "\n".join(f"{' ' * width}{line}" for line in text.split("\n"))


def _render_table(node: Mapping[str, Any], depth: int) -> str:
    rows: list[Sequence[str]] = []
    for row in read_list(node, "content"):
        cells = read_list(row, "content")
        rows.append([_render_blocks(read_list(cell, "content"), depth) for cell in cells])
    return render_table(rows)


def _render_inline(nodes: Iterable[Mapping[str, Any]]) -> str:
    pieces: list[str] = []
    for node in nodes:
        renderer = _INLINE.get(read_text(node, "type"))
        if renderer is not None:
            pieces.append(renderer(node))
    return "".join(pieces)


def _render_text_node(node: Mapping[str, Any]) -> str:
    text = read_text(node, "text")
    for mark in read_list(node, "marks"):
        kind = read_text(mark, "type")
        if kind == "code":
            return f"`{text}`"
        if kind == "link":
            address = read_text(read_mapping(mark, "attrs"), "href")
            return f"[{text}]({address})" if address else text
    return text


def _render_attribute(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda node: read_text(read_mapping(node, "attrs"), name)


def _render_date(node: Mapping[str, Any]) -> str:
    timestamp = read_text(read_mapping(node, "attrs"), "timestamp")
    try:
        return f"{datetime.fromtimestamp(int(timestamp) / 1000, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return ""


_BLOCKS: Mapping[str, Callable[[Mapping[str, Any], int], str]] = {
    "paragraph": _render_paragraph,
    "heading": _render_heading,
    "codeBlock": _render_code,
    "blockquote": _render_quote,
    "bulletList": _render_bullets,
    "orderedList": _render_numbers,
    "taskList": _render_tasks,
    "decisionList": _render_bullets,
    "table": _render_table,
    "expand": _render_expand,
    "nestedExpand": _render_expand,
}
_INLINE: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "text": _render_text_node,
    "hardBreak": lambda node: "\n",
    "mention": _render_attribute("text"),
    "emoji": _render_attribute("text"),
    "status": _render_attribute("text"),
    "inlineCard": _render_attribute("url"),
    "blockCard": _render_attribute("url"),
    "date": _render_date,
}


# --- wiki markup

_BLOCK_MACRO = re.compile(r"\{(code|noformat)(?::([^}]{0,200}))?\}(.*?)\{\1\}", re.DOTALL)
_FENCED = re.compile(r"(```+[^\n]{0,60}\n.*?\n```+)", re.DOTALL)
_HEADING = re.compile(r"h([1-6])\.[ \t]+(.*)")
_ITEM = re.compile(r"([*#-]{1,6})[ \t]+(.*)")
_LINK = re.compile(r"\[([^|\]\n]{1,500})\|([^|\]\n]{1,2000})(?:\|[^\]\n]{0,100})?\]")
_BARE_LINK = re.compile(r"\[((?:https?|mailto):[^\]\s|]{1,2000})\]")
_MONOSPACE = re.compile(r"\{\{(.{1,500}?)\}\}")
_DECORATION = re.compile(r"\{(?:color|quote|panel|anchor)(?::[^}\n]{0,200})?\}")
_IMAGE = re.compile(r"![\w.][^!\n|]{0,300}\.\w{2,5}(?:\|[^!\n]{0,100})?!")


def convert_wiki_markup(text: str) -> str:
    """Headings, lists, tables, links and code; other markup stays as it is written."""
    text = _BLOCK_MACRO.sub(_convert_code, text.replace("\r\n", "\n"))
    pieces = _FENCED.split(text)
    for number in range(0, len(pieces), 2):  # between them is code
        lines = [_convert_line(line) for line in pieces[number].split("\n")]
        pieces[number] = "\n".join(lines)
    return "".join(pieces).strip()


def _convert_code(match: re.Match[str]) -> str:
    language = (match[2] or "").partition("|")[0]
    if "=" in language or match[1] == "noformat":
        language = ""
    code = fence_code(match[3], _NOT_IN_LANGUAGES.sub("", language))
    return f"\n{code}\n"


def _convert_line(line: str) -> str:
    line = _DECORATION.sub("", _IMAGE.sub("", line))
    line = _BARE_LINK.sub(r"\1", _LINK.sub(r"[\1](\2)", _MONOSPACE.sub(r"`\1`", line)))
    if match := _HEADING.fullmatch(line.strip()):
        return f"{'#' * int(match[1])} {match[2]}"
    if match := _ITEM.fullmatch(line.strip()):
        depth = len(match[1]) - 1
        bullet = "1." if match[1].endswith("#") else "-"
        return f"{'   ' * depth}{bullet} {match[2]}"
    if line.lstrip().startswith("||"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("||")]
        return render_table([cells])
    return line
