"""The files of the page over HTTP: who gets them, how they are cached and compressed, and what is refused."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.web import page_files
from ai_platform_engineering.web.page import Page
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import FAST

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SCRIPT = b"console.log(1);" * 50
NAME = "app-ABCDEFGH.js"


def write_page(folder: Path) -> Path:
    assets = folder / "assets"
    assets.mkdir(parents=True)
    (folder / "index.html").write_bytes(b"<!doctype html><title>Page</title>")
    (assets / NAME).write_bytes(SCRIPT)
    (assets / f"{NAME}.gz").write_bytes(gzip.compress(SCRIPT))
    (assets / f"{NAME}.br").write_bytes(b"brotli")
    (assets / "icon.svg").write_bytes(b"<svg/>")
    (folder / "secret.txt").write_text("not an asset")
    return folder


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(routes=Page(write_page(tmp_path / "static")).routes())
    async with open_client(app) as client:
        yield client


def open_client(app: Starlette) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


@pytest.mark.parametrize("path", ["/", "/c/some-context", "/c/-/agents", "/c/-/shared/a.b"])
async def test_a_browser_gets_the_document_under_a_strict_policy(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path, headers=BROWSER)
    assert (answer.status_code, answer.text) == (200, "<!doctype html><title>Page</title>")
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[:3] == ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"


async def test_a_file_named_by_its_content_is_kept_for_ever(http: httpx.AsyncClient) -> None:
    named = await http.get(f"/assets/{NAME}")
    assert named.headers["content-type"] == "text/javascript; charset=utf-8"
    assert named.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (await http.get("/assets/icon.svg")).headers["cache-control"] == "no-cache"
    known = await http.get("/assets/icon.svg", headers={"If-None-Match": 'W/"0", *'})
    assert (known.status_code, known.content) == (304, b"")
    etag = named.headers["etag"]
    assert (await http.get(f"/assets/{NAME}", headers={"If-None-Match": etag})).status_code == 304
    assert (await http.get(f"/assets/{NAME}", headers={"If-None-Match": 'W/"0"'})).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, deflate, br", "br"),
        ("gzip", "gzip"),
        ("br;q=0, gzip;q=0.5", "gzip"),
        ("", None),
        ("gzip;q=0", None),
    ],
)
async def test_a_compressed_form_is_sent_to_who_accepts_it(
    http: httpx.AsyncClient, accepted: str, encoding: str | None
) -> None:
    async with http.stream("GET", f"/assets/{NAME}", headers={"Accept-Encoding": accepted}) as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["vary"] == "Accept-Encoding"
    decode = {"br": lambda _: SCRIPT, "gzip": gzip.decompress, None: bytes}[encoding]
    assert decode(raw) == SCRIPT
    assert (raw == b"brotli") == (encoding == "br")


OTHER_PATHS = """/assets/../secret.txt /assets/..%2fsecret.txt /assets/%2e%2e/secret.txt
/assets/..%5csecret.txt /assets/../index.html /assets/ /assets/none.js /secret.txt
/assets/app-ABCDEFGH.js.gz""".split()


@pytest.mark.parametrize("path", OTHER_PATHS)
async def test_nothing_but_assets_is_served(http: httpx.AsyncClient, path: str) -> None:
    request = httpx.Request("GET", "http://127.0.0.1/")
    request.url = request.url.copy_with(raw_path=path.encode())
    assert (await http.send(request)).status_code == 404


async def test_a_folder_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(page_files, "MAX_BYTES", 100)
    app = Starlette(routes=Page(write_page(tmp_path / "static")).routes())
    async with open_client(app) as client:
        assert (await client.get("/", headers=BROWSER)).status_code == 503
    assert "cannot be read" in caplog.text


async def test_a_page_that_is_built_later_needs_no_restart(tmp_path: Path) -> None:
    folder = tmp_path / "static"
    app = Starlette(routes=Page(folder).routes())
    async with open_client(app) as client:
        missing = await client.get("/", headers=BROWSER)
        assert (missing.status_code, "make page" in missing.text) == (503, True)
        write_page(folder)
        assert (await client.get("/", headers=BROWSER)).status_code == 200


async def test_the_supervisor_serves_the_page_and_other_clients_see_no_change() -> None:
    settings = Settings.from_variables({**FAST, "A2A_AUTH_SHARED_KEY": "a-key-for-this-test"})
    app = create_app(settings, model=ScriptedChatModel(script=Script(Turn(Say("Yes.")))))
    async with open_client(app) as client:
        # Without the key: the page's files hold no data.
        document = await client.get("/", headers=BROWSER)
        assert document.headers["content-type"] == "text/html; charset=utf-8"
        assert (await client.get("/c/x", headers=BROWSER)).status_code == document.status_code
        plain = await client.get("/", headers={"Accept": "application/json"})
        assert (plain.status_code, plain.headers["allow"]) == (405, "POST")
        assert (await client.get("/assets/none.js")).status_code == 404
        for method, path in [
            ("GET", "/v1/conversations"),
            ("POST", "/"),
            ("POST", "/c/x"),
            ("GET", "/skills"),
        ]:
            assert (await client.request(method, path)).status_code == 401, path
