"""A polite crawl of a web site within limits: each page once, within depth, count and host, as robots.txt
allows."""

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, FetchResponse
from ai_platform_engineering.knowledge_bases.sources.page_links import (
    PageLinks,
    normalise_url,
    read_page_links,
)
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
# The links of a page: its URL, content, media type and X-Robots-Tag.
ReadLinks = Callable[[str, bytes, str, str], Awaitable[PageLinks]]
_RETRYABLE_STATUSES = frozenset({429, 503})
_GONE_STATUSES = frozenset({404, 410})
_TRIES_PER_PAGE = 4  # URLs tried for each page of the limit: broken links must not make a crawl endless


@dataclass(frozen=True, slots=True)
class CrawlLimits:
    """How far a crawl goes. Depth 0 is the start page alone; without a prefix it stays on the host."""

    depth: int = 3
    max_pages: int = 500
    prefix: str | None = None
    concurrency: int = 4

    @property
    def fingerprint(self) -> str:
        """Differs when other pages may be reached; stored in the mark of each page."""
        return f"{self.depth}/{self.max_pages}/{self.prefix or ''}"


@dataclass(frozen=True, slots=True)
class _PageMark:
    """The change mark of a page, stored as JSON: what tells at the next crawl whether the page changed."""

    digest: str = ""
    etag: str = ""
    modified: str = ""
    depth: int = 0
    bounds: str = ""  # the fingerprint of the limits

    @classmethod
    def from_json(cls, text: str) -> "_PageMark":
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return cls()

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


@dataclass(slots=True)
class _Scope:
    """The hosts of a crawl, and the prefix that URLs must have."""

    prefix: str | None
    hosts: set[tuple[str, int]] = field(default_factory=set)

    def add_host(self, url: str) -> None:
        self.hosts.add(self._host(url))

    def covers(self, url: str) -> bool:
        if self._host(url) not in self.hosts:
            return False
        return self.prefix is None or _without_scheme(url).startswith(self.prefix)

    @staticmethod
    def _host(url: str) -> tuple[str, int]:
        target = parse_url(url)
        if target.port in DEFAULT_PORTS.values():
            return target.host, 0  # http and https are one site
        return target.host, target.port


class Crawl:
    """One crawl of a site. Pages of the last crawl are visited again, whether or not a link still leads to
    them."""

    def __init__(
        self,
        start: str,
        fetcher: Fetcher,
        limits: CrawlLimits | None = None,
        *,
        read_links: ReadLinks | None = None,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """`read_links`: where pages are parsed, in a thread of this process by default. Raises FetchRefused
        for what is no web address."""
        self.start = parse_url(start).url
        self._fetcher = fetcher
        self._limits = limits or CrawlLimits()
        self._read_links = read_links or _read_links_in_thread
        self._pause = pause
        prefix = self._limits.prefix
        if prefix:
            prefix = _without_scheme(parse_url(prefix).url)
        self._scope = _Scope(prefix or None)
        self._robots = RobotsCache(fetcher)
        self._queue: deque[tuple[str, int]] = deque()  # URLs with their depth
        self._queued_urls: set[str] = set()  # at any time: each page is visited once
        self._canonical_urls: set[str] = set()  # that other pages name as theirs
        self._address_by_digest: dict[str, str] = {}
        self._marks: dict[str, _PageMark] = {}  # of the last crawl, by address
        self._page_count = 0
        self._visit_count = 1  # the start is the first
        self._delay_lock = asyncio.Lock()
        self._has_requested = False

    async def items(self, known_marks: Mapping[str, str]) -> AsyncGenerator[SourceItem, None]:
        for address, text in known_marks.items():
            mark = _PageMark.from_json(text)
            self._marks[address] = mark
            if mark.digest:
                self._address_by_digest[mark.digest] = address
        start = normalise_url(self.start) or self.start
        self._queued_urls.add(start)
        self._scope.add_host(start)
        for item in await self._visit(start, 0):
            yield item
        for item in self._enqueue_known_pages():
            yield item
        if self._limits.depth > 0:
            for url in await self._robots.list_sitemap_pages(start, self._limits.max_pages * 2):
                self._enqueue(normalise_url(url, start), 1)
        async for item in self._visit_queue():
            yield item
        if self._queue:
            yield SkippedItem(
                start,
                f"The crawl stopped at its limit of {self._limits.max_pages} pages; "
                f"{len(self._queue)} more addresses were not looked at.",
            )

    def _enqueue_known_pages(self) -> list[SourceItem]:
        """Queues the pages of the last crawl; those out of scope are removed, if the start could be read at
        all."""
        removed: list[SourceItem] = []
        for url, mark in self._marks.items():
            if self._scope.covers(url):
                self._enqueue(url, mark.depth)
            elif self._page_count:
                removed.append(RemovedItem(url))
        return removed

    async def _visit_queue(self) -> AsyncGenerator[SourceItem, None]:
        running: set[asyncio.Task[list[SourceItem]]] = set()
        try:
            while self._queue or running:
                while self._queue and self._may_start(len(running)):
                    self._visit_count += 1
                    url, depth = self._queue.popleft()
                    running.add(asyncio.create_task(self._visit(url, depth)))
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
        """Whether another visit may start beside those that run."""
        if running >= self._limits.concurrency:
            return False
        if self._visit_count >= self._limits.max_pages * _TRIES_PER_PAGE:
            return False
        return self._page_count + running < self._limits.max_pages

    def _enqueue(self, url: str | None, depth: int) -> None:
        if url is None or depth > self._limits.depth:
            return
        if url not in self._queued_urls and self._scope.covers(url):
            self._queued_urls.add(url)
            self._queue.append((url, depth))

    async def _visit(self, url: str, depth: int) -> list[SourceItem]:
        try:
            rules = await self._robots.fetch_rules(url)
            if not rules.allows(url):
                return self._skip_disallowed(url, rules)
            response = await self._fetch(url, rules.delay)
        except FetchRefused as error:
            return [SkippedItem(url, str(error))]
        except FetchFailed as error:
            skipped = SkippedItem(url, str(error))
            if error.status in _GONE_STATUSES:
                return [skipped, *self._remove(url)]
            return [skipped]
        if response.status == HTTPStatus.NOT_MODIFIED:
            self._page_count += 1
            return [UnchangedItem(url, self._marks[url].to_json())]
        return await self._read_page(url, depth, response)

    def _skip_disallowed(self, url: str, rules: RobotsRules) -> list[SourceItem]:
        if rules.failure:  # the site is left alone, but its pages are not removed
            return [SkippedItem(url, f"The site's robots.txt could not be read. {rules.failure}")]
        return [SkippedItem(url, "The site's robots.txt does not allow it."), *self._remove(url)]

    async def _fetch(self, url: str, delay: float) -> FetchResponse:
        """A page, fetched only if it changed, with one retry when the server is busy."""
        mark = self._marks.get(url, _PageMark())
        if mark.bounds != self._limits.fingerprint:
            # With other limits the links of an unchanged page matter again, and they come only with the page.
            mark = _PageMark()
        await self._wait_for_turn(delay)
        try:
            return await self._fetcher.fetch(url, etag=mark.etag, modified=mark.modified)
        except FetchFailed as error:
            if error.status not in _RETRYABLE_STATUSES or (error.retry_after or 0) > MAX_DELAY:
                raise
            await self._pause(max(error.retry_after or 1.0, delay))
        return await self._fetcher.fetch(url, etag=mark.etag, modified=mark.modified)

    async def _wait_for_turn(self, delay: float) -> None:
        """Keeps the crawl delay of the site between requests."""
        if delay:
            async with self._delay_lock:
                if self._has_requested:
                    await self._pause(delay)
                self._has_requested = True

    async def _read_page(self, url: str, depth: int, response: FetchResponse) -> list[SourceItem]:
        address = normalise_url(response.url) or url
        if address != url:
            if depth == 0:
                self._scope.add_host(address)  # where the start redirects to is where the site is
            redirect_items = await self._check_redirect(url, address)
            if redirect_items is not None:
                return redirect_items
            self._queued_urls.add(address)
        page = await self._read_links(response.url, response.content, response.media_type, response.robots)
        for link in page.links:
            self._enqueue(link, depth + 1)
        if not page.may_index:
            return [SkippedItem(address, "The page asks not to be indexed."), *self._remove(url, address)]
        if page.canonical and self._is_duplicate_of(page.canonical, address):
            self._canonical_urls.add(page.canonical)
            self._enqueue(page.canonical, depth)
            return self._remove(url, address)
        return self._create_items(url, address, depth, response)

    async def _check_redirect(self, url: str, address: str) -> list[SourceItem] | None:
        """The items of a page whose redirect is not followed; None for one that is."""
        if not self._scope.covers(address):
            return [
                SkippedItem(url, "The page redirects to a place outside of the crawl."),
                *self._remove(url),
            ]
        if address in self._queued_urls:
            return self._remove(url)
        rules = await self._robots.fetch_rules(address)
        if not rules.allows(address):
            return [
                SkippedItem(url, "The page redirects to one that robots.txt does not allow."),
                *self._remove(url),
            ]
        return None

    def _is_duplicate_of(self, canonical: str, address: str) -> bool:
        """Whether the page at `address` is left out for its canonical one. A site whose pages all name its
        front page is not believed."""
        if canonical == address or address in self._canonical_urls:
            return False
        return self._scope.covers(canonical) and parse_url(canonical).path != "/"

    def _create_items(self, url: str, address: str, depth: int, response: FetchResponse) -> list[SourceItem]:
        """The items of a page that was read: changed or not, and removed from the URL it moved away from."""
        digest = hashlib.sha256(response.content).hexdigest()
        if self._address_by_digest.get(digest, address) not in (address, url):
            return self._remove(url, address)  # the same content has another address already
        self._address_by_digest[digest] = address
        self._page_count += 1
        items: list[SourceItem] = []
        if address != url:
            items += self._remove(url)
        mark = _PageMark(digest, response.etag, response.modified, depth, self._limits.fingerprint).to_json()
        if address in self._marks and self._marks[address].digest == digest:
            return [*items, UnchangedItem(address, mark)]
        raw = RawDocument(
            address,
            response.content,
            response.media_type,
            link=address,
            changed=_parse_time(response.modified),
        )
        return [*items, ChangedItem(raw, mark)]

    def _remove(self, *addresses: str) -> list[SourceItem]:
        """Items for those of the addresses that the last crawl stored."""
        items: list[SourceItem] = []
        for address in dict.fromkeys(addresses):
            if address not in self._marks:
                continue
            digest = self._marks[address].digest
            if self._address_by_digest.get(digest) == address:
                del self._address_by_digest[digest]  # the same content may live on elsewhere
            items.append(RemovedItem(address))
        return items


async def _read_links_in_thread(url: str, content: bytes, media_type: str, robots: str) -> PageLinks:
    return await asyncio.to_thread(read_page_links, url, content, media_type, robots)


def _without_scheme(url: str) -> str:
    return url.partition("://")[2]


def _parse_time(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None
