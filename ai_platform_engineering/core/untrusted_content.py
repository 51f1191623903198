"""Untrusted content: text that a model has read and that no person of its conversation wrote.

Results of tools, answers of agents and texts of third parties can hold instructions. Which of them led to a
call cannot be seen from the call, so what counts is that they came before it.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_WORDS_CHARS = 20_000  # of what people said; what is left out counts as not said
_MAX_SOURCES = 20
_MAX_SOURCE_CHARS = 120
_MAX_NAMED = 3
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class UntrustedContent:
    """The sources of the untrusted text in a conversation, and what its people said themselves.

    `results` came in while the conversation went on. `definitions` stood in the prompt from its beginning:
    descriptions that third parties wrote.
    """

    results: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    words: str = ""

    @classmethod
    def from_data(cls, data: Any) -> "UntrustedContent | None":
        """The content in the form in which delegations and A2A messages carry it."""
        if not isinstance(data, Mapping):
            return None
        return cls(
            results=_read_sources(data.get("results")),
            definitions=_read_sources(data.get("definitions")),
            words=str(data.get("words") or "")[:MAX_WORDS_CHARS],
        )

    def to_data(self) -> dict[str, Any]:
        return {
            "results": list(self.results[-_MAX_SOURCES:]),
            "definitions": list(self.definitions[-_MAX_SOURCES:]),
            "words": self.words[:MAX_WORDS_CHARS],
        }

    @property
    def is_empty(self) -> bool:
        return not self.results and not self.definitions


def is_covered(value: Any, words: str) -> bool:
    """Whether a value consists of nothing but these words. True and false say nothing by themselves."""
    trusted_words = _split_words(words)
    for text in _find_texts(value):
        if _has_invisible(text) or not _split_words(text) <= trusted_words:
            return False
    return True


def describe_sources(sources: Sequence[str]) -> str:
    """The sources in words; of many the last ones are named."""
    named = list(dict.fromkeys(reversed(sources)))
    text = ", ".join(named[:_MAX_NAMED])
    if len(named) > _MAX_NAMED:
        text += f" and {len(named) - _MAX_NAMED} more"
    return text


def _read_sources(sources: Any) -> tuple[str, ...]:
    if not isinstance(sources, list | tuple):
        return ()
    return tuple(str(source)[:_MAX_SOURCE_CHARS] for source in sources[-_MAX_SOURCES:])


def _find_texts(value: Any) -> Iterator[str]:
    """The texts and numbers in a JSON value, with the keys of objects."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _find_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _find_texts(item)
    else:
        yield str(value)


def _split_words(text: str) -> set[str]:
    return set(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _has_invisible(text: str) -> bool:
    return any(unicodedata.category(character) == "Cf" for character in text)
