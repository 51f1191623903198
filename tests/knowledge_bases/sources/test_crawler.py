"""Crawling a site: within its bounds, as the site asks, each page once, and only what has changed the second
time."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from ai_platform_engineering.knowledge_bases.sources.crawler import Crawl, CrawlLimits
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, FetchLimits
from ai_platform_engineering.knowledge_bases.sources.page_links import normalise_url
from ai_platform_engineering.knowledge_bases.sources.robots import parse_sitemap
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    RemovedItem,
    SkippedItem,
    UnchangedItem,
)
from ai_platform_engineering.net.url_policy import FetchRefused
from tests.support.fakes.site import PUBLIC, Answer, FakeNetwork, Page, Request, Site, serve_site


@dataclass(slots=True)
class CrawlResult:
    """What a crawl told, by path."""

    changed: dict[str, ChangedItem] = field(default_factory=dict)
    unchanged: dict[str, UnchangedItem] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    @property
    def marks(self) -> dict[str, str]:
        items: list[ChangedItem | UnchangedItem] = [*self.changed.values(), *self.unchanged.values()]
        return {item.address: item.mark for item in items}


async def run_crawl(
    served: Site,
    bounds: CrawlLimits | None = None,
    known_marks: Mapping[str, str] | None = None,
    start: str = "/",
    world: FakeNetwork | None = None,
) -> CrawlResult:
    walk = CrawlResult()

    async def pause(seconds: float) -> None:
        walk.pauses.append(seconds)

    fetcher = Fetcher(FetchLimits(seconds=10), allow_private=world is None, connector=world)
    root = served.url if world is None else "http://open.test"
    async for item in Crawl(root + start, fetcher, bounds, pause=pause).items(known_marks or {}):
        path = item.address.removeprefix(root)
        match item:
            case ChangedItem():
                assert path not in walk.changed
                walk.changed[path] = item
            case UnchangedItem():
                walk.unchanged[path] = item
            case SkippedItem(reason=reason):
                walk.skipped[path] = reason
            case RemovedItem():
                walk.removed.append(path)
    return walk


def page(*links: str, text: str = "", head: str = "", **headers: str) -> Page:
    """A page with a text of its own, which tells it from others."""
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    return Page(f"<html><head>{head}</head><body>{text or links}{anchors}</body></html>", headers=headers)


def text_page(text: str) -> Page:
    return Page(text, "text/plain")


async def test_a_site_is_walked_through() -> None:
    pages: dict[str, Answer] = {
        "/": page(
            "a",
            "/b#top",
            "/b?utm_source=x&gclid=1",
            "/missing",
            "mailto:a@b.test",
            "javascript:x()",
            "/pic.PNG",
            "http://[",
            "//[",
        ),
        "/a": page("./deep/c", "/", "/a", "https://elsewhere.test/"),
        "/b": Page("# Title", "text/markdown", headers={"Last-Modified": "Mon, 01 Jan 2024 10:00:00 GMT"}),
        "/deep/c": page("../b", "d?q=1&utm_medium=y"),
        "/deep/d?q=1": page(text="deep"),
    }
    async with serve_site(pages) as served:
        walk = await run_crawl(served)
        assert set(walk.changed) == {"/", "/a", "/b", "/deep/c", "/deep/d?q=1"}
        assert walk.skipped == {"/missing": "The server answered 404 (Not Found)."}
        assert walk.removed == []
        assert sorted(served.paths) == sorted([*pages, "/missing", "/robots.txt", "/sitemap.xml"])
        raw = walk.changed["/b"].raw
        assert (raw.content, raw.media_type, raw.link) == (b"# Title", "text/markdown", f"{served.url}/b")
        assert raw.changed == datetime(2024, 1, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (CrawlLimits(depth=0), {"/docs/"}),
        (CrawlLimits(depth=1), {"/docs/", "/docs/a", "/other"}),
        (CrawlLimits(depth=2), {"/docs/", "/docs/a", "/docs/b", "/other"}),
        (CrawlLimits(prefix="https://open.test/docs/"), {"/docs/", "/docs/a", "/docs/b"}),
    ],
)
async def test_depth_and_prefix(bounds: CrawlLimits, expected: set[str]) -> None:
    pages: dict[str, Answer] = {
        "/docs/": page("a", "/other"),
        "/docs/a": page("b"),
        "/docs/b": page(text="b"),
        "/other": page(text="o"),
    }
    async with serve_site(pages) as served:
        walk = await run_crawl(
            served, bounds, start="/docs/", world=FakeNetwork({"open.test": (PUBLIC,)}, {PUBLIC: served.port})
        )
    assert set(walk.changed) == expected


async def test_the_count_ends_an_endless_site() -> None:
    class Endless(dict[str, Answer]):
        def get(self, path: str, default: object = None) -> Answer:  # every path is a page
            if path in ("/robots.txt", "/sitemap.xml"):
                return Page(status=404)
            return page(f"{path}1/", f"{path}2/", text=path)

    async with serve_site() as served:
        served.pages = Endless()
        walk = await run_crawl(served, CrawlLimits(depth=50, max_pages=7))
        assert len(walk.changed) == 7
        assert "limit of 7 pages" in walk.skipped["/"]
        assert len(served.requests) == 9


async def test_broken_links_do_not_use_up_the_count_and_do_not_go_on_for_ever() -> None:
    async with serve_site(
        {"/": page(*(f"/gone{n}" for n in range(100)), "/last"), "/last": page(text="last")}
    ) as served:
        walk = await run_crawl(served, CrawlLimits(max_pages=5))
        assert len(served.requests) == 2 + 20
    assert set(walk.changed) == {"/"}


async def test_robots_are_obeyed() -> None:
    robots = (
        "User-agent: *\nDisallow: /\n\n"
        "User-agent: caipe\nDisallow: /private\nAllow: /private/open$\nCrawl-delay: 2.5\n"
    )
    pages: dict[str, Answer] = {
        "/robots.txt": text_page(robots),
        "/": page("/private/x", "/private/open", "/moved"),
        "/private/x": page(text="secret"),
        "/private/open": page(text="open"),
        "/moved": Page(status=301, headers={"Location": "/private/y"}),
        "/private/y": page(text="moved there"),
    }
    async with serve_site(pages) as served:
        walk = await run_crawl(served)
        assert set(walk.changed) == {"/", "/private/open"}
        assert set(walk.skipped) == {"/private/x", "/moved"}
        assert "/private/x" not in served.paths
        assert served.paths.count("/robots.txt") == 1
    assert walk.pauses == [2.5, 2.5]  # before each page but the first


async def test_a_long_delay_is_shortened() -> None:
    async with serve_site(
        {"/robots.txt": text_page("User-agent: *\nCrawl-delay: 86400"), "/": page("/a"), "/a": page(text="a")}
    ) as served:
        assert (await run_crawl(served)).pauses == [10.0]


@pytest.mark.parametrize(
    ("robots", "reached"),
    [
        (Page(status=404), True),
        (Page(status=403), True),
        (Page(status=500), False),
        (Page(b"x", length=99), False),
        (Page("<html>no robots</html>"), True),
        (Page(b"\xff\x00", "image/png"), True),
    ],
)
async def test_a_site_that_cannot_say_what_it_wants_is_left_alone(robots: Page, reached: bool) -> None:
    async with serve_site({"/robots.txt": robots, "/": page(text="hello")}) as served:
        walk = await run_crawl(served, CrawlLimits(depth=0), known_marks={f"{served.url}/": "{}"})
        assert ("/" in walk.changed, "/" in served.paths) == (reached, reached)
        assert walk.removed == []
        assert reached or "robots.txt could not be read" in walk.skipped["/"]


async def test_pages_say_what_may_be_done_with_them() -> None:
    pages: dict[str, Answer] = {
        "/": page("/noindex", "/nofollow", "/head", "/o", head='<a href="/x" rel="noopener NoFollow">x</a>'),
        "/x": page(text="x"),
        "/noindex": page("/from-noindex", head='<meta name="ROBOTS" content="NoIndex">'),
        "/from-noindex": page(text="y"),
        "/nofollow": page("/from-nofollow", head='<meta name="caipe" content="nofollow">'),
        "/from-nofollow": page(text="z"),
        "/head": page("/from-head", **{"X-Robots-Tag": "none"}),
        "/from-head": page(text="h"),
        "/o": page(text="o", **{"X-Robots-Tag": "otherbot: noindex, nofollow"}),
    }
    async with serve_site(pages) as served:
        walk = await run_crawl(served)
        assert set(walk.changed) == {"/", "/from-noindex", "/nofollow", "/o"}
        assert set(walk.skipped) == {"/noindex", "/head"}


async def test_the_same_page_is_taken_once() -> None:
    pages: dict[str, Answer] = {
        "/": page("/a", "/copy", "/print", "/here", "/there", "/wrong", "/r1", "/r2"),
        "/a": page(text="the same"),
        "/copy": page(text="the same"),
        "/print": page(text="printed", head='<link rel="canonical" href="/real">'),
        "/real": page(text="real", head='<link rel="canonical" href="/real#x">'),
        "/here": page(text="here", head='<link rel="canonical" href="/there">'),
        "/there": page(text="there", head='<link rel="canonical" href="/here">'),
        "/wrong": page(text="wrong", head='<link rel="canonical" href="/">'),
        "/r1": Page(status=302, headers={"Location": "/target"}),
        "/r2": Page(status=302, headers={"Location": "/target"}),
        "/target": page(text="target"),
    }
    async with serve_site(pages) as served:
        walk = await run_crawl(served)
    assert len(walk.changed.keys() & {"/a", "/copy"}) == 1
    assert len(walk.changed.keys() & {"/here", "/there"}) == 1
    assert walk.changed.keys() - {"/a", "/copy", "/here", "/there"} == {"/", "/real", "/wrong", "/target"}
    assert walk.skipped == {}


async def test_sitemaps_are_seeds() -> None:
    def listed(kind: str, *places: str) -> Page:
        inner = "".join(f"<{kind}><loc> {place} </loc></{kind}>" for place in places)
        return Page(
            f'<?xml version="1.0"?><x xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{inner}</x>',
            "application/xml",
        )

    async with serve_site(
        {"/": page(text="start"), "/hidden": page(text="hidden"), "/deep": page(text="deep")}
    ) as served:
        served.pages["/sitemap.xml"] = listed(
            "url", f"{served.url}/hidden", "http://elsewhere.test/x", "::::"
        )
        assert set((await run_crawl(served)).changed) == {"/", "/hidden"}
        assert set((await run_crawl(served, CrawlLimits(depth=0))).changed) == {"/"}
        served.pages["/robots.txt"] = text_page(
            "User-agent: *\nDisallow: /closed\nSitemap: /index.xml\nSitemap: /closed/map.xml\n"
        )
        served.pages["/index.xml"] = listed("sitemap", f"{served.url}/one.xml", f"{served.url}/index.xml")
        served.pages["/one.xml"] = listed("url", f"{served.url}/deep")
        assert set((await run_crawl(served)).changed) == {"/", "/deep"}
        assert served.paths.count("/index.xml") < 10
        assert "/closed/map.xml" not in served.paths


def test_a_sitemap_that_is_a_trap_ends() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><urlset><url><loc>http://h/&b;</loc></url></urlset>'
    assert parse_sitemap(bomb, 10) == ([], [])
    assert parse_sitemap(b"<urlset><url><loc>http://h/1</loc></url><url><loc>http://h/2</loc>", 10) == (
        [],
        ["http://h/1", "http://h/2"],
    )
    assert parse_sitemap(b"<urlset>" + b"<url><loc>http://h/</loc></url>" * 50 + b"</urlset>", 10) == (
        [],
        ["http://h/"] * 10,
    )
    assert parse_sitemap(b"\x1f\x8b nothing", 10) == ([], [])


def tagged(tag: str, body: Page) -> Answer:
    """A page that is not sent to who has it."""

    def answer(request: Request) -> Page:
        return (
            Page(status=304)
            if request.headers.get("if-none-match") == tag
            else Page(body.body, headers={"ETag": tag})
        )

    return answer


async def test_a_refresh_asks_only_for_what_changed() -> None:
    pages: dict[str, Answer] = {
        "/": tagged('"1"', page("/a", "/b", "/c", "/d")),
        "/a": tagged('"1"', page("/under-a", text="a")),
        "/b": page(text="b"),
        "/c": page(text="c"),
        "/d": page(text="d"),
        "/under-a": page(text="under a"),
    }
    async with serve_site(pages) as served:
        first = await run_crawl(served)
        assert set(first.changed) == {"/", "/a", "/b", "/c", "/d", "/under-a"}
        del served.pages["/c"]
        served.pages |= {
            "/b": page("/new", text="b changed"),
            "/new": page(text="new"),
            "/d": Page(status=500),
        }
        served.requests.clear()
        second = await run_crawl(served, known_marks=first.marks)
        assert set(second.changed) == {"/b", "/new"}
        assert set(second.unchanged) == {"/", "/a", "/under-a"}
        assert second.removed == ["/c"]
        assert set(second.skipped) == {"/c", "/d"}
        third = await run_crawl(served, known_marks={**first.marks, **second.marks})
        assert (set(third.changed), set(third.unchanged)) == (set(), {"/", "/a", "/b", "/new", "/under-a"})


async def test_wider_bounds_follow_the_links_of_pages_that_did_not_change() -> None:
    pages: dict[str, Answer] = {
        "/": tagged("1", page("/a")),
        "/a": tagged("2", page("/b", text="a")),
        "/b": page(text="b"),
    }
    async with serve_site(pages) as served:
        near = await run_crawl(served, CrawlLimits(depth=1))
        assert set(near.changed) == {"/", "/a"}
        far = await run_crawl(served, CrawlLimits(depth=2), known_marks=near.marks)
    assert (set(far.changed), set(far.unchanged)) == ({"/b"}, {"/", "/a"})


async def test_a_page_that_moves_is_not_lost() -> None:
    async with serve_site(
        {"/": page("/old", "/plain"), "/old": page(text="old"), "/plain": page(text="plain")}
    ) as served:
        first = await run_crawl(served)
        served.pages["/old"] = Page(status=301, headers={"Location": "/new"})
        served.pages["/new"] = page(text="old")
        served.pages["/plain"] = page(text="plain", head='<link rel="canonical" href="/better">')
        served.pages["/better"] = page(text="plain")
        second = await run_crawl(served, known_marks=first.marks)
        assert sorted(second.removed) == ["/old", "/plain"]
        assert set(second.changed) == {"/new", "/better"}
        narrow = await run_crawl(
            served,
            CrawlLimits(prefix=f"{served.url}/new"),
            known_marks={**first.marks, **second.marks},
            start="/new",
        )
        assert set(narrow.removed) == {"/", "/old", "/plain", "/better"}


async def test_a_site_that_is_away_loses_nothing() -> None:
    async with serve_site({"/": page("/a"), "/a": page(text="a")}) as served:
        first = await run_crawl(served)
        served.pages = {path: Page(status=503) for path in ("/robots.txt", "/", "/a")}
        assert (await run_crawl(served, known_marks=first.marks)).removed == []
        served.pages = {path: Page(status=503, headers={"Retry-After": "7"}) for path in ("/", "/a")}
        away = await run_crawl(served, known_marks=first.marks)
        assert (away.removed, set(away.skipped), away.pauses) == ([], {"/", "/a"}, [7.0, 7.0])
        served.pages = {path: Page(status=429, headers={"Retry-After": "3600"}) for path in ("/", "/a")}
        assert (await run_crawl(served, known_marks=first.marks)).pauses == []


async def test_where_the_start_leads_is_where_the_site_is() -> None:
    world = FakeNetwork({"open.test": (PUBLIC,), "www.open.test": (PUBLIC,), "inner.test": ("10.0.0.1",)})
    pages: dict[str, Answer] = {
        "/": lambda request: (
            page("/a", "http://inner.test/", text="www")
            if request.headers["host"].startswith("www")
            else Page(status=301, headers={"Location": "http://www.open.test/"})
        ),
        "/a": page("http://www.open.test/b", "/away", text="a"),
        "/b": page(text="b"),
        "/away": Page(status=302, headers={"Location": "http://inner.test/"}),
    }
    async with serve_site(pages) as served:
        world.ports = {PUBLIC: served.port}
        walk = await run_crawl(served, world=world)
        served.pages["/"] = Page(status=500)
        away = await run_crawl(served, world=world, known_marks=walk.marks)
    assert (away.removed, set(away.skipped)) == ([], {"/"})
    assert set(walk.changed) == {f"http://www.open.test{path}" for path in ("/", "/a", "/b")}
    assert walk.skipped == {
        "http://www.open.test/away": "The page redirects to an address that is not allowed."
    }
    assert set(world.attempts) == {PUBLIC}


async def test_four_requests_at_a_time() -> None:
    async with serve_site(
        {"/": page(*(f"/{n}" for n in range(12))), **{f"/{n}": page(text=str(n)) for n in range(12)}}
    ) as served:
        served.gate = asyncio.Barrier(4)
        assert len((await run_crawl(served)).changed) == 13
        assert served.most == 4


async def test_a_crawl_that_is_left_asks_for_nothing_more() -> None:
    async with serve_site(
        {"/": page(*(f"/{n}" for n in range(12))), **{f"/{n}": page(text=str(n)) for n in range(12)}}
    ) as served:
        async with contextlib.aclosing(
            Crawl(f"{served.url}/", Fetcher(allow_private=True)).items({})
        ) as walk:
            assert [(await anext(walk)).address for _ in range(2)]
        request_count = len(served.requests)
        assert request_count < 10
        assert (await run_crawl(served, CrawlLimits(depth=0))).changed
        assert len(served.requests) == request_count + 2


async def test_broken_pages_do_not_stop_the_crawl() -> None:
    broken: dict[str, Answer] = {
        "/1": Page(b"\xff\xfe\x00<a href='\xff'>", "text/html; charset=nonsense"),
        "/2": Page(b"", "text/html"),
        "/3": Page("<a href='http://[::1'>" + "<div>" * 20_000, "text/html"),
        "/4": Page(b"x" * 100, "text/html", length=500),
        "/5": Page(b"not gzip", "text/html", headers={"Content-Encoding": "gzip"}),
        "/6": Page("<p>ok", "text/html; charset=utf-16", headers={"Last-Modified": "yesterday"}),
        "/7": Page("<base href='http://[x'><a href='/8'>", "text/html"),
    }
    async with serve_site({"/": page(*broken, "/good"), **broken, "/good": page(text="good")}) as served:
        walk = await run_crawl(served)
    assert walk.changed.keys() >= {"/", "/1", "/3", "/6", "/good"}
    assert walk.skipped.keys() >= {"/4", "/5"}


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("a b?x=1&utm_source=y&&z#f", "http://h.test/d/a%20b?x=1&z"),
        ("../x;jsessionid=AB12?PHPSESSID=1", "http://h.test/x"),
        ("//H.test:80/../y/", "http://h.test/y/"),
        ("x.zip", None),
        ("mailto:a@b.test", None),
        ("http://u@h.test/", None),
        ("http://h.test:99999/", None),
        ("http://[", None),
    ],
)
def test_addresses_have_one_form(url: str, meant: str | None) -> None:
    assert normalise_url(url, "http://h.test/d/e") == meant


def test_what_is_no_web_address_is_no_start() -> None:
    with pytest.raises(FetchRefused):
        Crawl("ftp://open.test/", Fetcher())
