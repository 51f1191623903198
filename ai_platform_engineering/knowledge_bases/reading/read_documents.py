"""A document after reading and chunking, and its form between the worker that reads it and this program."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from ai_platform_engineering.knowledge_bases.documents import Chunk, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_TEXT_CHARS
from ai_platform_engineering.knowledge_bases.workers.frames import MAX_BODY_BYTES, Reply

_MAX_TITLE_CHARS = 10_000
_MAX_MISSING_CHARS = 500
_MAX_CHUNK_CHARS = 4 * MAX_TEXT_CHARS  # of all chunks: they overlap a little, and tables repeat their header
_CHUNKS_PER_LINE = 500  # parsed at once, since nothing else runs meanwhile
_TOO_LARGE = "The document is too large once it is read."


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """The text of a document, and its chunks. `missing`: what a limit cut off, for a person."""

    kind: str
    title: str
    text: str
    chunks: tuple[Chunk, ...]
    missing: str = ""


def encode_read_document(document: ReadDocument) -> Reply:
    """The text, then lines of chunks. Raises UnreadableDocument for what does not fit."""
    text = document.text.encode(errors="replace")
    lines = "\n".join(_encode_chunks(document.text, document.chunks)).encode()
    if len(text) + len(lines) > MAX_BODY_BYTES:
        raise UnreadableDocument(_TOO_LARGE)
    result = {
        "kind": document.kind,
        "title": document.title[:_MAX_TITLE_CHARS],
        "text_bytes": len(text),
        "missing": document.missing[:_MAX_MISSING_CHARS],
    }
    return Reply(result, text + lines)


def _encode_chunks(text: str, chunks: Sequence[Chunk]) -> Iterator[str]:
    remaining = iter(chunks)
    while some := list(islice(remaining, _CHUNKS_PER_LINE)):
        rows: list[Any] = []
        for chunk in some:
            own_text: str | None = chunk.text
            if text[chunk.start : chunk.end] == chunk.text:
                own_text = None
            rows.append((chunk.start, chunk.end, chunk.headings, own_text))
        yield json.dumps(rows, separators=(",", ":"))


def decode_read_document(reply: Reply) -> ReadDocument:
    """Checks all of it: a document may have taken over the process that read it.

    Raises UnreadableDocument, also for what the worker says of the document; blocks for a large one."""
    match reply.result:
        case {"unreadable": str(reason)}:
            raise UnreadableDocument(reason[:1000])
        case {
            "kind": str(kind),
            "title": str(title),
            "text_bytes": int(text_bytes),
            "missing": str(missing),
        }:
            pass
        case _:
            raise UnreadableDocument("The document reader returned an invalid response.")
    try:
        text = reply.body[:text_bytes].decode()
        chunks = tuple(_decode_chunks(text, reply.body[text_bytes:]))
        f"{kind}{title}{missing}".encode()
    except (ValueError, TypeError, RecursionError):
        raise UnreadableDocument("The document reader returned an invalid response.") from None
    if len(text) > _MAX_CHUNK_CHARS or len(title) > _MAX_TITLE_CHARS or len(kind) > _MAX_TITLE_CHARS:
        raise UnreadableDocument(_TOO_LARGE)
    return ReadDocument(kind, title, text, chunks, missing[:_MAX_MISSING_CHARS])


def _decode_chunks(text: str, lines: bytes) -> Iterator[Chunk]:
    """Raises ValueError for what is no list of chunks, or is more than a document can have."""
    chunk_chars = 0
    ordinals = count()
    for line in filter(None, lines.split(b"\n")):
        for row in json.loads(line):
            chunk = _decode_chunk(next(ordinals), text, row)
            chunk_chars += len(chunk.text) + sum(map(len, chunk.headings))
            if chunk_chars > _MAX_CHUNK_CHARS:
                raise ValueError("too much text in chunks")
            yield chunk


def _decode_chunk(ordinal: int, text: str, row: Any) -> Chunk:
    match row:
        case [int(start), int(end), list(headings), None]:
            chunk_text = text[start:end]
        case [int(start), int(end), list(headings), str(chunk_text)]:
            pass
        case _:
            raise ValueError("no chunk")
    if not 0 <= start <= end <= len(text) or not all(isinstance(heading, str) for heading in headings):
        raise ValueError("no chunk")
    "\n".join((chunk_text, *headings)).encode()  # raises for half a character, which cannot be stored
    return Chunk(ordinal, chunk_text, tuple(headings), start, end)
