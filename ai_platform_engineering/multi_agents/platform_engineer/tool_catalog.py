"""The tools of an agent as it can search them: their schemas with their sizes, ranked by words (BM25)."""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ai_platform_engineering.models.offline.word_matching import stem_words, synonym_groups

_K1 = 1.2  # how much a repeated word counts
_B = 0.5  # how much a long description counts against a tool
_NAME_WEIGHT = 4  # a word of the name, as words of the description
_ARGUMENT_WEIGHT = 1
_SYNONYM_SHARE = 0.4
_SHORT_PLURAL_CHARS = 3
_MAX_DESCRIPTION_CHARS = 1_000  # of a tool whose schema is too large


@dataclass(frozen=True, slots=True)
class CatalogTool:
    """A tool in the form in which it is bound, and the characters of its schema."""

    tool: BaseTool
    chars: int


@dataclass(frozen=True)
class ToolCatalog:
    """The domain tools of an agent, by name."""

    tools: Mapping[str, CatalogTool] = field(default_factory=dict)

    @classmethod
    def build(cls, tools: Sequence[BaseTool], max_chars: int) -> "ToolCatalog":
        """Measures the schemas; one of more than `max_chars` is reduced. Not for the event loop."""
        return cls({tool.name: _fit(tool, max_chars) for tool in tools})

    @cached_property
    def chars(self) -> int:
        return sum(entry.chars for entry in self.tools.values())

    def search(self, words: str, is_offered: Callable[[str], bool]) -> list[str]:
        """The names of the tools that match, the best first. A name that is written out comes before all."""
        scores = self._index.score(words)
        written = words.casefold()
        for name in self.tools:
            if name.casefold() in written.split() or name.casefold() == written.strip():
                scores[name] = math.inf
        offered = [name for name in scores if is_offered(name)]
        return sorted(offered, key=lambda name: (-scores[name], name))

    @cached_property
    def _index(self) -> "_WordIndex":
        return _WordIndex({name: _count_words(entry.tool) for name, entry in self.tools.items()})


class _WordIndex:
    """Texts as counted words, ranked by BM25."""

    def __init__(self, texts: Mapping[str, Counter[str]]) -> None:
        self._texts = texts
        self._lengths = {name: sum(words.values()) for name, words in texts.items()}
        self._mean_length = sum(self._lengths.values()) / max(1, len(texts))
        self._frequencies = Counter(word for words in texts.values() for word in words)

    def score(self, words: str) -> dict[str, float]:
        """The scores of the texts that have any of the words."""
        weights: dict[str, float] = {}
        for word in _split_words(words):
            weights[word] = 1.0
            for group in synonym_groups(word):
                weights.setdefault(_mark_group(group), _SYNONYM_SHARE)
        scores: dict[str, float] = {}
        for name, text in self._texts.items():
            score = sum(weight * self._score_word(word, name, text) for word, weight in weights.items())
            if score > 0:
                scores[name] = score
        return scores

    def _score_word(self, word: str, name: str, text: Counter[str]) -> float:
        count = text[word]
        if not count:
            return 0.0
        frequency = self._frequencies[word]
        rarity = math.log(1 + (len(self._texts) - frequency + 0.5) / (frequency + 0.5))
        length = 1 - _B + _B * self._lengths[name] / self._mean_length
        return rarity * count * (_K1 + 1) / (count + _K1 * length)


def measure_schema(tool: BaseTool | dict[str, Any]) -> int:
    """The characters of a tool's schema in a model request."""
    return len(json.dumps(convert_to_openai_tool(tool), ensure_ascii=False))


def _count_words(tool: BaseTool) -> Counter[str]:
    counts: Counter[str] = Counter()
    weighted_texts = (
        (tool.name, _NAME_WEIGHT),
        (tool.description, 1),
        (" ".join(_list_arguments(tool)), _ARGUMENT_WEIGHT),
    )
    for text, weight in weighted_texts:
        for word in _split_words(text):
            counts[word] += weight
            for group in synonym_groups(word):
                counts[_mark_group(group)] += weight
    return counts


def _split_words(text: str) -> list[str]:
    """The stems of the words; those of short plurals, too, as names of tools have them: `list_mrs`."""
    words: list[str] = []
    for word in stem_words(text):
        is_short_plural = len(word) == _SHORT_PLURAL_CHARS and word.endswith("s")
        words.append(word[:-1] if is_short_plural else word)
    return words


def _mark_group(group: str) -> str:
    """A group of synonyms as a word that no text has."""
    return f"#{group}"


def _list_arguments(tool: BaseTool) -> Collection[str]:
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return list(schema.get("properties") or {})
    return list(getattr(schema, "model_fields", ()))


def _fit(tool: BaseTool, max_chars: int) -> CatalogTool:
    """The tool with its schema, or with as much of it as fits: the server checks the arguments anyway."""
    chars = measure_schema(tool)
    if chars <= max_chars or not isinstance(tool.args_schema, dict):
        return CatalogTool(tool, chars)
    description = tool.description[:_MAX_DESCRIPTION_CHARS]
    for schema in (_drop_texts(tool.args_schema), _drop_nested(tool.args_schema)):
        tool = tool.model_copy(update={"args_schema": schema, "description": description})
        chars = measure_schema(tool)
        if chars <= max_chars:
            break
    return CatalogTool(tool, chars)


def _drop_texts(schema: Any) -> Any:
    """A schema without descriptions, titles and examples."""
    if isinstance(schema, list):
        return [_drop_texts(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reduced: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            reduced[key] = {name: _drop_texts(item) for name, item in value.items()}
        elif key not in ("description", "title", "examples", "default"):
            reduced[key] = _drop_texts(value)
    return reduced


def _drop_nested(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with the names and types of the arguments alone."""
    properties: dict[str, Any] = {}
    for name, item in (schema.get("properties") or {}).items():
        properties[name] = {}
        if isinstance(item, dict) and isinstance(item.get("type"), str):
            properties[name] = {"type": item["type"]}
    return {"type": "object", "properties": properties, "required": schema.get("required") or []}
