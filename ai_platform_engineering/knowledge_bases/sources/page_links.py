"""The links of a page for a crawler, its canonical URL, and its robots directives."""

import codecs
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from ai_platform_engineering.knowledge_bases.sources.user_agent import USER_AGENT
from ai_platform_engineering.net.url_policy import FetchRefused, parse_url

if TYPE_CHECKING:
    from lxml import etree

MAX_LINKS = 2000
_TRACKING = re.compile(
    r"utm_\w+|gclid|dclid|fbclid|msclkid|yclid|igshid|mc_[ce]id|_hs(enc|mi)|_ga|_gl|ref_src|phpsessid|jsessionid",
    re.IGNORECASE,
)
_SESSION = re.compile(r";jsessionid=[^/?]*", re.IGNORECASE)
# What no document is behind; asking would only cost the site.
_NO_DOCUMENT = tuple(
    ".png .jpg .jpeg .gif .svg .ico .webp .avif .bmp .tif .tiff .mp3 .mp4 .webm .ogg .wav .mov .avi .zip "
    ".gz .tgz .bz2 .xz .zst .7z "
    ".rar .tar .whl .jar .war .deb .rpm .dmg .iso .exe .msi .bin .css .js .mjs .map .wasm .woff .woff2 .ttf "
    ".eot .otf .doc .xls .ppt".split()
)


@dataclass(frozen=True, slots=True)
class PageLinks:
    """What a crawler needs of a page; URLs are normalised."""

    links: tuple[str, ...] = ()
    canonical: str | None = None
    may_index: bool = True


def normalise_url(url: str, base: str = "") -> str | None:
    """One form of a URL for the same page, without fragment, tracking and sessions; None for what cannot be
    fetched."""
    try:
        target = parse_url(urljoin(base, url.strip()).replace(" ", "%20"))
        if "/." in target.path:
            target = parse_url(urljoin(f"{target.origin}/", f".{target.path}"))
    except (FetchRefused, ValueError):
        return None
    path, _, query = target.path.partition("?")
    path = _SESSION.sub("", path)
    if path.lower().endswith(_NO_DOCUMENT):
        return None
    query = "&".join(pair for pair in query.split("&") if _is_significant(pair))
    if query:
        query = f"?{query}"
    return target.origin + path + query


def _is_significant(query_pair: str) -> bool:
    """Whether a pair of the query may select another page."""
    name = query_pair.partition("=")[0]
    return bool(query_pair) and not _TRACKING.fullmatch(name)


def read_page_links(url: str, content: bytes, media_type: str, robots: str = "") -> PageLinks:
    """Reads an HTML page; of anything else only `robots`, the header X-Robots-Tag, counts."""
    directives = _parse_directives(_select_own_directives(robots))
    root = None
    if "html" in media_type.lower():
        root = _parse_html(content, media_type)
    if root is None:
        return PageLinks(may_index="noindex" not in directives)
    base = url
    canonical = None
    links = dict[str, None]()
    for element in root.iter("base", "link", "meta", "a"):
        attributes = {str(name).lower(): str(value) for name, value in element.attrib.items()}
        rel = attributes.get("rel", "").lower().split()
        match element.tag:
            case "base" if attributes.get("href"):
                base = normalise_url(attributes["href"], url) or base
            case "link" if "canonical" in rel:
                canonical = canonical or normalise_url(attributes.get("href", ""), base)
            case "meta" if attributes.get("name", "").lower() in ("robots", USER_AGENT):
                directives |= _parse_directives(attributes.get("content", ""))
            case "a" if attributes.get("href") and "nofollow" not in rel and len(links) < MAX_LINKS:
                link = normalise_url(attributes["href"], base)
                if link is not None:
                    links[link] = None
    if "nofollow" in directives:
        links.clear()
    return PageLinks(tuple(links), canonical, "noindex" not in directives)


def _parse_html(content: bytes, media_type: str) -> "etree._Element | None":
    from lxml import etree  # only where pages are read

    parser = etree.HTMLParser(
        encoding=_find_charset(media_type), no_network=True, recover=True, remove_comments=True
    )
    try:
        return etree.fromstring(content, parser)
    except (etree.LxmlError, ValueError):
        return None


def _find_charset(media_type: str) -> str:
    from email.message import Message  # only where pages are read

    header = Message()
    header["Content-Type"] = media_type
    try:
        return codecs.lookup(str(header.get_param("charset") or "utf-8")).name
    except LookupError:
        return "utf-8"


def _select_own_directives(header: str) -> str:
    """X-Robots-Tag without the directives for other crawlers: a name with a colon addresses one, up to the
    next name."""
    selected: list[str] = []
    is_for_us = True
    for part in header.split(","):
        name, colon, rest = part.strip().partition(":")
        if colon and name.strip().lower() not in (
            "unavailable_after",
            "max-snippet",
            "max-image-preview",
            "max-video-preview",
        ):
            is_for_us = name.strip().lower() == USER_AGENT
            part = rest
        if is_for_us:
            selected.append(part)
    return ",".join(selected)


def _parse_directives(content: str) -> set[str]:
    directives = {directive.strip() for directive in content.lower().split(",")}
    if "none" in directives:
        return directives | {"noindex", "nofollow"}
    return directives
