"""Reads a document in a subprocess with limits on time and memory: a hostile one could stop the server."""

import json
import os
import subprocess
import sys
from typing import Any

from ai_platform_engineering.knowledge_bases.documents import (
    ParsedDocument,
    RawDocument,
    Section,
    UnreadableDocument,
)
from ai_platform_engineering.knowledge_bases.reading.reading_limits import WALL_SECONDS


def read_in_subprocess(raw: RawDocument) -> tuple[str, ParsedDocument]:
    """As `read_in_process`, but a parser that crashes, hangs or eats memory only makes the document
    unreadable."""
    head = json.dumps({"address": raw.address, "media_type": raw.media_type, "link": raw.link})
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-m", __package__, str(os.getpid())],
            input=head.encode() + b"\n" + raw.content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Our packages, and none of our secrets.
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnreadableDocument("The document takes too long to read.") from error
    if process.returncode:
        raise UnreadableDocument(
            "The document cannot be read: it is corrupt, or reading it takes too much time or memory."
        )
    return _decode_document(json.loads(process.stdout))


def _decode_document(answer: dict[str, Any]) -> tuple[str, ParsedDocument]:
    if "unreadable" in answer:
        raise UnreadableDocument(answer["unreadable"])
    sections = tuple(Section(text, tuple(headings), kind) for text, headings, kind in answer["sections"])
    return answer["kind"], ParsedDocument(
        answer["title"],
        sections,
        answer["language"],
        missing_chars=answer["missing_chars"],
        missing_parts=tuple(answer["missing_parts"]),
    )


def encode_document(kind: str, parsed: ParsedDocument) -> dict[str, Any]:
    sections = [(section.text, section.headings, section.kind) for section in parsed.sections]
    return {
        "kind": kind,
        "title": parsed.title,
        "language": parsed.language,
        "sections": sections,
        "missing_chars": parsed.missing_chars,
        "missing_parts": parsed.missing_parts,
    }
