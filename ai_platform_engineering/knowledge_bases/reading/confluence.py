"""Confluence's storage format: XHTML whose macros become what they show."""

import html
import re

from lxml import etree

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.html import add_page
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

_AC = "urn:ac"
_RI = "urn:ri"
_ENTITY = re.compile(r"&([A-Za-z][A-Za-z0-9]{1,30});")
_XML_ENTITIES = frozenset({"lt", "gt", "amp", "quot", "apos"})
_DECLARATION = re.compile(r"<\?xml[^>]{0,200}\?>|<!DOCTYPE[^>\[]{0,500}>", re.IGNORECASE)
_NAMESPACES = re.compile(r"""\sxmlns(?::\w{1,20})?\s?=\s?(?:"[^"]{0,300}"|'[^']{0,300}')""")
_PANELS = {"info": "Info", "note": "Note", "warning": "Warning", "tip": "Tip", "panel": ""}
_CODE_MACROS = frozenset({"code", "noformat"})
_SHOWN_PARAMETERS = {"status": "title", "jira": "key"}  # macros that show one of their parameters
_LEFT_OUT = frozenset({"parameter", "placeholder", "task-id", "task-uuid", "task-status", "adf-attribute"})
_MAX_STATUS_CHARS = 20


def parse(detected: DetectedDocument) -> ParsedDocument:
    root = _parse_storage(detected.text)
    for node in list(root.iter(f"{{{_AC}}}*", f"{{{_RI}}}*")):
        _convert(node)
    builder = SectionBuilder()
    add_page(builder, etree.tostring(root, encoding="unicode", method="html"))
    return builder.build_document(builder.first_heading or detected.name)


def _parse_storage(text: str) -> etree._Element:
    """Adds the namespaces that the format leaves out, and resolves the entities of HTML, which XML lacks."""
    text = _NAMESPACES.sub("", _DECLARATION.sub("", text))
    text = _ENTITY.sub(_resolve_entity, text)
    parser = etree.XMLParser(
        recover=True, resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True
    )
    source = f'<body xmlns:ac="{_AC}" xmlns:ri="{_RI}">{text}</body>'
    root = etree.fromstring(source.encode(), parser)
    if root is None:
        raise ValueError("no XML")
    return root


def _resolve_entity(entity: re.Match[str]) -> str:
    if entity[1] in _XML_ENTITIES:
        return entity[0]
    return html.escape(html.unescape(entity[0]))


def _convert(node: etree._Element) -> None:
    """Makes an element of HTML from one of Confluence, in place; the children follow."""
    name = etree.QName(node).localname
    if name in {"structured-macro", "macro"}:
        _convert_macro(node)
    elif name == "task-list":
        node.tag = "ul"
    elif name == "task":
        node.tag = "li"
        status = (node.findtext(f"{{{_AC}}}task-status") or "")[:_MAX_STATUS_CHARS]
        node.text = "[x] " if status == "complete" else "[ ] "
    elif name in {"rich-text-body", "layout", "layout-section", "layout-cell"}:
        node.tag = "div"
    elif name == "image":
        alternative = node.get(f"{{{_AC}}}alt") or node.get(f"{{{_AC}}}title") or ""
        _replace(node, "span", alternative)
    elif name == "page":
        node.tag = "span"
        node.text = "" if _has_link_body(node) else node.get(f"{{{_RI}}}content-title")
    elif name in _LEFT_OUT:
        _replace(node, "span", "")
    else:
        node.tag = "span"


def _convert_macro(node: etree._Element) -> None:
    name = node.get(f"{{{_AC}}}name") or ""
    title = _find_parameter(node, "title")
    if name in _CODE_MACROS:
        code = node.findtext(f"{{{_AC}}}plain-text-body") or ""
        language = _find_parameter(node, "language")
        _replace(node, "pre", code)
        if language:
            node.set("class", f"language-{language}")
    elif name in _SHOWN_PARAMETERS:
        _replace(node, "span", _find_parameter(node, _SHOWN_PARAMETERS[name]))
    else:
        node.tag = "div"
        label = ": ".join(filter(None, (_PANELS.get(name, ""), title)))
        if label:
            heading = etree.Element("p")
            heading.text = label
            node.insert(0, heading)


def _find_parameter(node: etree._Element, name: str) -> str:
    for parameter in node.iterchildren(f"{{{_AC}}}parameter"):
        if parameter.get(f"{{{_AC}}}name") == name:
            return parameter.text or ""
    return ""


def _has_link_body(node: etree._Element) -> bool:
    parent = node.getparent()
    if parent is None:
        return False
    bodies = ("link-body", "plain-text-link-body")
    return any(next(parent.iterchildren(f"{{{_AC}}}{name}"), None) is not None for name in bodies)


def _replace(node: etree._Element, tag: str, text: str) -> None:
    """The element with this text and nothing else; what follows it stays."""
    tail = node.tail
    node.clear()
    node.tag = tag
    node.text = text
    node.tail = tail
