"""reStructuredText through docutils, which may neither open files nor pass anything on unread."""

import io
import re
from collections.abc import Callable, Iterable
from typing import Any

from docutils import nodes
from docutils.core import publish_doctree
from docutils.utils import DependencyList

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DEPTH
from ai_platform_engineering.knowledge_bases.reading.section_builder import (
    SectionBuilder,
    fence_code,
    render_table,
)

_LONGEST_LINE = 10_000
_SETTINGS: dict[str, Any] = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "record_dependencies": DependencyList(),
    "halt_level": 6,  # nothing stops the reading
    "report_level": 4,
    "traceback": True,
    "input_encoding": "unicode",
    "line_length_limit": _LONGEST_LINE,
    "syntax_highlight": "none",
    "doctitle_xform": False,
    "sectsubtitle_xform": False,
}
_ROLE = re.compile(r":[a-zA-Z][\w:.+-]{0,60}:`~?([^`<>]{1,300}?)(?:\s{0,8}<[^`<>]{0,300}>)?`")
_DIRECTIVE = re.compile(r"\.\. ([\w:.+-]{1,60})::[ \t]{0,20}([^\n]{0,500})")
_OPTION = re.compile(r":[\w -]{1,40}:(?:\s|$)")
_NOT_FOR_READERS = frozenset(
    {"raw", "include", "toctree", "highlight", "index", "currentmodule", "csv-table", "literalinclude"}
)
_SKIPPED = (
    nodes.comment, nodes.substitution_definition, nodes.target, nodes.pending, nodes.raw, nodes.docinfo, nodes.decoration, nodes.meta,
    nodes.Invisible, nodes.generated, nodes.topic,
)  # fmt: skip


def parse(found: DetectedDocument) -> ParsedDocument:
    if max(map(len, found.text.split("\n"))) > _LONGEST_LINE:
        raise ValueError("docutils leaves out a document with so long a line")  # it is read as plain text
    document = publish_doctree(found.text, settings_overrides={**_SETTINGS, "warning_stream": io.StringIO()})
    reading = _Reading()
    reading.children(document, 0)
    return ParsedDocument(reading.outline.first_heading or found.name, reading.outline.build())


class _Reading:
    def __init__(self) -> None:
        self.outline = SectionBuilder()
        self._level = 1
        self._blocks: dict[type[nodes.Node], Callable[[Any, int], None]] = {
            nodes.section: self._section,
            nodes.title: lambda node, depth: self.outline.add_heading(self._level, _inline(node)),
            nodes.literal_block: lambda node, depth: self.outline.add_text(
                fence_code(node.astext(), _language(node)), "code"
            ),
            nodes.doctest_block: lambda node, depth: self.outline.add_text(
                fence_code(node.astext(), "pycon"), "code"
            ),
            nodes.table: lambda node, depth: self._table(node),
            nodes.bullet_list: self._list,
            nodes.enumerated_list: self._list,
            nodes.system_message: lambda node, depth: self._unknown(node),
        }

    def children(self, node: nodes.Element, depth: int) -> None:
        for child in node.children:
            if isinstance(child, (nodes.Text, *_SKIPPED)) or self.outline.is_full:
                continue
            block = self._blocks.get(type(child))
            if block is not None:
                block(child, depth)
            elif isinstance(child, nodes.Admonition):
                self.outline.add_text(f"{type(child).__name__.capitalize()}: {_text(child)}")
            elif (
                depth < MAX_DEPTH
                and isinstance(child, nodes.Element)
                and not isinstance(child, nodes.TextElement)
                and _has_blocks(child)
            ):
                self.children(child, depth + 1)
            else:
                self.outline.add_text(_text(child))

    def _section(self, node: nodes.section, depth: int) -> None:
        if "system-messages" in node.get("classes", ()):
            return
        before, self._level = self._level, min(depth + 1, 9)
        self.children(node, depth + 1)
        self._level = before

    def _table(self, node: nodes.table) -> None:
        for title in node.findall(nodes.title):
            self.outline.add_text(_inline(title))
        rows = (
            [_text(entry) for entry in row.children if isinstance(entry, nodes.Element)]
            for row in node.findall(nodes.row)
        )
        self.outline.add_text(render_table(rows), "table")

    def _list(self, node: nodes.Element, depth: int) -> None:
        self.outline.add_text("\n".join(_items(node, depth)), "list")

    def _unknown(self, node: nodes.system_message) -> None:
        """A directive that only another program knows: what it says is kept, without its options."""
        for block in node.findall(nodes.literal_block):
            directive = _DIRECTIVE.match(block.astext())
            if directive and directive[1] not in _NOT_FOR_READERS:
                first = f"{directive[1].capitalize()}: {directive[2]}"
                body = (line.strip() for line in block.astext().split("\n")[1:])
                self.outline.add_text(
                    _without_roles(
                        "\n".join((first, *(line for line in body if line and not _OPTION.match(line))))
                    )
                )


def _items(node: nodes.Element, depth: int) -> Iterable[str]:
    ordered = isinstance(node, nodes.enumerated_list)
    for number, item in enumerate(
        (child for child in node.children if isinstance(child, nodes.list_item)), start=1
    ):
        mark = f"{number}. " if ordered else "- "
        inner: list[str] = []
        for child in item.children:
            if isinstance(child, nodes.bullet_list | nodes.enumerated_list) and depth < MAX_DEPTH:
                inner.extend(line for part in _items(child, depth + 1) for line in part.split("\n"))
            else:
                inner.extend(_text(child).split("\n"))
        yield mark + ("\n" + " " * len(mark)).join(inner or [""])


def _has_blocks(node: nodes.Element) -> bool:
    return any(
        isinstance(child, nodes.Body | nodes.section | nodes.title | nodes.Part) for child in node.children
    )


def _text(node: nodes.Node) -> str:
    """All paragraphs of a node, a line each."""
    parts = [
        _inline(part)
        for part in node.findall(
            lambda inner: isinstance(inner, nodes.TextElement) and not _in_text(inner, node)
        )
    ]
    if parts:
        return "\n".join(filter(None, parts))
    return _without_roles(node.astext())


def _in_text(node: nodes.Node, root: nodes.Node) -> bool:
    parent = node.parent
    while parent is not None and parent is not root.parent:
        if isinstance(parent, nodes.TextElement):
            return True
        parent = parent.parent
    return False


def _inline(node: Any) -> str:
    """The text of a paragraph or heading: links with their targets, literals in back-quotes."""
    parts: list[str] = []
    for child in node.children:
        if isinstance(child, nodes.reference) and str(child.get("refuri", "")).startswith(
            ("http://", "https://")
        ):
            text, target = child.astext(), child["refuri"]
            parts.append(text if text == target else f"[{text}]({target})")
        elif isinstance(child, nodes.literal):
            parts.append(f"`{child.astext()}`")
        elif isinstance(child, nodes.image):
            parts.append(child.get("alt", ""))
        elif not isinstance(child, nodes.raw | nodes.comment):
            parts.append(child.astext())
    text = "".join(parts)
    return _without_roles(text if isinstance(node, nodes.FixedTextElement) else " ".join(text.split()))


def _without_roles(text: str) -> str:
    if ":`" in text:
        return _ROLE.sub(r"\1", text)
    return text


def _language(node: nodes.Element) -> str:
    classes: list[str] = node.get("classes", [])
    return next((name for name in classes if name != "code"), "")
