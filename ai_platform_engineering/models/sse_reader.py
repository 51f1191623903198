"""Server-sent events from the bytes of a model's stream, however they are cut."""

from typing import NamedTuple

from ai_platform_engineering.core.errors import ModelAnswerTooLarge
from ai_platform_engineering.core.json_limits import JsonLimits, JsonTooLarge

_PLAIN_START = b"data: "
_UNCHECKED_BYTES = 64 * 1024  # an event of this size has too few values to matter


class SseEvent(NamedTuple):
    """One event; an event without a name or without data has an empty one."""

    name: bytes
    data: bytes


class SseReader:
    """Collects bytes and hands out whole events.

    Lines end with LF, CRLF or CR. What has no blank line behind it is no event yet, and none at the end of
    the stream.
    """

    def __init__(self, max_event_bytes: int, max_event_values: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._unchecked_bytes = min(max_event_bytes, _UNCHECKED_BYTES)
        self._json_limits = JsonLimits(max_event_values)
        self._pending = bytearray()  # the begun event
        self._ended_with_cr = False

    def feed(self, arrived: bytes) -> list[SseEvent]:
        """The events that these bytes complete. Raises ModelAnswerTooLarge."""
        if self._ended_with_cr or b"\r" in arrived:
            arrived = self._unify_line_ends(arrived)
        if not self._pending and arrived.endswith(b"\n\n"):
            return self._parse_events(arrived[:-2])
        searched = max(0, len(self._pending) - 1)
        self._pending += arrived
        end = self._pending.rfind(b"\n\n", searched)
        if end < 0:
            self._check_length(len(self._pending))
            return []
        complete = bytes(self._pending[:end])
        del self._pending[: end + 2]
        self._check_length(len(self._pending))
        return self._parse_events(complete)

    def _unify_line_ends(self, arrived: bytes) -> bytes:
        if self._ended_with_cr and arrived.startswith(b"\n"):
            arrived = arrived[1:]  # the CR before it has ended the line
        self._ended_with_cr = arrived.endswith(b"\r")
        return arrived.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _parse_events(self, complete: bytes) -> list[SseEvent]:
        events = []
        for block in complete.split(b"\n\n"):
            if len(block) > self._unchecked_bytes:
                self._check_block(block)
            if block.startswith(_PLAIN_START) and b"\n" not in block:
                events.append(SseEvent(b"", block[len(_PLAIN_START) :]))
                continue
            event = _parse_lines(block)
            if event is not None:
                events.append(event)
        return events

    def _check_length(self, length: int) -> None:
        if length > self._max_event_bytes:
            raise ModelAnswerTooLarge("LLM_MAX_EVENT_BYTES", self._max_event_bytes)

    def _check_block(self, block: bytes) -> None:
        self._check_length(len(block))
        try:
            self._json_limits.check(block)
        except JsonTooLarge:
            raise ModelAnswerTooLarge("LLM_MAX_EVENT_VALUES", self._json_limits.values) from None


def _parse_lines(block: bytes) -> SseEvent | None:
    """The event of a block of lines; none if it has neither a name nor data, as a comment has not."""
    name = b""
    data_lines = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data_lines.append(value)
        elif field == b"event":
            name = value
    if not name and not data_lines:
        return None
    return SseEvent(name, b"\n".join(data_lines))
