"""The robots.txt of sites, and the sitemaps that it names."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from urllib.parse import urljoin
from xml.parsers import expat

from protego import Protego

from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.knowledge_bases.sources.user_agent import USER_AGENT
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused, parse_url

MAX_ROBOTS_BYTES = 512 * 1024
MAX_DELAY = 10.0  # a longer wait would not end the crawl in reasonable time
MAX_SITEMAPS = 10


@dataclass(frozen=True, slots=True)
class RobotsRules:
    """The robots.txt of one origin. Without a parser all is allowed, or nothing when `failure` says why it
    could not be read."""

    parser: Protego | None
    failure: str = ""

    def allows(self, url: str) -> bool:
        return not self.failure and (self.parser is None or self.parser.can_fetch(url, USER_AGENT))

    @property
    def delay(self) -> float:
        """Seconds between requests, within reason."""
        if self.parser is None:
            return 0.0
        crawl_delay = self.parser.crawl_delay(USER_AGENT) or 0.0
        return min(max(crawl_delay, 0.0), MAX_DELAY)

    @property
    def sitemaps(self) -> tuple[str, ...]:
        if self.parser is not None:
            return tuple(self.parser.sitemaps)
        return ()


@dataclass(slots=True)
class RobotsCache:
    """The robots.txt of every origin of a crawl, each fetched once."""

    fetcher: Fetcher
    _rules_by_origin: dict[str, RobotsRules] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def fetch_rules(self, url: str) -> RobotsRules:
        origin = parse_url(url).origin
        async with self._lock:
            if origin not in self._rules_by_origin:
                self._rules_by_origin[origin] = await self._read_robots(f"{origin}/robots.txt")
            return self._rules_by_origin[origin]

    async def _read_robots(self, url: str) -> RobotsRules:
        try:
            response = await self.fetcher.fetch(url, max_bytes=MAX_ROBOTS_BYTES)
        except FetchFailed as error:
            # RFC 9309: a site without the file allows all; one that cannot be reached is left alone.
            if error.status is None or error.status >= 500:
                return RobotsRules(None, str(error))
            return RobotsRules(None)
        except FetchRefused:
            return RobotsRules(None)
        return RobotsRules(Protego.parse(response.content.decode("utf-8", "replace")))

    async def list_sitemap_pages(self, start: str, limit: int) -> list[str]:
        """The pages of the site's sitemaps, if it has any."""
        sitemaps = list((await self.fetch_rules(start)).sitemaps) or ["/sitemap.xml"]
        pages: dict[str, None] = {}
        for _ in range(MAX_SITEMAPS):
            if not sitemaps or len(pages) >= limit:
                break
            nested, urls = await self._fetch_sitemap(urljoin(start, sitemaps.pop(0)), limit)
            sitemaps += nested
            pages.update(dict.fromkeys(urls))
        return list(pages)[:limit]

    async def _fetch_sitemap(self, url: str, limit: int) -> tuple[list[str], list[str]]:
        """The nested sitemaps and the pages of a sitemap; nothing for one that cannot be fetched."""
        try:
            rules = await self.fetch_rules(url)
            if not rules.allows(url):
                return [], []
            response = await self.fetcher.fetch(url)
        except (FetchRefused, FetchFailed):
            return [], []
        return await asyncio.to_thread(parse_sitemap, response.content, limit)


class _StopParsing(Exception):
    """Raised in a handler to stop the parser."""


def parse_sitemap(content: bytes, limit: int) -> tuple[list[str], list[str]]:
    """The sitemaps and the pages that a sitemap names, as far as it can be read."""
    path: list[str] = []
    text: list[str] = []
    locations: dict[str, list[str]] = {"sitemap": [], "url": []}

    def start_element(name: str, _: object) -> None:
        path.append(name.rpartition(":")[2])
        text.clear()

    def end_element(_: str) -> None:
        if path.pop() != "loc" or not path or path[-1] not in locations:
            return
        urls = locations[path[-1]]
        urls.append("".join(text).strip())
        if len(urls) >= limit:
            raise _StopParsing

    def refuse_entity(*_: object) -> None:
        raise _StopParsing  # entities: a few lines of them can stand for gigabytes

    parser = expat.ParserCreate()
    parser.StartElementHandler = start_element
    parser.EndElementHandler = end_element
    parser.CharacterDataHandler = text.append
    parser.EntityDeclHandler = refuse_entity
    with contextlib.suppress(_StopParsing, expat.ExpatError):
        parser.Parse(content, True)
    return locations["sitemap"], locations["url"]
