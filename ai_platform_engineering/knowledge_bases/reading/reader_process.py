"""Reading in a process of its own, with limits on time and memory: for documents that could take the server
down."""

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
    """As `read_here`, but a parser that crashes, hangs or eats memory makes the document unreadable and does
    nothing else."""
    head = json.dumps({"address": raw.address, "media_type": raw.media_type, "link": raw.link})
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __package__],
            input=head.encode() + b"\n" + raw.content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path))
            },  # our packages, and none of our secrets
            timeout=WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnreadableDocument("The document takes too long to read.") from error
    if done.returncode:
        raise UnreadableDocument(
            "The document cannot be read: it is broken, or takes too much time or memory."
        )
    return _unpacked(json.loads(done.stdout))


def _unpacked(answer: dict[str, Any]) -> tuple[str, ParsedDocument]:
    if "unreadable" in answer:
        raise UnreadableDocument(answer["unreadable"])
    sections = tuple(Section(text, tuple(headings), kind) for text, headings, kind in answer["sections"])
    return answer["kind"], ParsedDocument(answer["title"], sections, answer["language"])


def encode_document(kind: str, parsed: ParsedDocument) -> dict[str, Any]:
    sections = [(section.text, section.headings, section.kind) for section in parsed.sections]
    return {"kind": kind, "title": parsed.title, "language": parsed.language, "sections": sections}
