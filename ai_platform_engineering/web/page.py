"""Serves the web page: the document at `/` and below `/c/`, its scripts and styles below `/assets/`."""

import asyncio
import logging
from http import HTTPStatus
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from ai_platform_engineering.web.page_files import INDEX, STATIC_FOLDER, PageFile, PageTooLarge, read_page

log = logging.getLogger(__name__)

# No inline script or style, no other host. Forms are sent by script.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_EACH_TIME = "no-cache"
_NOT_BUILT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>The page is not built</title>
<h1>The page is not built</h1>
<p>The server runs, and this is its address, but the files of its web page are not here.</p>
<p>In a checkout, <code>make page</code> builds them; then load this page again. No restart is needed.</p>
<p>In a terminal, <code>caipe chat</code> works without them.</p>
</html>
"""


class Page:
    """The built page of a folder. It is read at the first request, so that a start costs nothing."""

    def __init__(self, folder: Path = STATIC_FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, PageFile] | None = None
        self._lock = asyncio.Lock()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._serve_root),
            Route("/assets/{name}", self._serve_asset),
            Route("/c/{rest:path}", self._serve_document),
        ]

    async def _serve_root(self, request: Request) -> Response:
        """The document for browsers. Other clients are told that A2A is spoken here, with POST."""
        if "text/html" not in request.headers.get("accept", ""):
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "POST"})
        return await self._serve_document(request)

    async def _serve_document(self, request: Request) -> Response:
        files = await self._get_files()
        if files is None:
            return HTMLResponse(_NOT_BUILT, HTTPStatus.SERVICE_UNAVAILABLE, SECURITY_HEADERS)
        return _respond(files[INDEX], request.headers)

    async def _serve_asset(self, request: Request) -> Response:
        files = await self._get_files() or {}
        file = files.get(f"assets/{request.path_params['name']}")
        if file is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return _respond(file, request.headers)

    async def _get_files(self) -> dict[str, PageFile] | None:
        """The files, read in a thread. Those that are not there yet are looked for at each request."""
        if self._files is None:
            async with self._lock:
                if self._files is None:
                    self._files = await asyncio.to_thread(_read_or_log, self._folder)
        return self._files


def _read_or_log(folder: Path) -> dict[str, PageFile] | None:
    try:
        return read_page(folder)
    except (OSError, PageTooLarge) as error:
        log.error("the web page cannot be read: %s", error)
        return None


def _respond(file: PageFile, request_headers: Headers) -> Response:
    encoding, content = file.choose(request_headers.get("accept-encoding", ""))
    headers = {
        **SECURITY_HEADERS,
        "ETag": file.etag,
        "Cache-Control": _FOR_EVER if file.is_immutable else _ASK_EACH_TIME,
        "Vary": "Accept-Encoding",
    }
    if _is_current(file.etag, request_headers.get("if-none-match", "")):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    if encoding is not None:
        headers["Content-Encoding"] = encoding
    return Response(content, headers=headers, media_type=file.media_type)


def _is_current(etag: str, known: str) -> bool:
    tags = {tag.strip() for tag in known.split(",")}
    return etag in tags or "*" in tags
