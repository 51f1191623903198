"""Limits of YAML and JSON texts, checked event by event before anything is built of them.

A few bytes of aliases can stand for any amount of memory, deep nesting overflows a parser's stack, and a long
number takes time that grows with the square of its length.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

# libyaml's events come one by one, without recursion. Both parsers give the same ones.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_MAX_NUMBER_CHARS = 400
_NUMBER_STARTS = frozenset("+-.0123456789")


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """How much a text may hold; `nodes` counts what an alias stands for each time that it is used."""

    chars: int = 2_000_000
    depth: int = 50
    nodes: int = 100_000
    scalar_chars: int = 500_000


CONFIG_FILE_LIMITS = YamlLimits()


class YamlLimitExceeded(Exception):
    """A text that holds more than its limits allow; `problem` quotes nothing of it."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


def check_yaml(text: str, limits: YamlLimits = CONFIG_FILE_LIMITS) -> None:
    """Raises YamlLimitExceeded; yaml.YAMLError when the text is no YAML."""
    if len(text) > limits.chars:
        raise YamlLimitExceeded(f"it is longer than {limits.chars} characters")
    counter = _NodeCounter(limits)
    for event in _parse_events(text):
        counter.count(event)


def _parse_events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except UnicodeEncodeError:  # half a surrogate pair: libyaml wants UTF-8
        raise YamlLimitExceeded("it holds half a character") from None


@dataclass(slots=True)
class _OpenNode:
    """A list or mapping whose end has not come yet, and the size of what it holds so far."""

    anchor: str | None
    size: int = 1


@dataclass(slots=True)
class _NodeCounter:
    """Counts the nodes of a text as if every alias were written out."""

    limits: YamlLimits
    _open_nodes: list[_OpenNode] = field(default_factory=list)
    _sizes: dict[str, int] = field(default_factory=dict)  # of the finished nodes with an anchor
    _total: int = 0

    def count(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else None
        match event:
            case yaml.ScalarEvent():
                _check_scalar(event, self.limits.scalar_chars, line)
                self._add(event.anchor, 1, line)
            case yaml.AliasEvent():
                self._add(None, self._find_size(event.anchor, line), line)
            case yaml.CollectionStartEvent():
                self._open_nodes.append(_OpenNode(event.anchor))
                if len(self._open_nodes) > self.limits.depth:
                    raise YamlLimitExceeded(f"it is nested deeper than {self.limits.depth} levels", line)
            case yaml.CollectionEndEvent():
                node = self._open_nodes.pop()
                self._add(node.anchor, node.size, line)
            case yaml.DocumentStartEvent():
                self._sizes.clear()
                self._add(None, 1, line)
            case _:
                pass

    def _add(self, anchor: str | None, size: int, line: int | None) -> None:
        """Counts a node that is complete."""
        if anchor is not None:
            self._sizes[anchor] = size
        if self._open_nodes:
            self._open_nodes[-1].size += size
            size = self._open_nodes[-1].size
        else:
            self._total += size
            size = self._total
        if size > self.limits.nodes:
            raise YamlLimitExceeded(f"it holds more than {self.limits.nodes} values", line)

    def _find_size(self, anchor: str | None, line: int | None) -> int:
        if any(node.anchor == anchor for node in self._open_nodes):
            raise YamlLimitExceeded("a value contains itself (`*` refers to what it stands in)", line)
        return self._sizes.get(anchor or "", 1)


def _check_scalar(event: yaml.ScalarEvent, max_chars: int, line: int | None) -> None:
    value: str = event.value
    if len(value) > max_chars:
        raise YamlLimitExceeded(f"a value is longer than {max_chars} characters", line)
    if len(value) <= _MAX_NUMBER_CHARS:
        return
    may_be_number = event.implicit[0] and value[0] in _NUMBER_STARTS and not any(map(str.isspace, value))
    if may_be_number or event.tag not in _TEXT_TAGS:
        raise YamlLimitExceeded("a long number; put it in quotes", line)
