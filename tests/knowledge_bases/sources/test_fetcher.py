"""Fetching from the web: no connection to an address that must not be reached, and limits on what arrives."""

import gzip
import ipaddress
import ssl
import tracemalloc
import zlib
from pathlib import Path

import pytest
import trustme

from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, FetchLimits, FetchResponse, fetch
from ai_platform_engineering.net.address_policy import is_allowed_address
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused, parse_url
from tests.support.fakes.site import PUBLIC, FakeNetwork, Page, Site, serve_site
from tests.support.fakes.tunnel import tunnel_to

TELLING = ("10.0.0", "169.254", "192.168", "127.0", "fe80", "secret")
HELLO = Page("<p>Hello.</p>")
NAMES = {
    "open.test": (PUBLIC,),
    "private.test": ("10.0.0.5",),
    "loop.test": ("127.0.0.1",),
    "loop6.test": ("::1",),
    "two.test": (PUBLIC, "192.168.1.1"),
    "two6.test": (PUBLIC, "fd00::1"),
    "mapped.test": ("::ffff:10.0.0.1",),
    "translated.test": ("64:ff9b::a9fe:a9fe",),
    "linked.test": ("fe80::1%eth0",),
    "meta.test": ("169.254.169.254",),
    "azure.test": ("168.63.129.16",),
    "cgnat.test": ("100.64.0.1",),
    "metadata.google.internal": (PUBLIC,),
    "localhost": (PUBLIC,),
    "a.localhost": (PUBLIC,),
    "xn--bcher-kva.test": (PUBLIC,),
}

# Hosts that stand for an address inside, in every form that some program reads.
INNER = """
127.0.0.1 127.0.0.1. 127.1 127.0.1 2130706433 0x7f000001 0X7F000001 0x7f.0.0.1 0x7f.1 0177.0.0.1
017700000001 0177.1 127.0x0.0.1 127.000.000.001 0 0.0.0.0 0x0 00000000000 10.0.0.1 10.1
167772161 0xa000001 012.0.0.1 172.16.0.1 172.31.255.255 192.168.0.1 192.168.1 3232235521
0300.0250.0.1 169.254.169.254 2852039166 0xa9fea9fe 0251.0376.0251.0376 169.254.43518
169.254.170.2 100.64.0.1 100.100.100.200 100.127.255.255 168.63.129.16 192.0.0.192 192.0.2.1
198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
192.88.99.1 [::1] [::] [0:0:0:0:0:0:0:1] [::127.0.0.1] [::ffff:127.0.0.1] [::ffff:7f00:1]
[::FFFF:10.0.0.1] [::ffff:169.254.169.254] [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1]
[64:ff9b::a00:1] [64:ff9b::169.254.169.254] [64:ff9b:1::7f00:1] [64:ff9b:1:ffff::10.0.0.1]
[2002:7f00:1::] [2002:a00:1::1] [2002:a9fe:a9fe::] [2001:0:4136:e378:8000:63bf:80ff:fffe]
[2001::1] [2001:db8::1] [3fff::1] [100::1] [5f00::1] [fc00::1] [fd00:ec2::254] [fd20:ce::254]
[fe80::1] [fe80::1%25eth0] [fe80::1%eth0] [::1%25lo] [fec0::1] [ff02::1] １２７.０.０.１ ①②⑦.0.0.1
127。0。0。1 １２７｡1 ⓛⓞⓒⓐⓛⓗⓞⓢⓣ 0x7f。1 localhost LOCALHOST localhost. LocalHost. a.localhost
private.test loop.test loop6.test LOOP.test. two.test two6.test mapped.test translated.test
linked.test meta.test azure.test cgnat.test metadata.google.internal METADATA.google.internal.
metadata
""".split()

# Addresses that are wrong as a whole.
WRONG = [
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "ftp://open.test/",
    "gopher://127.0.0.1:6379/_INFO",
    "data:text/html,hello",
    "javascript:alert(1)",
    "ws://open.test/",
    "dict://127.0.0.1:11211/",
    "ldap://127.0.0.1/",
    "jar:http://open.test!/",
    "view-source:http://open.test/",
    "//open.test/",
    "open.test",
    "",
    "   ",
    "http:",
    "http://",
    "http:///path",
    "http:open.test",
    "http:/open.test",
    "https://:443/",
    "http://./",
    "http://../",
    "http://?q",
    "http://user@open.test/",
    "http://user:secret@open.test/",
    "http://open.test@127.0.0.1/",
    "http://127.0.0.1@open.test/",
    "http://@open.test/",
    "http://open.test%2f@127.0.0.1/",
    "http://open.test#@127.0.0.1:0/\\",
    "http://open.test\\@127.0.0.1/",
    "http://127.0.0.1\\open.test/",
    "http:\\\\127.0.0.1\\",
    "http://open.test/a\\b",
    "http://12\t7.0.0.1/",
    "http://127.0.0.1\n/",
    "http://open.test/\r\nHost: inner",
    "http://open .test/",
    "http://open.test\x00.private.test/",
    "http://\ud800.test/",
    "http://%31%32%37.0.0.1/",
    "http://loop%2etest/",
    "http://open.test%00/",
    "http://open.test:0/",
    "http://open.test:65536/",
    "http://open.test:99999999999/",
    "http://open.test:８０/",
    "http://open.test:-1/",
    "http://open.test:80:80/",
    "http://open.test:http/",
    "http://127.0.0.1.1/",
    "http://1.2.3.4.0x/",
    "http://256.256.256.256/",
    "http://0x/",
    "http://0xffffffffff/",
    "http://08.1.1.1/",
    "http://1.2.3.4.5/",
    "http://open.1/",
    "http://[::1/",
    "http://[::1]x/",
    "http://[v1.a]/",
    "http://[]/",
    "http://[127.0.0.1]/",
    "http://::1/",
    "http://a..test/",
    "http://-a.test/",
    "http://a*.test/",
    "http://" + "a" * 64 + ".test/",
    "http://" + "a." * 130 + "test/",
    "http://open.test/" + "a" * 5000,
]


def public(served: Site) -> FakeNetwork:
    """The site as `open.test`, at a public address; everything else as the table says."""
    return FakeNetwork(NAMES, {PUBLIC: served.port})


async def refusal(url: str, world: FakeNetwork) -> str:
    """Why an address was refused; nothing of the inside is in it."""
    with pytest.raises((FetchRefused, FetchFailed)) as raised:
        await fetch(url, connector=world)
    message = str(raised.value)
    assert raised.type is FetchRefused, (url, message)
    assert not any(text in message for text in TELLING), (url, message)
    return message


async def test_no_form_of_an_inner_address_is_connected_to() -> None:
    assert len(INNER) > 100
    for host in INNER:
        for url in (f"http://{host}/", f"https://{host}:8443/x?y=1#z"):
            world = FakeNetwork(NAMES)
            await refusal(url, world)
            assert world.attempts == [], url


async def test_no_wrong_address_is_connected_to() -> None:
    for url in WRONG:
        world = FakeNetwork(NAMES)
        await refusal(url, world)
        assert (world.attempts, world.lookups) == ([], []), url


async def test_a_refusal_says_what_to_do() -> None:
    world = FakeNetwork(NAMES)
    assert "user name or password" in await refusal("https://user@open.test/", world)
    assert "http and https" in await refusal("ftp://open.test/", world)
    assert "private.test belongs to a private, local or reserved network" in await refusal(
        "https://private.test/", world
    )


async def test_no_redirect_leads_inside() -> None:
    relative = ("http://", "http:///path", "http://?q")  # without a host they mean the page's own
    wrong = [
        url
        for url in WRONG
        if url not in relative and "://" in url and url.isascii() and url.isprintable() and len(url) < 5000
    ]
    more = ["//127.0.0.1/", "//private.test/x", "http://nowhere.test/", "file:/etc/passwd"]
    places = [*(f"http://{host}/" for host in INNER), *wrong, *more]
    async with serve_site() as served:
        for number, place in enumerate(places):
            header = {"Location": place.encode().decode("latin-1")}
            served.pages = {"/": Page(status=(301, 302, 303, 307, 308)[number % 5], headers=header)}
            world = public(served)
            assert "redirects" in await refusal("http://open.test/", world)
            assert world.attempts == [PUBLIC], place
    assert len(places) > 150


@pytest.mark.parametrize(
    ("address", "open_web", "inside"),
    [
        ("93.184.215.14", True, True),
        ("2606:4700::1111", True, True),
        ("64:ff9b::5db8:d70e", True, True),
        ("::ffff:93.184.215.14", True, True),
        ("172.32.0.1", True, True),
        ("100.128.0.1", True, True),
        ("198.20.0.1", True, True),
        ("11.0.0.0", True, True),
        ("10.0.0.5", False, True),
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("fd00::1", False, True),
        ("100.64.0.1", False, True),
        ("::ffff:10.0.0.5", False, True),
        ("169.254.1.1", False, False),
        ("fe80::1", False, False),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("fd00:ec2::254", False, False),
        ("100.100.100.200", False, False),
        ("168.63.129.16", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("224.0.0.1", False, False),
        ("240.0.0.1", False, False),
        ("192.0.2.1", False, False),
        ("2001:db8::1", False, False),
        ("2002:5db8:d70e::1", False, False),
        ("64:ff9b:1::5db8:d70e", False, False),
        ("2001:0:5db8:d70e::1", False, False),
        ("ff02::1", False, False),
    ],
)
def test_which_addresses_may_be_reached(address: str, open_web: bool, inside: bool) -> None:
    parsed = ipaddress.ip_address(address)
    assert (
        is_allowed_address(parsed, allow_private=False),
        is_allowed_address(parsed, allow_private=True),
    ) == (open_web, inside)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("HTTP://Open.TEST./A?b=c#d", "http://open.test/A?b=c"),
        ("https://open.test:443", "https://open.test/"),
        ("https://open.test:8443/ä ".strip(), "https://open.test:8443/%C3%A4"),
        ("http://bücher.test/?q=ü&x=%20", "http://xn--bcher-kva.test/?q=%C3%BC&x=%20"),
        ("http://ＯＰＥＮ。test/", "http://open.test/"),
        ("http://0x5db8d70e/", "http://93.184.215.14/"),
        ("http://[2606:4700:0:0::1111]:80/", "http://[2606:4700::1111]/"),
    ],
)
def test_a_url_has_one_reading(url: str, meant: str) -> None:
    assert parse_url(url).url == meant
    assert parse_url(meant).url == meant


async def test_the_checked_address_is_connected_to_and_the_name_is_asked_for_once() -> None:
    async with serve_site({"/": HELLO, "/old": Page(status=302, headers={"Location": "/#top"})}) as served:
        world = public(served)
        response = await fetch(f"http://open.test:{served.port}/old", connector=world)
        assert (response.url, response.status, response.content) == (
            f"http://open.test:{served.port}/",
            200,
            b"<p>Hello.</p>",
        )
        assert response.media_type == "text/html; charset=utf-8"
        assert [request.headers["host"] for request in served.requests] == [f"open.test:{served.port}"] * 2
        assert served.requests[0].headers["user-agent"] == "caipe"
        assert not {"cookie", "authorization", "referer"} & served.requests[0].headers.keys()
    assert world.lookups == ["open.test"] * 2  # once per hop: each is checked and used as it is
    assert world.attempts == [PUBLIC] * 2


async def test_a_second_answer_of_a_name_is_not_used() -> None:
    class Rebinding(FakeNetwork):
        async def addresses(self, name: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]:
            self.lookups.append(name)
            return (ipaddress.ip_address(PUBLIC if len(self.lookups) == 1 else "127.0.0.1"),)

    async with serve_site({"/": Page(status=302, headers={"Location": "/again"}), "/again": HELLO}) as served:
        world = Rebinding(ports={PUBLIC: served.port, "127.0.0.1": served.port})
        with pytest.raises(FetchRefused):
            await fetch("http://open.test/", connector=world)
        assert world.attempts == [PUBLIC]
        assert served.paths == ["/"]


async def test_the_next_address_is_tried() -> None:
    async with serve_site({"/": HELLO}) as served:
        world = FakeNetwork({"open.test": ("2606:4700::1111", PUBLIC)}, {PUBLIC: served.port})
        assert (await fetch("http://open.test/", connector=world)).content == b"<p>Hello.</p>"
    assert world.attempts == ["2606:4700::1111", PUBLIC]


async def test_private_networks_by_setting() -> None:
    async with serve_site({"/": HELLO}) as served:
        assert (await fetch(f"{served.url}/", allow_private=True)).content == b"<p>Hello.</p>"
        assert (await fetch(f"http://localhost:{served.port}/", allow_private=True)).status == 200
        with pytest.raises(FetchRefused):
            await fetch(f"{served.url}/")
        assert len(served.requests) == 2
    world = FakeNetwork(NAMES)
    for host in (
        "169.254.169.254",
        "meta.test",
        "translated.test",
        "metadata.google.internal",
        "[fd00:ec2::254]",
    ):
        with pytest.raises(FetchRefused):
            await fetch(f"http://{host}/", allow_private=True, connector=world)
    assert world.attempts == []


async def test_tls_asks_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("open.test").configure_cert(context)
    async with serve_site(
        {"/": HELLO, "/down": Page(status=301, headers={"Location": "http://open.test/"})}, context
    ) as served:
        world = FakeNetwork({"open.test": (PUBLIC,), "other.test": (PUBLIC,)}, {PUBLIC: served.port})
        with pytest.raises(FetchFailed, match="certificate"):
            await fetch("https://open.test/", connector=world)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert (await fetch("https://open.test/", connector=world)).url == "https://open.test/"
        with pytest.raises(FetchFailed, match="certificate"):
            await fetch("https://other.test/", connector=world)
        with pytest.raises(FetchRefused, match="https to http"):
            await fetch("https://open.test/down", connector=world)
    assert len(world.attempts) == 4


async def test_a_proxy_is_used_after_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_site({"/": HELLO}) as served, tunnel_to(served.url, "open.test", tmp_path) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.proxy)
        monkeypatch.setenv("SSL_CERT_FILE", str(tunnel.bundle))
        world = FakeNetwork(NAMES, {"127.0.0.1": int(tunnel.proxy.rpartition(":")[2])})
        assert (await fetch("https://open.test/", connector=world)).content == b"<p>Hello.</p>"
        for url in (
            "https://private.test/",
            "https://two.test/",
            "https://10.0.0.1/",
            "https://unknown.test/",
        ):
            with pytest.raises(FetchRefused):
                await fetch(url, connector=world)
        with pytest.raises(FetchFailed, match="proxy"):
            await fetch(
                "https://unknown.test/", connector=world, allow_private=True
            )  # the proxy looks it up, or does not
        monkeypatch.setenv("NO_PROXY", "open.test")
        with pytest.raises(FetchFailed):
            await fetch("https://open.test/", connector=world)
    assert tunnel.asked == ["CONNECT open.test:443", "CONNECT unknown.test:443"]
    assert world.attempts == ["127.0.0.1", "127.0.0.1", PUBLIC]


async def test_a_proxy_of_another_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:secret@127.0.0.1:1080")
    world = FakeNetwork(NAMES)
    with pytest.raises(FetchRefused, match="proxy") as refused:
        await fetch("http://open.test/", connector=world)
    assert "secret" not in str(refused.value)
    assert world.attempts == []


async def fetched(page: Page, limits: FetchLimits | None = None, path: str = "/") -> FetchResponse:
    async with serve_site({path: page}) as served:
        return await fetch(served.url + path, limits, allow_private=True)


def bomb(times: int) -> bytes:
    return gzip.compress(b"0" * 1024 * 1024 * times)


@pytest.mark.parametrize(
    ("page", "limits", "said"),
    [
        (Page(b"x" * 2000), FetchLimits(max_bytes=1000), "larger"),
        (Page(b"x" * 10, length=2000), FetchLimits(max_bytes=1000), "larger"),
        (Page(b"x" * 900, length=2000), FetchLimits(max_bytes=3000), "broke off"),
        (
            Page(bomb(64), headers={"Content-Encoding": "gzip"}),
            FetchLimits(max_bytes=1024 * 1024),
            "larger than 1 MB",
        ),
        (
            Page(gzip.compress(b"x" * 500) * 3, headers={"Content-Encoding": "gzip"}),
            FetchLimits(max_bytes=1000),
            "larger",
        ),
        (
            Page(zlib.compress(b"x" * 2000), headers={"Content-Encoding": "deflate"}),
            FetchLimits(max_bytes=1000),
            "larger",
        ),
        (
            Page(gzip.compress(b"x" * 9000)[:-9], headers={"Content-Encoding": "gzip"}),
            FetchLimits(),
            "broke off",
        ),
        (Page(b"not packed", headers={"Content-Encoding": "gzip"}), FetchLimits(), "damaged"),
        (Page(b"x", headers={"Content-Encoding": "br"}), FetchLimits(), "not asked for"),
        (Page(b"x", headers={"Content-Encoding": "gzip, gzip"}), FetchLimits(), "not asked for"),
        (Page(b"x", endless=True), FetchLimits(seconds=0.2), "within 0.2 seconds"),
        (Page(b"x", "image/png"), FetchLimits(), "image/png"),
        (Page(b"x", "application/zip"), FetchLimits(), "application/zip"),
        (Page(b"x", "application/octet-stream"), FetchLimits(), "octet-stream"),
        (Page(b"x", "video/xml"), FetchLimits(), "video/xml"),
        (Page(b"x", headers={f"X-{n}": "y" for n in range(120)}), FetchLimits(), "100 headers"),
        (Page(b"x", headers={"X-Long": "y" * 300_000}), FetchLimits(), "broke off"),
        (Page(status=404), FetchLimits(), r"404 \(Not Found\)"),
        (Page(status=304), FetchLimits(), "304"),
        (Page(status=599), FetchLimits(), "answered 599"),
        (Page(status=302), FetchLimits(), "without saying where"),
        (Page(status=302, headers={"Location": "/"}), FetchLimits(), "more than 5 times"),
    ],
)
async def test_what_is_too_much_or_of_no_use(page: Page, limits: FetchLimits, said: str) -> None:
    with pytest.raises((FetchRefused, FetchFailed), match=said) as error:
        await fetched(page, limits)
    assert "127.0.0.1:" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("text/plain", "/"),
        ("TEXT/Markdown", "/"),
        ("text/x-rst; charset=latin-1", "/"),
        ("application/xhtml+xml", "/"),
        ("application/json", "/"),
        ("application/vnd.oai.openapi+json;version=3.1", "/"),
        ("application/x-yaml", "/"),
        ("application/yaml", "/"),
        ("application/atom+xml", "/"),
        ("application/pdf", "/"),
        ("", "/"),
        ("application/octet-stream", "/guide.md"),
        ("binary/octet-stream", "/a/b.YAML?x=.zip"),
    ],
)
async def test_types_that_are_read(kind: str, path: str) -> None:
    assert (await fetched(Page(b"text", kind), path=path)).media_type == kind


@pytest.mark.parametrize(
    ("packed", "encoding"),
    [
        (gzip.compress(b"Hello. " * 900, mtime=0), "gzip"),
        (gzip.compress(b"Hello. " * 400, mtime=0) + gzip.compress(b"Hello. " * 500, mtime=0), "x-gzip"),
        (zlib.compress(b"Hello. " * 900), "deflate"),
        (zlib.compress(b"Hello. " * 900, wbits=-15), "deflate"),
        (b"Hello. " * 900, "identity"),
    ],
)
async def test_packed_pages_arrive_whole(packed: bytes, encoding: str) -> None:
    assert (await fetched(Page(packed, headers={"Content-Encoding": encoding}))).content == b"Hello. " * 900


async def test_a_small_page_does_not_become_a_large_one_in_memory() -> None:
    page = Page(bomb(48), headers={"Content-Encoding": "gzip"})
    tracemalloc.start()
    try:
        with pytest.raises(FetchRefused):
            await fetched(page, FetchLimits(max_bytes=1024 * 1024))
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


async def test_five_redirects_are_followed() -> None:
    pages = {f"/{n}": Page(status=302, headers={"Location": f"./{n + 1}?x#y"}) for n in range(5)}
    pages = {**{f"{path}{mark}": page for path, page in pages.items() for mark in ("", "?x")}, "/5?x": HELLO}
    async with serve_site(pages) as served:
        assert (await fetch(f"{served.url}/0", allow_private=True)).url == f"{served.url}/5?x"


async def test_a_page_that_is_as_it_was_is_not_sent_again() -> None:
    page = Page("<p>Hello.</p>", headers={"ETag": '"a1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"})
    async with serve_site(
        {"/": lambda request: Page(status=304) if request.headers.get("if-none-match") == '"a1"' else page}
    ) as served:
        fetcher = Fetcher(allow_private=True)
        first = await fetcher.fetch(f"{served.url}/")
        again = await fetcher.fetch(f"{served.url}/", etag=first.etag, modified=first.modified)
        assert (again.status, again.content) == (304, b"")
        assert served.requests[1].headers["if-modified-since"] == first.modified


async def test_nobody_listens() -> None:
    world = FakeNetwork(NAMES)
    with pytest.raises(FetchFailed, match=r"open\.test does not take connections"):
        await fetch("http://open.test/", connector=world)
    with pytest.raises(FetchFailed, match=r"unknown\.test cannot be looked up"):
        await fetch("http://unknown.test/", connector=world)
    assert world.attempts == [PUBLIC]
