"""What of a model's text is meant for people: no reasoning, and no blank opening."""

import json
import re

_OPEN, _CLOSE = "<think>", "</think>"


class VisibleTextFilter:
    """Takes a message in pieces and gives back what may be shown.

    Providers mark reasoning with blocks of its own, which never come here. Local models write it inline, as
    one `<think>…</think>` at the start; it is held back as soon as it can be one and never longer.
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._state = (
            "start"  # start: nothing shown yet; thinking: inside the block; open: everything is shown
        )

    def feed(self, piece: str) -> str:
        if self._state == "open":
            return piece
        self._buffer += piece
        if self._state == "start":
            self._begin()
        if self._state == "thinking":
            return self._leave_thought()
        if self._state == "open":
            return self._flush()
        return ""

    def end(self) -> str:
        """What was held back and turned out to be ordinary text."""
        is_thinking = self._state == "thinking"
        rest = self._flush()
        self._state = "open"
        if is_thinking:
            return ""
        return rest.lstrip()

    def _flush(self) -> str:
        text = self._buffer
        self._buffer = ""
        return text

    def _begin(self) -> None:
        opening = self._buffer.lstrip()
        if opening.startswith(_OPEN):
            self._state = "thinking"
            self._buffer = opening[len(_OPEN) :]
        elif opening and not _OPEN.startswith(opening):
            self._state = "open"
            self._buffer = opening

    def _leave_thought(self) -> str:
        _, close, rest = self._buffer.partition(_CLOSE)
        if not close:
            return ""
        # A second thought may follow at once: look again.
        self._buffer = ""
        self._state = "start"
        if rest:
            return self.feed(rest)
        return ""


def visible_text(text: str) -> str:
    """The shown part of a whole text."""
    filtered = VisibleTextFilter()
    return filtered.feed(text) + filtered.end()


_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class JsonStringReader:
    """Reads one top-level string field out of a JSON object that arrives in pieces, as it grows."""

    def __init__(self, name: str) -> None:
        self._opening = re.compile(rf'[{{,]\s*"{re.escape(name)}"\s*:\s*"')
        self._buffer = ""
        self._at = 0
        self._inside = False
        self._done = False

    def feed(self, piece: str) -> str:
        """The characters of the field that have become known."""
        if self._done:
            return ""
        self._buffer += piece
        if not self._inside:
            start = self._find()
            if start is None:
                return ""
            self._at = start
            self._inside = True
        return self._read()

    def _find(self) -> int | None:
        """Where the value begins; a match inside another string does not count."""
        for match in self._opening.finditer(self._buffer):
            before = self._buffer[: match.start() + 1]
            if _depth(before) == 1:
                return match.end()
        return None

    def _read(self) -> str:
        out: list[str] = []
        text = self._buffer
        at = self._at
        while at < len(text):
            char = text[at]
            if char == '"':
                self._done = True
                break
            if char != "\\":
                out.append(char)
                at += 1
                continue
            step = _escape(text, at)
            if step is None:
                break  # the rest of the escape has not arrived
            decoded, at = step
            out.append(decoded)
        self._buffer = text[at:]
        self._at = 0
        return "".join(out)


def _escape(text: str, at: int) -> tuple[str, int] | None:
    """The character of the escape that starts at `at`, and where it ends."""
    if at + 1 >= len(text):
        return None
    kind = text[at + 1]
    if kind != "u":
        return _ESCAPES.get(kind, kind), at + 2
    if at + 6 > len(text):
        return None
    end = at + 6
    if text[at + 2] in "dD" and text[at + 3] in "89abAB":  # the first half of a pair: wait for the second
        if at + 12 > len(text):
            return None
        end = at + 12
    try:
        return str(json.loads(f'"{text[at:end]}"')), end
    except ValueError:
        return "\ufffd", at + 6


def _depth(text: str) -> int:
    """How many objects or arrays are open at the end of a JSON text; -1 inside a string."""
    depth = 0
    quoted = False
    skip = False
    for char in text:
        if skip:
            skip = False
        elif quoted:
            skip = char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
    if quoted:
        return -1
    return depth
