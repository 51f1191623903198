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
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder, fence_code

_MAX_LINE_CHARS = 10_000
_SETTINGS: dict[str, Any] = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "record_dependencies": DependencyList(),
    "halt_level": 6,  # nothing stops the reading
    "report_level": 4,
    "traceback": True,
    "input_encoding": "unicode",
    "line_length_limit": _MAX_LINE_CHARS,
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
    nodes.comment, nodes.substitution_definition, nodes.target, nodes.pending, nodes.raw, nodes.docinfo,
    nodes.decoration, nodes.meta,
    nodes.Invisible, nodes.generated, nodes.topic,
)  # fmt: skip


def parse(detected: DetectedDocument) -> ParsedDocument:
    if max(map(len, detected.text.split("\n"))) > _MAX_LINE_CHARS:
        raise ValueError("docutils leaves out a document with so long a line")  # it is read as plain text
    document = publish_doctree(
        detected.text, settings_overrides={**_SETTINGS, "warning_stream": io.StringIO()}
    )
    reader = _DocumentReader()
    reader.read_children(document, 0)
    return reader.builder.build_document(reader.builder.first_heading or detected.name)


class _DocumentReader:
    """Reads the nodes of a docutils document in order."""

    def __init__(self) -> None:
        self.builder = SectionBuilder()
        self._level = 1
        self._blocks: dict[type[nodes.Node], Callable[[Any, int], None]] = {
            nodes.section: self._section,
            nodes.title: lambda node, depth: self.builder.add_heading(self._level, _render_inline(node)),
            nodes.literal_block: lambda node, depth: self.builder.add_text(
                fence_code(node.astext(), _language(node)), "code"
            ),
            nodes.doctest_block: lambda node, depth: self.builder.add_text(
                fence_code(node.astext(), "pycon"), "code"
            ),
            nodes.table: lambda node, depth: self._table(node),
            nodes.bullet_list: self._list,
            nodes.enumerated_list: self._list,
            nodes.system_message: lambda node, depth: self._unknown(node),
        }

    def read_children(self, node: nodes.Element, depth: int) -> None:
        for child in node.children:
            if isinstance(child, (nodes.Text, *_SKIPPED)):
                continue
            if self.builder.is_full:
                self.builder.leave_out(len(child.astext()))
                continue
            block = self._blocks.get(type(child))
            if block is not None:
                block(child, depth)
            elif isinstance(child, nodes.Admonition):
                self.builder.add_text(f"{type(child).__name__.capitalize()}: {_render_text(child)}")
            elif (
                depth < MAX_DEPTH
                and isinstance(child, nodes.Element)
                and not isinstance(child, nodes.TextElement)
                and _has_blocks(child)
            ):
                self.read_children(child, depth + 1)
            else:
                self.builder.add_text(_render_text(child))

    def _section(self, node: nodes.section, depth: int) -> None:
        if "system-messages" in node.get("classes", ()):
            return
        outer_level = self._level
        self._level = min(depth + 1, 9)
        self.read_children(node, depth + 1)
        self._level = outer_level

    def _table(self, node: nodes.table) -> None:
        for title in node.findall(nodes.title):
            self.builder.add_text(_render_inline(title))
        rows: list[list[str]] = []
        for row in node.findall(nodes.row):
            rows.append([_render_text(entry) for entry in row.children if isinstance(entry, nodes.Element)])
        self.builder.add_table(rows)

    def _list(self, node: nodes.Element, depth: int) -> None:
        self.builder.add_text("\n".join(_render_items(node, depth)), "list")

    def _unknown(self, node: nodes.system_message) -> None:
        """Reads a directive that only another program knows, without its options."""
        for block in node.findall(nodes.literal_block):
            directive = _DIRECTIVE.match(block.astext())
            if directive and directive[1] not in _NOT_FOR_READERS:
                lines = [f"{directive[1].capitalize()}: {directive[2]}"]
                for line in block.astext().split("\n")[1:]:
                    line = line.strip()
                    if line and not _OPTION.match(line):
                        lines.append(line)
                self.builder.add_text(_strip_roles("\n".join(lines)))


def _render_items(node: nodes.Element, depth: int) -> Iterable[str]:
    items = (child for child in node.children if isinstance(child, nodes.list_item))
    for number, item in enumerate(items, start=1):
        mark = "- "
        if isinstance(node, nodes.enumerated_list):
            mark = f"{number}. "
        texts: list[str] = []
        for child in item.children:
            if isinstance(child, nodes.bullet_list | nodes.enumerated_list) and depth < MAX_DEPTH:
                texts += _render_items(child, depth + 1)
            else:
                texts.append(_render_text(child))
        yield mark + "\n".join(texts).replace("\n", "\n" + " " * len(mark))


def _has_blocks(node: nodes.Element) -> bool:
    return any(
        isinstance(child, nodes.Body | nodes.section | nodes.title | nodes.Part) for child in node.children
    )


def _render_text(node: nodes.Node) -> str:
    """All paragraphs of a node, a line each."""
    paragraphs = node.findall(
        lambda inner: isinstance(inner, nodes.TextElement) and not _is_in_text(inner, node)
    )
    parts = [_render_inline(paragraph) for paragraph in paragraphs]
    if parts:
        return "\n".join(filter(None, parts))
    return _strip_roles(node.astext())


def _is_in_text(node: nodes.Node, root: nodes.Node) -> bool:
    parent = node.parent
    while parent is not None and parent is not root.parent:
        if isinstance(parent, nodes.TextElement):
            return True
        parent = parent.parent
    return False


def _render_inline(node: Any) -> str:
    """The text of a paragraph or heading: links with their targets, literals in back-quotes."""
    parts: list[str] = []
    for child in node.children:
        if isinstance(child, nodes.reference) and str(child.get("refuri", "")).startswith(
            ("http://", "https://")
        ):
            text = child.astext()
            target = child["refuri"]
            if text != target:
                text = f"[{text}]({target})"
            parts.append(text)
        elif isinstance(child, nodes.literal):
            parts.append(f"`{child.astext()}`")
        elif isinstance(child, nodes.image):
            parts.append(child.get("alt", ""))
        elif not isinstance(child, nodes.raw | nodes.comment):
            parts.append(child.astext())
    text = "".join(parts)
    if not isinstance(node, nodes.FixedTextElement):
        text = " ".join(text.split())
    return _strip_roles(text)


def _strip_roles(text: str) -> str:
    if ":`" in text:
        return _ROLE.sub(r"\1", text)
    return text


def _language(node: nodes.Element) -> str:
    classes: list[str] = node.get("classes", [])
    return next((name for name in classes if name != "code"), "")
