"""What a crawler reads from a page: where it leads, its canonical address, and what it asks of crawlers."""

import codecs
import re
from dataclasses import dataclass
from email.message import Message
from urllib.parse import urljoin

from lxml import etree

from ai_platform_engineering.knowledge_bases.sources.fetcher import USER_AGENT, FetchResponse
from ai_platform_engineering.net.url_policy import FetchRefused, parse_url

MAX_LINKS = 2000
_TRACKING = re.compile(
    r"utm_\w+|gclid|dclid|fbclid|msclkid|yclid|igshid|mc_[ce]id|_hs(enc|mi)|_ga|_gl|ref_src|phpsessid|jsessionid",
    re.IGNORECASE,
)
_SESSION = re.compile(r";jsessionid=[^/?]*", re.IGNORECASE)
# What no document is behind; asking would only cost the site.
_NO_DOCUMENT = tuple(
    ".png .jpg .jpeg .gif .svg .ico .webp .avif .bmp .tif .tiff .mp3 .mp4 .webm .ogg .wav .mov .avi .zip .gz .tgz .bz2 .xz .zst .7z "
    ".rar .tar .whl .jar .war .deb .rpm .dmg .iso .exe .msi .bin .css .js .mjs .map .wasm .woff .woff2 .ttf .eot .otf .doc .docx .xls "
    ".xlsx .ppt .pptx".split()
)


@dataclass(frozen=True, slots=True)
class PageLinks:
    """What a page says to a crawler; addresses are normalised."""

    links: tuple[str, ...] = ()
    canonical: str | None = None
    may_index: bool = True


def normalise_url(url: str, base: str = "") -> str | None:
    """One form for the same page: without fragment, tracking and sessions. None for what cannot be fetched."""
    try:
        target = parse_url(urljoin(base, url.strip()).replace(" ", "%20"))
        if "/." in target.path:
            target = parse_url(urljoin(f"{target.origin}/", f".{target.path}"))
    except (FetchRefused, ValueError):
        return None
    path, _, query = target.path.partition("?")
    kept = [pair for pair in query.split("&") if pair and not _TRACKING.fullmatch(pair.partition("=")[0])]
    path = _SESSION.sub("", path)
    if path.lower().endswith(_NO_DOCUMENT):
        return None
    return target.origin + path + (f"?{'&'.join(kept)}" if kept else "")


def read_page_links(fetched: FetchResponse) -> PageLinks:
    """Reads an HTML page; of anything else only the header counts."""
    asked = _wishes(_for_us(fetched.robots))
    root = _tree(fetched) if "html" in fetched.media_type.lower() else None
    if root is None:
        return PageLinks(may_index="noindex" not in asked)
    base = fetched.url
    canonical = None
    links = dict[str, None]()
    for element in root.iter("base", "link", "meta", "a"):
        given = {str(name).lower(): str(value) for name, value in element.attrib.items()}
        rel = given.get("rel", "").lower().split()
        match element.tag:
            case "base" if given.get("href"):
                base = normalise_url(given["href"], fetched.url) or base
            case "link" if "canonical" in rel:
                canonical = canonical or normalise_url(given.get("href", ""), base)
            case "meta" if given.get("name", "").lower() in ("robots", USER_AGENT):
                asked |= _wishes(given.get("content", ""))
            case "a" if given.get("href") and "nofollow" not in rel and len(links) < MAX_LINKS:
                if (link := normalise_url(given["href"], base)) is not None:
                    links[link] = None
    return PageLinks(() if "nofollow" in asked else tuple(links), canonical, "noindex" not in asked)


def _tree(fetched: FetchResponse) -> etree._Element | None:
    parser = etree.HTMLParser(
        encoding=_charset(fetched.media_type), no_network=True, recover=True, remove_comments=True
    )
    try:
        return etree.fromstring(fetched.content, parser)
    except (etree.LxmlError, ValueError):
        return None


def _charset(media_type: str) -> str:
    header = Message()
    header["Content-Type"] = media_type
    try:
        return codecs.lookup(str(header.get_param("charset") or "utf-8")).name
    except LookupError:
        return "utf-8"


def _for_us(header: str) -> str:
    """X-Robots-Tag without what is said to other crawlers: a name with a colon speaks to one, up to the next name."""
    kept, ours = [], True
    for part in header.split(","):
        name, colon, rest = part.strip().partition(":")
        if colon and name.strip().lower() not in (
            "unavailable_after",
            "max-snippet",
            "max-image-preview",
            "max-video-preview",
        ):
            ours, part = name.strip().lower() == USER_AGENT, rest
        if ours:
            kept.append(part)
    return ",".join(kept)


def _wishes(content: str) -> set[str]:
    said = {word.strip() for word in content.lower().split(",")}
    if "none" in said:
        return said | {"noindex", "nofollow"}
    return said
