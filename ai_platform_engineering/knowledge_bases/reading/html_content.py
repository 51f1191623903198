"""Which part of a web page is its content."""

import re

from lxml.html import HtmlElement

_NEVER = frozenset(
    "script style noscript template svg math canvas iframe object embed audio video map head link meta button input select textarea "
    "datalist progress meter nav".split()
)
_ROLES = frozenset(
    "navigation banner contentinfo search complementary menu menubar toolbar tablist dialog alertdialog".split()
)
_OUTSIDE = frozenset({"header", "footer", "aside"})  # beside the content when they are not in it
_HIDING = re.compile(r"(?:display\s{0,4}:\s{0,4}none|visibility\s{0,4}:\s{0,4}hidden)", re.IGNORECASE)
_FURNITURE = frozenset(
    "nav navbar navigation sidebar sidenav breadcrumb breadcrumbs toc tableofcontents footer cookie cookies consent skip skiplink "
    "pagination pager share social newsletter advert ads popup modal headerlink hidden sr noprint editlink toolbar linenos gutter".split()
)
_CONTENT = (
    "//main", "//*[@role='main']", "//article", "//*[@itemprop='articleBody']",
    "//*[contains(concat(' ', @class, ' '), ' markdown-body ') or contains(concat(' ', @class, ' '), ' theme-doc-markdown ')]",
    "//*[@id='content' or @id='main' or @id='main-content' or @id='bodyContent' or @id='mw-content-text']",
)  # fmt: skip
_ENOUGH = 0.3  # of the page's text, for a part to be its content
_LINKS_ONLY = 0.75  # of a block's text, for a menu that does not say that it is one


def find_main_content(tree: HtmlElement) -> HtmlElement:
    """The element that holds the content; what stands around the content inside it is removed from the tree."""
    body = next(tree.iter("body"), tree)
    _remove_hidden(body)
    whole = max(_length(body), 1)
    for path in _CONTENT:
        found = max(body.xpath(path), key=_length, default=None)
        # A page of many short articles is not one of them.
        if found is not None and _length(found) >= _ENOUGH * whole:
            _remove_furniture(found)
            return found
    for node in [
        node
        for node in body.iter(*_OUTSIDE)
        if not _has_title(node) and next(node.iterancestors("article"), None) is None
    ]:
        _drop(node)
    _remove_furniture(body)
    _remove_menus(body)
    return body


def is_hidden(node: HtmlElement) -> bool:
    return (
        node.tag in _NEVER
        or "hidden" in node.attrib
        or node.get("aria-hidden") == "true"
        or (node.get("role") or "") in _ROLES
        or _HIDING.search((node.get("style") or "")[:500]) is not None
    )


def _remove_hidden(body: HtmlElement) -> None:
    for node in [node for node in body.iterdescendants() if isinstance(node.tag, str) and is_hidden(node)]:
        _drop(node)


def _remove_furniture(content: HtmlElement) -> None:
    largest = _length(content) * 0.4
    for node in [node for node in content.iterdescendants() if _is_furniture(node)]:
        if _length(node) <= largest and not _has_title(node):
            _drop(node)


def _is_furniture(node: HtmlElement) -> bool:
    names = f"{node.get('class') or ''} {node.get('id') or ''}"[:500].lower()
    if names != " ":
        return not _FURNITURE.isdisjoint(re.split(r"[\s_-]+", names))
    return False


def _remove_menus(body: HtmlElement) -> None:
    for node in [
        node
        for node in body.iter("ul", "ol", "div", "table")
        if len(node.xpath("(.//a)[position() <= 4]")) == 4
    ]:
        links = sum(_length(link) for link in node.iter("a"))
        if links > _LINKS_ONLY * _length(node) and not _has_title(node) and links < 0.5 * _length(body):
            _drop(node)


def _has_title(node: HtmlElement) -> bool:
    return next(node.iter("h1", "main", "article"), None) is not None


def _length(node: HtmlElement) -> int:
    return len(node.text_content())


def _drop(node: HtmlElement) -> None:
    if node.getparent() is not None:
        node.drop_tree()
