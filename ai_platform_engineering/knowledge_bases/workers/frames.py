"""Frames between this program and its workers: a JSON object and bytes, with the lengths of both in front.

Data only, and with limits: a worker reads documents of others, so nothing that it sends is trusted.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HEADER = struct.Struct("!II")  # the lengths of head and body
MAX_HEAD_BYTES = 1024 * 1024  # parsed in one piece, so a larger one would hold up the event loop
MAX_BODY_BYTES = 64 * 1024 * 1024


class BadFrame(Exception):
    """What was read is no frame, or a larger one than is allowed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A request, a reply or a log line; the keys of `head` say which."""

    head: Mapping[str, Any]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a call."""

    result: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


def encode_frame(frame: Frame) -> tuple[bytes, bytes]:
    """The two pieces to write, the second of which is the body itself. Raises BadFrame for a frame that the
    other side would refuse."""
    head = json.dumps(frame.head, separators=(",", ":")).encode()
    if len(head) > MAX_HEAD_BYTES or len(frame.body) > MAX_BODY_BYTES:
        raise BadFrame("The frame is too large.")
    return HEADER.pack(len(head), len(frame.body)) + head, frame.body


def decode_header(header: bytes) -> tuple[int, int]:
    """The lengths of head and body. Raises BadFrame."""
    head_size, body_size = HEADER.unpack(header)
    if head_size > MAX_HEAD_BYTES or body_size > MAX_BODY_BYTES:
        raise BadFrame("The frame is too large.")
    return head_size, body_size


def decode_frame(head: bytes, body: bytes) -> Frame:
    """Raises BadFrame."""
    try:
        values = json.loads(head)
    except (ValueError, RecursionError):
        raise BadFrame("The head of the frame is no JSON.") from None
    if not isinstance(values, dict):
        raise BadFrame("The head of the frame is no object.")
    return Frame(values, body)
