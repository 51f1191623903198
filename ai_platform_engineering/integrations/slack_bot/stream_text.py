"""From a run's transcript to the text that a Slack thread shows, and that text on its way there."""

import re
from dataclasses import dataclass

from ai_platform_engineering.core.transcript import Span, Transcript

RAG_TOOL_NAMES = frozenset({"search", "fetch_document", "list_datasources", "fetch_url"})

SOFT_LIMIT, HARD_LIMIT = (
    9_000,
    11_000,
)  # characters of one message: from the first on it may end with a paragraph, by the second it must
MIN_LIMIT = 600
_FENCE = re.compile(r"^( {0,3})(~{3,40}(?!~)|`{3,40}(?=[^`\n]*$))[ \t]*([^\n]*)$", re.MULTILINE)
_FENCE_TO_BE = re.compile(r" {0,3}(`{0,2}|~{0,2}|~{3,40}(?!~).*|`{3,40}[^`]*)\Z")
_LANGUAGE = re.compile(r"[\w+#.-]{0,30}")
_CLOSING = 44  # room for the end of a fence
_NOTHING = "There was no answer. Ask again, or ask for something smaller."


def _get_final_text(seen: Transcript) -> str:
    """What a turn has come to: the answer, else what there was of it, else the last words of an agent, else what was streamed."""
    last_words = next(
        (span.text for span in reversed(seen.spans) if span.parent_call is not None and span.text.strip()),
        None,
    )
    said = (seen.answer, seen.partial, last_words, seen.text, seen.error)
    return next((text for text in said if text and text.strip()), _NOTHING)


def render_text(seen: Transcript) -> str:
    """The words of the thread so far: the supervisor's own, echoes left out, and at the end what the turn has come to, once."""
    shown = [span for span in seen.spans if span.parent_call is None and not span.echo and span.text]
    texts, final = [span.text for span in shown], _ending_of(seen)
    if final and final.strip() == seen.text.strip():  # all that was streamed is what it has come to
        return final
    if final and (place := _place_of(final, shown, answered=seen.state == "completed")) is not None:
        texts[place] = final
        if (
            place and texts[place - 1].strip() == final.strip()
        ):  # a model may say its answer, and then give it
            del texts[place]
    elif final:
        texts.append(final)
    return "\n\n".join(texts)


def _ending_of(seen: Transcript) -> str | None:
    if seen.state not in ("completed", "failed"):
        if seen.state == "canceled":
            return seen.partial
        return None
    final = _get_final_text(seen)
    if seen.state == "failed" and final == seen.error:  # an error stands below the words
        return None
    return final


def _place_of(final: str, shown: list[Span], *, answered: bool) -> int | None:
    """Which of the texts it is: the one that is the same, else the last one if it was meant as the answer."""
    same = next(
        (place for place, span in reversed(list(enumerate(shown))) if span.text.strip() == final.strip()),
        None,
    )
    if same is not None:
        return same
    if answered and shown and shown[-1].role == "answer":
        return len(shown) - 1
    return None


def escape(text: str, *, at_line_start: bool = True) -> str:
    """Text that mentions nobody and links nothing by itself. A `>` that opens a line is a quotation and stays."""
    lines = text.replace("&", "&amp;").replace("<", "&lt;").split("\n")
    return "\n".join(_line(line, opens=at_line_start or number > 0) for number, line in enumerate(lines))


def _line(line: str, *, opens: bool) -> str:
    kept = len(line) - len(line.lstrip("> \t")) if opens else 0
    return line[:kept] + line[kept:].replace(">", "&gt;")


@dataclass(frozen=True, slots=True)
class TextSegment:
    """Text that fits: from `start` to `end` of the whole, as it is sent. `full`: the message is to end with it."""

    start: int
    end: int
    text: str
    full: bool = False


class StreamBuffer:
    """The text of a turn: what there is, how much of it Slack has, and where it may be cut. `whole`: nothing comes after it for now."""

    def __init__(self, sent: int = 0, soft: int = SOFT_LIMIT, hard: int = HARD_LIMIT) -> None:
        self.text = ""
        self.sent = sent
        self.complete = False
        self._soft, self._hard = soft, hard

    def set_text(self, text: str) -> int | None:
        """Takes the whole text as it stands now. When that changes what was sent: how much of it is still true."""
        before, self.text = self.text[: self.sent], text
        if text.startswith(before):
            return None
        pairs = enumerate(zip(before, text, strict=False))
        self.sent = next(
            (place for place, (one, other) in pairs if one != other), min(len(before), len(text))
        )
        return self.sent

    def shrink_limits(self) -> bool:
        """Cuts into smaller pieces from now on; false when they are as small as they get."""
        self._soft, self._hard = self._soft // 2, self._hard // 2
        return self._hard >= MIN_LIMIT

    def next_segment(self, used: int, opens: bool) -> TextSegment | None:
        """The next piece for a message that has `used` characters; `opens` when it is the first of its message."""
        start, end = self.sent, self._sendable()
        if end <= start:
            return None
        head = _reopened(self.text, start) if opens else ""
        room, enough = self._hard - used - len(head) - _CLOSING, self._soft - used - len(head)
        escaped = self._escaped(start, end)
        if len(escaped) <= enough:
            return TextSegment(start, end, head + escaped)
        cut = self._paragraph(start, end, enough, room)
        if cut is None and len(escaped) <= room:
            return TextSegment(start, end, head + escaped)
        cut = self._anywhere(start, room, fresh=used == 0) if cut is None else cut
        return TextSegment(start, cut, head + self._escaped(start, cut) if cut > start else "", full=True)

    def closing_fence(self) -> str:
        """The end of the code block in which the sent text stops, for a message that ends there."""
        return _closed(self.text, self.sent)

    def render_range(self, start: int, end: int) -> str:
        """The text of a message that begins and ends there, as it is sent: a code block that is cut is opened and closed."""
        return _reopened(self.text, start) + self._escaped(start, end) + _closed(self.text, end)

    def _escaped(self, start: int, end: int) -> str:
        return escape(self.text[start:end], at_line_start=start == 0 or self.text[start - 1] == "\n")

    def _sendable(self) -> int:
        """Up to where the text may be sent: a line that may become the fence of a code block waits for its end, since no message may end
        in the middle of it."""
        line = self.text.rfind("\n") + 1
        if self.complete or line < self.sent or _FENCE_TO_BE.match(self.text, line) is None:
            return len(self.text)
        opened = _open_fence(self.text, line)
        if opened is not None and _open_fence(self.text, len(self.text)) is None:
            return len(self.text)
        return line

    def _paragraph(self, start: int, end: int, enough: int, room: int) -> int | None:
        """The first end of a paragraph, outside of code, with which the message has enough and not too much."""
        size, before = 0, start
        for found in re.finditer(r"\n\n+", self.text[start:end]):
            cut = start + found.end()
            size, before = size + len(self._escaped(before, cut)), cut
            if size > room:
                return None
            if size >= enough and _open_fence(self.text, cut) is None:
                return cut
        return None

    def _anywhere(self, start: int, room: int, *, fresh: bool) -> int:
        """As much as there is room for, up to the end of a line or of a word; in code only of a line, and never in a fence. Where there is
        no such end: nothing, and the rest gets a message of its own; a `fresh` one is filled."""
        most = _fitting(self.text, start, max(1, room))
        in_code = _open_fence(self.text, most) is not None
        least = start + (most - start) // 2 if fresh and not in_code else start
        for ends in "\n" if in_code else "\n ":
            if (cut := self.text.rfind(ends, start, most)) > least:
                return self._before_fence(cut + 1, start + 1 if fresh else start)
        if fresh:
            return self._before_fence(most, start + 1)
        return start

    def _before_fence(self, cut: int, least: int) -> int:
        line = self.text.rfind("\n", 0, cut) + 1
        if least <= line < cut and _FENCE.match(self.text, line):
            return line
        return cut


def _fitting(text: str, start: int, room: int) -> int:
    """The farthest place up to which the text, escaped, has room; at least one character farther."""
    size = 0
    for place in range(start, len(text)):
        size += {"&": 5, "<": 4, ">": 4}.get(text[place], 1)
        if size > room:
            return max(place, start + 1)
    return len(text)


def _open_fence(text: str, place: int) -> re.Match[str] | None:
    """The first line of the code block in which the place is: its indent, its marks and its language."""
    opened: re.Match[str] | None = None
    for found in _FENCE.finditer(text, 0, place):
        if (
            found.end() == place
            and not text.endswith("\n", 0, place)
            and place < len(text)
            and text[place] != "\n"
        ):
            break  # the line goes on: whether it is a fence is not known yet
        if opened is None:
            opened = found
        elif found[2].startswith(opened[2]) and not found[3].strip():
            opened = None
    return opened


def _closed(text: str, place: int) -> str:
    fence = _open_fence(text, place)
    if fence is None:
        return ""
    return f"{'' if text.endswith(chr(10), 0, place) else chr(10)}{fence[1]}{fence[2]}"


def _reopened(text: str, place: int) -> str:
    fence = _open_fence(text, place)
    if fence is None or place == 0:
        return ""
    language = _LANGUAGE.match(fence[3])
    return f"{fence[1]}{fence[2]}{language[0] if language else ''}\n"
