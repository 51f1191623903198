"""Confluence's storage format: checked as XHTML, read as text, and written from blocks."""

import html
import html.entities
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass

_NAMESPACES = 'xmlns:ac="urn:ac" xmlns:ri="urn:ri" xmlns:at="urn:at"'
_ENTITY = re.compile(r"&(?!amp;|lt;|gt;|quot;|apos;)([A-Za-z][A-Za-z0-9]*;)")
_BLOCK_TAGS = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "td", "th", "tr", "pre", "br", "div"}


class InvalidStorageFormat(ValueError):
    """A body that is not well-formed; the message says where."""


def read_text(body: str) -> str:
    """What a body says, a line for each block. Raises InvalidStorageFormat."""
    try:
        root = ElementTree.fromstring(f"<root {_NAMESPACES}>{_ENTITY.sub(_replace_entity, body)}</root>")
        text = "".join(_in_order(root))
    except (ElementTree.ParseError, RecursionError) as error:
        raise InvalidStorageFormat(f"Error parsing xhtml: {error}") from error
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _in_order(element: ElementTree.Element) -> list[str]:
    """The texts of an element and of what is in it, as they are read."""
    pieces: list[str] = []
    if element.tag in _BLOCK_TAGS:
        pieces.append("\n")
    # Parameters of macros are settings, not text.
    if element.text and not element.tag.endswith("}parameter"):
        pieces.append(element.text)
    for child in element:
        pieces += _in_order(child)
        if child.tail:
            pieces.append(child.tail)
    return pieces


def _replace_entity(match: re.Match[str]) -> str:
    character = html.entities.html5.get(match[1])
    if character is None:
        raise InvalidStorageFormat(f"Error parsing xhtml: undeclared entity &{match[1]}")
    return html.escape(character)


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str


@dataclass(frozen=True, slots=True)
class ListBlock:
    items: tuple[str, ...]
    is_numbered: bool = False


@dataclass(frozen=True, slots=True)
class CodeBlock:
    text: str


Block = Heading | Paragraph | ListBlock | CodeBlock


def write_storage(blocks: Sequence[Block]) -> str:
    return "".join(_write_storage_block(block) for block in blocks)


def _write_storage_block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{html.escape(block.text)}</h2>"
    if isinstance(block, Paragraph):
        return f"<p>{html.escape(block.text)}</p>"
    if isinstance(block, ListBlock):
        tag = "ol" if block.is_numbered else "ul"
        items = "".join(f"<li>{html.escape(item)}</li>" for item in block.items)
        return f"<{tag}>{items}</{tag}>"
    return (
        '<ac:structured-macro ac:name="code" ac:schema-version="1">'
        f"<ac:plain-text-body><![CDATA[{block.text}]]></ac:plain-text-body></ac:structured-macro>"
    )


def write_markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_write_markdown_block(block) for block in blocks) + "\n"


def _write_markdown_block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"## {block.text}"
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, ListBlock):
        if block.is_numbered:
            return "\n".join(f"{number}. {item}" for number, item in enumerate(block.items, 1))
        return "\n".join(f"- {item}" for item in block.items)
    return f"```\n{block.text}\n```"
