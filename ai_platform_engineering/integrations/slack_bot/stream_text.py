"""The text that a Slack thread shows of a run's transcript, and the buffer that cuts it into messages."""

import re
from dataclasses import dataclass

from ai_platform_engineering.core.display_text import remove_controls
from ai_platform_engineering.core.transcript import Span, Transcript

RAG_TOOL_NAMES = frozenset({"search", "fetch_document", "list_datasources", "fetch_url"})

SOFT_LIMIT = 9_000  # characters of one message: from here on it may end with a paragraph
HARD_LIMIT = 11_000  # by here it must end
MIN_LIMIT = 600
_FENCE = re.compile(r"^( {0,3})(~{3,40}(?!~)|`{3,40}(?=[^`\n]*$))[ \t]*([^\n]*)$", re.MULTILINE)
_UNFINISHED_FENCE = re.compile(r" {0,3}(`{0,2}|~{0,2}|~{3,40}(?!~).*|`{3,40}[^`]*)\Z")
_LANGUAGE = re.compile(r"[\w+#.-]{0,30}")
_CLOSING_FENCE_ROOM = 44
_NO_ANSWER = "There was no answer. Try again, or ask for less."
_ESCAPED_LENGTHS = {"&": 5, "<": 4, ">": 4}


def _get_final_text(transcript: Transcript) -> str:
    """The result of a turn: the answer, else a part of it, an agent's last text, or what was streamed."""
    candidates = (
        transcript.answer,
        transcript.partial,
        _last_agent_text(transcript),
        transcript.text,
        transcript.error,
    )
    for text in candidates:
        if text and text.strip():
            return text
    return _NO_ANSWER


def _last_agent_text(transcript: Transcript) -> str | None:
    for span in reversed(transcript.spans):
        if span.parent_call is not None and span.text.strip():
            return span.text
    return None


def render_text(transcript: Transcript) -> str:
    """The text of the thread so far, without characters that would reorder it."""
    return remove_controls(_join_spans(transcript))


def _join_spans(transcript: Transcript) -> str:
    """The supervisor's spans without echoes, then the result, once."""
    spans = [span for span in transcript.spans if _is_visible(span)]
    texts = [span.text for span in spans]
    final = _final_text_to_show(transcript)
    if not final:
        return "\n\n".join(texts)
    if final.strip() == transcript.text.strip():  # all that was streamed is the result
        return final
    index = _find_final_span(final, spans, answered=transcript.state == "completed")
    if index is None:
        texts.append(final)
    else:
        texts[index] = final
        repeated = index > 0 and texts[index - 1].strip() == final.strip()
        if repeated:  # a model may write its answer, and then give it as the answer
            del texts[index]
    return "\n\n".join(texts)


def _is_visible(span: Span) -> bool:
    return span.parent_call is None and not span.echo and bool(span.text)


def _final_text_to_show(transcript: Transcript) -> str | None:
    if transcript.state == "canceled":
        return transcript.partial
    if transcript.state not in ("completed", "failed"):
        return None
    final = _get_final_text(transcript)
    if transcript.state == "failed" and final == transcript.error:  # an error is shown below the text
        return None
    return final


def _find_final_span(final: str, spans: list[Span], *, answered: bool) -> int | None:
    """The index of the span that is the result: one with the same text, else the last if it is the answer."""
    for index in reversed(range(len(spans))):
        if spans[index].text.strip() == final.strip():
            return index
    if answered and spans and spans[-1].role == "answer":
        return len(spans) - 1
    return None


def escape(text: str, *, at_line_start: bool = True) -> str:
    """Escapes text so that it mentions nobody and links nothing; a `>` that opens a line is a quotation."""
    lines = text.replace("&", "&amp;").replace("<", "&lt;").split("\n")
    return "\n".join(
        _escape_line(line, opens=at_line_start or number > 0) for number, line in enumerate(lines)
    )


def _escape_line(line: str, *, opens: bool) -> str:
    quotation = ""
    if opens:
        quotation = line[: len(line) - len(line.lstrip("> \t"))]
    return quotation + line[len(quotation) :].replace(">", "&gt;")


@dataclass(frozen=True, slots=True)
class TextSegment:
    """Characters `start` to `end` of the text, as they are sent; `full` when the message ends with them."""

    start: int
    end: int
    text: str
    full: bool = False


class StreamBuffer:
    """The text of a turn, and how much of it Slack has; cuts it into segments that fit a message.

    `complete` says that no text follows for now, so that an unfinished line can be sent.
    """

    def __init__(self, sent: int = 0, soft: int = SOFT_LIMIT, hard: int = HARD_LIMIT) -> None:
        self.text = ""
        self.sent = sent
        self.complete = False
        self._soft = soft
        self._hard = hard

    def set_text(self, text: str) -> int | None:
        """Replaces the text. When that changes what was sent: how many characters of it are unchanged."""
        sent_text = self.text[: self.sent]
        self.text = text
        if text.startswith(sent_text):
            return None
        self.sent = _common_prefix_length(sent_text, text)
        return self.sent

    def shrink_limits(self) -> bool:
        """Halves the limits from now on; False when they are as small as they get."""
        self._soft = self._soft // 2
        self._hard = self._hard // 2
        return self._hard >= MIN_LIMIT

    def next_segment(self, used: int, opens: bool) -> TextSegment | None:
        """The next segment for a message with `used` characters; `opens` when it is the message's first."""
        start = self.sent
        end = self._sendable_end()
        if end <= start:
            return None
        opening_fence = ""
        if opens:
            opening_fence = _opening_fence(self.text, start)
        soft_room = self._soft - used - len(opening_fence)
        hard_room = self._hard - used - len(opening_fence) - _CLOSING_FENCE_ROOM
        escaped = self._escape_range(start, end)
        if len(escaped) <= soft_room:
            return TextSegment(start, end, opening_fence + escaped)
        cut = self._find_paragraph_end(start, end, soft_room, hard_room)
        if cut is None:
            if len(escaped) <= hard_room:
                return TextSegment(start, end, opening_fence + escaped)
            cut = self._find_any_cut(start, hard_room, fresh=used == 0)
        if cut <= start:
            return TextSegment(start, cut, "", full=True)
        return TextSegment(start, cut, opening_fence + self._escape_range(start, cut), full=True)

    def closing_fence(self) -> str:
        """The end of the code block in which the sent text stops, for a message that ends there."""
        return _closing_fence(self.text, self.sent)

    def render_range(self, start: int, end: int) -> str:
        """The text of a message from `start` to `end`, as it is sent: a code block that is cut is closed
        and opened again.
        """
        opening = _opening_fence(self.text, start)
        return opening + self._escape_range(start, end) + _closing_fence(self.text, end)

    def _escape_range(self, start: int, end: int) -> str:
        """The range escaped; in a code block no `>` is a quotation."""
        opening = _find_open_fence(self.text, start)
        at_line_start = start == 0 or self.text[start - 1] == "\n"
        lines = []
        for line in self.text[start:end].split("\n"):
            lines.append(escape(line, at_line_start=at_line_start and opening is None))
            if at_line_start:
                opening = _follow_fence(opening, _FENCE.match(line))
            at_line_start = True
        return "\n".join(lines)

    def _sendable_end(self) -> int:
        """How far the text may be sent.

        A line that may become the fence of a code block waits for its end: no message may end inside it.
        """
        line_start = self.text.rfind("\n") + 1
        if self.complete or line_start < self.sent or _UNFINISHED_FENCE.match(self.text, line_start) is None:
            return len(self.text)
        in_code = _find_open_fence(self.text, line_start) is not None
        if in_code and _find_open_fence(self.text, len(self.text)) is None:
            return len(self.text)
        return line_start

    def _find_paragraph_end(self, start: int, end: int, soft_room: int, hard_room: int) -> int | None:
        """The first end of a paragraph, outside of code, between the soft and the hard limit."""
        size = 0
        previous = start
        for blank_lines in re.finditer(r"\n\n+", self.text[start:end]):
            cut = start + blank_lines.end()
            size += len(self._escape_range(previous, cut))
            previous = cut
            if size > hard_room:
                return None
            if size >= soft_room and _find_open_fence(self.text, cut) is None:
                return cut
        return None

    def _find_any_cut(self, start: int, room: int, *, fresh: bool) -> int:
        """The last end of a line or a word for which there is room; in code only of a line, never in a fence.

        Where there is no such end, `start`: the rest gets a message of its own. A `fresh` message is filled.
        """
        farthest = _fitting_end(self.text, start, max(1, room))
        in_code = _find_open_fence(self.text, farthest) is not None
        separators = "\n "
        nearest = start
        if in_code:
            separators = "\n"
        elif fresh:
            nearest = start + (farthest - start) // 2
        first_allowed = start + int(fresh)
        for separator in separators:
            position = self.text.rfind(separator, start, farthest)
            if position > nearest:
                return self._move_before_fence(position + 1, first_allowed)
        if fresh:
            return self._move_before_fence(farthest, first_allowed)
        return start

    def _move_before_fence(self, cut: int, first_allowed: int) -> int:
        line_start = self.text.rfind("\n", 0, cut) + 1
        if first_allowed <= line_start < cut and _FENCE.match(self.text, line_start):
            return line_start
        return cut


def _common_prefix_length(first: str, second: str) -> int:
    for index, characters in enumerate(zip(first, second, strict=False)):
        if characters[0] != characters[1]:
            return index
    return min(len(first), len(second))


def _fitting_end(text: str, start: int, room: int) -> int:
    """The farthest end up to which the escaped text has room; at least one character after `start`."""
    size = 0
    for index in range(start, len(text)):
        size += _ESCAPED_LENGTHS.get(text[index], 1)
        if size > room:
            return max(index, start + 1)
    return len(text)


def _find_open_fence(text: str, position: int) -> re.Match[str] | None:
    """The first line of the code block around the position: its indent, its marks and its language."""
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text, 0, position):
        if fence.end() == position and _is_inside_line(text, position):
            break  # the line goes on: whether it is a fence is not known yet
        opening = _follow_fence(opening, fence)
    return opening


def _follow_fence(opening: re.Match[str] | None, fence: re.Match[str] | None) -> re.Match[str] | None:
    """The first line of the code block that is open after a line, which may be a fence itself."""
    if fence is None:
        return opening
    if opening is None:
        return fence
    closes = fence[2].startswith(opening[2]) and not fence[3].strip()
    return None if closes else opening


def _is_inside_line(text: str, position: int) -> bool:
    if position >= len(text):
        return False
    return not text.endswith("\n", 0, position) and text[position] != "\n"


def _closing_fence(text: str, position: int) -> str:
    fence = _find_open_fence(text, position)
    if fence is None:
        return ""
    marks = f"{fence[1]}{fence[2]}"
    if text.endswith("\n", 0, position):
        return marks
    return f"\n{marks}"


def _opening_fence(text: str, position: int) -> str:
    fence = _find_open_fence(text, position)
    if fence is None or position == 0:
        return ""
    language = _LANGUAGE.match(fence[3])
    assert language is not None  # the pattern matches the empty string
    return f"{fence[1]}{fence[2]}{language[0]}\n"
