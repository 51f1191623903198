"""The built files of the page, read into memory once, with their compressed forms."""

import hashlib
import mimetypes
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

STATIC_FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
MAX_FILES = 500  # the build makes about ten
MAX_BYTES = 16 * 1024 * 1024  # of all files with their compressed forms; the build makes less than one

# Best first: brotli is a fifth smaller than gzip.
_ENCODINGS = {"br": ".br", "gzip": ".gz"}
# Types are fixed here: those of a machine may call a script something that browsers refuse to run.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_NAMED_BY_CONTENT = re.compile(r"-[A-Z0-9]{8}\.")  # as esbuild names what it writes


class PageTooLarge(Exception):
    """The folder holds more than a page can: it is not one that the build wrote."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of the page; `encoded` holds its compressed forms, by the name of the encoding."""

    content: bytes
    media_type: str
    etag: str
    is_immutable: bool
    encoded: Mapping[str, bytes] = field(default_factory=dict)

    def choose(self, accepted: str) -> tuple[str | None, bytes]:
        """The encoding for a client with this Accept-Encoding, and the bytes; None for the plain ones."""
        names = set(_accepted_encodings(accepted))
        for name, content in self.encoded.items():
            if name in names:
                return name, content
        return None, self.content


def read_page(folder: Path) -> dict[str, PageFile] | None:
    """The files of a built page by their paths, as in `assets/app.js`; None when it was not built.

    Only what is in the folder itself and in `assets` is ever served. Raises PageTooLarge and OSError."""
    if not (folder / INDEX).is_file():
        return None
    contents: dict[str, bytes] = {}
    size = 0
    for path in _list_files(folder):
        content = path.read_bytes()
        size += len(content)
        if len(contents) >= MAX_FILES or size > MAX_BYTES:
            raise PageTooLarge(f"{folder} holds more than {MAX_FILES} files or {MAX_BYTES} bytes.")
        contents[path.relative_to(folder).as_posix()] = content
    suffixes = tuple(_ENCODINGS.values())
    return {name: _build_file(name, contents) for name in contents if not name.endswith(suffixes)}


def _list_files(folder: Path) -> Iterator[Path]:
    for name in (INDEX, *(f"{INDEX}{suffix}" for suffix in _ENCODINGS.values())):
        if (folder / name).is_file():
            yield folder / name
    for path in sorted((folder / "assets").glob("*")):
        if path.is_file() and not path.is_symlink():
            yield path


def _build_file(name: str, contents: Mapping[str, bytes]) -> PageFile:
    content = contents[name]
    encoded: dict[str, bytes] = {}
    for encoding, suffix in _ENCODINGS.items():
        compressed = contents.get(f"{name}{suffix}")
        if compressed is not None and len(compressed) < len(content):
            encoded[encoding] = compressed
    suffix = Path(name).suffix
    media_type = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    etag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'  # weak: the same for each encoding
    return PageFile(content, media_type, etag, bool(_NAMED_BY_CONTENT.search(name)), encoded)


def _accepted_encodings(header: str) -> Iterator[str]:
    for item in header.split(","):
        name, _, parameters = item.partition(";")
        weight = parameters.replace(" ", "").lower()
        if not re.fullmatch(r"q=0(\.0*)?", weight):
            yield name.strip().lower()
