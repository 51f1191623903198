"""What a site asks of crawlers: its robots.txt, and the sitemaps that it names."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from urllib.parse import urljoin
from xml.parsers import expat

from protego import Protego

from ai_platform_engineering.knowledge_bases.sources.fetcher import USER_AGENT, Fetcher
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused, parse_url

MAX_ROBOTS_BYTES = 512 * 1024
MAX_DELAY = 10.0  # a longer wait would not end the crawl in reasonable time
MAX_SITEMAPS = 10


@dataclass(frozen=True, slots=True)
class RobotsRules:
    """The rules of one origin. Without a parser all is allowed, or nothing when `silent` says why the server could not tell."""

    parser: Protego | None
    failure: str = ""

    def allows(self, url: str) -> bool:
        return not self.failure and (self.parser is None or self.parser.can_fetch(url, USER_AGENT))

    @property
    def delay(self) -> float:
        asked = self.parser.crawl_delay(USER_AGENT) if self.parser is not None else None
        return min(max(asked or 0.0, 0.0), MAX_DELAY)

    @property
    def sitemaps(self) -> tuple[str, ...]:
        if self.parser is not None:
            return tuple(self.parser.sitemaps)
        return ()


@dataclass(slots=True)
class RobotsCache:
    """The rules of every origin that is met, each asked for once."""

    fetcher: Fetcher
    _known: dict[str, RobotsRules] = field(default_factory=dict)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def fetch_rules(self, url: str) -> RobotsRules:
        origin = parse_url(url).origin
        async with self._asking:
            if origin not in self._known:
                self._known[origin] = await self._ask(f"{origin}/robots.txt")
            return self._known[origin]

    async def _ask(self, url: str) -> RobotsRules:
        try:
            fetched = await self.fetcher.fetch(url, max_bytes=MAX_ROBOTS_BYTES)
        except FetchFailed as failed:
            # RFC 9309: a site without the file has no wishes; one that cannot say is left alone.
            return RobotsRules(None, str(failed) if failed.status is None or failed.status >= 500 else "")
        except FetchRefused:
            return RobotsRules(None)
        return RobotsRules(Protego.parse(fetched.content.decode("utf-8", "replace")))

    async def list_sitemap_pages(self, start: str, limit: int) -> list[str]:
        """The pages that the site lists, where it does."""
        waiting = list((await self.fetch_rules(start)).sitemaps) or ["/sitemap.xml"]
        pages: dict[str, None] = {}
        for _ in range(MAX_SITEMAPS):
            if not waiting or len(pages) >= limit:
                break
            more, listed = await self._listed(urljoin(start, waiting.pop(0)), limit)
            waiting += more
            pages.update(dict.fromkeys(listed))
        return list(pages)[:limit]

    async def _listed(self, url: str, limit: int) -> tuple[list[str], list[str]]:
        try:
            if not (await self.fetch_rules(url)).allows(url):
                return [], []
            content = (await self.fetcher.fetch(url)).content
        except (FetchRefused, FetchFailed):
            return [], []
        return await asyncio.to_thread(parse_sitemap, content, limit)


class _Enough(Exception):
    """Stops the parser."""


def parse_sitemap(content: bytes, limit: int) -> tuple[list[str], list[str]]:
    """The sitemaps and the pages that a sitemap names, as far as it can be read."""
    path: list[str] = []
    text: list[str] = []
    found: dict[str, list[str]] = {"sitemap": [], "url": []}

    def opened(name: str, _: object) -> None:
        path.append(name.rpartition(":")[2])
        text.clear()

    def closed(_: str) -> None:
        if path.pop() == "loc" and path and path[-1] in found:
            found[path[-1]].append("".join(text).strip())
            if len(found[path[-1]]) >= limit:
                raise _Enough

    def refuse(*_: object) -> None:
        raise _Enough  # entities: a few lines of them can stand for gigabytes

    parser = expat.ParserCreate()
    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.CharacterDataHandler = text.append
    parser.EntityDeclHandler = refuse
    with contextlib.suppress(_Enough, expat.ExpatError):
        parser.Parse(content, True)
    return found["sitemap"], found["url"]
