"""Citations in an answer: the model names what it used by the marks of the knowledge base, people see numbers, and a mark that names
nothing that was retrieved is removed."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic_core import from_json

from ai_platform_engineering.core.events import Citation
from ai_platform_engineering.graph.visible_text import VisibleTextFilter, visible_text

_MORE = r"(?:\s{0,2}[,;]\s{0,2}kb:[0-9a-f]{4,64}){0,40}"
_MARK = re.compile(rf"\[kb:([0-9a-f]{{4,64}})({_MORE})\]")
_NEXT = re.compile(r"kb:([0-9a-f]{4,64})")
# What may still become a mark: every beginning of one, and nothing else. A text is held back from here on, and never long.
_BEGUN = re.compile(
    rf"\[(?:k?|kb:?|kb:[0-9a-f]{{1,64}}|kb:[0-9a-f]{{4,64}}{_MORE}\s{{0,2}}(?:[,;]\s{{0,2}}(?:k?|kb:?|kb:[0-9a-f]{{1,64}}))?)\Z"
)
_LINK = re.compile(r"https?://[^\s\"'<>\\)\]]+")
_MOST_LINKS = 5_000
_CUT = "\n[Output truncated"  # how a result ends that was too long


class RetrievedSources:
    """What was retrieved for a question, and what its texts cite of it."""

    def __init__(self) -> None:
        self._known: dict[str, Citation] = {}  # by mark
        self._links: set[str] = set()  # in results of other tools
        self._cited: dict[str, tuple[Citation, ...]] = {}  # by the text that people see

    def add_result(self, result: str, *, knowledge: bool) -> None:
        """Takes in what a tool returned; of the knowledge base's tools it is documents."""
        if not knowledge:
            links = (link.rstrip(".,;:!?*`") for link in _LINK.findall(result))
            self._links |= set(islice(links, max(0, _MOST_LINKS - len(self._links))))
            return
        for found in _documents(result):
            marks = _NEXT.findall(str(found.get("cite") or ""))
            if marks and marks[0] not in self._known:
                title, link, document_id = (
                    str(found.get(key) or "") for key in ("title", "link", "document_id")
                )
                self._known[marks[0]] = Citation(
                    title=title or document_id or marks[0], url=link or None, document_id=document_id or None
                )

    def get(self, mark: str) -> Citation | None:
        return self._known.get(mark)

    def number_citations(self, text: str) -> str:
        """What people see of a whole message."""
        whole = CitedText(self)
        told = whole.feed(visible_text(text)) + whole.end()
        if whole.citations:
            self._cited[told] = whole.citations
        return told

    def citations_in(self, text: str, data: Any) -> tuple[Citation, ...]:
        """What an answer cites: in its text, by number, and then what its data name besides and was really seen."""
        named = (self._seen(Citation.model_validate(one)) for one in (data or {}).get("citations") or ())
        return tuple(dict.fromkeys((*self._cited.get(text, ()), *filter(None, named))))

    def _seen(self, named: Citation) -> Citation | None:
        """The document that was meant, as it was retrieved, or a link that some tool returned."""
        known = self._known.values()
        by_id = (one for one in known if named.document_id and one.document_id == named.document_id)
        by_link = (one for one in known if named.url and one.url == named.url)
        linked = named.model_copy(update={"document_id": None}) if named.url in self._links else None
        return next(by_id, None) or next(by_link, linked)


class CitedText:
    """Takes a message in pieces and gives it back with numbers in the place of marks."""

    def __init__(self, sources: RetrievedSources) -> None:
        self._sources, self._held = sources, ""
        self._numbers: dict[str, int] = {}

    @property
    def citations(self) -> tuple[Citation, ...]:
        """In the order of their numbers."""
        return tuple(found for mark in self._numbers if (found := self._sources.get(mark)) is not None)

    def feed(self, piece: str) -> str:
        if not self._held and "[" not in piece:
            return piece
        text = self._held + piece
        begun = _BEGUN.search(text)
        self._held = text[begun.start() :] if begun else ""
        return self._numbered(text[: begun.start()] if begun else text)

    def end(self) -> str:
        held, self._held = self._held, ""
        return self._numbered(held)

    def _numbered(self, text: str) -> str:
        return _MARK.sub(self._number, text)

    def _number(self, match: re.Match[str]) -> str:
        marks = [match[1], *_NEXT.findall(match[2])]
        known = [mark for mark in marks if self._sources.get(mark) is not None]
        return "".join(
            f"[{self._numbers.setdefault(mark, len(self._numbers) + 1)}]" for mark in dict.fromkeys(known)
        )


class CitedTextFilter:
    """What people see of a message that comes in pieces. Only the supervisor has `sources` to cite."""

    def __init__(self, sources: RetrievedSources | None) -> None:
        self._visible, self._cited = VisibleTextFilter(), CitedText(sources) if sources is not None else None

    def feed(self, piece: str) -> str:
        text = self._visible.feed(piece)
        if self._cited is not None:
            return self._cited.feed(text)
        return text


def _documents(result: str) -> Iterator[Mapping[str, Any]]:
    """The documents that a result speaks of, also when it was cut off or something was written behind it."""
    try:
        read = (
            from_json(result.partition(_CUT)[0], allow_partial=True)
            if _CUT in result
            else json.JSONDecoder().raw_decode(result)[0]
        )
    except ValueError:
        yield from ({"cite": mark} for mark in dict.fromkeys(re.findall(r"\[kb:[0-9a-f]{4,64}\]", result)))
        return
    found = read.get("results", [read]) if isinstance(read, dict) else []
    yield from (one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()
