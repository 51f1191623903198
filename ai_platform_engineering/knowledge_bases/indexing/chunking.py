"""Cuts a document into pieces that are found one by one: along its structure, none longer than the embedding model reads."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ai_platform_engineering.knowledge_bases.documents import Chunk, ParsedDocument

TARGET_WORDS = 180  # words
MAX_WORDS = 220
_SMALL = 60  # words that are not left alone while there is more to say
_OVERLAP = 40  # the longest sentence that is said again
_REPEATED = 60  # the longest header of a table that is said again

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
# What counts as a word: two characters where no spaces are written; 24 of anything, since models cut long words as well.
_WORD = re.compile(rf"[{_CJK}]{{1,2}}|[^\s{_CJK}]{{1,24}}")
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]{0,3}\s|[。！？]|\n\n")
_PARAGRAPH_END = re.compile(r"\n\n")
_LINE_END = re.compile(r"\n")
_ITEM_END = re.compile(r"\n(?=(?:[-*+•]|\d{1,6}[.)])\s)")
_RULE = re.compile(r"[|: -]{3,}")
_CUTS: dict[str, tuple[re.Pattern[str], ...]] = {
    "prose": (_PARAGRAPH_END, _SENTENCE_END, _LINE_END),
    "list": (_ITEM_END, _LINE_END, _SENTENCE_END),
    "code": (_PARAGRAPH_END, _LINE_END),
    "table": (_LINE_END,),
    "heading": (),
}
_WORDS_AT_ONCE = 30  # where there is nothing else to cut by


@dataclass(frozen=True, slots=True)
class _Unit:
    """A stretch of the text that stays in one piece if it can. One of kind `heading` goes with what follows it."""

    start: int
    end: int
    words: int
    kind: str
    headings: tuple[str, ...]
    header: tuple[int, int] = (0, 0)  # of the table whose later rows these are
    cut: int = 0  # how finely it was cut already


@dataclass(frozen=True, slots=True)
class _Packed:
    """The units of a chunk; `start` is before the first of them when a sentence is said again."""

    start: int
    units: tuple[_Unit, ...]


def chunk_document(parsed: ParsedDocument) -> tuple[str, tuple[Chunk, ...]]:
    """The document's text, and its chunks in order.

    A chunk's text is `text[start:end]`, which may begin with the last sentence of the chunk before; where a table was cut, the
    header of the table stands in front of that once more.
    """
    text, units = _laid_out(parsed)
    packed = (
        one for _, group in groupby(units, key=lambda unit: unit.headings[:2]) for one in _Packing(text, group).packed()
    )  # fmt: skip
    return text, tuple(_chunk(ordinal, text, one) for ordinal, one in enumerate(packed))


def count_words(text: str) -> int:
    """How much of a chunk the text takes."""
    return len(_WORD.findall(text))


def join_heading_path(title: str, headings: Sequence[str]) -> str:
    """Where a chunk stands, for search and embedding: the title and the headings, none of them twice in a row."""
    return " > ".join(step for step, _ in groupby(filter(None, (title, *headings))))


def _chunk(ordinal: int, text: str, packed: _Packed) -> Chunk:
    first, last = packed.units[0], packed.units[-1]
    begin, end = first.header
    header = text[begin:end] + "\n" if end else ""
    return Chunk(
        ordinal,
        header + text[packed.start : last.end],
        _shared([unit.headings for unit in packed.units]),
        packed.start,
        last.end,
    )


def _shared(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The headings that all of them stand under."""
    shared = paths[0]
    for path in paths:
        if path != shared:
            shared = shared[: _common(shared, path)]
    return shared


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    return next(
        (depth for depth, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
        min(len(one), len(other)),
    )


# --- the document's text --------------------------------------------------------------------------------------------


def _laid_out(parsed: ParsedDocument) -> tuple[str, list[_Unit]]:
    """Sections one after the other. Headings are written where they begin, but not into source code, which says its own."""
    parts: list[str] = []
    spans: list[tuple[int, int, str, tuple[str, ...]]] = []
    between = "" if parsed.language else "\n\n"
    at = 0
    above: tuple[str, ...] = ()
    for section in parsed.sections:
        heading = "" if parsed.language else _heading_lines(above, section.headings)
        above = section.headings
        for piece, kind in ((heading, "heading"), (section.text, section.kind)):
            if piece:
                parts.append(piece)
                spans.append((at, at + len(piece), kind, section.headings))
                at += len(piece) + len(between)
    text = between.join(parts)
    units = (_unit(text, start, end, kind, headings) for start, end, kind, headings in spans)
    return text, [unit for unit in units if unit is not None]


def _heading_lines(above: tuple[str, ...], headings: tuple[str, ...]) -> str:
    begun = _common(above, headings)
    return "\n\n".join(
        f"{'#' * min(depth, 6)} {heading}" for depth, heading in enumerate(headings, start=1) if depth > begun
    )


def _unit(
    text: str,
    start: int,
    end: int,
    kind: str,
    headings: tuple[str, ...],
    header: tuple[int, int] = (0, 0),
    cut: int = 0,
) -> _Unit | None:
    """The stretch without the white space around it; indentation stays where it has a meaning."""
    piece = text[start:end].rstrip()
    end = start + len(piece)
    start = end - len(piece.lstrip("\n" if kind in {"code", "list"} else None))
    words = count_words(piece)
    if words:
        return _Unit(start, end, words, kind if kind in _CUTS else "prose", headings, header, cut)
    return None


# --- cutting --------------------------------------------------------------------------------------------------------


def _parts(text: str, unit: _Unit) -> list[_Unit]:
    """The unit cut one step finer: by its structure, in the end between words or inside a long one."""
    for cut, pattern in enumerate(_CUTS[unit.kind][unit.cut :], start=unit.cut + 1):
        parts = _cut_at(
            text, unit, (found.end() for found in pattern.finditer(text, unit.start, unit.end)), cut
        )
        if len(parts) > 1:
            return parts
    words = (
        found.start()
        for number, found in enumerate(_WORD.finditer(text, unit.start, unit.end))
        if number % _WORDS_AT_ONCE == 0
    )
    return _cut_at(text, unit, words, len(_CUTS[unit.kind]))


def _cut_at(text: str, unit: _Unit, places: Iterable[int], cut: int) -> list[_Unit]:
    header = unit.header if unit.cut or unit.kind != "table" else _header(text, unit)
    borders = [unit.start, *(place for place in places if unit.start < place < unit.end), unit.end]
    parts: list[_Unit] = []
    for start, end in pairwise(borders):
        above = header if start >= header[1] else (0, 0)
        part = _unit(text, start, end, unit.kind, unit.headings, above, cut)
        if part is not None:
            parts.append(part)
    return parts


def _header(text: str, unit: _Unit) -> tuple[int, int]:
    """The first line of a table and the rule below it, where there is one and it is not too long to be said again."""
    first = text.find("\n", unit.start, unit.end)
    second = text.find("\n", first + 1, unit.end)
    if (
        0 < first < second
        and _RULE.fullmatch(text, first + 1, second)
        and count_words(text[unit.start : second]) <= _REPEATED
    ):
        return unit.start, second
    return 0, 0


# --- packing --------------------------------------------------------------------------------------------------------


class _Packing:
    """Fills chunks with the units of one heading, in order."""

    def __init__(self, text: str, units: Iterable[_Unit]) -> None:
        self._text = text
        self._pending = deque(units)
        self._rest = sum(unit.words for unit in self._pending)
        self._begin()

    def packed(self) -> Iterator[_Packed]:
        while self._pending:
            unit = self._pending[0]
            if self._fits(unit):
                self._take(unit)
            elif self._is_worth_cutting(unit) and len(parts := _parts(self._text, unit)) > 1:
                self._pending.popleft()
                self._pending.extendleft(reversed(parts))
                self._rest += sum(part.words for part in parts) - unit.words
            elif self._units:
                yield self._end(unit)
            else:
                self._take(unit)
        if self._units:
            yield self._filled()

    def _begin(self, start: int | None = None, words: int = 0) -> None:
        self._units: list[_Unit] = []
        self._start = start  # of what is said again
        self._words = words  # so far, what is said again included
        self._content = False  # more than headings

    def _fits(self, unit: _Unit) -> bool:
        words = self._words + unit.words + self._header_words(unit)
        if self._words + self._rest <= MAX_WORDS:
            return words <= MAX_WORDS  # nothing is left over for a last, small chunk
        if not self._content:
            return words <= MAX_WORDS
        if unit.kind == "heading":
            words += self._pending[1].words if len(self._pending) > 1 else 0
        return words <= TARGET_WORDS

    def _header_words(self, unit: _Unit) -> int:
        begin, end = unit.header
        if end and not self._units:
            return count_words(self._text[begin:end])
        return 0

    def _is_worth_cutting(self, unit: _Unit) -> bool:
        return not self._content or (self._words < _SMALL and unit.words > MAX_WORDS)

    def _take(self, unit: _Unit) -> None:
        self._pending.popleft()
        self._rest -= unit.words
        self._words += unit.words + self._header_words(unit)
        self._units.append(unit)
        self._content = self._content or unit.kind != "heading"

    def _filled(self) -> _Packed:
        return _Packed(self._units[0].start if self._start is None else self._start, tuple(self._units))

    def _end(self, following: _Unit) -> _Packed:
        packed = self._filled()
        self._begin(*self._said_again(packed, following))
        return packed

    def _said_again(self, packed: _Packed, following: _Unit) -> tuple[int | None, int]:
        """The last sentence of a chunk of prose, where the text goes on under the same heading."""
        last = packed.units[-1]
        if not (last.kind == following.kind == "prose" and last.headings == following.headings):
            return None, 0
        start = last.start
        for found in _SENTENCE_END.finditer(self._text, last.start, last.end):
            if found.end() < last.end:
                start = found.end()
        words = count_words(self._text[start : last.end])
        fits = words + following.words <= TARGET_WORDS or following.words > MAX_WORDS
        if words <= _OVERLAP and fits and start > packed.start:
            return (start, words)
        return (None, 0)
