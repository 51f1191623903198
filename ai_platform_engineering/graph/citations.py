"""Citations in an answer.

The model names what it used by the marks of the knowledge base; people see numbers. A mark that names nothing
that was retrieved is removed. A number that the model writes itself, as in `[1]`, is never one of ours: ours
are those that the message does not have.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic_core import from_json

from ai_platform_engineering.core.events import Citation
from ai_platform_engineering.graph.visible_text import VisibleTextFilter, visible_text

# A mark as models write it: `[kb:0123abcd]`, with capitals, spaces, other brackets, or several ids in one.
_OPEN = r"[\[(【]"
_KEY = r"[kK][bB]\s?:\s?"
_ID = r"[0-9a-fA-F]{4,64}"
_MORE = rf"(?:\s{{0,2}}[,;]\s{{0,2}}(?:{_KEY})?{_ID}){{0,40}}"
_MARK = re.compile(rf"{_OPEN}{_KEY}({_ID})({_MORE})\s?[\])】]")
_UNCLOSED_MARK = re.compile(rf"{_OPEN}{_KEY}({_ID})({_MORE})")
_BEGUN_MARK = re.compile(rf"{_OPEN}{_KEY}")
_MARK_ID = re.compile(r"kb:([0-9a-f]{4,64})")
_HEX_ID = re.compile(_ID)
_OPENING = re.compile(_OPEN)
# A number of the model's own: `[1]`, a list or a range of them, or the mark of a footnote.
_DIGITS = r"\^?\d{1,4}"
_BETWEEN = r"\s{0,2}[,;–-]\s{0,2}"
_OWN_NUMBERS = re.compile(rf"[\[【]\s?({_DIGITS}(?:{_BETWEEN}{_DIGITS}){{0,20}})\s?[\]】]")
_RANGE = re.compile(r"(\d+)(?:\s{0,2}[–-]\s{0,2}\^?(\d+))?")
_LONGEST_RANGE = 100
_ANY_MARK = re.compile(rf"{_MARK.pattern}|{_OWN_NUMBERS.pattern}")
# What may still become a mark: every beginning of one, and nothing else. A text is held back from here on,
# and never long.
_BEGUN_KEY = r"(?:[kK]?|[kK][bB]\s?|[kK][bB]\s?:\s?)"
_BEGUN_ID = r"[0-9a-fA-F]{1,64}"
_BEGUN_MARK_TEXT = (
    rf"{_OPEN}(?:{_BEGUN_KEY}|{_KEY}{_BEGUN_ID}"
    rf"|{_KEY}{_ID}{_MORE}\s{{0,2}}(?:[,;]\s{{0,2}}(?:{_BEGUN_KEY}|(?:{_KEY})?{_BEGUN_ID}))?)"
)
_BEGUN_NUMBERS = rf"[\[【]\s?(?:\^?|{_DIGITS}(?:{_BETWEEN}{_DIGITS}){{0,20}}(?:\s{{0,2}}|{_BETWEEN}\^?))"
_PARTIAL_MARK = re.compile(rf"(?:{_BEGUN_MARK_TEXT}|{_BEGUN_NUMBERS})\Z")
_LINK = re.compile(r"https?://[^\s\"'<>\\)\]]+")
_MAX_LINKS = 5_000
_MAX_DOCUMENTS = 5_000
_MIN_PREFIX = 4
_TRUNCATED = "\n[Output truncated"  # how a result ends that was too long


class RetrievedSources:
    """What was retrieved for a question, and what its texts cite of it."""

    def __init__(self) -> None:
        self._documents: dict[str, Citation] = {}  # by mark
        self._links: set[str] = set()  # in results of other tools
        self._cited: dict[str, tuple[Citation, ...]] = {}  # by the text that people see

    def add_result(self, result: str, *, knowledge: bool) -> None:
        """Takes in what a tool returned; a tool of the knowledge base returns documents."""
        if knowledge:
            for document in _documents(result):
                self._add_document(document)
            return
        for link in _LINK.findall(result):
            if len(self._links) >= _MAX_LINKS:
                return
            self._links.add(link.rstrip(".,;:!?*`"))

    def _add_document(self, document: Mapping[str, Any]) -> None:
        marks = _MARK_ID.findall(str(document.get("cite") or ""))
        if not marks or marks[0] in self._documents or len(self._documents) >= _MAX_DOCUMENTS:
            return
        document_id = str(document.get("document_id") or "")
        self._documents[marks[0]] = Citation(
            title=str(document.get("title") or "") or document_id or marks[0],
            url=str(document.get("link") or "") or None,
            document_id=document_id or None,
        )

    def get(self, mark: str) -> Citation | None:
        return self._documents.get(mark)

    def resolve_mark(self, written: str) -> str | None:
        """The mark of a document by what a model wrote: the mark, a prefix that only one document has, or the
        document's id, as a whole or cut."""
        if written in self._documents:
            return written
        matches = []
        for mark, document in self._documents.items():
            if mark.startswith(written) or (document.document_id or "").startswith(written):
                matches.append(mark)
        if len(matches) == 1 and len(written) >= _MIN_PREFIX:
            return matches[0]
        return None

    def number_citations(self, text: str) -> str:
        """What people see of a whole message."""
        shown_text = visible_text(text)
        cited = CitedText(self, find_own_numbers(shown_text))
        numbered = cited.feed(shown_text) + cited.end()
        if cited.citations:
            self._cited[numbered] = cited.citations
        return numbered

    def citations_in(self, text: str, data: Any) -> tuple[Citation, ...]:
        """What an answer cites: in its text, by number, and then what its data name besides and was really
        retrieved."""
        citations = list(self._cited.get(text, ()))
        cited_sources = {_without_number(citation) for citation in citations}
        # The text has our numbers as well as the model's own.
        taken_numbers = find_own_numbers(text)
        for raw in (data or {}).get("citations") or ():
            citation = self._find(Citation.model_validate(raw))
            if citation is None or citation in cited_sources:
                continue
            number = _next_number(taken_numbers)
            taken_numbers.add(number)
            cited_sources.add(citation)
            citations.append(citation.model_copy(update={"number": number}))
        return tuple(citations)

    def _find(self, named: Citation) -> Citation | None:
        """The document as it was retrieved, or a link that some tool returned."""
        if named.document_id:
            for document in self._documents.values():
                if document.document_id == named.document_id:
                    return document
        if not named.url:
            return None
        for document in self._documents.values():
            if document.url == named.url:
                return document
        if named.url in self._links:
            return named.model_copy(update={"document_id": None, "number": None})
        return None


class CitedText:
    """Takes a message in pieces and gives it back with numbers in the place of marks.

    `own_numbers`: those that the model writes itself, if the whole message is known. While it streams, only
    those before a mark are: where a later one clashes with ours, the message is sent again when it ends.
    """

    def __init__(self, sources: RetrievedSources, own_numbers: Collection[int] = ()) -> None:
        self._sources = sources
        self._buffer = ""  # what may still become a mark
        self._taken_numbers = set(own_numbers)  # the model's own, and ours
        self._numbers: dict[str, int] = {}  # ours, by mark

    @property
    def citations(self) -> tuple[Citation, ...]:
        """In the order of their numbers."""
        citations: list[Citation] = []
        for mark, number in self._numbers.items():
            citation = self._sources.get(mark)
            if citation is not None:
                citations.append(citation.model_copy(update={"number": number}))
        return tuple(citations)

    def feed(self, piece: str) -> str:
        if not self._buffer and not _OPENING.search(piece):
            return piece
        text = self._buffer + piece
        self._buffer = ""
        partial = _PARTIAL_MARK.search(text)
        if partial is not None:
            self._buffer = text[partial.start() :]
            text = text[: partial.start()]
        return _ANY_MARK.sub(self._replace_mark, text)

    def end(self) -> str:
        """What was held back. A mark that the message's end has cut is one all the same."""
        rest = self._buffer
        self._buffer = ""
        unclosed = _UNCLOSED_MARK.match(rest)
        if unclosed is not None:
            return self._number(unclosed)
        if _BEGUN_MARK.match(rest):
            return ""
        return rest

    def _replace_mark(self, match: re.Match[str]) -> str:
        if match[1] is not None:
            return self._number(match)
        self._taken_numbers |= find_own_numbers(match[0])
        return match[0]

    def _number(self, match: re.Match[str]) -> str:
        written_ids = [match[1], *_HEX_ID.findall(match[2])]
        marks = dict.fromkeys(self._sources.resolve_mark(written.lower()) for written in written_ids)
        numbers = ""
        for mark in marks:
            if mark is not None:
                numbers += f"[{self._number_of(mark)}]"
        return numbers

    def _number_of(self, mark: str) -> int:
        number = self._numbers.get(mark)
        if number is None:
            number = self._numbers[mark] = _next_number(self._taken_numbers)
            self._taken_numbers.add(number)
        return number


class CitedTextFilter:
    """What people see of a message that comes in pieces.

    Only the supervisor has `sources` to cite; what an agent repeats of its marks is removed.
    """

    def __init__(self, sources: RetrievedSources | None) -> None:
        self._visible = VisibleTextFilter()
        self._cited = CitedText(sources or RetrievedSources())

    def feed(self, piece: str) -> str:
        return self._cited.feed(self._visible.feed(piece))


def remove_marks(text: str) -> str:
    """What people see of a whole message that cites nothing."""
    return RetrievedSources().number_citations(text)


def find_own_numbers(text: str) -> set[int]:
    """The numbers that a text has in brackets, anywhere: also `a[1]` in code may be taken for a citation."""
    numbers: set[int] = set()
    for match in _OWN_NUMBERS.finditer(text):
        for first, last in _RANGE.findall(match[1]):
            numbers.add(int(first))
            if last and int(last) - int(first) <= _LONGEST_RANGE:
                numbers.update(range(int(first), int(last) + 1))
    return numbers


def _next_number(taken_numbers: Collection[int]) -> int:
    number = 1
    while number in taken_numbers:
        number += 1
    return number


def _without_number(citation: Citation) -> Citation:
    return citation.model_copy(update={"number": None})


def _documents(result: str) -> Iterator[Mapping[str, Any]]:
    """The documents in a result, also when it was cut off or something was written behind it."""
    try:
        content = _parse(result)
    except ValueError:
        for mark in dict.fromkeys(re.findall(r"\[kb:[0-9a-f]{4,64}\]", result)):
            yield {"cite": mark}
        return
    if not isinstance(content, dict):
        return
    documents = content.get("results", [content])
    if not isinstance(documents, list):
        return
    for document in documents:
        if isinstance(document, dict):
            yield document


def _parse(result: str) -> Any:
    if _TRUNCATED in result:
        return from_json(result.partition(_TRUNCATED)[0], allow_partial=True)
    return json.JSONDecoder().raw_decode(result)[0]
