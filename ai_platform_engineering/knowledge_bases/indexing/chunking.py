"""Cuts a document into chunks along its structure, none longer than the embedding model reads."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise

from ai_platform_engineering.knowledge_bases.documents import Chunk, ParsedDocument

TARGET_WORDS = 180
MAX_WORDS = 220
_MIN_WORDS = 60  # a chunk is not ended below this while more text follows
_MAX_OVERLAP_WORDS = 40  # of the last sentence that the next chunk repeats
_MAX_REPEATED_HEADER_WORDS = 60  # of a table header that each part of a cut table repeats

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
# What counts as a word: two characters where no spaces are written; 24 of anything, since models cut long
# words as well.
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
    """A span of the text that stays in one chunk if it can. A unit of kind `heading` goes with what follows
    it."""

    start: int
    end: int
    words: int
    kind: str
    headings: tuple[str, ...]
    header: tuple[int, int] = (0, 0)  # of the table whose later rows these are
    cut: int = 0  # how finely it was cut already


@dataclass(frozen=True, slots=True)
class _UnitGroup:
    """The units of one chunk; `start` is before the first of them when a sentence of the chunk before is
    repeated."""

    start: int
    units: tuple[_Unit, ...]


def chunk_document(document: ParsedDocument) -> tuple[str, tuple[Chunk, ...]]:
    """The document's text, and its chunks in order.

    A chunk's text is `text[start:end]`, which may begin with the last sentence of the chunk before; where a
    table was cut, the header of the table stands in front of that once more.
    """
    text, units = _join_sections(document)
    chunks: list[Chunk] = []
    for _, units_under_heading in groupby(units, key=lambda unit: unit.headings[:2]):
        for group in _ChunkPacker(text, units_under_heading).pack():
            chunks.append(_create_chunk(len(chunks), text, group))
    return text, tuple(chunks)


def count_words(text: str) -> int:
    """How much of a chunk the text takes."""
    return len(_WORD.findall(text))


def _create_chunk(ordinal: int, text: str, group: _UnitGroup) -> Chunk:
    table_header = ""
    begin, end = group.units[0].header
    if end:
        table_header = text[begin:end] + "\n"
    chunk_end = group.units[-1].end
    headings = _common_headings([unit.headings for unit in group.units])
    return Chunk(ordinal, table_header + text[group.start : chunk_end], headings, group.start, chunk_end)


def _common_headings(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The headings that all heading paths begin with."""
    common = paths[0]
    for path in paths:
        if path != common:
            common = common[: _count_common(common, path)]
    return common


def _count_common(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    """How many headings two heading paths have in common from the start."""
    count = 0
    for heading, other in zip(first, second, strict=False):
        if heading != other:
            break
        count += 1
    return count


# --- the document's text


def _join_sections(document: ParsedDocument) -> tuple[str, list[_Unit]]:
    """The text of all sections, and a unit for each heading and section.

    Headings are written where they begin, but not into source code, which has them in its lines."""
    is_code = bool(document.language)
    separator = "\n\n"
    if is_code:
        separator = ""
    pieces: list[str] = []
    spans: list[tuple[int, int, str, tuple[str, ...]]] = []
    position = 0
    previous_headings: tuple[str, ...] = ()
    for section in document.sections:
        heading = ""
        if not is_code:
            heading = _render_new_headings(previous_headings, section.headings)
        previous_headings = section.headings
        for piece, kind in ((heading, "heading"), (section.text, section.kind)):
            if piece:
                pieces.append(piece)
                spans.append((position, position + len(piece), kind, section.headings))
                position += len(piece) + len(separator)
    text = separator.join(pieces)
    units = (_create_unit(text, start, end, kind, headings) for start, end, kind, headings in spans)
    return text, [unit for unit in units if unit is not None]


def _render_new_headings(previous: tuple[str, ...], headings: tuple[str, ...]) -> str:
    """The headings that were not above the previous section, as Markdown."""
    common = _count_common(previous, headings)
    lines: list[str] = []
    for level, heading in enumerate(headings[common:], start=common + 1):
        lines.append(f"{'#' * min(level, 6)} {heading}")
    return "\n\n".join(lines)


def _create_unit(
    text: str,
    start: int,
    end: int,
    kind: str,
    headings: tuple[str, ...],
    header: tuple[int, int] = (0, 0),
    cut: int = 0,
) -> _Unit | None:
    """The stretch without the white space around it, or None when nothing is left. Indentation of code and
    lists stays: it has a meaning."""
    piece = text[start:end].rstrip()
    end = start + len(piece)
    if kind in {"code", "list"}:
        start = end - len(piece.lstrip("\n"))
    else:
        start = end - len(piece.lstrip())
    words = count_words(piece)
    if not words:
        return None
    if kind not in _CUTS:
        kind = "prose"
    return _Unit(start, end, words, kind, headings, header, cut)


# --- cutting


def _split_unit(text: str, unit: _Unit) -> list[_Unit]:
    """The unit cut one step finer: by its structure, in the end between words or inside a long one."""
    for cut, pattern in enumerate(_CUTS[unit.kind][unit.cut :], start=unit.cut + 1):
        ends = (match.end() for match in pattern.finditer(text, unit.start, unit.end))
        parts = _cut_at(text, unit, ends, cut)
        if len(parts) > 1:
            return parts
    word_starts = (match.start() for match in _WORD.finditer(text, unit.start, unit.end))
    return _cut_at(text, unit, islice(word_starts, 0, None, _WORDS_AT_ONCE), len(_CUTS[unit.kind]))


def _cut_at(text: str, unit: _Unit, positions: Iterable[int], cut: int) -> list[_Unit]:
    header = unit.header
    if unit.kind == "table" and not unit.cut:
        header = _find_table_header(text, unit)
    inner = (position for position in positions if unit.start < position < unit.end)
    parts: list[_Unit] = []
    for start, end in pairwise([unit.start, *inner, unit.end]):
        repeated_header = (0, 0)
        if start >= header[1]:
            repeated_header = header
        part = _create_unit(text, start, end, unit.kind, unit.headings, repeated_header, cut)
        if part is not None:
            parts.append(part)
    return parts


def _find_table_header(text: str, unit: _Unit) -> tuple[int, int]:
    """The span of a table's first line and the rule below it, if there is one and it is short enough to
    repeat."""
    first = text.find("\n", unit.start, unit.end)
    second = text.find("\n", first + 1, unit.end)
    if not 0 < first < second or not _RULE.fullmatch(text, first + 1, second):
        return 0, 0
    if count_words(text[unit.start : second]) > _MAX_REPEATED_HEADER_WORDS:
        return 0, 0
    return unit.start, second


# --- packing


class _ChunkPacker:
    """Fills chunks with the units under one heading, in order."""

    def __init__(self, text: str, units: Iterable[_Unit]) -> None:
        self._text = text
        self._pending = deque(units)
        self._pending_words = sum(unit.words for unit in self._pending)
        self._begin()

    def pack(self) -> Iterator[_UnitGroup]:
        while self._pending:
            unit = self._pending[0]
            if self._fits(unit):
                self._take(unit)
            elif self._is_worth_cutting(unit) and self._cut_next(unit):
                continue
            elif self._units:
                yield self._end(unit)
            else:
                self._take(unit)
        if self._units:
            yield self._current_group()

    def _cut_next(self, unit: _Unit) -> bool:
        """Replaces the next unit by its parts; False when it cannot be cut."""
        parts = _split_unit(self._text, unit)
        if len(parts) < 2:
            return False
        self._pending.popleft()
        self._pending.extendleft(reversed(parts))
        self._pending_words += sum(part.words for part in parts) - unit.words
        return True

    def _begin(self, start: int | None = None, words: int = 0) -> None:
        self._units: list[_Unit] = []
        self._start = start  # of the repeated sentence
        self._words = words  # so far, with the repeated sentence
        self._has_content = False  # more than headings

    def _fits(self, unit: _Unit) -> bool:
        words = self._words + unit.words + self._header_words(unit)
        if self._words + self._pending_words <= MAX_WORDS:
            return words <= MAX_WORDS  # nothing is left over for a last, small chunk
        if not self._has_content:
            return words <= MAX_WORDS
        if unit.kind == "heading":
            words += self._words_after_heading()
        return words <= TARGET_WORDS

    def _words_after_heading(self) -> int:
        """The words of the unit after the next one: a heading must not end a chunk."""
        if len(self._pending) > 1:
            return self._pending[1].words
        return 0

    def _header_words(self, unit: _Unit) -> int:
        begin, end = unit.header
        if end and not self._units:
            return count_words(self._text[begin:end])
        return 0

    def _is_worth_cutting(self, unit: _Unit) -> bool:
        return not self._has_content or (self._words < _MIN_WORDS and unit.words > MAX_WORDS)

    def _take(self, unit: _Unit) -> None:
        self._pending.popleft()
        self._pending_words -= unit.words
        self._words += unit.words + self._header_words(unit)
        self._units.append(unit)
        self._has_content = self._has_content or unit.kind != "heading"

    def _current_group(self) -> _UnitGroup:
        start = self._start
        if start is None:
            start = self._units[0].start
        return _UnitGroup(start, tuple(self._units))

    def _end(self, following: _Unit) -> _UnitGroup:
        group = self._current_group()
        self._begin(*self._find_overlap(group, following))
        return group

    def _find_overlap(self, group: _UnitGroup, following: _Unit) -> tuple[int | None, int]:
        """The last sentence of a chunk of prose, where the text goes on under the same heading."""
        last = group.units[-1]
        if not (last.kind == following.kind == "prose" and last.headings == following.headings):
            return None, 0
        start = last.start
        for match in _SENTENCE_END.finditer(self._text, last.start, last.end):
            if match.end() < last.end:
                start = match.end()
        words = count_words(self._text[start : last.end])
        fits = words + following.words <= TARGET_WORDS or following.words > MAX_WORDS
        if words <= _MAX_OVERLAP_WORDS and fits and start > group.start:
            return start, words
        return None, 0
