"""A bounded, polite crawl of a web site: each page once, within depth, count and host, as robots.txt allows."""

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, FetchResponse
from ai_platform_engineering.knowledge_bases.sources.page_links import normalise_url, read_page_links
from ai_platform_engineering.knowledge_bases.sources.robots import MAX_DELAY, RobotsCache, RobotsRules
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    RemovedItem,
    SkippedItem,
    SourceItem,
    UnchangedItem,
)
from ai_platform_engineering.net.url_policy import DEFAULT_PORTS, FetchFailed, FetchRefused, parse_url

Pause = Callable[[float], Awaitable[None]]
_LATER = frozenset({429, 503})
_GONE = frozenset({404, 410})
_TRIES_PER_PAGE = (
    4  # addresses tried for each page that is wanted: broken links must not make a crawl endless
)


@dataclass(frozen=True, slots=True)
class CrawlLimits:
    """How far a crawl goes. Depth 0 is the page alone; without a prefix it stays on the host."""

    depth: int = 3
    max_pages: int = 500
    prefix: str | None = None
    concurrency: int = 4

    @property
    def fingerprint(self) -> str:
        return f"{self.depth}/{self.max_pages}/{self.prefix or ''}"


@dataclass(frozen=True, slots=True)
class _Mark:
    """What is remembered of a page."""

    digest: str = ""
    etag: str = ""
    modified: str = ""
    depth: int = 0
    bounds: str = ""

    @classmethod
    def read(cls, text: str) -> "_Mark":
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return cls()

    def written(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


@dataclass(slots=True)
class _Scope:
    """The hosts of a crawl, and the prefix that addresses must have."""

    prefix: str | None
    hosts: set[tuple[str, int]] = field(default_factory=set)

    def open(self, url: str) -> None:
        self.hosts.add(self._host(url))

    def covers(self, url: str) -> bool:
        return self._host(url) in self.hosts and (self.prefix is None or _bare(url).startswith(self.prefix))

    @staticmethod
    def _host(url: str) -> tuple[str, int]:
        target = parse_url(url)
        return (
            target.host,
            0 if target.port in DEFAULT_PORTS.values() else target.port,
        )  # http and https are one site


class Crawl:
    """One walk through a site. Pages that are known are looked at again, whether or not something still leads to them."""

    def __init__(
        self, start: str, fetcher: Fetcher, bounds: CrawlLimits | None = None, *, pause: Pause = asyncio.sleep
    ) -> None:
        """Raises FetchRefused for what is no web address."""
        self.start = parse_url(start).url
        self._fetcher = fetcher
        self._bounds = bounds or CrawlLimits()
        self._pause = pause
        prefix = self._bounds.prefix
        self._scope = _Scope(_bare(parse_url(prefix).url) if prefix else None)
        self._robots = RobotsCache(fetcher)
        self._waiting: deque[tuple[str, int]] = deque()
        self._seen: set[str] = set()
        self._chosen: set[str] = set()  # what other pages named as their canonical address
        self._digests: dict[str, str] = {}
        self._known: dict[str, _Mark] = {}
        self._taken, self._tried = 0, 1  # the start is the first
        self._turn, self._began = asyncio.Lock(), False

    async def items(self, known: Mapping[str, str]) -> AsyncGenerator[SourceItem, None]:
        self._known = {address: _Mark.read(mark) for address, mark in known.items()}
        self._digests = {mark.digest: address for address, mark in self._known.items() if mark.digest}
        start = normalise_url(self.start) or self.start
        self._seen.add(start)
        self._scope.open(start)
        for item in await self._visit(start, 0):
            yield item
        for item in self._look_again():
            yield item
        if self._bounds.depth > 0:
            for url in await self._robots.list_sitemap_pages(start, self._bounds.max_pages * 2):
                self._add(normalise_url(url, start), 1)
        async for item in self._walk():
            yield item
        if self._waiting:
            left = f"{len(self._waiting)} more addresses were not looked at."
            yield SkippedItem(
                start, f"The crawl stopped at its limit of {self._bounds.max_pages} pages; {left}"
            )

    def _look_again(self) -> list[SourceItem]:
        """Puts known pages in the queue; those outside of the crawl's bounds have left, if its start could be read at all."""
        outside: list[SourceItem] = []
        for url, mark in self._known.items():
            if self._scope.covers(url):
                self._add(url, mark.depth)
            elif self._taken:
                outside.append(RemovedItem(url))
        return outside

    async def _walk(self) -> AsyncGenerator[SourceItem, None]:
        running: set[asyncio.Task[list[SourceItem]]] = set()
        try:
            while self._waiting or running:
                while (
                    self._waiting
                    and len(running) < self._bounds.concurrency
                    and self._may_start(len(running))
                ):
                    self._tried += 1
                    running.add(asyncio.create_task(self._visit(*self._waiting.popleft())))
                if not running:
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    for item in task.result():
                        yield item
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _may_start(self, running: int) -> bool:
        return (
            self._taken + running < self._bounds.max_pages
            and self._tried < self._bounds.max_pages * _TRIES_PER_PAGE
        )

    def _add(self, url: str | None, depth: int) -> None:
        if (
            url is not None
            and depth <= self._bounds.depth
            and url not in self._seen
            and self._scope.covers(url)
        ):
            self._seen.add(url)
            self._waiting.append((url, depth))

    async def _visit(self, url: str, depth: int) -> list[SourceItem]:
        try:
            rules = await self._robots.fetch_rules(url)
            if not rules.allows(url):
                return self._not_allowed(url, rules)
            fetched = await self._fetched(url, rules.delay)
        except FetchRefused as refused:
            return [SkippedItem(url, str(refused))]
        except FetchFailed as failed:
            return [SkippedItem(url, str(failed))] + (self._gone(url) if failed.status in _GONE else [])
        if fetched.status == 304:
            self._taken += 1
            return [UnchangedItem(url, self._known[url].written())]
        return await self._read(url, depth, fetched)

    def _not_allowed(self, url: str, rules: RobotsRules) -> list[SourceItem]:
        if rules.failure:  # left alone, but its pages are not gone
            return [SkippedItem(url, f"The site's robots.txt could not be read. {rules.failure}")]
        return [SkippedItem(url, "The site's robots.txt does not allow it."), *self._gone(url)]

    async def _fetched(self, url: str, delay: float) -> FetchResponse:
        mark = self._known.get(url, _Mark())
        # With other bounds the links of an unchanged page matter again, and they come only with the page.
        etag, modified = (mark.etag, mark.modified) if mark.bounds == self._bounds.fingerprint else ("", "")
        await self._wait(delay)
        try:
            return await self._fetcher.fetch(url, etag=etag, modified=modified)
        except FetchFailed as failed:
            if failed.status not in _LATER or (failed.retry_after or 0) > MAX_DELAY:
                raise
            await self._pause(max(failed.retry_after or 1.0, delay))
        return await self._fetcher.fetch(url, etag=etag, modified=modified)

    async def _wait(self, delay: float) -> None:
        """Keeps the distance between requests that the site asks for."""
        if delay:
            async with self._turn:
                if self._began:
                    await self._pause(delay)
                self._began = True

    async def _read(self, url: str, depth: int, fetched: FetchResponse) -> list[SourceItem]:
        address = normalise_url(fetched.url) or url
        if address != url:
            if depth == 0:
                self._scope.open(address)  # where the start leads is where the site is
            if (left := await self._led_away(url, address)) is not None:
                return left
            self._seen.add(address)
        page = await asyncio.to_thread(read_page_links, fetched)
        for link in page.links:
            self._add(link, depth + 1)
        if not page.may_index:
            return [SkippedItem(address, "The page asks not to be indexed."), *self._gone(url, address)]
        if page.canonical and self._defers(address, page.canonical):
            self._chosen.add(page.canonical)
            self._add(page.canonical, depth)
            return self._gone(url, address)
        return self._taken_in(url, address, depth, fetched)

    async def _led_away(self, url: str, address: str) -> list[SourceItem] | None:
        if not self._scope.covers(address):
            return [SkippedItem(url, "The page redirects to a place outside of the crawl."), *self._gone(url)]
        if address in self._seen:
            return self._gone(url)
        if not (await self._robots.fetch_rules(address)).allows(address):
            return [
                SkippedItem(url, "The page redirects to one that robots.txt does not allow."),
                *self._gone(url),
            ]
        return None

    def _defers(self, address: str, canonical: str) -> bool:
        """Whether a page stands for another one. A site whose pages all name its front page is not believed."""
        if canonical == address or address in self._chosen or not self._scope.covers(canonical):
            return False
        return parse_url(canonical).path != "/"

    def _taken_in(self, url: str, address: str, depth: int, fetched: FetchResponse) -> list[SourceItem]:
        digest = hashlib.sha256(fetched.content).hexdigest()
        if self._digests.get(digest, address) not in (address, url):
            return self._gone(url, address)
        self._digests[digest] = address
        self._taken += 1
        mark = _Mark(digest, fetched.etag, fetched.modified, depth, self._bounds.fingerprint).written()
        moved: list[SourceItem] = self._gone(url) if address != url else []
        if address in self._known and self._known[address].digest == digest:
            return [*moved, UnchangedItem(address, mark)]
        raw = RawDocument(
            address, fetched.content, fetched.media_type, link=address, changed=_time(fetched.modified)
        )
        return [*moved, ChangedItem(raw, mark)]

    def _gone(self, *addresses: str) -> list[SourceItem]:
        left = [address for address in dict.fromkeys(addresses) if address in self._known]
        for address in left:
            digest = self._known[address].digest
            if self._digests.get(digest) == address:
                del self._digests[digest]  # the same content may live on elsewhere
        return [RemovedItem(address) for address in left]


def _bare(url: str) -> str:
    return url.partition("://")[2]


def _time(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None
