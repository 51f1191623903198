"""Bodies and headers of HTTP responses: decompressed in steps, and never more than is allowed."""

import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import httpcore

from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused


def join_headers(pairs: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name; one that was sent twice has both values."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name = raw_name.decode("latin-1").lower()
        value = raw_value.decode("latin-1").strip()
        if name in headers:
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


async def read_body(response: httpcore.Response, headers: Mapping[str, str], max_bytes: int) -> bytes:
    """The body, decompressed. Raises FetchRefused for one that is too large, and FetchFailed."""
    content_length = headers.get("content-length", "")
    if content_length.isdecimal() and int(content_length) > max_bytes:
        raise _create_size_error(max_bytes)
    encoding = headers.get("content-encoding", "").lower()
    pieces: list[bytes] = []
    length = 0
    async for piece in _decompress(response.aiter_stream(), encoding, max_bytes):
        length += len(piece)
        if length > max_bytes:
            raise _create_size_error(max_bytes)
        pieces.append(piece)
    return b"".join(pieces)


async def _decompress(stream: AsyncIterator[bytes], encoding: str, max_bytes: int) -> AsyncIterator[bytes]:
    if encoding in ("", "identity"):
        async for piece in stream:
            yield piece
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise FetchFailed("The server packed the page in a way that was not asked for.")
    decompressor = _Decompressor(gzip=encoding != "deflate")
    try:
        async for piece in stream:
            for part in decompressor.feed(piece, max_bytes):
                yield part
    except zlib.error:
        raise FetchFailed("The page arrived damaged.") from None
    if not decompressor.is_complete:
        raise FetchFailed("The page broke off before its end.")


class _Decompressor:
    """Decompresses gzip or deflate in steps of a bounded size: a few kilobytes can stand for gigabytes."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._member: zlib._Decompress | None = None

    @property
    def is_complete(self) -> bool:
        return self._member is None or self._member.eof

    def feed(self, data: bytes, step: int) -> Iterator[bytes]:
        while data:
            member = self._member
            if member is None or (self._gzip and member.eof):  # gzip may come in several members
                member = zlib.decompressobj(self._window_bits(data))
                self._member = member
            yield member.decompress(data, step + 1)
            data = member.unconsumed_tail
            if not data and self._gzip:
                data = member.unused_data

    def _window_bits(self, data: bytes) -> int:
        if self._gzip:
            return zlib.MAX_WBITS | 16
        has_zlib_header = data[0] & 0x0F == 8
        if has_zlib_header:
            return zlib.MAX_WBITS
        return -zlib.MAX_WBITS  # servers send "deflate" with and without the header


def _create_size_error(max_bytes: int) -> FetchRefused:
    return FetchRefused(f"The page is larger than {max_bytes / 1024 / 1024:g} MB.")
