"""Finds the main content of a web page."""

import re

from lxml.html import HtmlElement

_SKIPPED_TAGS = frozenset(
    "script style noscript template svg math canvas iframe object embed audio video map head link meta "
    "button input select textarea datalist progress meter nav".split()
)
_SKIPPED_ROLES = frozenset(
    "navigation banner contentinfo search complementary menu menubar toolbar tablist dialog "
    "alertdialog".split()
)
_PERIPHERAL_TAGS = frozenset({"header", "footer", "aside"})  # beside the content when they are not in it
_HIDING_STYLE = re.compile(r"(?:display\s{0,4}:\s{0,4}none|visibility\s{0,4}:\s{0,4}hidden)", re.IGNORECASE)
_NAVIGATION_NAMES = frozenset(
    "nav navbar navigation sidebar sidenav breadcrumb breadcrumbs toc tableofcontents footer cookie cookies "
    "consent skip skiplink pagination pager share social newsletter advert ads popup modal headerlink hidden "
    "sr noprint editlink toolbar linenos gutter".split()
)
_CONTENT = (
    "//main", "//*[@role='main']", "//article", "//*[@itemprop='articleBody']",
    "//*[contains(concat(' ', @class, ' '), ' markdown-body ') "
    "or contains(concat(' ', @class, ' '), ' theme-doc-markdown ')]",
    "//*[@id='content' or @id='main' or @id='main-content' or @id='bodyContent' or @id='mw-content-text']",
)  # fmt: skip
_CONTENT_TAGS = frozenset({"main", "article"})
_MIN_CONTENT_CHARS = 20  # of the only main part or article; "Loading ..." has less
_MIN_CONTENT_SHARE = 0.3  # of the page's text, for a part to be its content
_MIN_SHARE_OF_SEVERAL = 0.6  # the same for one of several
_MENU_LINK_SHARE = 0.75  # of a block's text, for a menu that does not say that it is one


def find_main_content(tree: HtmlElement) -> HtmlElement:
    """The element with the content; navigation and the like inside it is removed from the tree."""
    body = next(tree.iter("body"), tree)
    _remove_hidden(body)
    page_length = max(_prose_length(body), 1)
    for path in _CONTENT:
        candidates = body.xpath(path)
        content = max(candidates, key=_length, default=None)
        if content is not None and _is_content(content, len(candidates), page_length):
            _remove_navigation(content)
            return content
    for node in list(body.iter(*_PERIPHERAL_TAGS)):
        is_in_article = next(node.iterancestors("article"), None) is not None
        if not is_in_article and not _has_title(node):
            _drop(node)
    _remove_navigation(body)
    _remove_menus(body)
    return body


def _is_content(node: HtmlElement, count: int, page_length: int) -> bool:
    """Whether one of `count` elements is the content of the page: the only one that says so, or one with a
    good part of the text that is not in links.

    A page of many short articles is none of them, and one that a script fills has an empty main part."""
    length = _prose_length(node)
    if count > 1:
        return length >= _MIN_SHARE_OF_SEVERAL * page_length
    if node.tag in _CONTENT_TAGS and length >= _MIN_CONTENT_CHARS:
        return True
    return length >= _MIN_CONTENT_SHARE * page_length


def is_hidden(node: HtmlElement) -> bool:
    return (
        node.tag in _SKIPPED_TAGS
        or "hidden" in node.attrib
        or node.get("aria-hidden") == "true"
        or (node.get("role") or "") in _SKIPPED_ROLES
        or _HIDING_STYLE.search((node.get("style") or "")[:500]) is not None
    )


def _remove_hidden(body: HtmlElement) -> None:
    for node in [node for node in body.iterdescendants() if isinstance(node.tag, str) and is_hidden(node)]:
        _drop(node)


def _remove_navigation(content: HtmlElement) -> None:
    largest = _length(content) * 0.4
    for node in [node for node in content.iterdescendants() if _is_navigation(node)]:
        if _length(node) <= largest and not _has_title(node):
            _drop(node)


def _is_navigation(node: HtmlElement) -> bool:
    names = f"{node.get('class') or ''} {node.get('id') or ''}"[:500].lower()
    if names != " ":
        return not _NAVIGATION_NAMES.isdisjoint(re.split(r"[\s_-]+", names))
    return False


def _remove_menus(body: HtmlElement) -> None:
    for node in [
        node
        for node in body.iter("ul", "ol", "div", "table")
        if len(node.xpath("(.//a)[position() <= 4]")) == 4
    ]:
        links = sum(_length(link) for link in node.iter("a"))
        if links > _MENU_LINK_SHARE * _length(node) and not _has_title(node) and links < 0.5 * _length(body):
            _drop(node)


def _has_title(node: HtmlElement) -> bool:
    return next(node.iter("h1", "main", "article"), None) is not None


def _length(node: HtmlElement) -> int:
    return len(node.text_content())


def _prose_length(node: HtmlElement) -> int:
    """The length of the text without links and spaces: menus are made of these."""
    links = sum(_solid_length(link) for link in node.iter("a"))
    return _solid_length(node) - links


def _solid_length(node: HtmlElement) -> int:
    return len("".join(node.text_content().split()))


def _drop(node: HtmlElement) -> None:
    if node.getparent() is not None:
        node.drop_tree()
